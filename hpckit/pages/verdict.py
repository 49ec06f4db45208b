"""A job in a few sentences, before all figures."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hpckit.report.terminal import duration, hours, percent
from hpckit.slurm.resized import by_attempt
from hpckit.slurm.states import unstarted
from hpckit.stats.advice.engine import Advice
from hpckit.stats.advice.rules import Severity
from hpckit.stats.summary.figures import JobUse, attempt_words

# What a verdict's colour says, in a word too.
WORDS = {
    "red": "Needs action",
    "yellow": "Could be better",
    "info": "Good",
    "good": "Good",
    "ended": "It ended well",
    "unknown": "Not known yet",
}
_GOOD, _OPEN = ("COMPLETED",), ("PENDING", "RUNNING", "UNKNOWN", "SUSPENDED", "COMPLETING")


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """What to say first: a level (a key of `WORDS`), and sentences."""

    level: str
    sentences: tuple[str, ...]


def verdict(job: JobUse, advice: Sequence[Advice]) -> Verdict:
    """Judge a job by its end and its worst advice."""
    return Verdict(level=_level(job, advice), sentences=tuple(_sentences(job, advice)))


def _level(job: JobUse, advice: Sequence[Advice]) -> str:
    state = job.state or "UNKNOWN"
    worst = str(advice[0].severity) if advice else ""
    if worst == Severity.RED or state not in (*_GOOD, *_OPEN):
        return "red"
    if worst:
        return worst
    if job.summary.gpu_utilization_percent is not None or job.per_node:
        return "good"
    return "ended" if state in _GOOD else "unknown"


def _attempts(job: JobUse) -> str:
    """Say in how many attempts a job ran, and how those before the last one ended."""
    if len(job.attempts) < 2:
        return ""
    ends = Counter(parts[-1].state or "?" for parts in by_attempt(job.attempts)[:-1])
    words = ", ".join(f"{count} ended {state}" for state, count in ends.items())
    return f" in {attempt_words(job)}" + (f" ({words})" if words else "")


def _sentences(job: JobUse, advice: Sequence[Advice]) -> Iterator[str]:
    state = job.state or "UNKNOWN"
    if job.elapsed_s is None:
        yield f"{state}: the job {unstarted(state)}." if job.start is None else f"{state}."
    else:
        so_far = " so far" if job.running else ""
        code = f" with exit status {job.exit_code}" if job.exit_code else ""
        yield f"{state}{code} after {duration(job.elapsed_s)}{so_far}{_attempts(job)}."
    summary = job.summary
    if summary.gpu_utilization_percent is not None:
        used = f"The GPUs were busy for {percent(summary.gpu_utilization_percent)} of the time"
        if summary.gpu_hours and summary.gpu_hours_idle is not None:
            idle = f"{hours(summary.gpu_hours_idle)} of {hours(summary.gpu_hours)} GPU-hours"
            used += f"; {idle} were idle"
        yield used + "."
    elif summary.cpu_efficiency_percent is not None:
        yield f"The cores were used for {percent(summary.cpu_efficiency_percent)} of the time."
    if advice:
        yield advice[0].message
        if len(advice) > 1:
            yield f"There is more advice: {len(advice) - 1} below."
    elif job.elapsed_s is not None:
        yield "hpckit has no advice."
