"""What `hpckit.call` and `hpckit.map` return: a function that runs as a job, and its result."""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, SupportsIndex, TypeVar, cast, overload

from hpckit.api.run import Run
from hpckit.api.run_list import RunList
from hpckit.api.run_status import status_of
from hpckit.errors import DamagedRunError, JobError, OutsideError, RequestError, StillRunningError
from hpckit.job_ends.failures import error_report
from hpckit.job_spec.arguments import checked, each_a
from hpckit.paths import is_there
from hpckit.payload import function as in_job
from hpckit.run_folders.logs import need_rank
from hpckit.run_folders.runs import Run as RunFolder
from hpckit.slurm.states import JobState
from hpckit.submission.retry import retry_after
from hpckit.submission.waiting import over_by_and_by, pauses
from hpckit.text import counted
from hpckit.values import Count, Seconds

Result = TypeVar("Result")
_PAUSE_S = 0.2
# A result may come late from a node's cache of a shared disk.
_LATE_S = 10.0


class RemoteTraceback(Exception):  # noqa: N818  # it is shown, not raised
    """The traceback of an exception as it was in the job; the cause of what `result` raises."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f'\n"""\n{self.text}"""'


@dataclass(frozen=True, kw_only=True, slots=True)
class _Outcome(Generic[Result]):
    value: Result | None = None
    error: BaseException | None = None


class Call(Run, Generic[Result]):
    """A function that runs, or ran, as a job."""

    def __init__(self, folder: RunFolder) -> None:
        super().__init__(folder)
        self._outcomes: dict[int, _Outcome[Result]] = {}

    @property
    def index(self) -> int:
        """The number of its item in its map, also when it runs again; 0 for a call alone."""
        # Among the tasks of an array of failed ones, or as a job of its own, it has another.
        *_, flag, number = self._folder.record["command"]
        return int(number) if flag == "--item" and number.isdecimal() else 0

    @checked(timeout=Seconds | None, rank=Count)
    def result(self, timeout: float | None = None, *, rank: int = 0) -> Result:
        """Return what the function returned; wait for it.

        Raises what the function raised, with the job's traceback as its cause.

        Args:
            timeout: give up after so many seconds.
            rank: whose result, of a function that ran on several ranks.

        Raises:
            NotFoundError: the job has no such rank, or its folder is gone.
            JobError: the job ended without a result (out of memory, time limit, cancelled,
                sys.exit...), or the function could not be loaded in it.
            RequestError: it is somebody else's.
            StillRunningError: it was not over in time. OutsideError: nobody knows what became of
                it. DamagedRunError: the result cannot be read, or others could have written it.
        """
        found = self._outcome(timeout, rank)
        if found.error is None:
            return cast("Result", found.value)
        if isinstance(found.error, Exception):
            raise found.error
        # It would end the program that asks, with the status of the job's.
        raise JobError(
            f"Job {self.job_id}: the function ended with {found.error!r} and returned nothing."
        ) from found.error

    @checked(timeout=Seconds | None, rank=Count)
    def exception(self, timeout: float | None = None, *, rank: int = 0) -> BaseException | None:
        """Return what the function raised, None if nothing; else as `result`."""
        return self._outcome(timeout, rank).error

    def done(self) -> bool:
        """Say whether `result` would wait no longer; asks Slurm where there is no result.

        So it is where the job is over, or can never start. Of a job that failed and was submitted
        again (`retry=`), the last of them counts.
        """
        last = self._last()
        return last._told(0) or (last.status().nothing_to_come and last._last() is last)

    def _last(self) -> Call[Result]:
        """Return the call that tries this one again, if it failed; else this one."""
        call = self
        while call._may_follow and (after := retry_after(call._folder)):
            call = Call(after)
        return call

    @property
    def _may_follow(self) -> bool:
        return bool(self._folder.record["request"].get("retry"))

    def _told(self, rank: int) -> bool:
        """Say whether there is a result that stays: of a job that may be tried again, no error."""
        path = self._path(rank)
        return is_there(path) and not (self._may_follow and _is_error(path))

    def _outcome(self, timeout: float | None, rank: int) -> _Outcome[Result]:
        if rank not in self._outcomes:
            need_rank(self._folder, rank)
            if not (self.mine or self.doubt):
                raise RequestError(
                    f"Run {self.run_id} belongs to {self.owner}: a result runs code when it is "
                    "loaded, so its owner alone loads it. Logs and statistics can be read."
                )
            until = float("inf") if timeout is None else time.monotonic() + timeout
            call, last = None, self._last()
            while call is not last:  # the end of one may bring another
                call = last
                call._await(until, timeout, rank)
                last = call._last()
            self._outcomes[rank] = read_outcome(call, call._path(rank))
        return self._outcomes[rank]

    def _path(self, rank: int) -> Path:
        return self.dir / in_job.FOLDER / in_job.result_name(rank)

    def _await(self, until: float, timeout: float | None, rank: int) -> None:
        """Wait for the file of a result, or for the end of a job that is tried again.

        Raises:
            JobError: the job is over, and there is none. StillRunningError: it is not.
        """
        over = over_by_and_by([self._folder])
        while not self._told(rank):
            if over():
                if self._last() is self:
                    self._await_late(rank)
                return
            if time.monotonic() > until:
                raise StillRunningError(
                    f"Job {self.job_id} has no result after {timeout:g} s; it continues."
                )
            time.sleep(_PAUSE_S)

    def _await_late(self, rank: int) -> None:
        """Wait a little for the result of a job that is over, if it ended well."""
        self._folder.need_folder()
        status = self.status()
        until = time.monotonic() + (_LATE_S if status.good else 0)
        while not is_there(self._path(rank)):
            if time.monotonic() > until:
                raise _no_result(self)
            time.sleep(_PAUSE_S)


class Calls(Generic[Result]):
    """The calls of one `hpckit.map`; iterating gives their results, in the order of the items."""

    def __init__(self, calls: Iterable[Call[Result]]) -> None:
        rows = each_a(Run, calls, "calls", "hpckit.call returns one")
        self.calls = cast("list[Call[Result]]", rows)

    def __len__(self) -> int:
        return len(self.calls)

    def __iter__(self) -> Iterator[Result]:
        """Yield each result in the order of the items, waiting for it; raises as `Call.result`."""
        return (call.result() for call in self.calls)

    @overload
    def __getitem__(self, index: SupportsIndex, /) -> Result: ...
    @overload
    def __getitem__(self, index: slice, /) -> list[Result]: ...
    def __getitem__(self, index: SupportsIndex | slice, /) -> Result | list[Result]:
        """Return the result of one item, or of some, waiting for it; raises as `Call.result`."""
        found = self.calls[index]
        return [call.result() for call in found] if isinstance(found, list) else found.result()

    def results(self) -> list[Result]:
        """Return all results in the order of the items; raises as `Call.result`."""
        return list(self)

    @checked(timeout=Seconds | None)
    def as_completed(self, timeout: float | None = None) -> Iterator[Call[Result]]:
        """Yield the calls as they end, well or not.

        Raises:
            StillRunningError: some were not over after `timeout` seconds.
        """
        until = float("inf") if timeout is None else time.monotonic() + timeout
        waits, due = pauses([call._folder for call in self.calls]), 0.0
        rest = list(self.calls)
        while rest:
            ended = [call for call in rest if call._last()._told(0)]
            if not ended and time.monotonic() >= due:
                # Slurm is asked for all of them together, and ever more seldom.
                ended, due = _over(rest), time.monotonic() + next(waits)
            if not ended and time.monotonic() > until:
                what, they = (
                    ("has", "it continues") if len(rest) == 1 else ("have", "they continue")
                )
                raise StillRunningError(
                    f"{len(rest)} of {counted(len(self), 'call')} {what} no result after "
                    f"{timeout:g} s; {they}."
                )
            yield from ended
            rest = [call for call in rest if call not in ended]
            time.sleep(0 if ended else _PAUSE_S)

    @property
    def runs(self) -> RunList:
        """The calls as runs: `wait`, `status`, `cancel` for all at once."""
        return RunList(self.calls)

    @checked(timeout=Seconds | None)
    def wait(self, timeout: float | None = None) -> Calls[Result]:
        """Wait until all jobs are over, as `Run.wait`."""
        self.runs.wait(timeout)
        return self

    def cancel(self) -> Calls[Result]:
        """End all of them, as `Run.cancel`."""
        self.runs.cancel()
        return self

    def __repr__(self) -> str:
        return f"Calls({self.calls!r})"

    def _repr_html_(self) -> str:
        return self.runs._repr_html_()


def _over(calls: list[Call[Result]]) -> list[Call[Result]]:
    """Return those from whom no more is to come, by what Slurm says."""
    last = [call._last() for call in calls]
    return [
        call
        for call, newest, row in zip(calls, last, status_of(last), strict=True)
        if row.nothing_to_come and newest._last() is newest
    ]


def read_outcome(run: Run, path: Path) -> _Outcome[Any]:
    """Read what a function returned or raised.

    Raises:
        JobError: it could not be called. DamagedRunError: the file cannot be read or believed.
    """
    try:
        with in_job.open_own(path) as file:
            header = in_job.read_header(file)
            rest = file.read()
            if len(rest) < (whole := sum(header.get("sizes", ()))):
                raise ValueError(f"{path} is not whole: {len(rest)} of {whole} bytes")
    except (OSError, ValueError, in_job.NotAloneError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise DamagedRunError(f"The result of {run.run_id} cannot be read: {why}") from error
    match header.get("outcome"):
        case "refused":
            raise JobError(f"Job {run.job_id}: {header['message']}")
        case "value":
            return _Outcome(value=_loaded(run, rest))
        case "error":
            return _Outcome(error=_error(run, header, rest))
    raise DamagedRunError(f"The result of {run.run_id} cannot be read: {path} is not one.")


def _is_error(path: Path) -> bool:
    """Say whether a file is what a function raised; what is wrong with it is told on reading."""
    try:
        with in_job.open_own(path) as file:
            return in_job.read_header(file).get("outcome") == "error"
    except (OSError, ValueError, in_job.NotAloneError):
        return False


def _loaded(run: Run, pickled: bytes) -> Any:  # noqa: ANN401  # what the function returned
    try:
        return pickle.loads(pickled)  # noqa: S301  # open_own has looked who could have written it
    except Exception as error:
        todo = "What it needs must be installed here too."
        if isinstance(error, AttributeError) and "__dict__" in str(error):
            todo = (
                "A class with __slots__ travels back only from a module: cloudpickle makes one of "
                "your program or notebook anew in the job, without them."
            )
        raise OutsideError(
            f"The result of {run.run_id} cannot be loaded here: {type(error).__name__}: {error}. "
            f"{todo} It is in {run.dir / in_job.FOLDER}."
        ) from error


def _error(run: Run, header: dict[str, Any], pickled: bytes) -> BaseException:
    try:
        error = in_job.error_of(pickle.loads(pickled))  # noqa: S301  # as above
    except Exception:  # noqa: BLE001  # its class is not here, or it was not pickled at all
        error = JobError(f"Job {run.job_id}: {header['type']}: {header['message']}")
    error.__cause__ = RemoteTraceback(header["traceback"])
    return error


def _no_result(run: Run) -> JobError | OutsideError:
    """Return the error of a job that left no result."""
    status = run.status()
    if status.never_starts:
        return JobError(f"Job {run.job_id} can never start: {status.reason_text}")
    if not status.finished:
        return OutsideError(f"Job {run.job_id} is {status.state}: {status.reason_text}")
    if status.state is JobState.COMPLETED:
        return JobError(f"Job {run.job_id} is COMPLETED, but its result is not in {run.dir}.")
    if status.never_started:
        why = f" {status.reason_text}" if status.reason_text else ""
        return JobError(f"Job {run.job_id} is {status.state}: it never started.{why}")
    report = error_report(run._folder, status.ranks, status.state) or status.reason_text or ""
    return JobError(f"Job {run.job_id} is {status.state} and has no result. {report}".rstrip())
