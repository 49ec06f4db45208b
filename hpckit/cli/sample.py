"""`hpckit sample`: run any command with a sampler beside it, in any job script."""

from pathlib import Path
from typing import Annotated

import typer

from hpckit.api import sample as api
from hpckit.cli.arguments import a_folder, finite
from hpckit.cli.mistakes import SampleCommand
from hpckit.cli.output import note
from hpckit.errors import CommandError


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(cls=SampleCommand)(sample)


def sample(
    context: typer.Context,
    interval: Annotated[
        float,
        typer.Option(min=0, callback=finite, metavar="S", help="Seconds between samples; 0 = off."),
    ] = 10.0,
    folder: Annotated[
        Path | None,
        typer.Option(
            "--dir", callback=a_folder, help="Where samples go (else ./hpckit-samples/JOBID)."
        ),
    ] = None,
) -> None:
    """Run COMMAND, and write down what this node's GPUs, cores and memory do meanwhile.

    In a job script: srun hpckit sample -- python train.py. The exit status is COMMAND's.
    """
    try:
        status = api.sample(context.obj or (), interval=interval, folder=folder, tell=_note)
    except CommandError as error:
        note(f"hpckit: error: {error}")
        status = 127  # as a shell's
    raise typer.Exit(status)


def _note(text: str) -> None:
    """Say it in the log of a job, where other programs write too."""
    note(f"hpckit: note: {text}")
