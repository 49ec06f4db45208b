"""The machine that checks run on: a GPU; or, in a dry run, the CPU and a library that plays NVML.

Checks ask it for all that differs between the two, so that the same lines run in both.
"""

import importlib.util
import os
import shutil
import statistics
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from hpckit.stats.sampler.gpu_library import GpuLibraryError, Trouble
from hpckit.stats.sampler.job_gpus import Unit, find_mine
from hpckit.stats.sampler.nvml import Nvml
from tests.gpu.chips import flops_per_cycle
from tests.gpu.surroundings import host_room_bytes, outside_of_jobs

if TYPE_CHECKING:
    from torch import device as Device  # noqa: N812

    from tests.gpu.sampling import Run

Kind = TypeVar("Kind")
DRY = "HPCKIT_GPU_DRY"  # a folder: where a dry run keeps what it plays
_EXCLUSIVE = 3  # nvml.h, NVML_COMPUTEMODE_EXCLUSIVE_PROCESS
_PACKAGES = {"sklearn": "scikit-learn", "yaml": "pyyaml", "pynvml": "nvidia-ml-py"}


def module_here(name: str) -> bool:
    """Tell whether a package can be imported; import nothing."""
    return importlib.util.find_spec(name) is not None


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Bytes: what torch keeps for this process, and what the device has free and in all."""

    reserved: int
    free: int
    total: int


class Machine:
    """One NVIDIA GPU: the first that CUDA_VISIBLE_DEVICES leaves."""

    dry = False
    # The run of the sampler beside the check, while there is one.
    sampling: "Run | None" = None
    # Keeps what a figure was made of, by a name; conftest says where.
    keep: Callable[[str, object], None] = staticmethod(lambda _what, _value: None)

    def __init__(self, folder: Path) -> None:
        """Look at the GPU.

        Args:
            folder: for what checks write.

        Raises:
            GpuLibraryError: NVML does not answer, or has no GPU for this process.
        """
        self.folder = folder
        self.nvml = Nvml()
        self.unit = first_unit(self.nvml, os.environ)

    @cached_property
    def torch(self) -> Any:
        """The package; imported when first asked for."""
        import torch

        return torch

    @property
    def device(self) -> "Device":
        """Where checks compute."""
        found: Device = self.torch.device("cuda", 0)
        return found

    def pick(self, real: Kind, dry: Kind) -> Kind:
        """Return a size: the one for a GPU, or a small one where the CPU stands in for it."""
        return dry if self.dry else real

    def synchronize(self) -> None:
        """Wait until the device has done what it was given."""
        self.torch.cuda.synchronize(self.device)

    def seconds(self, call: Callable[[], object], *, repeat: int = 5, warm: int = 2) -> float:
        """Return the median time of a call on the device, by CUDA events."""
        cuda = self.torch.cuda
        for _ in range(warm):
            call()
        found: list[float] = []
        for _ in range(repeat):
            begin, end = (cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            call()
            end.record()
            end.synchronize()
            found.append(begin.elapsed_time(end) / 1e3)
        return statistics.median(found)

    def environment(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return the environment for a program that a check starts."""
        kept = outside_of_jobs(os.environ)
        # A script of a job runs under the first Python of PATH: the one that has torch.
        kept["PATH"] = f"{Path(sys.executable).parent}:{kept.get('PATH', os.defpath)}"
        return {**kept, **(more or {})}

    def expect(self, **curves: float) -> None:
        """In a dry run: what the library plays for the next program. A GPU does what it does.

        Args:
            curves: util, sm, occupancy, tensor, dram in percent; power in W; memory in bytes.
        """

    def expect_wave(self, *, util: float, period_s: float) -> None:
        """In a dry run: what the library plays is nothing and `util` percent, by turns."""

    def memory(self) -> "Memory":
        """Return what torch says of the device's memory."""
        cuda = self.torch.cuda
        free, total = cuda.mem_get_info(self.device)
        return Memory(reserved=cuda.memory_reserved(self.device), free=free, total=total)

    def release(self) -> None:
        """Give memory back that torch keeps for later."""
        self.synchronize()
        self.torch.cuda.empty_cache()

    @property
    def capability(self) -> tuple[int, int]:
        """CUDA's compute capability."""
        major, minor = self.torch.cuda.get_device_capability(self.device)
        return int(major), int(minor)

    @property
    def multiprocessors(self) -> int:
        """How many SMs it has."""
        return int(self.torch.cuda.get_device_properties(self.device).multi_processor_count)

    def ask(self, function: str, *arguments: object) -> Any:
        """Return what NVML says; None where it has no answer."""
        try:
            return self.nvml.call(function, *arguments)
        except GpuLibraryError:
            return None

    def flops_per_cycle(self, kind: str) -> int | None:
        """Return the operations of one multiprocessor in a cycle; None where they are not known."""
        return flops_per_cycle(kind, self.capability, self.unit.info.name or "")

    @property
    def free_bytes(self) -> int:
        """What is free of its memory, once torch has given back what it keeps for later."""
        self.release()
        return self.memory().free

    def places(self) -> int:
        """Return how many processes that train have room at once, on the GPU and the host.

        Each takes most of a gigabyte of the GPU for CUDA and cuDNN, and two of the host.
        """
        host = host_room_bytes()
        room = self.free_bytes // 2**30
        return max(2, int(room if host is None else min(room, host // 2**31)))

    def buffer(self) -> list[tuple[int, int]]:
        """Return the driver's own readings of utilization: (its time in microseconds, percent)."""
        try:
            return self.nvml.buffered_percents(self.unit.handle, 0)
        except GpuLibraryError:
            return []

    def dram_peak(self) -> float | None:
        """Return the memory's bytes per second at its highest clock, two transfers a cycle.

        None where NVML does not tell it, as of a MIG slice.
        """
        board = self.unit.board
        if self.unit.info.mig_parent:
            return None
        bits = self.ask("nvmlDeviceGetMemoryBusWidth", board)
        mhz = self.ask("nvmlDeviceGetMaxClockInfo", board, 2)
        return None if not bits or not mhz else bits / 8 * mhz * 1e6 * 2

    def lacks(self, word: str) -> str:
        """Return why this machine cannot make a check that needs something; empty where it can.

        Words: `whole GPU`, `shared GPU` (by several processes), `MIG`, `GPM`, `tf32`, `bf16`,
        `fp8`, `compiler`, `torch`, `utilization`, `program:NAME`, `package:NAME` (as it is
        imported).

        Raises:
            KeyError: there is no such word.
        """
        kind, _, name = word.partition(":")
        if kind == "package":
            there = module_here(name)
            return "" if there else f"the Python package {_PACKAGES.get(name, name)} is missing"
        if kind == "program":
            return "" if shutil.which(name) else f"there is no {name}"
        ask: dict[str, Callable[[], str]] = {
            "whole GPU": lambda: "MIG is on: this is a slice" if self.unit.info.mig_parent else "",
            "MIG": lambda: "" if self.unit.info.mig_parent else "MIG is off, and stays so",
            "GPM": lambda: (
                "" if self.unit.info.gpm else "the GPU has no GPM (Hopper and newer have)"
            ),
            "shared GPU": self._lacks_sharing,
            "tf32": lambda: self._lacks_capability("TF32", (8, 0)),
            "bf16": lambda: self._lacks_capability("bf16", (8, 0)),
            "fp8": self._lacks_fp8,
            "compiler": lambda: _lacks_compiler() or self._lacks_capability("Triton", (7, 0)),
            "torch": self._lacks_torch,
            "utilization": self._lacks_utilization,
        }
        return ask[kind]()

    def _lacks_sharing(self) -> str:
        exclusive = self.ask("nvmlDeviceGetComputeMode", self.unit.board) == _EXCLUSIVE
        return "its compute mode lets only one process at a time use the GPU" if exclusive else ""

    def _lacks_torch(self) -> str:
        if why := self.lacks("package:torch"):
            return why
        if self.dry or self.torch.cuda.is_available():
            return ""
        return f"torch {self.torch.__version__} sees no GPU"

    def _lacks_utilization(self) -> str:
        if self.unit.info.mig_parent:
            why = "NVML has no utilization of a MIG slice, and the GPU has no GPM"
            return "" if self.unit.info.gpm else why
        told = self.ask("nvmlDeviceGetUtilizationRates", self.unit.handle) or self.buffer()
        return "" if told else "NVML does not tell the utilization of this GPU"

    def _lacks_capability(self, what: str, least: tuple[int, int]) -> str:
        own = self.capability
        return "" if own >= least else (
            f"{what} needs compute capability {least[0]}.{least[1]}, not {own[0]}.{own[1]}"
        )  # fmt: skip

    def _lacks_fp8(self) -> str:
        if not hasattr(self.torch, "float8_e4m3fn") or not hasattr(self.torch, "_scaled_mm"):
            return f"torch {self.torch.__version__} has no product in fp8"
        return self._lacks_capability("fp8", (8, 9))


def _lacks_compiler() -> str:
    from hpckit.parallel.compiling import check_programs
    from hpckit.parallel.errors import SetupError

    try:
        check_programs({"cuda"})
    except SetupError as error:
        return str(error)
    return ""


def first_unit(nvml: Nvml, environ: Mapping[str, str]) -> Unit:
    """Return the GPU or MIG slice that is CUDA's device 0, as far as CUDA_VISIBLE_DEVICES tells.

    Slurm's own words are asked only where that variable is not set: whoever starts the checks may
    choose one of a job's GPUs, but not another job's.

    Raises:
        GpuLibraryError: there is none, or that variable names none.
    """
    units, failures = nvml.units()
    if not units:
        why = "; ".join(map(str, failures)) or "NVML sees no GPU that this process may open"
        raise GpuLibraryError(why, Trouble.NEVER)
    cuda = {name: value for name, value in environ.items() if name.startswith("CUDA_")}
    unasked = "SLURM_JOB_ID" in environ and "CUDA_VISIBLE_DEVICES" not in environ
    if unasked and len(units) > 1:
        mine = find_mine(units, environ)
        if not mine.units:
            why = f"of {len(units)} GPUs, Slurm does not say which this job has: ask for --gpus 1"
            raise GpuLibraryError(why, Trouble.NEVER)
        return mine.units[0]
    mine = find_mine(units, cuda)
    if not mine.units:
        value, count = environ.get("CUDA_VISIBLE_DEVICES", ""), len(units)
        why = f"CUDA_VISIBLE_DEVICES is {value!r}, and names none of the {count} that NVML sees"
        raise GpuLibraryError(why, Trouble.NEVER)
    return mine.units[0]


def open_machine(folder: Path) -> Machine:
    """Return the GPU, or what stands in for it in a dry run.

    Raises:
        GpuLibraryError: there is no GPU that answers.
    """
    if os.environ.get(DRY):
        from tests.gpu.dry import DryMachine

        return DryMachine(folder)
    found = Machine(folder)
    # One GPU from here on, the same for CUDA and NVML, whose orders may differ.
    os.environ["CUDA_VISIBLE_DEVICES"] = found.unit.info.uuid
    return found
