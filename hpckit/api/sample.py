"""`hpckit.sample`: any command with a sampler beside it, in any job script."""

import contextlib
import errno
import os
import shlex
import stat
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from hpckit.api import log
from hpckit.errors import RequestError
from hpckit.files import reason, replace_file
from hpckit.job_spec.arguments import (
    FUNCTION,
    PATH,
    WORD,
    argument,
    checked,
    is_several,
    maybe,
    shown,
)
from hpckit.stats.sampler.start import end_sampler, how_ended, run_alongside, start_sampler
from hpckit.stats.sampler.writer import LOST
from hpckit.text import in_line
from hpckit.values import Seconds

if TYPE_CHECKING:
    from subprocess import Popen  # noqa: TID251  # the type only

# Set in a step by --gpus-per-task and --gpu-bind: srun(1), OUTPUT ENVIRONMENT VARIABLES.
_BINDING = ("SLURM_GPUS_PER_TASK", "SLURM_GPU_BIND", "SLURM_TRES_PER_TASK")
_FIRST_BYTES = 4096  # about a header and the first samples of 8 GPUs
_ANSWER_S = 5.0  # of a file system, which takes milliseconds unless it hangs
_FULL = (errno.ENOSPC, errno.EDQUOT)
_OTHER_FOLDER = "choose another folder with --dir"
Answer = TypeVar("Answer")


@checked(interval=Seconds, folder=maybe(PATH), tell=FUNCTION)
def sample(
    command: Sequence[str | os.PathLike[str]],
    *,
    interval: float = 10.0,
    folder: Path | str | None = None,
    tell: Callable[[str], None] = log,
) -> int:
    """Run a command, and record how this node's GPUs, cores and memory are used meanwhile.

    Signals (TERM, INT, HUP, USR1, USR2) are passed on to the command. A call from another thread
    than the main one works too, but passes on none: Python handles signals in the main one alone.

    Args:
        command: a program and its arguments.
        interval: seconds between samples; 0 = none.
        folder: where samples go (else the run's own, or ./hpckit-samples/JOBID).
        tell: hears, before the command starts, why there are no samples, or after its end why the
            last ones are missing; the command runs either way. Outside Slurm it hears at the end
            which command shows the samples.

    Returns:
        The command's exit status as a shell's; 128 + signal for one that a signal ended.

    Raises:
        RequestError: there is no command, it is not a list of texts and paths, or another argument
            does not fit. CommandError: the command is missing or cannot be started.
    """
    # Of a text, its letters would be the words; of bytes, numbers.
    if isinstance(command, str | bytes) or not is_several(command):
        raise RequestError(
            f"{shown(command, 'command')} must be a list, as in ['python', 'train.py']."
        )
    argv = [os.fspath(argument(WORD, word, "command")) for word in command]
    if not argv:
        raise RequestError(
            "There is no command to run. On a command line it stands after `--`: hpckit sample -- "
            "python train.py."
        )
    if interval == 0 or not _sees_own_gpus(os.environ):
        return run_alongside(argv)
    with _sampled(None if folder is None else Path(folder), interval, tell):
        return run_alongside(argv)


@contextlib.contextmanager
def _sampled(given: Path | None, interval: float, tell: Callable[[str], None]) -> Iterator[None]:
    """Keep a sampler beside a block; say once if samples cannot be written, which fails nothing."""
    folder = given or _default_folder()
    usable, why = _look(folder, given=given is not None)
    outside = _outside_id(os.environ)
    ids = {"job_id": outside} if outside else {}
    # Also where nothing can be written now: it tries again, and the user may free the disk.
    sampler = start_sampler(folder, interval, ids) if usable else None
    if sampler is None:
        why = why or "the sampler could not be started"
    try:
        if why:
            tell(in_line(f"no GPU samples: {why}"))
        yield
    finally:
        failure = end_sampler(sampler) if sampler else ""
        lacks = _lacks(sampler, folder, failure) if sampler and not why else ""
        if lacks:
            tell(in_line(lacks))
    if outside and not (why or lacks):
        shown = f" --samples {shlex.quote(str(folder.absolute()))}" if given else ""
        tell(in_line(f"show what it used: hpckit stats {outside}{shown}"))


def _lacks(sampler: "Popen[bytes]", folder: Path, failure: str) -> str:
    """Say which samples a sampler has not written, and why; nothing if it has written all.

    `failure`: why it was killed; empty if it has ended.
    """
    status = sampler.returncode
    if status == LOST:
        why = _look(folder, given=True)[1] or f"{folder} could not be written for a while"
        return f"the last GPU samples are missing: {why}"
    if status == 0:
        return ""
    failure = failure or how_ended(status)
    if _within(lambda: any(folder.glob(f"*.{sampler.pid}.jsonl"))):
        return f"the last GPU samples are missing: the sampler {failure}"
    return f"no GPU samples in {folder}: the sampler {failure} before it wrote one"


def _look(folder: Path, *, given: bool) -> tuple[bool, str]:
    """Return whether a sampler may write into a folder, and what is wrong with it, if anything.

    In another thread: a dead file system keeps whoever asks it, and the command should start.
    """

    def look() -> tuple[bool, str]:
        foreign = "" if given else _foreign(folder)
        return not foreign, foreign or _refusal(folder)

    silent = f"{folder} did not answer within {_ANSWER_S:g} s: {_OTHER_FOLDER}"
    return _within(look) or (given, silent)


def _within(ask: Callable[[], Answer]) -> Answer | None:
    """Return what a file system answers; None: it has not, within some seconds."""
    found: list[Answer] = []
    thread = threading.Thread(target=lambda: found.append(ask()), daemon=True)
    thread.start()
    thread.join(_ANSWER_S)
    return found[0] if found else None


def _refusal(folder: Path) -> str:
    """Write into a folder as much as the first samples take, remove it; say why that fails."""
    place = folder
    try:
        place = folder.absolute()
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        probe = folder / f".hpckit-{os.urandom(8).hex()}"
        replace_file(probe, bytes(_FIRST_BYTES))
        probe.unlink()
    except OSError as error:
        why = "it is not a folder" if isinstance(error, FileExistsError) else reason(error)
        todo = f"free space there, or {_OTHER_FOLDER}" if error.errno in _FULL else _OTHER_FOLDER
        return f"nothing can be written in {place} ({why}): {todo}"
    return ""


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
            return ""  # as of a full disk: `_refusal` says so
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
            kind = "a folder of another user" if stat.S_ISDIR(status.st_mode) else "not a folder"
            return f"{path} is {kind}: {_OTHER_FOLDER}"
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
    return Path("hpckit-samples") / (_outside_id(os.environ) or os.environ["SLURM_JOB_ID"])


def _outside_id(environ: Mapping[str, str]) -> str | None:
    """Return what a command is called that runs neither in a run nor in a job of Slurm's."""
    inside = environ.get("HPCKIT_RUN_DIR") or environ.get("SLURM_JOB_ID")
    return None if inside else f"local-{os.getpid()}"
