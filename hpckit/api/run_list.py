"""Several runs as Python programs hold them: asked for at once, waited for, submitted again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Self, SupportsIndex, overload

from hpckit.api.run import Run
from hpckit.job_spec.arguments import each_a
from hpckit.run_folders.runs import DamagedRun

if TYPE_CHECKING:
    from typing import Unpack

    from hpckit.api.job_stats import StatsList
    from hpckit.api.options import Options
    from hpckit.submission.status import RunStatus

# What became of runs is not loaded to submit one: it is imported where it is asked for.


class RunList(list[Run]):
    """Several runs; all of them are asked for at once.

    Attributes:
        damaged: folders that were met on the way and cannot be read, each with its `error`.
        read: when which run was asked for last, for `status_in_turn`.
    """

    def __init__(self, runs: Iterable[Run] = (), damaged: Sequence[DamagedRun] = ()) -> None:
        super().__init__(each_a(Run, runs, "runs", "hpckit.find(ID) returns that of a job"))
        self.damaged = tuple(damaged)
        self.read: tuple[float, Run] | None = None
        for run in self:
            if run._beside is None:
                run._beside = self

    def status(self) -> list[RunStatus]:
        """Return what became of each."""
        from hpckit.api.run_status import status_of  # noqa: PLC0415  # as above

        return status_of(self, in_full=True)

    def wait(self, timeout: float | None = None) -> Self:
        """Wait until all are over, as `Run.wait`."""
        from hpckit.api.run_status import wait  # noqa: PLC0415  # as above

        wait(self, timeout)
        return self

    def stats(self) -> StatsList:
        """Return how each used its GPUs, cores and memory, and how they are spread."""
        from hpckit.api.stats import stats_of_runs  # noqa: PLC0415  # as above

        return stats_of_runs([run._folder for run in self])

    def resubmit_failed(
        self, *, wait: bool = False, runs: Path | str | None = None, unset: Sequence[str] = (),
        right_size: bool = False, same_code: bool = False, **changes: Unpack[Options],
    ) -> RunList:  # fmt: skip
        """Submit the tasks of this array that failed again, as an array of these alone.

        They have the values that they had; the other words are those of `Run.resubmit`. Tasks that
        are not over, or of which nobody knows, are left alone. What is done goes to the log.

        Raises:
            RequestError: none failed, these are not tasks of one array, or the request is wrong.
            OutsideError: Slurm refuses or does not answer.
        """
        from hpckit.api.submit import resubmit_failed  # noqa: PLC0415  # it imports this module

        return resubmit_failed(
            self,
            wait=wait,
            runs=runs,
            unset=unset,
            right_size=right_size,
            same_code=same_code,
            **changes,
        )

    def cancel(self) -> Self:
        """End all of them, as `Run.cancel`."""
        from hpckit.api.cancel import cancel  # noqa: PLC0415  # as above

        cancel(self)
        return self

    @overload
    def __getitem__(self, index: SupportsIndex, /) -> Run: ...
    @overload
    def __getitem__(self, index: slice, /) -> RunList: ...
    def __getitem__(self, index: SupportsIndex | slice, /) -> Run | RunList:
        """Return one run, or a part of the list, which is one too."""
        found = super().__getitem__(index)
        return RunList(found) if isinstance(found, list) else found

    def _repr_html_(self) -> str:
        from hpckit.api.run_status import run_table  # noqa: PLC0415  # as above

        return run_table(self.status())
