"""What became of runs: Slurm is asked once for all of them, even in a loop over `run.state`.

The first run of such a loop is asked about alone. When another run of the same list follows at
once, the program is going through the list: then the rest of the list is asked about together, and
each run keeps its answer for a moment. An answer is given only once, so a program that reads
`run.state` again and again always sees a new one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from hpckit.api.run import Run
from hpckit.api.run_list import RunList
from hpckit.errors import RequestError
from hpckit.job_spec.arguments import FUNCTION, JOB, checked, each_of, job_word, maybe, shown
from hpckit.submission.states import statuses
from hpckit.submission.status import RunStatus
from hpckit.text import in_line, simulated
from hpckit.units import format_seconds
from hpckit.values import Seconds

# How old an answer may be, and about how many runs one question may be.
FRESH_S, MOST = 2.0, 500
_HEADS = ("job", "name", "state", "nodes", "GPUs", "elapsed", "folder")


def status_in_turn(run: Run) -> RunStatus:
    """Return what became of a run, as Slurm says now, or said at most 2 s ago."""
    if run._ended is not None:
        return run._ended
    answer, run._answer = run._answer, None
    if answer and time.monotonic() - answer[0] < FRESH_S:
        return answer[1]
    asked = [run, *_following(run)]
    found = status_of(asked)
    moment = time.monotonic()
    for row, status in zip(asked[1:], found[1:], strict=True):
        row._answer = (moment, status)
    if run._beside is not None:
        run._beside.read = (moment, run)
    return found[0]


def _following(run: Run) -> list[Run]:
    """Return the rest of the run's list, if a program is going through that list."""
    beside = run._beside
    if beside is None or beside.read is None:
        return []
    moment, before = beside.read
    if before is run or time.monotonic() - moment > FRESH_S:
        return []
    rows = iter(beside)
    if not any(row is run for row in rows):
        return []
    return list(islice((row for row in rows if row._ended is None), MOST))


def status_of(runs: Sequence[Run], *, in_full: bool = False) -> list[RunStatus]:
    """Return what became of runs; Slurm is asked once for all, and not for those that are over.

    `in_full`: once more for what its queue leaves out of those that failed.
    """
    asked = [run for run in runs if run._ended is None]
    for run in asked:
        run._answer = None
    found = statuses([run._folder for run in asked], in_full=in_full) if asked else []
    for run, status in zip(asked, found, strict=True):
        run._ended = status if status.finished else None
    _learn(asked, found)
    known = {status.run.dir: status for status in found}
    return [run._ended or known[run.dir] for run in runs]


@checked(timeout=Seconds | None, look=maybe(FUNCTION))
def wait(
    runs: Run | str | int | Path | Iterable[Run | str | int | Path | Sequence[Run]],
    timeout: float | None = None,
    *,
    look: Callable[[list[RunStatus]], None] | None = None,
) -> RunList:
    """Wait until every run is over, or can never start; return the runs.

    A run that failed and is tried again (`retry=`) is over when its last retry is. What it says of
    itself stays its own: its state, ranks, logs.

    Args:
        runs: runs, arrays, maps, or ids or folders of runs; one alone, or several in a list.
        timeout: so many seconds at most.
        look: sees what they are, each time Slurm was asked.

    Raises:
        StillRunningError: `timeout` seconds have passed; the jobs go on. NotFoundError: an id is of
            no run. RequestError: something is neither a run nor an id.
    """
    every = RunList(run for row in runs_or_ids(runs) for run in _called(row))
    wait_through(every, timeout, look)
    return every


def wait_through(
    runs: Sequence[Run],
    timeout: float | None = None,
    look: Callable[[list[RunStatus]], None] | None = None,
) -> list[RunStatus]:
    """Wait as `wait`; return what became of each, or of the last run that has tried it again.

    Raises:
        StillRunningError: as `wait`.
    """
    from hpckit.submission.waiting import wait as wait_for  # noqa: PLC0415

    rest = [run for run in runs if run._ended is None or _may_be_tried_again(run._ended)]
    found = wait_for([run._folder for run in rest], timeout_s=timeout, look=look) if rest else []
    for run, status in zip(rest, found, strict=True):
        if status.run.dir == run.dir:
            run._ended = status if status.finished else None
    _learn(rest, found)
    last = {run.dir: run._ended for run in runs if run._ended is not None}
    last |= {run.dir: status for run, status in zip(rest, found, strict=True)}
    return [last[run.dir] for run in runs]


def _may_be_tried_again(status: RunStatus) -> bool:
    return not status.good and bool(status.run.record["request"].get("retry"))


def runs_or_ids(given: Any) -> list[Run | str]:  # noqa: ANN401  # users' own
    """Return each run, or the words that mean one: its id or folder.

    Raises:
        RequestError: something is neither.
    """
    rows = each_of(given)
    for row in rows:
        if not isinstance(row, Run) and not JOB.fits(row):
            raise RequestError(f"{shown(row, 'runs')} is neither a run nor the id of one.")
    return [row if isinstance(row, Run) else job_word(row) for row in rows]


def _called(given: Run | str) -> Iterable[Run]:
    if isinstance(given, Run):
        return [given]
    from hpckit.api.lookup import runs  # noqa: PLC0415  # seldom: most programs hold their runs

    return runs(given)


def _learn(runs: Sequence[Run], found: Sequence[RunStatus]) -> None:
    """Write down what runs tell of bad nodes, once for each of a run's states and attempts."""
    new: list[RunStatus] = []
    for run, status in zip(runs, found, strict=True):
        told = (status.state, status.attempt)
        if status.speaks_of_nodes and run._looked_at != told:
            run._looked_at = told
            new.append(status)
    if new:
        from hpckit.api.bad_nodes import learn  # noqa: PLC0415  # most runs tell nothing

        learn(new)


def run_table(found: Sequence[RunStatus]) -> str:
    """Return a table of runs for notebooks; others may have written their names and states."""
    rows = "".join(_row("td", _cells(status)) for status in found)
    return f"<table><thead>{_row('th', _HEADS)}</thead><tbody>{rows}</tbody></table>"


def _cells(status: RunStatus) -> tuple[str, ...]:
    record, plan = status.run.record, status.run.record["plan"]
    state = str(status.state)
    if status.reason_text:
        state += f": {status.reason_text}"
    elapsed = "" if status.elapsed_s is None else format_seconds(status.elapsed_s)
    return (
        status.run.job_id,
        str(record["name"]),
        state,
        str(plan["nodes"]),
        f"{plan['total_gpus']}{simulated(plan['total_gpus'], plan.get('device'), 'CPU')}",
        elapsed,
        str(status.run.dir),
    )


def _row(tag: str, cells: Sequence[str]) -> str:
    import html  # noqa: PLC0415  # for notebooks

    said = (html.escape(in_line(cell)) for cell in cells)
    return "<tr>" + "".join(f"<{tag}>{cell}</{tag}>" for cell in said) + "</tr>"
