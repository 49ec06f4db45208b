"""Launchers: what starts ranks. A row in a table each; the plan turns a row into an argv.

What a launcher starts is never the user's script itself but hpckit's supervisor
(`hpckit.submission.in_job`), which knows its place among the ranks and starts the script.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from hpckit.documents import nearest
from hpckit.errors import RequestError

# Of a local run: how long ranks may do nothing after others have ended.
WAIT_S = 300.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """How many processes go where."""

    nodes: int
    tasks_per_node: int
    cpus_per_task: int | None = None
    mpi: str | None = None
    srun_args: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Launcher:
    """One way to start ranks.

    `supervisors_per_node` is None for one supervisor per rank, 1 for one per node, 0 for a single
    one per job. `slurm` builds the argv that starts them inside an allocation.
    """

    name: str
    help: str
    supervisors_per_node: int | None
    slurm: Callable[[Shape], tuple[str, ...]]

    def supervisors(self, shape: Shape) -> tuple[int, int]:
        """Return how many nodes get a supervisor, and how many each of these gets."""
        if self.supervisors_per_node is None:
            return shape.nodes, shape.tasks_per_node
        return (shape.nodes, 1) if self.supervisors_per_node else (1, 1)


def _srun(shape: Shape, tasks_per_node: int, cpus_per_task: int | None) -> tuple[str, ...]:
    argv = [
        "srun",
        f"--nodes={shape.nodes}",
        f"--ntasks={shape.nodes * tasks_per_node}",
        f"--ntasks-per-node={tasks_per_node}",
        # Rank 0 on the first node, where the rendezvous is.
        "--distribution=block",
        # One dead rank ends the job: without it the others hang in their next collective.
        "--kill-on-bad-exit=1",
        # Ranks need not end together: after N seconds srun would kill those still at work, and call
        # it a success when the first had ended with 0. What a lost node leaves is ended by
        # `hpckit.payload.children.end_job`.
        "--wait=0",
        "--unbuffered",
    ]
    if cpus_per_task:
        # Slurm 22.05 to 23.02 do not hand sbatch's value on to srun.
        argv.append(f"--cpus-per-task={cpus_per_task}")
    if shape.mpi:
        argv.append(f"--mpi={shape.mpi}")
    return (*argv, *shape.srun_args)


def _srun_per_rank(shape: Shape) -> tuple[str, ...]:
    return _srun(shape, shape.tasks_per_node, shape.cpus_per_task)


def _srun_per_node(shape: Shape) -> tuple[str, ...]:
    cpus = shape.cpus_per_task and shape.cpus_per_task * shape.tasks_per_node
    return _srun(shape, 1, cpus)


def _no_launch(shape: Shape) -> tuple[str, ...]:
    del shape  # mpirun is started by the supervisor, which then is the batch script's own process
    return ()


# `--wait=N`, `--wait N`, `-W N`, `-WN`, and the word after it where that is none of it.
_WAIT = re.compile(r"(?:--wait[= ]|-W ?)(\d{1,9})(?: .*)?", re.ASCII | re.DOTALL)


def srun_wait_s(srun_args: Sequence[str], default: float = WAIT_S) -> float:
    """Return the --wait among a site's arguments of srun, in seconds; the last one counts.

    Locally a run of which other ranks have ended is ended when the rest did nothing for so long; 0
    means never.
    """
    found = [_WAIT.fullmatch(f"{word} {after}") for word, after in pairwise((*srun_args, ""))]
    seconds = [match[1] for match in found if match]
    return float(seconds[-1]) if seconds else default


LAUNCHERS = {
    row.name: row
    for row in (
        Launcher(
            name="srun",
            help="Slurm starts one task per rank",
            supervisors_per_node=None,
            slurm=_srun_per_rank,
        ),
        Launcher(
            name="torchrun",
            help="one torchrun agent per node, which starts the node's ranks",
            supervisors_per_node=1,
            slurm=_srun_per_node,
        ),
        Launcher(
            name="mpirun",
            help="mpirun or mpiexec starts all ranks",
            supervisors_per_node=0,
            slurm=_no_launch,
        ),
    )
}


def find_launcher(name: str) -> Launcher:
    """Return the launcher called `name`.

    Raises:
        RequestError: there is none of that name.
    """
    if name not in LAUNCHERS:
        raise RequestError(f"Unknown launcher {name!r}. {nearest(name, LAUNCHERS)}")
    return LAUNCHERS[name]


def mpirun_argv(
    program: Sequence[str], version: str, shape: Shape, *, oversubscribe: bool
) -> tuple[str, ...]:
    """Return the argv of mpirun for `shape`; `version` is what `mpirun --version` printed.

    Open MPI places with `--map-by ppr:N:node`; Hydra (MPICH, Intel MPI) with `-ppn N`.
    """
    total = str(shape.nodes * shape.tasks_per_node)
    if "Open MPI" in version or "OpenRTE" in version:
        placing = ["--map-by", f"ppr:{shape.tasks_per_node}:node", "--bind-to", "none"]
        extra = ["--oversubscribe"] if oversubscribe else []
        if oversubscribe:  # one machine plays several nodes
            placing = ["--bind-to", "none"]
        return (*program, "-np", total, *placing, *extra)
    placing = [] if oversubscribe else ["-ppn", str(shape.tasks_per_node)]
    return (*program, "-n", total, *placing)
