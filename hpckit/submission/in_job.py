"""What submitit starts in the job: `python -m hpckit.submission.in_job FOLDER`.

submitit loads the callable below from FOLDER and runs it; this module adds what submitit leaves
out: it refuses a folder others could write, and ends with the script's own exit status.
"""

import contextlib
import os
import signal
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from hpckit.errors import HpckitError, JobError
from hpckit.payload.task import GOES_ON, Task, first_name, pickle_name, task_from_json

# What only the job needs is imported in functions: to submit it, its class is enough.
if TYPE_CHECKING:
    from collections.abc import Callable

    from submitit.helpers import DelayedSubmission

    from hpckit.payload.supervisor import Supervised
    from hpckit.submission.warned import Warned


# The pauses between attempts to have Slurm's own requeue switched off.
_ASK_AGAIN_S = (2.0, 10.0, 60.0)


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

        task = task_from_json(self.text)
        self._running = supervised(task)
        warned = _handle_signals(task, self._running)
        if task.max_requeues and last_attempt(task) and os.environ.get("SLURM_PROCID", "0") == "0":
            import threading  # noqa: PLC0415  # the last attempt's alone

            # Beside the ranks: a controller may take its time to answer.
            threading.Thread(target=_forbid_requeue, args=[task], daemon=True).start()
        code = self._running.run(warned.look)
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

        if last_attempt(task_from_json(self.text)):
            return None
        return DelayedSubmission(Payload(self.text))


def last_attempt(task: Task) -> bool:
    """Say whether no requeue of hpckit's is left."""
    from hpckit.payload.environment import restart_count  # noqa: PLC0415

    return restart_count() >= max(task.max_requeues, task.chain)


def _forbid_requeue(task: Task) -> None:
    """Keep Slurm from requeueing the last attempt: on a preemption it asks nobody."""
    import time  # noqa: PLC0415  # the last attempt's alone

    from hpckit.schedulers.base import find_scheduler  # noqa: PLC0415

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
    sys.stderr.write(
        "hpckit: this is the last attempt that --max-requeues allows, but a preemption may start "
        f"the job again: {fault}\n"
    )


def _handle_signals(task: Task, running: "Supervised") -> "Warned":
    """Take SIGTERM over from submitit, which ignores it, and pass on what is meant for the script.

    Where the job may start again, SIGUSR2 is Slurm's warning. submitit's own handler would requeue
    the job at once; `Warned` calls it when the script has saved its state, or cannot.
    """
    from hpckit.payload.children import PASSED, handle_passed  # noqa: PLC0415
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
    signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED)
    return warned


def open_own_folder(folder: Path, job_id: str) -> Path:
    """Open the folder of a pickle that nobody else can write to; return a path that leads into it.

    Where the submission was cut short between Slurm's yes and its own last words, the pickle gets
    its name here. The path holds the folder itself, not its name: where others can rename things
    above it, they could put another in its place after the check.

    Raises:
        JobError: the folder, the run's around it or the pickle is not the user's own, or can be
            written by others.
    """
    pickle = pickle_name(job_id)
    try:
        opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        inside, around = os.fstat(opened), os.stat("..", dir_fd=opened)
        _refuse_shared(folder, inside, "700")
        _refuse_shared(folder.parent, around, "go-w")
        with contextlib.suppress(FileNotFoundError):  # it has its name, from the submission
            task = job_id.rpartition("_")[2] if "_" in job_id else ""
            number = int(task) if task.isdecimal() else 0
            os.rename(first_name(number), pickle, src_dir_fd=opened, dst_dir_fd=opened)
        loaded = os.stat(pickle, dir_fd=opened, follow_symlinks=False)
    except OSError as error:
        raise JobError(f"{folder}/{pickle} cannot be opened: {error.strerror}.") from error
    # Those whom the folder keeps out cannot write to the pickle, whatever its own mode.
    closed = not stat.S_IMODE(inside.st_mode) & 0o077
    _refuse_shared(folder / pickle, loaded, "600", closed=closed)
    return Path(f"/proc/self/fd/{opened}")


def _refuse_shared(path: Path, status: os.stat_result, mode: str, *, closed: bool = False) -> None:
    writable = stat.S_IMODE(status.st_mode) & 0o022 and not closed
    if status.st_uid != os.getuid() or writable or stat.S_ISLNK(status.st_mode):
        raise JobError(
            f"{path} can be written by others, so nothing is loaded from it. "
            f"Make it yours alone: chmod {mode} {path}"
        )


def _import_submitit() -> "tuple[Callable[[Path], None], str]":
    """Import submitit's part of the job without numpy; return it, and the id it will look for.

    submitit imports numpy wherever it is installed, for pickles that hold arrays (submission.py):
    60 ms and a pool of threads in front of every rank. Ours holds text.
    """
    missing = "numpy" not in sys.modules
    if missing:
        sys.modules["numpy"] = None  # type: ignore[assignment]  # how Python says "not there"
    from submitit.core.job_environment import JobEnvironment
    from submitit.core.submission import process_job

    if missing:
        del sys.modules["numpy"]
    return process_job, JobEnvironment().job_id


def main() -> None:
    """Run submitit's part of the job with quiet logs; exit with the script's status."""
    from hpckit.notify.told import told_at_the_end  # noqa: PLC0415
    from hpckit.payload.children import PASSED  # noqa: PLC0415
    from hpckit.submission.container_step import step_ended_at_the_end  # noqa: PLC0415

    # They wait until `_handle_signals`: submitit's own handler of SIGUSR2 would have the job
    # requeued from the midst of an import.
    signal.pthread_sigmask(signal.SIG_BLOCK, PASSED)
    with told_at_the_end(), step_ended_at_the_end():
        _process(Path(sys.argv[1]))


def _process(folder: Path) -> None:
    import logging  # noqa: PLC0415

    try:
        process_job, job_id = _import_submitit()
        folder = open_own_folder(folder, job_id)
        logging.getLogger("submitit").setLevel(logging.CRITICAL)
        process_job(folder)
    except ScriptFailedError as failure:
        sys.exit(_exit_status(failure.code))
    except GoesOnError as error:
        sys.stderr.write(f"hpckit: {error}\n")
        sys.exit(GOES_ON)
    except HpckitError as error:
        sys.exit(f"hpckit: {error}")


def _exit_status(code: int) -> int:
    """Return a script's status, unless that would ask the local controller to start it again."""
    from hpckit.payload.children import REQUEUE_STATUS  # noqa: PLC0415

    local = os.environ.get("SUBMITIT_EXECUTOR") == "local"
    return 1 if local and code == REQUEUE_STATUS else code


if __name__ == "__main__":
    # The pickle names the classes of this module by its own name: `__main__` has others.
    from hpckit.submission import in_job

    in_job.main()
