"""How many threads a rank computes with, where nobody has said.

OpenMP and the libraries over it (torch, MKL, OpenBLAS, numexpr) start one thread per core that a
process may use. Where several ranks may use the same cores they slow one another down many times
over; docs/submit.md has what was measured.
MKL_NUM_THREADS and its kin follow OMP_NUM_THREADS where they are not set themselves.
"""

import os
from collections.abc import Mapping

from hpckit.environ import OWN_THREADS, THREADS
from hpckit.payload.task import Task


def threads(task: Task, environ: Mapping[str, str], cores: int | None = None) -> dict[str, str]:
    """Return OMP_NUM_THREADS for a rank, or nothing: it is set, or the rank has its own cores.

    What the user, the site, a template or the environment set stays. `cores`: how many this
    process may use, unless it is this machine's to say.
    """
    if environ.get(THREADS):
        return {}
    cores = cores or len(os.sched_getaffinity(0))
    share = _local(task, cores) if task.executor == "local" else _slurm(task, environ, cores)
    return {} if share is None else {THREADS: str(share), OWN_THREADS: str(share)}


def _local(task: Task, cores: int) -> int | None:
    """Share this machine, which plays all nodes; what was asked for may be more than it has."""
    ranks = task.nodes * task.tasks_per_node
    share = max(1, cores // ranks)
    if task.cpus_per_task:
        return min(task.cpus_per_task, share)
    return share if ranks > 1 else None


def _slurm(task: Task, environ: Mapping[str, str], cores: int) -> int | None:
    """Share the cores that Slurm gave the job on this node, unless each rank is bound to its own.

    torchrun's agent measures for all the ranks that it will start.
    """
    if task.cpus_per_task:
        return task.cpus_per_task
    if task.tasks_per_node == 1:
        return None
    given = int(environ.get("SLURM_CPUS_ON_NODE") or cores)
    bound = task.launcher != "torchrun" and cores * task.tasks_per_node <= given
    return None if bound else max(1, min(cores, given) // task.tasks_per_node)
