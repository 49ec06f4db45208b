"""What a rank does whose node has no GPU driver, in a job of several nodes: look at the others.

If another node has one, ranks with a GPU and ranks without would wait for one another, the ones
over NCCL and the others over gloo, until a time limit of torch's. A job of which no node has a
driver runs on CPUs, and `RunStatus.notes` says so.
"""

import time

from hpckit.payload.task import Task
from hpckit.rank_variables import RankPlacement, restart_count
from hpckit.run_folders.ranks import RankRecord, read_attempt

_EVERY_S = 1.0


class OtherNodes:
    """The first ranks of the other nodes, as far as they have begun."""

    def __init__(self, task: Task, place: RankPlacement) -> None:
        self._folder = task.folder
        per_node = task.tasks_per_node
        self._left = [node * per_node for node in range(task.nodes) if node != place.node_rank]
        self._due = time.monotonic()

    def with_gpu(self) -> RankRecord | None:
        """Return a rank of another node that has a GPU, once it is known; to be asked often."""
        if not self._left or time.monotonic() < self._due:
            return None
        self._due = time.monotonic() + _EVERY_S
        rows = ((rank, read_attempt(self._folder, rank, restart_count())) for rank in self._left)
        begun = {rank: row for rank, row in rows if row is not None}
        self._left = [rank for rank in self._left if rank not in begun]
        return next((row for row in begun.values() if row.device == "cuda"), None)
