"""Dataclasses that are quickly made: a command's start makes fifty classes, and uses few.

The standard `dataclass(frozen=True)` compiles the text of six methods for each class, a fifth of
such a start; one that may be changed, of three. Here all classes share theirs. Fields, `replace()`,
`asdict()` and pickles are the same; making an instance takes a little longer, so what
there are thousands of is standard.
"""

from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field, fields
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

Kind = TypeVar("Kind", bound=type)
if TYPE_CHECKING:
    from typing import dataclass_transform
else:

    def dataclass_transform(**_: object) -> Callable[[Kind], Kind]:
        """Stand in for typing's: Python 3.10 lacks it, and jobs' scripts may have that."""
        return lambda function: function


_set = object.__setattr__


@dataclass_transform(frozen_default=True, field_specifiers=(field, Field))
def frozen(*, kw_only: bool = False, slots: bool = True) -> Callable[[Kind], Kind]:
    """Make a class a frozen dataclass; methods of its own stay."""
    return lambda kind: _made(kind, _METHODS | _FROZEN, kw_only=kw_only, slots=slots)


@dataclass_transform(field_specifiers=(field, Field))
def changeable(*, kw_only: bool = False, slots: bool = True) -> Callable[[Kind], Kind]:
    """Make a class a dataclass whose fields may be set anew; methods of its own stay."""
    return lambda kind: _made(kind, _METHODS, kw_only=kw_only, slots=slots)


def _made(kind: Kind, methods: dict[str, Any], *, kw_only: bool, slots: bool) -> Kind:
    own = vars(kind)
    if not kind.__doc__:
        kind.__doc__ = kind.__name__  # else dataclass() asks `inspect` for one, for 3 ms
    found: Any = dataclass(init=False, repr=False, eq=False, kw_only=kw_only, slots=slots)(kind)
    for name, method in methods.items():
        if name not in own:
            setattr(found, name, method)
    return found  # type: ignore[no-any-return]  # the same, or its copy with slots


@cache
def _names(kind: Any) -> tuple[str, ...]:  # noqa: ANN401
    return tuple(row.name for row in fields(kind) if row.compare)


@cache
def _asked(kind: Any) -> tuple[tuple[str, ...], tuple[Field[Any], ...]]:  # noqa: ANN401
    """Return the fields that may be given by position, and all."""
    every = fields(kind)
    return tuple(row.name for row in every if row.init and not row.kw_only), every


def _init(self: Any, /, *args: Any, **given: Any) -> None:  # noqa: ANN401
    by_position, every = _asked(type(self))  # type: ignore[arg-type]  # a type is hashable
    if args:
        twice = given.keys() & set(by_position[: len(args)])
        if twice or len(args) > len(by_position):
            what = f"{sorted(twice)} twice" if twice else f"{len(args)} positional arguments"
            raise TypeError(f"{type(self).__name__} was given {what}")
        given |= zip(by_position, args, strict=False)
    left = len(given)
    for row in every:
        if row.init and row.name in given:
            _set(self, row.name, given[row.name])
            left -= 1
        elif row.default is not MISSING:
            _set(self, row.name, row.default)
        elif row.default_factory is not MISSING:
            _set(self, row.name, row.default_factory())
        elif row.init:
            raise TypeError(f"{type(self).__name__} needs {row.name!r}")
    if left:
        unknown = sorted(given.keys() - {row.name for row in every if row.init})
        raise TypeError(f"{type(self).__name__} has no field {', '.join(map(repr, unknown))}")
    if hasattr(self, "__post_init__"):
        self.__post_init__()


def _values(self: Any) -> tuple[Any, ...]:  # noqa: ANN401
    return tuple(getattr(self, name) for name in _names(type(self)))  # type: ignore[arg-type]  # as above


def _repr(self: Any) -> str:  # noqa: ANN401
    shown = (f"{row.name}={getattr(self, row.name)!r}" for row in fields(self) if row.repr)
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _eq(self: object, other: object) -> bool:
    return _values(self) == _values(other) if type(other) is type(self) else NotImplemented


def _hash(self: object) -> int:
    return hash(_values(self))


def _setattr(self: object, name: str, value: object) -> None:
    del self, value
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _delattr(self: object, name: str) -> None:
    del self
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _getstate(self: Any) -> list[Any]:  # noqa: ANN401
    return [getattr(self, row.name) for row in fields(self)]


def _setstate(self: Any, state: list[Any]) -> None:  # noqa: ANN401
    for row, value in zip(fields(self), state, strict=True):
        _set(self, row.name, value)


_METHODS: dict[str, Any] = {
    "__init__": _init,
    "__repr__": _repr,
    "__eq__": _eq,
    "__hash__": None,
}
_FROZEN: dict[str, Any] = {
    "__hash__": _hash,
    "__setattr__": _setattr,
    "__delattr__": _delattr,
    "__getstate__": _getstate,
    "__setstate__": _setstate,
}
