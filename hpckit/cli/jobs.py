"""`hpckit jobs`: the user's runs, newest first."""

import time
from typing import Annotated

import typer

from hpckit.cli.arguments import JsonOption, RunsOption, default_root
from hpckit.cli.output import note, print_json, say, table
from hpckit.cli.view import status_record
from hpckit.find import newest_runs
from hpckit.submission.states import RunStatus, statuses
from hpckit.units import format_seconds


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(jobs)


def jobs(
    limit: Annotated[int, typer.Option("--limit", "-n", min=0, help="How many; 0 shows all.")] = 20,
    active: Annotated[bool, typer.Option("--active", help="Only runs that are not over.")] = False,
    runs: RunsOption = None,
    json: JsonOption = False,
) -> None:
    """List your runs, newest first, with their states."""
    shown = newest_runs(default_root(runs), limit or None)
    found = [status for status in statuses(shown) if not (active and status.finished)]
    if json:
        print_json({"jobs": [status_record(status) for status in found]})
        return
    if not shown:
        note("No runs yet. Start one: hpckit submit ddp")
        return
    heads = ("JOBID", "NAME", "STATE", "NODES", "GPUS", "ELAPSED", "SUBMITTED", "RUN")
    say(table(heads, [_row(status) for status in found]))
    if len(shown) == limit:
        note(f"The newest {limit}; --limit 0 shows all.")


def _row(status: RunStatus) -> tuple[object, ...]:
    record = status.run.record
    elapsed = None if status.elapsed_s is None else format_seconds(status.elapsed_s)
    submitted = time.strftime("%m-%d %H:%M", time.localtime(status.run.submitted_at))
    return (
        status.run.job_id,
        record["name"],
        status.state,
        record["plan"]["nodes"],
        record["plan"]["total_gpus"],
        elapsed,
        submitted,
        status.run.run_id,
    )
