"""A dry run: the CPU instead of a GPU, a library that plays NVML, a program that plays nvidia-smi.

So that a wrong word in a check shows where there is no GPU. What such a run says of a GPU means
nothing. With HPCKIT_GPU_SKEW (`util=3 power=-50`) what programs see differs by so much from what
checks know: then they must fail, if limits hold (HPCKIT_GPU_ENFORCE). With HPCKIT_GPU_REFUSES
(`gpm energy`) the library does not support some readings, and with `mig` the GPU is a slice: then
checks must say what they cannot tell.
"""

import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tests.gpu.machine import DRY, Machine, Memory
from tests.stats.stub.script import Gpu, Steps, Stub, build_library, uuid

if TYPE_CHECKING:
    from torch import device as Device  # noqa: N812

SKEW, ENFORCE = "HPCKIT_GPU_SKEW", "HPCKIT_GPU_ENFORCE"
REFUSES, MIG, SLICE = "HPCKIT_GPU_REFUSES", "mig", "MIG-00000000-0000-4000-8000-000000000001"
_NOT_SUPPORTED = 3
NAME = "NVIDIA H100 80GB HBM3"
TOTAL = 85_520_809_984
# What nvidia-smi says beside what is played.
_FIXED = {
    "memory.reserved": 551, "memory.total": 81559, "clocks.current.sm": 1980,
    "clocks.current.memory": 3201, "temperature.gpu": 45, "temperature.memory": 52,
}  # fmt: skip
BASE: dict[str, float] = {
    "util": 50, "graphics": 50, "sm": 40, "occupancy": 20, "tensor": 30, "dram": 20,
    "power": 400, "memory": 4 * 2**30,
}  # fmt: skip


def write_scene(
    folder: Path, pid: int = 1, waves: Mapping[str, Steps] | None = None, **curves: float
) -> dict[str, str]:
    """Write what the library plays; return the variables by which a process finds it."""
    values = {**BASE, **curves}
    values["graphics"] = values["util"]
    _write_smi(folder, values)
    values["power"] *= 1000  # mW
    process = (f"{pid} {int(values['memory'] - 2**29)} 0 1e9",)
    words = {"name": NAME, "memory_total": TOTAL, "process": process, **refusals()}
    steps = {name: [(0.0, value)] for name, value in values.items()} | dict(waves or {})
    gpus = [Gpu(index=0, curves=steps, words=words)]
    if MIG in os.environ.get(REFUSES, ""):
        words = {"name": f"{NAME} MIG 1g.10gb", "memory_total": TOTAL // 8, "process": process}
        gpus += [Gpu(index=0, curves=steps, uuid=SLICE, slice_of=uuid(0),
                     words={**words, "instance": 1})]  # fmt: skip
    library = folder / "libnvidia-ml.so.1"
    if not library.exists():
        build_library(folder)
    stub = Stub(library=library, folder=folder)
    wanted = stub.environment(gpus)
    return {k: v for k, v in wanted.items() if k.startswith("NVML_") or k == "LD_LIBRARY_PATH"}


def refusals() -> dict[str, object]:
    """Return the stub's words for a board or driver that lacks some readings."""
    names = os.environ.get(REFUSES, "").split()
    calls = tuple(f"{_NOT_SUPPORTED} 0 1e9 {name}" for name in names if name not in ("gpm", MIG))
    return {"fail": calls, "gpm": "gpm" not in names} if names else {}


def _write_smi(folder: Path, values: Mapping[str, float]) -> None:
    said = {
        **_FIXED,
        "utilization.gpu": values["util"],
        "memory.used": values["memory"] / 2**20 - _FIXED["memory.reserved"],
        "power.draw": values["power"],
    }
    row = {"gpu": 0, "pwr": values["power"], "sm": values["util"], "mclk": 3201, "pclk": 1980}
    text = _SMI.format(python=sys.executable, said=said, row=row, name=NAME, uuid=uuid(0))
    path = folder / "bin" / "nvidia-smi"
    path.parent.mkdir(exist_ok=True)
    part = path.with_name("part")
    part.write_text(text)
    part.chmod(0o755)
    part.rename(path)


_SMI = """#!{python} -S
import sys, time
said, row = {said!r}, {row!r}
words = sys.argv[1:]
query = [word.partition("=")[2].split(",") for word in words if word.startswith("--query-gpu=")]
if "-L" in words or "--list-gpus" in words:
    print("GPU 0: {name} (UUID: {uuid})")
    sys.exit()
count = int(words[words.index("-c") + 1]) if "-c" in words else 10**6
if not query:
    print("# " + "  ".join(row))
    print("# " + "  ".join("x" for _ in row))
for _ in range(count):
    if query:
        print(", ".join(str(said.get(name, "[N/A]")) for name in query[0]), flush=True)
    else:
        print("    ".join(f"{{value:g}}" for value in row.values()), flush=True)
    if not query or any(word.startswith("-lms") for word in words):
        time.sleep(0.2)
    else:
        break
"""


class DryMachine(Machine):
    """The CPU, and the NVML stub of tests/stats with one GPU: what checks say means nothing."""

    dry = True
    taken = 0

    @property
    def device(self) -> "Device":
        """The CPU."""
        found: Device = self.torch.device("cpu")
        return found

    def synchronize(self) -> None:
        """Nothing: the CPU is done when it returns."""

    def seconds(self, call: Callable[[], object], *, repeat: int = 5, warm: int = 2) -> float:
        """Return the median time of a call, by the clock."""
        for _ in range(min(warm, 1)):
            call()
        found = []
        for _ in range(min(repeat, 2)):
            began = time.perf_counter()
            call()
            found.append(time.perf_counter() - began)
        return statistics.median(found)

    def memory(self) -> Memory:
        """Return what the library plays, as if nobody else had any."""
        found = self.ask("nvmlDeviceGetMemoryInfo", self.unit.handle)
        free = found.free if found else TOTAL // 2  # torch asks CUDA
        return Memory(reserved=self.taken, free=free - self.taken, total=TOTAL)

    def release(self) -> None:
        """Nothing: nothing was taken."""

    def expect(self, **curves: float) -> None:
        """Write the script of the next program that opens the library."""
        for word in os.environ.get(SKEW, "").split():
            name, _, by = word.partition("=")
            curves[name] = curves.get(name, BASE[name]) + float(by)
        write_scene(Path(os.environ[DRY]), os.getpid(), None, **curves)

    def expect_wave(self, *, util: float, period_s: float) -> None:
        """Write a script with a square wave of utilization."""
        steps = [(at * period_s / 2, util * (at % 2)) for at in range(100)]
        waves = {"util": steps, "graphics": steps}
        write_scene(Path(os.environ[DRY]), os.getpid(), waves)

    def environment(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return the environment in which a program finds the library, and plays from its start."""
        folder = Path(os.environ[DRY])
        (folder / "began").unlink(missing_ok=True)
        found = super().environment(more)
        return found | {"PATH": f"{folder / 'bin'}:{found['PATH']}"}

    @property
    def capability(self) -> tuple[int, int]:
        """An H100's."""
        return 9, 0

    @property
    def multiprocessors(self) -> int:
        """An H100's."""
        return 132

    def dram_peak(self) -> float | None:
        """An H100's."""
        return 3.35e12
