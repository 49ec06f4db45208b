"""What `run.json` says of a submission: everything needed to judge it later, and to do it again."""

import getpass
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hpckit.collections import Collection, Found, content_hash
from hpckit.files import DamagedFileError
from hpckit.gitfiles import code_version
from hpckit.job.job import Job
from hpckit.payload.task import Task
from hpckit.render import Rendered, template_record
from hpckit.runs import SCHEMA
from hpckit.submission.model import Submission
from hpckit.version import __version__


def make_record(submission: Submission, rendered: Rendered) -> dict[str, Any]:
    """Return what `run.json` says of a submission: everything needed to do it again."""
    job, workload = submission.job, submission.job.workload
    defaults = {name: row.default for name, row in workload.parameters.items()} if workload else {}
    return {
        "schema": SCHEMA,
        "hpckit_version": __version__,
        "submitted_at": time.time(),
        "user": getpass.getuser(),
        "host": socket.gethostname(),
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
        "code": _code(job, submission.place.cwd),
        "program": {"kind": str(job.program.kind), "word": job.program.word},
        "script_hash": _hash(job.program.file),
    }


def task_records(
    submission: Submission, rendered: Rendered, tasks: Sequence[Task]
) -> list[dict[str, Any]]:
    """Return what each task's `run.json` says; only the job's id is missing."""
    common = make_record(submission, rendered)
    return [
        {
            **common,
            "run_id": task.run_id,
            "parameters": {**common["parameters"], **settings},
            "command": list(task.command),
        }
        for task, settings in zip(tasks, submission.job.task_settings, strict=True)
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


def _code(job: Job, cwd: str) -> dict[str, Any] | None:
    """Return the git version of the user's code; an added collection's revision says more.

    It is that of the program's file, else of the folder of submission.
    """
    found = job.workload.found if job.workload else None
    return None if found and found.collection.source else code_version(Path(cwd, job.program.word))


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
        "cpus_per_task", "mem_gb", "time_min", "template", "max_requeues", "sample_interval_s",
        "device",
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
