"""The process that a job script starts: `hpckit.submission.in_job` is its door.

It loads the job's callable from the pickle that submitit wrote, unless others could have written
it, runs it, and ends with the script's own exit status. submitit itself is imported where it has
something to do: it requeues the jobs that Slurm warns. Else that import would stand in front of
every rank, a fifth of its supervisor's start, for a file with a result that nobody reads.
"""

import contextlib
import gc
import os
import shlex
import signal
import stat
import sys
from _pickle import Unpickler, UnpicklingError
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from hpckit.errors import HpckitError, JobError
from hpckit.payload.last_line import end_with
from hpckit.payload.task import GOES_ON, first_name, pickle_name
from hpckit.run_folders.run_files import patiently
from hpckit.stand_ins import UNUSED_IN_JOBS, no_log, stand_ins
from hpckit.submission.payload import GoesOnError, Payload, ScriptFailedError

if TYPE_CHECKING:
    from collections.abc import Callable

# Environments of submitit itself, which it tries first, and the variables of their jobs' ids: of a
# job, of an array, of a task in it (submitit/slurm/slurm.py, submitit/local/local.py).
_JOB_IDS = {
    "slurm": ("SLURM_JOB_ID", "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID"),
    "local": ("SUBMITIT_LOCAL_JOB_ID", "", ""),
}


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
        opened = patiently(lambda: os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW))
        inside, around = patiently(lambda: (os.fstat(opened), os.stat("..", dir_fd=opened)))
        _refuse_shared(folder, inside, "700")
        _refuse_shared(folder.parent, around, "go-w")
        loaded = patiently(lambda: _named_status(opened, pickle, job_id))
    except OSError as error:
        raise JobError(f"{folder}/{pickle} cannot be opened: {error.strerror}.") from error
    # Those whom the folder keeps out cannot write to the pickle, whatever its own mode.
    closed = not stat.S_IMODE(inside.st_mode) & 0o077
    _refuse_shared(folder / pickle, loaded, "600", closed=closed)
    return Path(f"/proc/self/fd/{opened}")


def _named_status(folder: int, pickle: str, job_id: str) -> os.stat_result:
    """Return a pickle's status, once it has its name."""
    try:
        return os.stat(pickle, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:  # it has not got its name, from the submission
        task = job_id.rpartition("_")[2] if "_" in job_id else ""
        number = int(task) if task.isdecimal() else 0
        with contextlib.suppress(FileNotFoundError):  # another rank was faster
            os.rename(first_name(number), pickle, src_dir_fd=folder, dst_dir_fd=folder)
        return os.stat(pickle, dir_fd=folder, follow_symlinks=False)


def _refuse_shared(path: Path, status: os.stat_result, mode: str, *, closed: bool = False) -> None:
    writable = stat.S_IMODE(status.st_mode) & 0o022 and not closed
    if status.st_uid != os.getuid() or writable or stat.S_ISLNK(status.st_mode):
        raise JobError(
            f"{path} can be written by others, so nothing is loaded from it. "
            f"Make it yours alone: chmod {mode} {shlex.quote(str(path))}"
        )


def _import_ours() -> None:
    """Import what `Payload` does; from now on garbage is collected, which `in_job` has put off."""
    with stand_ins(*UNUSED_IN_JOBS):
        from hpckit.payload import supervisor  # noqa: PLC0415
        from hpckit.submission import warned  # noqa: PLC0415

    del supervisor, warned
    gc.freeze()
    gc.enable()


def _import_submitit() -> "tuple[Callable[[Path], None], str]":
    """Import submitit's part of the job; return it, and the id it will look for.

    submitit imports numpy wherever it is installed, for pickles that hold arrays (submission.py):
    60 ms and a pool of threads in front of every rank. Ours holds text.
    """
    import logging  # noqa: PLC0415  # of which nothing else has need

    with stand_ins(*UNUSED_IN_JOBS), _without_numpy(), no_log():
        from submitit.core import plugins
        from submitit.core.job_environment import JobEnvironment
        from submitit.core.submission import process_job
    if os.environ.get("SUBMITIT_EXECUTOR") in _JOB_IDS:
        # Else it asks every installed package whether it has an environment of its own.
        plugins._iter_submitit_entrypoints = tuple
    logging.getLogger("submitit").setLevel(logging.CRITICAL)
    return process_job, JobEnvironment().job_id


@contextlib.contextmanager
def _without_numpy() -> Iterator[None]:
    """Let imports believe that there is none."""
    missing = "numpy" not in sys.modules
    if missing:
        sys.modules["numpy"] = None  # type: ignore[assignment]  # how Python says "not there"
    try:
        yield
    finally:
        if missing:
            del sys.modules["numpy"]


def main() -> None:
    """Run this process's part of the job; exit with the script's status."""
    from hpckit.notify.told import told_at_the_end  # noqa: PLC0415
    from hpckit.payload.children import PASSED  # noqa: PLC0415
    from hpckit.submission.container_step import step_ended_at_the_end  # noqa: PLC0415

    # They wait until `_handle_signals`: submitit's own handler of SIGUSR2 would have the job
    # requeued from the midst of an import.
    signal.pthread_sigmask(signal.SIG_BLOCK, PASSED)
    if signal.getsignal(signal.SIGTERM) == signal.SIG_IGN:  # by the job script: `UNSIGNALLED`
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    with told_at_the_end(), step_ended_at_the_end():
        _process(Path(sys.argv[1]))


def _process(folder: Path) -> None:
    try:
        _run(folder)
    except ScriptFailedError as failure:
        sys.exit(_exit_status(failure.code))
    except GoesOnError as error:
        end_with(f"hpckit: {error}", GOES_ON)
    except HpckitError as error:
        end_with(f"hpckit: {error}")


def _run(folder: Path) -> None:
    _import_ours()
    job_id = own_job_id(os.environ)
    if job_id is not None:
        folder = open_own_folder(folder, job_id)
        payload = own_payload(folder / pickle_name(job_id))
        if payload is not None and not payload.may_be_requeued:
            payload()
            return
    process_job, submitits = _import_submitit()
    process_job(folder if job_id else open_own_folder(folder, submitits))


def own_job_id(environ: Mapping[str, str]) -> str | None:
    """Return the id that submitit's own environments call this job by; None: it is another's."""
    names = _JOB_IDS.get(environ.get("SUBMITIT_EXECUTOR", ""))
    if names is None:
        return None
    alone, array, task = names
    if array in environ:
        return f"{environ[array]}_{environ.get(task)}"
    return environ.get(alone)


def own_payload(pickle: Path) -> Payload | None:
    """Return what a job runs, without submitit; None: the pickle is not one that hpckit makes."""
    try:
        found = patiently(lambda: _loaded(pickle))
    except Exception:  # noqa: BLE001  # whatever is wrong with it: submitit loads it, or says so
        return None
    payload = getattr(found, "function", None)
    return payload if isinstance(payload, Payload) else None


def _loaded(pickle: Path) -> object:
    with pickle.open("rb") as file:
        return _Reader(file).load()


class _Submission:
    """Stands for submitit's `DelayedSubmission`: its state becomes this one's attributes."""


class _Reader(Unpickler):
    """Knows the classes in a pickle of hpckit's own, and makes nothing else."""

    def find_class(self, module: str, name: str) -> type:
        """Return a class."""
        try:
            return _CLASSES[module, name]
        except KeyError:
            raise UnpicklingError(f"{module}.{name}") from None


# Older pickles name the door.
_CLASSES = {
    ("submitit.core.utils", "DelayedSubmission"): _Submission,
    ("hpckit.submission.payload", "Payload"): Payload,
    ("hpckit.submission.in_job", "Payload"): Payload,
}


def _exit_status(code: int) -> int:
    """Return a script's status, unless that would ask the local controller to start it again."""
    from hpckit.payload.children import REQUEUE_STATUS  # noqa: PLC0415

    local = os.environ.get("SUBMITIT_EXECUTOR") == "local"
    return 1 if local and code == REQUEUE_STATUS else code
