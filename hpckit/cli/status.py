"""`hpckit status JOBID...`: state, reason in plain words, ranks."""

import typer

from hpckit.cli.arguments import JobsArgument, JsonOption, RunsOption, runs_called
from hpckit.cli.output import print_json
from hpckit.cli.view import status_page, status_record
from hpckit.submission.states import statuses


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(status)


def status(job_ids: JobsArgument, runs: RunsOption = None, json: JsonOption = False) -> None:
    """Show what became of a job: state, why it waits, its ranks. An array shows all its tasks."""
    found = statuses(runs_called(job_ids, runs))
    if json:
        records = [status_record(status) for status in found]
        print_json(records[0] if len(records) == 1 else {"jobs": records})
    else:
        print("\n".join(status_page(status) for status in found))
