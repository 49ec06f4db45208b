"""Jobs that changed their size while they ran (`scontrol update NumNodes=`): their rows. Pure.

Accounting then has a row for each size. The first ends, RESIZING, when the next begins. That one
has its own nodes and GPUs, and counts as submitted at the change; but its start is the whole job's,
and so its elapsed time is from there (22.05; `_setup_job_start_msg` of the plugin for slurmdbd).
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Protocol, TypeVar

from hpckit.slurm.states import JobRecord, JobState


class _Row(Protocol):
    """A row of accounting, or what was made of one."""

    @property
    def state(self) -> str | None: ...


Seconds = TypeVar("Seconds", int, float)
Row = TypeVar("Row", bound=_Row)
# The one row ends when the next begins; Slurm's moments are whole seconds.
_APART_S = 2.0


def goes_on(submit: float | None, start: float | None) -> bool:
    """Say whether a row is of a job that has changed its size: nothing else starts too early."""
    return submit is not None and start is not None and start < submit


def changes_at(state: str | None, end: float | None, following: float | None) -> bool:
    """Say whether a part with this state and end is followed by one that began at a moment."""
    if state != JobState.RESIZING or end is None or following is None:
        return False
    return abs(following - end) <= _APART_S


def by_attempt(rows: Iterable[Row]) -> list[list[Row]]:
    """Return a job's rows, oldest first, by attempt: of one that changed its size, all parts."""
    found: list[list[Row]] = []
    goes_on = False
    for row in rows:
        if goes_on:
            found[-1].append(row)
        else:
            found.append([row])
        goes_on = row.state == JobState.RESIZING
    return found


def row_word(rows: Sequence[_Row]) -> str:
    """Return what each of a job's rows is called, beside its number (`places`)."""
    return "attempt" if len(by_attempt(rows)) == len(rows) else "part"


def left_of(elapsed_s: Seconds | None, start: float, change: float) -> Seconds | None:
    """Return what is left of a row's elapsed time, which is from `start`, after the change."""
    return None if elapsed_s is None else max(elapsed_s - round(change - start), 0)


def own_times(record: JobRecord) -> JobRecord:
    """Return a row with the start and the elapsed time of its own size."""
    submit, start = record.submit_time, record.start_time
    if submit is None or start is None or not goes_on(submit, start):
        return record
    return replace(record, start_time=submit, elapsed_s=left_of(record.elapsed_s, start, submit))


def places(records: Iterable[JobRecord]) -> list[int]:
    """Return a number for each of a job's rows, oldest first, of which no two have the same.

    It is the number of the attempt, and for each change of size before it one more.
    """
    found, changes = [], 0
    for at, record in enumerate(records):
        found.append((at - changes if record.restarts is None else record.restarts) + changes)
        changes += record.state is JobState.RESIZING
    return found
