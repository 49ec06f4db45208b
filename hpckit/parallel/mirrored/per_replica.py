"""Values of several replicas, alone or inside tuples, lists and dicts."""

import copy
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


def map_tree(
    change: Callable[..., Tree], tree: Tree, *others: Tree, own_kinds: bool = False
) -> Tree:
    """Return a tree of one shape with `change` of the leaves at each place.

    Named tuples, and subclasses of tuple, list and dict, keep their class if they can be created
    anew of their parts alone; if not, they become a tuple, list or dict. Other mappings become
    dicts.

    Args:
        change: of the leaves at one place.
        tree: gives the classes.
        others: of the same shape.
        own_kinds: a subclass that cannot be created anew is an error.

    Raises:
        ValueError: the trees are not of one shape.
        TypeError: see `own_kinds`.
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
        key: map_tree(
            change, part, *(other[key] for other in rest if other is not None), own_kinds=own_kinds
        )
        for key, part in parts.items()
    }
    return _like(tree, changed, own_kinds=own_kinds)


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


def _like(tree: Tree, children: dict[Any, Tree], *, own_kinds: bool) -> Tree:
    mapping, values = isinstance(tree, Mapping), list(children.values())
    if hasattr(tree, "_fields"):  # a named tuple takes its fields one by one
        return type(tree)(*values)
    plain = children if mapping else tuple(values) if isinstance(tree, tuple) else values
    if type(tree) is type(plain) or (mapping and not isinstance(tree, dict)):
        return plain
    made, why = _of_own_kind(tree, list(children.items()) if mapping else values)
    if made is not None:
        return made
    if not own_kinds:
        return plain
    kind = type(tree).__name__
    raise TypeError(
        f"A {kind} cannot be put together from parts ({why}): return the tensors in it, or tuples, "
        "named tuples, lists, dicts and dataclasses of them."
    )


def _of_own_kind(tree: Tree, content: list[Any]) -> tuple[Tree | None, str]:
    """Return an object of a tree's class with other content, as torch's gather makes it.

    Without one the word says why.
    """
    why = "its class cannot be called with the parts alone"
    try:
        made = type(tree)(content)
    except Exception as error:  # noqa: BLE001  # a user's class may raise anything
        why = str(error).partition("\n")[0] or type(error).__name__
        if isinstance(tree, tuple) or _attributes(tree):
            return None, why
        made = copy.copy(tree)  # as of a defaultdict, whose first argument is a function
        if isinstance(tree, dict):
            made.update(content)
        else:
            made[:] = content
    found = list(made.items()) if isinstance(made, dict) else list(made)
    same = len(found) == len(content) and all(
        one is other or (isinstance(tree, dict) and one[0] == other[0] and one[1] is other[1])
        for one, other in zip(found, content, strict=True)
    )
    if lost := _attributes(tree) - _attributes(made):
        return None, f"its attribute {min(lost)} would be lost"
    return (made, "") if same else (None, why)


def _attributes(tree: Tree) -> set[str]:
    return set(getattr(tree, "__dict__", ()))


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
