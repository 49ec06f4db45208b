"""How samples become figures, as the metrics' rows say; unknown parts are left out, never 0."""

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, compress, pairwise
from typing import Any, NamedTuple

from hpckit.stats.metric import Metric, Over
from hpckit.stats.samples.columns import Columns
from hpckit.stats.samples.packing import Column
from hpckit.stats.summary.clock import Clock, below, each_known, minus, total, weighted
from hpckit.stats.summary.coverage import Interval, enough_of, length, union
from hpckit.stats.summary.figures import GpuUse, NodeUse

_PART = 4096
# Of a long column each so many values are looked at first.
_EACH = 64
Sum = tuple[int, float]  # microseconds in which it is known, integral over them


def highest(column: Column | None) -> int | None:
    """Return the highest known value."""
    if column is None:
        return None
    values, known = column.values, column.known
    if known is not None and 1 not in known:
        return None
    if values.typecode == "H" and len(values) > _PART:
        # What exceeds the highest of some is found as flags, five times faster than by `max`.
        some = values[::_EACH] if known is None else compress(values[::_EACH], known[::_EACH])
        least = max(some, default=0)
        others = below(values, least + 1)
        if 0 in others:
            higher = minus(each_known(column), others)
            least = max(compress(values, higher), default=least)
        return least * column.scale
    if known is not None:
        values = array(values.typecode, compress(values, known))
    if len(values) < _EACH:
        return max(values) * column.scale if values else None
    parts = (values[at : at + _PART] for at in range(0, len(values), _PART))
    return max(map(_highest, parts)) * column.scale


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


def scaled(value: int | None, scale: float) -> float | None:
    """Return a value in another unit."""
    return None if value is None else value * scale


class Series(NamedTuple):
    """One metric of a GPU or node in one file."""

    columns: Columns
    clock: Clock
    column: Column


def add_up(over: Over, series: Sequence[Series]) -> Sum | None:
    """Return what a metric adds up to in one attempt, and the time that this is of.

    The time is that in which a mean is known, or over which a counter was seen to grow. None if
    nothing is known.
    """
    if over is Over.MEAN:
        known = add(total(weighted(row.clock, row.column)) for row in series)
        return known if known and known[0] else None
    if over is Over.GROWTH:
        grown, seen_us = growth(series)
        return None if grown is None else (seen_us, grown)
    value = most(highest(row.column) for row in series)
    return None if value is None else (0, value)


def add_readings(over: Over, readings: Iterable[int | None]) -> Sum | None:
    """Return the same of readings once a minute; the time is their number."""
    known = [value for value in readings if value is not None]
    if not known:
        return None
    if over is Over.MEAN:
        return len(known), sum(known)
    return len(known), known[-1] - known[0] if over is Over.GROWTH else max(known)


def figure(
    metric: Metric, attempts: Iterable[Sum | None], *, read_us: float, due_us: float
) -> float | None:
    """Return a metric's figure from its sums in attempts; see `hpckit.stats.summary.coverage`.

    Its GPU or node was read for `read_us` of the `due_us` that the job had it.
    """
    parts = [part for part in attempts if part]
    if not parts:
        return None
    time, amount = total(parts)
    if metric.over_time is Over.HIGHEST:
        return metric.number(max(value for _, value in parts))
    if metric.over_time is Over.MEAN:
        enough = not metric.bits or enough_of(time, read_us)
        return metric.number(amount / time) if enough and time else None
    enough = metric.over_time is Over.SUM or not metric.bits or enough_of(time, due_us)
    return metric.number(amount) if enough else None


def growth(series: Sequence[Series]) -> tuple[int | None, int]:
    """Return what a counter grew by between its first and last known value, and over how long.

    A cgroup's counter is the job's: what ran between two steps is in it, too. Where processes are
    summed, each step has its own.
    """
    points = [part for found in _counters(series) for part in _joined(found)]
    grown = [found[-1][1] - found[0][1] for found in points if len(found) > 1]
    # One that fell is a sum over processes of which some have ended: not known.
    if not grown or min(grown) < 0:
        return None, 0
    seen = union([(found[0][0], found[-1][0])] for found in points)
    return sum(grown), length(seen)


def _joined(counters: Sequence[list[Interval]]) -> Sequence[list[Interval]]:
    """Return counters of one owner as one, where that never falls."""
    joined = sorted(point for found in counters for point in found)
    if all(before[1] <= after[1] for before, after in pairwise(joined)):
        return [joined]
    return counters


def _counters(series: Sequence[Series]) -> list[list[list[Interval]]]:
    """Return the ends of each owner's counters; of one that several read at once, all of theirs.

    A sample's time is that before it is read: where two samplers take turns in between, the later
    one has the lower value, and the counter has not fallen.
    """
    found: dict[str | None, list[list[Interval]]] = {}
    for row in series:
        whose, points = _whose(row.columns), list(_points(row))
        if not points:
            continue
        counters = found.setdefault(whose, [])
        if counters and whose and points[0][0] <= counters[-1][-1][0]:
            known = counters[-1]
            times, values = zip(*sorted([*known, *points]), strict=True)
            known[:] = zip(times, accumulate(values, max), strict=True)
        else:
            counters.append(points)
    return list(found.values())


def _whose(columns: Columns) -> str | None:
    """Return what a file's counters are of: the job's cgroup, some processes; None: not known."""
    header = columns.header
    if header.summed or header.cgroup == "v2":
        return header.summed or header.cgroup
    # Older files do not say what a cgroup of v1 lacked, only that it lacked something.
    whole = header.cgroup == "v1" and all(note.code != "cgroup" for note in columns.notes)
    return header.cgroup if whole else None


def _points(row: Series) -> Iterator[Interval]:
    """Yield the first and the last known value of a counter, with their times."""
    columns, column = row.columns, row.column
    values, missing = column.values, column.missing
    times = columns.times if len(values) == len(columns) else columns.counter_times
    first = next((at for at, value in enumerate(values) if value != missing), None)
    if first is None:
        return
    last = next(at for at in reversed(range(len(values))) if values[at] != missing)
    for at in dict.fromkeys((first, last)):
        yield times[at] - row.clock.origin_us, values[at] * column.scale


def over_all(
    metrics: Iterable[Metric],
    rows: Sequence[GpuUse | NodeUse],
    weights: Sequence[float | None],
    add: Callable[[Iterable[Any]], float | None],
) -> dict[str, Any]:
    """Return the figures of the whole job from those of its GPUs or nodes.

    A mean weighs each by the time it was seen; `add` says when a sum is known.
    """
    found: dict[str, Any] = {}
    for metric in metrics:
        if metric.in_summary and metric.figure:
            values = [getattr(row, metric.figure) for row in rows]
            if metric.over_all is Over.MEAN:
                found[metric.in_summary] = weighted_mean(values, weights)
            else:
                found[metric.in_summary] = (
                    most(values) if metric.over_all is Over.HIGHEST else add(values)
                )
    return found


def weighted_mean(values: Sequence[float | None], weights: Sequence[float | None]) -> float | None:
    """Return the mean of the values that are known, and have a weight."""
    pairs = zip(weights, values, strict=True)
    known = [(weight, value) for weight, value in pairs if weight and value is not None]
    whole = sum(weight for weight, _ in known)
    return sum(weight * value for weight, value in known) / whole if whole else None
