"""Sums, means and joins over replicas: of trees, of tensors with gradients, of flat gradients.

The classes are named as TensorFlow's, and say how gradients are added up over devices.
"""

from collections.abc import Callable, Sequence

import torch

from hpckit.parallel.errors import SetupError
from hpckit.parallel.mirrored.per_replica import PerReplica, ReduceOp, Tree, leaves, map_tree
from hpckit.parallel.scratch import allreduce, ring_allreduce

# How a replica waits for the others: a name of the call, its values, and how all are merged.
Meet = Callable[[str, Tree, Callable[[list[Tree]], list[Tree]]], Tree]
Gather = Callable[[list[Tree]], list[Tree]]


def checked(op: str) -> ReduceOp:
    """Return the reduction that a word means, in any letter case.

    Raises:
        ValueError: it means none.
    """
    try:
        return ReduceOp(op.lower())
    except (ValueError, AttributeError):
        raise ValueError(f"{op!r} is not a reduction: write 'sum' or 'mean'.") from None


def total(op: ReduceOp, values: Sequence[Tree], device: torch.device) -> torch.Tensor:
    """Return the sum or mean of one tensor or number of each replica, on a device.

    Whole numbers are added up in 64 bits, as torch.sum does: 200 and 200 would be 144 in 8, and
    True and True would be True.

    Raises:
        ValueError: their shapes differ.
    """
    tensors = [_wide(_tensor(value, device)) for value in values]
    _check_shapes(tensors)
    summed = tensors[0].clone()
    for tensor in tensors[1:]:
        summed = summed + tensor
    return summed if op == ReduceOp.SUM else summed / len(tensors)


def total_along(
    op: ReduceOp, values: Sequence[Tree], axis: int, device: torch.device
) -> torch.Tensor:
    """Return the sum or mean over an axis and over replicas; lengths along the axis may differ."""
    tensors = [_tensor(value, device) for value in values]
    if any(not -tensor.dim() <= axis < tensor.dim() for tensor in tensors):
        raise ValueError(
            f"reduce(axis={axis}): a value of shape {_shapes(tensors)} has no such axis."
        )
    summed = total(ReduceOp.SUM, [tensor.sum(axis) for tensor in tensors], device)
    count = sum(tensor.shape[axis] for tensor in tensors)
    return summed if op == ReduceOp.SUM else summed / count


def joined(values: Sequence[Tree], axis: int, device: torch.device) -> torch.Tensor:
    """Join one tensor of each replica along an axis, on a device.

    Raises:
        ValueError: they have no such axis, or their lengths differ along another one.
    """
    tensors = [_tensor(value, device) for value in values]
    if any(not -tensor.dim() <= axis < tensor.dim() for tensor in tensors):
        raise ValueError(
            f"gather along axis {axis}: values of shape {_shapes(tensors)} cannot be joined there. "
            "A number has no axis: value.reshape(1) has one."
        )
    rests = {
        tensor.movedim(axis, 0).shape[1:] for tensor in tensors
    }  # the other lengths must be equal
    if len(rests) > 1:
        raise ValueError(
            f"gather along axis {axis}: values of shape {_shapes(tensors)} differ in another axis."
        )
    return torch.cat(tensors, axis)


def gathering(axis: int) -> Gather:
    """Return a function that joins all replicas' trees, and makes a copy for each replica."""

    def gather(trees: list[Tree]) -> list[Tree]:
        devices = [_device(tree) for tree in trees]
        with torch.no_grad():
            return [
                map_tree(lambda *values, at=device: joined(values, axis, at), *trees)
                for device in devices
            ]

    return gather


def all_reduce(meet: Meet, op: ReduceOp, count: int, value: Tree, device: torch.device) -> Tree:
    """Return the sum or mean over `count` replicas of each leaf of one replica's tree."""
    tensors = [_tensor(leaf, device) for leaf in leaves(value)]
    summed = _Sum.apply(meet, f"all_reduce({op})", *tensors)  # type: ignore[no-untyped-call]
    reduced = iter(summed)
    scale = 1 if op == ReduceOp.SUM else count
    return map_tree(lambda _: next(reduced) if scale == 1 else next(reduced) / scale, value)


class _Sum(torch.autograd.Function):
    """The sum over replicas; its gradient is the sum of all replicas' gradients.

    In the backward pass replicas wait for each other, as in the forward pass: all must run it.
    """

    @staticmethod
    def forward(
        ctx: Tree, meet: Meet, what: str, *tensors: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        ctx.meet, ctx.what = meet, what
        return _summed(meet, what, tensors)

    @staticmethod
    def backward(ctx: Tree, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        return None, None, *_summed(ctx.meet, f"the gradient of {ctx.what}", gradients)


def _summed(meet: Meet, what: str, tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    def merge(sent: list[Sequence[torch.Tensor]]) -> list[list[torch.Tensor]]:
        if len({len(each) for each in sent}) > 1:
            raise ValueError(f"{what}: the replicas' values differ in structure.")
        device = sent[0][0].device if sent[0] else torch.device("cpu")
        sums = [total(ReduceOp.SUM, same, device) for same in zip(*sent, strict=True)]
        return [
            [one.to(mine.device, copy=True) for one, mine in zip(sums, each, strict=True)]
            for each in sent
        ]

    return tuple(meet(what, tensors, merge))


def sum_in_place(tensors: Sequence[torch.Tensor]) -> None:
    """Replace each replica's flat tensor by the sum: NCCL or a ring on GPUs, else plain copies."""
    if len(tensors) == 1:  # do not set up NCCL for nothing
        return
    devices = {tensor.device for tensor in tensors}
    gpus = all(device.type == "cuda" for device in devices) and len(devices) == len(tensors)
    if gpus and torch.cuda.nccl.is_available(tensors):  # type: ignore[no-untyped-call]
        torch.cuda.nccl.all_reduce(tensors)  # type: ignore[no-untyped-call]
    elif gpus and len(tensors) > 2:
        ring_allreduce(tensors)
    else:
        allreduce(tensors)


def reduce_leaf(op: ReduceOp, leaf: Tree, axis: int | None, device: torch.device) -> Tree:
    """Return the sum or mean of one PerReplica.

    Raises:
        ValueError: it is a plain value, whose sum over replicas is ambiguous.
    """
    if not isinstance(leaf, PerReplica):
        if op == ReduceOp.SUM:
            raise ValueError(
                f"reduce('sum') of {leaf!r}, which is not a value of each replica: reduce what "
                "strategy.run() returned."
            )
        leaf = PerReplica((leaf,))
    if axis is None:
        return total(op, leaf.values, device)
    return total_along(op, leaf.values, axis, device)


@torch.no_grad()
def one_buffer(
    values: tuple[torch.Tensor, ...], before: torch.Tensor | None = None
) -> torch.Tensor:
    """Return one value for all replicas: the mean of their values, or the first one of integers.

    Elements that are equal on all replicas stay as they are: a mean would round or overflow them.

    Args:
        values: of the replicas.
        before: what all of them had. Those that still have it do not count, if others do: a replica
            without samples has no new statistics.
    """
    first = values[0]
    if len(values) == 1 or not (first.is_floating_point() or first.is_complex()):
        return first
    stacked = torch.stack([value.to(first.device) for value in values])
    if before is not None and before.shape == first.shape:
        changed = (stacked != before.to(first.device)).reshape(len(values), -1).any(1)
        stacked = stacked[changed] if changed.any() else stacked
    return torch.where((stacked == stacked[0]).all(0), stacked[0], stacked.mean(0))


def _tensor(value: Tree, device: torch.device) -> torch.Tensor:
    return torch.as_tensor(value, device=device)


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    return tensor if tensor.is_floating_point() or tensor.is_complex() else tensor.long()


def _device(tree: Tree) -> torch.device:
    tensors = [leaf for leaf in leaves(tree) if isinstance(leaf, torch.Tensor)]
    return tensors[0].device if tensors else torch.device("cpu")


def _check_shapes(tensors: Sequence[torch.Tensor]) -> None:
    if len({tensor.shape for tensor in tensors}) > 1:
        raise ValueError(
            f"The replicas' values differ in shape: {_shapes(tensors)}. "
            "Add up their samples first, or give an axis."
        )


def _shapes(tensors: Sequence[torch.Tensor]) -> str:
    return ", ".join(str(tuple(tensor.shape)) for tensor in tensors)


class NcclAllReduce:
    """Adds up by NCCL, for which each replica must have a GPU of its own.

    Args:
        num_packs: accepted as in TensorFlow, and not used: gradients come in buckets of 32 MiB.
    """

    def __init__(self, num_packs: int = 1) -> None:
        self.num_packs = num_packs

    def __call__(self, tensors: Sequence[torch.Tensor]) -> None:
        """Replace each tensor by the sum of all.

        Raises:
            SetupError: NCCL cannot.
        """
        devices = [tensor.device for tensor in tensors]
        own = len(set(devices)) == len(devices) and all(one.type == "cuda" for one in devices)
        if not own or not torch.cuda.nccl.is_available(tensors):  # type: ignore[no-untyped-call]
            raise SetupError(
                f"NcclAllReduce needs NCCL and a GPU for each replica, not "
                f"{', '.join(map(str, devices))}: leave cross_device_ops out, then NCCL is used "
                "where it works."
            )
        torch.cuda.nccl.all_reduce(tensors)  # type: ignore[no-untyped-call]


class HierarchicalCopyAllReduce:
    """Adds up by pairs, then pairs of pairs, and copies the sum back along the same tree.

    Args:
        num_packs: accepted as in TensorFlow, and not used: gradients come in buckets of 32 MiB.
    """

    def __init__(self, num_packs: int = 1) -> None:
        self.num_packs = num_packs

    def __call__(self, tensors: Sequence[torch.Tensor]) -> None:
        """Replace each tensor by the sum of all."""
        distances = [1 << level for level in range((len(tensors) - 1).bit_length())]
        for distance in distances:
            for at in range(0, len(tensors) - distance, 2 * distance):
                tensors[at].add_(tensors[at + distance].to(tensors[at].device))
        for distance in reversed(distances):
            for at in range(0, len(tensors) - distance, 2 * distance):
                tensors[at + distance].copy_(tensors[at])


class ReductionToOneDevice:
    """Adds up on one device, and copies the sum to the others.

    Args:
        reduce_to_device: such as `cuda:1`; None: the first replica's.
    """

    def __init__(self, reduce_to_device: str | torch.device | None = None) -> None:
        self.device = None if reduce_to_device is None else torch.device(reduce_to_device)

    def __call__(self, tensors: Sequence[torch.Tensor]) -> None:
        """Replace each tensor by the sum of all."""
        if self.device is None:
            allreduce(tensors)
            return
        total = tensors[0].to(self.device, copy=True)
        for tensor in tensors[1:]:
            total += tensor.to(self.device)
        for tensor in tensors:
            tensor.copy_(total)
