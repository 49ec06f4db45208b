"""A run as Python programs hold it: what became of it, what it wrote, and what to do with it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from hpckit.errors import DamagedRunError, RequestError
from hpckit.job_spec.arguments import FUNCTION, Kind, checked, maybe, shown
from hpckit.run_folders.run_record import is_function_call
from hpckit.run_folders.runs import Run as RunFolder
from hpckit.slurm.states import JobState
from hpckit.text import in_line
from hpckit.values import Count

if TYPE_CHECKING:
    from typing import Unpack

    from hpckit.api.code import RunCode
    from hpckit.api.job_stats import JobStats
    from hpckit.api.options import Options
    from hpckit.api.resubmit import Again
    from hpckit.api.run_list import RunList
    from hpckit.run_folders.metrics import Progress
    from hpckit.run_folders.ranks import RankRecord
    from hpckit.submission.status import RunStatus

# What became of runs is not loaded to submit one: it is imported where it is asked for.
_STATUS = Kind("what status() of a run returned", lambda given: hasattr(given, "never_started"))


class Run:
    """One job that hpckit submitted, or one task of an array.

    `state`, `ranks` and `exit_code` ask Slurm each time they are read, until the job is over;
    `status()` asks once for all. A loop over a `RunList` is one question for up to 500 runs.
    """

    def __init__(self, folder: RunFolder) -> None:
        if not isinstance(folder, RunFolder):
            raise RequestError(
                f"{shown(folder, 'folder')} is not what a Run is made of: hpckit.find(ID) returns "
                "the run of a job's id, or of its folder."
            )
        self._folder = folder
        self._ended: RunStatus | None = None
        # For `status_in_turn`: the list it is in, and what was said of it beside another, and when.
        self._beside: RunList | None = None
        self._answer: tuple[float, RunStatus] | None = None
        # What was known of it when its nodes were looked at last.
        self._looked_at: tuple[JobState, int | None] | None = None

    @property
    def job_id(self) -> str:
        """Slurm's id of the job (`123_4` for an array task), or the local run's."""
        return self._folder.job_id

    @property
    def run_id(self) -> str:
        """The name of its folder."""
        return self._folder.run_id

    @property
    def dir(self) -> Path:
        """Its folder."""
        return self._folder.dir

    @property
    def array_job_id(self) -> str | None:
        """The array's own id, for a task of an array."""
        return self._folder.array_job_id

    @property
    def chain(self) -> tuple[str, ...]:
        """The ids of all jobs of a chain, in order; empty for a run of one job."""
        return self._folder.jobs if len(self._folder.jobs) > 1 else ()

    @property
    def name(self) -> str:
        """The job's name."""
        return str(self._folder.record["name"])

    @property
    def submitted_at(self) -> float:
        """When it was submitted, in epoch seconds."""
        return self._folder.submitted_at

    @property
    def names(self) -> tuple[str, ...]:
        """What this run alone is called: by Slurm, by its folder, and as a task of its array."""
        return self._folder.names

    @property
    def parameters(self) -> dict[str, str]:
        """What a task of an array alone was given, as its program gets it; empty for other runs."""
        return self._folder.parameters

    @property
    def mine(self) -> bool:
        """Whether you, and nobody else, can have written what it says."""
        return self._folder.mine

    @property
    def owner(self) -> str:
        """Whose folder it is."""
        return self._folder.owner

    @property
    def doubt(self) -> str:
        """Why others can have written what it says; "" if they cannot."""
        return self._folder.doubt

    @property
    def state(self) -> JobState:
        """Its state in Slurm's words: `run.state == "COMPLETED"`."""
        return self.status().state

    @property
    def ranks(self) -> tuple[RankRecord, ...]:
        """What each rank of the last attempt did: rank, host, exit code, error."""
        return self.status().ranks

    @property
    def exit_code(self) -> int | None:
        """How it ended: the exit status of the rank that failed first, else 0; None: not yet."""
        return self.status().exit_code

    def status(self) -> RunStatus:
        """Return what became of it, why it waits, where it runs."""
        from hpckit.api.run_status import status_in_turn  # noqa: PLC0415  # it imports this module

        return status_in_turn(self)

    def wait(self, timeout: float | None = None) -> Self:
        """Wait until it is over, or can never start; how it ended is then its `state`.

        If it failed and is tried again (`retry=`), that is waited for, too; its state, ranks and
        logs stay its own. `status().document()["resubmitted_as"]` is the new job's id.

        Raises:
            StillRunningError: `timeout` seconds have passed; the job goes on.
        """
        from hpckit.api.run_status import wait  # noqa: PLC0415  # as above

        wait([self], timeout)
        return self

    @checked(rank=Count | None, every=bool, follow=bool, look=maybe(FUNCTION))
    def pieces(
        self,
        rank: int | None = None,
        *,
        every: bool = False,
        follow: bool = False,
        look: Callable[[list[RunStatus]], None] | None = None,
    ) -> Iterator[tuple[Path, str]]:
        """Yield what a rank wrote in pieces, each with its file; for None as `logs()`.

        `follow` goes on until the job is over, and with the job that tries it again (`--retry`);
        `look` sees what Slurm says of it meanwhile.

        Raises:
            NotFoundError: there is no such rank, or its folder is gone. DamagedRunError: at the
            end: a log cannot be read.
        """
        from hpckit.run_folders.logs import log_files, read_all  # noqa: PLC0415  # lists of runs read none

        self._folder.need_folder()
        damaged: list[str] = []
        if follow:
            yield from self._followed(rank, every, look, damaged)
        else:
            yield from read_all(log_files(self._folder, rank, every=every), damaged)
        if damaged:
            raise DamagedRunError(
                f"Some logs of {self.run_id} cannot be read: {'; '.join(damaged)}."
            )

    def _followed(
        self,
        rank: int | None,
        every: bool,
        look: Callable[[list[RunStatus]], None] | None,
        damaged: list[str],
    ) -> Iterator[tuple[Path, str]]:
        from hpckit.run_folders.logs import follow, log_files  # noqa: PLC0415  # as above
        from hpckit.submission.waiting import over_by_and_by  # noqa: PLC0415  # it asks Slurm

        for folder in _and_retries(self._folder):
            files = partial(log_files, folder, rank, every=every)
            yield from follow(files, over_by_and_by([folder], look), damaged)

    @checked(rank=Count, every=bool)
    def logs(self, rank: int = 0, *, every: bool = False) -> str:
        """Return what a rank wrote; of rank 0 that wrote nothing, what the job script did.

        `every` returns the logs of the job script and of all ranks, one after the other.

        Raises:
            NotFoundError: there is no such rank, or its folder is gone. DamagedRunError: a log
            cannot be read.
        """
        return "".join(piece for _, piece in self.pieces(rank or None, every=every))

    @checked(status=maybe(_STATUS))
    def errors(self, status: RunStatus | None = None) -> str:
        """Return why it failed, with the first traceback, its rank and host; "" if none failed.

        `status` is for who has asked for it just now.
        """
        status = status or self.status()
        if status.good:
            return ""
        if status.never_started:
            why = f". {status.reason_text}" if status.reason_text else ""
            return f"the job never started: it is {status.state}{why}"
        from hpckit.job_ends.failures import error_report  # noqa: PLC0415  # lists of runs ask no reasons

        self._folder.need_folder()
        return error_report(self._folder, status.ranks, status.state)

    @checked(every_attempt=bool)
    def metrics(self, *, every_attempt: bool = False) -> list[dict[str, Any]]:
        """Return what the script logged, a row per step: step, epoch, loss, samples_per_s...

        An attempt that goes on from a checkpoint takes steps again that an earlier one had logged.
        Each step is there once, as it was logged last; with `every_attempt` all rows of the file
        are, in which `restart` is the attempt's number. Of a run of one attempt all rows count.

        Raises:
            DamagedRunError: the file is not one. NotFoundError: the run's folder is gone.
        """
        from hpckit.run_folders.metrics import METRICS, all_rows, counted_rows  # noqa: PLC0415
        from hpckit.run_folders.ranks import began_once  # noqa: PLC0415

        self._folder.need_folder()
        rows = all_rows(self.dir / METRICS)
        return rows if every_attempt else counted_rows(rows, once=began_once(self.dir))

    def progress(self) -> Progress | None:
        """Return how far the script is: step, epoch, loss, seconds left; None: nothing is logged.

        Raises:
            DamagedRunError: the file is not one. NotFoundError: the run's folder is gone.
        """
        from hpckit.run_folders.metrics import progress_of  # noqa: PLC0415

        self._folder.need_folder()
        return progress_of(self.dir, self.submitted_at)

    def stats(self) -> JobStats:
        """Return how it used its GPUs, cores and memory, and what to change.

        Raises:
            OutsideError: Slurm does not answer.
        """
        from hpckit.api.stats import stats_of_runs  # noqa: PLC0415  # a third of hpckit

        return stats_of_runs([self._folder])[0]

    @property
    def code(self) -> RunCode:
        """The copy of the code that it runs: its `difference()` from now, `restore(folder)`.

        Raises:
            RequestError: it has none. OutsideError: it cannot be read.
        """
        from hpckit.api.code import code_of  # noqa: PLC0415  # seldom asked for

        return code_of(self._folder)

    def cancel(self) -> Self:
        """End it, or remove it from the queue; a job that is over stays as it was.

        Raises:
            RequestError: it is somebody else's. OutsideError: Slurm does not answer.
        """
        from hpckit.api.cancel import cancel  # noqa: PLC0415  # it imports this module

        cancel([self])
        return self

    def resubmit(
        self,
        *,
        wait: bool = False,
        runs: Path | str | None = None,
        unset: Sequence[str] = (),
        right_size: bool = False,
        same_code: bool = False,
        **changes: Unpack[Options],
    ) -> Run:
        """Submit its request again, with options changed, from the folder it was submitted from.

        `unset` are words of options of which what was asked is forgotten. `right_size` asks for
        the time, memory, cores and GPUs that the last runs of the kind used; `changes` win.
        `same_code` runs the code that this run has, and not what the project holds now.

        Raises:
            RequestError: the request is wrong. OutsideError: Slurm refuses or does not answer.
        """
        from hpckit.api.submit import resubmit  # noqa: PLC0415  # it imports this module

        return resubmit(
            self,
            wait=wait,
            runs=runs,
            unset=unset,
            right_size=right_size,
            same_code=same_code,
            **changes,
        )

    def preview(
        self,
        *,
        runs: Path | str | None = None,
        unset: Sequence[str] = (),
        right_size: bool = False,
        same_code: bool = False,
        **changes: Unpack[Options],
    ) -> Again:
        """Return what `resubmit` would submit: its `script`, and its `differences` from this run.

        It needs no Slurm, but where accounting has what `right_size` asks for; the `check` of what
        it returns asks one.

        Raises:
            RequestError: the request is wrong.
        """
        from hpckit.api.submit import preview  # noqa: PLC0415  # it imports this module

        return preview(
            self, runs=runs, unset=unset, right_size=right_size, same_code=same_code, **changes
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Run) and self._real == other._real

    def __hash__(self) -> int:
        return hash(self._real)

    @cached_property
    def _real(self) -> str:
        """Its folder, whatever links lead to it."""
        return os.path.realpath(self.dir)

    def __fspath__(self) -> str:
        """Its folder: a run may stand where a path may, as in `Path(run) / "checkpoints"`."""
        return str(self.dir)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_beside": None, "_answer": None}

    def __repr__(self) -> str:
        return in_line(f"{type(self).__name__}({self.job_id!r}, {self.name!r}, {str(self.dir)!r})")

    def _repr_html_(self) -> str:
        from hpckit.api.run_status import run_table  # noqa: PLC0415  # as above

        return run_table([self.status()])


def _and_retries(folder: RunFolder) -> Iterator[RunFolder]:
    """Yield a run, and then each that has tried the one before again, once it is asked for."""
    from hpckit.submission.retry import retry_after  # noqa: PLC0415  # few runs have rules

    found: RunFolder | None = folder
    while found is not None:
        yield found
        found = retry_after(found) if found.record["request"].get("retry") else None


def handle(folder: RunFolder) -> Run:
    """Return what Python programs hold of a run: a `Call`, where the run is that of a function."""
    if is_function_call(folder.record):
        from hpckit.api.call_result import Call  # noqa: PLC0415  # it imports this module

        return Call(folder)
    return Run(folder)
