"""srun: Slurm starts one task per rank. Its argv also starts what has one task per node."""

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from hpckit.launchers import Launcher
from hpckit.rank_variables import LOCAL, SRUN, RankVariables

if TYPE_CHECKING:
    from hpckit.job import Job
    from hpckit.payload.task import Task

# Of a local run: how long ranks may do nothing after others have ended.
WAIT_S = 300.0
# `--wait=N`, `--wait N`, `-W N`, `-WN`, and the word after it where that is none of it.
_WAIT = r"(?as)(?:--wait[= ]|-W ?)(\d{1,9})(?: .*)?"


class Srun(Launcher):
    """One supervisor per rank."""

    name = "srun"
    help = "Slurm starts one task per rank"
    in_batch_script = False
    ranks_are_tasks = True
    takes_mpi_kind = True
    stand_in = True  # `hpckit.payload.spawn`

    def refusal(self, job: "Job") -> str | None:
        """Refuse MPI in local runs: what stands in for srun cannot make MPI's ranks meet."""
        if job.scheduler.one_machine and job.strategy.mpi and job.ranks > 1:
            return (
                f"On this machine only mpirun can start {job.ranks} MPI ranks. "
                "Leave --launcher srun out."
            )
        return None

    def supervisors(self, job: "Job") -> tuple[int, int]:
        """Return one per rank."""
        return job.nodes, job.tasks_per_node

    def slurm_argv(self, job: "Job") -> tuple[str, ...]:
        """Return srun's argv for one task per rank."""
        return srun_argv(job, tasks_per_node=job.tasks_per_node)

    def child(self, task: "Task") -> None:
        """Return None: a supervisor is a rank."""
        del task

    def variables(self, task: "Task") -> RankVariables:
        """Return Slurm's own words, or those of what stands in for srun."""
        return LOCAL if task.one_machine else SRUN


def srun_argv(job: "Job", *, tasks_per_node: int) -> tuple[str, ...]:
    """Return the argv of srun for so many tasks per node, which share all CPUs of the job there."""
    argv = [
        "srun",
        f"--nodes={job.nodes}",
        f"--ntasks={job.nodes * tasks_per_node}",
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
    if job.cpus_per_task:
        # Slurm 22.05 to 23.02 do not hand sbatch's value on to srun.
        argv.append(f"--cpus-per-task={job.cpus_per_task * job.tasks_per_node // tasks_per_node}")
    if job.strategy.mpi and job.site.mpi:
        argv.append(f"--mpi={job.site.mpi}")
    if tasks_per_node == job.gpus_per_node and _has_all_of_a_node(job):
        argv.append(f"--cpu-bind=mask_cpu:{','.join(job.site.cpu_masks)}")
    return (*argv, *job.site.srun_args)


def _has_all_of_a_node(job: "Job") -> bool:
    """Say whether each rank has a GPU, and all of them all that the site gives a rank of cores.

    srun refuses masks of cores that the job does not have.
    """
    site = job.site
    return (
        job.tasks_per_node == len(site.cpu_masks) and job.cpus_per_task == site.cpus_per_gpu
    )  # fmt: skip


def srun_wait_s(srun_args: Sequence[str], default: float = WAIT_S) -> float:
    """Return the --wait among a site's arguments of srun, in seconds; the last one counts.

    Locally a run of which other ranks have ended is ended when the rest did nothing for so long; 0
    means never.
    """
    found = [re.fullmatch(_WAIT, f"{word} {after}") for word, after in pairwise((*srun_args, ""))]
    seconds = [match[1] for match in found if match]
    return float(seconds[-1]) if seconds else default
