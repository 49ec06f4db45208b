"""The figures of one GPU, of its sums over attempts."""

from collections.abc import Mapping, Sequence
from math import sqrt
from typing import Any

from hpckit.stats.samples.records import SPOT
from hpckit.stats.summary.coverage import enough_of, percent_of
from hpckit.stats.summary.figures import GpuUse
from hpckit.stats.summary.gpu_tally import METRICS, POWER, GpuTally
from hpckit.stats.summary.over_time import Sum, add, add_known, figure, mean, most, scaled
from hpckit.stats.summary.troubles import Throttling


def gpu_use(tallies: Sequence[GpuTally], starts: Mapping[int, float]) -> GpuUse:
    """Return the figures of one GPU from its tallies, oldest attempt first.

    `starts` are the attempts' by restart, in epoch seconds.
    """
    last = tallies[-1]
    # A GPU that an earlier attempt held has no first use and no end in the newest.
    first_use_us, idle_tail_us = (
        (last.first_use_us, last.idle_tail_us) if last.restart == max(starts) else (None, None)
    )
    due_us, read_us = (sum(getattr(t, name) for t in tallies) for name in ("due_us", "read_us"))
    used = _if_enough(add(tally.used for tally in tallies), read_us)
    utilization = mean(used, 0.1)
    figures: dict[str, Any] = {
        metric.figure or metric.name: figure(
            metric, (tally.sums[metric.name] for tally in tallies), read_us=read_us, due_us=due_us
        )
        for metric in (POWER, *METRICS)
    }
    energy, energy_us = add_known(t.energy_mj for t in tallies), sum(t.energy_us for t in tallies)
    idle = add_known(tally.idle_us for tally in tallies) if used else None
    whole = used is not None and enough_of(used[0], due_us)
    seen = sum(tally.memory_us for tally in tallies)
    peak = most(tally.memory_peak for tally in tallies) if enough_of(seen, read_us) else None
    total_bytes = last.info.memory_total_bytes
    # Samples reach a little over the edges of an attempt, and into time it was suspended.
    held = min(due_us / used[0], 1.0) if used else None
    hours = used[0] * held / 3.6e9 if used and held is not None else None
    sm, power = figures.get("sm_active_percent"), figures.pop(POWER.name)
    throttling = sum((tally.throttling for tally in tallies), Throttling())
    lost = next((t for t in reversed(tallies) if t.loss), None)
    return GpuUse(
        host=last.host,
        index=last.info.index,
        uuid=last.info.uuid,
        name=last.info.name,
        mig=last.info.mig_parent is not None,
        covered_percent=percent_of(read_us, due_us),
        utilization_percent=utilization,
        utilization_peak_percent=scaled(most(tally.peak_permille for tally in tallies), 0.1),
        utilization_source=last.source,
        utilization_error_percent=_spot_error(utilization, tallies),
        idle_percent=idle / used[0] * 100 if idle is not None and used else None,
        memory_used_percent=peak / total_bytes * 100 if peak is not None and total_bytes else None,
        memory_peak_bytes=peak,
        memory_total_bytes=total_bytes,
        power_watts_mean=energy * 1e3 / energy_us
        if energy is not None and energy_us and enough_of(energy_us, read_us)
        else power,
        energy_joules=scaled(energy, 1e-3) if enough_of(energy_us, due_us) else None,
        hours=hours,
        idle_hours=idle / used[0] * hours
        if whole and idle is not None and used and hours is not None
        else None,
        first_use_s=scaled(first_use_us, 1e-6),
        idle_tail_s=scaled(idle_tail_us, 1e-6),
        longest_idle_s=scaled(most(tally.longest_idle_us for tally in tallies), 1e-6),
        memory_held_idle_s=scaled(add_known(tally.held_idle_us for tally in tallies), 1e-6 * held)
        if whole and held is not None
        else None,
        busy_sm_percent=sm / utilization * 100 if sm is not None and utilization else None,
        busy_hours=hours * utilization / 100
        if hours is not None and utilization is not None
        else None,
        throttled_percent=throttling.percent,
        throttle_reasons=throttling.reasons,
        ecc_uncorrected=most(tally.ecc_uncorrected for tally in tallies),
        confidence=last.confidence,
        **_loss(lost, starts),
        **figures,
        stalls=max(
            (tally.stalls for tally in tallies if tally.stalls),
            key=lambda stalls: stalls.count,
            default=None,
        ),
    )


def _if_enough(known: Sum | None, read_us: float) -> Sum | None:
    """Return a sum that was read for enough of the time in which its GPU was."""
    return known if known and enough_of(known[0], read_us) else None


def _spot_error(utilization: float | None, tallies: Sequence[GpuTally]) -> float | None:
    """Return two standard errors of the mean of readings at random moments, at most.

    None of a GPU whose driver keeps history. No reading varies more than one that is 0 or 100 %.
    """
    readings = sum(tally.spot_readings for tally in tallies)
    if utilization is None or not readings or SPOT not in {tally.source for tally in tallies}:
        return None
    return 2 * sqrt(max(utilization * (100 - utilization), 0.0) / readings)


def _loss(tally: GpuTally | None, starts: Mapping[int, float]) -> dict[str, Any]:
    loss = tally.loss if tally else None
    if tally is None or loss is None:
        return {}
    start = starts[tally.restart]
    until = loss.back_us if loss.back_us is not None else tally.end_us
    return {
        "lost": True,
        "lost_at": start + loss.at_us / 1e6,
        "lost_s": max(until - loss.at_us, 0) / 1e6,
        "back_at": None if loss.back_us is None else start + loss.back_us / 1e6,
        "lost_error": loss.error,
    }
