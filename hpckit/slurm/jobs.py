"""Where jobs stand: squeue for what the controller remembers, sacct for what accounting does.

squeue is fresh, and answers without accounting; it forgets a job some minutes after its end
(slurm.conf(5), MinJobAge). sacct remembers, every attempt, but may lag or be switched off. Each
reads any number of jobs in one process, because controllers are shared and easily overloaded.
squeue's long format also has exit status and restarts of jobs that ended, while the controller
remembers them: where accounting is silent, or has not heard of the end yet.
"""

import dataclasses
import re
from collections.abc import Iterable, Iterator, Sequence

from hpckit.slurm.client import UNKNOWN_JOB, ask, checked_id, id_lists, is_answer, refusal
from hpckit.slurm.rows import (
    COLUMN,
    SACCT_FORMAT,
    new_mark,
    parse_sacct,
    parse_squeue,
    squeue_format,
)
from hpckit.slurm.states import (
    JobRecord,
    JobState,
)

_REQUEUE_S = 2
# Squeue's fields, each wider than any number.
_ENDS = "JobArrayID:.48,exit_code:.24,RestartCnt:.24"
_NUMBER = re.compile(r"\d{1,20}", re.ASCII)


def squeue(job_ids: Sequence[str]) -> dict[str, JobRecord]:
    """Ask the controller about jobs; those it does not know are left out.

    The keys are as users type them; an array's id brings all its tasks, `123_0`, `123_1`...

    Raises:
        RequestError: Something in `job_ids` is not a job id.
        CommandError: The controller does not answer, or there is no squeue.
    """
    wanted = frozenset(job_ids)
    rows = [row for ids in id_lists(job_ids) for row in _ask_squeue(ids)]
    # What is left of an array whose last waiting tasks were cancelled is a row of the bare id.
    arrays = {row.array_job_id for row in rows}
    return {row.job_id: row for row in rows if row.job_id not in arrays and is_asked(row, wanted)}


def sacct(job_ids: Sequence[str]) -> dict[str, JobRecord]:
    """Ask accounting about jobs: the latest attempt of each, with the number of restarts.

    Right after a requeue the latest row is REQUEUED: the next attempt gets its row when it starts.

    Raises:
        RequestError: Something in `job_ids` is not a job id.
        CommandError: There is no accounting, or it does not answer.
    """
    return {job_id: _latest(rows) for job_id, rows in sacct_attempts(job_ids).items()}


def sacct_attempts(job_ids: Sequence[str]) -> dict[str, tuple[JobRecord, ...]]:
    """Ask accounting for every attempt of jobs, oldest first; `restarts` counts them from 0.

    An attempt that changed its size has a row for each.

    Raises:
        RequestError: Something in `job_ids` is not a job id.
        CommandError: There is no accounting, or it does not answer.
    """
    wanted = frozenset(job_ids)
    # sacct does not find a task in the row that all tasks share which never ran: ask for the array.
    whole = [checked_id(job_id).partition("_")[0] for job_id in job_ids]
    rows = (row for ids in id_lists(whole) for row in _ask_sacct(ids))
    return by_job(row for row in rows if is_asked(row, wanted))


def by_job(records: Iterable[JobRecord]) -> dict[str, tuple[JobRecord, ...]]:
    """Group attempts by job, oldest first, and number them in `restarts`.

    Ids are used again after the highest, or after a controller lost its state: an earlier row of
    another user or name is another job's, unless it ended when the next was submitted: that is a
    requeue, and the job was renamed.
    """
    groups: dict[str, list[JobRecord]] = {}
    for record in records:
        groups.setdefault(record.job_id, []).append(record)
    return {job_id: tuple(_attempts(rows)) for job_id, rows in groups.items()}


def _attempts(rows: list[JobRecord]) -> Iterator[JobRecord]:
    """Number a job's rows; a task still listed in its waiting array has no row of its own yet."""
    known = [row for row in rows if row.raw_id is not None] or rows[-1:]
    ordered = sorted(known, key=lambda row: row.submit_time or 0)
    same = ordered[-1:]
    for row in reversed(ordered[:-1]):
        if _is_earlier(row, same[0]):
            same.insert(0, row)
    number = 0
    for row in same:
        yield dataclasses.replace(row, restarts=number)
        number += row.state is not JobState.RESIZING  # the next row is of the same attempt


def _is_earlier(row: JobRecord, following: JobRecord) -> bool:
    """Say whether a row is an earlier attempt of a job. Nobody's may be anybody's."""
    users = {row.user, following.user}
    if len(users) == 1 and _agree(row.name, following.name):
        return True
    return (len(users) == 1 or None in users) and _again(row, following)


def _again(row: JobRecord, following: JobRecord) -> bool:
    """Say whether one attempt's end was the next one's submission, as Slurm writes a requeue."""
    ended, submitted = row.end_time, following.submit_time
    return ended is not None and submitted is not None and abs(submitted - ended) <= _REQUEUE_S


def _agree(one: str | None, other: str | None) -> bool:
    return one is None or other is None or one == other


def _latest(rows: tuple[JobRecord, ...]) -> JobRecord:
    last = rows[-1]
    if last.state is JobState.REQUEUED:
        return dataclasses.replace(last, restarts=(last.restarts or 0) + 1)
    return last


def _ask_squeue(ids: str) -> list[JobRecord]:
    """Read jobs in any state; when one unknown id spoils the answer, ask by halves."""
    mark = new_mark()
    argv = ["squeue", "--noheader", "--states=all"]
    argv += [f"--format={squeue_format(mark)}", f"--jobs={ids}"]
    result = ask(argv, check=False)
    if result.returncode != 0 and UNKNOWN_JOB not in result.stderr:
        raise refusal(result)
    each = ids.split(",")
    middle = len(each) // 2
    if result.returncode == 0 or result.stdout or not middle:
        rows = parse_squeue(result.stdout, mark)
        if not (is_answer(result, rows=bool(rows)) or _has_all(rows, each)):
            raise refusal(result)
        return rows
    return _ask_squeue(",".join(each[:middle])) + _ask_squeue(",".join(each[middle:]))


def _ask_sacct(ids: str) -> list[JobRecord]:
    mark = new_mark()
    argv = ["sacct", "--allocations", "--duplicates", "--noheader", "--parsable2"]
    argv += [f"--delimiter={COLUMN}{mark}", f"--format={SACCT_FORMAT}", f"--jobs={ids}"]
    result = ask(argv)
    rows = parse_sacct(result.stdout, mark)
    if not (rows or is_answer(result, rows=False)):
        raise refusal(result)
    return rows


def _has_all(rows: Iterable[JobRecord], job_ids: Iterable[str]) -> bool:
    """Say whether each of some jobs has a row."""
    names = {name for row in rows for name in (row.job_id, row.raw_id, _whole(row.job_id))}
    return names.issuperset(job_ids)


def _whole(job_id: str) -> str:
    """Return the id of the array or heterogeneous job that a job is of, else its own."""
    return re.split(r"[_+]", job_id)[0]


def is_asked(record: JobRecord, wanted: frozenset[str]) -> bool:
    """Say whether a job, or the array or heterogeneous job it is of, was asked for.

    squeue answers for `23+1` with all of job 23.
    """
    return not wanted.isdisjoint({record.job_id, record.raw_id, _whole(record.job_id)})


def ends(job_ids: Sequence[str]) -> dict[str, tuple[str, int]]:
    """Ask the controller how jobs ended that it remembers, in one question; ids as users type them.

    Returns:
        `status:signal`, as `parse_exit` reads it, and how often each was started again.

    Raises:
        RequestError: Something in `job_ids` is not a job id.
        CommandError: The controller does not answer, or there is no squeue.
    """
    found: dict[str, tuple[str, int]] = {}
    for ids in id_lists(job_ids):
        argv = ["squeue", "--noheader", "--states=all", f"--jobs={ids}", "-O", _ENDS]
        found |= parse_ends(ask(argv).stdout)
    return {job_id: end for job_id, end in found.items() if job_id in job_ids}


def parse_ends(text: str) -> dict[str, tuple[str, int]]:
    """Read what squeue said of jobs' ends: a status as wait(2) has it, or `5:0` in newer Slurms."""
    rows = (line.split() for line in text.splitlines())
    return {
        row[0]: (status, int(row[2]))
        for row in rows
        if len(row) == 3 and (status := _status(row[1])) and _NUMBER.fullmatch(row[2])
    }


def _status(word: str) -> str | None:
    """Return `status:signal`: 22.05.8 writes a number there, 26.05.5 both (seen with each)."""
    if not _NUMBER.fullmatch(word):
        return word if re.fullmatch(r"(?a)\d{1,3}:\d{1,3}", word) else None
    return f"{int(word) >> 8}:{int(word) & 0x7F}"
