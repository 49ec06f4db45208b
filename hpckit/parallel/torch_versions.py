"""What differs between the versions of torch, and the refusal of those that are too old."""

import inspect
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any

import torch
import torch.distributed as dist

from hpckit.oldest import refuse_older

refuse_older("torch", str(torch.__version__))


def autocast_of(kind: str) -> torch.dtype | None:
    """Return the dtype of autocast for a kind of devices, `cpu` or `cuda`; None: it is off.

    Torch has one function for all kinds from 2.4 on, which deprecates the others.
    """
    if hasattr(torch, "get_autocast_dtype"):
        return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
    if kind == "cuda":
        return torch.get_autocast_gpu_dtype() if torch.is_autocast_enabled() else None
    return torch.get_autocast_cpu_dtype() if torch.is_autocast_cpu_enabled() else None


def gpu_scaler() -> "torch.amp.GradScaler":
    """Return what scales losses on GPUs; its class has this name from torch 2.3 on."""
    if hasattr(torch.amp, "GradScaler"):
        return torch.amp.GradScaler("cuda")
    return torch.cuda.amp.GradScaler()


def fuses(kind: type[torch.optim.Optimizer], devices: Iterable[torch.device]) -> bool:
    """Say whether an optimizer has one kernel for all parameters on such devices.

    Adam has it for GPUs from torch 2.0 on, SGD from 2.3, both for CPUs from 2.4.
    """
    make: Any = kind
    try:
        make([torch.zeros(1, device=device) for device in devices], lr=1.0, fused=True)
    except (RuntimeError, TypeError):
        return False
    return True


def init_process_group(backend: str, device: torch.device | None) -> None:
    """Create the process group; with a device, connect now, so that errors come here.

    Torch has `device_id` from 2.3 on. Before, NCCL connects in the first sum.
    """
    known = "device_id" in inspect.signature(dist.init_process_group).parameters
    options: dict[str, Any] = {"device_id": device} if known else {}
    dist.init_process_group(backend, **options)
    if device is not None and not known:
        dist.all_reduce(torch.zeros(1, device=device))


def load_tensors(source: Path | IO[bytes]) -> dict[str, Any]:
    """Read what `torch.save` wrote, onto the CPU: tensors, numbers and strings.

    A pickle could also carry code: `weights_only` refuses that.
    """
    with warnings.catch_warnings():
        # Torch 2.1 warns of a class that it uses itself.
        warnings.filterwarnings("ignore", "TypedStorage is deprecated", UserWarning)
        found: dict[str, Any] = torch.load(source, map_location="cpu", weights_only=True)
    return found
