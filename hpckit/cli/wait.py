"""`hpckit wait JOBID...`: return when all are over."""

from typing import Annotated

import typer

from hpckit import wait as wait_for
from hpckit.cli.arguments import JobsArgument, JsonOption, RunsOption, runs_called
from hpckit.cli.follow import NeverStarting, say_notes
from hpckit.cli.output import note, print_json, say
from hpckit.cli.view import status_document, status_lines


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(wait)


def wait(
    job_ids: JobsArgument,
    timeout: Annotated[
        float | None,
        typer.Option("--timeout", min=0, metavar="S", help="Give up after S seconds."),
    ] = None,
    runs: RunsOption = None,
    json: JsonOption = False,
) -> None:
    """Wait until all jobs are over. Exit status 0 when all COMPLETED, 1 when one did not."""
    called, errors = runs_called(job_ids, runs, believed=True)
    for error in errors:  # it may be long until the others are over
        note(f"hpckit: error: {error}")
    found = wait_for(called, timeout, look=NeverStarting()).status()
    if json:
        print_json(status_document(found))
    else:
        say(status_lines(found))
    say_notes(found)
    if errors:
        raise typer.Exit(errors[-1].exit_code)
    if not all(status.good for status in found):
        raise typer.Exit(1)
