"""A part of one samples file: of a node that a job kept when it changed its size. Pure.

A file goes on over such a change, but the job's attempt has a part before it and one after it.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from dataclasses import replace
from math import inf

from hpckit.stats.samples.columns import Columns, SampleFile
from hpckit.stats.samples.lines import Damage
from hpckit.stats.samples.packing import Column
from hpckit.stats.samples.records import End

# The sampler's own use of cores, counted from its start: the last part has that of all.
_OWN = "own_cpu_us"


def piece(columns: Columns, since_us: int | None, until_us: int | None) -> Columns:
    """Return what a file says of the time between two moments of its clock; None: no end.

    Each sample stands for the time since the one before: the last one before `since_us` comes
    first, and stands for none. What is said of the whole file is left to its last part.

    `columns` has every value of the counters (`every_energy`), where figures are made of it; the
    moments are `mono_us`.
    """
    begin, end = -inf if since_us is None else since_us, inf if until_us is None else until_us
    times = columns.times
    first = max(bisect_right(times, begin) - 1, 0)
    last = max(bisect_right(times, end), first)
    counted = columns.counter_times
    begun = bisect_left(counted, times[first]) if times else 0
    some = slice(begun, max(bisect_right(counted, end), begun))

    def cut(rows: Mapping[str, Column]) -> dict[str, Column]:
        return {name: _only(column, slice(first, last)) for name, column in rows.items()}

    counters = {name: _only(column, some) for name, column in columns.counters.items()}
    found = replace(
        columns,
        times=times[first:last],
        node=cut(columns.node),
        gpus=tuple(map(cut, columns.gpus)),
        drawn=tuple(map(cut, columns.drawn)),
        counter_times=counted[some],
        counters=counters,
        energies=tuple(column and _only(column, some) for column in columns.energies),
        slow=columns.slow.between(since_us, until_us),
        states=tuple(row for row in columns.states if begin < row.mono_us <= end),
        notes=tuple(row for row in columns.notes if begin < row.mono_us <= end),
        since_us=since_us,
        until_us=until_us,
    )
    if since_us is not None:
        header = columns.header
        moment = round(header.epoch_at(since_us))
        found = replace(found, header=replace(header, mono_us=since_us, epoch_us=moment))
    if until_us is None:
        return found
    counters.pop(_OWN, None)
    ended = End(mono_us=until_us, reason="resized")
    return replace(found, end=ended, damage=Damage(), cut=True)


def piece_of(columns: Columns, file: SampleFile | Columns) -> Columns:
    """Return the part of a whole file that another value is of; all, if that is of all."""
    if (file.since_us, file.until_us) == (None, None):
        return columns
    return piece(columns, file.since_us, file.until_us)


def _only(column: Column, some: slice) -> Column:
    return Column(values=column.values[some], missing=column.missing, scale=column.scale)
