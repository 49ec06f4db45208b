"""Waiting for runs, and ending them."""

import time
from collections.abc import Callable, Sequence

from hpckit import localjob
from hpckit.errors import OutsideError, RequestError
from hpckit.runs import Run
from hpckit.slurm import control
from hpckit.submission.states import RunStatus, statuses

# Slurm's controller serves everybody: ask soon at first, then ever more seldom.
_FIRST_S, _SLURM_MAX_S, _LOCAL_MAX_S, _GROWTH = 0.3, 10.0, 1.0, 1.3


def wait(
    runs: Sequence[Run],
    *,
    timeout_s: float | None = None,
    look: Callable[[list[RunStatus]], None] | None = None,
) -> list[RunStatus]:
    """Wait until every run is over; call `look` with each round of statuses.

    Raises:
        OutsideError: `timeout_s` seconds have passed; the runs go on.
    """
    pause, begun = _FIRST_S, time.monotonic()
    local = all(run.executor == "local" for run in runs)
    while True:
        found = statuses(runs)
        if look:
            look(found)
        if all(status.finished for status in found):
            return found
        if lost := [status.reason_text for status in found if status.elsewhere]:
            raise OutsideError(f"Nothing to wait for here: {lost[0]}")
        if timeout_s is not None and time.monotonic() - begun > timeout_s:
            open_runs = sum(not status.finished for status in found)
            raise OutsideError(
                f"{open_runs} of {len(found)} runs are not over after {timeout_s:g} s; they go on."
            )
        time.sleep(pause)
        pause = min(pause * _GROWTH, _LOCAL_MAX_S if local else _SLURM_MAX_S)


def cancel(runs: Sequence[Run]) -> list[RunStatus]:
    """End runs; return what they are a moment later. Runs that are over stay as they were.

    Raises:
        RequestError: a run is somebody else's, whose folder is not ours to write to.
    """
    for run in runs:
        if not run.mine:
            how = f" Who may end any job: scancel {run.job_id}" * (run.executor == "slurm")
            raise RequestError(
                f"Run {run.run_id} is of {run.owner}, who alone can cancel it with hpckit.{how}"
            )
    before = {status.run.dir: status for status in statuses(runs)}
    seen = [before[run.dir] for run in runs]
    alive = [row.run for row in seen if not (row.finished or row.elsewhere)]
    in_slurm = [run.job_id for run in alive if run.executor == "slurm"]
    if in_slurm:
        control.cancel(in_slurm)
    for run in alive:
        # For local runs the request; for Slurm's a mark for when it has forgotten them.
        localjob.ask_cancel(run.dir)
    return _settled(runs, seconds=15.0)


def _settled(runs: Sequence[Run], seconds: float) -> list[RunStatus]:
    deadline = time.monotonic() + seconds
    found = statuses(runs)
    while not all(row.finished or row.elsewhere for row in found) and time.monotonic() < deadline:
        time.sleep(0.3)
        found = statuses(runs)
    return found
