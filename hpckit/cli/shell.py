"""`hpckit shell`: a shell on a node, with the site's environment; left and found again."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hpckit import Run
from hpckit.api.prepare import Submission, preflight
from hpckit.api.sessions import NOT_FOR_SESSIONS
from hpckit.api.terminals import attach, find_shell, has_terminal, prepare_shell, until_it_runs
from hpckit.cli.arguments import (
    CheckOption,
    DryRunOption,
    JsonOption,
    RunsOption,
    settled_root,
)
from hpckit.cli.left_running import BREAKS, say_left
from hpckit.cli.options import with_options
from hpckit.cli.output import note, say_note
from hpckit.cli.submit import say_check, say_job, say_job_notes, show_script
from hpckit.errors import OutsideError, RequestError

if TYPE_CHECKING:
    from hpckit import RunStatus

IdleOption = Annotated[
    str | None,
    typer.Option(
        "--idle",
        metavar="TIME",
        help="End it after so long without a key, GPU or CPU in use; it is warned first.",
    ),
]
DetachOption = Annotated[
    bool, typer.Option("--detach", help="Submit it and return: hpckit shell JOBID goes there.")
]


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(with_options(shell, without=NOT_FOR_SESSIONS))


def shell(
    job_id: Annotated[
        str | None,
        typer.Argument(
            metavar="[JOBID]", help="A shell that is there already, or latest; else a new one."
        ),
    ] = None,
    *,
    typed: Mapping[str, Any],
    idle: IdleOption = None,
    detach: DetachOption = False,
    runs: RunsOption = None,
    dry_run: DryRunOption = False,
    check: CheckOption = False,
    json: JsonOption = False,
) -> None:
    """Open a shell on a node, with the site's environment; or go back to one."""
    if job_id is not None:
        _refuse_options(job_id, {**typed, "idle": idle, "detach": detach or None})
        _need_terminal()
        settled_root(runs, (job_id,))
        _go_to(find_shell(job_id, runs))
        return
    submission = prepare_shell(typed, idle=idle, runs=runs, preview=dry_run, tell=say_note)
    if dry_run:
        _ = submission.rendered
        say_job(submission)
        show_script(submission, json=json)
    elif check:
        answer = preflight(submission)
        say_job_notes(submission)
        say_check(submission.place.run_id, answer, json=json)
    elif detach:
        from hpckit.cli.carry_out import carry_out  # noqa: PLC0415  # as in `submit`

        (run,) = carry_out(submission, wait=False, follow=False, json=json)
        note(f"  go there hpckit shell {run.job_id}")
    else:
        _open(submission, json=json)


def _refuse_options(job_id: str, given: Mapping[str, Any]) -> None:
    if name := next((name for name, value in given.items() if value is not None), None):
        word = name.replace("_", "-")
        raise RequestError(
            f"--{word} is for a new shell, and hpckit shell {job_id} goes to one that is there "
            "already: leave one of the two out."
        )


def _need_terminal() -> None:
    if not has_terminal():
        raise RequestError(
            "hpckit shell needs a terminal. To submit a shell from a script: hpckit shell "
            "--detach; then hpckit shell JOBID in a terminal."
        )


def _open(submission: Submission, *, json: bool) -> None:
    """Submit a shell, wait for its start, and go there; Ctrl-C meanwhile cancels it."""
    if json:
        raise RequestError("--json is for --detach: a shell in this terminal prints what it likes.")
    _need_terminal()
    from hpckit.api.submit import send  # noqa: PLC0415  # brings submitit's

    run = send(submission, tell=note)[0]
    try:
        say_job(submission)
        note(f"Submitted {run.job_id}; Ctrl-C while it waits cancels it")
        status = _looked_at(run)
    except KeyboardInterrupt:
        _cancel(run)
        raise
    except BREAKS as error:
        say_left(run, "shell", error)
        raise
    _enter(run, status)


def _cancel(run: Run) -> None:
    try:
        run.cancel()
    except KeyboardInterrupt:
        note(
            f"\nInterrupted again: whether job {run.job_id} is cancelled is unknown. See: hpckit "
            f"status {run.job_id}"
        )
        raise
    note(f"Interrupted: job {run.job_id} is cancelled.")


def _go_to(run: Run) -> None:
    _enter(run, _looked_at(run))


def _looked_at(run: Run) -> "RunStatus":
    """Wait until a shell runs, is over, or will never start."""
    from hpckit.cli.view import LiveView  # noqa: PLC0415  # only who waits needs it

    return until_it_runs(run, LiveView())


def _enter(run: Run, status: "RunStatus") -> None:
    """Connect this terminal; who interrupts that, which keys no longer do, hears of the job.

    Raises:
        OutsideError: it is over, or will never start; or there is no way there.
    """
    if status.finished or status.never_starts:
        from hpckit.cli.view import status_line  # noqa: PLC0415  # as above

        notes = "".join(f" {text.rstrip('.')}." for text in status.notes)
        raise OutsideError(f"There is no shell to go to: {status_line(status)}.{notes}")
    try:
        attach(run, status)
    except (*BREAKS, KeyboardInterrupt) as error:
        say_left(run, "shell", error)
        raise
