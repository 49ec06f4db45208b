"""Frozen values to JSON and back: lists become tuples again, and each field is what it says.

A type's annotations are its schema. What others may have written is checked against them here, so
that code behind this door meets no text where it counts, no true where a rank's number stands, and
no moment that `time.localtime` does not know.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache
from types import MappingProxyType, NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NotRequired,
    Required,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from hpckit.files import DamagedFileError
from hpckit.frozen import frozen

Value = TypeVar("Value")
# Above what any counter of Linux or NVML holds; a float still counts there, and time does not.
_LARGEST = 2**64
_SHOWN = 60


@frozen()
class Within:
    """Limits of a number, or of a text's length; both allowed: `Annotated[int, Within(0, 100)]`."""

    least: float
    most: float


# The year 10000, which time.localtime() still knows.
LAST_MOMENT = 253_402_300_799.0
Moment = Annotated[float, Within(0, LAST_MOMENT)]
"""Epoch seconds."""
Seconds = Annotated[float, Within(0, LAST_MOMENT)]
# Slurm and Linux count in 63 bits at most.
MOST = 2**63 - 1
Count = Annotated[int, Within(0, MOST)]
# Far above any cluster's nodes, ranks and GPUs: loops over them end.
Size = Annotated[int, Within(0, 10_000_000)]
# Signals are sent to these: never to 0 or -1, which mean many.
Pid = Annotated[int, Within(1, 2**31 - 1)]
# A name that fits a line, with room.
Word = Annotated[str, Within(0, 1000)]


@frozen()
class _Reader:
    """How to read one annotation: `what` names it in errors; `read` takes a value and its name."""

    what: str
    read: Callable[[Any, str], Any]


_NONE: Mapping[str, object] = MappingProxyType({})


def rebuild(
    kind: type[Value],
    found: object,
    *,
    newer: bool = False,
    checked: Mapping[str, object] = _NONE,
) -> Value:
    """Make a value, a dataclass or a TypedDict, of what JSON gave.

    `newer` passes over names that `kind` does not have: a later version may have written them.
    `checked` are fields of a dataclass beside those in `found`, taken as they are.

    Raises:
        DamagedFileError: a field is missing, unknown, or of another type or size than its own.
    """
    value: Value = _record(kind, found, "", newer=newer, checked=checked)
    return value


def check(annotation: Any, found: object, name: str) -> Any:  # noqa: ANN401
    """Read one value as an annotation says; `name` is what errors call it.

    Raises:
        DamagedFileError: it is of another type, or outside its limits.
    """
    return _reader(annotation).read(found, name)


def kind_words(annotation: Any) -> str:  # noqa: ANN401
    """Return what an annotation asks for, in words: `a whole number from 1 to 9 or null`."""
    return _reader(annotation).what


def _record(
    kind: Any,  # noqa: ANN401
    found: object,
    name: str,
    *,
    newer: bool,
    checked: Mapping[str, object] = _NONE,
) -> Any:  # noqa: ANN401
    if not isinstance(found, Mapping):
        raise _wrong(name, found, "a mapping")
    readers, needed = _schema(kind)
    inside = f"{name}." if name else ""
    if not found.keys() <= readers.keys() and not newer:
        other = next(key for key in found if key not in readers)
        raise DamagedFileError(f"{inside}{str(other)[:_SHOWN]!r} is an unknown key")
    if not needed <= found.keys() and not needed <= found.keys() | checked.keys():
        raise DamagedFileError(
            f"'{inside}{next(key for key in readers if key in needed - found.keys())}' is missing"
        )
    values = {
        key: readers[key].read(value, inside + key)
        for key, value in found.items()
        if key in readers
    }
    # A TypedDict keeps what it does not know: who reads a record whole needs all of it.
    return {**found, **values} if is_typeddict(kind) else kind(**values, **checked)


@cache
def _schema(kind: Any) -> tuple[dict[str, _Reader], frozenset[str]]:  # noqa: ANN401
    """Return how to read each field of a kind, and which must be there."""
    hints = get_type_hints(kind, include_extras=True)
    if is_typeddict(kind):
        return {name: _reader(hint) for name, hint in hints.items()}, kind.__required_keys__
    mine = [row for row in fields(kind) if row.init]
    needed = (r.name for r in mine if r.default is MISSING and r.default_factory is MISSING)
    return {row.name: _reader(hints[row.name]) for row in mine}, frozenset(needed)


@cache
def _reader(annotation: Any) -> _Reader:  # noqa: ANN401
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin in (Required, NotRequired):
        return _reader(inner[0])
    if origin is Annotated:
        return _limited(_reader(inner[0]), inner[1:])
    if origin in (Union, UnionType):
        return _one_of([_reader(option) for option in inner])
    if origin is Literal:
        return _Reader(" or ".join(map(repr, inner)), _member({word: word for word in inner}))
    if origin in (tuple, list, Sequence):
        return _row(inner, tuple if origin is not list else list)
    if origin in (dict, Mapping):
        return _mapping(*map(_reader, inner))
    if annotation in _PLAIN:
        return _PLAIN[annotation]
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        words = {member.value: member for member in annotation}
        return _Reader(f"a known {annotation.__name__}", _member(words))
    if isinstance(annotation, type) and issubclass(annotation, tuple):  # a NamedTuple
        row = _row([*get_type_hints(annotation).values()], lambda items: annotation(*items))
        return _Reader(row.what, row.read)
    if is_dataclass(annotation) or is_typeddict(annotation):
        return _Reader("a mapping", lambda v, name: _record(annotation, v, name, newer=True))
    raise TypeError(f"{annotation!r} cannot be read from JSON")


def _plain(what: str, fits: Callable[[Any], bool]) -> _Reader:
    def read(value: Any, name: str) -> Any:  # noqa: ANN401
        if not fits(value):
            raise _wrong(name, value, what)
        return value

    return _Reader(what, read)


def _is_whole(value: object) -> bool:
    return type(value) is int and -_LARGEST <= value <= _LARGEST


def _is_number(value: object) -> bool:
    return _is_whole(value) or (type(value) is float and math.isfinite(value))


_PLAIN: dict[Any, _Reader] = {
    Any: _Reader("anything", lambda value, name: value),
    object: _Reader("anything", lambda value, name: value),
    int: _plain("a whole number", _is_whole),
    float: _plain("a number", _is_number),
    bool: _plain("true or false", lambda value: type(value) is bool),
    str: _plain("a text", lambda value: isinstance(value, str)),
    None: _plain("null", lambda value: value is None),
    NoneType: _plain("null", lambda value: value is None),
    Mapping: _plain("a mapping", lambda value: isinstance(value, dict)),
    dict: _plain("a mapping", lambda value: isinstance(value, dict)),
}


def _written(limit: float) -> str:
    return str(int(limit)) if limit == int(limit) else f"{limit:g}"


def _limited(inner: _Reader, limits: Sequence[object]) -> _Reader:
    bounds = [limit for limit in limits if isinstance(limit, Within)]
    spans = (f" from {_written(row.least)} to {_written(row.most)}" for row in bounds)
    what = "".join([inner.what, *spans])

    def read(value: Any, name: str) -> Any:  # noqa: ANN401
        got = inner.read(value, name)
        size = len(got) if isinstance(got, str | tuple) else got
        if not all(row.least <= size <= row.most for row in bounds):
            raise _wrong(name, value, f"{what} letters" if isinstance(got, str) else what)
        return got

    return _Reader(what, read)


def _one_of(options: Sequence[_Reader]) -> _Reader:
    what = " or ".join(option.what for option in options)
    null = _PLAIN[NoneType] in options
    others = [option for option in options if option is not _PLAIN[NoneType]]

    def read(value: Any, name: str) -> Any:  # noqa: ANN401
        if value is None and null:  # most of what can be null is: no error to be made and caught
            return None
        faults = []
        for option in others:
            try:
                return option.read(value, name)
            except DamagedFileError as error:
                faults.append(error)
        # What is wrong inside a mapping says more than that it might as well be null.
        raise faults[0] if isinstance(value, dict) else _wrong(name, value, what)

    return _Reader(what, read)


def _member(words: Mapping[Any, Any]) -> Callable[[Any, str], Any]:
    kinds = {type(word) for pair in words.items() for word in pair}  # 1 == True, but is no word

    def read(value: Any, name: str) -> Any:  # noqa: ANN401
        if type(value) not in kinds or value not in words:
            raise _wrong(name, value, f"one of {', '.join(map(str, words))}")
        return words[value]

    return read


def _row(inner: Sequence[Any], make: Callable[[list[Any]], Any]) -> _Reader:
    """Read a list of one kind, or a tuple of so many members."""
    alike = len(inner) == 1 or inner[-1] is Ellipsis
    readers = [_reader(inner[0])] if alike else [_reader(kind) for kind in inner]
    what = "a list" if alike else f"a list of {len(readers)}"

    def read(value: Any, name: str) -> Any:  # noqa: ANN401
        if not isinstance(value, list | tuple) or not (alike or len(value) == len(readers)):
            raise _wrong(name, value, what)
        each = readers * len(value) if alike else readers
        return make([one.read(item, name) for one, item in zip(each, value, strict=True)])

    return _Reader(what, read)


def _mapping(key: _Reader, inner: _Reader) -> _Reader:
    def read(value: Any, name: str) -> Any:  # noqa: ANN401
        if not isinstance(value, dict):
            raise _wrong(name, value, "a mapping")
        return {
            key.read(word, name): inner.read(item, f"{name}.{word}") for word, item in value.items()
        }

    return _Reader("a mapping", read)


def _wrong(name: str, value: object, wanted: str) -> DamagedFileError:
    if isinstance(value, dict | list | tuple):
        shown = "a mapping" if isinstance(value, dict) else "a list"
    else:
        # No repr of a whole number: a long one would take its time.
        long = isinstance(value, int) and abs(value) > _LARGEST
        shown = "a number of many digits" if long else repr(value)[:_SHOWN]
    return DamagedFileError(f"{repr(name[:_SHOWN]) if name else 'it'} is {shown}, must be {wanted}")
