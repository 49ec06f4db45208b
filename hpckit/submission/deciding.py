"""Which supervisor decides whether a job goes on: rank 0's, or one in its place.

Rank 0 may have done its part and left before the others. Then a rank that needs it claims to
decide; all they know of one another stands in `hpckit.stop_marks`.
"""

import os
import time
from pathlib import Path

from hpckit.launchers import find_launcher
from hpckit.payload.task import Task
from hpckit.rank_variables import restart_count, task_number
from hpckit.run_folders.ranks import has_ended
from hpckit.stop_marks import (
    FOLDER,
    LEFT,
    TERMINATED,
    UNDONE,
    add_mark,
    claim_to_decide,
    decide_no_more,
    look_every,
    mark_undone,
    marks,
    marks_of,
    stopped_early,
)

# The pause between two looks whether rank 0's supervisor has left.
_LOOK_S = 0.5


class Decider:
    """Says whether this process decides, and what the ranks of an attempt have said.

    Attributes:
        decides: whether it does.
        ranks: those of the job.
        kept: the file by which who decides learns which checkpoints were there at the start.
    """

    def __init__(self, task: Task) -> None:
        self._folder, self._warned = task.folder, task.warned
        self._attempt = restart_count()
        number = task_number(os.environ)
        self.decides = number == 0
        self._stands_in = False
        # Of the ranks that this process runs, the first one's word counts.
        self._width = 1 if find_launcher(task.launcher).ranks_are_tasks else task.tasks_per_node
        self._first = number * self._width
        self._look_at = 0.0
        self.ranks = task.nodes * task.tasks_per_node
        self.kept: Path = task.folder / FOLDER / f"checkpoints-{self._attempt}"

    def words(self) -> set[str]:
        """Return the words of this process's script."""
        return self._of(self._first)

    def stopped_early(self, code: int) -> bool:
        """Say whether work is left undone; if this process's script left it, all shall know."""
        if stopped_early(self.words(), code):
            if self._first:
                mark_undone(self._folder, self._attempt)
            return True
        # Of another rank of a job, its own supervisor sees to what follows.
        return (self.decides or self._width > 1) and not code and UNDONE in self._of(0)

    def has_saved(self) -> bool:
        """Say whether a script of this process has handled SIGTERM."""
        own = range(self._first, self._first + self._width)
        return any(TERMINATED in self._of(rank) for rank in own)

    def looks_now(self) -> bool:
        """Say whether it is time to look again whether rank 0's supervisor has left."""
        due = time.monotonic() >= self._look_at
        if due:
            self._look_at = time.monotonic() + look_every(_LOOK_S, self.ranks)
        return due

    def claim(self) -> bool:
        """Decide in the place of rank 0's supervisor, if that has left and no other does."""
        if self._first_has_left() and claim_to_decide(self._folder, self._attempt):
            self.decides = self._stands_in = True
            return True
        return False

    def leave(self) -> bool:
        """Leave what follows to the other ranks; say whether one has needed it just before.

        Each rank that needs it says so, then looks for this, and claims to decide.
        """
        if self._warned:
            add_mark(marks_of(self._folder, 0), self._attempt, LEFT)
        if self._stands_in:
            decide_no_more(self._folder, self._attempt)
        return UNDONE in self._of(0) and claim_to_decide(self._folder, self._attempt)

    def _first_has_left(self) -> bool:
        """Say whether rank 0's supervisor decides nothing any more."""
        if self._warned:
            return LEFT in self._of(0)
        return has_ended(self._folder, 0, self._attempt)

    def _of(self, rank: int) -> set[str]:
        return marks(marks_of(self._folder, rank), self._attempt)
