"""One GPU in one attempt, added up over its files: steps that follow or overlap one another."""

import math
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, pairwise
from operator import itemgetter
from typing import Any

from hpckit.frozen import frozen
from hpckit.stats.metric_table import GPU
from hpckit.stats.samples.records import SHARED, SPOT, UNVERIFIED, VERIFIED, GpuInfo, GpuSlow
from hpckit.stats.summary.clock import without
from hpckit.stats.summary.coverage import Interval, enough_of, length, union, within
from hpckit.stats.summary.figures import Stalls
from hpckit.stats.summary.gpu_in_file import GpuInFile, GpuUseInFile, use_in_file
from hpckit.stats.summary.nodes import unsaid
from hpckit.stats.summary.over_time import (
    Series,
    Sum,
    add,
    add_known,
    add_readings,
    add_up,
    highest,
    most,
)
from hpckit.stats.summary.troubles import Loss, Throttling, find_loss, find_throttling

# Its mean stands in for that of the energy counter.
POWER = next(row for row in GPU if row.name == "power_mw")
METRICS = tuple(row for row in GPU if row.figure)


@frozen(kw_only=True)
class GpuTally:
    """One GPU over one attempt. Microseconds; `used` and `sums` are integrals over them.

    Attributes:
        due_us: the time the attempt held it; of it `read_us` was read.
        end_us: when the attempt ended, from its start.
        sums: by metric, of those that become a figure as their row in the table says.
        bins: utilization per bin, as in `Clock.bins`: (number, microseconds, permille x them).
        memory_us: the time in which its memory was read.
        energy_us: the time over which the counter was seen to grow.
        spot_readings: how many readings utilization is the mean of, where its source is SPOT.
        first_use_us, idle_tail_us: see `GpuUse`.
    """

    info: GpuInfo
    host: str
    restart: int
    due_us: float
    end_us: float
    read_us: float
    bins: tuple[tuple[int, int, float], ...]
    used: Sum | None
    sums: Mapping[str, Sum | None]
    idle_us: int | None
    peak_permille: int | None
    memory_peak: int | None
    memory_us: int
    energy_mj: int | None
    energy_us: int
    held_idle_us: int | None
    first_use_us: int | None
    idle_tail_us: int | None
    longest_idle_us: int | None
    stalls: Stalls | None
    throttling: Throttling
    confidence: str
    source: str | None
    spot_readings: float
    ecc_uncorrected: int | None
    loss: Loss | None


def tally_gpu(
    parts: Sequence[GpuInFile],
    restart: int,
    due_us: float,
    end_us: float,
    *,
    suspended: bool = False,
) -> GpuTally:
    """Add up one GPU of an attempt that held it for `due_us` and ended `end_us` after its start.

    The oldest file comes first. `suspended`: for a while in between it did not hold it.
    """
    times = [part.read() for part in parts]
    read = _together(times)
    # A GPU that is read, but whose utilization is not, may be at work.
    use_read = _together([part.read("utilization_permille") for part in parts])
    files = [(part.columns, part.clock) for part in parts]
    parts = list(_shared_out(parts, times))
    uses = [use_in_file(part) for part in parts]
    slow = [part.columns.slow.of(part.position) for part in parts]
    minutes = {
        name: list(chain.from_iterable(part.get(name, ()) for part in slow))
        for name in GpuSlow._fields
    }
    sources = set(filter(None, minutes["utilization_source"]))
    first, tail = _moments(uses, use_read, end_us)
    energy_mj, energy_us = _energy(parts, suspended=suspended)
    return GpuTally(
        info=parts[-1].info,
        host=parts[-1].columns.header.host,
        restart=restart,
        due_us=due_us,
        end_us=end_us,
        read_us=min(length(read) + unsaid(files, read), due_us),
        bins=tuple(row for use in uses for row in use.bins),
        used=add(use.used for use in uses),
        sums=_sums(parts, minutes),
        idle_us=add_known(use.idle_us for use in uses),
        peak_permille=most(highest(part.column("utilization_permille")) for part in parts),
        memory_peak=most(highest(part.column("memory_bytes")) for part in parts),
        memory_us=length(_together([part.read("memory_bytes") for part in parts])),
        energy_mj=energy_mj,
        energy_us=energy_us,
        held_idle_us=add_known(use.held_idle_us for use in uses),
        first_use_us=first,
        idle_tail_us=tail,
        longest_idle_us=most(use.longest_idle_us for use in uses),
        stalls=max(
            (use.stalls for use in uses if use.stalls),
            key=lambda stalls: stalls.count,
            default=None,
        ),
        throttling=find_throttling(minutes["throttle_reasons"]),
        confidence=_confidence(parts),
        source=SPOT if SPOT in sources else next(iter(sorted(sources)), None),
        spot_readings=sum(_spot_readings(part, use) for part, use in zip(parts, uses, strict=True)),
        ecc_uncorrected=_ecc(parts),
        loss=find_loss(files, parts[-1].info, read),
    )


def _together(times: Sequence[list[Interval]]) -> list[Interval]:
    """Return the union of what `GpuInFile.read` returned; of one file it is one."""
    return times[0] if len(times) == 1 else union(times)


def _shared_out(
    parts: Sequence[GpuInFile], times: Sequence[list[Interval]]
) -> "Sequence[GpuInFile]":
    """Let each moment count in the oldest file that was reading then."""
    found = [parts[0]]
    taken = [*times[0]] if len(parts) > 1 else []
    for part, own in zip(parts[1:], times[1:], strict=True):
        clock = without(part.clock, part.columns.times, taken)
        found.append(part if clock is part.clock else replace(part, clock=clock, times={}))
        if own:  # of a thousand steps: only what is near is put together anew
            near = bisect_left(taken, min(own)[0], key=itemgetter(1))
            taken[near:] = union([taken[near:], own])
    return found


def _moments(
    uses: Sequence[GpuUseInFile], use_read: Sequence[Interval], end_us: float
) -> tuple[int | None, int | None]:
    """Return the first use and the idle tail, if enough of the time they are about was read."""
    busy = [use.busy for use in uses if use.busy]
    if not busy:
        return None, None
    first, last = min(begin for begin, _ in busy), max(end for _, end in busy)
    began = enough_of(within(use_read, 0, first), first)
    ended = enough_of(within(use_read, last, end_us), end_us - last)
    tail = max(use_read[-1][1] - last, 0) if use_read else 0
    return first if began else None, tail if ended else None


def _sums(
    parts: Sequence[GpuInFile], minutes: Mapping[str, Sequence[Any]]
) -> dict[str, Sum | None]:
    """Add up what becomes a figure as its row says; `minutes` are its readings once a minute."""
    found = {}
    for metric in (POWER, *METRICS):
        if metric.bits:
            found[metric.name] = add_up(metric.over_time, list(_series(parts, metric.name)))
        else:
            found[metric.name] = add_readings(metric.over_time, minutes[metric.name])
    return found


def _series(parts: Sequence[GpuInFile], name: str) -> Iterator[Series]:
    for part in parts:
        column = part.column(name)
        if column:
            yield Series(columns=part.columns, clock=part.clock, column=column)


def _energy(parts: Sequence[GpuInFile], *, suspended: bool) -> tuple[int | None, int]:
    """Return what the counter grew by, and over how long; a reset begins from 0 again.

    It is the GPU's, not a file's: what was used between two steps is in it, too. But of a job that
    was `suspended`, and its sampler with it, the holes are no time of the job's.
    """
    whole = all(part.columns.every_energy for part in parts)
    longest = max(part.clock.reach_us for part in parts) if suspended and whole else math.inf
    known = list(_counted(parts))
    grown = time = 0
    for (before, last, _), (after, value, began_anew) in pairwise(known):
        if after - before <= longest:
            grown += value if began_anew else value - last
            time += after - before
    return (grown, time) if len(known) > 1 else (None, 0)


def _counted(parts: Sequence[GpuInFile]) -> Iterator[tuple[int, int, bool]]:
    """Yield what is known of a GPU's counter, each time once, and whether it began from 0 again.

    Of samplers that read it at once the oldest counts. What the next one read may be less than what
    that one read last, for a sample's time is that before it is read: this is no reset, unless the
    counter fell for it, too.
    """
    reached, last = -math.inf, 0
    for part in parts:
        own, until = math.inf, reached
        for time, value in part.energies():
            if time > until:
                began_anew = value < min(last, own)
                last = value if began_anew else max(value, last)
                yield time, last, began_anew
            own, reached = value, max(time, reached)


def _spot_readings(part: GpuInFile, use: GpuUseInFile) -> float:
    step_us = part.columns.header.spot_us
    if step_us and use.used:
        return use.used[0] / step_us
    return float(len(part.columns))  # one a sample, in files of 0.1


def _rows(records: Sequence[Any], position: int) -> Iterator[Any]:
    """Return one GPU's rows of state records."""
    return (row.gpus[position] for row in records if position < len(row.gpus))


def _confidence(parts: Sequence[GpuInFile]) -> str:
    """Return the surest word: processes of others seen once are a share."""
    said = {row.confidence for part in parts for row in _rows(part.columns.states, part.position)}
    said |= {part.columns.header.gpu_confidence for part in parts}
    return next((word for word in (SHARED, VERIFIED) if word in said), UNVERIFIED)


def _ecc(parts: Sequence[GpuInFile]) -> int | None:
    """Return uncorrectable errors since the job's first look."""
    rows = (row for part in parts for row in _rows(part.columns.states, part.position))
    known = [row.ecc_uncorrected for row in rows if row.ecc_uncorrected is not None]
    return max(known) - known[0] if known else None
