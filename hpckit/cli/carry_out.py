"""From a submission to a job: send it, say so, and stay with it to its end if asked to."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import typer

from hpckit.api.prepare import Submission
from hpckit.api.submit import load_submitit, send
from hpckit.cli.output import note, print_json, say
from hpckit.cli.submit import say_job
from hpckit.errors import HpckitError
from hpckit.stand_ins import no_log, stand_ins

if TYPE_CHECKING:
    from hpckit import RunList, RunStatus

# What submitit imports for its users' own loops and plugins, and for other Pythons: a quarter of
# its start.
_SUBMITITS = (
    *("asyncio", "importlib.metadata", "logging.config", "platform", "tarfile"),
    *("socket", "tempfile", "traceback", "typing_extensions", "uuid"),
    *("submitit.auto.auto", "submitit.helpers", "submitit.local.debug", "submitit.local.local"),
)


def carry_out(
    submission: Submission,
    *,
    wait: bool,
    follow: bool,
    json: bool,
    more: Mapping[str, Any] | None = None,
    ready: Callable[[], object] = lambda: None,
    sent: Callable[[], object] = lambda: None,
) -> "RunList":
    """Submit, say so, and wait if asked to; `more` is for the document. Return the runs.

    `ready` is called just before it is submitted, and `sent` as soon as it is.

    Raises:
        typer.Exit: status 1 when a job that was waited for did not end well.
    """
    with stand_ins(*_SUBMITITS), no_log():
        load_submitit()
    at_once = submission.job.scheduler.starts_at_once  # and there may be a warning

    def before() -> None:
        ready()
        if at_once:
            say_job(submission)

    found = send(submission, tell=note, ready=before)
    if not at_once:
        say_job(submission)
    sent()
    stays = wait or follow
    try:
        _say_submitted(submission, found, json=json)
        now = _at_the_end(found, follow=follow) if stays else found.status() if json else []
    except (HpckitError, OSError, KeyboardInterrupt) as error:
        from hpckit.cli.left_running import BREAKS, goes_on  # noqa: PLC0415  # seldom

        if stays:
            todo = f"Stop it: hpckit cancel {found[0].job_id}"
            note(f"No longer waiting; the job {goes_on(error)}. {todo}")
        if json:  # there is a job, and a script learns of it here alone
            with suppress(*BREAKS):
                print_submitted(submission, found.status(), more or {})
        raise
    if json:
        print_submitted(submission, now, more or {})
    if stays:
        _say_ends(now, json=json)
    return found


def _at_the_end(found: "RunList", *, follow: bool) -> "list[RunStatus]":
    """Wait for the end of what was submitted; return what became of it."""
    # As all of `view`: only who waits needs it.
    from hpckit.api.run_status import wait_through  # noqa: PLC0415
    from hpckit.cli.view import LiveView, NeverStarting  # noqa: PLC0415

    return wait_through(found, look=LiveView() if follow else NeverStarting())


def _say_ends(ended: "list[RunStatus]", *, json: bool) -> None:
    """Say how jobs ended.

    Raises:
        typer.Exit: status 1 when one did not end well.
    """
    from hpckit.cli.view import say_notes, status_line  # noqa: PLC0415  # as above

    if not json:
        say("\n".join(status_line(status) for status in ended))
    say_notes(ended)
    if not all(status.good for status in ended):
        if bad := _first_bad(ended):
            note(f"Why: hpckit logs {bad.run.job_id} --errors")
        raise typer.Exit(1)


def _first_bad(ended: "list[RunStatus]") -> "RunStatus | None":
    """Return the first that has more to say than its line: what never started has no log."""
    begun = (row for row in ended if not (row.never_starts or row.never_started))
    return next((row for row in begun if not row.good), None)


def print_submitted(
    submission: Submission, found: "list[RunStatus]", more: Mapping[str, Any]
) -> None:
    """Print the document of a submission, with `more` in it."""
    from hpckit.cli.view import submit_record  # noqa: PLC0415

    records = [submit_record(status) for status in found]
    first = {"jobs": records} if submission.job.is_array else records[0]
    print_json({**first, **more})


def _say_submitted(submission: Submission, found: "RunList", *, json: bool) -> None:
    first = found[0]
    if submission.job.is_array:
        ids = list(dict.fromkeys(str(run.array_job_id) for run in found))
        several = f", in {len(ids)} arrays: {', '.join(ids)}" if len(ids) > 1 else ""
        tasks = f"tasks 0 to {len(found) - 1}" if len(found) > 1 else "task 0 alone"
        text = f"Submitted {first.array_job_id} ({tasks}{several})"
    else:
        text = f"Submitted {first.job_id}"
        if rest := first.chain[1:]:
            text += f" (then {', '.join(rest)})"
    try:
        if not json:
            say(text)
    finally:  # there is a job, whether or not stdout takes its number
        note(f"  run     {submission.place.dir}")
        note(f"  follow  hpckit logs {first.job_id} -f")
