"""Minutes in which a GPU's clocks were held down, and why."""

from collections.abc import Sequence
from dataclasses import dataclass

from hpckit.stats.samples.records import GpuSlow

# nvml.h, nvmlClocksEventReason*: those that mean lost speed. Not among them: idle (0x1), clocks
# set by the user (0x2), the power cap that a GPU at full work always meets (0x4), sync (0x10).
_HELD_DOWN = {
    0x08: "HwSlowdown",
    0x20: "SwThermalSlowdown",
    0x40: "HwThermalSlowdown",
    0x80: "HwPowerBrakeSlowdown",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Throttling:
    """What the slow readings of a GPU say, once a minute each."""

    readings: int = 0
    held_down: int = 0
    reasons: tuple[str, ...] = ()

    @property
    def percent(self) -> float | None:
        """Readings that found clocks held down, of all that told."""
        return self.held_down / self.readings * 100 if self.readings else None

    def __add__(self, other: "Throttling") -> "Throttling":
        return Throttling(
            readings=self.readings + other.readings,
            held_down=self.held_down + other.held_down,
            reasons=tuple(sorted({*self.reasons, *other.reasons})),
        )


def find_throttling(slow: Sequence[GpuSlow]) -> Throttling:
    """Count readings with clocks held down."""
    told = [row.throttle_reasons for row in slow if row.throttle_reasons is not None]
    every = 0
    for bits in told:
        every |= bits
    mask = sum(_HELD_DOWN)
    return Throttling(
        readings=len(told),
        held_down=sum(bool(bits & mask) for bits in told),
        reasons=tuple(sorted(name for bit, name in _HELD_DOWN.items() if every & bit)),
    )
