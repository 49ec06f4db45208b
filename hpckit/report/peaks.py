"""The highest use of a job that Slurm's accounting saw. Pure.

Slurm looks at a step every so often (JobAcctGatherFrequency, 30 s unless set) and keeps the highest
of what it saw. So a step shorter than two looks was seen in its start at best; and `extern` adds up
processes that come and go and were never there at once. Neither tells a peak.
"""

import math
from collections.abc import Iterable, Sequence

from hpckit.frozen import frozen
from hpckit.report.terminal import duration, size
from hpckit.slurm.resized import places, row_word
from hpckit.slurm.states import is_finished, parse_state
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
# Percent of a GPU: what several steps do on one is not more.
_WHOLE = 100.0
MOST_NAMES = 3
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


def memory_peak(*attempts: JobUsage) -> Peak:
    """Return the highest use of any step in bytes, on all nodes together (as seff has it)."""
    steps = [step for job in attempts for step in _working(job)]
    seen = {id(job): _with_memory(job) for job in attempts}
    known = [step for found in seen.values() for step in found]
    if not known:
        return Peak(why=_why(attempts, steps))
    # A step that was seen too seldom had at least what was seen.
    peak = max(step.memory_bytes or 0 for step in steps)
    outside = [step.memory_task_bytes or 0 for job in attempts for step in _outside(job)]
    if max(outside, default=0) > peak:
        had = f"a process outside Slurm's steps (extern) had {size(max(outside))}"
        return Peak(why=f"{had}, and their sum was not measured")
    if not _did_the_work(known, steps):
        why = f"at least {size(peak)}, but most of it {_TOO_SHORT} {_period(attempts[-1])}"
        return Peak(why=why)
    together = max(map(_memory_together, attempts))
    if any(step.memory_at_least for step in known) or _more(together, peak):
        return Peak(value=peak, low=_NO_SUM)
    unseen = [job for job in attempts if not seen[id(job)] or has_lost(job)]
    short = _short(attempts[-1], peak, (step.memory_bytes or 0 for step in known))
    return Peak(value=peak, low=_unmeasured(unseen, attempts) or short)


def has_batch_alone(job: JobUsage) -> bool:
    """Say whether the script is all that Slurm knows of a job: it runs on the first node."""
    return {step.step for step in _working(job)} == {"batch"}


def gpu_util_peak(*attempts: JobUsage) -> Peak:
    """Return the highest gpuutil of any step, divided by the step's GPUs: a peak, not a mean."""
    told = [
        (job, step, step.gpu_util_peak / gpus)
        for job in attempts
        for step in _working(job)
        if step.gpu_util_peak is not None and (gpus := step.gpus or job.alloc_gpus)
    ]
    return _gpu_peak(attempts, told, max(map(_util_together, attempts)))


def gpu_memory_peak(*attempts: JobUsage) -> Peak:
    """Return the highest gpumem of any step in bytes, on all its GPUs together."""
    told = [
        (job, step, step.gpu_memory_peak_bytes)
        for job in attempts
        for step in _working(job)
        if step.gpu_memory_peak_bytes is not None
    ]
    return _gpu_peak(attempts, told, max(map(_gpu_memory_together, attempts)))


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


def has_lost(job: JobUsage) -> bool:
    """Say whether Slurm has nothing of a step that was long enough: its node was lost, say."""
    return any(
        (step.cpu_s, step.memory_bytes, step.live) == (None, None, False)
        and is_finished(parse_state(step.state or ""))
        and (step.elapsed_s or 0) >= _POLLS * (_poll_s(job) or _USUAL_POLL_S)
        for step in _working(job)
    )


def _working(job: JobUsage) -> list[StepUsage]:
    return [step for step in job.steps if step.step != EXTERN]


def _with_memory(job: JobUsage) -> list[StepUsage]:
    return [step for step in _working(job) if step.memory_bytes and measured(step, job)]


def _outside(job: JobUsage) -> list[StepUsage]:
    return [step for step in job.steps if step.step == EXTERN]


def _gpu_peak(
    attempts: Sequence[JobUsage],
    told: Sequence[tuple[JobUsage, StepUsage, float]],
    together: float,
) -> Peak:
    # Slurm's 0 of everything is that of a step it never looked at.
    seen = [
        (job, step, value)
        for job, step, value in told
        if measured(step, job)
        and (step.memory_bytes or step.gpu_memory_peak_bytes or step.gpu_util_peak)
    ]
    if not seen:
        return Peak(why=_why(attempts, [step for _, step, _ in told]) if told else None)
    telling = {id(step) for _, step, _ in told}
    # Steps that it looked at and found without GPUs do not count.
    steps = [step for job in attempts for step in _working(job)]
    due = [step for step in steps if id(step) in telling or not step.memory_bytes]
    if not _did_the_work([step for _, step, _ in seen], due):
        return Peak(why=f"most of it {_TOO_SHORT} {_period(attempts[-1])}")
    peak = max(value for _, _, value in told)
    if any(step.gpu_at_least for _, step, _ in seen) or _more(together, peak):
        return Peak(value=peak, low=_NO_SUM)
    known = {id(job) for job, _, _ in seen}
    with_gpus = [job for job in attempts if job.alloc_gpus != 0]
    unseen = [job for job in with_gpus if id(job) not in known or has_lost(job)]
    short = _short(attempts[-1], peak, (value for _, _, value in seen))
    return Peak(value=peak, low=_unmeasured(unseen, attempts) or short)


def _unmeasured(some: Sequence[JobUsage], attempts: Sequence[JobUsage]) -> str | None:
    """Say of which attempts Slurm has not measured all, if any."""
    return f"Slurm has not measured all of {attempt_names(some, attempts)}" if some else None


def attempt_names(some: Sequence[JobUsage], attempts: Sequence[JobUsage]) -> str:
    """Return the numbers of some of a job's attempts, in words; of its only one, the job."""
    if len(attempts) == 1:
        return "the job"
    of = dict(zip(map(id, attempts), places(job.record for job in attempts), strict=True))
    numbers = [str(of[id(job)]) for job in some]
    more = ", ..." * (len(numbers) > MOST_NAMES)
    word = row_word([job.record for job in attempts])
    return f"{word}{'s' * (len(numbers) > 1)} {', '.join(numbers[:MOST_NAMES])}{more}"


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


def _util_together(job: JobUsage) -> float:
    """Return the most that steps side by side may have used of their GPUs, in percent of each."""
    told = [(step, float(step.gpu_util_peak or 0)) for step in _working(job)]
    gpus = job.alloc_gpus or max((step.gpus or 1 for step, _ in told), default=1)
    return min(_together(told) / gpus, _WHOLE)


def _gpu_memory_together(job: JobUsage) -> float:
    return _together([(step, float(step.gpu_memory_peak_bytes or 0)) for step in _working(job)])


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


def _why(attempts: Sequence[JobUsage], steps: Sequence[StepUsage]) -> str | None:
    """Say why no step has a figure; None where there is none to ask about."""
    if not any(job.steps for job in attempts):
        return None
    if not steps:
        return "Slurm measured only its own step (extern), not the other processes"
    poll_s = _poll_s(attempts[-1])
    if not poll_s:
        return "Slurm does not measure running jobs here (JobAcctGatherFrequency=0)"
    if max((step.elapsed_s or 0 for step in steps), default=0) < _POLLS * poll_s:
        return f"it {_TOO_SHORT} {_period(attempts[-1])}"
    return "Slurm measured its processes only at their start, or never"


def _period(job: JobUsage) -> str:
    usual = " unless the site says otherwise" if job.poll_s is None else ""
    return f"(every {duration(_poll_s(job))}{usual})"


def _poll_s(job: JobUsage) -> float:
    return _USUAL_POLL_S if job.poll_s is None else job.poll_s
