"""What a report says of its machine: `python -m tests.gpu.head` prints it as JSON.

Names of the host, of users, UUIDs, serial numbers and addresses are not asked for.
"""

import datetime
import json
import os
import platform
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hpckit.gitfiles import code_version
from hpckit.stats.sampler.gpu_library import GpuLibraryError
from tests.gpu.machine import Machine, open_machine

ROOT = Path(__file__).parents[2]


def gather(machine: Machine) -> dict[str, Any]:
    """Return name and value of each fact; None is unknown."""
    return {**about_gpu(machine), **about_torch(), **about_host()}


def about_gpu(machine: Machine) -> dict[str, Any]:
    """Return what NVML says of the board."""
    board, info = machine.unit.board, machine.unit.info
    ask = machine.ask
    cuda = ask("nvmlSystemGetCudaDriverVersion_v2")
    mig = ask("nvmlDeviceGetMigMode", board)
    persistence = ask("nvmlDeviceGetPersistenceMode", board)
    ecc = ask("nvmlDeviceGetEccMode", board)
    clocks = {
        name: [ask("nvmlDeviceGetClockInfo", board, kind),
               ask("nvmlDeviceGetMaxClockInfo", board, kind)]
        for name, kind in (("sm", 1), ("memory", 2))
    }  # fmt: skip
    limit = info.power_limit_mw
    link = [ask("nvmlDeviceGetCurrPcieLinkGeneration", board),
            ask("nvmlDeviceGetCurrPcieLinkWidth", board)]  # fmt: skip
    return {
        "gpu": info.name,
        "gpus_visible": len(machine.nvml.units()[0]),
        "memory_mib": info.memory_total_bytes and info.memory_total_bytes >> 20,
        "driver": machine.nvml.driver(),
        "cuda_driver": cuda and f"{cuda // 1000}.{cuda % 1000 // 10}",
        "mig": on_off(mig[0] if mig else None),
        "persistence": on_off(persistence),
        "ecc": on_off(ecc[0] if ecc else None),
        "sm_mhz_now": clocks["sm"][0],
        "sm_mhz_most": clocks["sm"][1],
        "memory_mhz_now": clocks["memory"][0],
        "memory_mhz_most": clocks["memory"][1],
        "power_limit_w": limit and limit / 1000,
        "pcie": f"generation {link[0]}, {link[1]} lanes" if all(link) else None,
        "gpm": info.gpm,
    }


def on_off(value: int | None) -> str | None:
    """Return a mode's word."""
    return None if value is None else "on" if value else "off"


def about_torch() -> dict[str, Any]:
    """Return torch's versions, and why it cannot use the GPU, empty where it can."""
    try:
        import torch
    except (ImportError, OSError) as error:  # OSError: one of CUDA's libraries is not there
        said = (str(error).splitlines() or [type(error).__name__])[0]
        return {"torch": None, "unusable": f"{sys.executable} has no torch that works: {said}."}
    why = ""
    if not torch.cuda.is_available():
        built = f"for CUDA {torch.version.cuda}" if torch.version.cuda else "without CUDA"
        why = f"torch {torch.__version__}, built {built}, sees no GPU."
    return {
        "torch": torch.__version__,
        "torch_cuda": torch.version.cuda,
        "cudnn": known(torch.backends.cudnn.version),
        "nccl": None if why else known(lambda: ".".join(map(str, torch.cuda.nccl.version()))),
        "unusable": why,
    }


def known(call: Callable[[], Any]) -> Any:
    """Return an answer; None where torch has none: it may refuse a cuDNN, or be without NCCL."""
    try:
        return call()
    except Exception:  # noqa: BLE001  # whatever a build of torch says, all other facts are known
        return None


def about_host() -> dict[str, Any]:
    """Return the software around it."""
    return {
        "python": platform.python_version(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "root": os.geteuid() == 0,
        "slurm_job": "SLURM_JOB_ID" in os.environ,
        "commit": commit(),
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
    }


def commit() -> str | None:
    """Return what HPCKIT_COMMIT says, else the checkout's commit, read without git.

    A copy of a checkout may bring a `.git` that is older than its files.
    """
    if told := os.environ.get("HPCKIT_COMMIT"):
        return told
    found = code_version(ROOT / "Makefile")
    if not found:
        return None
    return f"{found['commit']}{' and changes' if found['dirty'] else ''}"


def main() -> int:
    """Print the facts; 1 and a sentence where no GPU answers."""
    with tempfile.TemporaryDirectory() as name:
        try:
            machine = open_machine(Path(name))
            found = gather(machine) | {"uuid": machine.unit.info.uuid}
        except GpuLibraryError as error:
            print(f"No NVIDIA GPU answers: {error}", file=sys.stderr)
            return 1
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
