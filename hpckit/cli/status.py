"""`hpckit status JOBID...`: state, reason in plain words, ranks."""

from typing import Annotated

import typer

from hpckit.cli.arguments import JobsArgument, JsonOption, RunsOption, raise_last, runs_called
from hpckit.cli.output import print_json, say
from hpckit.cli.view import status_document, status_pages


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(status)


def status(
    job_ids: JobsArgument,
    every: Annotated[bool, typer.Option("--all", help="Show each task of a long array.")] = False,
    runs: RunsOption = None,
    json: JsonOption = False,
) -> None:
    """Show what became of a job: state, why it waits, its ranks. An array shows its tasks.

    Of more than 12 tasks: how many are in which state, and those that failed, run or wait.
    """
    called, errors = runs_called(job_ids, runs)
    found = called.status()
    if json:
        print_json(status_document(found))
    else:
        say(status_pages(found, everything=every))
    raise_last(errors)
