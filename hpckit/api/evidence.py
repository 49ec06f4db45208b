"""What the last runs of a kind used, for `resubmit --right-size`: which runs, and how they ended.

Runs are of a kind that do the same on the same shape: program, arguments, strategy, nodes, GPUs and
ranks are equal; time, memory and cores are what is to be found.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from hpckit.api.job_stats import JobStats
from hpckit.api.stats import stats_of_runs
from hpckit.errors import CommandError
from hpckit.job import Job, filled
from hpckit.job_spec.sbatch_words import read_sbatch
from hpckit.job_spec.spec import JobSpec
from hpckit.run_folders.find import newest_runs
from hpckit.run_folders.run_record import is_function_call, work_of
from hpckit.run_folders.runs import Run as RunFolder
from hpckit.slurm.cluster import Partition, longest_min, meant, partitions
from hpckit.stats.right_size import right_size
from hpckit.stats.sizing import Asked, Evidence, Sizing
from hpckit.submission.model import Submission
from hpckit.submission.record import make_record

# Runs that are looked through, and those of the kind that count, newest first.
_LOOKED_AT, _COUNTED = 1000, 20
_TIED = {
    "mem-per-cpu": ("mem_gb", "cpus_per_task"),
    "mem-per-gpu": ("mem_gb", "gpus"),
    "mem": ("mem_gb",),
    "cpus-per-gpu": ("cpus_per_task", "gpus"),
}


def sizings(
    old: RunFolder, submission: Submission, given: frozenset[str]
) -> tuple[tuple[Sizing, ...], tuple[str, ...]]:
    """Return what to ask for, by the last runs of the kind, and these runs' job ids.

    `given` are the fields that were asked for just now.

    Raises:
        OutsideError: Slurm does not answer.
    """
    alike = _runs_alike(old, submission)
    found = [row for row in stats_of_runs(alike) if _is_over(row)]
    found.sort(key=lambda row: row.job.submitted or 0.0, reverse=True)
    asked = _asked(submission.job, given)
    return right_size(asked, [_evidence(row) for row in found]), tuple(
        row.job.job_id for row in found
    )


def with_sizes(spec: JobSpec, job: Job, rows: Sequence[Sizing]) -> dict[str, Any]:
    """Return the fields to change, and those that would follow others otherwise."""
    fields: dict[str, Any] = {row.field: row.value for row in rows if row.value is not None}
    if "gpus" in fields and job.strategy.rank_per_gpu and spec.tasks_per_node:
        fields["tasks_per_node"] = fields["gpus"]
    if "gpus" in fields and job.cpus_per_task:  # else a site's cores per GPU would lower it
        fields.setdefault("cpus_per_task", job.cpus_per_task)
    return fields


def _is_over(row: JobStats) -> bool:
    status = row.found.known.status if row.found else None
    return status is not None and status.finished


def _evidence(row: JobStats) -> Evidence:
    bins = [line.values for times in row.timelines for line in times.cores_used]
    # The set-up of the job, which its ranks know nothing of, belongs to the time that it needs.
    short = any(note.code == "rank_times" for note in row.job.notes)
    return Evidence(
        job=replace(row.job, elapsed_s=None) if short else row.job,
        out_of_memory=bool(row.job.out_of_memory or row.summary.oom_kills),
        cores_peak=max((value for row in bins for value in row if value is not None), default=None),
    )


def _runs_alike(old: RunFolder, submission: Submission) -> list[RunFolder]:
    """Return the newest runs of the kind, the recorded one among them if it is of it."""
    kinds = _kinds_of(submission)
    mine = [old]
    if not is_function_call(old.record):  # its arguments are not in its record
        others = newest_runs(old.dir.parent, _LOOKED_AT)
        mine += [run for run in others if run.mine and run.dir != old.dir]
    # An array that is sent again whole counts as many of its tasks as it has.
    most = max(_COUNTED, len(kinds))
    return [run for run in mine if _kind(run.record) in kinds][:most]


def _kinds_of(submission: Submission) -> set[str]:
    job, record = submission.job, make_record(submission, submission.rendered)
    return {
        _kind(
            record
            | {
                "parameters": {**record["parameters"], **settings},
                "command": job.task_command(number),
            }
        )
        for number, settings in enumerate(job.task_settings)
    }


def _kind(record: Mapping[str, Any]) -> str:
    """Return what runs must have in common, as a text."""
    plan, workload = record["plan"], record.get("workload")
    shape = ("strategy", "nodes", "gpus_per_node", "gpu_type", "tasks_per_node", "environment")
    what: list[Any] = [*(plan.get(name) for name in shape), work_of(record)]
    if workload:
        own = filled(record["request"].get("args") or (), record["parameters"])
        what += [record["parameters"], list(own)]
    else:
        what += [list(record["command"])[1:]]
    return json.dumps(what, sort_keys=True, default=str)


def _asked(job: Job, given: frozenset[str]) -> Asked:
    name, time_min, mem_gb = limits(job)
    return Asked(
        time_min=job.time_min,
        nodes=job.nodes,
        gpus=job.gpus_per_node,
        tasks_per_node=job.tasks_per_node,
        cpus_per_task=job.cpus_per_task,
        mem_gb=job.mem_gb,
        strategy=job.strategy.name,
        ranks_by_gpu=job.strategy.rank_per_gpu and bool(job.gpus_per_node),
        given=given,
        tied=tuple(_ties(job)),
        partition=name,
        most_time_min=time_min,
        most_mem_gb=mem_gb,
    )


def _ties(job: Job) -> list[tuple[str, str]]:
    words = [word for word in job.site.sbatch_args if word.startswith("--")]
    keys = [word.removeprefix("--").partition("=")[0] for word in words]
    keys += [read_sbatch(text)[0] for text in job.sbatch]
    return [(name, f"--{key} decides it") for key in keys for name in _TIED.get(key, ())]


def limits(job: Job) -> tuple[str | None, int | None, int | None]:
    """Return the partition and its longest time and a node's memory: the site's, else Slurm's."""
    if job.scheduler.one_machine:
        return None, None, None
    name = job.options["partition"]
    own = job.site.partitions.get(name or "")
    time_min, mem_gb = (own.max_time_min, own.mem_gb_per_node) if own else (None, None)
    if time_min is None or mem_gb is None:
        found = _of_slurm(name)
        name = ",".join(row.name for row in found) or name
        time_min = time_min or longest_min(found)
        mem_gb = mem_gb or _node_gb(found)
    return name, time_min, mem_gb


def _of_slurm(name: str | None) -> list[Partition]:
    try:
        return meant(partitions(), name)
    except CommandError:
        return []


def _node_gb(rows: Sequence[Partition]) -> int | None:
    sizes = [one.memory_mb for row in rows for one in row.node_groups if one.memory_mb]
    return max(sizes) // 1024 or None if sizes else None
