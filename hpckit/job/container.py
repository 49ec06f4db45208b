"""The step that has Pyxis's container on each node: its argv, and what of the node it shows.

The step's process only says where it is, and waits until the job script ends. Ranks enter its
container (`hpckit.payload.container`), so they stay processes of hpckit's supervisors outside.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from hpckit.errors import PlanError

if TYPE_CHECKING:
    from hpckit.job import Job
    from hpckit.job.place import RunPlace

# It says `hpckit-container NODE PID`, and ends with its stdin.
_KEEPER = 'echo "hpckit-container $SLURMD_NODENAME $$"; exec cat >/dev/null'


def container_argv(job: "Job", place: "RunPlace") -> tuple[str, ...]:
    """Return the argv of the step that has a container on each node of the job.

    Raises:
        PlanError: Slurm does not start this job, or Pyxis cannot show one of its folders.
    """
    if job.scheduler.one_machine:
        raise PlanError(
            f"--env {job.environment.name} is for Slurm, whose Pyxis starts the container, and "
            f"this run is for executor {job.scheduler.name!r}. Use apptainer:IMAGE here."
        )
    return (
        "srun",
        # Beside the step of the ranks, which is to have all that the job has.
        "--overlap",
        "--mem=0",
        f"--nodes={job.nodes}",
        f"--ntasks={job.nodes}",
        "--ntasks-per-node=1",
        "--cpus-per-task=1",
        "--mpi=none",
        "--kill-on-bad-exit=1",
        f"--container-image={job.environment.path}",
        f"--container-mounts={','.join(mounts(job, place))}",
        *job.environment.options,
        *("sh", "-c", _KEEPER),
    )


def mounts(job: "Job", place: "RunPlace") -> tuple[str, ...]:
    """Return what a container shows of the node, as `--container-mounts` wants it.

    The folder of runs, with the kept code; the folder of submission; the program's project, where
    data lies that is not kept; hpckit itself, for `hpckit.parallel`; and the environment's binds.

    Raises:
        PlanError: a path cannot be written there.
    """
    program = job.program.file
    project = place.project or (program.parent if program else None)
    workload = job.workload.found.path.parent if job.workload and job.workload.found else None
    folders = [place.dir.parent, Path(place.cwd), project, workload]
    own = dict.fromkeys(str(path) for path in folders if path and path != Path("/"))
    inner = [path for path in own if not any(_is_below(path, other) for other in own)]
    package = str(Path(__file__).resolve().parents[1])
    for path in (*inner, package):
        if not path.isprintable() or {*path} & {*":,"}:
            raise PlanError(
                f"Pyxis cannot show {path!r} in a container: a colon, a comma or a control "
                "character in a path ends it in --container-mounts. Use another folder."
            )
    rows = [f"{path}:{path}" for path in inner]
    if not any(_is_below(package, path) for path in inner):
        rows.append(f"{package}:{package}:ro")
    return (*rows, *(bind if ":" in bind else f"{bind}:{bind}" for bind in job.environment.binds))


def _is_below(path: str, other: str) -> bool:
    return path != other and path.startswith(other.rstrip("/") + "/")
