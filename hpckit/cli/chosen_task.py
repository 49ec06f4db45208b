"""Which task of an array `hpckit logs` is about, and what it says of the others."""

from collections.abc import Sequence
from dataclasses import dataclass

from hpckit import Run, RunList, RunStatus
from hpckit.api.array_tasks import has_failed, task_to_show
from hpckit.cli.view import counted_states, given
from hpckit.text import counted, listed

# So many other tasks are named.
_NAMED = 6


@dataclass(frozen=True, kw_only=True, slots=True)
class Chosen:
    """A task of an array, among all of them."""

    run: Run
    status: RunStatus
    every: Sequence[RunStatus]

    @property
    def failed(self) -> bool:
        """Whether it ended badly, or one of its ranks did."""
        return has_failed(self.status)

    @property
    def heading(self) -> str:
        """Which task it is, and how to see another."""
        row, bad = self.status, sum(map(has_failed, self.every))
        which = f"Log of task {row.run.job_id}{given(row.run.parameters)}, which is {row.state}"
        among = f"one of {len(self.every)} tasks of array {self._array}"
        failed = f", of which {bad} failed" if bad else ""
        return f"{which}: {among}{failed}. Another: hpckit logs {self._next}"

    @property
    def nothing_failed(self) -> str:
        """That there is no error, and what became of the tasks."""
        return f"No task of array {self._array} has failed: {counted_states(self.every)}."

    @property
    def others(self) -> str:
        """Which other tasks failed, and what to do with them; "" if none did."""
        rows = self._others
        if not rows:
            return ""
        names = listed([f"{row.run.job_id} {row.state}" for row in rows], _NAMED)
        return (
            f"{counted(len(rows), 'other task')} of array {self._array} failed: {names}. Why: "
            f"hpckit logs {rows[0].run.job_id} --errors. All tasks: hpckit status {self._array}. "
            f"Submit the failed ones again: hpckit resubmit {self._array} --failed"
        )

    @property
    def _others(self) -> list[RunStatus]:
        return [row for row in self.every if row is not self.status and has_failed(row)]

    @property
    def _array(self) -> str:
        return str(self.status.run.whole)

    @property
    def _next(self) -> str:
        other = (row for row in self.every if row is not self.status)
        return [*self._others, *other][0].run.job_id


def chosen_task(found: RunList, *, following: bool = False) -> Chosen:
    """Return the task that people mean who name an array."""
    every = found.status()
    status = task_to_show(every, following=following)
    run = next(row for row in found if row.dir == status.run.dir)
    return Chosen(run=run, status=status, every=every)
