"""`hpckit logs JOBID`: a rank's output, every rank's, the first error; `-f` follows."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from hpckit import Run
from hpckit.api.lookup import only
from hpckit.cli.arguments import JobArgument, RunsOption, say_whose, settled_root
from hpckit.cli.output import note, say, show_log


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(logs)


def logs(
    job_id: JobArgument,
    rank: Annotated[
        int | None, typer.Option("--rank", help="Show the log of this rank (default 0).")
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Show the logs of the job script and of all ranks.")
    ] = False,
    errors: Annotated[
        bool, typer.Option("--errors", help="Show the first traceback, with rank and host.")
    ] = False,
    following: Annotated[
        bool, typer.Option("--follow", "-f", help="Keep printing until the job is over.")
    ] = False,
    runs: RunsOption = None,
) -> None:
    """Print what a job's ranks wrote: rank 0 unless told otherwise."""
    run = only(job_id, settled_root(runs, (job_id,)))
    say_whose(run)
    if errors:
        _print_errors(run)
        return
    pieces = run.pieces(rank, every=every, follow=following)
    if not _print(pieces, own=run.mine) and not following:
        note(f"{run.job_id} has written nothing yet. See `hpckit status {run.job_id}`.")


def _print_errors(run: Run) -> None:
    status = run.status()
    if status.good:
        note(f"{run.job_id} COMPLETED: no rank failed.")
        return
    for text in status.damaged:
        note(f"damaged: {text}")
    report = run.errors(status)
    if report:
        say(report)
    else:
        note(f"{run.job_id} is {status.state}: no rank has failed so far.")


def _print(pieces: Iterable[tuple[Path, str]], *, own: bool) -> bool:
    """Print pieces of files, with a line where the file changes; say whether there were any.

    One's own are printed as they are; what somebody else wrote gives the terminal no orders.
    """
    last = None
    for path, text in pieces:
        if last is not None and path != last:
            say(f"\n==> {path.name} <==")
        last = path
        show_log(text, own=own)
    return last is not None
