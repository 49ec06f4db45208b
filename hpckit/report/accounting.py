"""What Slurm's accounting says a job used, in all its attempts, as answers to merge. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from hpckit.report.peaks import (
    EXTERN,
    MOST_NAMES,
    Peak,
    attempt_names,
    gpu_memory_peak,
    gpu_util_peak,
    has_batch_alone,
    has_lost,
    memory_peak,
)
from hpckit.slurm.states import JobRecord, is_finished, parse_state
from hpckit.slurm.usage_rows import JobUsage, StepUsage
from hpckit.stats.js1 import Js1, covers_attempt, decode, elapsed_of, from_record
from hpckit.stats.merge import Answer, Remark
from hpckit.stats.summary.coverage import enough, percent_of, total
from hpckit.stats.summary.figures import SACCT, SSTAT, SourceNote
from hpckit.units import format_seconds

_MEMORY = ("memory_peak_bytes", "memory_efficiency_percent")
_GPU_PEAKS = ("gpu_utilization_peak_percent", "gpu_memory_peak_bytes")
_GPU_MEANS = ("gpu_utilization_percent", "gpu_memory_used_percent")
_NO_CPU = {"cpu_s": None, "cpu_efficiency_percent": None}


def slurm_answers(attempts: Sequence[JobUsage]) -> Iterator[Answer]:
    """Yield what accounting knows of all attempts that ran: JS1 before Slurm's own figures.

    JS1 knows only of the newest attempt.
    """
    if not attempts:
        return
    newest, ran, hours = _newest(attempts), _ran(attempts), _gpu_hours(attempts)
    over = _is_over(newest, attempts)
    figures = _figures(ran, newest) if over else _so_far(newest)
    record = _js1(newest).record
    if record is not None:
        answer = from_record(record, nodes=newest.alloc_nodes, gpus=newest.alloc_gpus)
        theirs = answer.summary["gpu_hours"]
        summary = {**answer.summary, "gpu_hours": theirs if hours is None else hours}
        answer = replace(answer, summary=summary)
        yield _of_newest(answer, figures) if len(ran) > 1 else answer
    remarks = tuple(_limits(ran)) if over else ()
    yield Answer(source=SACCT, summary={**figures, "gpu_hours": hours}, remarks=remarks)


def running_answer(attempts: Sequence[JobUsage], steps: Sequence[StepUsage]) -> Answer:
    """Return what a running job has used so far: sstat's of steps that run, sacct's of the others.

    The CPU time is unknown if sstat lacks a step that accounting says runs; the site's own step,
    `extern`, does no work.
    """
    usage = attempts[-1]
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
    ran = [*filter(_has_run, attempts[:-1]), whole]
    figures = _figures(ran, whole)
    return Answer(
        source=SSTAT,
        summary={**figures, **_NO_CPU} if missing else figures,
        remarks=tuple(_limits(ran)),
    )


def slurm_notes(attempts: Sequence[JobUsage]) -> Iterator[SourceNote]:
    """Yield why the site's own record is of no use, if so."""
    trouble = _js1(_newest(attempts)).trouble if attempts else None
    if trouble:
        yield SourceNote(code="js1", text=trouble)


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
    if ours is None or theirs is None or covers_attempt(found.record, ours):
        return found
    start, end = usage.record.start_time, usage.record.end_time
    # jobstats takes the time from the start to the end (jobstats.py, `diff`).
    if start is not None and end is not None and covers_attempt(found.record, end - start):
        why = "includes time in which the job was suspended"
    else:
        why = "covers another attempt, or a part of this one"
    return Js1(
        trouble=f"The site's jobstats record {why}: "
        f"{format_seconds(theirs)} of {format_seconds(ours)}."
    )


def _newest(attempts: Sequence[JobUsage]) -> JobUsage:
    """Return the newest attempt that ran; one that waits again has nothing to tell."""
    ran = [usage for usage in attempts if usage.record.start_time is not None and _held(usage)]
    return ran[-1] if ran else attempts[-1]


def _ran(attempts: Sequence[JobUsage]) -> list[JobUsage]:
    """Return the attempts that ran, oldest first; the newest one where none did."""
    return [*filter(_has_run, attempts)] or [_newest(attempts)]


def _has_run(usage: JobUsage) -> bool:
    """Say whether an attempt had time to use something; where Slurm lost its time, use tells."""
    lasted = usage.record.start_time is not None and usage.record.elapsed_s != 0
    return _held(usage) and (lasted or _cpu_of(usage) is not None)


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


def _figures(ran: Sequence[JobUsage], newest: JobUsage) -> dict[str, float | int | None]:
    """Return the figures of attempts together; limits are the newest one's, which a job has now."""
    cpu_s, peak = cpu_seconds(*ran), _whole(memory_peak(*ran))
    nodes, gpus = ({getattr(row, name) for row in ran} for name in ("alloc_nodes", "alloc_gpus"))
    # Slurm adds up over nodes: the sums of a different number of them are not alike.
    limit = newest.memory_limit_bytes if nodes == {newest.alloc_nodes} else None
    return {
        "cpu_s": cpu_s,
        "cpu_efficiency_percent": _cpu_efficiency(cpu_s, ran),
        "memory_efficiency_percent": peak / limit * 100 if peak is not None and limit else None,
        # What one node used can only be told where there is one, or one alone has a step.
        "memory_peak_bytes": peak if nodes == {1} or _on_first_node(ran) else None,
        "memory_limit_bytes": newest.memory_limit_bytes_per_node,
        "gpu_utilization_peak_percent": gpu_util_peak(*ran).value,
        "gpu_memory_peak_bytes": _whole(gpu_memory_peak(*ran)) if gpus == {1} else None,
    }


def _on_first_node(ran: Sequence[JobUsage]) -> bool:
    """Say whether all attempts had as many nodes, and a step on the first one alone."""
    return len({usage.alloc_nodes for usage in ran}) == 1 and all(map(has_batch_alone, ran))


def _whole(peak: Peak) -> int | None:
    return None if peak.value is None else round(peak.value)


def _limits(ran: Sequence[JobUsage]) -> Iterator[Remark]:
    """Yield what the reader should know of the figures of attempts."""
    yield from _cpu_limits(ran)
    peaks: list[tuple[str, tuple[str, ...], Peak]] = [("CPU memory", _MEMORY, memory_peak(*ran))]
    gpus = {usage.alloc_gpus for usage in ran}
    if gpus != {0}:
        peaks.append(("GPU peaks", _GPU_PEAKS, gpu_util_peak(*ran)))
    if gpus == {1} and not peaks[-1][2].low:
        # Where it is not known, GPU peaks are not, and this is said above.
        peaks.append(("GPU memory", _GPU_PEAKS[1:], replace(gpu_memory_peak(*ran), why=None)))
    if {usage.alloc_nodes for usage in ran} != {1} and _on_first_node(ran):
        # What a script started elsewhere without Slurm (ssh) may have used more.
        text = "CPU memory of a node is a lower bound: Slurm knows of no step on the other nodes."
        note = SourceNote(code="at_least", text=text)
        if peaks[0][2].value is not None:
            yield Remark(figures=_MEMORY[:1], note=note, at_least=True)
    for label, figures, peak in peaks:
        if peak.why:
            text = f"{label} not measured by Slurm: {peak.why}."
            yield Remark(figures=figures, note=SourceNote(code="not_measured", text=text))
        if peak.low:
            text = f"{label} is a lower bound: {peak.low}."
            note = SourceNote(code="at_least", text=text)
            yield Remark(figures=figures, note=note, at_least=True)


def _cpu_limits(ran: Sequence[JobUsage]) -> Iterator[Remark]:
    lacking = [usage for usage in ran if _cpu_of(usage) is None]
    if lacking and any(step.cpu_s for usage in ran for step in usage.steps):
        low = cpu_seconds(*ran) is not None
        what = "a lower bound" if low else "unknown"
        text = f"CPU time is {what}: accounting lacks some of {attempt_names(lacking, ran)}."
        note = SourceNote(code="at_least" if low else "not_measured", text=text)
        yield Remark(figures=tuple(_NO_CPU), note=note, at_least=low)
    polled = [*dict.fromkeys(step.step for job in ran for step in job.steps if step.cpu_polled)]
    if polled:
        names = ", ".join(polled[:MOST_NAMES]) + ", ..." * (len(polled) > MOST_NAMES)
        text = (
            f"The CPU time of step {names} comes from Slurm's polls (TRESUsageInTot). The "
            "sum at the end (TotalCPU) lacks processes whose parent did not wait for them."
        )
        yield Remark(figures=("cpu_s",), note=SourceNote(code="cpu_polled", text=text))


def _of_newest(answer: Answer, of_all: Mapping[str, object]) -> Answer:
    """Return the site's record of a job that ran several times, without what sacct has of all.

    What is left of sums and peaks may be higher: the record lacks the earlier attempts.
    """
    own = (*_NO_CPU, *_MEMORY)
    rest = {
        name: value
        for name, value in answer.summary.items()
        if name not in own or of_all.get(name) is None
    }
    text = "The site's jobstats record has the newest attempt only."
    note = SourceNote(code="newest_attempt", text=text)
    told = Remark(figures=(*own, *_GPU_PEAKS, *_GPU_MEANS), note=note, of_known=True)
    low = replace(told, figures=("cpu_s", *_MEMORY, *_GPU_PEAKS, _GPU_MEANS[1]), at_least=True)
    return replace(answer, summary=rest, remarks=(*answer.remarks, told, low))


def cpu_seconds(*attempts: JobUsage) -> float | None:
    """Return the CPU time of all steps; None if that of more than a little time is not known."""
    known = [cpu_s for usage in attempts if (cpu_s := _cpu_of(usage)) is not None]
    if not known or len(known) == len(attempts):
        return sum(known) or None
    told = total(_elapsed(usage.record) for usage in attempts if _cpu_of(usage) is not None)
    whole = total(_elapsed(usage.record) for usage in attempts)
    if told is None or whole is None or not enough(percent_of(told, whole)):
        return None
    return sum(known)


def _cpu_of(usage: JobUsage) -> float | None:
    """Return the CPU time of an attempt; None if Slurm knows none, or has lost that of a step."""
    known = [step.cpu_s for step in usage.steps if step.cpu_s is not None]
    return None if has_lost(usage) else max(usage.total_cpu_s or 0.0, sum(known)) or None


def _cpu_efficiency(cpu_s: float | None, attempts: Sequence[JobUsage]) -> float | None:
    """Return the share of cores x time; over 100 % only if whole seconds cannot explain it."""
    core_s = total(map(_core_seconds, attempts))
    if cpu_s is None or not core_s:
        return None
    share = cpu_s / core_s * 100
    rounded_s = sum(usage.alloc_cpus or 0 for usage in attempts)
    return min(share, 100.0) if cpu_s <= core_s + rounded_s else share


def _core_seconds(usage: JobUsage) -> float | None:
    """Return cores x time of an attempt; None if not known, or if Slurm has lost its time."""
    elapsed, cores = _elapsed(usage.record), usage.alloc_cpus
    if not cores or elapsed is None or (not elapsed and (_cpu_of(usage) or 0.0) > cores):
        return None
    return cores * elapsed
