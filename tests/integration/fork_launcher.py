"""A launcher in a package of its own: on each node a bash starts the node's ranks side by side.

It is here for the tests, and to be read: this is all that a launcher needs.
"""

from hpckit.job.job import Job
from hpckit.launchers import Launcher, rank_argv
from hpckit.launchers.srun import srun_argv
from hpckit.payload.task import Task
from hpckit.rank_variables import RankVariables

# One rank's failure, or SIGTERM, ends the others; the status is that of the first to fail.
_LOOP = """
trap 'kill $(jobs -p)' TERM
node=${SLURM_PROCID:-$SUBMITIT_LOCAL_GLOBALID} left=$1 status=0
for ((i = 0; i < $1; i++)); do
  FORK_RANK=$((node * $1 + i)) FORK_LOCAL_RANK=$i FORK_SIZE=$2 "${@:3}" &
done
while ((left)); do
  wait -n -p ended
  code=$?
  [[ $ended ]] || continue
  ((left--))
  ((code && !status)) && { status=$code; kill $(jobs -pr); }
done
exit $status
"""


class Fork(Launcher):
    """One supervisor per node, whose child is that bash."""

    name = "fork"
    help = "bash starts the ranks of each node"
    in_batch_script = False

    def refusal(self, job: Job) -> str | None:
        return "--launcher fork knows nothing of MPI." if job.strategy.mpi else None

    def supervisors(self, job: Job) -> tuple[int, int]:
        return job.nodes, 1

    def slurm_argv(self, job: Job) -> tuple[str, ...]:
        return srun_argv(job, tasks_per_node=1)

    def child(self, task: Task) -> tuple[str, ...]:
        here, all_ranks = task.tasks_per_node, task.nodes * task.tasks_per_node
        return ("bash", "-c", _LOOP, "fork", str(here), str(all_ranks), *rank_argv())

    def variables(self, task: Task) -> RankVariables:
        return RankVariables("fork", "FORK_RANK", "FORK_SIZE", "FORK_LOCAL_RANK")
