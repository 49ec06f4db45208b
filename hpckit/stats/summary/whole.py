"""The figures of a whole job, of its GPUs' and nodes'."""

from collections.abc import Iterable, Sequence

from hpckit.stats.known import total
from hpckit.stats.metric_table import GPU, NODE
from hpckit.stats.summary.attempts import Added
from hpckit.stats.summary.known import enough, enough_of, percent_of
from hpckit.stats.summary.over_time import over_all, weighted_mean
from hpckit.stats.summary.sums import add_known, most
from hpckit.stats.summary.values import GpuUse, NodeUse, Summary


def whole(
    per_gpu: Sequence[GpuUse], per_node: Sequence[NodeUse], attempts: Sequence[Added]
) -> Summary:
    """Return the figures of all attempts together."""
    tallies = [tally for attempt in attempts for tally in attempt.nodes]
    due_us = sum(attempt.due_us for attempt in attempts)
    covered_us = sum(tally.covered_us for tally in tallies)
    cpu_seen_us = sum(t.cpu_seen_us for t in tallies)
    saw_all = all(attempt.saw_all_gpus for attempt in attempts)
    core_us = sum(t.cpu_seen_us * (t.cores or 0) for t in tallies if t.cpu_us is not None)
    cpu_us = add_known(tally.cpu_us for tally in tallies)
    if not enough_of(cpu_seen_us, covered_us):
        cpu_us = None
    hours = [gpu.hours for gpu in per_gpu]
    gpu_used, gpu_total = _used((gpu.memory_peak_bytes, gpu.memory_total_bytes) for gpu in per_gpu)
    used, limit = _used((node.memory_peak_bytes, node.memory_limit_bytes) for node in per_node)
    return Summary(
        gpu_utilization_percent=weighted_mean([row.utilization_percent for row in per_gpu], hours),
        gpu_utilization_peak_percent=_highest(gpu.utilization_peak_percent for gpu in per_gpu),
        gpu_memory_used_percent=_percent(gpu_used, gpu_total),
        gpu_memory_peak_bytes=most(gpu.memory_peak_bytes for gpu in per_gpu),
        gpu_memory_total_bytes=most(gpu.memory_total_bytes for gpu in per_gpu),
        power_watts_mean=weighted_mean([row.power_watts_mean for row in per_gpu], hours),
        energy_joules=total(gpu.energy_joules for gpu in per_gpu) if saw_all else None,
        cpu_efficiency_percent=None if cpu_us is None else _percent(cpu_us, core_us),
        cpu_s=cpu_us / 1e6 if cpu_us is not None and enough_of(cpu_seen_us, due_us) else None,
        memory_efficiency_percent=_percent(used, limit),
        memory_peak_bytes=most(node.memory_peak_bytes for node in per_node),
        memory_limit_bytes=most(node.memory_limit_bytes for node in per_node),
        gpu_hours=total(attempt.gpu_hours for attempt in attempts),
        gpu_hours_idle=total(gpu.idle_hours for gpu in per_gpu) if saw_all else None,
        samples=sum(tally.samples for tally in tallies),
        coverage_percent=percent_of(covered_us, due_us),
        gpu_coverage_percent=percent_of(
            sum(tally.read_us for attempt in attempts for tally in attempt.gpus),
            sum(attempt.gpu_due_us for attempt in attempts),
        ),
        gpu_imbalance_percent=_spread(
            gpu.utilization_percent for gpu in per_gpu if enough(gpu.covered_percent, gpu.hours)
        ),
        node_imbalance_percent=_spread(node.gpu_utilization_percent for node in per_node),
        **over_all(GPU, per_gpu, hours, lambda known: total(known) if saw_all else None),
        **over_all(NODE, per_node, [node.covered_percent for node in per_node], add_known),
    )


def _used(pairs: Iterable[tuple[int | None, int | None]]) -> tuple[int, int]:
    """Add up peaks and limits where both are known."""
    known = [(peak, limit) for peak, limit in pairs if peak is not None and limit]
    return sum(peak for peak, _ in known), sum(limit for _, limit in known)


def _percent(part: float, all_of_it: float) -> float | None:
    return part / all_of_it * 100 if all_of_it else None


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _highest(values: Iterable[float | None]) -> float | None:
    return max(_known(values), default=None)


def _spread(values: Iterable[float | None]) -> float | None:
    known = _known(values)
    return max(known) - min(known) if len(known) > 1 else None
