"""`hpckit resubmit JOBID [OPTIONS]`: the same request again, saying what differs since."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from hpckit.cli.arguments import (
    AccountOption,
    CpusOption,
    ExcludeOption,
    GpusOption,
    JobArgument,
    JsonOption,
    LauncherOption,
    MemoryOption,
    NodesOption,
    PartitionOption,
    QosOption,
    RunsOption,
    SettingsOption,
    TimeOption,
    default_root,
    say_note,
    settled_root,
)
from hpckit.cli.carry_out import carry_out
from hpckit.cli.output import note, show_text
from hpckit.cli.submit import parse_gpus
from hpckit.errors import OutsideError, RequestError
from hpckit.find import find_believed
from hpckit.job.spec import JobSpec, spec_from_record
from hpckit.render import Rendered
from hpckit.runs import Run
from hpckit.submission.compare import differences
from hpckit.submission.model import render_script
from hpckit.submission.prepare import prepare
from hpckit.submission.record import make_record
from hpckit.text import parse_minutes


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(resubmit)


def resubmit(
    job_id: JobArgument,
    nodes: NodesOption = None,
    gpus: GpusOption = None,
    cpus_per_task: CpusOption = None,
    mem_gb: MemoryOption = None,
    time: TimeOption = None,
    partition: PartitionOption = None,
    account: AccountOption = None,
    qos: QosOption = None,
    exclude: ExcludeOption = None,
    launcher: LauncherOption = None,
    max_requeues: Annotated[
        int | None, typer.Option(help="Restarts after time limit or preemption.")
    ] = None,
    settings: SettingsOption = None,
    runs: RunsOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the script only.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Return when the job is over.")] = False,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Watch it.")] = False,
    json: JsonOption = False,
) -> None:
    """Submit a run's request again, with the options given here changed; also one array task alone.

    The code is what the script's folder holds now; what differs from the recorded run is said.
    """
    found = find_believed(job_id, settled_root(runs, (job_id,)))
    old = found[0]
    gpu_type, gpu_count = parse_gpus(gpus)
    changes: dict[str, Any] = {
        "nodes": nodes,
        "gpus": gpu_count,
        "gpu_type": gpu_type,
        "cpus_per_task": cpus_per_task,
        "mem_gb": mem_gb,
        "time_min": None if time is None else parse_minutes(time),
        "partition": partition,
        "account": account,
        "qos": qos,
        "exclude": exclude,
        "launcher": launcher,
        "max_requeues": max_requeues,
    }
    spec = spec_from_record(old.record["request"])
    if job_id == old.job_id or job_id == old.run_id:
        spec = single_task(spec, old)
    spec = with_settings(spec, tuple(settings or ()))
    spec = replace(spec, **{key: value for key, value in changes.items() if value is not None})
    root = default_root(runs) if runs or not old.mine else old.dir.parent
    _go_there(old)
    submission = prepare(spec, root, preview=dry_run, tell=say_note)
    rendered = render_script(submission)
    if not old.mine:
        note(_whose(old, rendered))
    lines = differences(old.record, make_record(submission, rendered))
    note(
        f"Resubmitting {old.run_id}"
        + (", with these differences:" if lines else ", without differences")
    )
    for line in lines:
        note(f"  {line}")
    if dry_run:
        show_text(rendered.text)
    else:
        carry_out(submission, wait=wait, follow=follow, json=json)


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
        spec = with_settings(spec, values)
    else:
        extra = len(run.record["command"]) - 2 * len(keys)
        spec = replace(spec, args=(*spec.args, *run.record["command"][extra:]))
    return replace(spec, array=(), parallel=None)


def with_settings(spec: JobSpec, settings: tuple[str, ...]) -> JobSpec:
    """Replace `--set` values of the same key, and add the rest."""
    new = {text.partition("=")[0].replace("_", "-") for text in settings}
    kept = [t for t in spec.settings if t.partition("=")[0].replace("_", "-") not in new]
    return replace(spec, settings=(*kept, *settings))


def _go_there(run: Run) -> None:
    """Go to where the run was submitted from: relative paths in its arguments mean that place."""
    try:
        os.chdir(Path(run.record["cwd"]))
    except OSError as error:
        raise OutsideError(
            f"The run was submitted from {run.record['cwd']}, but this folder cannot be entered: "
            f"{error.strerror}."
        ) from error
