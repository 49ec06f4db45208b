"""A launcher in a package of its own: one process of each node starts the node's ranks.

It is here for the tests, and to be read: this is all that a launcher needs.
"""

import contextlib
import os
import signal
import subprocess
import sys

from hpckit.job import Job
from hpckit.launchers import Launcher, rank_argv
from hpckit.launchers.srun import srun_argv
from hpckit.payload.task import Task
from hpckit.rank_variables import RankVariables, task_number


def start_all(first: int, here: int, size: int, argv: list[str]) -> int:
    """Run a node's ranks; SIGTERM, or the first to fail, ends all. Return that one's status."""
    ranks: dict[int, subprocess.Popen[bytes]] = {}
    status = 0

    def end(*_signal: object) -> None:
        for rank in ranks.values():
            with contextlib.suppress(ProcessLookupError):  # waited for, just now
                os.kill(rank.pid, signal.SIGTERM)

    signal.signal(signal.SIGTERM, end)
    for local in range(here):
        place = {"FORK_RANK": first + local, "FORK_LOCAL_RANK": local, "FORK_SIZE": size}
        rank = subprocess.Popen(argv, env={**os.environ, **{k: str(v) for k, v in place.items()}})
        ranks[rank.pid] = rank
    while ranks:
        pid, ended = os.wait()
        ranks.pop(pid)
        if ended and not status:
            status = os.waitstatus_to_exitcode(ended)
            end()
    return status if status >= 0 else 128 - status


class Fork(Launcher):
    """One supervisor per node, whose child is this file."""

    name = "fork"
    help = "one process of each node starts its ranks"
    in_batch_script = False

    def refusal(self, job: Job) -> str | None:
        return "--launcher fork knows nothing of MPI." if job.strategy.mpi else None

    def supervisors(self, job: Job) -> tuple[int, int]:
        return job.nodes, 1

    def slurm_argv(self, job: Job) -> tuple[str, ...]:
        return srun_argv(job, tasks_per_node=1)

    def child(self, task: Task) -> tuple[str, ...]:
        here, all_ranks = task.tasks_per_node, task.nodes * task.tasks_per_node
        first = task_number(os.environ) * here
        numbers = (str(number) for number in (first, here, all_ranks))
        return (sys.executable, "-E", "-P", __file__, *numbers, *rank_argv())

    def variables(self, task: Task) -> RankVariables:
        return RankVariables("fork", "FORK_RANK", "FORK_SIZE", "FORK_LOCAL_RANK")


if __name__ == "__main__":
    sys.exit(start_all(*map(int, sys.argv[1:4]), argv=sys.argv[4:]))
