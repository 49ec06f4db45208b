"""What a job should ask for, by what its last runs used: each change, its reason and margin. Pure.

A run that COMPLETED says what is enough. One that the kernel killed for its memory, or Slurm at its
time limit, says only what was too little; every other says nothing. What is unknown stays.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

from hpckit.slurm.resized import by_attempt
from hpckit.stats.samples.records import SHARED
from hpckit.stats.sizing import LABELS, Asked, Evidence, Row, Sizing, clock, gib
from hpckit.stats.summary.coverage import enough, enough_of_each
from hpckit.stats.summary.figures import SAMPLES, GpuUse, JobUse
from hpckit.units import format_minutes

# What is added to the highest use of all runs, and to a mean, which hides bursts.
MARGIN, MARGIN_OF_MEAN = 1.2, 1.5
# What a limit that was too low is multiplied by, as in rules `timeout` and `out-of-memory`.
MORE = 1.5
# Below it, the start of a job and of its libraries varies more than what it saves.
LEAST_TIME_MIN = 5
# GPUs that were idle for so long at the end: the job hung, and more time would not have helped.
_HUNG_S = 1800.0
_GIB = 1 << 30


def right_size(asked: Asked, runs: Sequence[Evidence]) -> tuple[Sizing, ...]:
    """Return what to ask for of each resource, by the runs that are like it, newest first."""
    gpus = _gpus(asked, runs)
    if gpus and gpus.value and asked.ranks_by_gpu:
        asked = replace(asked, tasks_per_node=gpus.value)
    found = (_time(asked, runs), _memory(asked, runs), _cores(asked, runs), gpus)
    return tuple(_together(asked, runs, {row.field: row for row in found if row}).values())


def _time(asked: Asked, runs: Sequence[Evidence]) -> Sizing | None:
    row = Row("time_min", asked.time_min, format_minutes)
    if stays := row.told(asked, runs):
        return stays
    took = [(run, need) for run in runs if run.completed and (need := _took_s(run.job)) is not None]
    late = [
        (run.job, limit)
        for run in runs
        if run.job.state == "TIMEOUT" and (limit := run.job.requested.time_limit_s)
    ]
    most_s = max((need for _, need in took), default=0.0)
    limit_s = max((limit for _, limit in late), default=0)
    top = asked.most_time_min
    if limit_s > most_s:
        ended = next(job for job, limit in late if limit == limit_s)
        if hung_s := _hung_s(ended):
            return row.stays(
                f"job {ended.job_id} ended at its limit, but its GPUs had been idle for "
                f"{clock(hung_s)}: look why it hung"
            )
        why = f"job {ended.job_id} ended at its limit of {clock(limit_s)}, x {MORE:g}"
        return row.to(math.ceil(limit_s * MORE / 60), why, top, asked.partition, up=True)
    if not took:
        completed = any(run.completed for run in runs)
        unknown = "how long the runs that COMPLETED took is not known"
        return row.stays(unknown if completed else "no such run has COMPLETED")
    least = min(LEAST_TIME_MIN, asked.time_min)
    wanted = math.ceil(most_s * MARGIN / 60)
    why = f"{_last(took)} took at most {clock(most_s)}, + {_percent(MARGIN)} %"
    why += f", at least {least} min" if wanted < least else ""
    return row.to(max(wanted, least), why, top, asked.partition)


def _took_s(job: JobUse) -> float | None:
    """Return the longest that one attempt may need: after a restart, all may be to do again."""
    limit = job.requested.time_limit_s
    if job.elapsed_s is None or len(by_attempt(job.attempts)) < 2 or not limit:
        return job.elapsed_s
    return min(job.elapsed_s, limit / MARGIN)


def _hung_s(job: JobUse) -> float | None:
    tails = [gpu.idle_tail_s for gpu in job.per_gpu]
    known = [tail for tail in tails if tail is not None]
    return min(known) if known and len(known) == len(tails) and min(known) >= _HUNG_S else None


def _memory(asked: Asked, runs: Sequence[Evidence]) -> Sizing | None:
    had = asked.mem_gb or _given_gb(runs)
    row = Row("mem_gb", had, "{} GiB".format, new=asked.mem_gb is None)
    if stays := row.told(asked, runs):
        return stays
    peaks = [(run, peak) for run in runs if run.completed and (peak := _peak_bytes(run.job))]
    killed = [
        (run.job, limit)
        for run in runs
        if run.out_of_memory and (limit := run.job.requested.memory_bytes_per_node)
    ]
    most = max((peak for _, peak in peaks), default=0)
    limit = max((limit for _, limit in killed), default=0)
    # What a run had at its best is too little to go down by, and enough to go up.
    seen = max((run.job.summary.memory_peak_bytes or 0 for run in runs), default=0)
    if limit > most:
        ended = next(job for job, of in killed if of == limit)
        wanted = max(math.ceil(limit * MORE / _GIB), _with_margin_gb(seen))
        why = f"job {ended.job_id} ran out of its {gib(limit)}, x {MORE:g}"
        return row.to(wanted, why, asked.most_mem_gb, asked.partition, up=True)
    if not peaks:
        if had and _with_margin_gb(seen) > had:
            why = f"{gib(seen)} were in use, + {_percent(MARGIN)} %"
            return row.to(_with_margin_gb(seen), why, asked.most_mem_gb, asked.partition, up=True)
        return row.stays("the highest use of a run that COMPLETED is unknown")
    most = max(most, seen)
    why = f"{_last(peaks)} used at most {gib(most)} on a node, + {_percent(MARGIN)} %"
    return row.to(_with_margin_gb(most), why, asked.most_mem_gb, asked.partition)


def _with_margin_gb(use: int) -> int:
    return math.ceil(use * MARGIN / _GIB)


def _given_gb(runs: Sequence[Evidence]) -> int | None:
    """Return what Slurm gave where nobody asked for memory."""
    given = next((run.job.requested.memory_bytes_per_node for run in runs), None)
    return math.ceil(given / _GIB) if given else None


def _peak_bytes(job: JobUse) -> int | None:
    """Return the highest use of any node, where it can be told that it was the highest."""
    name = "summary.memory_peak_bytes"
    if name in (*job.at_least, *job.suspect):
        return None
    if job.origins.get(name) == SAMPLES and not _read(job):
        return None
    return job.summary.memory_peak_bytes


def _read(job: JobUse) -> bool:
    """Tell whether samples cover enough of a job's time."""
    nodes = [node.covered_percent or 0.0 for node in job.per_node]
    lowest = min(nodes) if nodes and len(nodes) >= (job.nodes or 1) else 0.0
    return enough_of_each(job.summary.coverage_percent, lowest, job.elapsed_s)


def _cores(asked: Asked, runs: Sequence[Evidence]) -> Sizing | None:
    if asked.cpus_per_task is None:
        return None
    row = Row("cpus_per_task", asked.cpus_per_task, str)
    if stays := row.told(asked, runs):
        return stays
    done = [run for run in runs if run.completed]
    if not done:
        return row.stays("no such run has COMPLETED")
    peaks = [(run, peak) for run in done if (peak := run.cores_peak) is not None and _read(run.job)]
    means = [(run, mean) for run in done if (mean := _mean_cores(run.job)) is not None]
    if len(peaks) == len(done):
        cores, margin = max(peak for _, peak in peaks), MARGIN
        said = f"{_last(peaks)} used at most {cores:.1f} cores of a node at once"
    elif len(means) == len(done):
        cores, margin = max(mean for _, mean in means), MARGIN_OF_MEAN
        said = f"{_last(means)} used {cores:.1f} cores of a node on average"
    else:
        return row.stays("the cores in use of a run that COMPLETED are unknown")
    ranks = asked.tasks_per_node
    wanted = max(math.ceil(round(cores * margin / ranks, 6)), 1)
    share = f", for {ranks} ranks" if ranks > 1 else ""
    if wanted >= asked.cpus_per_task:
        return row.stays(f"{said}{share}")
    return row.to(wanted, f"{said}{share}, + {_percent(margin)} %")


def _mean_cores(job: JobUse) -> float | None:
    """Return the cores in use on a node, over all its time."""
    used, cores = job.summary.cpu_efficiency_percent, job.requested.cores
    if used is None or not cores or "summary.cpu_efficiency_percent" in job.suspect:
        return None
    return used / 100 * cores / (job.nodes or job.requested.nodes or 1)


def _gpus(asked: Asked, runs: Sequence[Evidence]) -> Sizing | None:
    if not asked.gpus:
        return None
    row = Row("gpus", asked.gpus, str)
    if stays := row.told(asked, runs):
        return stays
    done = [run.job for run in runs if run.completed]
    if not done:
        return row.stays("no such run has COMPLETED")
    used = [_used_gpus(job, asked) for job in done]
    known = [count for count in used if count is not None]
    if len(known) < len(used):
        return row.stays("whether each GPU was in use all the time is unknown")
    most = max(known)
    if most >= asked.gpus:
        return row.stays("all were in use")
    if most == 0:
        return row.stays("none was in use: see `hpckit stats` before asking for none")
    idle = f"{asked.gpus - most} of each node ran no kernel in {_last(done)}"
    return row.to(most, idle + _arithmetic(asked, most))


def _used_gpus(job: JobUse, asked: Asked) -> int | None:
    """Return the most GPUs of a node in which a kernel ran; None if one of all is not known."""
    if len(job.per_gpu) != asked.nodes * asked.gpus or not all(map(_known, job.per_gpu)):
        return None
    hosts = [gpu.host for gpu in job.per_gpu if not _idle(gpu)]
    return max((hosts.count(host) for host in hosts), default=0)


def _known(gpu: GpuUse) -> bool:
    read = gpu.confidence != SHARED and not gpu.lost and enough(gpu.covered_percent, gpu.hours)
    return read and gpu.utilization_percent is not None


def _idle(gpu: GpuUse) -> bool:
    return not gpu.utilization_percent and not gpu.utilization_peak_percent


def _arithmetic(asked: Asked, gpus: int) -> str:
    """Say what changes in what a script computes with fewer GPUs."""
    if asked.ranks_by_gpu:
        return (
            f"; {asked.nodes * asked.gpus} -> {asked.nodes * gpus} ranks: a script that sets the "
            "batch of each rank has a smaller global batch then, so check it and the learning rate"
        )
    if asked.strategy in ("dp", "mirrored"):
        return "; a script that sets the batch of each GPU has a smaller global batch then"
    return ""


def _together(asked: Asked, runs: Sequence[Evidence], rows: dict[str, Sizing]) -> dict[str, Sizing]:
    """Keep the memory that Slurm gives by cores or GPUs when there are fewer of these."""
    fewer = [row for name in ("cpus_per_task", "gpus") if (row := rows.get(name)) and row.value]
    memory = rows.get("mem_gb")
    if not fewer or asked.mem_gb is not None or (memory and memory.value is not None):
        return rows
    given = _given_gb(runs)
    if memory and given and "mem_gb" not in asked.given and "mem_gb" not in dict(asked.tied):
        kept = f"Slurm's default would be less with {LABELS[fewer[0].field]}; {memory.reason}"
        return rows | {"mem_gb": replace(memory, value=given, after=memory.before, reason=kept)}
    if "mem_gb" in asked.given:
        return rows
    left = "memory goes with it, and how much is needed is unknown"
    return rows | {row.field: replace(row, value=None, reason=left) for row in fewer}


def _last(runs: Sequence[object]) -> str:
    return "the last run" if len(runs) == 1 else f"the last {len(runs)} runs"


def _percent(margin: float) -> int:
    return round((margin - 1) * 100)
