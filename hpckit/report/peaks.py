"""What of a job's use Slurm measured, and the highest of it. Pure.

Slurm looks at a step every so often (JobAcctGatherFrequency, 30 s unless set) and keeps the highest
of what it saw. So a step shorter than two looks was seen in its start at best; and `extern` adds up
processes that come and go and were never there at once. Neither tells a peak.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from hpckit.report.view import duration, size
from hpckit.slurm.usage_rows import JobUsage, StepUsage

EXTERN = "extern"
# slurm.conf(5), JobAcctGatherFrequency.
_USUAL_POLL_S = 30
_POLLS = 2
# No program that has loaded its libraries is as small: such a one was seen while it was started.
_STARTING_BYTES, _STARTING_CPU_S = 1 << 20, 10.0
# Memory goes with work: the steps that were measured must have done nearly all of the job's.
_MOST_WORK = 0.9
_LITTLE = 0.1
_TOO_SHORT = "ended before Slurm had measured it twice"


@dataclass(frozen=True, kw_only=True, slots=True)
class Peak:
    """The highest use of a job, as far as Slurm measured it.

    Attributes:
        value: None if it is not known.
        at_least: whether it may have been higher: Slurm does not say what several tasks, or
            steps side by side, used together.
        why: why it is not known, in half a sentence; None too if there was nothing to measure.
    """

    value: float | None = None
    at_least: bool = False
    why: str | None = None


def memory_peak(job: JobUsage) -> Peak:
    """Return the highest use of any step in bytes, on all nodes together (as seff has it)."""
    steps = _working(job)
    seen = [step for step in steps if step.memory_bytes and measured(step, job)]
    if not seen:
        return Peak(why=_why(job, steps))
    peak = max(step.memory_bytes or 0 for step in seen)
    beside = [step.memory_task_bytes or 0 for step in job.steps if step.step == EXTERN]
    if max(beside, default=0) > peak:
        outside = f"a process outside Slurm's steps (extern) had {size(max(beside))}"
        return Peak(why=f"{outside}, and their sum was not measured")
    if not _did_the_work(seen, steps):
        return Peak(why=f"at least {size(peak)}, but most of it {_TOO_SHORT} {_period(job)}")
    at_least = any(step.memory_at_least for step in seen) or _beside(seen, peak)
    return Peak(value=peak, at_least=at_least)


def gpu_util_peak(job: JobUsage) -> Peak:
    """Return the highest gpuutil of any step, divided by the step's GPUs: a peak, not a mean."""
    told = [
        (step, step.gpu_util_peak / gpus)
        for step in _working(job)
        if step.gpu_util_peak is not None and (gpus := step.gpus or job.alloc_gpus)
    ]
    return _gpu_peak(job, told)


def gpu_memory_peak(job: JobUsage) -> Peak:
    """Return the highest gpumem of any step in bytes, on all its GPUs together."""
    told = [
        (step, step.gpu_memory_peak_bytes)
        for step in _working(job)
        if step.gpu_memory_peak_bytes is not None
    ]
    return _gpu_peak(job, told)


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


def _gpu_peak(job: JobUsage, told: Sequence[tuple[StepUsage, float]]) -> Peak:
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
    return Peak(
        value=max(value for _, value in seen), at_least=any(step.gpu_at_least for step, _ in seen)
    )


def _beside(seen: Sequence[StepUsage], peak: int) -> bool:
    """Say whether steps ran beside the largest that together had much, compared with it."""
    largest = next(step for step in seen if step.memory_bytes == peak)
    others = (step for step in seen if step is not largest and _overlap(step, largest))
    return sum(step.memory_bytes or 0 for step in others) > _LITTLE * peak


def _overlap(one: StepUsage, other: StepUsage) -> bool:
    """Say whether two steps ran at the same time, or may have."""
    return not any(
        first.end_time is not None
        and second.start_time is not None
        and first.end_time <= second.start_time
        for first, second in ((one, other), (other, one))
    )


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
