"""A signal that Slurm has kept for an attempt that lost a node, and that ends the next one.

Where srun ends a step while a node of it is silent, slurmctld keeps the signal for that node, and
sends it when the node answers (REQUEST_SIGNAL_TASKS in its agent's queue, seen with 22.05.8). By
then the job may have started again there, with a step of the same number, whose ranks it ends.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from hpckit.errors import HpckitError
from hpckit.payload.task import Task
from hpckit.rank_variables import restart_count
from hpckit.run_folders.ranks import RankRecord, own_failures, read_all_attempts
from hpckit.slurm.states import JobState

# The agent's next look is a minute after the node's return; a busy controller is later.
_WITHIN_S = 300.0
_RUNS = (JobState.RUNNING, JobState.SUSPENDED, JobState.SIGNALING)


def requeue_if_kept(task: Task) -> None:
    """Put the job back into the queue if such a signal has ended it; rank zero's process does."""
    from hpckit.schedulers.base import find_scheduler  # noqa: PLC0415  # of few jobs' ends

    number = restart_count()
    if not 0 < number < task.max_requeues or os.environ.get("SLURM_PROCID", "0") != "0":
        return
    host = signalled_host(task.folder, number)
    if host is None:
        return
    said = (
        f"hpckit: ranks on {host} were ended by a signal, as Slurm sends one late to a node that "
        "the attempt before had lost"
    )
    try:
        if not _goes_on():
            return
        find_scheduler(task.executor).requeue()
    except HpckitError as error:
        sys.stderr.write(f"{said}; the job cannot be requeued: {error}\n")
    else:
        sys.stderr.write(f"{said}: the job is requeued\n")


def _goes_on() -> bool:
    """Say whether Slurm lets the job itself run: of one that was cancelled, the ranks look alike.

    Raises:
        CommandError: squeue does not answer.
    """
    from hpckit.slurm import client, jobs  # noqa: PLC0415  # of few jobs' ends

    # An array's task that is asked for by its own number is listed as 123_4.
    records = jobs.squeue([client.own_job_id() or ""]).values()
    return any(record.state in _RUNS for record in records)


def signalled_host(folder: Path, number: int) -> str | None:
    """Return the node lost in the attempt before this one, if ranks of it ended first, by a signal.

    None too where a rank failed by itself, or when the attempt had run for long.
    """
    records = read_all_attempts(folder)
    lost = {row.host for row in records if row.restart == number - 1 and row.ended is None}
    now = [row for row in records if row.restart == number]
    first = _first_ended(now)
    if first is None or own_failures(now) or not first.consequence:
        return None
    early = (first.ended or 0.0) - first.started < _WITHIN_S
    return first.host if early and first.host in lost else None


def _first_ended(records: Sequence[RankRecord]) -> RankRecord | None:
    ended = (row for row in records if row.ended is not None)
    return min(ended, key=lambda row: row.ended or 0.0, default=None)
