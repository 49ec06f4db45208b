"""The figures of one GPU, of its sums over several files."""

from collections.abc import Sequence

from hpckit.stats.summary.gpus import ACTIVITIES, GpuTally
from hpckit.stats.summary.sums import add, add_known, mean, most, scaled
from hpckit.stats.summary.throttling import Throttling
from hpckit.stats.summary.values import GpuUse


def gpu_use(tallies: Sequence[GpuTally]) -> GpuUse:
    """Return the figures of one GPU from its tallies, oldest first; one attempt or several."""
    last = tallies[-1]
    used = add(tally.used for tally in tallies)
    utilization = mean(used, 0.1)
    sums = {
        name: add(tally.sums.get(name) for tally in tallies) for name in ("power_mw", *ACTIVITIES)
    }
    energy = add_known(tally.energy_mj for tally in tallies)
    energy_us = sum(tally.energy_us for tally in tallies)
    idle = add_known(tally.idle_us for tally in tallies)
    peak, total_bytes = (
        most(tally.memory_peak for tally in tallies),
        last.info.memory_total_bytes,
    )
    hours = used[0] / 3.6e9 if used else None
    sm = mean(sums["sm_permille"], 0.1)
    throttling = sum((tally.throttling for tally in tallies), Throttling())
    return GpuUse(
        host=last.host,
        index=last.info.index,
        uuid=last.info.uuid,
        name=last.info.name,
        mig=last.info.mig_parent is not None,
        utilization_percent=utilization,
        utilization_peak_percent=scaled(most(tally.peak_permille for tally in tallies), 0.1),
        utilization_source=last.source,
        idle_percent=idle / used[0] * 100 if idle is not None and used else None,
        memory_used_percent=peak / total_bytes * 100 if peak is not None and total_bytes else None,
        memory_peak_bytes=peak,
        memory_total_bytes=total_bytes,
        power_watts_mean=energy * 1e3 / energy_us
        if energy is not None and energy_us
        else mean(sums["power_mw"], 1e-3),
        energy_joules=scaled(energy, 1e-3),
        hours=hours,
        idle_hours=scaled(idle, 1 / 3.6e9) if used else None,
        first_use_s=scaled(last.first_use_us, 1e-6),
        idle_tail_s=scaled(last.idle_tail_us, 1e-6),
        longest_idle_s=scaled(most(tally.longest_idle_us for tally in tallies), 1e-6),
        memory_held_idle_s=scaled(add_known(tally.held_idle_us for tally in tallies), 1e-6),
        sm_active_percent=sm,
        tensor_percent=mean(sums["tensor_permille"], 0.1),
        dram_percent=mean(sums["dram_permille"], 0.1),
        busy_sm_percent=sm / utilization * 100 if sm is not None and utilization else None,
        busy_hours=hours * utilization / 100
        if hours is not None and utilization is not None
        else None,
        throttled_percent=throttling.percent,
        throttle_reasons=throttling.reasons,
        temperature_peak_c=throttling.temperature_peak_c,
        ecc_uncorrected=most(tally.ecc_uncorrected for tally in tallies),
        confidence=last.confidence,
        lost=any(tally.lost for tally in tallies),
        stalls=max(
            (tally.stalls for tally in tallies if tally.stalls),
            key=lambda stalls: stalls.count,
            default=None,
        ),
    )
