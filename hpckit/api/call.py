"""`hpckit.call` and `hpckit.map`: a Python function as a job, and as an array of jobs.

The function travels as a pickle (cloudpickle's, which submitit brings) into the run's folder; a
script of hpckit's (`payload/function.py`) calls it there under the environment's Python, and writes
what it returned or raised beside it. For Slurm, and for all commands, it is a run as any other.
"""

from __future__ import annotations

import functools
import inspect
import pickle
import re
import sys
import sysconfig
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, TypeVar, cast

from hpckit.api import log
from hpckit.api.options import Options, job_spec
from hpckit.api.prepare import prepare
from hpckit.api.run import Run, RunList, status_of
from hpckit.api.submit import send
from hpckit.code.project import Source
from hpckit.errors import DamagedRunError, JobError, OutsideError, RequestError, StillRunningError
from hpckit.failures import error_report
from hpckit.paths import here
from hpckit.payload import function as in_job
from hpckit.runs import Run as RunFolder
from hpckit.slurm.states import JobState
from hpckit.submission.model import Submission
from hpckit.submission.retry import retry_after
from hpckit.submission.waiting import over_by_and_by, pauses

Result = TypeVar("Result")
_SCRIPT = str(Path(in_job.__file__).resolve())
_OPTIONS = frozenset(Options.__annotations__) - {"args", "settings", "parallel"}
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
        """The number of its item in a map; 0 for a call alone."""
        return self._folder.task

    def result(self, timeout: float | None = None, *, rank: int = 0) -> Result:
        """Return what the function returned; wait for it.

        Raises what the function raised, with the job's traceback as its cause.

        Args:
            timeout: give up after so many seconds.
            rank: whose result, of a function that ran on several ranks.

        Raises:
            JobError: the job ended without a result (out of memory, time limit, cancelled...), or
                the function could not be loaded in it.
            StillRunningError: it was not over in time. OutsideError: nobody knows what became of
                it. DamagedRunError: the result cannot be read, or others could have written it.
        """
        found = self._outcome(timeout, rank)
        if found.error is not None:
            raise found.error
        return cast("Result", found.value)

    def exception(self, timeout: float | None = None, *, rank: int = 0) -> BaseException | None:
        """Return what the function raised, None if nothing; else as `result`."""
        return self._outcome(timeout, rank).error

    def done(self) -> bool:
        """Say whether there is a result, or the job is over; asks Slurm where there is none.

        Of a job that failed and was submitted again (`retry=`), whether the last of them is.
        """
        last = self._last()
        return last._told(0) or (last.status().finished and last._last() is last)

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
        return path.exists() and not (self._may_follow and _is_error(path))

    def _outcome(self, timeout: float | None, rank: int) -> _Outcome[Result]:
        if rank not in self._outcomes:
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
        status = self.status()
        until = time.monotonic() + (_LATE_S if status.good else 0)
        while not self._path(rank).exists():
            if time.monotonic() > until:
                raise _no_result(self)
            time.sleep(_PAUSE_S)


class Calls(Generic[Result]):
    """The calls of one `hpckit.map`; iterating gives their results, in the order of the items."""

    def __init__(self, calls: Iterable[Call[Result]]) -> None:
        self.calls: list[Call[Result]] = list(calls)

    def __len__(self) -> int:
        return len(self.calls)

    def __iter__(self) -> Iterator[Result]:
        """Yield each result in the order of the items, waiting for it; raises as `Call.result`."""
        return (call.result() for call in self.calls)

    def results(self) -> list[Result]:
        """Return all results in the order of the items; raises as `Call.result`."""
        return list(self)

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
                raise StillRunningError(
                    f"{len(rest)} of {len(self)} calls have no result after {timeout:g} s; "
                    "they continue."
                )
            yield from ended
            rest = [call for call in rest if call not in ended]
            time.sleep(0 if ended else _PAUSE_S)

    @property
    def runs(self) -> RunList:
        """The calls as runs: `wait`, `status`, `cancel` for all at once."""
        return RunList(self.calls)

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


def call(
    function: Callable[..., Result],
    /,
    *args: Any,  # noqa: ANN401  # the function's own
    **options: Any,  # noqa: ANN401  # likewise
) -> Call[Result]:
    """Run `function(*args, **kwargs)` as a job; return at once, with what `result()` waits for.

    Options of `hpckit.submit` (gpus=1, time="2h", env=...) are hpckit's, and all other keywords the
    function's. `strategy` (serial) starts it as one process or, with ddp, on each rank; `runs` is
    the folder of runs.

    Raises:
        RequestError: an option is wrong, or the function or its arguments cannot be pickled.
        OutsideError: Slurm refuses or does not answer.
    """
    asked, kwargs = _split(function, options)
    _refuse_unfit(function, args, kwargs)
    parts = [_pickled((function, args, kwargs))]
    return cast("Call[Result]", _submitted(function, parts, asked)[0])


def map(  # as builtins' and concurrent.futures'
    function: Callable[..., Result],
    iterable: Iterable[Any],
    /,
    *iterables: Iterable[Any],
    parallel: int | None = None,
    **options: Any,  # noqa: ANN401  # the function's own
) -> Calls[Result]:
    """Run a function on each item, as the tasks of one array; `parallel` run at the same time.

    Several iterables give the function an argument each, as the built-in map does. Other keywords
    are those of `hpckit.call`.

    Raises:
        RequestError, OutsideError: as `hpckit.call`.
    """
    asked, kwargs = _split(function, options)
    rows = list(zip(iterable, *iterables, strict=False))
    for row in rows[:1]:
        _refuse_unfit(function, row, kwargs)
    items = [_pickled(row) for row in rows]
    if not items:
        return Calls([])
    asked |= {"array": {"item": range(len(items))}, "parallel": parallel}
    parts = [_pickled((function, (), kwargs)), *items]
    return Calls(cast("Sequence[Call[Result]]", _submitted(function, parts, asked)))


def _split(
    function: Callable[..., object], options: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Tell hpckit's keywords from the function's own.

    Raises:
        RequestError: a name is both's.
    """
    if not callable(function):
        raise RequestError(f"{function!r} is not a function: give it first, then its arguments.")
    ours = _OPTIONS | {"strategy", "runs"}
    asked = {name: value for name, value in options.items() if name in ours}
    names = {*_signature(function).parameters} - {*getattr(function, "keywords", ())}
    if both := [name for name in asked if name in names]:
        raise RequestError(
            f"{_name_of(function)} has a parameter {both[0]!r}, and hpckit an option of this name. "
            f"Give the function's own by functools.partial(function, {both[0]}=...)."
        )
    return asked, {name: value for name, value in options.items() if name not in ours}


def _signature(function: Callable[..., object]) -> inspect.Signature:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):  # some builtins have none
        return inspect.Signature(
            [
                inspect.Parameter("args", inspect.Parameter.VAR_POSITIONAL),
                inspect.Parameter("kwargs", inspect.Parameter.VAR_KEYWORD),
            ]
        )


def _refuse_unfit(function: Callable[..., object], args: Any, kwargs: dict[str, Any]) -> None:  # noqa: ANN401
    """Refuse arguments that the function cannot take, before the job waits in a queue."""
    try:
        _signature(function).bind(*args, **kwargs)
    except TypeError as error:
        raise RequestError(f"{_name_of(function)}: {error}.") from error


def _submitted(
    function: Callable[..., object], parts: Sequence[bytes], asked: dict[str, Any]
) -> list[Call[Any]]:
    runs = asked.pop("runs", None)
    target = asked.pop("strategy", "serial")
    asked.setdefault("name", re.sub(r"\W+", "", _name_of(function)) or "function")
    spec = job_spec(target, asked, program=_SCRIPT)
    root = None if runs is None else Path(runs)
    submission = _with_pickle(prepare(spec, root, tell=log, sources=_sources(function)))
    pickled = submission.place.dir / in_job.FOLDER / in_job.PICKLE
    sent = send(submission, ready=lambda: in_job.write_own(pickled, _header(), parts))
    return cast("list[Call[Any]]", sent)


def _with_pickle(submission: Submission) -> Submission:
    """Give the script its argument, which is known once the run has its folder."""
    path = str(submission.place.dir / in_job.FOLDER / in_job.PICKLE)
    spec, job = submission.spec, submission.job
    return replace(
        submission,
        spec=replace(spec, args=(path,)),
        job=replace(job, command=(*job.command, path)),
    )


def _sources(function: Callable[..., object]) -> list[Source]:
    """Return where the function's project may be: its module's file, the program's, or here."""
    inner = _inner(function)
    names = (getattr(inner, "__module__", None) or type(inner).__module__, "__main__")
    modules = (sys.modules.get(name) for name in names)
    return [*(_source(row) for row in modules if getattr(row, "__file__", None)), Source(here())]


def _source(module: ModuleType | None) -> Source:
    """Return a module's file, and the folder that it is imported from if it is in a package."""
    file = Path(str(getattr(module, "__file__", ""))).resolve()
    # The program has its own name only here, and only if `python -m` started it.
    name = getattr(getattr(module, "__spec__", None), "name", "")
    packages = name.split(".") if file.stem == "__init__" else name.split(".")[:-1]
    inside = bool(packages) and [*file.parent.parts[-len(packages) :]] == packages
    return Source(file, file.parents[len(packages)] if inside else None)


def _inner(function: Callable[..., object]) -> Callable[..., object]:
    """Return what a functools.partial, or one of one, calls."""
    while isinstance(function, functools.partial):
        function = function.func
    return function


def _header() -> dict[str, Any]:
    import cloudpickle  # noqa: PLC0415  # of submitit's

    return {
        "python": in_job.VERSION,
        "path": _own_path(),
        "cloudpickle": str(Path(cloudpickle.__file__).parents[1]),
    }


def _own_path() -> list[str]:
    """Return the folders that the user imports from, as far as they are not the installation's."""
    installed = {str(Path(path).resolve()) for path in sysconfig.get_paths().values()}
    folders = [str(Path(word or ".").resolve()) for word in sys.path]
    # hpckit's own, unless somebody works in it.
    ours = {str(Path(__file__).resolve().parents[2])} - {*folders[:1]}
    return [
        folder
        for folder in dict.fromkeys(folders)
        if folder not in installed | ours
        and not {"site-packages", "dist-packages"} & {*Path(folder).parts}
        and not folder.endswith((".zip", "lib-dynload"))
    ]


def _pickled(value: object) -> bytes:
    import cloudpickle  # noqa: PLC0415  # of submitit's

    # What the program is called in a process that multiprocessing has spawned. The job has no
    # such module: its functions travel themselves, as those of `__main__` do.
    if program := sys.modules.get("__mp_main__"):
        cloudpickle.register_pickle_by_value(program)
    try:
        return cast("bytes", cloudpickle.dumps(value, protocol=4))
    except Exception as error:
        raise RequestError(
            f"The function or its arguments cannot be pickled, which is how they travel into the "
            f"job: {type(error).__name__}: {error}. Open files, locks and connections are made in "
            "the function instead."
        ) from error


def _name_of(function: Callable[..., object]) -> str:
    inner = _inner(function)
    return str(getattr(inner, "__name__", type(inner).__name__))


def _over(calls: list[Call[Result]]) -> list[Call[Result]]:
    """Return those from whom no more is to come, by what Slurm says."""
    last = [call._last() for call in calls]
    return [
        call
        for call, newest, row in zip(calls, last, status_of(last), strict=True)
        if (row.finished or row.elsewhere or row.never_starts) and newest._last() is newest
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
    except (OSError, ValueError, in_job.NotAloneError) as error:
        raise DamagedRunError(f"The result of {run.run_id} cannot be read: {error}") from error
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
        raise OutsideError(
            f"The result of {run.run_id} cannot be loaded here: {type(error).__name__}: {error}. "
            f"What it needs must be installed here too. It is in {run.dir / in_job.FOLDER}."
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
    report = error_report(run._folder, status.ranks, status.state) or status.reason_text or ""
    return JobError(f"Job {run.job_id} is {status.state} and has no result. {report}".rstrip())
