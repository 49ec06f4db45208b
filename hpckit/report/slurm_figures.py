"""What Slurm's accounting says a job used, as answers to merge. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from hpckit.slurm.states import is_finished, parse_state
from hpckit.slurm.usage_rows import (
    JobUsage,
    StepUsage,
    cpu_seconds,
    gpu_util_peak_percent,
    memory_peak_bytes,
)
from hpckit.stats.js1 import Js1, decode, elapsed_of, from_record
from hpckit.stats.merge import Answer
from hpckit.stats.summary.values import SACCT, SSTAT, SourceNote
from hpckit.units import format_seconds


def slurm_answers(attempts: Sequence[JobUsage]) -> Iterator[Answer]:
    """Yield what accounting knows of the newest attempt that ran: JS1 before Slurm's own figures.

    The hours are of all attempts: JS1 knows only of its own.
    """
    if not attempts:
        return
    usage, hours = _newest(attempts), _gpu_hours(attempts)
    record = _js1(usage).record
    if record is not None:
        answer = from_record(record, nodes=usage.alloc_nodes, gpus=usage.alloc_gpus)
        theirs = answer.summary["gpu_hours"]
        yield replace(
            answer, summary={**answer.summary, "gpu_hours": theirs if hours is None else hours}
        )
    figures = _figures(usage) if _is_over(usage, attempts) else _so_far(usage)
    yield Answer(source=SACCT, summary={**figures, "gpu_hours": hours})


def running_answer(usage: JobUsage, steps: Sequence[StepUsage]) -> Answer:
    """Return what a running job has used so far: sstat's of steps that run, sacct's of the others.

    The CPU time is unknown if sstat lacks a step that accounting says runs; the site's own step,
    `extern`, does no work.
    """
    live = {step.step: step for step in steps}
    ended = [step for step in usage.steps if step.step not in live]
    missing = any(_runs(step) for step in ended)
    known = tuple(replace(live[old.step], gpus=old.gpus) for old in usage.steps if old.step in live)
    new = (step for name, step in live.items() if name not in {old.step for old in usage.steps})
    whole = replace(usage, total_cpu_s=None, steps=(*ended, *known, *new))
    figures = _figures(whole)
    return Answer(source=SSTAT, summary={**figures, **_NO_CPU} if missing else figures)


def slurm_notes(attempts: Sequence[JobUsage]) -> Iterator[SourceNote]:
    """Yield why the site's own record is of no use, if so."""
    trouble = _js1(_newest(attempts)).trouble if attempts else None
    if trouble:
        yield SourceNote(code="js1", text=trouble)


# Epilogs take the time some seconds after Slurm does.
_JS1_APART_S, _JS1_APART = 60, 0.05
_NO_CPU = {"cpu_s": None, "cpu_efficiency_percent": None}


def _js1(usage: JobUsage) -> Js1:
    """Return the site's record of an attempt; one of another attempt stays until it is replaced."""
    found = decode(usage.admin_comment or "")
    theirs = None if found.record is None else elapsed_of(found.record)
    ours = usage.record.elapsed_s
    if ours is None or theirs is None:
        return found
    if abs(theirs - ours) <= max(_JS1_APART_S, _JS1_APART * ours):
        return found
    return Js1(
        trouble="The site's jobstats record is of another attempt, or of a part of this one: "
        f"{format_seconds(theirs)} of {format_seconds(ours)}."
    )


def _newest(attempts: Sequence[JobUsage]) -> JobUsage:
    """Return the newest attempt that ran; one that waits again has nothing to tell."""
    ran = [usage for usage in attempts if usage.record.start_time is not None and _held(usage)]
    return ran[-1] if ran else attempts[-1]


def _held(usage: JobUsage) -> bool:
    return bool(usage.record.nodes or usage.alloc_gpus is not None or usage.steps)


def _runs(step: StepUsage) -> bool:
    return step.step != "extern" and not is_finished(parse_state(step.state or ""))


def _is_over(usage: JobUsage, attempts: Sequence[JobUsage]) -> bool:
    """Say whether an attempt, or each of its steps, has ended and so has figures."""
    record = usage.record
    if is_finished(record.state) or record.end_time is not None or usage is not attempts[-1]:
        return True
    return not any(map(_runs, usage.steps))


def _so_far(usage: JobUsage) -> dict[str, float | int | None]:
    """Return what sacct knows while a job runs: steps that run are not in its figures yet."""
    return {"memory_limit_bytes": usage.memory_limit_bytes_per_node}


def _gpu_hours(attempts: Sequence[JobUsage]) -> float | None:
    """Add up GPUs x elapsed; None if either is not known of an attempt that ran."""
    ran = [usage for usage in attempts if usage.record.elapsed_s != 0]
    hours = [
        None
        if usage.alloc_gpus is None or usage.record.elapsed_s is None
        else usage.alloc_gpus * usage.record.elapsed_s / 3600
        for usage in ran or attempts[-1:]
    ]
    known = [value for value in hours if value is not None]
    return sum(known) if len(known) == len(hours) else None


def _figures(usage: JobUsage) -> dict[str, float | int | None]:
    cpu_s, peak = cpu_seconds(usage), memory_peak_bytes(usage)
    limit = usage.memory_limit_bytes
    one_node = usage.alloc_nodes == 1
    gpu_memory = [step.gpu_memory_peak_bytes for step in usage.steps if step.gpu_memory_peak_bytes]
    return {
        "cpu_s": cpu_s,
        "cpu_efficiency_percent": _cpu_efficiency(cpu_s, usage.alloc_cpus, usage.record.elapsed_s),
        "memory_efficiency_percent": peak / limit * 100 if peak is not None and limit else None,
        # Slurm adds up over nodes: what one of them used can only be told where there is one.
        "memory_peak_bytes": peak if one_node else None,
        "memory_limit_bytes": usage.memory_limit_bytes_per_node,
        "gpu_utilization_peak_percent": gpu_util_peak_percent(usage),
        "gpu_memory_peak_bytes": max(gpu_memory, default=None) if usage.alloc_gpus == 1 else None,
    }


def _cpu_efficiency(cpu_s: float | None, cpus: int | None, elapsed: int | None) -> float | None:
    """Return the share of cores x time; over 100 % only if whole seconds cannot explain it."""
    if cpu_s is None or not cpus or not elapsed:
        return None
    share = cpu_s / (cpus * elapsed) * 100
    return min(share, 100.0) if cpu_s <= cpus * (elapsed + 1) else share
