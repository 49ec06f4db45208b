"""DataParallel that also runs where there are no GPUs: a forward pass split over devices.

`torch.nn.DataParallel` refuses CPUs; replicas of ours share the CPU, or a GPU, in threads.
"""

import copy
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor, nn

from hpckit.parallel.benchmark import at_once


def data_parallel(module: nn.Module, devices: Sequence[torch.device]) -> nn.Module:
    """Return a module whose forward pass is split over devices, samples first.

    Its parameters are those of `module`, which lies on the first device. Buffers that the forward
    pass changes, such as the statistics of BatchNorm, are those of the first part of the batch.

    Args:
        module: takes and returns tensors, or tuples, lists and dicts of tensors.
        devices: one for each replica. With one it is the module itself; for GPUs it is
            `torch.nn.DataParallel`; where replicas share a device it is `LogicalDataParallel`.
    """
    if len(devices) == 1:
        return module
    if len(set(devices)) == len(devices):
        return nn.DataParallel(module, device_ids=list(devices))
    return LogicalDataParallel(module, len(devices))


class LogicalDataParallel(nn.Module):
    """Does what `torch.nn.DataParallel` does, with replicas that share one device.

    Parts are as even as `torch.chunk` makes them; with fewer samples than replicas some of these
    do not run. Gradients of all parts add up in the module's parameters.

    Attributes:
        module: the module itself.
    """

    def __init__(self, module: nn.Module, replicas: int) -> None:
        super().__init__()
        self.module = module
        self._count = replicas

    def forward(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401  # as the module has it
        """Return what the module returns, put together in the order of the samples."""
        parts = _parts((args, kwargs), self._count)
        modules = [self.module, *(_replica(self.module, at) for at in range(1, len(parts)))]
        _number(self.module, 0)
        carried = _Modes()
        work = [carried.around(module, *part) for module, part in zip(modules, parts, strict=True)]
        outputs = at_once(work) if len(work) > 1 else [work[0]()]
        return outputs[0] if len(outputs) == 1 else _joined(outputs)


class _Modes:
    """What threads do not inherit: whether gradients are wanted, and autocast."""

    def __init__(self) -> None:
        self._grad = torch.is_grad_enabled()
        self._casts = [
            (kind, torch.get_autocast_dtype(kind), torch.is_autocast_enabled(kind))
            for kind in ("cpu", "cuda")
        ]

    def around(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Callable[[], Any]:
        """Return a function that calls the module as the caller's thread would."""

        def call() -> Any:  # noqa: ANN401
            (cpu, cpu_type, on_cpu), (cuda, cuda_type, on_cuda) = self._casts
            with (
                torch.set_grad_enabled(self._grad),
                torch.autocast(cpu, cpu_type, enabled=on_cpu),
                torch.autocast(cuda, cuda_type, enabled=on_cuda),
            ):
                return module(*args, **kwargs)

        return call


def _replica(module: nn.Module, number: int) -> nn.Module:
    """Return a copy with the same parameters, and buffers of its own."""
    memo: dict[int, Any] = {id(parameter): parameter for parameter in module.parameters()}
    made = copy.deepcopy(module, memo)
    _number(made, number)
    return made


def _number(module: nn.Module, number: int) -> None:
    """Tell a model of `hpckit.parallel.models` which replica it is."""
    if hasattr(module, "replica"):
        module.replica = number  # type: ignore[assignment]  # it is no module


def _parts(value: Any, count: int) -> list[Any]:  # noqa: ANN401
    """Cut all tensors in nested containers along the first dimension; the rest goes to all."""
    sizes = {len(leaf) for leaf in _tensors(value)}
    if len(sizes) > 1:
        raise ValueError(f"Inputs have {sorted(sizes)} samples: these must be as many.")
    total = next(iter(sizes), 0)
    each = max(-(-total // count), 1)
    cuts = [slice(at, at + each) for at in range(0, max(total, 1), each)]
    return [_mapped(value, itemgetter(cut)) for cut in cuts]


def _tensors(value: Any) -> list[Tensor]:  # noqa: ANN401
    found: list[Tensor] = []
    _mapped(value, lambda leaf: found.append(leaf))
    return found


def _mapped(value: Any, change: Callable[[Tensor], Any]) -> Any:  # noqa: ANN401
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, tuple | list):
        return type(value)(_mapped(item, change) for item in value)
    if isinstance(value, dict):
        return {name: _mapped(item, change) for name, item in value.items()}
    return value


def _joined(outputs: Sequence[Any]) -> Any:  # noqa: ANN401
    first = outputs[0]
    if isinstance(first, Tensor):
        return torch.cat(list(outputs)) if first.dim() else torch.stack(list(outputs))
    if isinstance(first, tuple | list):
        return type(first)(_joined(items) for items in zip(*outputs, strict=True))
    if isinstance(first, dict):
        return {name: _joined([output[name] for output in outputs]) for name in first}
    return first
