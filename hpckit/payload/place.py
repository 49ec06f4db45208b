"""Where a process stands among the ranks, read from what its launcher gave it."""

import socket
from collections.abc import Mapping
from dataclasses import dataclass

from hpckit.errors import JobError


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """One rank's place. `node_rank` counts nodes from 0."""

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


# Variable names of: rank, world size, local rank, local world size. First match wins.
_NAMES = {
    "srun": ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", ""),
    "local": (
        "SUBMITIT_LOCAL_GLOBALID",
        "SUBMITIT_LOCAL_NTASKS",
        "SUBMITIT_LOCAL_LOCALID",
        "",
    ),
    "torchrun": ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    "openmpi": (
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
    ),
    "hydra": ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
}


def find_place(source: str, tasks_per_node: int, environ: Mapping[str, str]) -> Place:
    """Read the place from the variables of `source`: srun, local, torchrun, openmpi or hydra.

    Node ranks are counted by blocks of `tasks_per_node`, which is how every launcher here places.

    Raises:
        JobError: the launcher did not set its variables, so ranks could not agree on who is who.
    """
    names = _NAMES[source]
    missing = [name for name in names[:3] if name not in environ]
    if missing:
        raise JobError(
            f"{socket.gethostname()}: launcher {source} did not set {', '.join(missing)}: "
            "this process does not know its rank."
        )
    rank, size, local = (int(environ[name]) for name in names[:3])
    local_size = int(environ.get(names[3], "") or min(tasks_per_node, size))
    return Place(
        rank=rank,
        world_size=size,
        local_rank=local,
        local_world_size=local_size,
        node_rank=rank // tasks_per_node,
    )


def mpi_source(environ: Mapping[str, str]) -> str:
    """Return which MPI started this process.

    Raises:
        JobError: none that hpckit knows; mpirun of one MPI and library of another look like this.
    """
    for source in ("openmpi", "hydra"):
        if _NAMES[source][0] in environ:
            return source
    raise JobError(
        f"{socket.gethostname()}: mpirun set neither {_NAMES['openmpi'][0]} nor "
        f"{_NAMES['hydra'][0]}: hpckit knows Open MPI and MPICH/Intel MPI. Try --launcher srun."
    )
