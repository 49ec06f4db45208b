"""`hpckit resubmit JOBID [OPTIONS]`: the same request again, saying what differs since."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Annotated, Any

import typer

from hpckit import Run
from hpckit.api import slow_answers_told
from hpckit.api.lookup import believed, runs_folder
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
    settled_root,
)
from hpckit.cli.carry_out import carry_out
from hpckit.cli.options import with_options
from hpckit.cli.output import note, say_note
from hpckit.cli.submit import say_check, say_job_notes, show_script


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(with_options(resubmit))


def resubmit(
    job_id: JobArgument,
    *,
    typed: Mapping[str, Any],
    unset: Annotated[
        list[str] | None,
        typer.Option(
            metavar="OPTION[:KEY]",
            help="Forget what was asked by an option, as in partition or sbatch:mail-type.",
        ),
    ] = None,
    right_size: Annotated[
        bool,
        typer.Option(
            "--right-size",
            help="Ask for the time, memory, cores and GPUs that the last runs used, and say why.",
        ),
    ] = False,
    same_code: Annotated[
        bool,
        typer.Option("--same-code", help="Run the code that the run has, not what it is now."),
    ] = False,
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
    old = believed(job_id, settled_root(runs, (job_id,)))
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
            tell=say_note,
        )
    _say_all(old, again, right_size=right_size)
    more = _sizes(again) if right_size else {}
    if dry_run:
        show_script(again.submission, json=json, more=more)
    elif check:
        answer = again.check()
        say_job_notes(again.submission)
        say_check(again.submission.place.run_id, answer, json=json)
    else:
        carry_out(again.submission, wait=wait, follow=follow, json=json, more=more)


def _say_all(old: Run, again: Again, *, right_size: bool) -> None:
    if again.whose:
        say_note(again.whose)
    if right_size:
        _say_sizes(again)
    changed = any(row.value is not None for row in again.right_size)
    _say_differences(old, again.differences, other=changed)


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


def _say_differences(old: Run, lines: Sequence[str], *, other: bool) -> None:
    what = "other differences" if other else "differences"
    how = f"with these {what}:" if lines else f"without {what}"
    note(f"Resubmitting {old.run_id}, {how}")
    for line in lines:
        note(f"  {line}")
