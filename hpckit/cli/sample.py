"""`hpckit sample`: run any command with a sampler beside it, in any job script."""

import contextlib
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hpckit.cli.mistakes import SampleCommand
from hpckit.cli.output import note
from hpckit.errors import CommandError, RequestError
from hpckit.stats.sampler.start import run_alongside, start_sampler, stop_sampler

if TYPE_CHECKING:
    from subprocess import Popen  # noqa: TID251  # the type only

# Set in a step by --gpus-per-task and --gpu-bind: srun(1), OUTPUT ENVIRONMENT VARIABLES.
_BINDING = ("SLURM_GPUS_PER_TASK", "SLURM_GPU_BIND", "SLURM_TRES_PER_TASK")


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(cls=SampleCommand)(sample)


def sample(
    context: typer.Context,
    interval: Annotated[
        float, typer.Option(metavar="S", help="Seconds between samples; 0 = off.")
    ] = 10.0,
    folder: Annotated[
        Path | None,
        typer.Option("--dir", help="Where samples go (else ./hpckit-samples/JOBID)."),
    ] = None,
) -> None:
    """Run COMMAND, and write down what this node's GPUs, cores and memory do meanwhile.

    In a job script: srun hpckit sample -- python train.py. The exit status is COMMAND's.
    """
    argv = tuple(context.obj or ())
    if not argv:
        raise RequestError("Write the command after `--`: hpckit sample -- python train.py.")
    sampler = _start(folder, interval) if sees_own_gpus(os.environ) and interval > 0 else None
    try:
        status = run_alongside(argv)
    except CommandError as error:
        note(f"hpckit: error: {error}")
        status = 127  # as a shell's
    finally:
        stop_sampler(sampler)
    raise typer.Exit(status)


def _start(folder: Path | None, interval: float) -> "Popen[bytes] | None":
    """Start the sampler, or say why there is none: the job goes on either way."""
    why = "" if folder else _foreign(default_folder())
    sampler = None if why else start_sampler(folder or default_folder(), interval, {})
    if sampler is None:
        why = why or "the sampler could not be started"
        note(f"hpckit: note: no GPU samples: {why}")
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


def sees_own_gpus(environ: Mapping[str, str]) -> bool:
    """Tell whether this task should have a sampler: the first of a node, which sees its GPUs.

    Where Slurm binds GPUs to tasks, each sees only its own: then each has one, and readers count
    every GPU once, by its UUID.
    """
    bound = any(environ.get(name) for name in _BINDING)
    return bound or environ.get("SLURM_LOCALID", "0") == "0"


def default_folder() -> Path:
    """Return the run's folder of samples, or one beside the job's own output."""
    run = os.environ.get("HPCKIT_RUN_DIR")
    if run:
        return Path(run) / "samples"
    return Path("hpckit-samples") / os.environ.get("SLURM_JOB_ID", f"local-{os.getpid()}")
