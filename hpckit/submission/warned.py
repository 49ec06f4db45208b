"""Slurm's warning before a job's end: how the script answers it, and whether the job goes on.

Each supervisor passes the warning on to its scripts. The supervisor of rank 0 decides for the job;
if rank 0 has done its part and left before, that of a rank which still works does.
"""

import contextlib
import math
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from hpckit.errors import JobError
from hpckit.launchers import find_launcher
from hpckit.payload.children import is_abandoned
from hpckit.payload.ending import Ending
from hpckit.payload.notice import slurm_tells_all
from hpckit.payload.task import Task
from hpckit.rank_variables import LOCAL, SRUN, restart_count
from hpckit.run_folders.ranks import drop_ended
from hpckit.stop_marks import (
    LIMIT,
    NEXT,
    NO_CHECKPOINT,
    OVER,
    PREEMPTED,
    REQUEUED,
    add_mark,
    failed_with,
    heeds,
    make_file,
    marks_of,
)
from hpckit.submission.deciding import Decider

if TYPE_CHECKING:
    from hpckit.payload.supervisor import Supervised
    from hpckit.submission.checkpoints import Checkpoints

Handler = Callable[[int, FrameType | None], object]
_POLL_S = 0.1
# How long this process may get Slurm's signal after a script that ended because of it.
_HEARD_S = 1.0
# The pause between two attempts to requeue the job, while the controller does not answer.
_AGAIN_S = 5.0
# Slurm may warn so much earlier than it was asked to: sbatch(1), --signal.
_EARLIEST_S = 60.0
_NOT_AGAIN = "What it saved stays in the run's folder; `hpckit resubmit` begins anew, in another."
_ENDED_ON_TERM = (
    "Slurm preempted the job, which may not start again. The script handled its SIGTERM and "
    "ended with status 0, so its work may not be complete: the job ends with status 1. What it "
    "saved stays in the run's folder; with --max-requeues a job goes on after a preemption."
)
_ANEW = (
    "The job is requeued, but nothing in the run's checkpoints/ is newer than the start of this "
    "attempt. If the script keeps its checkpoints elsewhere, --checkpoint PATTERN names them."
)


class Warned:
    """One attempt of a job that Slurm warns; there may be another attempt after it, or not.

    `handle` handles SIGUSR2; `look` is called again and again while the script runs, and at its
    end.
    """

    def __init__(self, task: Task, running: "Supervised", requeue: Handler | None) -> None:
        self.task = task
        self._running = running
        self._requeue = requeue
        self._decider = Decider(task)
        self._attempt = restart_count()
        self._marks = marks_of(task.folder, 0)
        self._told_at: float | None = None
        self._until: float | None = None
        self._refused = False
        self._by_limit = False
        self.ending = Ending(task, running, asks=self._decider.decides, warn=self._warn)
        self._checkpoints = self._list() if self._decider.decides and self.may_go_on else None
        if self._decider.decides and task.warned:
            make_file(self._marks)

    @property
    def may_go_on(self) -> bool:
        """Whether hpckit may still requeue the job."""
        return self._attempt < self.task.max_requeues

    def _list(self) -> "Checkpoints":
        from hpckit.submission.checkpoints import Checkpoints  # noqa: PLC0415  # seldom

        return Checkpoints(self.task.folder, self.task.checkpoint, Path.cwd())

    def handle(self, _signum: int, _frame: FrameType | None) -> None:
        """Handle the warning's signal."""
        self._warn()

    def _warn(self) -> None:
        if self._told_at is None:
            self._told_at = time.monotonic()
        self._running.warn()

    def look(self, code: int | None) -> None:
        """Requeue the job if it is time, which ends this process.

        Args:
            code: the script's exit status; None while it runs.

        Raises:
            JobError: the script has ended because of the warning, and the job does not go on.
        """
        if code is None:
            self.ending.look()
        if not self._decider.decides:
            self._stand_in(code)
        if not self._decider.decides:
            if code or (code is not None and self.ending.asks):  # it stands in for rank 0's
                self._fail_if_undone(code)
            if code:
                self._wait_for_requeue()
        elif code is not None:
            self._at_end(code)
        elif self._told_at is not None and self.may_go_on and not self.ending.passed_on:
            self._meanwhile()

    def _meanwhile(self) -> None:
        """Requeue a job whose script goes on: it ignores the signal, or has had its time."""
        late = time.monotonic() >= self._deadline()
        listens = self.task.handles_stop_signal or heeds(self._decider.words()) is not False
        if listens and not late:
            return
        if self._may_requeue():
            self._go_on()
        elif late and not self._refused:
            self._refuse()

    def _at_end(self, code: int) -> None:
        """Requeue a job whose script stopped early; let one end that is complete or has failed."""
        if not code:
            self._wait_for_warning()
        elif self.ending.came is None and self._misses_signals():
            if self.may_go_on:
                self.ending.suspect()
            elif not (self.ending.passed_on or self._failed()):
                self.ending.wonder()
        self._fail_if_undone(code)
        taken = self.ending.settle()
        early = self._decider.stopped_early(code) or bool(taken and code)
        if not early and not code:
            early = self._others_need_more()
        follows = self._attempt < self.task.chain
        # A script that does not listen is ended where another job takes the place of a requeue.
        ended = self.ending.passed_on and not (taken and follows)
        if not early or (ended and not self._failed()):
            return
        self._wait_for_ranks()
        if follows:
            add_mark(self._marks, self._attempt, NEXT)
            raise self._goes_on()
        if not self.may_go_on:
            self._refuse_last(code)
        elif self._may_requeue():
            self._go_on()
        else:
            self._refuse()
            if not code:
                raise JobError(f"{self._no_checkpoint()} The job has FAILED.")

    def _stand_in(self, code: int | None) -> None:
        """Decide in the place of rank 0's supervisor, if that has left and a rank needs it."""
        if code is not None:
            if not code:
                self._wait_for_warning()
            taken = self.ending.settle()
            needed = self._decider.stopped_early(code) or bool(taken and code)
        else:
            told = self.may_go_on and self._told_at is not None
            needed = told and self._decider.looks_now()
        if needed and self._decider.claim() and self.may_go_on:
            self._checkpoints = self._list().as_kept(self._decider.kept)

    def _others_need_more(self) -> bool:
        """Say of a rank that is complete whether others are not; then leave that to them.

        It waits for them only where the end is near, and the job is requeued if they go on then.
        """
        if self._decider.ranks == 1:
            return False
        if self._told_at is not None and self.may_go_on:
            ended = self._all_ended()
            _wait(lambda: ended() or self._is_over(), self._deadline())
            if not ended() and not self._is_over() and self._may_requeue():
                return True
        if self.task.warned and self.task.checkpoint and self._checkpoints is not None:
            self._checkpoints.keep(self._decider.kept)
        return self._decider.leave()

    def _is_over(self) -> bool:
        self.ending.look()
        return self.ending.passed_on or self._failed()

    def _fail_if_undone(self, code: int) -> None:
        """Fail if the script has handled a preemption's SIGTERM in a job that does not go on."""
        saved = not code and self._decider.has_saved()
        self.ending.hear_why(patient=saved)
        if self.task.warned or not saved or PREEMPTED not in self.ending.said():
            return
        over = self._all_ended()
        # Others may save for longer: srun would end them. Slurm ends all with the grace time, but
        # not what has lost its slurmstepd.
        _wait(lambda: over() or self._failed() or is_abandoned(), math.inf)
        raise JobError(_ENDED_ON_TERM)

    def _misses_signals(self) -> bool:
        """Say whether a preemption's signal goes to processes of a launcher, and not to this one.

        For mpirun these are its daemons on other nodes. Slurm signals steps, but not the batch
        script, so the daemons end, and mpirun with them (seen with Open MPI 4.1.4, Slurm 22.05.8).
        """
        one = self.task.one_machine
        return not one and find_launcher(self.task.launcher).in_batch_script

    def _wait_for_requeue(self) -> None:
        """Wait until the supervisor of rank 0 has requeued a preempted job.

        If this one failed before, srun would kill all that is left of the step.
        """
        if self.ending.settle():
            _wait(lambda: REQUEUED in self.ending.said() or not self.ending.taken, self._deadline())

    def _wait_for_warning(self) -> None:
        """Wait for the warning, which the script may have got first, and ended because of."""
        if self.task.warned and slurm_tells_all(self.task):
            _wait(lambda: self._told_at is not None, time.monotonic() + _HEARD_S)

    def _wait_for_ranks(self) -> None:
        """Wait until the other ranks have saved their state and ended."""
        ended = self._all_ended()
        _wait(lambda: ended() or self.ending.passed_on, self._deadline())

    def _all_ended(self) -> Callable[[], bool]:
        """Return what says whether all ranks have recorded their end."""
        left = list(range(self._decider.ranks))

        def ended() -> bool:
            drop_ended(left, self.task.folder, self._attempt)
            return not left

        return ended

    def _deadline(self) -> float:
        """Return until when the ranks may save; a third of the delay later Slurm kills them."""
        if self._until is None:
            began = time.monotonic() if self._told_at is None else self._told_at
            third = self.task.signal_delay_s / 3
            left = self._left()
            self._until = max(began + 2 * third, time.monotonic() + left - third if left else 0)
        return self._until

    def overdue(self) -> bool:
        """Say whether Slurm's warning of the time limit came before this process could get it.

        The warning goes to a job's steps, and while the job script sets up, there is none.
        """
        return 0 < self._left() < self.task.signal_delay_s

    def _left(self) -> float:
        """Return the seconds to the time limit; 0: too far away, so it may be a preemption."""
        end = os.environ.get("SLURM_JOB_END_TIME", "")
        left = float(end) - time.time() if end.isdecimal() else 0.0
        return left if left < self.task.signal_delay_s + _EARLIEST_S else 0.0

    def _failed(self) -> bool:
        """Say whether a rank has failed by itself; if not, a user or Slurm ends the job."""
        return failed_with(self.task.folder, self._attempt) is not None

    def _may_requeue(self) -> bool:
        """Say whether there is a checkpoint as `--checkpoint` asks for, if it does."""
        if self.task.checkpoint is None:
            return True
        return self._checkpoints is not None and self._checkpoints.newer()

    def _go_on(self) -> None:
        """Have submitit requeue the job and end this process; try again while that fails."""
        if self._checkpoints is not None and not self._checkpoints.newer():
            _say(_ANEW)
        while self._requeue is not None:
            if not self._still_wanted():
                return
            # If Slurm signals all processes of a step, the signal would end submitit's scontrol.
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
            try:
                with _as_first():
                    self._requeue(signal.SIGUSR2, None)
                return
            except SystemExit:
                if self._by_limit:
                    add_mark(self._marks, self._attempt, LIMIT)
                add_mark(self._marks, self._attempt, REQUEUED)  # the other supervisors may end
                raise
            except Exception as error:
                if time.monotonic() > self._deadline():
                    raise JobError(
                        "Slurm signalled a time limit or a preemption, and the job cannot be "
                        f"requeued: {str(error).rstrip('.')}. {_NOT_AGAIN}"
                    ) from error
                _say(f"the job is not requeued yet, but will be asked for again: {error}")
                time.sleep(_AGAIN_S)
            finally:
                signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR2})

    def _still_wanted(self) -> bool:
        """Say whether the job still has to be requeued: a cancelled job must not come back.

        If Slurm or the script has requeued it already, this process ends: a second `scontrol
        requeue` would wait until the next attempt has begun, and end that (seen with 22.05.8).
        """
        if self.task.one_machine:
            return True
        word = self.ending.ask()
        self._by_limit = word == LIMIT
        if word == REQUEUED:
            _say("the job is in the queue again already: Slurm or the script has requeued it.")
            sys.exit(255)  # as submitit does
        return word != OVER

    def _goes_on(self) -> JobError:
        from hpckit.submission.payload import GoesOnError  # noqa: PLC0415  # which starts this

        return GoesOnError("Slurm signalled a time limit or a preemption; the next job goes on.")

    def _refuse(self) -> None:
        self._refused = True
        add_mark(self._marks, self._attempt, NO_CHECKPOINT)
        _say(self._no_checkpoint())

    def _no_checkpoint(self) -> str:
        return (
            "Slurm signalled a time limit or a preemption, and the job is not requeued: nothing "
            f"that --checkpoint {self.task.checkpoint} names, and nothing in the run's "
            "checkpoints/, is newer than the start of this attempt."
        )

    def _refuse_last(self, code: int) -> None:
        if code:
            return
        if self.task.warned and self._told_at is not None:
            raise JobError(
                f"Slurm signalled a time limit or a preemption, and {_all_used(self.task)}. The "
                f"script was told to save its state, and has ended. {_NOT_AGAIN}"
            )
        raise JobError(
            f"The script stopped before its work was done, and {_all_used(self.task)}. {_NOT_AGAIN}"
        )


@contextlib.contextmanager
def _as_first() -> Iterator[None]:
    """Have this task's number be 0: submitit has that one alone requeue a job."""
    before = {name: os.environ[name] for name in (SRUN.rank, LOCAL.rank) if name in os.environ}
    os.environ.update(dict.fromkeys(before, "0"))
    try:
        yield
    finally:
        os.environ.update(before)


def _all_used(task: Task) -> str:
    if task.chain:
        return f"--chain {task.chain} has no other job"
    if not task.max_requeues:
        return "the job may not start again (with --max-requeues N it may)"
    return f"--max-requeues {task.max_requeues} allows no other attempt"


def _wait(done: Callable[[], bool], until: float) -> None:
    while not done() and time.monotonic() < until:
        time.sleep(_POLL_S)


def _say(words: str) -> None:
    sys.stderr.write(f"hpckit: {words}\n")
    sys.stderr.flush()
