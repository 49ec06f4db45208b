"""What a job did over time, in bins: for a line of a terminal, or a picture."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from hpckit.stats.samples.columns import Columns
from hpckit.stats.summary.attempts import Added, by
from hpckit.stats.summary.clock import Clock


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """One quantity in consecutive bins; None where nothing is known."""

    host: str
    gpu: str | None = None
    index: int | None = None
    values: tuple[float | None, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Timeline:
    """One attempt in bins of equal width.

    Attributes:
        start: of the first bin, in epoch seconds.
        gpu_utilization: percent of each GPU.
        cores_used: cores of each node.
        memory_bytes: of each node, at the end of each bin; no page cache.
    """

    restart: int
    start: float
    width_s: int
    gpu_utilization: tuple[Line, ...]
    cores_used: tuple[Line, ...]
    memory_bytes: tuple[Line, ...]


def make_timeline(attempt: Added) -> Timeline:
    """Return an attempt's bins, from its start to its end."""
    count = max(-int(-attempt.span.elapsed_s // attempt.width_s), 1)
    gpus = []
    for tallies in by(attempt.gpus, lambda tally: (tally.host, tally.info.uuid)):
        bins = {
            number: amount / known / 10
            for tally in tallies
            for number, known, amount in tally.bins
            if known
        }
        info = tallies[0].info
        gpus.append(
            Line(host=tallies[0].host, gpu=info.uuid, index=info.index, values=_row(bins, count))
        )
    files = by(attempt.clocks, lambda pair: pair[0].header.host)
    return Timeline(
        restart=attempt.span.restart,
        start=attempt.span.start,
        width_s=attempt.width_s,
        gpu_utilization=tuple(sorted(gpus, key=lambda line: (line.host, line.index or 0))),
        cores_used=tuple(_line(group, _cores, count) for group in files),
        memory_bytes=tuple(_line(group, _memory, count) for group in files),
    )


def _line(
    files: Sequence[tuple[Columns, Clock]],
    read: Callable[[Columns, Clock], dict[int, float]],
    count: int,
) -> Line:
    bins: dict[int, float] = {}
    for columns, clock in files:
        bins |= read(columns, clock)
    return Line(host=files[0][0].header.host, values=_row(bins, count))


def _cores(columns: Columns, clock: Clock) -> dict[int, float]:
    column = columns.node.get("cpu_us")
    if column is None:
        return {}
    found = {}
    for part in clock.bins:
        before = max(part.first - 1, 0)
        values, times = column.values, columns.times
        known = column.missing not in (values[before], values[part.last - 1])
        passed = times[part.last - 1] - times[before]
        if known and passed > 0:
            grown = (values[part.last - 1] - values[before]) * column.scale
            found[part.number] = max(grown, 0) / passed
    return found


def _memory(columns: Columns, clock: Clock) -> dict[int, float]:
    column = columns.node.get("memory_bytes")
    if column is None:
        return {}
    return {
        part.number: float(value * column.scale)
        for part in clock.bins
        if (value := column.values[part.last - 1]) != column.missing
    }


def _row(bins: Mapping[int, float], count: int) -> tuple[float | None, ...]:
    return tuple(bins.get(number) for number in range(count))
