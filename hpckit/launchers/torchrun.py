"""torchrun: one agent per node, which starts the node's ranks."""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from hpckit.launchers import Launcher, rank_argv
from hpckit.launchers.srun import srun_argv
from hpckit.rank_variables import TORCHRUN, RankVariables, task_number

if TYPE_CHECKING:
    from hpckit.job import Job
    from hpckit.payload.task import Task

# By default torchrun also ends at SIGHUP and SIGQUIT, which a script may have a use for.
# The second name is that of torchrun's own option, of torch 2.8 on, which overrides the first.
_ENDS_ON = dict.fromkeys(
    ("TORCHELASTIC_SIGNALS_TO_HANDLE", "PET_SIGNALS_TO_HANDLE"), "SIGTERM,SIGINT"
)
_WITHOUT_SIGTERM = dict.fromkeys(_ENDS_ON, "SIGINT")
# `python -m` would look into the folder that the job runs in first, where anybody's torch/ may lie;
# Python's own -P for that is younger than some environments' Pythons, and -I forgets PYTHONPATH.
# torchrun makes a folder per rank for what ranks might write there, in /tmp of each node, and
# leaves it: here it goes with its agent, which has printed what it found in it. Who sends ranks'
# output into files (by torchrun's own variables) keeps it.
_MAIN = """\
import sys
sys.path[:] = [place for place in sys.path if place]
import os, shutil, tempfile
from torch.distributed.run import main
if {"PET_LOG_DIR", "PET_REDIRECTS", "PET_TEE"}.isdisjoint(os.environ):
    logs = tempfile.mkdtemp(prefix="torchelastic_")
    sys.argv.insert(1, "--log_dir=" + logs)
    try:
        main()
    finally:
        shutil.rmtree(logs, ignore_errors=True)
else:
    main()
"""


class Torchrun(Launcher):
    """One supervisor per node, whose child is the node's agent."""

    name = "torchrun"
    help = "one torchrun agent per node, which starts the node's ranks"
    in_batch_script = False
    limits_threads = True

    def refusal(self, job: "Job") -> str | None:
        """Refuse MPI, and containers."""
        if job.environment.in_container:
            return (
                "--launcher torchrun would start its agent in the container, where hpckit is not. "
                "Use --launcher srun: each rank then gets a container of its own."
            )
        if job.strategy.mpi:
            return "--launcher torchrun cannot start MPI ranks. Use srun or mpirun."
        return None

    def supervisors(self, job: "Job") -> tuple[int, int]:
        """Return one per node."""
        return job.nodes, 1

    def slurm_argv(self, job: "Job") -> tuple[str, ...]:
        """Return srun's argv for one task per node, with all of the node's CPUs."""
        return srun_argv(job, tasks_per_node=1)

    def child(self, task: "Task") -> tuple[str, ...]:
        """Return the argv of this node's agent.

        The static rendezvous of `MASTER_ADDR:MASTER_PORT`; the node's rank is the task's.
        """
        return (
            *task.python,
            "-c",
            _MAIN,
            f"--nnodes={task.nodes}",
            f"--node_rank={task_number(os.environ)}",
            f"--nproc_per_node={task.tasks_per_node}",
            f"--master_addr={os.environ['MASTER_ADDR']}",
            f"--master_port={os.environ['MASTER_PORT']}",
            "--no_python",
            *rank_argv(),
        )

    def environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Return the agent's environment."""
        return {**_ENDS_ON, **environ}

    def without_sigterm(self) -> dict[str, str]:
        """Return its own settings of the signals that it handles."""
        return dict(_WITHOUT_SIGTERM)

    def variables(self, task: "Task") -> RankVariables:
        """Return torchrun's own words."""
        del task
        return TORCHRUN
