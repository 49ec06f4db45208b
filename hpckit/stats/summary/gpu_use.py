"""The figures of one GPU, of its sums over attempts."""

from collections.abc import Mapping, Sequence
from math import sqrt
from typing import Any

from hpckit.stats.samples.records import SPOT
from hpckit.stats.summary.coverage import enough_of, percent_of
from hpckit.stats.summary.figures import GpuUse
from hpckit.stats.summary.gpu_tally import METRICS, POWER, GpuTally
from hpckit.stats.summary.over_time import Sum, add, add_known, figure, most, scaled
from hpckit.stats.summary.troubles import Throttling


def gpu_use(tallies: Sequence[GpuTally], starts: Mapping[int, float]) -> GpuUse:
    """Return the figures of one GPU from its tallies, oldest attempt first.

    `starts` are the attempts' by restart, in epoch seconds.
    """
    last = tallies[-1]
    due_us, read_us = (sum(getattr(t, name) for t in tallies) for name in ("due_us", "read_us"))
    figures: dict[str, Any] = {
        metric.figure or metric.name: figure(
            metric, (tally.sums[metric.name] for tally in tallies), read_us=read_us, due_us=due_us
        )
        for metric in (POWER, *METRICS)
    }
    power = figures.pop(POWER.name)
    throttling = sum((tally.throttling for tally in tallies), Throttling())
    lost = next((t for t in reversed(tallies) if t.loss), None)
    return GpuUse(
        host=last.host,
        index=last.info.index,
        uuid=last.info.uuid,
        name=last.info.name,
        mig=last.info.mig_parent is not None,
        covered_percent=percent_of(read_us, due_us),
        utilization_source=last.source,
        throttled_percent=throttling.percent,
        throttle_reasons=throttling.reasons,
        ecc_uncorrected=most(tally.ecc_uncorrected for tally in tallies),
        confidence=last.confidence,
        stalls=max(
            (tally.stalls for tally in tallies if tally.stalls),
            key=lambda stalls: stalls.count,
            default=None,
        ),
        **_utilization(tallies, read_us, due_us, figures.get("sm_active_percent")),
        **_memory(tallies, read_us),
        **_energy(tallies, read_us, due_us, power),
        **_moments(tallies, starts),
        **_loss(lost, starts),
        **figures,
    )


def _utilization(
    tallies: Sequence[GpuTally], read_us: float, due_us: float, sm: float | None
) -> dict[str, Any]:
    """Return what is made of utilization; `sm` is the SM activity in percent."""
    used = _if_enough(add(tally.used for tally in tallies), read_us)
    percent = used[1] / used[0] * 0.1 if used and used[0] else None
    found: dict[str, Any] = {
        "utilization_percent": percent,
        "utilization_peak_percent": scaled(most(tally.peak_permille for tally in tallies), 0.1),
        "utilization_error_percent": _spot_error(percent, tallies),
    }
    if used is None or percent is None:
        return found
    # Samples reach a little over the edges of an attempt, and into time it was suspended.
    held = min(due_us / used[0], 1.0)
    hours = used[0] * held / 3.6e9
    found |= {
        "hours": hours,
        "busy_hours": hours * percent / 100,
        "busy_sm_percent": sm / percent * 100 if sm is not None and percent else None,
    }
    idle = add_known(tally.idle_us for tally in tallies)
    if idle is not None:
        found["idle_percent"] = idle / used[0] * 100
    if enough_of(used[0], due_us):
        held_idle = add_known(tally.held_idle_us for tally in tallies)
        found["idle_hours"] = None if idle is None else idle / used[0] * hours
        found["memory_held_idle_s"] = scaled(held_idle, 1e-6 * held)
    return found


def _memory(tallies: Sequence[GpuTally], read_us: float) -> dict[str, Any]:
    whole = tallies[-1].info.memory_total_bytes
    seen_us = sum(tally.memory_us for tally in tallies)
    peak = most(tally.memory_peak for tally in tallies) if enough_of(seen_us, read_us) else None
    return {
        "memory_used_percent": peak / whole * 100 if peak is not None and whole else None,
        "memory_peak_bytes": peak,
        "memory_total_bytes": whole,
    }


def _energy(
    tallies: Sequence[GpuTally], read_us: float, due_us: float, power: float | None
) -> dict[str, Any]:
    """Return energy and mean power by the counter; `power` is that of the samples, in watts."""
    energy, seen_us = add_known(t.energy_mj for t in tallies), sum(t.energy_us for t in tallies)
    if energy is not None and seen_us and enough_of(seen_us, read_us):
        power = energy * 1e3 / seen_us
    joules = scaled(energy, 1e-3) if enough_of(seen_us, due_us) else None
    return {"power_watts_mean": power, "energy_joules": joules}


def _moments(tallies: Sequence[GpuTally], starts: Mapping[int, float]) -> dict[str, Any]:
    """Return first use and pauses; a GPU of an earlier attempt has no first use in the newest."""
    last = tallies[-1]
    found = {"longest_idle_s": scaled(most(tally.longest_idle_us for tally in tallies), 1e-6)}
    if last.restart == max(starts):
        found["first_use_s"] = scaled(last.first_use_us, 1e-6)
        found["idle_tail_s"] = scaled(last.idle_tail_us, 1e-6)
    return found


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
