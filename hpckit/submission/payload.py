"""What a job runs: the callable that submitit loads in it, and how it ends."""

import os
import signal
from functools import cached_property
from typing import TYPE_CHECKING

from hpckit.errors import JobError
from hpckit.payload.task import Task, task_from_json

# What only the job needs is imported in functions: to submit it, its class is enough.
if TYPE_CHECKING:
    from submitit.helpers import DelayedSubmission

    from hpckit.payload.supervisor import Supervised
    from hpckit.submission.warned import Warned


class ScriptFailedError(JobError):
    """The script of a rank ended with a status that is not 0."""

    def __init__(self, code: int) -> None:
        super().__init__(f"exit status {code}")
        self.code = code


class GoesOnError(JobError):
    """The job was told of its end, and the next one of its chain goes on."""


class Payload:
    """The callable a job runs: small, importable, with its arguments as JSON."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._running: Supervised | None = None

    @property
    def may_be_requeued(self) -> bool:
        """Whether submitit may have to start the job again: Slurm warns it of its end."""
        return self._task.warned

    @cached_property
    def _task(self) -> Task:
        return task_from_json(self.text)

    def __getstate__(self) -> dict[str, object]:
        """Pickle the text alone."""
        return {"text": self.text, "_running": None}

    def __call__(self) -> dict[str, int]:
        """Run this process's part of the job.

        Raises:
            ScriptFailedError: the script did not end with 0.
            JobError: it ended because of Slurm's warning, and the job does not go on.
        """
        from hpckit.payload.supervisor import supervised  # noqa: PLC0415

        task = self._task
        self._running = supervised(task)
        warned = _handle_signals(task, self._running)
        if task.max_requeues and last_attempt(task) and os.environ.get("SLURM_PROCID", "0") == "0":
            import threading  # noqa: PLC0415  # the last attempt's alone

            from hpckit.submission.no_requeue import forbid_requeue  # noqa: PLC0415

            # Beside the ranks: a controller may take its time to answer.
            threading.Thread(target=forbid_requeue, args=[task], daemon=True).start()
        code = self._running.run(warned.look)
        if task.max_requeues:
            from hpckit.submission.no_requeue import forbid_if_noted  # noqa: PLC0415

            forbid_if_noted(task, warned.ending, code)
        if code:
            from hpckit.submission.kept_signal import requeue_if_kept  # noqa: PLC0415

            requeue_if_kept(task)
            raise ScriptFailedError(code)
        return {"exit_code": 0}

    def checkpoint(self) -> "DelayedSubmission | None":
        """Say how the job goes on after a time-out or preemption: the same again, or not at all.

        submitit calls this on rank zero when Slurm announces the end; None means no requeue.
        """
        from submitit.helpers import DelayedSubmission

        if last_attempt(self._task):
            return None
        return DelayedSubmission(Payload(self.text))


def last_attempt(task: Task) -> bool:
    """Say whether no requeue of hpckit's is left."""
    from hpckit.rank_variables import restart_count  # noqa: PLC0415

    return restart_count() >= max(task.max_requeues, task.chain)


def _handle_signals(task: Task, running: "Supervised") -> "Warned":
    """Take SIGTERM over from submitit, which ignores it, and pass on what is meant for the script.

    Where the job may start again, SIGUSR2 is Slurm's warning. submitit's own handler would requeue
    the job at once; `Warned` calls it when the script has saved its state, or cannot.
    """
    from hpckit.payload.children import PASSED, handle_passed  # noqa: PLC0415
    from hpckit.rank_variables import restart_count  # noqa: PLC0415
    from hpckit.stop_marks import failed_with  # noqa: PLC0415
    from hpckit.submission.warned import Warned  # noqa: PLC0415

    requeue = signal.getsignal(signal.SIGUSR2)
    warned = Warned(task, running, requeue if callable(requeue) else None)
    signal.signal(signal.SIGTERM, warned.ending.handle)
    signal.signal(signal.SIGINT, warned.ending.handle)
    handle_passed(lambda signum, _frame: running.forward(signum))
    if task.warned:
        signal.signal(signal.SIGUSR2, warned.handle)
        by_script = bool(os.environ.pop("HPCKIT_WARNED", ""))  # which got it before this began
        if by_script or warned.overdue():
            warned.handle(signal.SIGUSR2, None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (*PASSED, signal.SIGTERM))
    if task.warned and failed_with(task.folder, restart_count()) is not None:
        # The SIGTERM that follows another rank's failure may have come while it was ignored.
        warned.ending.handle(signal.SIGTERM)
    return warned
