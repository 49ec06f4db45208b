"""What Slurm's accounting says a job used, as answers to merge. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from hpckit.report.peaks import EXTERN, Peak, gpu_memory_peak, gpu_util_peak, memory_peak
from hpckit.slurm.record import JobRecord
from hpckit.slurm.states import is_finished, parse_state
from hpckit.slurm.usage_rows import JobUsage, StepUsage
from hpckit.stats.js1 import Js1, decode, elapsed_of, from_record
from hpckit.stats.known import total
from hpckit.stats.merge import Answer, Remark
from hpckit.stats.summary.values import SACCT, SSTAT, SourceNote
from hpckit.text import format_seconds


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
            answer,
            summary={**answer.summary, "gpu_hours": theirs if hours is None else hours},
            remarks=(*answer.remarks, *_newest_only(attempts)),
        )
    over = _is_over(usage, attempts)
    figures = _figures(usage) if over else _so_far(usage)
    remarks = (*_limits(usage), *_newest_only(attempts)) if over else ()
    yield Answer(source=SACCT, summary={**figures, "gpu_hours": hours}, remarks=remarks)


def running_answer(usage: JobUsage, steps: Sequence[StepUsage]) -> Answer:
    """Return what a running job has used so far: sstat's of steps that run, sacct's of the others.

    The CPU time is unknown if sstat lacks a step that accounting says runs; the site's own step,
    `extern`, does no work.
    """
    live = {step.step: step for step in steps}
    ended = [step for step in usage.steps if step.step not in live]
    missing = any(_runs(step) for step in ended)
    known = tuple(
        replace(live[old.step], gpus=old.gpus, start_time=old.start_time)
        for old in usage.steps
        if old.step in live
    )
    new = (step for name, step in live.items() if name not in {old.step for old in usage.steps})
    whole = replace(usage, total_cpu_s=None, steps=(*ended, *known, *new))
    figures = _figures(whole)
    return Answer(
        source=SSTAT,
        summary={**figures, **_NO_CPU} if missing else figures,
        remarks=tuple(_limits(whole)),
    )


def slurm_notes(attempts: Sequence[JobUsage]) -> Iterator[SourceNote]:
    """Yield why the site's own record is of no use, if so."""
    trouble = _js1(_newest(attempts)).trouble if attempts else None
    if trouble:
        yield SourceNote(code="js1", text=trouble)


# Epilogs take the time some seconds after Slurm does.
_JS1_APART_S, _JS1_APART = 60, 0.05
_MOST_NAMES = 3
_MEMORY = ("memory_peak_bytes", "memory_efficiency_percent")
_GPU_PEAKS = ("gpu_utilization_peak_percent", "gpu_memory_peak_bytes")
_NO_CPU = {"cpu_s": None, "cpu_efficiency_percent": None}


def _js1(usage: JobUsage) -> Js1:
    """Return the site's record of an attempt; one of another attempt stays until it is replaced."""
    found = decode(usage.admin_comment or "")
    if found.record is None:
        return found
    listed = len(found.record["nodes"])
    if usage.alloc_nodes is not None and listed > usage.alloc_nodes:
        return Js1(
            trouble=f"The site's jobstats record does not belong to this job: it lists "
            f"{listed} nodes, the job had {usage.alloc_nodes}."
        )
    theirs, ours = elapsed_of(found.record), usage.record.elapsed_s
    if ours is None or theirs is None:
        return found
    if abs(theirs - ours) <= max(_JS1_APART_S, _JS1_APART * ours):
        return found
    return Js1(
        trouble="The site's jobstats record covers another attempt, or a part of this one: "
        f"{format_seconds(theirs)} of {format_seconds(ours)}."
    )


def _newest(attempts: Sequence[JobUsage]) -> JobUsage:
    """Return the newest attempt that ran; one that waits again has nothing to tell."""
    ran = [usage for usage in attempts if usage.record.start_time is not None and _held(usage)]
    return ran[-1] if ran else attempts[-1]


def _held(usage: JobUsage) -> bool:
    return bool(usage.record.nodes or usage.alloc_gpus is not None or usage.steps)


def _runs(step: StepUsage) -> bool:
    return step.step != EXTERN and not is_finished(parse_state(step.state or ""))


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
    return total(_hours(usage) for usage in ran or attempts[-1:])


def _hours(usage: JobUsage) -> float | None:
    elapsed = _elapsed(usage.record)
    if usage.alloc_gpus is None or elapsed is None:
        return None
    return usage.alloc_gpus * elapsed / 3600


def _elapsed(record: JobRecord) -> float | None:
    """Return how long an attempt was; where Slurm does not say, from its start to its end."""
    start, end = record.start_time, record.end_time
    if record.elapsed_s is not None or start is None or end is None or end < start:
        return record.elapsed_s
    return end - start


def _figures(usage: JobUsage) -> dict[str, float | int | None]:
    cpu_s, peak = cpu_seconds(usage), _whole(memory_peak(usage))
    limit = usage.memory_limit_bytes
    one_node = usage.alloc_nodes == 1
    return {
        "cpu_s": cpu_s,
        "cpu_efficiency_percent": _cpu_efficiency(cpu_s, usage.alloc_cpus, _elapsed(usage.record)),
        "memory_efficiency_percent": peak / limit * 100 if peak is not None and limit else None,
        # Slurm adds up over nodes: what one of them used can only be told where there is one.
        "memory_peak_bytes": peak if one_node else None,
        "memory_limit_bytes": usage.memory_limit_bytes_per_node,
        "gpu_utilization_peak_percent": gpu_util_peak(usage).value,
        "gpu_memory_peak_bytes": _whole(gpu_memory_peak(usage)) if usage.alloc_gpus == 1 else None,
    }


def _whole(peak: Peak) -> int | None:
    return None if peak.value is None else round(peak.value)


def _limits(usage: JobUsage) -> Iterator[Remark]:
    """Yield what the reader should know of a job's figures."""
    peaks = [("CPU memory", _MEMORY, memory_peak(usage))]
    if usage.alloc_gpus != 0:
        peaks.append(("GPU peaks", _GPU_PEAKS, gpu_util_peak(usage)))
    for label, figures, peak in peaks:
        if peak.why:
            text = f"{label} not measured by Slurm: {peak.why}."
            yield Remark(figures=figures, note=SourceNote(code="not_measured", text=text))
        if peak.at_least:
            text = f"{label} is a lower bound: Slurm does not measure the sum over tasks and steps."
            note = SourceNote(code="at_least", text=text)
            yield Remark(figures=figures, note=note, at_least=True)
    polled = [step.step for step in usage.steps if step.cpu_polled]
    if polled:
        names = ", ".join(polled[:_MOST_NAMES]) + ", ..." * (len(polled) > _MOST_NAMES)
        text = (
            f"The CPU time of step {names} comes from Slurm's polls (TRESUsageInTot). The "
            "sum at the end (TotalCPU) lacks processes whose parent did not wait for them."
        )
        yield Remark(figures=("cpu_s",), note=SourceNote(code="cpu_polled", text=text))


def _newest_only(attempts: Sequence[JobUsage]) -> Iterator[Remark]:
    """Say of which attempt figures are, where several held nodes."""
    if sum(usage.record.elapsed_s != 0 and _held(usage) for usage in attempts) < 2:
        return
    text = "Accounting has CPU time and memory for the newest attempt only."
    figures = (*_NO_CPU, *_MEMORY, *_GPU_PEAKS, "gpu_utilization_percent")
    yield Remark(figures=figures, note=SourceNote(code="newest_attempt", text=text))


def cpu_seconds(job: JobUsage) -> float | None:
    """Return the CPU time of all steps; None if Slurm knows of none."""
    known = [step.cpu_s for step in job.steps if step.cpu_s is not None]
    return max(job.total_cpu_s or 0.0, sum(known)) or None


def _cpu_efficiency(cpu_s: float | None, cpus: int | None, elapsed: float | None) -> float | None:
    """Return the share of cores x time; over 100 % only if whole seconds cannot explain it."""
    if cpu_s is None or not cpus or not elapsed:
        return None
    share = cpu_s / (cpus * elapsed) * 100
    return min(share, 100.0) if cpu_s <= cpus * (elapsed + 1) else share
