"""Which rank a process is, and in which attempt: the variables in which launchers say so.

Users' scripts import it too, under their own Python (`hpckit.parallel`): the standard library is
all there is.
"""

import os
from collections.abc import Mapping

from hpckit.errors import JobError
from hpckit.frozen import frozen


@frozen(slots=False)
class RankPlacement:
    """Which of all ranks a process is, and where it stands. `node_rank` counts nodes from 0."""

    rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    node_rank: int

    def environment(self) -> dict[str, str]:
        """Return the variables a torch script reads, in torchrun's words."""
        return {
            "RANK": str(self.rank),
            "WORLD_SIZE": str(self.world_size),
            "LOCAL_RANK": str(self.local_rank),
            "LOCAL_WORLD_SIZE": str(self.local_world_size),
            "NODE_RANK": str(self.node_rank),
        }


@frozen(slots=False)
class RankVariables:
    """The names of the variables that a launcher sets for each rank.

    Attributes:
        launcher: what messages call it.
        local_world_size: how many ranks the node has; empty where there is no such variable.
    """

    launcher: str
    rank: str
    world_size: str
    local_rank: str
    local_world_size: str = ""

    def found_in(self, environ: Mapping[str, str]) -> bool:
        """Say whether all that tell of the world are set."""
        names = (self.rank, self.world_size, self.local_world_size)
        return all(name in environ for name in names if name)

    def numbers(self, environ: Mapping[str, str]) -> tuple[int, int, int]:
        """Return rank, world size and local rank; a process that was told nothing is alone."""
        rank, size, local = self.rank, self.world_size, self.local_rank
        return int(environ.get(rank, 0)), int(environ.get(size, 1)), int(environ.get(local, 0))

    def placement(self, environ: Mapping[str, str], tasks_per_node: int) -> RankPlacement:
        """Return the place of this process.

        Node ranks are counted by blocks of `tasks_per_node`, which is how every launcher here
        places.

        Raises:
            JobError: the launcher did not set its variables, so ranks could not agree on who is
                who.
        """
        names = (self.rank, self.world_size, self.local_rank)
        if missing := [name for name in names if name not in environ]:
            raise JobError(
                f"{os.uname().nodename}: launcher {self.launcher} did not set "
                f"{', '.join(missing)}: this process does not know its rank."
            )
        rank, size, local = self.numbers(environ)
        local_size = environ.get(self.local_world_size, "")
        return RankPlacement(
            rank=rank,
            world_size=size,
            local_rank=local,
            local_world_size=int(local_size or min(tasks_per_node, size)),
            node_rank=rank // tasks_per_node,
        )


SRUN = RankVariables("srun", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID")
# A batch script has the words above too; these only what srun has started.
SRUN_STEP = RankVariables("srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID")
# Of what stands in for srun in local runs, in submitit's words.
LOCAL = RankVariables(
    "local", "SUBMITIT_LOCAL_GLOBALID", "SUBMITIT_LOCAL_NTASKS", "SUBMITIT_LOCAL_LOCALID"
)
TORCHRUN = RankVariables("torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
# hpckit tells scripts their ranks in torchrun's words, whatever has started them.
HPCKIT = RankVariables("hpckit", "RANK", "WORLD_SIZE", "LOCAL_RANK")
OPEN_MPI = RankVariables(
    "mpirun (Open MPI)",
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
)
HYDRA = RankVariables(
    "mpiexec (MPICH or Intel MPI)", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"
)
PMI2 = RankVariables("srun --mpi=pmi2", "PMI_RANK", "PMI_SIZE", "SLURM_LOCALID")

# mpirun comes before srun, because Open MPI starts its own daemons by srun.
_STARTERS = (OPEN_MPI, HYDRA, PMI2, HPCKIT, SRUN_STEP)


def find_starter(environ: Mapping[str, str]) -> RankVariables | None:
    """Return the words of what has started this MPI process; None: nothing that is known."""
    return next((row for row in _STARTERS if row.found_in(environ)), None)


def mpirun_variables(environ: Mapping[str, str]) -> RankVariables:
    """Return the words of the MPI whose mpirun has started this process.

    Raises:
        JobError: none that hpckit knows; mpirun of one MPI and library of another look like this.
    """
    for row in (OPEN_MPI, HYDRA):
        if row.rank in environ:
            return row
    raise JobError(
        f"{os.uname().nodename}: mpirun set neither {OPEN_MPI.rank} nor {HYDRA.rank}: "
        "hpckit knows Open MPI and MPICH/Intel MPI. Try --launcher srun."
    )


def task_number(environ: Mapping[str, str]) -> int:
    """Return the number of this task of the job: the node's, where each node has one."""
    return int(environ.get(SRUN.rank) or environ.get(LOCAL.rank) or 0)


def restart_count(environ: Mapping[str, str] = os.environ) -> int:
    """Return how often the job was started again: Slurm's count, or the local controller's."""
    return int(environ.get("SLURM_RESTART_COUNT") or environ.get("HPCKIT_RESTART") or 0)
