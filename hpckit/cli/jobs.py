"""`hpckit jobs`: the user's runs, newest first."""

import time
from typing import Annotated

import typer

from hpckit import RunStatus
from hpckit.api.lookup import newest
from hpckit.cli.arguments import JsonOption, RunsOption, settled_root
from hpckit.cli.output import note, print_json, say, table
from hpckit.text import format_seconds

# So many are named.
_DAMAGED = 10


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
    shown, damaged = newest(settled_root(runs), limit or None)
    found = [status for status in shown.status() if not (active and status.finished)]
    if json:
        said = [{"run_dir": str(row.dir), "why": str(row.error)} for row in damaged]
        print_json({"jobs": [status.document() for status in found], "damaged": said})
        return
    if shown:
        heads = ("JOBID", "NAME", "STATE", "NODES", "GPUS", "ELAPSED", "SUBMITTED", "RUN")
        say(table(heads, [_row(status) for status in found]))
    _say_damaged([str(row.error) for row in damaged])
    _say_damaged([f"{row.run.run_id}: {text}" for row in found for text in row.damaged[:1]])
    if not shown:
        note("No runs yet. Start one: hpckit submit ddp")
    elif len(shown) == limit:
        note(f"These are the newest {limit} runs; --limit 0 shows all.")


def _say_damaged(lines: list[str]) -> None:
    """Name what cannot be read, as far as it does not hide what can."""
    for line in lines[:_DAMAGED]:
        note(f"damaged: {line}")
    if len(lines) > _DAMAGED:
        note(f"damaged: {len(lines) - _DAMAGED} more")


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
