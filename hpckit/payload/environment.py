"""How one rank's script starts: its argv, and the environment it finds."""

import os
from pathlib import Path

from hpckit.payload import mpi_script
from hpckit.payload.place import Place
from hpckit.payload.task import TASK_VARIABLE, Task
from hpckit.payload.threads import threads

# Where a script finds `hpckit.parallel`, also under a Python that lacks hpckit; and where Python
# finds the `sitecustomize.py` that it imports before the script.
IMPORTABLE = str(Path(__file__).parent / "importable")


def script_command(task: Task) -> tuple[str, ...]:
    """Return the argv of one rank's script; an MPI script is run by `mpi_script`."""
    if not task.mpi:
        return task.command
    return (*task.python, "-c", mpi_script.STARTER, *task.command[len(task.python) :])


def rank_environment(task: Task, place: Place, device: str) -> dict[str, str]:
    """Return the environment of one rank's script."""
    environment = {
        **os.environ,
        **threads(task, os.environ),
        **place.environment(),
        "HPCKIT_RUN_DIR": task.run_dir,
        "HPCKIT_RUN_ID": task.run_id,
        "HPCKIT_RESTART": str(restart_count()),
        "HPCKIT_DEVICE": device,
        "HPCKIT_CPU_REPLICAS": str(task.replicas if device == "cpu" else 1),
        "PYTHONUNBUFFERED": "1",
    }
    if task.sources_only:
        environment["HPCKIT_SOURCES_ONLY"] = task.sources_only
    environment["PYTHONPATH"] = os.pathsep.join(dict.fromkeys([IMPORTABLE, *_python_path()]))
    # Those of a job that this one was submitted from.
    for name in (TASK_VARIABLE, "HPCKIT_MPI_SCRIPT"):
        environment.pop(name, None)
    if task.mpi:
        environment["HPCKIT_MPI_SCRIPT"] = Path(mpi_script.__file__).read_text(encoding="utf-8")
    return environment


def _python_path() -> list[str]:
    return [word for word in os.environ.get("PYTHONPATH", "").split(os.pathsep) if word]


def restart_count() -> int:
    """Return how often the job was started again: Slurm's count, or the local controller's."""
    return int(os.environ.get("SLURM_RESTART_COUNT") or os.environ.get("HPCKIT_RESTART") or 0)
