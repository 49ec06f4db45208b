"""When a figure of several parts is known: only if each part is. Pure.

Half-known is unknown: the mean of the nodes that answered passes for the job's, and a gate like
`--fail-under` would trust it. What is known of each part is shown in its own row.
"""

from collections.abc import Iterable, Sequence
from typing import TypeVar

Number = TypeVar("Number", int, float)


def whole(values: Iterable[Number | None]) -> list[Number] | None:
    """Return all values; None if one is unknown, or there is none."""
    found = list(values)
    known = [value for value in found if value is not None]
    return known if known and len(known) == len(found) else None


def total(values: Iterable[Number | None]) -> Number | None:
    """Return the sum; None if a part is unknown."""
    known = whole(values)
    return None if known is None else sum(known)


def mean(values: Iterable[float | None]) -> float | None:
    """Return the mean; None if a part is unknown."""
    known = whole(values)
    return None if known is None else sum(known) / len(known)


def highest(values: Iterable[Number | None]) -> Number | None:
    """Return the highest; None if a part is unknown, which may have been higher."""
    known = whole(values)
    return None if known is None else max(known)


def share(parts: Sequence[float | None], limits: Sequence[float | None]) -> float | None:
    """Return the sum of parts of the sum of limits in percent; None if any is unknown, or 0."""
    part, limit = total(parts), total(limits)
    if part is None or not limit or 0 in limits:
        return None
    return part / limit * 100
