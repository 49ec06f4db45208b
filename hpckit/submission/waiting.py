"""Waiting for runs, and ending them."""

import itertools
import time
from collections.abc import Callable, Iterator, Sequence

from hpckit.errors import OutsideError, RequestError, StillRunningError
from hpckit.find import refuse_doubtful
from hpckit.runs import Run
from hpckit.schedulers.local.state import ask_cancel
from hpckit.slurm.client import left_s, own_patience_s, patience
from hpckit.submission.states import RunStatus, by_scheduler, statuses

# Slurm's controller serves everybody: ask soon at first, then ever more seldom.
_FIRST_S, _GROWTH = 0.3, 1.3
# Who waits has time for a slow controller, but asks at least for so long.
_ROUND_S, _SHORTEST_S = 60.0, 2.0
# How long `cancel` looks for the end of what it cancelled; and what is too short for a question.
_SETTLING_S, _LAST_S = 15.0, 1.0


def wait(
    runs: Sequence[Run],
    *,
    timeout_s: float | None = None,
    look: Callable[[list[RunStatus]], None] | None = None,
) -> list[RunStatus]:
    """Wait until every run is over, or will never start; call `look` with each round of statuses.

    Raises:
        StillRunningError: `timeout_s` seconds have passed; the runs go on. OutsideError: nothing
            here can tell what becomes of one.
    """
    for found in _rounds(runs, timeout_s, max(_ROUND_S, own_patience_s())):
        if look:
            look(found)
        if all(status.finished or status.never_starts for status in found):
            return found
        if lost := [status.reason_text for status in found if status.elsewhere]:
            raise OutsideError(f"Nothing to wait for here: {lost[0]}")
    open_runs = sum(not status.finished for status in found)
    raise StillRunningError(
        f"{open_runs} of {len(found)} runs are not over after {timeout_s:g} s; they continue."
    )


def _rounds(
    runs: Sequence[Run], timeout_s: float | None, round_s: float
) -> Iterator[list[RunStatus]]:
    """Yield what runs are, again and again, until the time is up; each round takes `round_s` s."""
    until = float("inf") if timeout_s is None else time.monotonic() + timeout_s
    for pause in pauses(runs):
        with patience(max(min(round_s, until - time.monotonic()), _SHORTEST_S)):
            found = statuses(runs)
        yield found
        left_s = until - time.monotonic()
        if left_s <= 0:
            return
        time.sleep(min(pause, left_s))


def pauses(runs: Sequence[Run]) -> Iterator[float]:
    """Yield, without end, the seconds between two questions about runs."""
    longest = max((run.scheduler.most_pause_s for run in runs), default=_FIRST_S)
    for number in itertools.count():
        yield min(_FIRST_S * _GROWTH ** min(number, 100), longest)


def over_by_and_by(runs: Sequence[Run]) -> Callable[[], bool]:
    """Return what says, each time it is called, whether runs are over or cannot be told to be.

    It may be called all the time: it asks as seldom as `wait` does.
    """
    waits, due, over = pauses(runs), 0.0, False

    def look() -> bool:
        nonlocal due, over
        if not over and time.monotonic() >= due:
            over = all(
                status.finished or status.elsewhere or status.never_starts
                for status in statuses(runs)
            )
            due = time.monotonic() + next(waits)
        return over

    return look


def cancel(runs: Sequence[Run]) -> list[RunStatus]:
    """End runs; return what they are a moment later. Runs that are over stay as they were.

    Raises:
        RequestError: a run is somebody else's, whose folder is not ours to write to.
    """
    for run in runs:
        if not run.mine:
            how = run.scheduler.by_hand(run.job_id)
            refuse_doubtful(run, run.run_id)
            raise RequestError(
                f"Run {run.run_id} belongs to {run.owner}. Only its owner can cancel it "
                f"with hpckit.{how}"
            )
    with patience():
        with patience(left_s() / 2):  # the other half is for scancel
            before = {status.run.dir: status for status in statuses(runs)}
        seen = [before[run.dir] for run in runs]
        # A local run whose state cannot be read may be one of another machine, which sees the mark.
        alive = [
            row.run
            for row in seen
            if not row.finished and (row.run.scheduler.by_mark or not row.elsewhere)
        ]
        for run in alive:
            if run.scheduler.by_mark:
                ask_cancel(run.dir)
        with patience(max(left_s(), _SHORTEST_S), anew=True):  # many runs take long to look at
            for scheduler, its in by_scheduler(alive).items():
                scheduler.cancel(its)
        rest_s = left_s()
    for run in alive:
        ask_cancel(run.dir)  # a mark also for when its scheduler has forgotten it
    return _settled(runs, rest_s)


def _settled(runs: Sequence[Run], patience_s: float) -> list[RunStatus]:
    """Return what runs are once they are over, or after a while.

    The while is longer than `patience_s` seconds only if Slurm answers.
    """
    began = time.monotonic()
    for pause in pauses(runs):
        left = patience_s - (time.monotonic() - began)
        with patience(left if left > _LAST_S else _SHORTEST_S, anew=True):
            found = statuses(runs)
        spent = time.monotonic() - began
        going_on = [row for row in found if not (row.finished or row.elsewhere)]
        silent = any(row.unanswered for row in going_on)
        if not going_on or spent >= (patience_s - _LAST_S if silent else _SETTLING_S):
            break
        time.sleep(pause)
    return found
