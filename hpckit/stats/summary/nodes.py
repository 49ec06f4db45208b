"""One node in one attempt, added up over its files; and the sums of attempts, as its figures."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from hpckit.stats.samples.columns import Columns
from hpckit.stats.samples.packing import Column
from hpckit.stats.summary.clock import Clock, file_times, read_time
from hpckit.stats.summary.flags import known_flags
from hpckit.stats.summary.known import Interval, enough_of, length, percent_of, union
from hpckit.stats.summary.sums import add_known, highest, most
from hpckit.stats.summary.values import GpuUse, NodeUse

File = tuple[Columns, Clock]


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeTally:
    """One node over one attempt. Counters are differences between the last sample and the first.

    Attributes:
        due_us: the time the attempt held it; of it `covered_us` is sampled.
        seen_us: between samples.
        cpu_seen_us: over which CPU time was seen to grow.
        memory_us: in which memory was read.
    """

    host: str
    restart: int
    samples: int
    due_us: float
    covered_us: float
    seen_us: int
    cores: int | None
    memory_limit: int | None
    cpu_us: int | None
    cpu_seen_us: int
    memory_peak: int | None
    memory_us: int
    memory_peak_cache: int | None
    swap_peak: int | None
    oom_kills: int | None
    io_read: int | None
    io_write: int | None
    own_cpu_us: int | None
    own_rss: int | None


def tally_node(
    files: Sequence[File],
    restart: int,
    due_us: float,
    memory_limit: int | None = None,
    *,
    suspended: bool = False,
) -> NodeTally:
    """Add up one node's files, oldest first.

    The attempt held it for `due_us`; time it was `suspended`, in which no CPU time grows, is more.
    """
    read = union(read_time(clock, columns.times) for columns, clock in files)
    newest = files[-1][0].header
    cpu_us, cpu_seen_us = _grown(files, lambda columns: columns.node.get("cpu_us"))
    if suspended:
        cpu_seen_us = min(cpu_seen_us, round(due_us))
    counters = [columns.counters for columns, _ in files]
    return NodeTally(
        host=newest.host,
        restart=restart,
        samples=sum(len(columns) for columns, _ in files),
        due_us=due_us,
        covered_us=min(length(read) + unsaid(files, read), due_us),
        seen_us=sum(file_times(*file)[2] for file in files),
        cores=newest.cores,
        memory_limit=newest.memory_limit_bytes or memory_limit,
        cpu_us=cpu_us,
        cpu_seen_us=cpu_seen_us,
        memory_peak=most(highest(columns.node.get("memory_bytes")) for columns, _ in files),
        memory_us=length(union(_known_time(file, "memory_bytes") for file in files)),
        memory_peak_cache=most(highest(row.get("memory_peak_bytes")) for row in counters),
        swap_peak=most(highest(row.get("swap_bytes")) for row in counters),
        oom_kills=most(highest(row.get("oom_kills")) for row in counters),
        io_read=_grown(files, lambda columns: columns.node.get("io_read_bytes"))[0],
        io_write=_grown(files, lambda columns: columns.counters.get("io_write_bytes"))[0],
        own_cpu_us=add_known(highest(row.get("own_cpu_us")) for row in counters),
        own_rss=most(highest(row.get("own_rss_bytes")) for row in counters),
    )


def unsaid(files: Sequence[File], read: Sequence[Interval]) -> int:
    """Return the time before the first sample and after the last that is no hole.

    A sample is due each period; a sampler that ended by itself has nothing more to say, but one
    that outlived its job had, of the time before the end.
    """
    before = after = 0
    for columns, clock in files:
        begun, ended, _ = file_times(columns, clock)
        if read and read[0][0] == begun:
            before = min(columns.header.interval_us, 1_000_000)
        if read and read[-1][1] == ended and (columns.end is None or columns.cut):
            after = clock.weights[-1]
    return before + after


def node_use(tallies: Sequence[NodeTally], gpus: Sequence[GpuUse]) -> NodeUse:
    """Return a node's figures from its tallies (one attempt or several) and its GPUs'."""
    last = tallies[-1]
    read_us = sum(tally.covered_us for tally in tallies)
    cpu_us = add_known(tally.cpu_us for tally in tallies)
    core_us = sum(t.cpu_seen_us * (t.cores or 0) for t in tallies if t.cpu_us is not None)
    seen_us = sum(tally.cpu_seen_us for tally in tallies)
    if not enough_of(seen_us, read_us):
        cpu_us = None
    peak = most(tally.memory_peak for tally in tallies)
    if not enough_of(sum(tally.memory_us for tally in tallies), read_us):
        peak = None
    due_us = sum(tally.due_us for tally in tallies)
    whole = enough_of(seen_us, due_us)
    own_us, span_us = add_known(t.own_cpu_us for t in tallies), sum(t.seen_us for t in tallies)
    used = [
        (gpu.hours, gpu.utilization_percent)
        for gpu in gpus
        if gpu.hours and gpu.utilization_percent is not None
    ]
    hours = sum(hours for hours, _ in used)
    return NodeUse(
        host=last.host,
        cores=last.cores,
        cores_used=cpu_us / seen_us if cpu_us is not None and seen_us else None,
        cpu_s=cpu_us / 1e6 if cpu_us is not None and whole else None,
        cpu_efficiency_percent=cpu_us / core_us * 100 if cpu_us is not None and core_us else None,
        memory_peak_bytes=peak,
        memory_peak_cache_bytes=most(tally.memory_peak_cache for tally in tallies),
        memory_limit_bytes=last.memory_limit,
        memory_efficiency_percent=peak / last.memory_limit * 100
        if peak is not None and last.memory_limit
        else None,
        swap_peak_bytes=most(tally.swap_peak for tally in tallies),
        oom_kills=add_known(tally.oom_kills for tally in tallies),
        io_read_bytes=add_known(tally.io_read for tally in tallies) if whole else None,
        io_write_bytes=add_known(tally.io_write for tally in tallies) if whole else None,
        gpus=len(gpus),
        gpu_utilization_percent=sum(part * value for part, value in used) / hours
        if hours and enough_of(hours * 3.6e9, len(gpus) * due_us)
        else None,
        covered_percent=percent_of(sum(t.covered_us for t in tallies), due_us),
        sampler_cpu_percent=own_us / span_us * 100 if own_us is not None and span_us else None,
        sampler_rss_bytes=most(tally.own_rss for tally in tallies),
    )


def _known_time(file: File, name: str) -> list[Interval]:
    """Return the time in which one column of a file was read."""
    columns, clock = file
    column = columns.node.get(name)
    if column is None:
        return []
    return read_time(clock, columns.times, known_flags([column], len(columns)))


def _grown(
    files: Sequence[File], column: Callable[[Columns], Column | None]
) -> tuple[int | None, int]:
    """Return what a counter grew by between its first and last known value, and over how long.

    A cgroup's counter is the job's: what ran between two steps is in it, too. Where processes are
    summed, each step has its own.
    """
    points = [found for file in files if (found := list(_points(file, column(file[0]))))]
    joined = sorted(point for found in points for point in found)
    if all(before[1] <= after[1] for before, after in pairwise(joined)):
        points = [joined]
    grown = [found[-1][1] - found[0][1] for found in points if len(found) > 1]
    # One that fell is a sum over processes of which some have ended: not known.
    if not grown or min(grown) < 0:
        return None, 0
    seen = union([(found[0][0], found[-1][0])] for found in points)
    return sum(grown), length(seen)


def _points(file: File, column: Column | None) -> Iterator[Interval]:
    """Yield the first and the last known value of a counter, with their times."""
    if column is None:
        return
    columns, clock = file
    values, missing = column.values, column.missing
    times = columns.times if len(values) == len(columns) else columns.counter_times
    first = next((at for at, value in enumerate(values) if value != missing), None)
    if first is None:
        return
    last = next(at for at in reversed(range(len(values))) if values[at] != missing)
    for at in dict.fromkeys((first, last)):
        yield times[at] - clock.origin_us, values[at] * column.scale
