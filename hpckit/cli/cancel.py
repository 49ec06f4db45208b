"""`hpckit cancel JOBID...`."""

import typer

from hpckit.api.cancel import cancel_called
from hpckit.cli.arguments import JobsArgument, JsonOption, RunsOption, raise_last, say_note
from hpckit.cli.output import note, print_json, say
from hpckit.cli.view import status_lines


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(cancel)


def cancel(job_ids: JobsArgument, runs: RunsOption = None, json: JsonOption = False) -> None:
    """End jobs, or remove them from the queue. Jobs that are over stay as they were.

    Slurm's own id is enough also where the run cannot be read: Slurm says whose the job is.
    """
    done = cancel_called(job_ids, runs, say_note)
    if json and (done.runs or done.by_id or not done.errors):
        records = [status.document() for status in done.runs]
        records += [{"job_id": word, "state": state} for word, state in done.by_id.items()]
        print_json(records[0] if len(records) == 1 else {"jobs": records})
    elif not json:
        _say_all([status_lines(done.runs)] if done.runs else [])
        _say_all(
            [
                f"{word} {state} according to Slurm; hpckit has no run of this job"
                for word, state in done.by_id.items()
            ]
        )
    if not done.errors and not all(row.finished or row.elsewhere for row in done.runs):
        note("The end is asked for; some jobs are still ending.")
    raise_last(done.errors)


def _say_all(lines: list[str]) -> None:
    """Print lines, if there are any."""
    if lines:
        say("\n".join(lines))
