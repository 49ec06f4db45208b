"""Values of several replicas, alone or inside tuples, lists and dicts."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from hpckit.parallel.older_python import StrEnum

T = TypeVar("T")
# Whatever a user passes: a leaf, or tuples, lists and dicts of trees.
Tree = Any


class ReduceOp(StrEnum):
    """How the values of replicas become one."""

    SUM = "sum"
    MEAN = "mean"


@dataclass(frozen=True, slots=True)
class PerReplica(Generic[T]):
    """One value for each replica, in their order."""

    values: tuple[T, ...]

    def __iter__(self) -> Iterator[T]:
        return iter(self.values)

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, number: int) -> T:
        return self.values[number]


def map_tree(change: Callable[..., Tree], tree: Tree, *others: Tree) -> Tree:
    """Return a tree of one shape with `change` of the leaves at each place.

    Raises:
        ValueError: the trees are not of one shape.
    """
    parts = _children(tree)
    if parts is None:
        if any(_children(other) is not None for other in others):
            raise ValueError(_unlike(tree, *others))
        return change(tree, *others)
    rest = [_children(other) for other in others]
    if any(other is None or other.keys() != parts.keys() for other in rest):
        raise ValueError(_unlike(tree, *others))
    changed = {
        key: map_tree(change, part, *(other[key] for other in rest if other is not None))
        for key, part in parts.items()
    }
    return _like(tree, changed)


def leaves(tree: Tree) -> list[Tree]:
    """Return the leaves of a tree, in order."""
    found: list[Tree] = []
    map_tree(found.append, tree)
    return found


def local_results(value: Tree) -> tuple[Tree, ...]:
    """Return the values that this process holds: one for each replica, or the one there is."""
    return value.values if isinstance(value, PerReplica) else (value,)


def parts_of(tree: Tree, count: int) -> list[Tree]:
    """Return what each of `count` replicas gets: its own of each PerReplica, all else as it is.

    Raises:
        RuntimeError: a PerReplica has not as many values.
    """
    return [
        map_tree(lambda leaf, at=number: values_of(leaf, count)[at], tree)
        for number in range(count)
    ]


def values_of(leaf: Tree, count: int) -> tuple[Tree, ...]:
    """Return the values of one leaf for `count` replicas.

    Raises:
        RuntimeError: it is a PerReplica that has not as many.
    """
    if not isinstance(leaf, PerReplica):
        return (leaf,) * count
    if len(leaf) != count:
        raise RuntimeError(
            f"Two strategies are mixed: a value of {len(leaf)} replicas is given to one of {count}."
            " Make it with the strategy that uses it."
        )
    return leaf.values


def regroup(results: Sequence[Tree]) -> Tree:
    """Return one tree, with a PerReplica at each leaf, of the trees that replicas returned.

    What one replica returned stays as it is, and None of all replicas is None.

    Raises:
        ValueError: the trees are not of one shape.
    """
    if len(results) == 1:
        return results[0]
    return map_tree(_together, *results)


def _together(*values: Tree) -> Tree:
    return None if all(value is None for value in values) else PerReplica(values)


def _children(tree: Tree) -> dict[Any, Tree] | None:
    if isinstance(tree, Mapping):
        return dict(tree)
    if isinstance(tree, tuple | list):
        return dict(enumerate(tree))
    return None


def _like(tree: Tree, children: dict[Any, Tree]) -> Tree:
    if isinstance(tree, Mapping):
        return children
    if hasattr(tree, "_fields"):  # a named tuple takes its fields one by one
        return type(tree)(*children.values())
    return tuple(children.values()) if isinstance(tree, tuple) else list(children.values())


def _unlike(*trees: Tree) -> str:
    shapes = ", ".join(_shape(tree) for tree in trees)
    return f"The replicas' values differ in structure: {shapes}. Give the same keys and lengths."


def _shape(tree: Tree) -> str:
    children = _children(tree)
    if children is None:
        return type(tree).__name__
    if isinstance(tree, Mapping):
        return f"dict of {sorted(map(str, children))}"
    return f"{type(tree).__name__} of {len(children)}"
