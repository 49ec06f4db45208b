"""`hpckit.sample`: any command with a sampler beside it, in any job script."""

import contextlib
import os
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hpckit.api import log
from hpckit.arguments import FUNCTION, PATH, argument, checked, maybe
from hpckit.errors import RequestError
from hpckit.stats.sampler.start import run_alongside, start_sampler, stop_sampler
from hpckit.values import Seconds

if TYPE_CHECKING:
    from subprocess import Popen  # noqa: TID251  # the type only

# Set in a step by --gpus-per-task and --gpu-bind: srun(1), OUTPUT ENVIRONMENT VARIABLES.
_BINDING = ("SLURM_GPUS_PER_TASK", "SLURM_GPU_BIND", "SLURM_TRES_PER_TASK")


@checked(interval=Seconds, folder=maybe(PATH), tell=FUNCTION)
def sample(
    command: Sequence[str | os.PathLike[str]],
    *,
    interval: float = 10.0,
    folder: Path | str | None = None,
    tell: Callable[[str], None] = log,
) -> int:
    """Run a command, and record how this node's GPUs, cores and memory are used meanwhile.

    Args:
        command: a program and its arguments.
        interval: seconds between samples; 0 = none.
        folder: where samples go (else the run's own, or ./hpckit-samples/JOBID).
        tell: hears why there are no samples; the command runs either way.

    Returns:
        The command's exit status as a shell's; 128 + signal for one that a signal ended.

    Raises:
        RequestError: there is no command, or it is one text. CommandError: it is missing or cannot
            be started.
    """
    # Of a text, its letters would be the words.
    if isinstance(command, str) or not isinstance(command, Iterable):
        raise RequestError(f"command={command!r} must be a list, as in ['python', 'train.py'].")
    argv = [os.fspath(argument(PATH, word, "command")) for word in command]
    if not argv:
        raise RequestError("Write the command after `--`: hpckit sample -- python train.py.")
    wanted = interval > 0 and _sees_own_gpus(os.environ)
    sampler = _start(None if folder is None else Path(folder), interval, tell) if wanted else None
    try:
        return run_alongside(argv)
    finally:
        stop_sampler(sampler)


def _start(
    folder: Path | None, interval: float, tell: Callable[[str], None]
) -> "Popen[bytes] | None":
    """Start the sampler, or say why there is none: the job goes on either way."""
    why = "" if folder else _foreign(_default_folder())
    sampler = None if why else start_sampler(folder or _default_folder(), interval, {})
    if sampler is None:
        why = why or "the sampler could not be started"
        tell(f"no GPU samples: {why}")
    return sampler


def _foreign(folder: Path) -> str:
    """Make a folder in the one that holds it, which may be shared; say why it is not one's own.

    A link there leads where another user wants this one's files to be.
    """
    for path in (folder.parent, folder):
        try:
            with contextlib.suppress(FileExistsError):
                path.mkdir(mode=0o755, parents=True)
            status = path.lstat()
        except OSError:
            return ""  # a full disk: the sampler tries again
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
            kind = "a folder of another user" if stat.S_ISDIR(status.st_mode) else "not a folder"
            return f"{path} is {kind}: choose another folder with --dir"
    return ""


def _sees_own_gpus(environ: Mapping[str, str]) -> bool:
    """Tell whether this task should have a sampler: the first of a node, which sees its GPUs.

    Where Slurm binds GPUs to tasks, each sees only its own: then each has one, and readers count
    every GPU once, by its UUID.
    """
    bound = any(environ.get(name) for name in _BINDING)
    return bound or environ.get("SLURM_LOCALID", "0") == "0"


def _default_folder() -> Path:
    """Return the run's folder of samples, or one beside the job's own output."""
    run = os.environ.get("HPCKIT_RUN_DIR")
    if run:
        return Path(run) / "samples"
    return Path("hpckit-samples") / os.environ.get("SLURM_JOB_ID", f"local-{os.getpid()}")
