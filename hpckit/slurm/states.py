"""Job states in Slurm's words, and what each means for someone who waits.

The words are those of slurm.h up to 25.11, the short codes those squeue prints for %t (SchedMD's
src/common/slurm_protocol_defs.c). A later Slurm may know more: those are UNKNOWN, never an error.
"""

import re
from enum import StrEnum


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


def is_good(state: JobState) -> bool:
    """Say whether the job ended well."""
    return state is JobState.COMPLETED


def is_waiting(state: JobState) -> bool:
    """Say whether the job is in the queue, or going back to it, and holds no node."""
    return state in _WAITING


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
