"""Sums over time, of which some parts are unknown; unknown parts are left out, never 0."""

from array import array
from collections.abc import Iterable
from itertools import compress

from hpckit.stats.samples.packing import Column
from hpckit.stats.summary.clock import total

_PART = 4096
Sum = tuple[int, float]  # microseconds in which it is known, integral over them


def highest(column: Column | None) -> int | None:
    """Return the highest known value."""
    if column is None:
        return None
    values = column.values
    if column.known is not None:
        values = array(values.typecode, compress(values, column.known))
    parts = (values[at : at + _PART] for at in range(0, len(values), _PART))
    return max((_highest(part) for part in parts), default=-1) * column.scale if values else None


def _highest(part: "array[int]") -> int:
    # Memory in use stays the same for hours: bytes are compared faster than numbers.
    return part[0] if part == array(part.typecode, part[:1]) * len(part) else max(part)


def add(sums: Iterable[Sum | None]) -> Sum | None:
    """Add up known sums."""
    known = [part for part in sums if part]
    return total(known) if known else None


def add_known(values: Iterable[int | None]) -> int | None:
    """Add up known values; None if none is."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def most(values: Iterable[int | None]) -> int | None:
    """Return the highest of known values; None if none is."""
    return max((value for value in values if value is not None), default=None)


def mean(known: Sum | None, scale: float) -> float | None:
    """Return the mean of a sum over time."""
    return known[1] / known[0] * scale if known and known[0] else None


def scaled(value: int | None, scale: float) -> float | None:
    """Return a value in another unit."""
    return None if value is None else value * scale
