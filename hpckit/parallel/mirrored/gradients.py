"""Gradients of all replicas made one, in flat buckets; and optimizers that apply the same step."""

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn

from hpckit.parallel.mirrored.context import OfOneStrategy, ReplicaContext, Strategy, replica_of
from hpckit.parallel.mirrored.mirrored_model import Mirrored

Make = Callable[[nn.Module], torch.optim.Optimizer]
# Few enough that a copy costs little memory, large enough that a sum costs more than its start.
_BUCKET_BYTES = 32 * 2**20


class MirroredOptimizer(OfOneStrategy):
    """A torch optimizer for each replica, of its own parameters, on the same gradients."""

    def __init__(self, strategy: Strategy, model: Mirrored, make: Make) -> None:
        self.strategy = strategy
        self.model = model
        self.copies = tuple(make(module) for module in model.copies)

    @property
    def local(self) -> torch.optim.Optimizer:
        """The optimizer of the replica that calls; outside of replicas, the first."""
        context = replica_of(self.strategy, "an optimizer")
        return self.copies[context.replica.number if context else 0]

    def zero_grad(self) -> None:
        """Drop the gradients: in a replica its own, outside all."""
        inside = replica_of(self.strategy, "an optimizer") is not None
        for optimizer in (self.local,) if inside else self.copies:
            optimizer.zero_grad()

    def step(self, samples: int | None = None) -> None:
        """Make the gradients of all replicas one, then apply them; every replica calls it.

        Args:
            samples: of the mean of how many samples this replica's gradients are; 0 where it had
                none. None: gradients are summed as they are, since the losses were divided by the
                number of samples of all replicas.

        Raises:
            RuntimeError: no replica calls.
            ValueError: no replica has a sample.
        """
        context = replica_of(self.strategy, "an optimizer")
        if context is None:
            raise RuntimeError(
                "optimizer.step() was called outside of a replica: call it in a function "
                "that strategy.run(fn) runs."
            )
        optimizer = self.local
        parameters = [one for group in optimizer.param_groups for one in group["params"]]
        reduce_gradients(context, parameters, samples)
        optimizer.step()

    def state_dict(self) -> dict[str, Any]:
        """Return one copy for all replicas: a plain optimizer can load it."""
        return self.copies[0].state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load one state into all copies, outside of replicas."""
        for optimizer in self.copies:
            # A copy each: torch keeps tensors that are on the right device already.
            optimizer.load_state_dict(copy.deepcopy(state))


def reduce_gradients(
    context: ReplicaContext, parameters: Iterable[torch.Tensor], samples: int | None
) -> None:
    """Replace the gradients of every replica by those of the mean over all samples, or the sum.

    A parameter that some replicas did not use counts there as 0; that none used has no gradient.

    Raises:
        ValueError: no replica has a sample, or a gradient is sparse.
    """
    wanted = [parameter for parameter in parameters if parameter.requires_grad]
    used = tuple(parameter.grad is not None and samples != 0 for parameter in wanted)
    buckets = list(_buckets(_gradients(wanted, used)))
    if context.num_replicas_in_sync == 1:
        _share(samples, (samples,))
        return
    flat = [_flattened(bucket) for bucket in buckets]
    brought = _Part(samples, flat, used)
    missing = context.meet("all_reduce_gradients", brought, partial(_sum_if_alike, context))
    if missing is not None:  # rare: a parameter that only some use, or a replica without samples
        for parameter, mine, somewhere in zip(wanted, used, missing, strict=True):
            if not mine:  # also what is there of no sample, which is NaN
                parameter.grad = torch.zeros_like(parameter) if somewhere else None
        buckets = list(_buckets(_gradients(wanted, missing)))
        flat = [_flattened(bucket) for bucket in buckets]
        context.meet("the sum of gradients", _Part(samples, flat), partial(_sum, context))
    for bucket, one in zip(buckets, flat, strict=True):
        parts = torch.split(one, [gradient.numel() for gradient in bucket])
        shaped = [part.view_as(each) for part, each in zip(parts, bucket, strict=True)]
        torch._foreach_copy_(bucket, shaped)


@dataclass(frozen=True, slots=True)
class _Part:
    """What one replica brings: flat gradients, of so many samples and of the used parameters."""

    samples: int | None
    flat: list[torch.Tensor]
    used: tuple[bool, ...] = ()


def _sum_if_alike(context: ReplicaContext, parts: Sequence[_Part]) -> list[Any]:
    """Sum in place what replicas bring, if they use the same parameters, and return None for each.

    Else return which parameters are used somewhere.
    """
    if all(part.used == parts[0].used for part in parts):
        return _sum(context, parts)
    somewhere = [any(used) for used in zip(*(part.used for part in parts), strict=True)]
    return [somewhere] * len(parts)


def _sum(context: ReplicaContext, parts: Sequence[_Part]) -> list[Any]:
    """Replace each replica's flat gradients by the mean over all samples, or the sum."""
    all_samples = tuple(part.samples for part in parts)
    for part in parts:
        if (scale := _share(part.samples, all_samples)) != 1 and part.flat:
            torch._foreach_mul_(part.flat, scale)
    for same in zip(*(part.flat for part in parts), strict=True):
        context.strategy.cross_device_ops(same)
    return [None] * len(parts)


def _share(samples: int | None, all_samples: Sequence[int | None]) -> float:
    """Return this replica's part of all samples."""
    counts = [count for count in all_samples if count is not None]
    if not counts:
        return 1.0
    if samples is None or len(counts) < len(all_samples):
        raise ValueError(
            f"Either every replica gives samples, or no replica does, not {all_samples}."
        )
    if not sum(counts):
        raise ValueError("No replica has a sample, so there is no mean: give a batch with samples.")
    return samples / sum(counts)


def _gradients(parameters: Sequence[torch.Tensor], used: Sequence[bool]) -> list[torch.Tensor]:
    """Return the gradients of the used parameters.

    Raises:
        ValueError: one is sparse.
    """
    pairs = zip(parameters, used, strict=True)
    gradients = [one.grad for one, wanted in pairs if wanted and one.grad is not None]
    for gradient in gradients:
        if gradient.layout != torch.strided:
            raise ValueError(
                f"A gradient of layout {gradient.layout} cannot be reduced: build the layer with "
                "sparse=False."
            )
    return gradients


def _flattened(bucket: Sequence[torch.Tensor]) -> torch.Tensor:
    return torch.cat([gradient.reshape(-1) for gradient in bucket])


def _buckets(gradients: Sequence[torch.Tensor]) -> Iterator[list[torch.Tensor]]:
    """Return the gradients of each dtype in groups of limited size."""
    for dtype in dict.fromkeys(gradient.dtype for gradient in gradients):
        bucket: list[torch.Tensor] = []
        size = 0
        for gradient in gradients:
            if gradient.dtype != dtype:
                continue
            if bucket and size + gradient.nbytes > _BUCKET_BYTES:
                yield bucket
                bucket, size = [], 0
            bucket.append(gradient)
            size += gradient.nbytes
        yield bucket
