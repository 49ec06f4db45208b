"""Jobs as they are now, and which of them stand on which line: filtered, sorted, folded. Pure."""

from collections import Counter
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Any

from hpckit.frozen import frozen
from hpckit.run_folders.metrics import Progress
from hpckit.slurm.states import JobState, is_finished, is_good, is_waiting


@frozen(kw_only=True)
class JobNow:
    """One job, or one task of an array; None is unknown. Moments are epoch seconds.

    Attributes:
        key: what no other job has. array: what the tasks of one array have in common.
        whole: the array's own id. task: its number in it.
        reason: Slurm's code; `why` says it in words.
        busy: percent of its GPUs' time, oldest first, as its samples have it.
        handle: the run itself, for what is done with it.
    """

    key: str
    job_id: str
    name: str
    state: JobState
    array: str | None = None
    whole: str | None = None
    task: int = 0
    reason: str | None = None
    why: str | None = None
    elapsed_s: float | None = None
    expected_start: float | None = None
    submitted_at: float = 0.0
    hosts: tuple[str, ...] = ()
    gpus: int = 0
    restarts: int | None = None
    exit_code: int | None = None
    progress: Progress | None = None
    busy: tuple[float | None, ...] = ()
    folder: str = ""
    handle: Any = None

    @property
    def over(self) -> bool:
        """Whether it has ended for good."""
        return is_finished(self.state)


class Order(StrEnum):
    """By what lines are sorted."""

    NEWEST = "newest"
    STATE = "state"
    NAME = "name"
    TIME = "time"


@frozen(kw_only=True)
class View:
    """What the user wants to see.

    Attributes:
        text: only jobs that have it in their id, name, state or reason; any letter case.
        folded: arrays are one line each, but those in `opened`, by their `array`.
    """

    text: str = ""
    order: Order = Order.NEWEST
    folded: bool = True
    opened: frozenset[str] = frozenset()


@frozen(kw_only=True)
class Line:
    """One line: a job, or the tasks of an array that were not filtered out."""

    key: str
    jobs: tuple[JobNow, ...]

    @property
    def first(self) -> JobNow:
        """The job, or the array's first task."""
        return self.jobs[0]

    @property
    def is_array(self) -> bool:
        """Whether it stands for several tasks."""
        return len(self.jobs) > 1


def lines(jobs: Iterable[JobNow], view: View) -> list[Line]:
    """Return what is shown, in order."""
    text = view.text.casefold()
    groups: dict[str, list[JobNow]] = {}
    for job in jobs:
        if text and not _has(job, text):
            continue
        fold = view.folded and job.array is not None and job.array not in view.opened
        groups.setdefault(f"array {job.array}" if fold else job.key, []).append(job)
    found = [
        Line(key=key, jobs=tuple(sorted(rows, key=lambda job: job.task)))
        for key, rows in groups.items()
    ]
    return sorted(found, key=lambda line: _place(line, view.order))


def toggled(view: View, line: Line) -> frozenset[str]:
    """Return `opened` with the array of a line open, if it was not, else folded."""
    return view.opened ^ ({line.first.array} if line.first.array else set())


def counts(jobs: Iterable[JobNow]) -> list[tuple[JobState, int]]:
    """Return how many are in which state: what runs, waits, went wrong, ended."""
    found = Counter(job.state for job in jobs)
    return sorted(found.items(), key=lambda row: (_rank(row[0]), row[0]))


def _has(job: JobNow, text: str) -> bool:
    words = (job.job_id, job.name, str(job.state), job.reason or "")
    return any(text in word.casefold() for word in words)


def _rank(state: JobState) -> int:
    if is_waiting(state):
        return 2
    if not is_finished(state):
        return 1
    return 4 if is_good(state) else 3


def _place(line: Line, order: Order) -> tuple[Any, ...]:
    """Return a line's place; of equals the newest first, and tasks of one array in order."""
    newest = (-line.first.submitted_at, line.first.array or line.first.key, line.first.task)
    if order is Order.STATE:
        return (min(_rank(job.state) for job in line.jobs), *newest)
    if order is Order.NAME:
        return (line.first.name.casefold(), *newest)
    if order is Order.TIME:
        return (-max((job.elapsed_s or 0.0) for job in line.jobs), *newest)
    return newest


def next_order(order: Order) -> Order:
    """Return the order after one."""
    every: Sequence[Order] = tuple(Order)
    return every[(every.index(order) + 1) % len(every)]
