"""One GPU in one file, added up."""

from collections.abc import Mapping
from dataclasses import dataclass

from hpckit.stats.samples.columns import Columns
from hpckit.stats.samples.packing import Column
from hpckit.stats.samples.records import SHARED, UNVERIFIED, VERIFIED, GpuInfo
from hpckit.stats.summary.clock import Clock, total, weighted
from hpckit.stats.summary.flags import below, both, longest_run, minus, weigh
from hpckit.stats.summary.stalls import find_stalls
from hpckit.stats.summary.sums import Sum, highest
from hpckit.stats.summary.throttling import Throttling, find_throttling
from hpckit.stats.summary.values import Stalls

# Less than this is no work: a watchdog's or a notebook's odd kernel.
_IDLE_PERMILLE = 10
_HELD_SHARE = 0.05
ACTIVITIES = ("sm_permille", "tensor_permille", "dram_permille")


@dataclass(frozen=True, kw_only=True, slots=True)
class GpuTally:
    """One GPU over one file. Microseconds; `used` and `sums` are integrals over them.

    Attributes:
        bins: utilization per bin, as in `Clock.bins`: (number, microseconds, permille x them).
        first_use_us: from the attempt's start; None if no kernel ran.
    """

    info: GpuInfo
    host: str
    restart: int
    covered_us: int
    bins: tuple[tuple[int, int, float], ...]
    used: Sum | None
    sums: Mapping[str, Sum]
    idle_us: int | None
    peak_permille: int | None
    memory_peak: int | None
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
    ecc_uncorrected: int | None
    lost: bool


def tally_gpu(columns: Columns, clock: Clock, position: int, start_epoch: float) -> GpuTally:
    """Add up one GPU of a file; `start_epoch` is when the attempt began."""
    info, gpu = columns.header.gpus[position], columns.gpus[position]
    utilization, memory = gpu.get("utilization_permille"), gpu.get("memory_bytes")
    parts = weighted(clock, utilization) if utilization else []
    idle = below(utilization.values, _IDLE_PERMILLE) if utilization else b""
    first, tail, longest = _times(columns, utilization, idle, start_epoch)
    energy_mj, energy_us = _energy(columns, position)
    slow = [row.gpus[position] for row in columns.slow if position < len(row.gpus)]
    sources = {row.utilization_source for row in slow} - {None}
    return GpuTally(
        info=info,
        host=columns.header.host,
        restart=columns.restart,
        covered_us=clock.covered_us,
        bins=tuple(
            (part.number, *known) for part, known in zip(clock.bins, parts, strict=bool(parts))
        ),
        used=_known(total(parts)),
        sums={
            name: known
            for name in ("power_mw", *ACTIVITIES)
            if name in gpu and (known := _known(total(weighted(clock, gpu[name]))))
        },
        idle_us=weigh(idle, clock.weights) if utilization else None,
        peak_permille=highest(utilization),
        memory_peak=highest(memory),
        energy_mj=energy_mj,
        energy_us=energy_us,
        held_idle_us=_held_idle(info, memory, idle, clock) if utilization else None,
        first_use_us=first,
        idle_tail_us=tail,
        longest_idle_us=longest,
        stalls=find_stalls(columns, clock, utilization) if utilization else None,
        throttling=find_throttling(slow),
        confidence=_confidence(columns, position),
        source="spot" if "spot" in sources else next(iter(sorted(map(str, sources))), None),
        ecc_uncorrected=_ecc(columns, position),
        lost=any(
            note.code in ("gpu_lost", "gpu_hang") and note.gpu == info.uuid
            for note in columns.notes
        ),
    )


def _known(known: Sum) -> Sum | None:
    return known if known[0] else None


def _times(
    columns: Columns, utilization: Column | None, idle: bytes, start_epoch: float
) -> tuple[int | None, int | None, int | None]:
    """Return first use (from the attempt's start), idle tail and longest pause, in microseconds.

    A GPU that was lost has no tail after it was last read: what it did then is not known.
    """
    if utilization is None:
        return None, None, None
    known = below(utilization.values, utilization.missing)
    busy = minus(known, idle)
    times = columns.times
    first, last = busy.find(1), busy.rfind(1)
    if first < 0:
        return None, None, None
    begun = round((columns.first_epoch - start_epoch) * 1e6) - columns.header.mono_us
    pause = longest_run(idle[first:last])
    return (
        max(times[max(first - 1, 0)] + begun, 0),
        times[known.rfind(1)] - times[last],
        times[first + pause[1] - 1] - times[first + pause[0] - 1] if pause[1] else 0,
    )


def _energy(columns: Columns, position: int) -> tuple[int | None, int]:
    """Return what the counter grew by, and over how long; a reset begins from 0 again."""
    column = columns.energies[position]
    if column is None:
        return None, 0
    known = [
        (time, value)
        for time, value in zip(columns.counter_times, column.values, strict=True)
        if value != column.missing
    ]
    if len(known) < 2:
        return None, 0
    grown, last = 0, known[0][1]
    for _, value in known[1:]:
        grown += value - last if value >= last else value
        last = value
    return grown, known[-1][0] - known[0][0]


def _held_idle(info: GpuInfo, memory: Column | None, idle: bytes, clock: Clock) -> int | None:
    """Return how long the GPU was idle with some of its memory in use."""
    if memory is None or not info.memory_total_bytes:
        return None
    if 1 not in idle:
        return 0
    least = info.memory_total_bytes * _HELD_SHARE / memory.scale
    if min(memory.values) >= least and not memory.has_gaps():
        return weigh(idle, clock.weights)
    held = bytes(least <= value != memory.missing for value in memory.values)
    return weigh(both(idle, held), clock.weights)


def _confidence(columns: Columns, position: int) -> str:
    """Return the surest word of a file: processes of others seen once are a share."""
    said = {state.gpus[position].confidence for state in columns.states if state.gpus}
    said.add(columns.header.gpu_confidence)
    return next((word for word in (SHARED, VERIFIED) if word in said), UNVERIFIED)


def _ecc(columns: Columns, position: int) -> int | None:
    """Return uncorrectable errors since the job's first look."""
    counts = [
        state.gpus[position].ecc_uncorrected
        for state in columns.states
        if position < len(state.gpus) and state.gpus[position].ecc_uncorrected is not None
    ]
    known = [count for count in counts if count is not None]
    return max(known) - known[0] if known else None
