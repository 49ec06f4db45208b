"""When Slurm may not start a job again by itself: in its last attempt, and when its work is done.

Since 24.05 slurmctld notes that a preemption's grace time has begun (GRACE_PREEMPT, in its
preempt.c), and takes the next end of the job's script for that preemption's. `scontrol requeue`
ends no script for it, so the note meets the end of a later attempt: Slurm puts that job back into
the queue, though it may be complete. A job that may not be requeued is PREEMPTED for Slurm then,
with the exit status 0 (proc_req.c and job_mgr.c, seen with 24.11.5).
"""

import os
import sys
import time

from hpckit.errors import HpckitError
from hpckit.payload.children import is_abandoned
from hpckit.payload.ending import Ending
from hpckit.payload.task import Task
from hpckit.rank_variables import restart_count
from hpckit.run_folders.ranks import drop_ended, read_attempt
from hpckit.schedulers.base import find_scheduler
from hpckit.stop_marks import OVER, PREEMPTED, REQUEUED, failed_with, marks, marks_of

# The pauses between attempts to have Slurm's own requeue switched off.
_ASK_AGAIN_S = (2.0, 10.0, 60.0)
# How long ends that are not written down may take: of ranks that have left no record either.
_OTHERS_S = 60.0
# The pauses between two looks at the others, in the first minute and after it.
_POLL_S, _LATER_S = 0.2, 5.0
LAST_ATTEMPT = "this is the last attempt that --max-requeues allows, but a preemption may start"
_DONE = "this attempt has ended, but Slurm may take that for its earlier preemption, and start"


def forbid_requeue(task: Task, otherwise: str = LAST_ATTEMPT) -> None:
    """Keep Slurm from requeueing the job by itself; say what it may do otherwise."""
    fault: HpckitError | None = None
    # A controller may restart, and a signal that is meant for the script may end scontrol.
    for pause_s in (0, *_ASK_AGAIN_S):
        time.sleep(pause_s)
        try:
            find_scheduler(task.executor).forbid_requeue()
        except HpckitError as error:
            fault = error
        else:
            return
    sys.stderr.write(f"hpckit: {otherwise} the job again: {fault}\n")


def forbid_if_noted(task: Task, ending: Ending, code: int) -> None:
    """Keep a job that ends by itself from starting again because of a preemption that is over.

    Args:
        task: the job's.
        ending: what Slurm's signals to this process meant.
        code: this process's exit status. Others do nothing: rank zero's does it.
    """
    first = os.environ.get("SLURM_PROCID", "0") == "0"
    if not first or restart_count() >= task.max_requeues or not _was_preempted(task):
        return
    if not code:
        _wait_for_others(task, ending)
    if _ends_by_itself(task, ending, code):
        forbid_requeue(task, _DONE)


def _was_preempted(task: Task) -> bool:
    file = marks_of(task.folder, 0)
    return any(PREEMPTED in marks(file, number) for number in range(restart_count() + 1))


def _wait_for_others(task: Task, ending: Ending) -> None:
    """Wait for the other ranks: while they work, Slurm may have to start the job again.

    One that cannot write down its end fails, and srun ends the job.
    """
    attempt, until = restart_count(), time.monotonic() + _OTHERS_S
    left = list(range(task.nodes * task.tasks_per_node))
    while left:
        ending.look()
        if ending.passed_on or is_abandoned() or failed_with(task.folder, attempt) is not None:
            return
        drop_ended(left, task.folder, attempt)
        late = time.monotonic() >= until
        if left and late and read_attempt(task.folder, left[-1], attempt) is None:
            return
        if left:
            time.sleep(_LATER_S if late else _POLL_S)


def _ends_by_itself(task: Task, ending: Ending, code: int) -> bool:
    """Say whether a rank has failed by itself, or else all is done, and Slurm has no part in it."""
    said = ending.said()
    if failed_with(task.folder, restart_count()) is not None:
        return said.isdisjoint({PREEMPTED, REQUEUED})
    return not code and not ending.passed_on and said.isdisjoint({REQUEUED, OVER})
