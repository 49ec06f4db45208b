"""Commands about runs that are there: `jobs`, `status`, `logs`, `wait` and `cancel`."""

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from hpckit import Run, RunStatus
from hpckit import wait as wait_for
from hpckit.api.lookup import newest, only
from hpckit.cli.arguments import (
    JobArgument,
    JobsArgument,
    JsonOption,
    RunsOption,
    raise_last,
    runs_called,
    say_damaged,
    say_note,
    say_whose,
    settled_root,
)
from hpckit.cli.output import note, print_json, say, show_log, table
from hpckit.cli.view import (
    NeverStarting,
    say_notes,
    say_uncertain,
    status_document,
    status_lines,
    status_pages,
)
from hpckit.text import format_seconds


def jobs(
    limit: Annotated[int, typer.Option("--limit", "-n", min=0, help="How many; 0 shows all.")] = 20,
    active: Annotated[bool, typer.Option("--active", help="Only runs that are not over.")] = False,
    rebuild: Annotated[
        bool,
        typer.Option("--rebuild", help="Find all your runs again, and write their index anew."),
    ] = False,
    runs: RunsOption = None,
    json: JsonOption = False,
) -> None:
    """List your runs, newest first, with their states."""
    if rebuild:
        from hpckit.cli.rebuild import rebuild_index  # noqa: PLC0415  # seldom

        rebuild_index(runs, json=json)
        return
    shown = newest(settled_root(runs), limit or None)
    found = [status for status in shown.status() if not (active and status.finished)]
    if json:
        said = [{"run_dir": str(row.dir), "why": str(row.error)} for row in shown.damaged]
        print_json({"jobs": [status.document() for status in found], "damaged": said})
        return
    if shown:
        heads = ("JOBID", "NAME", "STATE", "NODES", "GPUS", "ELAPSED", "SUBMITTED", "RUN")
        say(table(heads, [_row(status) for status in found]))
        say_uncertain(found)
    say_damaged([str(row.error) for row in shown.damaged])
    say_damaged([f"{row.run.run_id}: {text}" for row in found for text in row.damaged[:1]])
    if not shown:
        note("No runs yet. Start one: hpckit submit ddp")
    elif len(shown) == limit:
        note(f"These are the newest {limit} runs; --limit 0 shows all.")


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
    for end in status.earlier():
        say(end.text)
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


def wait(
    job_ids: JobsArgument,
    timeout: Annotated[
        float | None,
        typer.Option("--timeout", min=0, metavar="S", help="Give up after S seconds."),
    ] = None,
    runs: RunsOption = None,
    json: JsonOption = False,
) -> None:
    """Wait until all jobs are over. Exit status 0 when all COMPLETED, 1 when one did not."""
    called, errors = runs_called(job_ids, runs, believed=True)
    for error in errors:  # it may be long until the others are over
        note(f"hpckit: error: {error}")
    found = wait_for(called, timeout, look=NeverStarting()).status()
    if json:
        print_json(status_document(found))
    else:
        say(status_lines(found))
    say_notes(found)
    if errors:
        raise typer.Exit(errors[-1].exit_code)
    if not all(status.good for status in found):
        raise typer.Exit(1)


def cancel(job_ids: JobsArgument, runs: RunsOption = None, json: JsonOption = False) -> None:
    """End jobs, or remove them from the queue. Jobs that are over stay as they were.

    Slurm's own id is enough also where the run cannot be read: Slurm says whose the job is.
    """
    from hpckit.api.cancel import cancel_called  # noqa: PLC0415  # the others need none of it

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
