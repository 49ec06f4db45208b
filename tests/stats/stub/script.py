"""Scripts for the stubs, and their exact means: the Python twin of `player.h`."""

import importlib.util
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

H200 = {"name": "NVIDIA H200", "memory_total": 150_754_820_096, "power_limit": 700_000}
MI300X = {"name": "AMD Instinct MI300X", "memory_total": 206_141_652_992, "power_limit": 750_000}
_HERE = Path(__file__).parent
_FLAGS = ("-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC")
Steps = Sequence[tuple[float, float]]  # (script second, value from then on)


def build_library(folder: Path) -> Path:
    built = folder / "libnvidia-ml.so.1"
    name = "-Wl,-soname,libnvidia-ml.so.1"
    source = _HERE / "nvml_stub.c"
    subprocess.run(["cc", *_FLAGS, name, "-o", built, source, "-lm"], check=True)
    return built


def build_amd_library(folder: Path) -> Path:
    """Build AMD's: the package asks for every function when it is imported, so all are there."""
    built, source = folder / "libamd_smi.so", _HERE / "amd_stub.c"
    package = importlib.util.find_spec("amdsmi")
    assert package
    assert package.submodule_search_locations
    wrapper = Path(package.submodule_search_locations[0], "amdsmi_wrapper.py").read_text()
    asked = set(re.findall(r"_libraries\['libamd_smi.so'\]\.(\w+)", wrapper))
    own = set(re.findall(r"^int (\w+)\(", source.read_text(), re.MULTILINE))
    rest = folder / "rest.c"
    rest.write_text("".join(f"int {name}(void) {{ return 2; }}\n" for name in sorted(asked - own)))
    subprocess.run(["cc", *_FLAGS, "-o", built, source, rest, "-lm"], check=True)
    return built


# What energy counters begin with.
ENERGY_BASE_MJ = 10**10


def uuid(index: int) -> str:
    return f"GPU-{index:08x}-0000-4000-8000-{index:012x}"


@dataclass
class Gpu:
    """One GPU of a script, or a slice of the one before (`slice_of` its UUID)."""

    index: int
    curves: Mapping[str, Steps] = field(default_factory=dict)
    words: Mapping[str, object] = field(default_factory=dict)
    uuid: str = ""
    slice_of: str | None = None

    def lines(self) -> str:
        first = f"slice {self.index}" if self.slice_of else f"gpu {self.index}"
        pci = f"00000000:{0x18 + self.index:02X}:00.0"
        own = {"uuid": self.uuid or uuid(self.index), "pci": pci, "energy_base": ENERGY_BASE_MJ}
        words = {**H200, **own}
        rows = [
            first,
            *(
                f"{name} {int(value) if value is True else value}"
                for name, given in {**words, **self.words}.items()
                for value in (given if isinstance(given, tuple) else (given,))
            ),
        ]
        for name, steps in self.curves.items():
            rows.append(f"{name} " + " ".join(f"{at:g}:{value:.10g}" for at, value in steps))
        return "\n".join(rows) + "\n"

    def mean(self, name: str, start: float, end: float) -> float:
        """The exact time-weighted mean of a curve between two script seconds."""
        steps = [*self.curves[name], (float("inf"), 0.0)]
        total = 0.0
        for (at, value), (until, _) in pairwise(steps):
            total += value * max(0.0, min(until, end) - max(at, start))
        return total / (end - start)


def busy(index: int = 0, util: Steps = ((0, 100),), *, sm: float = 0.6, **words: object) -> Gpu:
    """A GPU whose power, memory and activity follow its utilization as an H200's do."""
    curves = {
        "util": util,
        "graphics": util,
        "power": [(at, 120_000 + value * 5_300) for at, value in util],
        "memory": [(at, 600 * 2**20 + (90 * 2**30 if value else 0)) for at, value in util],
        "sm": [(at, value * sm) for at, value in util],
        "occupancy": [(at, value * sm / 2) for at, value in util],
        "tensor": [(at, value * sm / 3) for at, value in util],
        "dram": [(at, value * sm / 4) for at, value in util],
    }
    return Gpu(index=index, curves=curves, words=words)


@dataclass
class Stub:
    """The stub library, and the environment in which a process plays a script.

    `started` is given, or what the library says: the first process to ask anything starts the
    script, however long the machine took to start that process.
    """

    library: Path
    folder: Path
    scale: float = 1.0
    started: float | None = None

    @property
    def began(self) -> Path:
        """The file in which the library says when the script started; it is made whole."""
        return self.folder / "began"

    @property
    def start(self) -> float:
        """When the script started: CLOCK_MONOTONIC, in seconds."""
        return float(self.began.read_text()) if self.started is None else self.started

    def environment(self, gpus: Sequence[Gpu], *, scale: float = 1.0) -> dict[str, str]:
        """Write the script; it starts with the first call."""
        script = self.folder / "script.txt"
        part = self.folder / "script.part"
        part.write_text(self.script(gpus))
        part.replace(script)  # whole at any moment: a sampler may be reading
        self.scale, self.started = scale, None
        self.began.unlink(missing_ok=True)
        return {
            **{
                k: v for k, v in os.environ.items() if not k.startswith(("SLURM", "CUDA", "HPCKIT"))
            },
            "LD_LIBRARY_PATH": str(self.library.parent),
            "NVML_STUB_SCRIPT": str(script),
            "NVML_STUB_READS": str(self.folder / "reads"),
            "NVML_STUB_SCALE": f"{scale:g}",
            "NVML_STUB_BEGAN": str(self.began),
        }

    @staticmethod
    def script(gpus: Sequence[Gpu]) -> str:
        """Return the text of a script."""
        return "driver 570.86.15\n" + "".join(gpu.lines() for gpu in gpus)

    def script_time(self, boottime_us: int) -> float:
        """The script second of a sample, whose clock also counts the time a node slept."""
        slept = time.clock_gettime(time.CLOCK_BOOTTIME) - time.monotonic()
        return (boottime_us / 1e6 - slept - self.start) * self.scale


SAMPLER = (sys.executable, "-m", "hpckit.stats.sampler")
