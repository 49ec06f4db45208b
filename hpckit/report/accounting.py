"""What Slurm's accounting says a job used, as answers to merge; and its peaks. Pure.

Slurm looks at a step every so often (JobAcctGatherFrequency, 30 s unless set) and keeps the highest
of what it saw. So a step shorter than two looks was seen in its start at best; and `extern` adds up
processes that come and go and were never there at once. Neither tells a peak.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from hpckit.frozen import frozen
from hpckit.report.terminal import duration, size
from hpckit.slurm.states import JobRecord, is_finished, parse_state
from hpckit.slurm.usage_rows import JobUsage, StepUsage
from hpckit.stats.js1 import Js1, covers_attempt, decode, elapsed_of, from_record
from hpckit.stats.merge import Answer, Remark
from hpckit.stats.summary.coverage import total
from hpckit.stats.summary.figures import SACCT, SSTAT, SourceNote
from hpckit.text import format_seconds

EXTERN = "extern"
# slurm.conf(5), JobAcctGatherFrequency.
_USUAL_POLL_S = 30
_POLLS = 2
# No program that has loaded its libraries is as small: such a one was seen while it was started.
_STARTING_BYTES, _STARTING_CPU_S = 1 << 20, 10.0
# Memory goes with work: the steps that were measured must have done nearly all of the job's.
_MOST_WORK = 0.9
_LITTLE = 0.1
# Percent of a GPU: what several steps do on one is not more.
_WHOLE = 100.0
_NO_SUM = "Slurm does not measure the sum over tasks and steps"
_TOO_SHORT = "ended before Slurm had measured it twice"


@frozen(kw_only=True)
class Peak:
    """The highest use of a job, as far as Slurm measured it.

    Attributes:
        value: None if it is not known.
        low: why it may have been higher, in half a sentence.
        why: why it is not known, in half a sentence; None too if there was nothing to measure.
    """

    value: float | None = None
    low: str | None = None
    why: str | None = None


def memory_peak(job: JobUsage) -> Peak:
    """Return the highest use of any step in bytes, on all nodes together (as seff has it)."""
    steps = _working(job)
    seen = [step for step in steps if step.memory_bytes and measured(step, job)]
    if not seen:
        return Peak(why=_why(job, steps))
    # A step that was seen too seldom had at least what was seen.
    peak = max(step.memory_bytes or 0 for step in steps)
    outside = max((step.memory_task_bytes or 0 for step in _outside(job)), default=0)
    if outside > peak:
        had = f"a process outside Slurm's steps (extern) had {size(outside)}"
        return Peak(why=f"{had}, and their sum was not measured")
    if not _did_the_work(seen, steps):
        return Peak(why=f"at least {size(peak)}, but most of it {_TOO_SHORT} {_period(job)}")
    if any(step.memory_at_least for step in seen) or _more(_memory_together(job), peak):
        return Peak(value=peak, low=_NO_SUM)
    return Peak(value=peak, low=_short(job, peak, (step.memory_bytes or 0 for step in seen)))


def gpu_util_peak(job: JobUsage) -> Peak:
    """Return the highest gpuutil of any step, divided by the step's GPUs: a peak, not a mean."""
    told = [
        (step, step.gpu_util_peak / gpus)
        for step in _working(job)
        if step.gpu_util_peak is not None and (gpus := step.gpus or job.alloc_gpus)
    ]
    sums = [(step, float(step.gpu_util_peak or 0)) for step, _ in told]
    gpus = job.alloc_gpus or max((step.gpus or 1 for step, _ in told), default=1)
    return _gpu_peak(job, told, min(_together(sums) / gpus, _WHOLE))


def gpu_memory_peak(job: JobUsage) -> Peak:
    """Return the highest gpumem of any step in bytes, on all its GPUs together."""
    told = [
        (step, step.gpu_memory_peak_bytes)
        for step in _working(job)
        if step.gpu_memory_peak_bytes is not None
    ]
    return _gpu_peak(job, told, _together(told))


def measured(step: StepUsage, job: JobUsage) -> bool:
    """Say whether Slurm looked at a step often enough to have seen its highest use.

    Of a step that runs, `sstat` makes it look.
    """
    if step.live:
        return True
    poll_s = _poll_s(job)
    lasted = job.record.elapsed_s if step.elapsed_s is None else step.elapsed_s
    if not poll_s or (lasted is not None and lasted < _POLLS * poll_s):
        return False
    tasks = step.tasks or 1
    starting = step.memory_bytes is not None and step.memory_bytes < _STARTING_BYTES * tasks
    return not (starting and (step.cpu_s or 0.0) > _STARTING_CPU_S * tasks)


def _working(job: JobUsage) -> list[StepUsage]:
    return [step for step in job.steps if step.step != EXTERN]


def _outside(job: JobUsage) -> list[StepUsage]:
    return [step for step in job.steps if step.step == EXTERN]


def _gpu_peak(job: JobUsage, told: Sequence[tuple[StepUsage, float]], together: float) -> Peak:
    # Slurm's 0 of everything is that of a step it never looked at.
    seen = [
        (step, value)
        for step, value in told
        if measured(step, job)
        and (step.memory_bytes or step.gpu_memory_peak_bytes or step.gpu_util_peak)
    ]
    if not seen:
        return Peak(why=_why(job, [step for step, _ in told]) if told else None)
    names = {step.step for step, _ in told}
    # Steps that it looked at and found without GPUs do not count.
    due = [step for step in _working(job) if step.step in names or not step.memory_bytes]
    if not _did_the_work([step for step, _ in seen], due):
        return Peak(why=f"most of it {_TOO_SHORT} {_period(job)}")
    peak = max(value for _, value in told)
    if any(step.gpu_at_least for step, _ in seen) or _more(together, peak):
        return Peak(value=peak, low=_NO_SUM)
    return Peak(value=peak, low=_short(job, peak, (value for _, value in seen)))


def _short(job: JobUsage, peak: float, seen: Iterable[float]) -> str | None:
    """Say that a step had the highest that Slurm had not seen often enough, if so."""
    return f"the step that had it {_TOO_SHORT} {_period(job)}" if peak > max(seen) else None


def _memory_together(job: JobUsage) -> float:
    """Return the most that steps which ran side by side may have had together, in bytes.

    Of what `extern` adds up, only one process is known to have been there at once.
    """
    parts = [(step, float(step.memory_bytes or 0)) for step in _working(job)]
    parts += [(step, float(step.memory_task_bytes or 0)) for step in _outside(job)]
    return _together(parts)


def _together(parts: Sequence[tuple[StepUsage, float]]) -> float:
    """Return the highest sum of the values of steps that ran at one time, or may have.

    A moment that is not known may be any. A step that began in the second in which another ended
    came after it: so Slurm writes the steps of a script that starts one after another.
    """
    changes: list[tuple[float, float]] = []
    for step, value in parts:
        began = -math.inf if step.start_time is None else step.start_time
        ended = math.inf if step.end_time is None else step.end_time
        if value and began < ended:
            changes += [(began, value), (ended, -value)]
    now = highest = 0.0
    for _, change in sorted(changes):  # at one moment, ends come first
        now += change
        highest = max(highest, now)
    return highest


def _more(together: float, peak: float) -> bool:
    """Say whether a sum is so much more than a peak that the peak may have been missed."""
    return together > peak * (1 + _LITTLE)


def _did_the_work(seen: Sequence[StepUsage], steps: Sequence[StepUsage]) -> bool:
    return sum(map(_work, seen)) >= _MOST_WORK * sum(map(_work, steps))


def _work(step: StepUsage) -> float:
    """Return a step's CPU time; of one without any, the time it took."""
    return step.cpu_s or float(step.elapsed_s or 0)


def _why(job: JobUsage, steps: Sequence[StepUsage]) -> str | None:
    """Say why no step has a figure; None where there is none to ask about."""
    if not job.steps:
        return None
    if not steps:
        return "Slurm measured only its own step (extern), not the other processes"
    if not _poll_s(job):
        return "Slurm does not measure running jobs here (JobAcctGatherFrequency=0)"
    if max((step.elapsed_s or 0 for step in steps), default=0) < _POLLS * _poll_s(job):
        return f"it {_TOO_SHORT} {_period(job)}"
    return "Slurm measured its processes only at their start, or never"


def _period(job: JobUsage) -> str:
    usual = " unless the site says otherwise" if job.poll_s is None else ""
    return f"(every {duration(_poll_s(job))}{usual})"


def _poll_s(job: JobUsage) -> float:
    return _USUAL_POLL_S if job.poll_s is None else job.poll_s


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
    if ours is None or theirs is None or covers_attempt(found.record, ours):
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
    peaks: list[tuple[str, tuple[str, ...], Peak]] = [("CPU memory", _MEMORY, memory_peak(usage))]
    if usage.alloc_gpus != 0:
        peaks.append(("GPU peaks", _GPU_PEAKS, gpu_util_peak(usage)))
    if usage.alloc_gpus == 1 and not peaks[-1][2].low:
        # Where it is not known, GPU peaks are not, and this is said above.
        peaks.append(("GPU memory", _GPU_PEAKS[1:], replace(gpu_memory_peak(usage), why=None)))
    for label, figures, peak in peaks:
        if peak.why:
            text = f"{label} not measured by Slurm: {peak.why}."
            yield Remark(figures=figures, note=SourceNote(code="not_measured", text=text))
        if peak.low:
            text = f"{label} is a lower bound: {peak.low}."
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
    note = SourceNote(code="newest_attempt", text=text)
    yield Remark(figures=figures, note=note, of_known=True)


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
