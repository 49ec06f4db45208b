"""Waiting for runs, and ending them."""

import itertools
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from hpckit.errors import OutsideError, RequestError, StillRunningError
from hpckit.run_folders.find import refuse_doubtful
from hpckit.run_folders.runs import Run
from hpckit.schedulers.local.state import ask_cancel
from hpckit.slurm.client import left_s, own_patience_s, patience
from hpckit.slurm.states import JobState, SlurmSource
from hpckit.submission.states import by_scheduler, statuses
from hpckit.submission.status import RunStatus
from hpckit.text import counted

# Slurm's controller serves everybody: ask soon at first, then ever more seldom.
_FIRST_S, _GROWTH = 0.3, 1.3
_LATE, _LEAST = 0.01, 0.8
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

    In the place of a run that has failed and was submitted again (`--retry`) stands its retry.

    Raises:
        StillRunningError: `timeout_s` seconds have passed; the runs go on. OutsideError: nothing
            here can tell what becomes of one.
    """
    found: list[RunStatus] = []
    now = list(runs)
    for found in _rounds(now, timeout_s, max(_ROUND_S, own_patience_s())):
        if look:
            look(found)
        after = [_retry_of(status) for status in found]
        if any(after):
            now[:] = [new or old for new, old in zip(after, now, strict=True)]
            continue
        if all(status.finished or status.never_starts for status in found):
            return found
        if lost := [status.reason_text for status in found if status.elsewhere]:
            raise OutsideError(f"Nothing to wait for here: {lost[0]}")
    raise StillRunningError(_not_over(found, timeout_s or 0.0))


def until_it_runs(run: Run, look: Callable[[list[RunStatus]], None] | None = None) -> RunStatus:
    """Return what a run is once it runs, is over, or will never start; `look` sees each round.

    Raises:
        OutsideError: nothing here can tell what becomes of it.
    """
    rounds = _rounds([run], None, max(_ROUND_S, own_patience_s()))
    while True:
        found = next(rounds)  # they go on without end
        if look:
            look(found)
        status = found[0]
        if status.elsewhere:
            raise OutsideError(f"Nothing to wait for here: {status.reason_text}")
        if status.state is JobState.RUNNING or status.finished or status.never_starts:
            return status


def _retry_of(status: RunStatus) -> Run | None:
    """Return the run that tries a failed one again; None: nothing does, or it did not fail."""
    if status.good or not status.finished or not status.run.record["request"].get("retry"):
        return None
    from hpckit.submission.retry import retry_after  # noqa: PLC0415  # few runs have rules

    return retry_after(status.run)


def _not_over(found: Sequence[RunStatus], after_s: float) -> str:
    """Say what is known of runs that were waited for in vain."""
    going_on = [status for status in found if not status.finished]
    silent = [status for status in going_on if status.unanswered]
    one = len(going_on) == 1
    text = (
        f"{len(going_on)} of {counted(len(found), 'run')} {'is' if one else 'are'} not over after "
        f"{after_s:g} s"
    )
    if not silent:
        return f"{text}; {'it continues' if one else 'they continue'}."
    return (
        f"{text}, as far as hpckit knows: Slurm did not answer for {len(silent)} of them. "
        f"{silent[0].silence}"
    )


def _rounds(
    runs: Sequence[Run], timeout_s: float | None, round_s: float
) -> Iterator[list[RunStatus]]:
    """Yield what runs are, again and again, until the time is up; each round takes `round_s` s.

    Others that stand in the place of some since then are asked about at once.
    """
    until = float("inf") if timeout_s is None else time.monotonic() + timeout_s
    over: dict[Path, RunStatus] = {}
    for pause in pauses(runs):
        with patience(max(min(round_s, until - time.monotonic()), _SHORTEST_S)):
            found = _asked_again(runs, over)
        yield found
        if any(row.run.dir != run.dir for row, run in zip(found, runs, strict=True)):
            continue
        left_s = until - time.monotonic()
        if left_s <= 0:
            return
        time.sleep(min(pause, left_s))


def _asked_again(runs: Sequence[Run], over: dict[Path, RunStatus]) -> list[RunStatus]:
    """Return what runs are, but ask no more for those in `over`, which gets those that are over.

    Accounting would be asked for them in each round once Slurm's queue has forgotten them.
    """
    found = statuses([run for run in runs if run.dir not in over], in_full=True)
    fresh = {row.run.dir: row for row in found}
    over.update({folder: row for folder, row in fresh.items() if row.finished})
    return [over.get(run.dir) or fresh[run.dir] for run in runs]


def pauses(runs: Sequence[Run]) -> Iterator[float]:
    """Yield, without end, the seconds between two questions about runs.

    Who has waited for an hour learns of an end half a minute late: 1 % of the time. A little is
    left to chance, so that many who wait do not ask in the same moment.
    """
    longest = max((run.scheduler.most_pause_s for run in runs), default=_FIRST_S)
    most = max((run.scheduler.seldom_s for run in runs), default=_FIRST_S)
    waited = 0.0
    for number in itertools.count():
        limit = min(max(longest, waited * _LATE), most)
        pause = min(_FIRST_S * _GROWTH ** min(number, 100), limit)
        waited += pause
        yield pause * random.uniform(_LEAST, 1.0)  # noqa: S311  # no secret


def over_by_and_by(
    runs: Sequence[Run], look: Callable[[list[RunStatus]], None] | None = None
) -> Callable[[], bool]:
    """Return what says, each time it is called, whether runs are over or cannot be told to be.

    It may be called all the time: it asks as seldom as `wait` does. `look` sees each answer.
    """
    waits, due, over = pauses(runs), 0.0, False
    ended: dict[Path, RunStatus] = {}

    def ask() -> bool:
        nonlocal due, over
        if not over and time.monotonic() >= due:
            found = _asked_again(runs, ended)
            over = all(row.nothing_to_come for row in found)
            if look:
                look(found)
            due = time.monotonic() + next(waits)
        return over

    return ask


def cancel(runs: Sequence[Run]) -> list[RunStatus]:
    """End runs, and those that try them again (`--retry`); return what they are a moment later.

    Runs that are over stay as they were. Runs that the user did not name come last.

    Raises:
        RequestError: a run is somebody else's, whose folder is not ours to write to.
        UnknownOutcomeError: one was being submitted again, and Slurm does not say whether it was.
        OutsideError: the folder of one cannot be written, so it may be submitted again.
    """
    refuse_of_others(runs)
    if not any(run.record["request"].get("retry") for run in runs):
        return _cancel(runs)
    from hpckit.submission.called_off import end_with_retries  # noqa: PLC0415  # few have rules

    return end_with_retries(runs, _cancel)


def refuse_of_others(runs: Sequence[Run]) -> None:
    """Refuse to end what is somebody else's.

    Raises:
        RequestError: a run is.
    """
    for run in runs:
        if not run.mine:
            how = run.scheduler.by_hand(run.job_id)
            refuse_doubtful(run, run.run_id)
            raise RequestError(
                f"Run {run.run_id} belongs to {run.owner}. Only its owner can cancel it "
                f"with hpckit.{how}"
            )


def _cancel(runs: Sequence[Run]) -> list[RunStatus]:
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
                _mark(run)
        with patience(max(left_s(), _SHORTEST_S), anew=True):  # many runs take long to look at
            for scheduler, its in by_scheduler(alive).items():
                scheduler.cancel(its)
        rest_s = left_s()
    for run in alive:
        if not run.scheduler.by_mark:
            _mark(run)  # for when its scheduler has forgotten it; the job ends without it, too
    return _settled(runs, rest_s, before)


def _mark(run: Run) -> None:
    """Leave the mark of a cancel in a run's folder, which may be on a full disk, or read-only.

    Of a run that only the mark can end, `hpckit.api.cancel` says that it goes on.
    """
    with suppress(OSError):
        ask_cancel(run.dir)


def _settled(
    runs: Sequence[Run], patience_s: float, before: Mapping[Path, RunStatus]
) -> list[RunStatus]:
    """Return what runs are once they are over, or after a while.

    The while is longer than `patience_s` seconds only if Slurm answers.
    """
    began = time.monotonic()
    for pause in pauses(runs):
        left = patience_s - (time.monotonic() - began)
        with patience(left if left > _LAST_S else _SHORTEST_S, anew=True):
            found = [_removed(row, before[row.run.dir]) for row in statuses(runs)]
        spent = time.monotonic() - began
        going_on = [row for row in found if not (row.finished or row.elsewhere)]
        silent = any(row.unanswered for row in going_on)
        if not going_on or spent >= (patience_s - _LAST_S if silent else _SETTLING_S):
            break
        time.sleep(pause)
    return found


def _removed(row: RunStatus, before: RunStatus) -> RunStatus:
    """Return what a run is that waited before it was cancelled, and that the queue lost since.

    Slurm's queue keeps every job for some minutes but a task of an array that never ran. So this
    needs no word of accounting.
    """
    listed = before.waiting and before.source == SlurmSource.SQUEUE
    if not (listed and row.left_queue) or row.finished:
        return row
    return replace(
        row, state=JobState.CANCELLED, source=SlurmSource.SQUEUE, silence=None, reason_text=None,
    )  # fmt: skip
