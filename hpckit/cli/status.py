"""`hpckit status JOBID...`: state, reason in plain words, ranks."""

import typer

from hpckit.cli.arguments import JobsArgument, JsonOption, RunsOption, raise_last, runs_called
from hpckit.cli.output import print_json, say
from hpckit.cli.view import status_document, status_page


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(status)


def status(job_ids: JobsArgument, runs: RunsOption = None, json: JsonOption = False) -> None:
    """Show what became of a job: state, why it waits, its ranks. An array shows all its tasks."""
    called, errors = runs_called(job_ids, runs)
    found = called.status()
    if json:
        print_json(status_document(found))
    else:
        say("\n".join(status_page(status) for status in found))
    raise_last(errors)
