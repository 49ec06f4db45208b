"""The process that a job script starts: `hpckit.submission.in_job` is its door.

submitit loads the job's callable and runs it; this module adds what submitit leaves out: it refuses
a folder others could write, and ends with the script's own exit status.
"""

import contextlib
import os
import signal
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from hpckit.errors import HpckitError, JobError
from hpckit.payload.task import GOES_ON, first_name, pickle_name
from hpckit.stand_ins import UNUSED_IN_JOBS, no_log, stand_ins
from hpckit.submission.payload import GoesOnError, ScriptFailedError

if TYPE_CHECKING:
    from collections.abc import Callable

# Environments of submitit itself, which it tries first.
_SUBMITITS = ("slurm", "local")


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
        try:
            loaded = os.stat(pickle, dir_fd=opened, follow_symlinks=False)
        except FileNotFoundError:  # it has not got its name, from the submission
            task = job_id.rpartition("_")[2] if "_" in job_id else ""
            number = int(task) if task.isdecimal() else 0
            with contextlib.suppress(FileNotFoundError):  # another rank was faster
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
    """Import submitit's part of the job, and ours; return it, and the id it will look for.

    submitit imports numpy wherever it is installed, for pickles that hold arrays (submission.py):
    60 ms and a pool of threads in front of every rank. Ours holds text.
    """
    with stand_ins(*UNUSED_IN_JOBS), _without_numpy(), no_log():
        from submitit.core import plugins
        from submitit.core.job_environment import JobEnvironment
        from submitit.core.submission import process_job

        from hpckit.payload import supervisor  # noqa: PLC0415  # which `Payload` imports
        from hpckit.submission import warned  # noqa: PLC0415

        del supervisor, warned
    if os.environ.get("SUBMITIT_EXECUTOR") in _SUBMITITS:
        # Else it asks every installed package whether it has an environment of its own.
        plugins._iter_submitit_entrypoints = tuple
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
