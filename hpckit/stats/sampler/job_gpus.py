"""Which of a node's GPUs are this job's, by which evidence, and whether that is proven. Pure.

Slurm's gres indices are in PCI order, as NVML's are; /dev/nvidiaN minors are not, and CUDA's own
order puts the fastest first (jobstats issue 34 is what comes of mixing them).
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from hpckit.errors import RequestError
from hpckit.frozen import frozen
from hpckit.slurm.hostlist import expand
from hpckit.stats.samples.records import SHARED, UNVERIFIED, VERIFIED, GpuInfo
from hpckit.text import counted
from hpckit.units import whole_number

Handle = Any  # an opaque pointer of the vendor's library
_UUIDS = {"CUDA_VISIBLE_DEVICES": "cuda_uuid", "ROCR_VISIBLE_DEVICES": "rocr_uuid"}
# HIP's are numbers among those that ROCr leaves; CUDA's word is HIP's second.
_ROCM = {"ROCR_VISIBLE_DEVICES": "rocr", "HIP_VISIBLE_DEVICES": "hip"}
_NO_DEVICES = ("", "-1", "NoDevFiles")


@frozen(kw_only=True)
class Unit:
    """One whole GPU or MIG slice that this process may read.

    Attributes:
        handle: for what belongs to the unit: memory, processes.
        board: for what belongs to the whole GPU: clocks, temperature.
        instance: a slice's GPU instance id; None for a whole GPU.
    """

    info: GpuInfo
    handle: Handle
    board: Handle
    instance: int | None = None


@frozen(kw_only=True)
class Mapped:
    """The job's GPUs on this node.

    Attributes:
        method: the evidence, a stable word of `find_mine`.
        shared: Slurm gave a share of a GPU (shards, MPS): others compute on it by design.
        doubt: one sentence about what does not fit, if anything.
    """

    units: tuple[Unit, ...]
    method: str
    shared: bool = False
    doubt: str | None = None


def find_mine(units: Sequence[Unit], environ: Mapping[str, str], *, amd: bool = False) -> Mapped:
    """Choose the job's GPUs among those this process may read."""
    in_slurm, mps = "SLURM_JOB_ID" in environ, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE" in environ
    shared = whole_number(environ.get("SLURM_SHARDS_ON_NODE", "")) or (in_slurm and mps)
    found = (
        _by_uuid(units, environ, "ROCR_VISIBLE_DEVICES" if amd else "CUDA_VISIBLE_DEVICES")
        or _constrained(units, environ)
        or _by_slurm_index(units, environ)
        or (_by_rocm_index if amd else _by_cuda_index)(units, environ)
        or _without_evidence(units, environ)
    )
    return Mapped(units=found.units, method=found.method, shared=bool(shared), doubt=found.doubt)


def _by_uuid(units: Sequence[Unit], environ: Mapping[str, str], name: str) -> Mapped | None:
    words = [word for text in environ.get(name, "").split(",") if (word := text.strip())]
    if not words or not all(word.startswith(("GPU-", "MIG-")) for word in words):
        return None
    chosen = [unit for word in words for unit in units if unit.info.uuid.startswith(word)]
    missing = [word for word in words if not any(u.info.uuid.startswith(word) for u in units)]
    doubt = (
        f"{name} names {', '.join(missing)}, but this GPU is not visible here." if missing else None
    )
    return Mapped(units=tuple(chosen), method=_UUIDS[name], doubt=doubt)


def _constrained(units: Sequence[Unit], environ: Mapping[str, str]) -> Mapped | None:
    """A device cgroup hides all others: what can be read is ours."""
    count = whole_number(environ.get("SLURM_GPUS_ON_NODE", ""))
    if count is None or len(units) > count:
        return None
    doubt = None
    if len(units) < count:
        doubt = f"Slurm gave {counted(count, 'GPU')} on this node; {len(units)} can be read."
    return Mapped(units=tuple(units), method="constrained", doubt=doubt)


def _by_slurm_index(units: Sequence[Unit], environ: Mapping[str, str]) -> Mapped | None:
    # A step on another node than the batch script's inherits that one's SLURM_JOB_GPUS.
    names = ["SLURM_JOB_GPUS", "SLURM_STEP_GPUS"]
    if environ.get("SLURM_NODEID", "0") != "0":
        names.reverse()
    if "SLURM_HET_SIZE" in environ and "SLURM_STEP_ID" in environ:
        names = ["SLURM_STEP_GPUS"]  # the other name is of the first component
    for name in names:
        indices = _indices(environ.get(name, ""))
        if indices:
            return _at(units, indices, method=name.lower(), name=name)
    return None


def _by_cuda_index(units: Sequence[Unit], environ: Mapping[str, str]) -> Mapped | None:
    text = environ.get("CUDA_VISIBLE_DEVICES")
    if text is None:
        return None
    if text.strip() in _NO_DEVICES:
        return Mapped(units=(), method="cuda_none")
    indices = _indices(text)
    found = _at(units, indices, method="cuda_index", name="CUDA_VISIBLE_DEVICES")
    models = {unit.info.name for unit in units}
    if len(models) > 1 and environ.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID":
        doubt = "The GPUs differ and CUDA_DEVICE_ORDER is not PCI_BUS_ID: the indices may be wrong."
        return Mapped(units=found.units, method=found.method, doubt=doubt)
    return found


def _by_rocm_index(units: Sequence[Unit], environ: Mapping[str, str]) -> Mapped | None:
    names = {name: word for name, word in _ROCM.items() if name in environ}
    if not names and "CUDA_VISIBLE_DEVICES" in environ:
        names = {"CUDA_VISIBLE_DEVICES": "cuda"}
    found: Mapped | None = None
    for name, word in names.items():
        left = units if found is None else found.units
        if environ[name].strip() in _NO_DEVICES:
            return Mapped(units=(), method=f"{word}_none")
        doubt = found.doubt if found else None
        found = _at(left, _indices(environ[name]), method=f"{word}_index", name=name)
        found = replace(found, doubt=doubt or found.doubt)
    return found


def _without_evidence(units: Sequence[Unit], environ: Mapping[str, str]) -> Mapped:
    if "SLURM_JOB_ID" in environ:
        doubt = (
            "Slurm does not say which GPUs this job has, so no GPU is sampled." if units else None
        )
        return Mapped(units=(), method="slurm_none", doubt=doubt)
    return Mapped(units=tuple(units), method="all_visible")


def _at(units: Sequence[Unit], indices: Sequence[int], *, method: str, name: str) -> Mapped:
    missing = [index for index in indices if index >= len(units)]
    return Mapped(
        units=tuple(units[index] for index in indices if index < len(units)),
        method=method,
        doubt=f"{name} names GPU {missing[0]}, but this GPU is not visible here."
        if missing
        else None,
    )


def _indices(text: str) -> list[int]:
    """Read `0,2-3` or `0,1`; empty if it is anything else."""
    try:
        words = expand(f"[{text.replace(' ', '')}]") if text.strip() else ()
        return [int(word) for word in words]
    except (RequestError, ValueError):
        return []


def confidence(
    processes: Sequence[tuple[int, int | None]] | None,
    job_pids: Collection[int],
    here: Collection[int],
) -> str:
    """Tell from a GPU's processes whether it is the job's alone.

    A pid that is not in this /proc (`here`) is another PID namespace's, so it proves nothing.
    """
    if not processes:
        return UNVERIFIED
    pids = {pid for pid, _ in processes}
    if any(pid in here and pid not in job_pids for pid in pids):
        return SHARED
    return VERIFIED if pids <= set(job_pids) else UNVERIFIED
