"""What one GPU says at each sample, each minute, and when asked for its state.

A field that the board, the driver or the user's rights do not allow is None for good, said once.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import TypeVar

from hpckit.stats.sampler.gpus import Unit
from hpckit.stats.sampler.nvml import Gpm, Nvml, NvmlError, Trouble
from hpckit.stats.samples.records import GPM, MEAN, SPOT, GpuSample, GpuSlow, GpuState

Answer = TypeVar("Answer")
Tell = Callable[[str, str, str | None], None]  # code, text, UUID: becomes a Note

# The counter moves in steps of some 20 to 100 ms: a shorter difference is not a power.
_SHORTEST_POWER_US = 500_000


class GpuReader:
    """Reads one GPU or MIG slice. Any method raises NvmlError once the GPU is lost."""

    def __init__(self, nvml: Nvml, unit: Unit, tell: Tell) -> None:
        self.unit = unit
        self._nvml = nvml
        self._tell = tell
        self._never: set[str] = set()
        self._told: set[str] = set()
        self._gpm: Gpm | None = None
        self._energy: tuple[int, int] | None = None  # (our time, counter)
        self._seen_us: int | None = None  # time of the newest utilization in the driver's buffer
        self._source: str | None = None

    def sample(self, now_us: int) -> GpuSample:
        """Take the cheap readings: some microseconds each, energy and GPM some hundred."""
        handle = self.unit.handle
        graphics, sm, occupancy, tensor, dram = self._activity(now_us)
        energy, power = self._energy_and_power(now_us)
        return GpuSample(
            energy_mj=energy,
            memory_bytes=self._ask("memory", lambda: self._nvml.memory_bytes(handle)),
            power_mw=power,
            utilization_permille=self._utilization(graphics),
            sm_permille=sm,
            occupancy_permille=occupancy,
            tensor_permille=tensor,
            dram_permille=dram,
        )

    def slow(self) -> GpuSlow:
        """Take the readings for once a minute."""
        nvml, board = self._nvml, self.unit.board
        clocks = self._ask("clocks", lambda: nvml.clocks_mhz(board))
        source, self._source = self._source, None
        return GpuSlow(
            sm_mhz=clocks[0] if clocks else None,
            memory_mhz=clocks[1] if clocks else None,
            throttle_reasons=self._ask("throttle reasons", lambda: nvml.throttle_reasons(board)),
            temperature_c=self._ask("temperature", lambda: nvml.temperature_c(board)),
            memory_temperature_c=self._ask(
                "memory temperature", lambda: nvml.memory_temperature_c(board)
            ),
            utilization_source=source,
        )

    def state(self) -> GpuState:
        """Take what seldom changes; whose the processes are is for others to say."""
        nvml, board = self._nvml, self.unit.board
        errors = self._ask("ECC errors", lambda: nvml.ecc_errors(board))
        return GpuState(
            ecc_corrected=errors[0] if errors else None,
            ecc_uncorrected=errors[1] if errors else None,
            remapped_rows=self._ask("remapped rows", lambda: nvml.remapped_rows(board)),
            processes=self._ask("processes", lambda: nvml.processes(self.unit.handle)),
        )

    def _activity(self, now_us: int) -> tuple[int | None, ...]:
        unknown = (None,) * 5
        if not self.unit.info.gpm:
            return unknown
        if self._gpm is None and "GPM" not in self._never:
            self._gpm = self._ask("GPM", lambda: Gpm(self._nvml, self.unit))
        gpm = self._gpm
        if gpm is None:
            return unknown
        found = self._ask("GPM", lambda: gpm.permilles(now_us))
        return unknown if found is None else tuple(found)

    def _energy_and_power(self, now_us: int) -> tuple[int | None, int | None]:
        board = self.unit.board
        if self.unit.info.mig_parent:
            return None, None  # the whole GPU's: not this slice's
        energy = self._ask("energy", lambda: self._nvml.energy_mj(board))
        if energy is None:
            return None, self._ask("power", lambda: self._nvml.power_mw(board))
        last, self._energy = self._energy, (now_us, energy)
        if last is not None and energy < last[1]:
            self._tell("counter_reset", "The energy counter went back to 0.", self.unit.info.uuid)
            return energy, None
        if last is None or now_us - last[0] < _SHORTEST_POWER_US:
            return energy, None
        return energy, (energy - last[1]) * 1_000_000 // (now_us - last[0])

    def _utilization(self, graphics: int | None) -> int | None:
        if self.unit.info.mig_parent:  # NVML has no utilization of a slice; GPM has
            self._source = GPM if graphics is not None else self._source
            return graphics
        first = self._seen_us is None
        mean = self._buffered()
        if mean is not None:
            self._source = self._source or MEAN
            return mean
        spot = self._ask("utilization", lambda: self._nvml.spot_percent(self.unit.handle))
        if spot is None:
            return None
        # The first reading of all stands for no time: the buffer gives means from the second on.
        if not (first and self._seen_us is not None):
            self._source = SPOT
        return spot * 10

    def _buffered(self) -> int | None:
        """Return the mean over the driver's buffer since the last call; None the first time."""
        since = self._seen_us
        pairs = self._ask(
            "buffered utilization",
            lambda: self._nvml.buffered_percents(self.unit.handle, since or 0),
        )
        if not pairs:
            return None
        self._seen_us = pairs[-1][0]
        return None if since is None else mean_permille(since, pairs)

    def _ask(self, field: str, call: Callable[[], Answer]) -> Answer | None:
        if field in self._never:
            return None
        try:
            return call()
        except NvmlError as error:
            if error.trouble is Trouble.LOST:
                raise
            if error.trouble is Trouble.NEVER:
                self._never.add(field)
                self._say("not_supported", f"No {field}: {error}")
            elif field != "buffered utilization":  # NOT_FOUND: nothing new in it
                self._say("gpu_error", f"No {field} for a while: {error}")
            return None

    def _say(self, code: str, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            self._tell(code, text, self.unit.info.uuid)


def mean_permille(since_us: int, pairs: list[tuple[int, int]]) -> int:
    """Return the mean of (time, percent), each over the time since the one before, in permille.

    A first gap much longer than the next means that the buffer had forgotten its start.
    """
    gaps = [pairs[0][0] - since_us]
    gaps += [after[0] - before[0] for before, after in pairwise(pairs)]
    if len(gaps) > 1 and gaps[0] > 3 * gaps[1]:
        gaps[0] = gaps[1]
    weighted = sum(gap * percent for gap, (_, percent) in zip(gaps, pairs, strict=True))
    return round(10 * weighted / sum(gaps))
