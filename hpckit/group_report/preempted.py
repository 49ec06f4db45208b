"""Ends of the user's own runs that Slurm calls by another name, because of a preemption.

Until 24.05 it calls FAILED what ends in a preemption's grace time; from then on it may call
PREEMPTED what has ended by itself in a later attempt: `hpckit.submission.no_requeue`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from hpckit.files import DamagedFileError
from hpckit.group_report.allocations import APART_S, Allocation
from hpckit.group_report.measured import run_of
from hpckit.run_folders.ranks import rank_file, read_all_attempts, read_attempts
from hpckit.run_folders.runs import Run
from hpckit.slurm.states import JobState

_DOUBTED = (JobState.FAILED, JobState.PREEMPTED)
_MOST = 1000  # attempts: a damaged record may number them as it likes


def as_known(row: Allocation, runs: Mapping[str, Sequence[Run]]) -> Allocation:
    """Return an attempt with the state that `hpckit status` shows, where a run of it tells that.

    Args:
        row: the attempt.
        runs: the user's own, by the ids of their jobs, newest first.
    """
    run = run_of(row, runs) if row.state in _DOUBTED else None
    number = _number(row, run) if run else None
    if run is None or number is None or number > _MOST:
        return row
    from hpckit.stop_marks import PREEMPTED, marks_of, marks_until  # noqa: PLC0415  # few end so
    from hpckit.submission.verdict import unless_over  # noqa: PLC0415  # as above

    words = marks_until(marks_of(run.dir, 0), number)
    if not any(PREEMPTED in said for said in words):
        return row
    ranks = [rank for rank in read_all_attempts(run.dir) if rank.restart == number]
    return replace(row, state=unless_over(row.state, ranks, run.ranks, words))


def _number(row: Allocation, run: Run) -> int | None:
    """Return the number that the run gives an attempt; None: rank 0 did not begin in it."""
    try:
        known = read_attempts(rank_file(run.dir, 0))
    except (OSError, DamagedFileError):
        return None
    # Slurm's times are whole seconds, those of ranks are not.
    last = float("inf") if row.end is None else row.end + 1
    began = [rank.restart for rank in known if row.start - APART_S <= rank.started < last]
    return max(began, default=None)
