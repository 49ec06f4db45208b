"""Which task of an array people mean who ask for its log, or for its error."""

from collections.abc import Sequence

from hpckit.run_folders.ranks import first_failure
from hpckit.slurm.states import JobState
from hpckit.submission.status import RunStatus


def task_to_show(found: Sequence[RunStatus], *, following: bool = False) -> RunStatus:
    """Return the task of an array whose log people mean: the first that failed, else that runs.

    A task that never started has none, so it comes last. `following` prefers one that goes on.
    """
    return min(found, key=lambda row: (_over(row) if following else 0, _place(row)))


def has_failed(status: RunStatus) -> bool:
    """Say whether a task is over and did not end well, or has a rank that did not."""
    return not status.good and (status.finished or first_failure(list(status.ranks)) is not None)


def _over(status: RunStatus) -> int:
    return 2 if status.finished else 1 if status.waiting else 0


def _place(status: RunStatus) -> int:
    if status.never_started:
        return 5
    if status.finished and not status.good:  # what was cancelled, somebody wanted so
        return 2 if status.state is JobState.CANCELLED else 0
    if has_failed(status):
        return 1
    return 4 if status.waiting else 3
