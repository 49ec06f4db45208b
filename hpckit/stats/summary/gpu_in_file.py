"""One GPU in one samples file: when it was read, and what use it was put to."""

from collections.abc import Iterator
from dataclasses import field
from itertools import pairwise

from hpckit.frozen import frozen
from hpckit.stats.samples.columns import Columns
from hpckit.stats.samples.packing import Column
from hpckit.stats.samples.records import GpuInfo
from hpckit.stats.summary.clock import (
    Clock,
    below,
    each_known,
    in_both,
    known_flags,
    longest_run,
    minus,
    read_time,
    total,
    weigh,
    weighted,
)
from hpckit.stats.summary.coverage import Interval, union
from hpckit.stats.summary.figures import Stalls
from hpckit.stats.summary.over_time import Sum
from hpckit.stats.summary.troubles import find_stalls

# Less than this is no work: a watchdog's or a notebook's odd kernel.
_IDLE_PERMILLE = 10
_HELD_SHARE = 0.05


@frozen(kw_only=True)
class GpuInFile:
    """One GPU in one file: its place in the file's table.

    `times` keeps what `read` found: GPUs of a node are mostly read, and missed, together.
    """

    columns: Columns
    clock: Clock
    position: int
    times: dict[bytes | None, list[Interval]] = field(default_factory=dict)

    @property
    def info(self) -> GpuInfo:
        """The GPU."""
        return self.columns.header.gpus[self.position]

    def column(self, name: str) -> Column | None:
        """Return a column of `GpuSample`; None if nothing of it is known."""
        return self.columns.gpus[self.position].get(name)

    def energies(self) -> list[Interval]:
        """Return what is known of the counter: (time from the attempt's start, mJ)."""
        column = self.columns.energies[self.position]
        if column is None:
            return []
        return [
            (time - self.clock.origin_us, value)
            for time, value in zip(self.columns.counter_times, column.values, strict=True)
            if value != column.missing
        ]

    def read(self, name: str | None = None) -> list[Interval]:
        """Return the time in which anything of the GPU, or one column, was read, as `union`."""
        known = self.columns.gpus[self.position]
        columns = [column for key, column in known.items() if name in (None, key)]
        if not columns and name is None:
            times = [time for time, _ in self.energies()]
            return union([[(times[0], times[-1])]]) if times else []
        flags = known_flags(columns, len(self.columns))
        if flags not in self.times:
            self.times[flags] = union([read_time(self.clock, self.columns.times, flags)])
        return self.times[flags]


@frozen(kw_only=True)
class GpuUseInFile:
    """Utilization of a GPU in one file; `busy`: from the first to the last use, from the start."""

    bins: tuple[tuple[int, int, float], ...] = ()
    used: Sum | None = None
    idle_us: int | None = None
    held_idle_us: int | None = None
    busy: Interval | None = None
    longest_idle_us: int | None = None
    stalls: Stalls | None = None


def use_in_file(part: GpuInFile) -> GpuUseInFile:
    """Return what use the GPU was put to in the moments that count in this file."""
    utilization, clock = part.column("utilization_permille"), part.clock
    if utilization is None:
        return GpuUseInFile()
    sums = weighted(clock, utilization)
    idle = below(utilization.values, _IDLE_PERMILLE)
    busy, longest = _busy(part, utilization, idle)
    used = total(sums)
    return GpuUseInFile(
        bins=tuple((row.number, *known) for row, known in zip(clock.bins, sums, strict=True)),
        used=used if used[0] else None,
        idle_us=weigh(idle, clock),
        held_idle_us=_held_idle(part, idle),
        busy=busy,
        longest_idle_us=longest,
        stalls=find_stalls(part.columns, clock, utilization),
    )


def _busy(part: GpuInFile, utilization: Column, idle: bytes) -> tuple[Interval | None, int | None]:
    """Return the time from the first to the last use, and the longest pause in it."""
    busy = minus(each_known(utilization), idle)
    times, origin = part.columns.times, part.clock.origin_us
    first, last = busy.find(1), busy.rfind(1)
    if first < 0:
        return None, None
    since = min(times[first] - times[max(first - 1, 0)], part.clock.reach_us)
    return (
        (max(times[first] - since - origin, 0), max(times[last] - origin, 0)),
        max(_pauses(part, idle, first, last), default=0),
    )


def _pauses(part: GpuInFile, idle: bytes, first: int, last: int) -> Iterator[int]:
    """Yield the longest pause of each stretch without a hole: in one, nobody knows of pauses."""
    times, clock = part.columns.times, part.clock
    edges = [first, *(hole for hole in clock.holes if first < hole < last), last]
    for begin, end in pairwise(edges):
        pause = longest_run(idle[begin:end])
        if pause[1]:
            at = begin + pause[0]
            before = min(times[at] - times[at - 1], clock.reach_us)
            yield times[begin + pause[1] - 1] - times[at] + before


def _held_idle(part: GpuInFile, idle: bytes) -> int | None:
    """Return how long the GPU was idle with some of its memory in use."""
    memory, clock = part.column("memory_bytes"), part.clock
    if memory is None or not part.info.memory_total_bytes:
        return None
    if 1 not in idle:
        return 0
    least = part.info.memory_total_bytes * _HELD_SHARE / memory.scale
    if memory.known is not None:
        idle = in_both(idle, memory.known)
    if min(memory.values) >= least:  # an unknown one is the highest number there is
        return weigh(idle, clock)
    held = bytes(map(least.__le__, memory.values))
    return weigh(in_both(idle, held), clock)
