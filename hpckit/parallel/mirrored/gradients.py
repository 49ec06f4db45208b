"""Gradients of all replicas made one, and optimizers that apply the same step.

GPUs' gradients are summed in flat buckets, those on the CPU as they are.
"""

import copy
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import nn

from hpckit.parallel.given import as_number, optimizer_of
from hpckit.parallel.mirrored.alike import Alike, frozen_in, refuse_unlike, settings_of
from hpckit.parallel.mirrored.collectives import sum_in_place
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
        self.copies = tuple(optimizer_of(make, module) for module in model.copies)

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
            RuntimeError: no replica calls, or replicas would take different steps.
            ValueError: no replica has a sample.
        """
        context = replica_of(self.strategy, "an optimizer")
        if context is None:
            raise RuntimeError(
                "optimizer.step() was called outside of a replica: call it in a function "
                "that strategy.run(fn) runs."
            )
        optimizer, versions = self.local, self.model.versions[context.replica.number]
        parameters = [one for group in optimizer.param_groups for one in group["params"]]
        changed = versions.changed(parameters)
        alike = Alike(frozen_in(parameters), settings_of(optimizer), changed)
        reduce_gradients(context, parameters, samples, alike)
        optimizer.step()
        versions.note(parameters)

    def state_dict(self) -> dict[str, Any]:
        """Return one copy for all replicas: a plain optimizer can load it."""
        return self.copies[0].state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load one state into all copies, outside of replicas."""
        for optimizer in self.copies:
            # A copy each: torch keeps tensors that are on the right device already.
            optimizer.load_state_dict(copy.deepcopy(state))


def reduce_gradients(
    context: ReplicaContext,
    parameters: Iterable[torch.Tensor],
    samples: int | None,
    alike: Alike | None = None,
) -> None:
    """Replace the gradients of every replica by those of the mean over all samples, or the sum.

    A parameter that some replicas did not use counts there as 0; that none used has no gradient.

    Args:
        context: of the replica.
        parameters: of the replica.
        samples: of how many this replica's gradients are the mean; None: they are summed.
        alike: what must be equal on all replicas; None: which parameters are frozen.

    Raises:
        ValueError: no replica has a sample, a gradient is sparse, or `samples` is not a number.
        RuntimeError: replicas would take different steps.
    """
    _check_samples(samples)
    given = list(parameters)
    wanted = [parameter for parameter in given if parameter.requires_grad]
    used = tuple(parameter.grad is not None and samples != 0 for parameter in wanted)
    gradients = _gradients(wanted, used)
    if context.num_replicas_in_sync == 1:
        _share(samples, (samples,))
        return
    buckets = _buckets_for(context.strategy, gradients)
    part = _Part(samples, gradients, used, buckets, alike or Alike(frozen_in(given)))
    missing = context.meet("all_reduce_gradients", part, partial(_sum_if_alike, context))
    if missing is not None:  # rare: a parameter that only some use, or a replica without samples
        for parameter, mine, somewhere in zip(wanted, used, missing, strict=True):
            if not mine:  # also what is there of no sample, which is NaN
                parameter.grad = torch.zeros_like(parameter) if somewhere else None
        gradients = _gradients(wanted, missing)
        part = replace(part, gradients=gradients, buckets=_buckets_for(context.strategy, gradients))
        context.meet("the sum of gradients", part, partial(_sum, context))
    for bucket, one in part.buckets or ():
        parts = torch.split(one, [gradient.numel() for gradient in bucket])
        shaped = [part.view_as(each) for part, each in zip(parts, bucket, strict=True)]
        torch._foreach_copy_(bucket, shaped)


_Buckets = list[tuple[list[torch.Tensor], torch.Tensor]]


@dataclass(frozen=True, slots=True)
class _Part:
    """What one replica brings: gradients of the used parameters, of so many samples.

    Attributes:
        buckets: groups of the gradients, each with a flat copy, which is to be summed; None: the
            gradients themselves are.
        alike: what must be equal on all replicas.
    """

    samples: int | None
    gradients: list[torch.Tensor]
    used: tuple[bool, ...]
    buckets: _Buckets | None
    alike: Alike

    @property
    def summands(self) -> list[torch.Tensor]:
        """What is summed over replicas, in place."""
        return self.gradients if self.buckets is None else [flat for _, flat in self.buckets]


def _sum_if_alike(context: ReplicaContext, parts: Sequence[_Part]) -> list[Any]:
    """Sum in place what replicas bring, if they use the same parameters, and return None for each.

    Else return which parameters are used somewhere.
    """
    refuse_unlike([part.alike for part in parts])
    if all(part.used == parts[0].used for part in parts):
        return _sum(context, parts)
    somewhere = [any(used) for used in zip(*(part.used for part in parts), strict=True)]
    return [somewhere] * len(parts)


def _sum(context: ReplicaContext, parts: Sequence[_Part]) -> list[Any]:
    """Replace each replica's gradients by the mean over all samples, or the sum."""
    all_samples = tuple(part.samples for part in parts)
    brought = [part.summands for part in parts]
    for part, summands in zip(parts, brought, strict=True):
        if (scale := _share(part.samples, all_samples)) != 1 and summands:
            torch._foreach_mul_(summands, scale)
    if parts[0].buckets is None:
        _add_up(brought)
    else:
        for same in zip(*brought, strict=True):
            context.strategy.cross_device_ops(same)
    return [None] * len(parts)


def _add_up(brought: Sequence[list[torch.Tensor]]) -> None:
    """Replace tensors of each replica by their sums, as `allreduce` does, in one call for all.

    Raises:
        ValueError: their shapes differ.
    """
    first, *others = brought
    for other in others:
        for mine, its in zip(first, other, strict=True):
            if mine.shape != its.shape:
                shapes = f"{tuple(mine.shape)} and {tuple(its.shape)}"
                raise ValueError(f"The replicas' gradients differ in shape: {shapes}.")
    if first:
        for other in others:
            torch._foreach_add_(first, other)
        for other in others:
            torch._foreach_copy_(other, first)


def _check_samples(samples: object) -> None:
    """Refuse what gradients cannot be weighed by; a sum of samples' weights need not be whole.

    Raises:
        ValueError: it is not a number, or a negative or infinite one.
    """
    if samples is None:
        return
    if isinstance(samples, bool) or not 0 <= as_number(samples) < math.inf:
        raise ValueError(
            f"samples is {samples!r}: give the number of samples of this replica's part, as "
            "len(inputs), which may be 0."
        )


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


def _buckets_for(strategy: Strategy, gradients: Sequence[torch.Tensor]) -> _Buckets | None:
    """Return buckets for what sums flat tensors; None where all replicas are on the CPU.

    There, two more copies of all gradients cost more than a sum's start for each of them.
    """
    direct = strategy.cross_device_ops is sum_in_place and all(
        replica.device.type == "cpu" for replica in strategy.replicas
    )
    return None if direct else [(bucket, _flattened(bucket)) for bucket in _buckets(gradients)]


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
