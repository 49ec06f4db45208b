"""`hpckit logs JOBID`: a rank's output, every rank's, the first error; `-f` follows."""

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from hpckit.cli.arguments import JobArgument, RunsOption, say_whose, settled_root
from hpckit.cli.output import note, say, show_log
from hpckit.errors import DamagedRunError, RequestError
from hpckit.failures import error_report
from hpckit.find import find_runs
from hpckit.logs import follow, log_files, read_all
from hpckit.runs import Run
from hpckit.submission.states import statuses
from hpckit.submission.waiting import over_by_and_by


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
    run = _one(job_id, find_runs(job_id, settled_root(runs, (job_id,))))
    say_whose(run)
    damaged: list[str] = []
    if errors:
        _print_errors(run)
    elif following:
        files = partial(log_files, run, rank, every=every)
        _print(follow(files, over_by_and_by([run]), damaged), own=run.mine)
    elif found := log_files(run, rank, every=every):
        _print(read_all(found, damaged), own=run.mine)
    else:
        note(f"{run.job_id} has written nothing yet. See `hpckit status {run.job_id}`.")
    if damaged:
        raise DamagedRunError(f"Some logs of {run.run_id} cannot be read: {'; '.join(damaged)}.")


def _one(word: str, found: list[Run]) -> Run:
    if len(found) > 1:
        raise RequestError(
            f"{word} is an array of {len(found)} tasks. Give one of them: {found[0].job_id}"
        )
    return found[0]


def _print_errors(run: Run) -> None:
    status = statuses([run])[0]
    if status.good:
        note(f"{run.job_id} COMPLETED: no rank failed.")
        return
    for text in status.damaged:
        note(f"damaged: {text}")
    report = error_report(run, status.ranks, status.state)
    if report:
        say(report)
    else:
        note(f"{run.job_id} is {status.state}: no rank has failed so far.")


def _print(pieces: Iterable[tuple[Path, str]], *, own: bool) -> None:
    """Print pieces of files, with a line that names the file where it changes, as tail does.

    One's own are printed as they are; what somebody else wrote gives the terminal no orders.
    """
    last = None
    for path, text in pieces:
        if last is not None and path != last:
            say(f"\n==> {path.name} <==")
        last = path
        show_log(text, own=own)
