"""What Slurm's accounting says a job used, as answers to merge. Pure."""

from collections.abc import Iterator, Sequence

from hpckit.slurm.usage_rows import (
    JobUsage,
    StepUsage,
    cpu_seconds,
    gpu_util_peak_percent,
    memory_peak_bytes,
)
from hpckit.stats.js1 import decode, from_record
from hpckit.stats.merge import Answer
from hpckit.stats.summary.values import SACCT, SSTAT, SourceNote


def slurm_answers(attempts: Sequence[JobUsage]) -> Iterator[Answer]:
    """Yield what accounting knows of the newest attempt: JS1 before Slurm's own figures."""
    if not attempts:
        return
    usage = attempts[-1]
    js1 = decode(usage.admin_comment or "")
    if js1.record is not None:
        yield from_record(js1.record)
    elapsed = sum(attempt.record.elapsed_s or 0 for attempt in attempts)
    hours = None if usage.alloc_gpus is None else usage.alloc_gpus * elapsed / 3600
    yield Answer(source=SACCT, summary={**_figures(usage), "gpu_hours": hours})


def running_answer(usage: JobUsage, steps: Sequence[StepUsage]) -> Answer:
    """Return what sstat says of a running job, whose accounting has no figures yet."""
    live = JobUsage(
        record=usage.record,
        alloc_nodes=usage.alloc_nodes,
        alloc_cpus=usage.alloc_cpus,
        alloc_gpus=usage.alloc_gpus,
        memory_limit_bytes=usage.memory_limit_bytes,
        steps=tuple(steps),
    )
    return Answer(source=SSTAT, summary=_figures(live))


def slurm_notes(attempts: Sequence[JobUsage]) -> Iterator[SourceNote]:
    """Yield why the site's own record is of no use, if so."""
    trouble = decode(attempts[-1].admin_comment or "").trouble if attempts else None
    if trouble:
        yield SourceNote(code="js1", text=trouble)


def _figures(usage: JobUsage) -> dict[str, float | int | None]:
    elapsed, cpu_s, peak = usage.record.elapsed_s, cpu_seconds(usage), memory_peak_bytes(usage)
    core_s = (usage.alloc_cpus or 0) * (elapsed or 0)
    limit = usage.memory_limit_bytes
    one_node = usage.alloc_nodes == 1
    gpu_memory = [step.gpu_memory_peak_bytes for step in usage.steps if step.gpu_memory_peak_bytes]
    return {
        "cpu_s": cpu_s,
        "cpu_efficiency": cpu_s / core_s * 100 if cpu_s is not None and core_s else None,
        "memory_efficiency": peak / limit * 100 if peak is not None and limit else None,
        # Slurm adds up over nodes: what one of them used can only be told where there is one.
        "memory_peak_bytes": peak if one_node else None,
        "memory_limit_bytes": usage.memory_limit_bytes_per_node,
        "gpu_utilization_peak_percent": gpu_util_peak_percent(usage),
        "gpu_memory_peak_bytes": max(gpu_memory, default=None) if usage.alloc_gpus == 1 else None,
    }
