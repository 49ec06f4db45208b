"""`hpckit resubmit JOBID [OPTIONS]`: the same request again, saying what differs since."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from hpckit.api import slow_answers_told
from hpckit.api.failed_tasks import FailedTasks, failed_tasks, one_array_at_a_time
from hpckit.api.lookup import believed, runs_called, runs_folder
from hpckit.api.options import spec_values
from hpckit.api.resubmit import Again, asked_again
from hpckit.cli.arguments import (
    CheckOption,
    DryRunOption,
    FollowOption,
    JobArgument,
    JsonOption,
    RunsOption,
    WaitOption,
    raise_last,
    settled_root,
)
from hpckit.cli.carry_out import carry_out
from hpckit.cli.options import with_options
from hpckit.cli.output import note, say_note
from hpckit.cli.submit import say_check, say_job_notes, show_script

UnsetOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="OPTION[:KEY]",
        help="Forget what was asked by an option, as in partition or sbatch:mail-type.",
    ),
]
RightSizeOption = Annotated[
    bool,
    typer.Option(
        "--right-size",
        help="Ask for the time, memory, cores and GPUs that the last runs used, and say why.",
    ),
]
SameCodeOption = Annotated[
    bool, typer.Option("--same-code", help="Run the code that the run has, not what it is now.")
]
FailedOption = Annotated[
    bool,
    typer.Option(
        "--failed",
        help="Of an array submit only the tasks that did not end well, nor did the last runs in "
        "their place, as a new array.",
    ),
]


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(with_options(resubmit))


def resubmit(
    job_id: JobArgument,
    *,
    typed: Mapping[str, Any],
    unset: UnsetOption = None,
    right_size: RightSizeOption = False,
    same_code: SameCodeOption = False,
    failed: FailedOption = False,
    runs: RunsOption = None,
    dry_run: DryRunOption = False,
    check: CheckOption = False,
    wait: WaitOption = False,
    follow: FollowOption = False,
    json: JsonOption = False,
) -> None:
    """Submit a run's request again, with the options given here changed; also one array task alone.

    The code is what the project holds now; what differs from the recorded run is said.
    """
    root = settled_root(runs, (job_id,))
    with ExitStack() as held:  # until the new job is submitted
        tasks = _failed(job_id, root, None if dry_run else held) if failed else None
        old = believed(job_id, root)
        root = runs_folder(runs) if runs or not old.mine else old.dir.parent
        with slow_answers_told(say_note):
            again = asked_again(
                old,
                spec_values(typed),
                root,
                alone=job_id in old.names,
                unset=unset or (),
                right_size=right_size,
                same_code=same_code,
                preview=dry_run,
                failed=tasks.numbers if tasks else (),
                tell=say_note,
            )
        _say_all(again, tasks, right_size=right_size)
        more = {**(_sizes(again) if right_size else {}), **(tasks.document() if tasks else {})}
        if dry_run:
            show_script(again.submission, json=json, more=more)
        elif check:
            answer = again.check()
            say_job_notes(again.submission)
            say_check(again.submission.place.run_id, answer, json=json)
        else:
            carry_out(
                again.submission, wait=wait, follow=follow, json=json, more=more, sent=held.close,
                ready=lambda: None if tasks else again.claim(held),
            )  # fmt: skip


def _failed(word: str, root: Path, held: ExitStack | None) -> FailedTasks:
    """Return an array's failed tasks; say which tasks cannot be read.

    While `held` is open, no other command submits them.
    """
    found, errors = runs_called([word], root, believed=True)
    for error in errors if found else ():
        say_note(f"left alone: {error}")
    if not found:
        raise_last(errors)
    if held:
        held.enter_context(one_array_at_a_time(found))
    with slow_answers_told(say_note):
        return failed_tasks(found, word)


def _say_all(again: Again, tasks: FailedTasks | None, *, right_size: bool) -> None:
    for line in tasks.lines if tasks else ():
        note(line)
    if again.whose:
        say_note(again.whose)
    if right_size:
        _say_sizes(again)
    changed = any(row.value is not None for row in again.right_size)
    _say_differences(again.what, again.differences, other=changed)


def _say_sizes(again: Again) -> None:
    if not again.sized_by:
        note(
            "note: nothing is right-sized: no finished run of the same program, arguments, nodes "
            "and GPUs is known"
        )
        return
    note(f"Right-sized by {', '.join(again.sized_by)}:")
    for row in again.right_size:
        note(f"  {row.line}")


def _sizes(again: Again) -> dict[str, Any]:
    return {"right_size": [asdict(row) for row in again.right_size], "sized_by": again.sized_by}


def _say_differences(what: str, lines: Sequence[str], *, other: bool) -> None:
    words = "other differences" if other else "differences"
    how = f"with these {words}:" if lines else f"without {words}"
    note(f"Resubmitting {what}, {how}")
    for line in lines:
        note(f"  {line}")
