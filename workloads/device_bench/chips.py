"""What a GPU can multiply at most: by its clock as it ran, and by its data sheet.

A chip slows down when it would use too much power, and products of random numbers make it do so.
So two limits are told: that of the clock seen while it worked, which says how good the product was,
and the data sheet's, which is for a clock that long work may not keep.
"""

import re
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch

# Floating-point operations (a multiply-add is two) of one multiprocessor in a clock cycle, dense
# and added up in fp32, by compute capability. Only where all chips of a capability have the same:
# 8.6, 8.9 and 12.0 have half as much on some boards as on others.
# NVIDIA's papers on the V100, A100 and H100 architectures and CUTLASS' page on Blackwell say the
# same as data sheets do: 80 multiprocessors x 1024 x 1530 MHz are a V100's 125 TFLOP/s, 108 x 2048
# x 1410 MHz an A100's 312, 132 x 4096 x 1830 MHz an H100's 989, 148 x 8192 x 1850 MHz a B200's 2243
# (2250 on its sheet).
PER_CLOCK: Mapping[tuple[int, int], Mapping[str, int]] = {
    (7, 0): {"fp32": 128, "fp16": 1024},
    (8, 0): {"fp32": 128, "tf32": 1024, "bf16": 2048, "fp16": 2048},
    (9, 0): {"fp32": 256, "tf32": 2048, "bf16": 4096, "fp16": 4096, "fp8": 8192},
    (10, 0): {"fp32": 256, "tf32": 4096, "bf16": 8192, "fp16": 8192, "fp8": 16384},
}

# Chips of such a capability whose multiprocessors were made slower for a market: an H20 has 78 at
# 1980 MHz, and 148 TFLOP/s in bf16 on its sheet, where 632 would follow.
_CUT = re.compile(r"\b(?:H20|CMP)\b")


def per_clock(kind: str, capability: tuple[int, int] | None, name: str = "") -> int | None:
    """Return the operations of one multiprocessor in a cycle; None where they are not known."""
    if capability is None or _CUT.search(name):
        return None
    return PER_CLOCK.get(capability, {}).get(kind)


_H100 = {"fp32": 66.9, "tf32": 494.7, "bf16": 989.4, "fp16": 989.4, "fp8": 1978.9}
# TFLOP/s without sparsity by NVIDIA's data sheets, for whole GPUs of a name.
SHEETS: Mapping[tuple[str, int], Mapping[str, float]] = {
    ("V100-SXM2", 80): {"fp32": 15.7, "fp16": 125.0},
    ("A100", 108): {"fp32": 19.5, "tf32": 156.0, "bf16": 312.0, "fp16": 312.0},
    ("H100 PCIe", 114): {"fp32": 51.2, "tf32": 378.0, "bf16": 756.0, "fp16": 756.0, "fp8": 1513.0},
    ("H100 80GB HBM3", 132): _H100,
    ("H200", 132): _H100,
}
_EVERY_S = 0.01


@dataclass(frozen=True)
class Chip:
    """A GPU as far as its limits go.

    Attributes:
        name: as torch has it.
        capability: CUDA's; None for what is no NVIDIA GPU.
        multiprocessors: of the GPU or its MIG slice.
    """

    name: str
    capability: tuple[int, int] | None
    multiprocessors: int

    @classmethod
    def of(cls, device: torch.device) -> "Chip":
        """Return the chip of a device."""
        if device.type != "cuda":
            return cls("CPU", None, 0)
        seen = torch.cuda.get_device_properties(device)
        # ROCm's torch says cuda too, and gives AMD's GPUs a capability of their own kind.
        ours = None if torch.version.hip else (seen.major, seen.minor)
        return cls(seen.name, ours, seen.multi_processor_count)

    def at_clock(self, kind: str, mhz: float | None) -> float | None:
        """Return the TFLOP/s that a clock allows; None where that is not known."""
        rate = per_clock(kind, self.capability, self.name)
        return rate * self.multiprocessors * mhz / 1e6 if rate and mhz else None

    def unknown(self, kind: str) -> str:
        """Return why no limit can be told at any clock; empty where it can, and for CPUs."""
        if self.at_clock(kind, 1.0) or not self.multiprocessors:
            return ""
        words = ".".join(map(str, self.capability)) if self.capability else "not NVIDIA's"
        return f"no limit is known of {self.name} (compute capability {words})"

    def by_sheet(self, kind: str) -> float | None:
        """Return the TFLOP/s of the data sheet; None where this is another chip, or a slice."""
        for (name, multiprocessors), peaks in SHEETS.items():
            if name in self.name and multiprocessors == self.multiprocessors:
                return peaks.get(kind)
        return None


@dataclass
class Clock:
    """The clock of a GPU's multiprocessors while it worked.

    Attributes:
        seen: what NVML said, MHz, one after the other.
        problem: why it said nothing; empty for CPUs, which nobody asks.
    """

    seen: list[float] = field(default_factory=list)
    problem: str = ""

    @property
    def mhz(self) -> float | None:
        """The mean over the second half of the readings: NVML's are of the time just before."""
        late = self.seen[len(self.seen) // 2 :]
        return sum(late) / len(late) if late else None


@contextmanager
def watching(device: torch.device) -> Iterator[Clock]:
    """Read the clock of a GPU while the block runs."""
    clock, over = Clock(), threading.Event()
    if device.type != "cuda":
        yield clock
        return

    def read() -> None:
        try:
            while not over.is_set():
                clock.seen.append(float(torch.cuda.clock_rate(device)))
                time.sleep(_EVERY_S)
        except Exception as error:  # noqa: BLE001  # no NVML, or a slice that has no clock
            clock.problem = str(error).splitlines()[0] if str(error) else type(error).__name__

    thread = threading.Thread(target=read, name="clock", daemon=True)
    thread.start()
    try:
        yield clock
    finally:
        over.set()
        thread.join()
