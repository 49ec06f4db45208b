"""What `run.json` says of a submission: everything needed to judge it later, and to do it again."""

import getpass
import socket
import sys
import time
from dataclasses import asdict
from typing import Any

from hpckit import __version__
from hpckit.collections import content_hash
from hpckit.plan.model import Plan
from hpckit.provenance import code_version
from hpckit.render import Rendered, template_record
from hpckit.runs import SCHEMA
from hpckit.submission.model import Submission


def make_record(submission: Submission, rendered: Rendered) -> dict[str, Any]:
    """Return what `run.json` says of a submission: everything needed to do it again."""
    plan, workload = submission.plan, submission.plan.workload
    defaults = {name: row.default for name, row in workload.parameters.items()} if workload else {}
    return {
        "schema": SCHEMA,
        "hpckit_version": __version__,
        "submitted_at": time.time(),
        "user": getpass.getuser(),
        "host": socket.gethostname(),
        "cwd": submission.place.cwd,
        "command_line": sys.argv,
        "executor": plan.executor,
        "name": plan.name,
        "request": asdict(submission.request),
        "parameters": {**defaults, **plan.settings},
        "plan": plan_record(plan),
        "site": {
            "name": plan.site.name,
            "collection": submission.site_collection,
            "hash": content_hash(submission.site_path) if submission.site_path else None,
        },
        "workload": _workload_record(plan),
        "templates": [template_record(found) for found in rendered.templates],
        "collections": [
            {"name": row.name, "origin": row.origin, "path": str(row.path)}
            for row in submission.collections
        ],
        "code": code_version(plan.script),
        "script_hash": content_hash(plan.script),
    }


def _workload_record(plan: Plan) -> dict[str, Any] | None:
    if plan.workload is None or plan.workload.found is None:
        return None
    folder = plan.workload.found.path.parent
    return {
        "name": plan.workload.name,
        "collection": plan.workload.found.collection.label(),
        "path": str(folder),
        "hash": content_hash(folder),
    }


def plan_record(plan: Plan) -> dict[str, Any]:
    """Return the plan as plain values, for `run.json`."""
    names = (
        "nodes", "gpus_per_node", "total_gpus", "gpu_type", "tasks_per_node", "ranks",
        "cpus_per_task", "mem_gb", "time_min", "partition", "account", "qos", "constraint",
        "reservation", "exclude", "template", "max_requeues", "sample_interval_s", "device",
    )  # fmt: skip
    return {
        **{name: getattr(plan, name) for name in names},
        "strategy": plan.strategy.name,
        "launcher": plan.launcher.name,
        "environment": plan.environment.name,
        "array_size": len(plan.tasks) if plan.is_array else None,
        "parallel": plan.parallel,
    }
