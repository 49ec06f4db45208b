"""Attempts whose start accounting has lost: by what their own ranks wrote, or left out and said.

slurmdbd 22.05 at times writes over a start with that of a job which waits: none. Its row then says
that the attempt took no time.
"""

from collections.abc import Iterator, Mapping, Sequence

from hpckit.group_report.allocations import APART_S, Allocation
from hpckit.group_report.measured import run_of
from hpckit.ranks import attempt_times
from hpckit.runs import Run
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
        theirs = [f"{row.job_id} of {row.user}" for row in left]
        named = "" if hide_names else f" ({listed(theirs, _MOST_NAMED)})"
        yield (
            f"{counted(len(left), 'attempt')} left out of all figures: accounting has lost the "
            f"start, so the GPU-hours are unknown{named}"
        )
