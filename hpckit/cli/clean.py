"""`hpckit clean`: remove old runs, and what killed commands left."""

import sys
import time
from typing import Annotated, Any

import typer

from hpckit.api.clean import Cleaned, Cleaning
from hpckit.api.clean import clean as plan_cleaning
from hpckit.cli.arguments import JsonOption, RunsOption, raise_last, say_damaged
from hpckit.cli.output import note, print_json, say, say_note, table
from hpckit.errors import RequestError
from hpckit.text import counted
from hpckit.units import format_bytes

_HEADS = ("JOBID", "NAME", "STATE", "CHANGED", "SIZE", "FOLDER")


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(clean)


def clean(
    older: Annotated[
        str | None,
        typer.Option(metavar="AGE", help="Runs in which nothing changed for so long: 30d, 12w."),
    ] = None,
    state: Annotated[
        str | None, typer.Option(metavar="STATE", help="Runs in this state: FAILED,CANCELLED.")
    ] = None,
    larger: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Runs larger than this: 500M, 10G (by 1024).")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would go; remove nothing.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Remove without a question.")] = False,
    runs: RunsOption = None,
    json: JsonOption = False,
) -> None:
    """Remove old runs that no unfinished job needs, and what killed commands left.

    Shows first what would go, and asks. Without --older, --state and --larger no run is removed.
    """
    found = plan_cleaning(older=older, state=state, larger=larger, runs=runs, tell=say_note)
    if not json:
        _show(found)
    anything = bool(found.runs or found.leftovers)
    done = None
    if not dry_run and (yes or (anything and _agreed(found, json=json))):
        done = found.remove()
    if json:
        print_json(_document(found, done))
    elif done:
        _show_done(done)
    raise_last(list(done.errors) if done else [])


def _agreed(found: Cleaning, *, json: bool) -> bool:
    """Ask at a terminal; a script is never asked.

    Raises:
        RequestError: there is nobody to ask.
    """
    if json or not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise RequestError(
            "Nothing is removed: there is no terminal to ask at. Add --yes to remove this, or "
            "--dry-run to look only."
        )
    return typer.confirm(f"Remove {_what(found)}? They cannot be brought back.", err=True)


def _what(found: Cleaning | Cleaned) -> str:
    parts = []
    if found.runs:
        parts.append(counted(len(found.runs), "run"))
    if found.leftovers:
        parts.append(counted(len(found.leftovers), "leftover"))
    return f"{' and '.join(parts)} ({format_bytes(found.size)})" if parts else "nothing"


def _show(found: Cleaning) -> None:
    if found.runs:
        rows = [
            (
                row.run.job_id,
                row.run.record["name"],
                row.status.state,
                time.strftime("%Y-%m-%d", time.localtime(row.changed)),
                format_bytes(row.size),
                row.run.dir,
            )
            for row in found.runs
        ]
        say(table(_HEADS, rows))
    if found.leftovers:
        left = [(row.why, format_bytes(row.size), row.path) for row in found.leftovers]
        say(table(("LEFTOVER", "SIZE", "PATH"), left))
    for row in found.kept:
        note(f"kept: {row.run.job_id}, {row.run.dir}: {row.why}")
    say_damaged([str(row.error) for row in found.damaged])
    if found.wanted.nothing:
        note("No run is removed without --older, --state or --larger.")
    note(f"To be removed: {_what(found)}.")


def _show_done(done: Cleaned) -> None:
    say(f"Removed: {_what(done)}.")
    if done.index_lines:
        note(f"Lines of removed runs taken out of the index: {done.index_lines}")


def _document(found: Cleaning, done: Cleaned | None) -> dict[str, Any]:
    gone = done or found
    return {
        "removed": done is not None,
        "runs": [
            {
                "job_id": row.run.job_id,
                "run_id": row.run.run_id,
                "run_dir": str(row.run.dir),
                "state": str(row.status.state),
                "changed": row.changed,
                "bytes": row.size,
            }
            for row in gone.runs
        ],
        "leftovers": [
            {"path": str(row.path), "why": row.why, "bytes": row.size} for row in gone.leftovers
        ],
        "bytes": gone.size,
        "kept": [
            {"job_id": row.run.job_id, "run_dir": str(row.run.dir), "why": row.why}
            for row in found.kept
        ],
        "damaged": [{"run_dir": str(row.dir), "why": str(row.error)} for row in found.damaged],
        "index_lines": done.index_lines if done else None,
        "errors": [str(row) for row in done.errors] if done else [],
    }
