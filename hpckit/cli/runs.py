"""Commands about runs that are there: `status`, `logs`, `wait` and `cancel`."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hpckit import Run, RunList
from hpckit.api import lookup
from hpckit.cli.arguments import (
    JobArgument,
    JobsArgument,
    JsonOption,
    RunsOption,
    finite,
    raise_last,
    runs_called,
    settled_root,
)
from hpckit.cli.output import note, print_json, say, say_note, say_whose, show_log
from hpckit.cli.view import (
    NeverStarting,
    given,
    say_notes,
    silent_line,
    status_document,
    status_lines,
    status_pages,
)
from hpckit.errors import RequestError, StillRunningError

if TYPE_CHECKING:
    from hpckit import RunStatus
    from hpckit.cli.chosen_task import Chosen


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
        print_json(status_document(found, many=len(job_ids) > 1))
    else:
        say(status_pages(found, everything=every))
    raise_last(errors)


def logs(
    job_id: JobArgument,
    rank: Annotated[
        int | None,
        typer.Option("--rank", min=0, metavar="N", help="Show the log of this rank (default 0)."),
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
    """Print what a job's ranks wrote: rank 0 unless told otherwise.

    Of an array, this is about the first task that failed, else about the first that has begun.
    """
    _one_of({"--errors": errors, "--rank": rank is not None, "--all": every})
    _one_of({"--errors": errors, "--follow": following})
    found = _called(job_id, runs)
    chosen = _chosen(found, following=following) if len(found) > 1 else None
    run = chosen.run if chosen else found[0]
    say_whose(run)
    if errors:
        _print_errors(run, chosen)
        return
    if chosen:
        note(chosen.heading)
    if following:
        _follow(run, rank, every=every)
    elif not _print(run.pieces(rank, every=every), run, every=every):
        note(silent_line(run.status()))


def _one_of(given: Mapping[str, bool]) -> None:
    """Refuse options of which only one would count.

    Raises:
        RequestError: several are given.
    """
    names = [name for name, is_given in given.items() if is_given]
    if names[1:]:
        raise RequestError(f"Give {names[0]} or {names[1]}, not both.")


def _follow(run: Run, rank: int | None, *, every: bool) -> None:
    """Print a log as it is written, and say on stderr that its job waits and how it ended."""
    from hpckit.cli.followed import Followed  # noqa: PLC0415  # the others need none of it

    look = Followed()
    wrote = _print(run.pieces(rank, every=every, follow=True, look=look), run, every=every)
    look.end(wrote=wrote)


def _called(word: str, option: Path | None) -> RunList:
    """Return the run that a word means, or all tasks of an array; say which cannot be read."""
    root = settled_root(option, (word,))
    found, errors = lookup.runs_called([word], root, here_only=option is not None)
    if not found:
        raise_last(errors)
    for error in errors:
        note(f"damaged: {error}")
    return found


def _chosen(found: RunList, *, following: bool) -> "Chosen":
    from hpckit.cli.chosen_task import chosen_task  # noqa: PLC0415  # of arrays alone

    return chosen_task(found, following=following)


def _print_errors(run: Run, chosen: "Chosen | None" = None) -> None:
    if chosen and not chosen.failed:
        note(chosen.nothing_failed)
        return
    _print_errors_of(run, chosen.status if chosen else run.status())
    if chosen and chosen.others:
        note(chosen.others)


def _print_errors_of(run: Run, status: "RunStatus") -> None:
    if status.never_started:
        note(silent_line(status))
        return
    if run.parameters and not status.good:
        note(f"{run.job_id} {status.state}{given(run.parameters)}:")
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
    for text in status.node_notes:
        note(f"note: {text}")


def _print(pieces: Iterable[tuple[Path, str]], run: Run, *, every: bool) -> bool:
    """Print pieces of files, with a line where the file changes; say whether there were any.

    `every`: the first file has a line, too. One's own are printed as they are; what somebody else
    wrote gives the terminal no orders.
    """
    last = None
    for path, text in pieces:
        again = not path.is_relative_to(run.dir)  # of the job that tries it again
        if path != last and (every or again or last is not None):
            name = path.relative_to(run.dir.parent) if again else path.name
            if last is not None:
                say("")
            say(f"==> {name} <==")
        last = path
        show_log(text, own=run.mine)
    return last is not None


def wait(
    job_ids: JobsArgument,
    timeout: Annotated[
        float | None,
        typer.Option(
            "--timeout", min=0, callback=finite, metavar="S", help="Give up after S seconds."
        ),
    ] = None,
    runs: RunsOption = None,
    json: JsonOption = False,
) -> None:
    """Wait until all jobs are over. Exit status 0 when all COMPLETED, 1 when one did not."""
    from hpckit.api.run_status import wait_through  # noqa: PLC0415  # the others need none of it

    called, errors = runs_called(job_ids, runs, believed=True)
    for error in errors:  # it may be long until the others are over
        note(f"hpckit: error: {error}")
    seen = NeverStarting()
    try:
        found = wait_through(called, timeout, seen)
    except StillRunningError:
        if json:
            print_json(status_document(seen.last, many=len(job_ids) > 1))
        raise
    if json:
        print_json(status_document(found, many=len(job_ids) > 1))
    else:
        say(status_lines(found))
    say_notes(found)
    if errors:
        raise typer.Exit(errors[-1].exit_code)
    if not all(status.good for status in found):
        raise typer.Exit(1)


def cancel(job_ids: JobsArgument, runs: RunsOption = None, json: JsonOption = False) -> None:
    """End jobs, or remove them from the queue. Jobs that are over stay as they were.

    A job that was submitted again by its --retry ends with the new job.

    Slurm's own id is enough also where the run cannot be read: Slurm says whose the job is.
    """
    from hpckit.api.cancel import cancel_called  # noqa: PLC0415  # the others need none of it

    done = cancel_called(job_ids, runs, say_note)
    if json and (done.runs or done.by_id or not done.errors):
        records = [status.document() for status in done.runs]
        records += [{"job_id": word, "state": state} for word, state in done.by_id.items()]
        one = len(records) == 1 and len(job_ids) == 1
        print_json(records[0] if one else {"jobs": records})
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
