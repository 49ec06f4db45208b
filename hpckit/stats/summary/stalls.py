"""Repeated short pauses of a GPU: most often a data loader that cannot keep up."""

from array import array
from collections.abc import Sequence
from itertools import pairwise
from statistics import median

from hpckit.stats.samples.columns import Columns
from hpckit.stats.samples.packing import Column
from hpckit.stats.summary.clock import Clock
from hpckit.stats.summary.flags import below, minus, runs, weigh
from hpckit.stats.summary.values import Stalls

# A pause is time below half of what the GPU does when it works. Fewer, rarer or longer ones are
# validation, checkpoints or the end of the work, which other figures tell.
_LEAST_COUNT, _LEAST_SHARE, _LONGEST_S, _LEAST_BUSY = 5, 0.05, 300.0, 200
_ENOUGH = 4096


def find_stalls(columns: Columns, clock: Clock, utilization: Column) -> Stalls | None:
    """Return the pauses of one GPU between its first and its last use, if there are many."""
    values = utilization.values
    usual = _usual(values, utilization.missing)
    if usual is None or usual < _LEAST_BUSY:
        return None
    low = below(values, usual // 2)
    busy = minus(below(values, utilization.missing), low)
    first, last = busy.find(1), busy.rfind(1)
    between = bytes(first) + low[first:last] + bytes(len(low) - last)
    span = columns.times[last] - columns.times[first]
    share = weigh(between, clock.weights) / span if span else 0.0
    if share < _LEAST_SHARE:
        return None
    pauses = runs(between)
    lengths = [columns.times[end - 1] - columns.times[begin - 1] for begin, end in pauses]
    if len(pauses) < _LEAST_COUNT or median(lengths) > _LONGEST_S * 1e6:
        return None
    begins = [columns.times[begin] for begin, _ in pauses]
    working = runs(busy)
    return Stalls(
        count=len(pauses),
        period_s=median(after - before for before, after in pairwise(begins)) / 1e6,
        share_percent=share * 100,
        cpu_during_percent=_cores_busy(columns, pauses),
        cpu_otherwise_percent=_cores_busy(columns, working),
        read_during_bytes_per_s=_rate(columns, "io_read_bytes", pauses),
    )


def _usual(values: "array[int]", missing: int) -> int | None:
    """Return the third quartile of what a GPU that is in use does; of some values, if many."""
    some = sorted(
        value for value in values[:: len(values) // _ENOUGH + 1] if 10 <= value != missing
    )
    return some[len(some) * 3 // 4] if some else None


def _cores_busy(columns: Columns, parts: Sequence[tuple[int, int]]) -> float | None:
    rate = _rate(columns, "cpu_us", parts)
    cores = columns.header.cores
    return rate / 1e6 / cores * 100 if rate is not None and cores else None


def _rate(columns: Columns, name: str, parts: Sequence[tuple[int, int]]) -> float | None:
    """Return a counter's growth per second over runs of samples; None if it has gaps or fell."""
    column = columns.node.get(name)
    if column is None or column.has_gaps():
        return None
    values, times = column.values, columns.times
    ends = [(begin - 1, end - 1) for begin, end in parts if begin > 0]
    grown = sum(values[last] - values[before] for before, last in ends) * column.scale
    passed = sum(times[last] - times[before] for before, last in ends)
    return grown / passed * 1e6 if passed and grown >= 0 else None
