"""Arguments of Python calls: each is checked at the door, and refused by its name.

Annotations are promises that nobody keeps at run time. A text where a flag stands counts as true, a
number where a name stands fails deep inside, with Python's words.
"""

import math
import os
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

from hpckit.errors import RequestError
from hpckit.files import DamagedFileError
from hpckit.frozen import frozen
from hpckit.text import as_python
from hpckit.values import check, kind_words

if TYPE_CHECKING:
    from datetime import timedelta

Kept = TypeVar("Kept")
Function = TypeVar("Function", bound=Callable[..., Any])
_SHOWN = 60
# Of a code object whose function takes *args: inspect.CO_VARARGS.
_VARARGS = 4
# Above it, `repr` of a whole number takes its time, or raises.
_LONG = 2**256


@frozen()
class Kind:
    """What an argument must be that JSON has not: `what` says it in errors."""

    what: str
    fits: Callable[[Any], bool]


def job_word(given: str | int | os.PathLike[str]) -> str:
    """Return what `JOB` is on a command line: an id, or a folder, as that of a run at hand."""
    return os.fspath(given) if isinstance(given, os.PathLike) else str(given)


def maybe(kind: Kind) -> Kind:
    """Return a kind that may also be None: it was not given."""
    return Kind(kind.what, lambda given: given is None or kind.fits(given))


def _is_path(given: object) -> bool:
    text = os.fspath(given) if isinstance(given, os.PathLike) else given
    try:
        return isinstance(text, str) and b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:  # half a letter
        return False


def _is_job(given: object) -> bool:
    return _is_path(given) or (type(given) is int and abs(given) <= _LONG)


def _is_text_or_number(given: object) -> bool:
    return isinstance(given, str) or (type(given) is int and 0 <= given <= _LONG)


def _is_time(given: object) -> bool:
    return _is_text_or_number(given) or hasattr(given, "total_seconds")


def time_word(given: "str | int | timedelta") -> str:
    """Return what TIME is on a command line: of a timedelta its seconds, the last one whole."""
    if isinstance(given, str | int):
        return str(given)
    return f"{math.ceil(given.total_seconds())}s"


def _are_texts(given: object) -> bool:
    rows = (given,) if isinstance(given, str) else given
    return isinstance(rows, list | tuple | set | frozenset) and all(
        isinstance(row, str) for row in rows
    )


# Empty it would be the folder one stands in, as of a variable that is not set.
PATH = Kind("a path", lambda given: _is_path(given) and os.fspath(given) != "")
WORD = Kind("a text or a path that a program can be given", _is_path)
JOB = Kind("a run, or a job's id, or a run's id or folder", _is_job)
FUNCTION = Kind("a function", callable)
TIME = Kind("a time, as in 1h30m, minutes or a timedelta", _is_time)
SIZE = Kind("a size, as in 10G or bytes", _is_text_or_number)
VALUES = Kind(
    "a mapping of options to their values, or texts as 'lr=0.1,0.2'",
    lambda given: isinstance(given, Mapping) or _are_texts(given),
)
TEXTS = Kind("a text, or a list of texts", _are_texts)
STREAM = Kind("a stream, as sys.stdout", lambda given: hasattr(given, "isatty"))


def own_number(given: Any) -> Any:  # noqa: ANN401  # users' own
    """Return a number of another class, as of numpy or an IntEnum, as Python's; else as it is."""
    if isinstance(given, float):
        return float(given)
    if isinstance(given, bool) or not hasattr(type(given), "__index__"):
        return given
    try:
        return given.__index__()
    except TypeError:  # an array of several
        return given


def is_several(given: object) -> bool:
    """Say whether one can go through it: an array of numpy's with no dimension looks as if.

    What has no `__iter__` is one thing: Python would ask its `__getitem__` for 0, 1, 2, which knows
    other keys alone, or never ends, as in some data sets of torch.
    """
    if not isinstance(given, Iterable):
        return False
    try:
        iter(given)
    except TypeError:
        return False
    return True


def each_of(given: Any) -> list[Any]:  # noqa: ANN401
    """Return each of what is one, or several, or has several `runs`, as a map's calls or a study.

    Of several, one may again be such a group: `[run, array, calls]`.
    """
    rows = getattr(given, "runs", given)  # a map yields its results, which are no runs
    if isinstance(rows, str | Mapping) or not is_several(rows):
        return [own_number(rows)]
    groups = (getattr(row, "runs", row) for row in rows)
    return [own_number(row) for rows in groups for row in _members(rows)]


def each_a(kind: type[Kept], given: Any, name: str, whence: str) -> list[Kept]:  # noqa: ANN401
    """Return each of several values of a class; `whence` says what returns one.

    Raises:
        RequestError: one is of another class, or it is not several.
    """
    if not is_several(given):
        raise RequestError(f"{shown(given, name)} must be a list.")
    rows: list[Any] = list(given)
    if wrong := [row for row in rows if not isinstance(row, kind)]:
        raise RequestError(f"{shown(wrong[0], name)} is not a {kind.__name__}: {whence}.")
    return rows


def _members(group: Any) -> list[Any]:  # noqa: ANN401
    return group if isinstance(group, list) else [group]


def argument(kind: Any, given: Any, name: str) -> Any:  # noqa: ANN401
    """Read an argument as a kind says: a `Kind`, or an annotation of what JSON can have.

    `name` is what errors call it: a keyword, or a flag.

    Raises:
        RequestError: it is of another type, or outside its limits.
    """
    if isinstance(kind, Kind):
        if not kind.fits(given):
            raise RequestError(f"{shown(given, name)} must be {kind.what}.")
        return given
    try:
        return check(kind, given, name)
    except DamagedFileError as error:
        what = kind_words(kind).removesuffix(" or null")
        raise RequestError(f"{shown(given, name)} must be {what}.") from error


def shown(given: object, name: str) -> str:
    """Return an argument as its caller wrote it: `limit=-1`, `--nodes -1`."""
    long = type(given) is int and abs(given) > _LONG
    text = "a number of many digits" if long else as_python(given)
    text = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
    return f"{name}{' ' if name.startswith('-') else '='}{text}"


def several(given: Any, name: str) -> tuple[str, ...]:  # noqa: ANN401  # users' own
    """Read an argument that is one text, or some of them.

    Raises:
        RequestError: it is neither.
    """
    rows = tuple(given) if is_several(given) and not isinstance(given, str) else given
    found = argument(TEXTS, rows, name)
    return (found,) if isinstance(found, str) else found


def checked(**kinds: Any) -> Callable[[Function], Function]:  # noqa: ANN401
    """Check a function's arguments, by their names, before anything of it is done."""

    def decorate(function: Function) -> Function:
        code = function.__code__
        names, rest = code.co_varnames[: code.co_argcount], []
        if code.co_flags & _VARARGS:
            rest = [code.co_varnames[code.co_argcount + code.co_kwonlyargcount]]

        def read(name: str, value: Any) -> Any:  # noqa: ANN401
            if name not in kinds:
                return value
            return argument(kinds[name], own_number(value), name)

        @wraps(function)
        def call(*args: Any, **given: Any) -> Any:  # noqa: ANN401
            every = [*names, *rest * (len(args) - len(names))]
            known = [read(name, value) for name, value in zip(every, args, strict=False)]
            named = {name: read(name, value) for name, value in given.items()}
            return function(*known, *args[len(known) :], **named)

        return call  # type: ignore[return-value]  # the same, checked

    return decorate
