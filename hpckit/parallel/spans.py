"""Which samples of a batch are whose: microbatches one after the other, replicas side by side."""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from itertools import pairwise

import torch

from hpckit.parallel.mirrored.per_replica import Tree, map_tree
from hpckit.parallel.sharing import has_samples, part_sizes

# The samples from the first number up to, and without, the second.
Span = tuple[int, int]
# Values that are equal or not, and have no tensor inside.
_PLAIN = (bool, int, float, complex, str, bytes, torch.dtype, torch.device, torch.Size)


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
    way_out = "or weight the parts by their samples: uneven='weight'"
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
    found: list[int] = []

    def note(leaf: Tree) -> Tree:
        if has_samples(leaf):
            found.append(len(leaf))
        return leaf

    map_fields(note, tree)
    return found


def samples(tree: Tree, name: str) -> int:
    """Return how many samples the tensors of a tree have.

    Raises:
        ValueError: they have not all as many, or there is no tensor with an axis.
    """
    found = lengths(tree)
    if not found:
        raise ValueError(
            f"There is no tensor with samples along axis 0 in {name}: give tensors, or arrays of "
            "numpy."
        )
    if len(set(found)) != 1:
        told = ", ".join(map(str, found))
        raise ValueError(
            f"The tensors of {name} must have the same number of samples on axis 0; they "
            f"have {told}."
        )
    return found[0]


def cut(tree: Tree, span: Span, device: torch.device) -> Tree:
    """Return some samples on a device. Values without a sample axis are the same in every part."""

    def part(leaf: Tree) -> Tree:
        if has_samples(leaf):
            leaf = leaf[slice(*span)]
        if isinstance(leaf, torch.Tensor):
            leaf = leaf.to(device, non_blocking=leaf.is_pinned())
        return leaf

    return map_fields(part, tree)


def map_fields(
    change: Callable[..., Tree], tree: Tree, *others: Tree, own_kinds: bool = False
) -> Tree:
    """Return what `map_tree` does, also of the fields of dataclasses, whose `__init__` is not run.

    Raises:
        ValueError: the trees are not of one shape.
        TypeError: as in `map_tree`, with `own_kinds`.
    """

    def leaf(first: Tree, *rest: Tree) -> Tree:
        if not is_dataclass(first) or isinstance(first, type):
            return change(first, *rest)
        if any(type(one) is not type(first) for one in rest):
            kinds = ", ".join(type(one).__name__ for one in (first, *rest))
            raise ValueError(f"The parts are of different kinds: {kinds}. Return the same kind.")
        mapping = isinstance(first, Mapping)
        names = [
            one.name for one in fields(first) if (one.init if mapping else hasattr(first, one.name))
        ]
        changed = {
            name: map_fields(
                change, *(getattr(one, name) for one in (first, *rest)), own_kinds=own_kinds
            )
            for name in names
        }
        if mapping:  # its __init__ fills the mapping
            return replace(first, **changed)
        new = copy.copy(first)  # a second __post_init__ would change the values again
        for name, value in changed.items():
            object.__setattr__(new, name, value)  # also where it is frozen
        return new

    # A dataclass that is a mapping too (as outputs of transformers are) keeps its class so.
    if is_dataclass(tree):
        return leaf(tree, *others)
    return map_tree(leaf, tree, *others, own_kinds=own_kinds)


def as_tensors(tree: Tree) -> Tree:
    """Return a tree with numpy's arrays as tensors, and all else as it is."""
    return map_tree(
        lambda leaf: torch.as_tensor(leaf) if hasattr(leaf, "__array_interface__") else leaf, tree
    )


def join(outputs: Sequence[Tree], device: torch.device) -> Tree:
    """Return the outputs of parts as one tree on a device.

    Tensors are joined along axis 0, in tuples, named tuples, lists, dicts and dataclasses too;
    tensors without an axis become one with a value for each part; what is no tensor must be the
    same for all.

    Raises:
        TypeError: it is not, or it is an object of another kind, or of a subclass of tuple, list or
            dict that cannot be created of its parts; or a dataclass notes the shape of a part.
    """

    def together(*parts: Tree) -> Tree:
        tensors = [part for part in parts if isinstance(part, torch.Tensor)]
        if len(tensors) == len(parts):
            return torch.cat([(one if one.dim() else one.reshape(1)).to(device) for one in tensors])
        if all(part is parts[0] for part in parts):
            return parts[0]
        kinds = ", ".join(dict.fromkeys(type(part).__name__ for part in parts))
        if tensors or not all(isinstance(part, _PLAIN) for part in parts):
            raise TypeError(
                f"Outputs of type {kinds} cannot be joined: return tensors, or tuples, named "
                "tuples, lists, dicts and dataclasses of them."
            )
        if any(part != parts[0] for part in parts):
            told = ", ".join(map(repr, parts))
            raise TypeError(
                f"Outputs of type {kinds} differ between parts and cannot be joined ({told}): "
                "return tensors."
            )
        return parts[0]

    whole = map_fields(together, *outputs, own_kinds=True)
    if len(outputs) > 1:
        _refuse_noted_shapes(outputs[0])
    return whole


def _refuse_noted_shapes(part: Tree) -> None:
    """Refuse dataclasses with a field that is the shape of a tensor in them: the whole has another.

    Raises:
        TypeError: there is one.
    """

    def look(leaf: Tree) -> Tree:
        if not is_dataclass(leaf) or isinstance(leaf, type):
            return leaf
        values = {one.name: getattr(leaf, one.name, None) for one in fields(leaf)}
        shapes: set[tuple[int, ...]] = set()

        def note(inner: Tree) -> Tree:
            if isinstance(inner, torch.Tensor) and inner.dim() > 1 and len(inner):
                shapes.add(tuple(inner.shape))
            return inner

        map_fields(note, list(values.values()))
        for name, value in values.items():
            if isinstance(value, tuple) and _is_shape(value, shapes):
                raise TypeError(
                    f"Outputs of type {type(leaf).__name__} cannot be joined: {name} "
                    f"{tuple(value)} is the shape of one part, not of the whole. Return the "
                    "tensors in it."
                )
        map_tree(look, list(values.values()))
        return leaf

    look(part) if is_dataclass(part) else map_tree(look, part)


def _is_shape(value: tuple[Tree, ...], shapes: set[tuple[int, ...]]) -> bool:
    """Return whether a tuple is one of the shapes, or has one in it."""
    if all(isinstance(one, int) for one in value):
        return tuple(value) in shapes
    return any(isinstance(one, tuple) and _is_shape(one, shapes) for one in value)


def _near(size: int, divisor: int) -> str:
    """Return the multiples of a divisor next to a size, in words."""
    below = size - size % divisor
    return f"{below} or {below + divisor}" if below else str(divisor)
