"""Which samples of a batch are whose: microbatches one after the other, replicas side by side."""

import re
from collections.abc import Sequence
from itertools import pairwise

import torch

from hpckit.parallel.devices import Replica, Spec, find_replicas
from hpckit.parallel.mirrored.values import Tree, leaves, map_tree
from hpckit.parallel.split import part_sizes

# The samples from the first number up to, and without, the second.
Span = tuple[int, int]


def replicas_of(
    devices: Spec | Sequence[Replica] = None, *, default: str = "first"
) -> tuple[Replica, ...]:
    """Return the replicas that words, devices or replicas mean.

    Words are those of `find_replicas`. Several `torch.device`, as replicas have them, are one
    replica each, also where they are equal.

    Raises:
        SetupError: a word means nothing here, or there is none.
    """
    if devices is None or isinstance(devices, str | re.Pattern | torch.device):
        return find_replicas(devices, default=default)
    found = [one.device if isinstance(one, Replica) else one for one in devices]
    places = [one for one in found if isinstance(one, torch.device)]
    if not found or len(places) < len(found):
        return find_replicas(found, default=default)
    return tuple(Replica(number, place) for number, place in enumerate(places))


def spans(total: int, microbatch: int | None, replicas: int) -> list[list[Span]]:
    """Return, for each microbatch in order, the samples of each replica; some have none.

    The last microbatch takes the rest. Of a microbatch, each of the first replicas has the ceiling.

    Args:
        total: samples of the batch.
        microbatch: samples of each microbatch; None: all are one.
        replicas: how many.
    """
    found = []
    for begin in range(0, total, microbatch or total or 1):
        ends = [begin]
        for size in part_sizes(min(microbatch or total, total - begin), replicas):
            ends.append(ends[-1] + size)
        found.append(list(pairwise(ends)))
    return found


def check_even(total: int, microbatch: int | None, replicas: int) -> None:
    """Refuse a batch that does not divide into equal parts.

    Raises:
        ValueError: it does not.
    """
    way_out = "or let the parts be weighed by their samples: uneven='weight'"
    if microbatch is not None and total % microbatch:
        raise ValueError(
            f"A batch of {total} cannot be split into microbatches of {microbatch}: give a batch "
            f"of {_near(total, microbatch)}, another microbatch, {way_out}."
        )
    name, size = ("batch", total) if microbatch is None else ("microbatch", microbatch)
    if size % replicas:
        raise ValueError(
            f"A {name} of {size} cannot be split over {replicas} devices: give one of "
            f"{_near(size, replicas)}, another number of devices, {way_out}."
        )


def lengths(tree: Tree) -> list[int]:
    """Return how many samples each tensor of a tree has; a tensor without an axis has none."""
    return [len(leaf) for leaf in leaves(tree) if _has_samples(leaf)]


def samples(tree: Tree, name: str) -> int:
    """Return how many samples the tensors of a tree have.

    Raises:
        ValueError: they have not all as many, or there is no tensor with an axis.
    """
    found = lengths(tree)
    if len(set(found)) != 1:
        told = ", ".join(map(str, found)) or "none"
        raise ValueError(
            f"The tensors of {name} must have as many samples each, along axis 0; they have {told}."
        )
    return found[0]


def cut(tree: Tree, span: Span, device: torch.device) -> Tree:
    """Return some samples on a device. What has none is the same for every part."""

    def part(leaf: Tree) -> Tree:
        if _has_samples(leaf):
            leaf = leaf[slice(*span)]
        if isinstance(leaf, torch.Tensor):
            leaf = leaf.to(device, non_blocking=leaf.is_pinned())
        return leaf

    return map_tree(part, tree)


def as_tensors(tree: Tree) -> Tree:
    """Return a tree with numpy's arrays as tensors, and all else as it is."""
    return map_tree(
        lambda leaf: torch.as_tensor(leaf) if hasattr(leaf, "__array_interface__") else leaf, tree
    )


def join(outputs: Sequence[Tree], device: torch.device) -> Tree:
    """Return the outputs of parts as one tree on a device.

    Tensors are joined along axis 0; numbers become a tensor with one for each part; what is no
    tensor must be the same for all.

    Raises:
        TypeError: it is not.
    """

    def together(*parts: Tree) -> Tree:
        tensors = [part for part in parts if isinstance(part, torch.Tensor)]
        if len(tensors) == len(parts):
            return torch.cat([(one if one.dim() else one.reshape(1)).to(device) for one in tensors])
        if tensors or any(part != parts[0] for part in parts):
            kinds = ", ".join(dict.fromkeys(type(part).__name__ for part in parts))
            raise TypeError(
                f"Outputs of type {kinds} differ between parts and cannot be joined: return "
                "tensors, or tuples, lists and dicts of them."
            )
        return parts[0]

    return map_tree(together, *outputs)


def _near(size: int, divisor: int) -> str:
    """Return the multiples of a divisor next to a size, in words."""
    below = size - size % divisor
    return f"{below} or {below + divisor}" if below else str(divisor)


def _has_samples(leaf: Tree) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.dim() > 0
