"""The functions expressions may call, and how values of a job become text.

A job's own texts (host names, job names) are untrusted: control characters are made visible, and
long texts are cut, before they reach a terminal.
"""

import math
import time
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

from hpckit.documents import Scalar
from hpckit.frozen import frozen
from hpckit.text import in_line
from hpckit.units import format_minutes, format_seconds

Value = Scalar | tuple[Scalar, ...]
# What names there are: a kind, or the names behind a dot.
Names = Mapping[str, Any]
# Beyond this no figure of a job can be; it also keeps texts of numbers short.
LARGEST = 1e30
_LONGEST_TEXT = 100


class Kind(StrEnum):
    """What a part of an expression gives. UNKNOWN is the constant None, which fits every kind."""

    NUMBER = "number"
    TRUTH = "truth"
    TEXT = "text"
    LIST = "list"
    UNKNOWN = "unknown"


def kind_of(value: object) -> Kind | None:
    """Return the kind a value has in the language; None if it cannot stand there."""
    match value:
        case None:
            return Kind.UNKNOWN
        case bool():
            return Kind.TRUTH
        case int() | float():
            return Kind.NUMBER if abs(value) <= LARGEST else None  # NaN is not, either
        case str():
            return Kind.TEXT
        case tuple():
            return Kind.LIST
    return None


@frozen(kw_only=True)
class Function:
    """One function of the language.

    Attributes:
        takes: kinds of the arguments; None takes any kind.
        gives: kind of the result; None is that of the arguments, which must then agree.
        repeats: whether the last argument may come more than once.
        sees_unknown: whether it is called with unknown arguments too; else they make it unknown.
        says: what it gives, for the documentation.
    """

    takes: tuple[Kind | None, ...]
    gives: Kind | None
    call: Callable[..., Value]
    says: str
    repeats: bool = False
    sees_unknown: bool = False


def visible(text: str) -> str:
    """Return a text with control, format and unassigned characters spelt out, and cut."""
    shown = in_line(text[: _LONGEST_TEXT + 1])
    return shown if len(shown) <= _LONGEST_TEXT else f"{shown[:_LONGEST_TEXT]}…"


def shown(value: Value) -> str:
    """Return any value as text; None is `unknown`."""
    match value:
        case None:
            return "unknown"
        case bool():
            return "yes" if value else "no"
        case int():
            return str(value)
        case float():
            return f"{value:.1f}".removesuffix(".0") if abs(value) >= 1 else f"{value:.2g}"
        case tuple():
            return ", ".join(shown(item) for item in value) or "none"
    return visible(value)


def percent(value: float) -> str:
    """Return `43 %`, or `4.3 %` where a whole number would hide much."""
    return f"{value:.0f} %" if value == 0 or abs(value) >= 10 else f"{value:.1f} %"


def size(value: float) -> str:
    """Return bytes as `512 B`, `12.3 GiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024:
            return f"{value:.0f} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def clock(value: float) -> str | None:
    """Return a moment (epoch seconds) in local time as `2026-11-03 14:32`."""
    try:
        moment = time.localtime(value)
    except (OverflowError, OSError, ValueError):
        return None
    return time.strftime("%Y-%m-%d %H:%M", moment) if 1 <= moment.tm_year <= 9999 else None


def _slurm_time(value: float) -> str:
    return format_minutes(max(1, math.ceil(value / 60)))


def _first(*values: Value) -> Value:
    return next((value for value in values if value is not None), None)


_N, _T, _ANY = Kind.NUMBER, Kind.TRUTH, None
FUNCTIONS = {
    "min": Function(takes=(_N, _N), gives=_N, call=min, repeats=True, says="the smallest"),
    "max": Function(takes=(_N, _N), gives=_N, call=max, repeats=True, says="the largest"),
    "round": Function(takes=(_N,), gives=_N, call=round, says="the nearest whole number"),
    "ceil": Function(takes=(_N,), gives=_N, call=math.ceil, says="rounded up"),
    "floor": Function(takes=(_N,), gives=_N, call=math.floor, says="rounded down"),
    "abs": Function(takes=(_N,), gives=_N, call=abs, says="the absolute value"),
    "len": Function(takes=(Kind.LIST,), gives=_N, call=len, says="the number of items in a list"),
    "known": Function(
        takes=(_ANY,),
        gives=_T,
        call=lambda value: value is not None,
        sees_unknown=True,
        says="whether a value is known",
    ),
    "sure": Function(
        takes=(_T,),
        gives=_T,
        call=lambda value: value is True,
        sees_unknown=True,
        says="true if the value is true; false if it is false or unknown",
    ),
    "first": Function(
        takes=(_ANY, _ANY),
        gives=None,
        call=_first,
        repeats=True,
        sees_unknown=True,
        says="the first value that is known",
    ),
    "percent": Function(takes=(_N,), gives=Kind.TEXT, call=percent, says="`43 %`"),
    "duration": Function(
        takes=(_N,), gives=Kind.TEXT, call=format_seconds, says="seconds as `2 h 07 min`"
    ),
    "hours": Function(
        takes=(_N,), gives=Kind.TEXT, call=lambda value: f"{value:.1f}", says="hours as `3.4`"
    ),
    "bytes": Function(takes=(_N,), gives=Kind.TEXT, call=size, says="bytes as `12.3 GiB`"),
    "clock": Function(
        takes=(_N,), gives=Kind.TEXT, call=clock, says="epoch seconds as `2026-11-03 14:32`"
    ),
    "slurm_time": Function(
        takes=(_N,), gives=Kind.TEXT, call=_slurm_time, says="seconds as `--time` wants it"
    ),
}
