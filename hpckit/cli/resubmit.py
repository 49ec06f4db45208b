"""`hpckit resubmit JOBID [OPTIONS]`: the same request again, saying what differs since."""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from hpckit.cli.arguments import (
    CheckOption,
    DryRunOption,
    FollowOption,
    JobArgument,
    JsonOption,
    RunsOption,
    WaitOption,
    default_root,
    say_note,
    settled_root,
)
from hpckit.cli.carry_out import carry_out
from hpckit.cli.options import with_options
from hpckit.cli.output import note, say, show_text
from hpckit.errors import OutsideError, RequestError
from hpckit.find import find_believed
from hpckit.render import Rendered
from hpckit.runs import Run
from hpckit.spec import JobSpec, option_values, spec_from_record, with_changes, without
from hpckit.submission.compare import differences
from hpckit.submission.model import render_script
from hpckit.submission.prepare import prepare
from hpckit.submission.record import make_record


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
    runs: RunsOption = None,
    dry_run: DryRunOption = False,
    check: CheckOption = False,
    wait: WaitOption = False,
    follow: FollowOption = False,
    json: JsonOption = False,
) -> None:
    """Submit a run's request again, with the options given here changed; also one array task alone.

    The code is what the script's folder holds now; what differs from the recorded run is said.
    """
    found = find_believed(job_id, settled_root(runs, (job_id,)))
    old = found[0]
    spec = spec_from_record(old.record["request"])
    if job_id == old.job_id or job_id == old.run_id:
        spec = single_task(spec, old)
    root = default_root(runs) if runs or not old.mine else old.dir.parent
    changes = option_values(typed)  # before the move: a file with values is one of here
    spec = with_changes(without(spec, unset or ()), changes)
    _go_there(old)
    submission = prepare(spec, root, preview=dry_run, tell=say_note)
    rendered = render_script(submission)
    if not old.mine:
        note(_whose(old, rendered))
    _say_differences(old, make_record(submission, rendered))
    if dry_run:
        show_text(rendered.text)
    elif check:
        from hpckit.submission.check import check_with_slurm  # noqa: PLC0415  # seldom

        say(check_with_slurm(submission))
    else:
        carry_out(submission, wait=wait, follow=follow, json=json)


def _say_differences(old: Run, new: Mapping[str, Any]) -> None:
    lines = differences(old.record, new)
    note(
        f"Resubmitting {old.run_id}"
        + (", with these differences:" if lines else ", without differences")
    )
    for line in lines:
        note(f"  {line}")


def _whose(run: Run, rendered: Rendered) -> str:
    """Say of a colleague's run what in its job would be whose."""
    names = dict.fromkeys(found.collection.label() for found in rendered.templates)
    return (
        f"note: run {run.run_id} is of {run.owner}, and so are its script and its settings; its "
        f"templates are those your search path gives in {run.record['cwd']}, of {', '.join(names)}"
    )


def single_task(spec: JobSpec, run: Run) -> JobSpec:
    """Turn an array's request into that of one of its tasks: its values become plain settings."""
    array = run.record.get("array")
    if not array:
        return spec
    keys = [text.partition("=")[0].replace("_", "-") for text in spec.array]
    if spec.of_workload:
        known = run.record["parameters"]
        if missing := [key for key in keys if key not in known]:
            raise RequestError(f"Run {run.run_id} records no parameter {missing[0]!r}: damaged?")
        values = tuple(f"{key}={known[key]}" for key in keys)
        spec = with_changes(spec, {"settings": values})
    else:
        extra = len(run.record["command"]) - 2 * len(keys)
        spec = replace(spec, args=(*spec.args, *run.record["command"][extra:]))
    return replace(spec, array=(), parallel=None)


def _go_there(run: Run) -> None:
    """Go to where the run was submitted from: relative paths in its arguments mean that place."""
    try:
        os.chdir(Path(run.record["cwd"]))
    except OSError as error:
        raise OutsideError(
            f"The run was submitted from {run.record['cwd']}, but this folder cannot be entered: "
            f"{error.strerror}."
        ) from error
