"""One job, as any of Slurm's readers saw it."""

import dataclasses
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from hpckit.slurm.states import JobState, is_finished, is_good

_EXIT = re.compile(r"(\d{1,9})(?::(\d{1,9}))?")
_ARRAY_RANGE = re.compile(r"(\d+)_\[([^\]%]*)(?:%\d+)?\]?")
_TASKS = re.compile(r"(\d{1,7})(?:-(\d{1,7})(?::(\d{1,7}))?)?")


class Source(StrEnum):
    """Which of Slurm's programs said it."""

    SQUEUE = "squeue"
    SACCT = "sacct"
    SCONTROL = "scontrol"


@dataclass(frozen=True, kw_only=True, slots=True)
class JobRecord:
    """What Slurm knows of one job or array task; None is what this source does not say.

    `job_id` is as users type it: `123`, `123_4` for an array task, `123+1` for a component of a
    heterogeneous job. `raw_id` is the number the job has inside (SLURM_JOB_ID), which differs for
    array tasks. Moments are epoch seconds. `start_time` of a waiting job is the expected one.
    `end_time` and `exit_code` are of a finished job; `exit_code` is 128 + signal when a signal
    ended it, as a shell has it. `restarts` counts the attempts before this one.
    """

    job_id: str
    state: JobState
    source: str
    raw_id: str | None = None
    array_job_id: str | None = None
    array_task_id: int | None = None
    name: str | None = None
    user: str | None = None
    account: str | None = None
    partition: str | None = None
    qos: str | None = None
    reason: str | None = None
    nodes: tuple[str, ...] | None = None
    elapsed_s: float | None = None
    time_limit_min: int | None = None
    submit_time: float | None = None
    start_time: float | None = None
    end_time: float | None = None
    exit_code: int | None = None
    signal: int | None = None
    restarts: int | None = None


def parse_exit(text: str, state: JobState) -> tuple[int | None, int | None]:
    """Read Slurm's `status:signal` as (exit code as a shell has it, signal or None).

    `0:0` says nothing of a job that did not complete: Slurm shows it also for one that was
    cancelled, lost its node or reached its time limit.
    """
    match = _EXIT.fullmatch(text.strip())
    if match is None or not is_finished(state):
        return None, None
    if not is_good(state) and not int(match[1]) and not int(match[2] or 0):
        return None, None
    signal = int(match[2] or 0)
    return (128 + signal, signal) if signal else (int(match[1]), None)


def each_task(record: JobRecord) -> Iterator[JobRecord]:
    """Make a record for each task that a row stands for, which is one for any but a waiting array.

    Waiting tasks have no number inside yet: Slurm shows the array's for all of them.
    """
    tasks = expand_array(record.job_id)
    raw_id = record.raw_id if tasks == (record.job_id,) else None
    for job_id in tasks:
        array, _, task = job_id.partition("_")
        if task.isdecimal():
            yield dataclasses.replace(
                record, job_id=job_id, raw_id=raw_id, array_job_id=array, array_task_id=int(task)
            )
        else:
            yield record


def expand_array(job_id: str) -> tuple[str, ...]:
    """Name each task of a waiting array: `123_[5-7,9%4]` is four ids; any other id is itself.

    A list that Slurm cut short (`123_[1,3,...]`) gives the tasks it still names.
    """
    match = _ARRAY_RANGE.fullmatch(job_id)
    if match is None:
        return (job_id,)
    return tuple(f"{match[1]}_{task}" for task in _task_numbers(match[2]))


def text_or_none(text: str) -> str | None:
    """Return a column's text, or None for one of Slurm's words for nothing."""
    word = text.strip()
    return None if word.lower() in {"", "(null)", "none", "n/a", "unknown"} else word


def _task_numbers(text: str) -> list[int]:
    tasks: list[int] = []
    for match in map(_TASKS.fullmatch, text.split(",")):
        if match is not None:
            tasks += range(int(match[1]), int(match[2] or match[1]) + 1, int(match[3] or 1) or 1)
    return tasks
