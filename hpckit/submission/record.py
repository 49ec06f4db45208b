"""What `run.json` says of a submission: everything needed to judge it later, and to do it again.

And what differs between a recorded run and the same request now.
"""

import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hpckit.collections import Collection, Found, content_hash
from hpckit.files import DamagedFileError
from hpckit.gitfiles import code_version
from hpckit.job import Job
from hpckit.job_spec.spec import OPTIONS, JobSpec
from hpckit.owners import user_name
from hpckit.payload.task import Task
from hpckit.render import Rendered, template_record
from hpckit.run_folders.run_record import varied
from hpckit.run_folders.runs import SCHEMA
from hpckit.submission.kept_code import KeptCode
from hpckit.submission.model import Submission
from hpckit.version import __version__

_PLAN_SKIP = ("device",)
# What people call a name of the plan, where it is another word.
_LABELS = {
    "array_size": "array tasks",
    "parallel": "tasks at once",
    "sample_interval_s": "sample interval",
}
# Options that the plan, the parameters or the site show under another name.
_WORKED_OUT = ("gpus", "env", "settings", "site")


def make_record(submission: Submission, rendered: Rendered) -> dict[str, Any]:
    """Return what `run.json` says of a submission: everything needed to do it again."""
    job, workload = submission.job, submission.job.workload
    defaults = {name: row.default for name, row in workload.parameters.items()} if workload else {}
    return {
        "schema": SCHEMA,
        "hpckit_version": __version__,
        "submitted_at": time.time(),
        "user": user_name(),
        "host": os.uname().nodename,
        "cwd": submission.place.cwd,
        "command_line": sys.argv,
        "executor": job.executor,
        "name": job.name,
        "request": asdict(submission.spec),
        "parameters": {**defaults, **job.settings},
        "plan": plan_record(job),
        "site": {
            "name": job.site.name,
            **_origin(submission.site),
            "hash": content_hash(submission.site.path) if submission.site else None,
        },
        "workload": _workload_record(job),
        "templates": [template_record(found) for found in rendered.templates],
        "collections": [collection_record(row) for row in submission.collections],
        "ledgers": list(submission.ledgers),
        "code": _code(submission),
        "program": {"kind": str(job.program.kind), "word": job.program.word},
        "script_hash": _hash(job.program.file),
        **({"study": submission.study} if submission.study else {}),
        **({"retry": submission.retry} if submission.retry else {}),
        **({"bad_nodes": submission.left_out} if submission.left_out else {}),
        **({"session": submission.session} if submission.session else {}),
    }


def task_records(
    submission: Submission, rendered: Rendered, tasks: Sequence[Task], kept: KeptCode | None = None
) -> list[dict[str, Any]]:
    """Return what each task's `run.json` says; only the job's id is missing."""
    common = make_record(submission, rendered)
    copy = kept.record if kept else {"not_kept": submission.code.why_not}
    common["code"] = {**(common["code"] or {}), **copy}
    again = submission.again or (None,) * len(tasks)
    return [
        {
            **common,
            "run_id": task.run_id,
            "parameters": {**common["parameters"], **settings},
            "command": list(task.command),
            **({"resubmit": before} if before else {}),
            **({} if task.number is None else {"task_number": task.number}),
        }
        for task, settings, before in zip(tasks, submission.job.task_settings, again, strict=True)
    ]


def collection_record(row: Collection) -> dict[str, Any]:
    """Describe a collection: where it stands on the search path, whence, at which revision."""
    return {
        "name": row.name,
        "origin": row.origin,
        "path": str(row.path),
        "source": row.source or None,
        "rev": row.rev or None,
        "revision": row.revision or None,
    }


def _origin(found: Found | None) -> dict[str, str]:
    if found is None:
        return {"collection": "", "revision": ""}
    return {"collection": found.collection.label(), "revision": found.collection.revision}


def _code(submission: Submission) -> dict[str, Any] | None:
    """Return the git version of the user's code; an added collection's revision says more.

    It is that of the program's file, or the function's, else of the folder of submission. Where the
    code of another run is taken, it is what that run's record says.
    """
    if submission.code.same_as:
        return dict(submission.code.same_as.record["code"])
    job = submission.job
    found = job.workload.found if job.workload else None
    if found and found.collection.source:
        return None
    return code_version(submission.code.source or Path(submission.place.cwd, job.program.word))


def _hash(file: Path | None) -> str | None:
    """Return the hash of a program's file; None: there is none here, or it may not be read."""
    try:
        return content_hash(file) if file else None
    except (OSError, DamagedFileError):
        return None


def _workload_record(job: Job) -> dict[str, Any] | None:
    if job.workload is None or job.workload.found is None:
        return None
    folder = job.workload.found.path.parent
    return {
        "name": job.workload.name,
        **_origin(job.workload.found),
        "path": str(folder),
        "hash": content_hash(folder),
    }


def plan_record(job: Job) -> dict[str, Any]:
    """Return the plan as plain values, for `run.json`."""
    names = (
        "nodes", "gpus_per_node", "total_gpus", "gpu_type", "tasks_per_node", "ranks",
        "cpus_per_task", "mem_gb", "time_min", "template", "max_requeues", "chain",
        "sample_interval_s", "device",
    )  # fmt: skip
    return {
        **{name: getattr(job, name) for name in names},
        **job.options,
        "sbatch": list(job.sbatch) or None,
        "strategy": job.strategy.name,
        "launcher": job.launcher.name,
        "environment": job.environment.name,
        "array_size": len(job.tasks) if job.is_array else None,
        "parallel": job.parallel,
    }


def differences(
    old: Mapping[str, Any], new: Mapping[str, Any], told: Sequence[str] = ()
) -> list[str]:
    """Return one line per difference: request, plan, code, templates, site, hpckit's version.

    `told` are names in the plan of which the reader knows already.
    """
    before = old["plan"]
    lines = [
        f"{_label(key)}: {shown(before.get(key))} -> {shown(value)}"
        for key, value in new["plan"].items()
        if key not in (*_PLAN_SKIP, *told) and before.get(key) != value
    ]
    lines += _settings(old, new)
    lines += _code_of(old, new)
    lines += _files("template", old.get("templates", []), new["templates"])
    for part in ("workload", "site"):
        before, now = old.get(part) or {}, new.get(part) or {}
        if before.get("name") != now.get("name"):
            lines.append(f"{part}: {shown(before.get('name'))} -> {shown(now.get('name'))}")
        elif before.get("hash") != now.get("hash"):
            lines.append(f"{part} {now.get('name')} has changed")
    lines += _revisions(old, new)
    if old["hpckit_version"] != new["hpckit_version"]:
        lines.append(f"hpckit {old['hpckit_version']} -> {new['hpckit_version']}")
    return lines


def asked_otherwise(before: JobSpec, now: JobSpec, plan: Mapping[str, Any]) -> list[str]:
    """Return a line for each thing asked otherwise that the worked-out job does not show."""
    names = ["args", *(name for name in OPTIONS if name not in (*plan, *_WORKED_OUT))]
    pairs = [(name, getattr(before, name), getattr(now, name)) for name in names]
    return [
        f"{_label(name)}: {shown(old)} -> {shown(new)}" for name, old, new in pairs if old != new
    ]


def _label(key: str) -> str:
    return _LABELS.get(key, key.replace("_", " "))


def shown(value: object) -> str:
    """Return a value of a request or plan for people."""
    if value is None or value in ((), []):
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    return " ".join(map(str, value)) if isinstance(value, tuple | list) else str(value)


def _revisions(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Return the collections whose revision moved, of those that either run used."""
    before, now = _used(old), _used(new)
    return [
        f"collection {name}: {before.get(name) or 'none'} -> {now.get(name) or 'none'}"
        for name in sorted({*before, *now})
        if name in before and name in now and before[name] != now[name]
    ]


def _used(record: Mapping[str, Any]) -> dict[str, str]:
    rows = [*record.get("templates", []), record.get("workload") or {}, record.get("site") or {}]
    return {
        row["collection"].partition(" (")[0]: row.get("revision") or ""
        for row in rows
        if row.get("collection")
    }


def _settings(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    before, now = old["parameters"], new["parameters"]
    # The record of a task holds its own values of what the array varies; that of an array does not.
    own = varied(new) | (varied(old) - now.keys())
    return [
        f"parameter {key}: {before.get(key)} -> {now.get(key)}"
        for key in sorted({*before, *now} - own)
        if before.get(key) != now.get(key)
    ]


def _code_of(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    before, now = old.get("code") or {}, new.get("code") or {}
    lines = []
    if before.get("commit") != now.get("commit"):
        lines.append(f"code: commit {_short(before)} -> {_short(now)}")
    if before.get("dirty"):
        kept = "--same-code takes them along" if before.get("tree") else "which were not kept"
        lines.append(f"code: the recorded run had uncommitted changes: {kept}")
    if now.get("dirty"):
        lines.append("code: there are uncommitted changes now")
    if now.get("unknown"):
        lines.append(f"code: whether there are uncommitted changes is unknown: {now['unknown']}")
    if old.get("script_hash") != new["script_hash"]:
        lines.append("code: the script itself has changed")
    return lines


def _short(code: Mapping[str, Any]) -> str:
    return str(code.get("commit") or ("unknown" if code.get("unknown") else "none"))[:12]


def _files(what: str, old: list[Mapping[str, Any]], new: list[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the files that changed, came, or went from before one of their name.

    One that extends what it shadows has its name: collection and name say which is meant.
    """
    before, now = ({_place(row): row["hash"] for row in rows} for rows in (old, new))
    hashes = {(row["name"], row["hash"]) for row in old}
    for place, found in now.items():
        name, collection = place
        if place in before and before[place] != found:
            yield f"{what} {name} of {collection} has changed (was {before[place]}, is {found})"
        elif place not in before and (name, found) not in hashes:
            yield f"{what} {name} of {collection} is new"
    kept = {(row["name"], row["hash"]) for row in new}
    names = {name for name, _ in now}
    for (name, collection), gone in before.items():
        if (name, collection) not in now and name in names and (name, gone) not in kept:
            yield f"{what} {name} of {collection} is not used any more"


def _place(row: Mapping[str, Any]) -> tuple[str, str]:
    return row["name"], row.get("collection") or "unknown"
