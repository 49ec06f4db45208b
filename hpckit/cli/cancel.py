"""`hpckit cancel JOBID...`."""

import typer

from hpckit.cli.arguments import JobsArgument, JsonOption, RunsOption, raise_last, runs_called
from hpckit.cli.output import note, print_json, say
from hpckit.cli.view import status_document, status_line
from hpckit.submission.waiting import cancel as cancel_runs


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(cancel)


def cancel(job_ids: JobsArgument, runs: RunsOption = None, json: JsonOption = False) -> None:
    """End jobs, or take them out of the queue. Jobs that are over stay as they were."""
    called, errors = runs_called(job_ids, runs)
    found = cancel_runs(called)
    if json:
        print_json(status_document(found))
    else:
        say("\n".join(status_line(status) for status in found))
    if not all(status.finished or status.elsewhere for status in found):
        note("Slurm has the request, but some jobs are still ending.")
    raise_last(errors)
