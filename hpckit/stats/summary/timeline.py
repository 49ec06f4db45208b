"""What a job did over time, in bins: for a line of a terminal, or a picture."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from hpckit.frozen import frozen
from hpckit.stats.samples.columns import Columns
from hpckit.stats.samples.packing import Column
from hpckit.stats.summary.attempts import AttemptSums, grouped
from hpckit.stats.summary.clock import Clock
from hpckit.stats.summary.gpu_tally import GpuTally
from hpckit.stats.summary.troubles import is_held_down
from hpckit.text import by_number

Value = TypeVar("Value")
_MINUTE_S = 60


@frozen(kw_only=True)
class Line:
    """One quantity in consecutive bins; None where nothing is known."""

    host: str
    gpu: str | None = None
    index: int | None = None
    values: tuple[float | None, ...] = ()


@frozen(kw_only=True)
class Timeline:
    """One attempt in bins of equal width.

    Attributes:
        start: of the first bin, in epoch seconds.
        gpu_utilization: percent of each GPU.
        gpu_memory_bytes: of each GPU, at the end of each bin.
        gpu_throttled: percent of the readings of each GPU, once a minute, that found clocks held
            down.
        cores_used: cores of each node.
        memory_bytes: of each node, at the end of each bin; no page cache.
    """

    restart: int
    start: float
    width_s: int
    gpu_utilization: tuple[Line, ...]
    gpu_memory_bytes: tuple[Line, ...]
    gpu_throttled: tuple[Line, ...]
    cores_used: tuple[Line, ...]
    memory_bytes: tuple[Line, ...]


def make_timeline(attempt: AttemptSums) -> Timeline:
    """Return an attempt's bins, from its start to its end."""
    count = max(-int(-attempt.span.wall_s // attempt.width_s), 1)
    reach = max((clock.reach_us for _, clock in attempt.clocks), default=0)
    reach = reach // (attempt.width_s * 1_000_000)
    begun = first_bins(attempt.clocks)
    gpus = []
    for tally in attempt.gpus:
        info, row = tally.info, row_of(_utilization(tally), count, reach, begun[tally.host])
        gpus.append(Line(host=tally.host, gpu=info.uuid, index=info.index, values=row))
    files = grouped(attempt.clocks, lambda pair: pair[0].header.host)
    return Timeline(
        restart=attempt.span.restart,
        start=attempt.span.start,
        width_s=attempt.width_s,
        gpu_utilization=_in_order(gpus),
        gpu_memory_bytes=_in_order(_gpu_memory(attempt, count, reach, begun)),
        gpu_throttled=_in_order(_gpu_throttled(attempt, count, begun)),
        cores_used=_in_order(_line(group, _cores, count, reach) for group in files),
        memory_bytes=_in_order(_line(group, _memory, count, reach) for group in files),
    )


def _utilization(tally: GpuTally) -> dict[int, float]:
    """Return the mean in percent of each bin; several files may have parts of one."""
    known: dict[int, int] = {}
    amounts: dict[int, float] = {}
    for number, time, amount in tally.bins:
        known[number] = known.get(number, 0) + time
        amounts[number] = amounts.get(number, 0.0) + amount
    return {number: amounts[number] / time / 10 for number, time in known.items() if time}


def _in_order(lines: Iterable[Line]) -> tuple[Line, ...]:
    """Return lines by host, and those of one by GPU."""
    return tuple(
        sorted(lines, key=lambda line: (by_number(line.host), line.index or 0, line.gpu or ""))
    )


def _line(
    files: Sequence[tuple[Columns, Clock]],
    read: Callable[[Columns, Clock], dict[int, float]],
    count: int,
    reach: int,
) -> Line:
    # Of each step whose processes are summed, its own; a cgroup's are the job's, read by any.
    owners: dict[str | None, dict[int, float]] = {}
    for columns, clock in files:
        owners.setdefault(columns.header.summed, {}).update(read(columns, clock))
    bins: dict[int, float] = {}
    for own in owners.values():
        for number, value in own.items():
            bins[number] = bins.get(number, 0.0) + value
    host = files[0][0].header.host
    return Line(host=host, values=row_of(bins, count, reach, first_bins(files)[host]))


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


def _gpu_memory(
    attempt: AttemptSums, count: int, reach: int, begun: Mapping[str, int]
) -> Iterator[Line]:
    found: dict[tuple[str, int, str], dict[int, float]] = {}
    for columns, clock in attempt.clocks:
        for info, row in columns.units():
            key = (columns.header.host, info.index or 0, info.uuid)
            found.setdefault(key, {}).update(_last(row.get("memory_bytes"), clock))
    for (host, index, uuid), bins in found.items():
        values = row_of(bins, count, reach, begun[host])
        yield Line(host=host, gpu=uuid, index=index, values=values)


def _gpu_throttled(attempt: AttemptSums, count: int, begun: Mapping[str, int]) -> Iterator[Line]:
    """Yield what the minutes' readings found; each speaks for the time since the one before."""
    readings: dict[tuple[str, int, str], tuple[Counter[int], Counter[int]]] = {}
    for columns, clock in attempt.clocks:
        numbers = [
            (time - clock.origin_us) // (attempt.width_s * 1_000_000) for time in columns.slow.times
        ]
        known = Counter(numbers)
        for position, info in enumerate(columns.header.gpus):
            said = columns.slow.of(position).get("throttle_reasons", ())
            kinds = set(said)  # a few words, most often one
            down = {bits for bits in kinds if bits is not None and is_held_down(bits)}
            told = list(zip(numbers, said, strict=True)) if down or None in kinds else ()
            key = (columns.header.host, info.index or 0, info.uuid)
            every, held = readings.setdefault(key, (Counter(), Counter()))
            every.update(
                known if None not in kinds else (at for at, bits in told if bits is not None)
            )
            held.update(number for number, bits in told if bits in down)
    reach = -(-_MINUTE_S // attempt.width_s)
    for (host, index, uuid), (every, held) in readings.items():
        shares = {number: 100 * held[number] / many for number, many in every.items()}
        if shares:
            values = row_of(shares, count, reach, begun[host])
            yield Line(host=host, gpu=uuid, index=index, values=values)


def _memory(columns: Columns, clock: Clock) -> dict[int, float]:
    return _last(columns.node.get("memory_bytes"), clock)


def _last(column: Column | None, clock: Clock) -> dict[int, float]:
    """Return the last value of each bin."""
    if column is None:
        return {}
    return {
        part.number: float(value * column.scale)
        for part in clock.bins
        if (value := column.values[part.last - 1]) != column.missing
    }


def first_bins(clocks: Iterable[tuple[Columns, Clock]]) -> dict[str, int]:
    """Return the bin of each node's first sample: before it nothing was read."""
    found: dict[str, int] = {}
    for columns, clock in clocks:
        for part in clock.bins[:1]:
            host = columns.header.host
            found[host] = min(part.number, found.get(host, part.number))
    return found


def row_of(
    bins: Mapping[int, Value], count: int, reach: int, begun: int
) -> tuple[Value | None, ...]:
    """Return all bins; one without a sample has the value of the sample that reaches back to it.

    None reaches back to before `begun`, the bin of the first.
    """
    if [*bins] == [*range(len(bins))]:  # each has its own, as of nearly every job
        return (*bins.values(), *[None] * count)[:count]
    row: list[Value | None] = [None] * count
    before = -1
    for number in sorted(number for number in bins if number >= 0):
        first = max(before + 1, number - reach, begun, 0)
        if first == number < count:
            row[number] = bins[number]
        else:
            row[first : number + 1] = [bins[number]] * (min(number, count - 1) + 1 - first)
        before = number
    return tuple(row[:count])
