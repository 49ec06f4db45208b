"""One node in one attempt, added up over its files; and the sums of attempts, as its figures."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hpckit.frozen import frozen
from hpckit.stats.metric_table import NODE
from hpckit.stats.summary.clock import file_times, known_flags, read_time
from hpckit.stats.summary.coverage import Interval, enough_of, length, percent_of, union
from hpckit.stats.summary.figures import GpuUse, NodeUse
from hpckit.stats.summary.over_time import (
    Series,
    Sum,
    add_known,
    add_up,
    figure,
    growth,
    highest,
    most,
)
from hpckit.stats.summary.side_by_side import File, cores_of, memory_peak

METRICS = tuple(row for row in NODE if row.figure)


@frozen(kw_only=True)
class NodeTally:
    """One node over one attempt. Counters are differences between the last sample and the first.

    Attributes:
        due_us: the time the attempt held it; of it `covered_us` is sampled.
        seen_us: between samples.
        cpu_seen_us: over which CPU time was seen to grow.
        memory_us: in which memory was read.
        sums: what becomes a figure as its row in the table says, by metric.
    """

    host: str
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
    own_cpu_us: int | None
    sums: Mapping[str, Sum | None]


def tally_node(
    files: Sequence[File],
    due_us: float,
    memory_limit: int | None = None,
    *,
    suspended_us: float = 0.0,
) -> NodeTally:
    """Add up one node's files, oldest first.

    The attempt held it for `due_us`; time it was suspended, in which no CPU time grows and nothing
    is sampled, is more.
    """
    read = union(read_time(clock, columns.times) for columns, clock in files)
    newest = files[-1][0].header
    cores, whole = cores_of(files)
    cpu_us, cpu_seen_us = growth(list(_series(files, "cpu_us")))
    if suspended_us:
        known_us = length(union(_known_time(file, "cpu_us") for file in files))
        holes_us = max(cpu_seen_us - known_us, 0)
        cpu_seen_us = round(min(cpu_seen_us - min(holes_us, suspended_us), due_us))
    return NodeTally(
        host=newest.host,
        samples=sum(len(columns) for columns, _ in files),
        due_us=due_us,
        covered_us=min(length(read) + unsaid(files, read), due_us),
        seen_us=sum(file_times(*file)[2] for file in files),
        cores=cores,
        memory_limit=newest.memory_limit_bytes or memory_limit,
        cpu_us=cpu_us if whole else None,
        cpu_seen_us=cpu_seen_us,
        memory_peak=memory_peak(files),
        memory_us=length(union(_known_time(file, "memory_bytes") for file in files)),
        own_cpu_us=add_known(highest(columns.counters.get("own_cpu_us")) for columns, _ in files),
        sums={row.name: add_up(row.over_time, list(_series(files, row.name))) for row in METRICS},
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
    figures: dict[str, Any] = {
        row.figure or row.name: figure(
            row, (tally.sums[row.name] for tally in tallies), read_us=read_us, due_us=due_us
        )
        for row in METRICS
    }
    return NodeUse(
        host=last.host,
        cores=last.cores,
        cores_used=cpu_us / seen_us if cpu_us is not None and seen_us else None,
        cpu_s=cpu_us / 1e6 if cpu_us is not None and whole else None,
        cpu_efficiency_percent=cpu_us / core_us * 100 if cpu_us is not None and core_us else None,
        memory_peak_bytes=peak,
        memory_limit_bytes=last.memory_limit,
        memory_efficiency_percent=peak / last.memory_limit * 100
        if peak is not None and last.memory_limit
        else None,
        gpus=len(gpus),
        gpu_utilization_percent=sum(part * value for part, value in used) / hours
        if hours and enough_of(hours * 3.6e9, len(gpus) * due_us)
        else None,
        covered_percent=percent_of(sum(t.covered_us for t in tallies), due_us),
        # Its start is before the first sample, and longer than a job of a moment.
        sampler_cpu_percent=own_us / span_us * 100
        if own_us is not None and own_us <= span_us and span_us
        else None,
        **figures,
    )


def _series(files: Sequence[File], name: str) -> Iterator[Series]:
    for columns, clock in files:
        column = columns.node.get(name) or columns.counters.get(name)
        if column:
            yield Series(columns=columns, clock=clock, column=column)


def _known_time(file: File, name: str) -> list[Interval]:
    """Return the time in which one column of a file was read."""
    columns, clock = file
    column = columns.node.get(name)
    if column is None:
        return []
    return read_time(clock, columns.times, known_flags([column], len(columns)))
