"""The `#SBATCH` lines of a job script: every option that sbatch gets, in the order people read."""

from hpckit.job import Job
from hpckit.job.place import RunPlace
from hpckit.job_spec.sbatch_words import read_sbatch
from hpckit.job_spec.spec import OPTIONS

# How many seconds before its time limit a job that may start again is warned, at most; for a short
# job it is a quarter of the limit. Slurm checks only every 30 s, and warns early rather than late.
_LONGEST_DELAY_S = 90
OF_SBATCH = {name: row for name, row in OPTIONS.items() if row.sbatch}


def header(job: Job, place: RunPlace) -> list[dict[str, str | None]]:
    """Return the `#SBATCH` options, in the order people read them."""
    gpus = "gres" if job.site.gpu_request == "gres" else "gpus-per-node"
    options: dict[str, object] = {
        gpus if name == "gpus" else str(row.sbatch): written(job, place, name)
        for name, row in OF_SBATCH.items()
    }
    options |= {
        # So that job.sh does the same wherever it is submitted again.
        "chdir": place.cwd,
        "output": _log_pattern(job, place),
        "open-mode": "append",
        "signal": _signal(job),
        "requeue" if job.max_requeues else "no-requeue": True,
    }
    for key, value in map(read_sbatch, job.sbatch):
        # sbatch takes only the last of two: add to the value that is there, such as a site's GPUs.
        options[key] = f"{options[key]},{value}" if options.get(key) else value or True
    return [
        {"name": key, "value": None if value is True else str(value)}
        for key, value in options.items()
        if value
    ]


def written(job: Job, place: RunPlace, name: str) -> str | bool | None:
    """Return an option's value as sbatch takes it: a text, true for a bare flag, none if unset."""
    match name:
        case "gpus":
            return _gpus(job)
        case "array":
            return _array(job, place)
        case "after":
            return ",".join(place.after) or None
    value = job.option(name)
    if value is None or isinstance(value, bool):
        return value or None
    return OPTIONS[name].written(value)


def _gpus(job: Job) -> str | None:
    if not job.gpus_per_node:
        return None
    count = f"{job.gpu_type}:{job.gpus_per_node}" if job.gpu_type else str(job.gpus_per_node)
    # Per node, never per task: --gpus-per-task hides a rank's neighbours from NCCL.
    return f"gpu:{count}" if job.site.gpu_request == "gres" else count


def _array(job: Job, place: RunPlace) -> str | None:
    if not job.is_array:
        return None
    count = place.part.count if place.part else len(job.tasks)
    return f"0-{count - 1}" + (f"%{job.parallel}" if job.parallel else "")


def _signal(job: Job) -> str | None:
    """Return the warning before the time limit."""
    warned = warned_part(job)
    if warned is None:
        return None
    shell = "B:" if warned == "script" else ""
    return f"{shell}USR2@{signal_delay_s(job.time_min)}"


def warned_part(job: Job) -> str | None:
    """Return what Slurm sends its warning to, which is where the supervisors are."""
    if job.scheduler.one_machine or not (job.max_requeues or job.chain):
        return None
    return "script" if job.launcher.in_batch_script else "steps"


def signal_delay_s(time_min: int) -> int:
    """Return how many seconds before its time limit a job is warned."""
    return min(_LONGEST_DELAY_S, time_min * 60 // 4)


def _log_pattern(job: Job, place: RunPlace) -> str:
    """Return the path of the batch script's log; `%` in a folder's name is written `%%`."""
    folder = str(place.dir).replace("%", "%%")
    number = place.part.log if place.part else "%a"
    return f"{folder}_{number}/job.out" if job.is_array else f"{folder}/job.out"
