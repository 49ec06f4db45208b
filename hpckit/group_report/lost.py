"""Attempts whose start or end accounting has lost: found elsewhere, or left out and said.

slurmdbd 22.05 at times writes over a start with that of a job which waits: none. Its row then says
that the attempt took no time. The start is that which the attempt's own ranks wrote.

An end gets lost where the controller lost its state, or could not reach slurmdbd. The row then
says RUNNING, and takes more time every day, until an administrator corrects it: sacctmgr(1), "show
runawayjobs". The end is that of a line in a ledger.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from hpckit.errors import CommandError
from hpckit.group_report.allocations import APART_S, Allocation
from hpckit.group_report.measured import run_of
from hpckit.run_folders.ranks import attempt_times
from hpckit.run_folders.runs import Run
from hpckit.slurm.client import patience
from hpckit.slurm.jobs import squeue
from hpckit.slurm.states import JobRecord, is_past_limit
from hpckit.text import counted, listed

_MOST_NAMED = 5


def by_ranks(rows: Sequence[Allocation], runs: Mapping[str, Sequence[Run]]) -> list[Allocation]:
    """Return attempts, those of a lost start with that of the first rank where a run tells it.

    Args:
        rows: the attempts.
        runs: the user's own, by the ids of their jobs, newest first.
    """
    return [_found(row, runs) or row if row.start_lost else row for row in rows]


def _found(row: Allocation, runs: Mapping[str, Sequence[Run]]) -> Allocation | None:
    run = run_of(row, runs)
    first = float("-inf") if row.submit is None else row.submit - APART_S
    last = float("inf") if row.end is None else row.end + APART_S
    times = [
        (start, end)
        for _, start, end in (attempt_times(run.dir) if run else ())
        if first <= start <= last
    ]
    # A requeue is a submission: of two attempts in that time, the earlier is only near it.
    return row.begun(*max(times, key=lambda time: time[0])) if times else None


@dataclass(frozen=True, kw_only=True, slots=True)
class Ends:
    """Attempts by whether accounting has lost their end.

    Attributes:
        rows: those that count.
        lost: those that the queue does not have.
        unsure: how many of `rows` may be like that, and why nobody can tell.
    """

    rows: Sequence[Allocation]
    lost: Sequence[Allocation] = ()
    unsure: tuple[int, CommandError] | None = None


def by_queue(rows: Sequence[Allocation]) -> Ends:
    """Ask the queue for attempts that accounting has beyond their time limit.

    Those within it may be others', whom the queue hides; beyond it Slurm would have ended them.
    """
    late = [row for row in rows if _is_late(row)]
    if not late:
        return Ends(rows=rows)
    try:
        with patience():
            queued = squeue([row.job_id for row in late])
    except CommandError as error:
        return Ends(rows=rows, unsure=(len(late), error))
    lost = {row for row in late if not _is_in(queued, row)}
    return Ends(
        rows=[row for row in rows if row not in lost], lost=[row for row in late if row in lost]
    )


def _is_late(row: Allocation) -> bool:
    known = row.end is not None or row.start_lost
    return not known and is_past_limit(row.state, row.elapsed_s, row.limit_s)


def _is_in(queued: Mapping[str, JobRecord], row: Allocation) -> bool:
    """Say whether the queue has a job; where the controller counts anew, not another user's."""
    found = queued.get(row.job_id)
    return found is not None and found.user in (None, row.user)


def end_notes(
    ends: Ends, ledger: Sequence[Allocation], *, hide_names: bool = False
) -> Iterator[str]:
    """Say which attempts without an end do not count; those count that a ledger has."""
    told = {(row.job_id, row.user) for row in ledger}
    left = [row for row in ends.lost if (row.job_id, row.user) not in told]
    if left:
        jobs, them = ("The job is", "it") if len(left) == 1 else ("The jobs are", "them")
        yield (
            f"{counted(len(left), 'attempt')} left out of all figures: accounting has lost the "
            f"end. {jobs} RUNNING there, beyond the time limit, and the queue does not have {them}"
            f"{_named(left, hide_names=hide_names)}. Administrators correct this: "
            "sacctmgr show runawayjobs"
        )
    if ends.unsure:
        count, error = ends.unsure
        they, are = ("it", "is") if count == 1 else ("they", "are")
        why = "" if hide_names else f": {str(error).rstrip('.')}"
        yield (
            f"{counted(count, 'attempt')} {are} beyond the time limit in accounting, and {they} "
            f"may be over: the queue does not answer{why}"
        )


def _named(rows: Sequence[Allocation], *, hide_names: bool) -> str:
    theirs = listed([f"{row.job_id} of {row.user}" for row in rows], _MOST_NAMED)
    return "" if hide_names else f" ({theirs})"


def lost_notes(
    found: int, left: Sequence[Allocation], *, hide_names: bool = False
) -> Iterator[str]:
    """Say which attempts count from another start than Slurm's, and which do not count.

    Args:
        found: of how many a run or a ledger told the start.
        left: those whose start nobody knows.
        hide_names: name no users and jobs.
    """
    if found:
        yield (
            f"of {counted(found, 'attempt')} accounting has lost the start: the hours count "
            "from the start that the job itself wrote down"
        )
    if left:
        yield (
            f"{counted(len(left), 'attempt')} left out of all figures: accounting has lost the "
            f"start, so the GPU-hours are unknown{_named(left, hide_names=hide_names)}"
        )
