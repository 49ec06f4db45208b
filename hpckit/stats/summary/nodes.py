"""One node in one file, added up; and the sums of several files, as the node's figures."""

from collections.abc import Sequence
from dataclasses import dataclass

from hpckit.stats.samples.columns import Columns
from hpckit.stats.samples.packing import Column
from hpckit.stats.summary.clock import Clock
from hpckit.stats.summary.sums import add_known, highest, most
from hpckit.stats.summary.values import GpuUse, NodeUse


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeTally:
    """One node over one file. Counters are differences between the last sample and the first.

    Attributes:
        due_us: the time the job had the node in this attempt; of it `covered_us` is sampled.
        seen_us: from the first to the last sample.
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
    memory_peak_cache: int | None
    swap_peak: int | None
    oom_kills: int | None
    io_read: int | None
    io_write: int | None
    own_cpu_us: int | None
    own_rss: int | None


def tally_node(
    columns: Columns, clock: Clock, start: float, end: float, memory_limit: int | None = None
) -> NodeTally:
    """Add up one node; the attempt held it from `start` to `end`, in epoch seconds."""
    cpu_us, cpu_seen_us = _grown(columns.node.get("cpu_us"), columns.times)
    counters = columns.counters
    due_us = max(end - start, 0.0) * 1e6
    return NodeTally(
        host=columns.header.host,
        restart=columns.restart,
        samples=len(columns),
        due_us=due_us,
        covered_us=min(_covered(columns, clock), due_us),
        seen_us=columns.times[-1] - columns.times[0] if len(columns) else 0,
        cores=columns.header.cores,
        memory_limit=columns.header.memory_limit_bytes or memory_limit,
        cpu_us=cpu_us,
        cpu_seen_us=cpu_seen_us,
        memory_peak=highest(columns.node.get("memory_bytes")),
        memory_peak_cache=highest(counters.get("memory_peak_bytes")),
        swap_peak=highest(counters.get("swap_bytes")),
        oom_kills=highest(counters.get("oom_kills")),
        io_read=_grown(columns.node.get("io_read_bytes"), columns.times)[0],
        io_write=_grown(counters.get("io_write_bytes"), columns.counter_times)[0],
        own_cpu_us=highest(counters.get("own_cpu_us")),
        own_rss=highest(counters.get("own_rss_bytes")),
    )


def node_use(tallies: Sequence[NodeTally], gpus: Sequence[GpuUse]) -> NodeUse:
    """Return a node's figures from its tallies (one attempt or several) and its GPUs'."""
    last = tallies[-1]
    cpu_us = add_known(tally.cpu_us for tally in tallies)
    core_us = sum(tally.cpu_seen_us * (tally.cores or 0) for tally in tallies if tally.cpu_us)
    seen_us = sum(tally.cpu_seen_us for tally in tallies)
    peak = most(tally.memory_peak for tally in tallies)
    # Several steps have a file each; the job had the node once per attempt.
    due_us = sum({tally.restart: tally.due_us for tally in tallies}.values())
    own_us, span_us = add_known(t.own_cpu_us for t in tallies), sum(t.seen_us for t in tallies)
    used = [gpu.utilization_percent for gpu in gpus if gpu.utilization_percent is not None]
    return NodeUse(
        host=last.host,
        cores=last.cores,
        cores_used=cpu_us / seen_us if cpu_us is not None and seen_us else None,
        cpu_s=None if cpu_us is None else cpu_us / 1e6,
        cpu_efficiency_percent=cpu_us / core_us * 100 if cpu_us is not None and core_us else None,
        memory_peak_bytes=peak,
        memory_peak_cache_bytes=most(tally.memory_peak_cache for tally in tallies),
        memory_limit_bytes=last.memory_limit,
        memory_efficiency_percent=peak / last.memory_limit * 100
        if peak is not None and last.memory_limit
        else None,
        swap_peak_bytes=most(tally.swap_peak for tally in tallies),
        oom_kills=add_known(tally.oom_kills for tally in tallies),
        io_read_bytes=add_known(tally.io_read for tally in tallies),
        io_write_bytes=add_known(tally.io_write for tally in tallies),
        gpus=len(gpus),
        gpu_utilization_percent=sum(used) / len(used) if used else None,
        covered_percent=min(100.0, sum(t.covered_us for t in tallies) / due_us * 100)
        if due_us
        else None,
        sampler_cpu_percent=own_us / span_us * 100 if own_us is not None and span_us else None,
        sampler_rss_bytes=most(tally.own_rss for tally in tallies),
    )


def _grown(column: Column | None, times: Sequence[int]) -> tuple[int | None, int]:
    """Return what a counter grew by between its first and last known value, and over how long."""
    if column is None:
        return None, 0
    values, missing = column.values, column.missing
    first = next((at for at, value in enumerate(values) if value != missing), None)
    if first is None:
        return None, 0
    last = next(at for at in reversed(range(len(values))) if values[at] != missing)
    grown = (values[last] - values[first]) * column.scale
    # One that fell is a sum over processes of which some have ended: not known.
    return (grown, times[last] - times[first]) if last > first and grown >= 0 else (None, 0)


def _covered(columns: Columns, clock: Clock) -> float:
    """Return the time that samples speak for, in microseconds.

    A sample is due each period: what lies before the first and after the last is not a hole while
    it is shorter than that.
    """
    if not columns.times:
        return 0.0
    first = min(columns.header.interval_us, 1_000_000)
    last = clock.weights[-1] if columns.end is None else 0
    return clock.covered_us + first + last
