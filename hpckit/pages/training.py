"""What a run's script logged, over time: loss, throughput and the like, as pictures."""

import math
from bisect import bisect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, TypeGuard

from hpckit.errors import DamagedRunError
from hpckit.run_folders.logged_times import TIME, OddTimes, lifetime, without_odd_times
from hpckit.run_folders.metrics import METRICS, RESUMED, Row, all_rows, rows_again, split_attempts
from hpckit.run_folders.ranks import AttemptTimes
from hpckit.run_folders.runs import Run
from hpckit.slurm.resized import by_attempt
from hpckit.stats.summary.curves import MOST_BINS, Chart, Curve
from hpckit.stats.summary.figures import Attempt
from hpckit.text import counted

# What the workloads log, in the order of the pictures, with its unit.
_SERIES = {
    "loss": ("training loss", ""),
    "test_loss": ("test loss", ""),
    "test_accuracy": ("test accuracy", ""),
    "samples_per_s": ("throughput", "samples/s"),
}
_DIGITS = 6
# A browser and matplotlib add a margin to the largest value, which must still be a float.
_MOST = 1e100


@dataclass(frozen=True, kw_only=True, slots=True)
class Training:
    """What was logged, over moments in epoch seconds.

    Attributes:
        breaks: the places in `times` at which one attempt's lines end and the next one's begin.
        repeated: how many rows say what a later attempt has said again.
        odd_times: rows that have no place in `times`; None: all have one.
        beyond: how many values of each series are too large to be drawn, or not finite.
    """

    times: tuple[float, ...] = ()
    charts: tuple[Chart, ...] = ()
    breaks: tuple[int, ...] = ()
    repeated: int = 0
    odd_times: OddTimes | None = None
    beyond: Mapping[str, int] = field(default_factory=dict)

    def left_out(self) -> Iterator[str]:
        """Yield what was logged and is not drawn, in sentences."""
        if self.odd_times:
            yield self.odd_times.text("drawn")
        for title, count in self.beyond.items():
            verb = "is" if count == 1 else "are"
            yield (
                f"{counted(count, 'value')} of {title} {verb} not finite, or beyond {_MOST:g}, "
                f"and {verb} not drawn."
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Point:
    """Rows that are one point; none where one attempt's lines end."""

    time: float
    rows: Sequence[Row] = ()
    again: bool = False


def training(
    run: Run | None,
    attempts: Sequence[Attempt] = (),
    ranks: Iterable[AttemptTimes] = (),
) -> Training:
    """Return the moments of a run's rows, and a picture of each series.

    `ranks` are the run's attempts by its ranks, as `hpckit.run_folders.logged_times.lifetime` takes
    them: rows whose `time` is not within them are left out.

    Rows are of the attempt they name; those that name none, of the one of `attempts` at their time.

    Of more rows than a picture has points for, each point is the mean of several, beside their
    lowest and highest.
    """
    if run is None:
        return Training()
    ranks = tuple(ranks)
    try:
        rows, odd = without_odd_times(
            all_rows(run.dir / METRICS), lifetime(run.submitted_at, ranks)
        )
    except DamagedRunError:
        return Training()
    begun = [parts[0].start for parts in by_attempt(attempts)]
    starts = [start for start in begun if start is not None]
    points = list(_points(rows, starts, once=len({restart for restart, *_ in ranks}) == 1))
    charts = (
        Chart(name=name, title=title, unit=unit, top=None, curves=tuple(_curves(points, name)))
        for name, (title, unit) in _SERIES.items()
    )
    return Training(
        times=tuple(round(point.time, 1) for point in points),
        charts=tuple(chart for chart in charts if chart.curves),
        breaks=tuple(at for at, point in enumerate(points) if not point.rows),
        repeated=sum(len(point.rows) for point in points if point.again),
        odd_times=odd,
        beyond={
            title: count
            for name, (title, _) in _SERIES.items()
            if (count := sum(_is_beyond(row.get(name)) for point in points for row in point.rows))
        },
    )


def _points(rows: Sequence[Row], starts: Sequence[float], *, once: bool) -> Iterator[_Point]:
    """Yield the points of all attempts, in the order of time; `once`: there was one attempt."""
    parts = [rows] if once else split_attempts(rows)
    numbers = {id(row): at for at, part in enumerate(parts) for row in part}
    timed = [
        (_time(row), (numbers[id(row)], bisect(starts, _time(row))), again, row)
        for row, again in rows_again(rows, once=once)
        if row.get(TIME) is not None and not row.get(RESUMED)
    ]
    timed.sort(key=lambda entry: entry[0])
    each = max(-(-len(timed) // MOST_BINS), 1)
    before: tuple[float, tuple[int, int]] | None = None
    for (attempt, again), group in groupby(timed, key=lambda entry: entry[1:3]):
        mine = [row for *_, row in group]
        if before and before[1] != attempt:
            yield _Point(time=(before[0] + _time(mine[0])) / 2)
        for at in range(0, len(mine), each):
            part = mine[at : at + each]
            yield _Point(time=_mean([_time(row) for row in part]), rows=part, again=again)
        before = _time(mine[-1]), attempt


def _time(row: Mapping[str, Any]) -> float:
    return float(row[TIME])


def _number(row: Mapping[str, Any], name: str) -> float | None:
    """Return a number; None for what is none, or cannot be drawn: a loss may have become NaN."""
    value = row.get(name)
    return float(value) if _is_number(value) and not _is_beyond(value) else None


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_beyond(value: object) -> bool:
    # Compared as it is: a whole number in JSON may be too long for a float.
    return _is_number(value) and not -_MOST <= value <= _MOST


def _curves(points: Sequence[_Point], name: str) -> Iterator[Curve]:
    """Yield the line of what counts, then that of steps which were repeated; of none, nothing."""
    if all(_number(row, name) is None for point in points for row in point.rows):
        return
    yield _curve([point if not point.again else _NONE for point in points], name)
    again = [point if point.again else _NONE for point in points]
    for at, point in enumerate(again[1:]):
        if point.again and not points[at].again:  # it goes on from what counts
            again[at] = points[at]
    if any(point.again for point in again):
        yield replace(_curve(again, name), replaced=True)


_NONE = _Point(time=0.0)


def _curve(points: Sequence[_Point], name: str) -> Curve:
    low: list[float | None] = []
    mean: list[float | None] = []
    high: list[float | None] = []
    for point in points:
        known = [value for row in point.rows if (value := _number(row, name)) is not None]
        low.append(_short(min(known)) if known else None)
        mean.append(_short(_mean(known)) if known else None)
        high.append(_short(max(known)) if known else None)
    return Curve(host="", gpu=None, index=None, low=tuple(low), mean=tuple(mean), high=tuple(high))


def _mean(values: Sequence[float]) -> float:
    return min(max(math.fsum(values) / len(values), min(values)), max(values))


def _short(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")
