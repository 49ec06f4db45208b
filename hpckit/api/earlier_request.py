"""What a run was asked for, as a request that may be submitted again: all of it, or some tasks."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hpckit.errors import NotFoundError, RequestError
from hpckit.job import appended, filled
from hpckit.job_spec.recorded_spec import spec_from_record, with_changes, without
from hpckit.job_spec.spec import JobSpec
from hpckit.paths import is_there
from hpckit.run_folders.find import refuse_doubtful
from hpckit.run_folders.run_record import is_function_call, refuse_session
from hpckit.run_folders.runs import Run


def asked(run: Run, *, alone: bool, failed: Sequence[int]) -> JobSpec:
    """Return what was asked, by who can believe it."""
    refuse_doubtful(run, run.run_id)
    refuse_session(run.record)
    spec = spec_from_record(run.record["request"])
    if failed:
        from hpckit.api.failed_tasks import only_tasks  # noqa: PLC0415  # seldom asked for

        return only_tasks(spec, failed)
    return single_task(spec, run) if alone else spec


def single_task(spec: JobSpec, run: Run) -> JobSpec:
    """Turn an array's request into that of one of its tasks: its values become plain settings."""
    array = run.record.get("array")
    if not array:
        return spec
    known = run.record["parameters"]
    names = [text.partition("=")[0] for text in spec.array]
    if spec.of_workload:
        names = [name.replace("_", "-") for name in names]
    if missing := [name for name in names if name not in known]:
        raise RequestError(f"Run {run.run_id} records no parameter {missing[0]!r}: damaged?")
    values = {name: known[name] for name in names}
    if spec.of_workload:
        rest: tuple[str, ...] = ()
        spec = with_changes(spec, {"settings": [f"{key}={value}" for key, value in values.items()]})
    else:
        rest = appended(values, spec.args)
    args = (*filled(spec.args, values), *rest)
    return replace(spec, args=args, array=(), parallel=None, zip=False)


def changed(
    before: JobSpec, changes: Mapping[str, Any], unset: Sequence[str], *, failed: bool
) -> JobSpec:
    """Return what was asked, with the changes; those that `--failed` cannot have are refused."""
    spec = with_changes(without(before, unset), changes)
    if failed:
        from hpckit.api.failed_tasks import refuse_beside_failed  # noqa: PLC0415  # seldom

        refuse_beside_failed(spec, changes, unset)
    return spec


def refuse_other_arguments(run: Run, changes: Mapping[str, Any]) -> None:
    """Refuse other arguments for a function, which has its own in a run's folder.

    Raises:
        RequestError: there are some. NotFoundError: the folder is gone.
    """
    if not is_function_call(run.record):
        return
    again = "hpckit.call(function, ...) or hpckit.map(function, items)"
    if {"args", "array"} & changes.keys():
        raise RequestError(
            f"Job {run.job_id} calls a Python function with the arguments that it was given. For "
            f"others, call it again: {again}."
        )
    for kept in run.record["request"]["args"][:1]:  # in the folder of the run that was first
        if not is_there(Path(kept)):
            raise NotFoundError(
                f"Job {run.job_id} calls a Python function that is kept no longer: {kept!r} is "
                f"gone. Call it again: {again}."
            )
