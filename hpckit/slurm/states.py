"""One job as Slurm's readers saw it, its state in Slurm's words, and what that means.

The words are those of slurm.h up to 25.11, the short codes those squeue prints for %t (SchedMD's
src/common/slurm_protocol_defs.c). A later Slurm may know more: those are UNKNOWN, never an error.
"""

import dataclasses
import re
from collections.abc import Iterator
from enum import StrEnum

from hpckit.frozen import frozen

_SHELLS = 128  # what a shell adds to the number of a signal
_ENDS_S = 60.0  # Slurm ends jobs some seconds after their time limit
_EXIT = r"(\d{1,9})(?::(\d{1,9}))?"
_ARRAY_RANGE = r"(\d+)_\[([^\]%]*)(?:%\d+)?\]?"
_TASKS = r"(\d{1,7})(?:-(\d{1,7})(?::(\d{1,7}))?)?"


class JobState(StrEnum):
    """Slurm's base states, then its flags, which it shows in place of the base state."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    SUSPENDED = "SUSPENDED"
    COMPLETED = "COMPLETED"
    CANCELLED = "CANCELLED"
    FAILED = "FAILED"
    TIMEOUT = "TIMEOUT"
    NODE_FAIL = "NODE_FAIL"
    PREEMPTED = "PREEMPTED"
    BOOT_FAIL = "BOOT_FAIL"
    DEADLINE = "DEADLINE"
    OUT_OF_MEMORY = "OUT_OF_MEMORY"
    COMPLETING = "COMPLETING"
    CONFIGURING = "CONFIGURING"
    EXPEDITING = "EXPEDITING"
    GETENV_FAILED = "GETENV_FAILED"
    LAUNCH_FAILED = "LAUNCH_FAILED"
    POWER_UP_NODE = "POWER_UP_NODE"
    RECONFIG_FAIL = "RECONFIG_FAIL"
    REQUEUED = "REQUEUED"
    REQUEUE_FED = "REQUEUE_FED"
    REQUEUE_HOLD = "REQUEUE_HOLD"
    RESIZING = "RESIZING"
    RESV_DEL_HOLD = "RESV_DEL_HOLD"
    REVOKED = "REVOKED"
    SIGNALING = "SIGNALING"
    SPECIAL_EXIT = "SPECIAL_EXIT"
    STAGE_OUT = "STAGE_OUT"
    STOPPED = "STOPPED"
    UPDATE_DB = "UPDATE_DB"
    UNKNOWN = "UNKNOWN"


_CODES = {
    "BF": JobState.BOOT_FAIL,
    "CA": JobState.CANCELLED,
    "CD": JobState.COMPLETED,
    "CF": JobState.CONFIGURING,
    "CG": JobState.COMPLETING,
    "DL": JobState.DEADLINE,
    "F": JobState.FAILED,
    "NF": JobState.NODE_FAIL,
    "OOM": JobState.OUT_OF_MEMORY,
    "PD": JobState.PENDING,
    "PR": JobState.PREEMPTED,
    "R": JobState.RUNNING,
    "RD": JobState.RESV_DEL_HOLD,
    "RF": JobState.REQUEUE_FED,
    "RH": JobState.REQUEUE_HOLD,
    "RQ": JobState.REQUEUED,
    "RS": JobState.RESIZING,
    "RV": JobState.REVOKED,
    "S": JobState.SUSPENDED,
    "SE": JobState.SPECIAL_EXIT,
    "SI": JobState.SIGNALING,
    "SO": JobState.STAGE_OUT,
    "ST": JobState.STOPPED,
    "TO": JobState.TIMEOUT,
}
# REVOKED: a federation runs the job on another cluster, so here it is over.
_FINISHED = frozenset(
    {
        JobState.COMPLETED,
        JobState.CANCELLED,
        JobState.FAILED,
        JobState.TIMEOUT,
        JobState.NODE_FAIL,
        JobState.PREEMPTED,
        JobState.BOOT_FAIL,
        JobState.DEADLINE,
        JobState.OUT_OF_MEMORY,
        JobState.REVOKED,
    }
)
_WAITING = frozenset(
    {
        JobState.PENDING,
        JobState.REQUEUED,
        JobState.REQUEUE_FED,
        JobState.REQUEUE_HOLD,
        JobState.RESV_DEL_HOLD,
        JobState.SPECIAL_EXIT,
        JobState.LAUNCH_FAILED,
        JobState.RECONFIG_FAIL,
        JobState.GETENV_FAILED,
    }
)
# How a job came to its state; beside another state they do not say where it stands.
_REMARKS = frozenset(
    {
        JobState.LAUNCH_FAILED,
        JobState.RECONFIG_FAIL,
        JobState.GETENV_FAILED,
        JobState.UPDATE_DB,
    }
)


def parse_state(text: str) -> JobState:
    """Read a state in any of Slurm's spellings: `CANCELLED by 1000`, `CANCELLED+`, `PD`, `running`.

    Of several states given at once (`FAILED|REQUEUED`, `COMPLETED,COMPLETING`) an unfinished one
    counts, because the job is not over while it lasts.
    """
    before_by = re.split(r"\s+by\s+", text.strip(), maxsplit=1, flags=re.IGNORECASE)[0]
    states = [_parse_word(word) for word in re.split(r"[|,&\s]+", before_by) if word]
    states = [state for state in states if state not in _REMARKS] or states
    unfinished = (state for state in states if not is_finished(state))
    return next(unfinished, states[0] if states else JobState.UNKNOWN)


def is_finished(state: JobState) -> bool:
    """Say whether this attempt of the job is over; an UNKNOWN one is not.

    NODE_FAIL and PREEMPTED are finished: that is how the last row of sacct ends when the job was
    not requeued. When it was, squeue shows it PENDING again (and sacct a later row), so ask squeue
    first and believe it over sacct. REQUEUED and the like are on their way back into the queue.
    """
    return state in _FINISHED


def unstarted(state: str | None) -> str:
    """Say in words that a job in such a state had no start, and whether one may still come."""
    return "never started" if state in _FINISHED else "has not started"


def is_good(state: JobState) -> bool:
    """Say whether the job ended well."""
    return state is JobState.COMPLETED


def is_waiting(state: JobState) -> bool:
    """Say whether the job is in the queue, or going back to it, and holds no node."""
    return state in _WAITING


def is_running(state: JobState) -> bool:
    """Say whether a job holds nodes, as far as its state tells."""
    return not is_finished(state) and not is_waiting(state) and state is not JobState.UNKNOWN


def is_past_limit(state: JobState, elapsed_s: float | None, limit_s: float | None) -> bool:
    """Say whether a job runs longer than Slurm lets it, which ends it: its end has got lost."""
    if elapsed_s is None or limit_s is None or not is_running(state):
        return False
    return elapsed_s > limit_s + _ENDS_S


def _parse_word(word: str) -> JobState:
    """Read one word, also one that a narrow column cut short and marked with `+`."""
    upper = word.upper()
    stem = upper.rstrip("+")
    if stem in JobState.__members__:
        return JobState[stem]
    if stem in _CODES:
        return _CODES[stem]
    if stem == upper or not stem:
        return JobState.UNKNOWN
    matches = [state for name, state in JobState.__members__.items() if name.startswith(stem)]
    return matches[0] if len(matches) == 1 else JobState.UNKNOWN


class SlurmSource(StrEnum):
    """Which of Slurm's programs said it."""

    SQUEUE = "squeue"
    SACCT = "sacct"


@frozen(kw_only=True)
class JobRecord:
    """What Slurm knows of one job or array task; None is what the source does not say.

    `job_id` is as users type it: `123`, `123_4` for an array task, `123+1` for a component of a
    heterogeneous job. `raw_id` is SLURM_JOB_ID in the job, another number for each array task.
    Times are epoch seconds; the `start_time` of a waiting job is the expected one. A finished job
    has `end_time` and `exit_code`, which is 128 + signal if a signal ended it, as in a shell.
    `restarts` counts the attempts before this one. `held_by` is the job because of which this one
    can never start, though Slurm does not say so (`hpckit.slurm.dependencies`).
    """

    job_id: str
    state: JobState
    source: str
    raw_id: str | None = None
    array_job_id: str | None = None
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
    restarts: int | None = None
    held_by: str | None = None


def parse_exit(text: str, state: JobState) -> int | None:
    """Read Slurm's `status:signal` as an exit code, as in a shell.

    `0:0` says nothing of a job that did not complete: Slurm also shows it for jobs that were
    cancelled, lost their node or reached their time limit. For a lost node slurmctld makes up a
    status (`exit_code = 1` in job_mgr.c, shown as 0:1 or 1:0), with which no process ended.
    """
    match = re.fullmatch(_EXIT, text.strip())
    if match is None or not is_finished(state) or state is JobState.NODE_FAIL:
        return None
    if not is_good(state) and not int(match[1]) and not int(match[2] or 0):
        return None
    signal = int(match[2] or 0)
    return _SHELLS + signal if signal else int(match[1])


def exit_words(code: int, *, by_accounting: bool) -> str:
    """Return an exit status in words.

    From a status of 128 or more, sacct subtracts 128 (PRINT_EXITCODE in sacct/print.c; tried with
    22.05.8): its 15 may be the script's own 15, or the 143 that a shell makes of SIGTERM. scontrol
    prints the whole status. Both print 0:15 if the signal ended the script itself.
    """
    if by_accounting and code < _SHELLS:
        return f"exit status {code} or {code + _SHELLS} (accounting does not tell which)"
    return f"exit status {code}"


def each_task(record: JobRecord) -> Iterator[JobRecord]:
    """Yield a record for each task that a row stands for; only rows of waiting arrays have several.

    Waiting tasks have no `raw_id` yet: Slurm shows the array's for all of them.
    """
    tasks = expand_array(record.job_id)
    raw_id = record.raw_id if tasks == (record.job_id,) else None
    for job_id in tasks:
        array, _, task = job_id.partition("_")
        if task.isdecimal():
            yield dataclasses.replace(record, job_id=job_id, raw_id=raw_id, array_job_id=array)
        else:
            yield record


def expand_array(job_id: str) -> tuple[str, ...]:
    """Name each task of a waiting array: `123_[5-7,9%4]` is four ids; any other id is itself.

    A list that Slurm cut short (`123_[1,3,...]`) gives the tasks it still names.
    """
    match = re.fullmatch(_ARRAY_RANGE, job_id)
    if match is None:
        return (job_id,)
    return tuple(f"{match[1]}_{task}" for task in _task_numbers(match[2]))


def text_or_none(text: str) -> str | None:
    """Return a column's text, or None for one of Slurm's words for nothing."""
    word = text.strip()
    return None if word.lower() in {"", "(null)", "none", "n/a", "unknown"} else word


def _task_numbers(text: str) -> list[int]:
    tasks: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(_TASKS, part)
        if match is not None:
            tasks += range(int(match[1]), int(match[2] or match[1]) + 1, int(match[3] or 1) or 1)
    return tasks
