"""When a figure is known: the one rule for all of them, and the time that it rests on. Pure.

- A mean, a share or a peak is of the time in which its GPU or node was read, and says nothing of
  the rest. `covered_percent` beside it says how much of the time held that was. One metric that
  was read for less than ENOUGH of that time, as when it stopped, is unknown.
- A total (energy, hours idle, CPU time) and a moment (first use, idle tail) are of the whole time
  that they are about: unknown unless ENOUGH of it was read.
- Comparisons between GPUs and `--fail-under` need ENOUGH, too; red advice needs 80 %.
- A figure of several parts is known only if each part is: half-known is unknown. The mean of the
  nodes that answered passes for the job's, and a gate like `--fail-under` would trust it. What is
  known of each part is shown in its own row.
- A job's means and peaks from samples are of those GPUs and nodes of which they are known, so
  `--fail-under` asks of each GPU that was read whether its utilization is.

ENOUGH is 80 %, or all but a minute, which a job's start may take before a sampler runs. Of several
GPUs it is 80 % of their time together, or all but a minute of each: where one of four was never
read for three minutes, less than a minute is missing of the mean, and all of that GPU.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import chain
from operator import itemgetter, lt
from typing import TypeVar

ENOUGH_PERCENT = 80.0
_START_US = 60_000_000
Interval = tuple[int, int]  # microseconds from the attempt's start; the end is exclusive
_BEGIN, _END = itemgetter(0), itemgetter(1)


def enough(percent: float | None, hours: float | None = None) -> bool:
    """Tell whether so much of a time is enough, `hours` being how much that is; unknown is not."""
    if not percent or hours is None:
        return percent is not None and percent >= ENOUGH_PERCENT
    return enough_of(hours * 3.6e9, hours * 3.6e9 / percent * 100)


def enough_of_each(percent: float | None, lowest: float | None, elapsed_s: float | None) -> bool:
    """Tell whether so much of several GPUs' (nodes') time is enough; unknown is not.

    Args:
        percent: of all of them together.
        lowest: of the one of which it is least; 0: one was never read.
        elapsed_s: the time of the attempt or job, for each of them at most.
    """
    hours = (elapsed_s or 0.0) / 3600 * (lowest or 0.0) / 100
    return enough(percent) or (percent is not None and enough(lowest, hours))


def enough_of(part: float, whole: float) -> bool:
    """Tell whether a time is enough of another, in microseconds."""
    return part * 100 >= whole * ENOUGH_PERCENT or whole - part <= _START_US


def percent_of(part: float, whole: float) -> float | None:
    """Return the share, at most 100; None of nothing."""
    return min(part / whole * 100, 100.0) if whole > 0 else None


def union(groups: Iterable[Iterable[Interval]]) -> list[Interval]:
    """Return intervals in order that do not touch, each moment in one of them."""
    parts = sorted(chain.from_iterable(groups))
    begins, ends = list(map(_BEGIN, parts)), list(map(_END, parts))
    # A GPU that every third sample missed has 200,000 in a week, which are so already.
    if all(map(lt, begins, ends)) and all(map(lt, ends, begins[1:])):
        return parts
    merged: list[Interval] = []
    for begin, end in parts:
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        elif end > begin:
            merged.append((begin, end))
    return merged


def length(parts: Sequence[Interval]) -> int:
    """Return the sum of the lengths."""
    total: int = sum(map(_END, parts)) - sum(map(_BEGIN, parts))
    return total


def within(parts: Sequence[Interval], begin: float, end: float) -> int:
    """Return how much of the time from `begin` to `end` lies in what `union` returned."""
    near = parts[bisect_right(parts, begin, key=_END) : bisect_left(parts, end, key=_BEGIN)]
    if not near or end <= begin:
        return 0
    over: float = max(begin - near[0][0], 0.0) + max(near[-1][1] - end, 0.0)
    return round(float(length(near)) - over)


Number = TypeVar("Number", int, float)


def all_known(values: Iterable[Number | None]) -> list[Number] | None:
    """Return all values; None if one is unknown, or there is none."""
    found = list(values)
    known = [value for value in found if value is not None]
    return known if known and len(known) == len(found) else None


def total(values: Iterable[Number | None]) -> Number | None:
    """Return the sum; None if a part is unknown."""
    known = all_known(values)
    return None if known is None else sum(known)


def mean(values: Iterable[float | None]) -> float | None:
    """Return the mean; None if a part is unknown."""
    known = all_known(values)
    return None if known is None else sum(known) / len(known)


def highest(values: Iterable[Number | None]) -> Number | None:
    """Return the highest; None if a part is unknown, which may have been higher."""
    known = all_known(values)
    return None if known is None else max(known)


def share(parts: Sequence[float | None], limits: Sequence[float | None]) -> float | None:
    """Return the sum of parts of the sum of limits in percent; None if any is unknown, or 0."""
    part, limit = total(parts), total(limits)
    if part is None or not limit or 0 in limits:
        return None
    return part / limit * 100
