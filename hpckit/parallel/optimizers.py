"""Optimizers by name, learning rates for other batch sizes, and state shared out over ranks."""

import math
import warnings
from collections.abc import Iterable
from importlib import import_module
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from hpckit.parallel.errors import SetupError
from hpckit.parallel.torch_versions import fuses

OPTIMIZERS = ("adam", "sgd")
SCALINGS = ("none", "linear", "sqrt")


def scaled_lr(lr: float, batch_size: int, base_batch_size: int, scaling: str = "none") -> float:
    """Return the learning rate for a global batch, from one that is good for another batch size.

    `linear`: in proportion, as averages over k times more samples allow k times larger steps of
    SGD (Goyal et al. 2017, arXiv:1706.02677). `sqrt`: by the root of the proportion, which keeps
    the noise of a step (Krizhevsky 2014, arXiv:1404.5997), and suits Adam.

    Raises:
        SetupError: no such scaling.
    """
    factor = batch_size / base_batch_size
    if scaling not in SCALINGS:
        raise SetupError(f"learning rate scaling {scaling!r} must be one of {', '.join(SCALINGS)}")
    return lr * {"none": 1.0, "linear": factor, "sqrt": math.sqrt(factor)}[scaling]


def make_optimizer(
    name: str, parameters: Iterable[nn.Parameter], lr: float, *, zero: bool = False
) -> torch.optim.Optimizer:
    """Return Adam, or SGD with momentum 0.9.

    With `zero` each rank keeps the state of its share of the parameters only, updates those, and
    broadcasts them (ZeRO stage 1): Adam's state is twice the model, so many ranks save nearly all
    of it. That needs a process group; a process alone keeps everything anyway.

    Raises:
        SetupError: no such optimizer.
    """
    if name not in OPTIMIZERS:
        raise SetupError(f"optimizer {name!r} must be one of {', '.join(OPTIMIZERS)}")
    kind: type[torch.optim.Optimizer] = torch.optim.Adam if name == "adam" else torch.optim.SGD
    options: dict[str, Any] = {"lr": lr} if name == "adam" else {"lr": lr, "momentum": 0.9}
    parameters = list(parameters)
    # One kernel for all parameters, where torch has it, not a loop in Python.
    devices = {one.device for one in parameters}
    if all(device.type in ("cpu", "cuda") for device in devices) and fuses(kind, devices):
        options["fused"] = True
    if zero and dist.is_initialized():
        load_zero()
        from torch.distributed.optim import ZeroRedundancyOptimizer  # noqa: PLC0415  # slow

        return ZeroRedundancyOptimizer(parameters, kind, **options)
    return kind(parameters, **options)


def load_zero() -> None:
    """Load torch's modules for `zero`, best before there is a process group: they keep hold of it.

    Its threads would outlive it, and now and then abort the process at exit.
    """
    with warnings.catch_warnings():
        # Of torch's own modules, whose authors know it.
        warnings.simplefilter("ignore", DeprecationWarning)
        import_module("torch.distributed.optim")


def whole_state(optimizer: torch.optim.Optimizer, *, leads: bool) -> dict[str, object] | None:
    """Return the state of an optimizer on the leading rank, and None on others.

    All ranks must call it, as the parts of a shared state are gathered.
    """
    gather = getattr(optimizer, "consolidate_state_dict", None)
    if gather:
        gather(to=0)
    return optimizer.state_dict() if leads else None
