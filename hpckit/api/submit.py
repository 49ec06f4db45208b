"""`hpckit.submit` and `Run.resubmit`: the command line's words, typed."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, TypedDict, Unpack, overload

from hpckit.api.lookup import settle_cut_short
from hpckit.api.run import Run, RunList, handle, log
from hpckit.errors import RequestError
from hpckit.job.program import typed_program
from hpckit.runs import Run as RunFolder
from hpckit.spec import JobSpec, option_values
from hpckit.submission.model import Submission
from hpckit.submission.prepare import prepare
from hpckit.submission.resubmit import asked_again
from hpckit.submission.submit import submit as submit_job


class Options(TypedDict, total=False):
    """The options of `hpckit submit` by their words; None means: not asked.

    `gpus` (per node) is a number, or "A100:4"; `time` minutes, "1h30m" or a timedelta; `settings`
    a workload's parameters by name (`--set`); `sbatch` other options of sbatch; `after` jobs' ids,
    or runs.
    """

    args: Sequence[object]
    settings: Mapping[str, object] | Sequence[str]
    zip: bool
    parallel: int | None
    nodes: int | None
    gpus: int | str | None
    tasks_per_node: int | None
    cpus_per_task: int | None
    mem_gb: int | None
    time: int | str | timedelta | None
    site: str | None
    partition: str | None
    account: str | None
    qos: str | None
    constraint: str | None
    reservation: str | None
    exclude: str | None
    sbatch: Mapping[str, object] | Sequence[str]
    template: str
    env: str | os.PathLike[str] | None
    launcher: str | None
    executor: str
    name: str | None
    after: str | int | Run | Sequence[str | int | Run]
    max_requeues: int
    sample_interval: float
    skip_check: Sequence[str]


@overload
def submit(
    target: str,
    program: str | os.PathLike[str] | None = None,
    *,
    module: str | None = None,
    array: Mapping[str, Sequence[object]],
    wait: bool = False,
    runs: Path | str | None = None,
    **options: Unpack[Options],
) -> RunList: ...
@overload
def submit(
    target: str,
    program: str | os.PathLike[str] | None = None,
    *,
    module: str | None = None,
    array: None = None,
    wait: bool = False,
    runs: Path | str | None = None,
    **options: Unpack[Options],
) -> Run: ...
def submit(
    target: str,
    program: str | os.PathLike[str] | None = None,
    *,
    module: str | None = None,
    array: Mapping[str, Sequence[object]] | None = None,
    wait: bool = False,
    runs: Path | str | None = None,
    **options: Unpack[Options],
) -> Run | RunList:
    """Submit a workload, or your own program under a strategy, as one job or an array.

    Args:
        target: a workload's name; or with a program serial, dp, ddp, mirrored or mpi.
        program: your own: a Python file, an executable, a script of another language, or a word
            that the environment provides.
        module: instead of a program, a module of Python's, as of `python -m`.
        array: option -> values; a run for each combination, in a `RunList`.
        wait: return when the job is over.
        runs: where runs live (else $HPCKIT_RUNS, the site's, ./runs).
        **options: those of `hpckit submit`: nodes=2, gpus=4, args=["--lr", 0.1]...

    Raises:
        RequestError: the request is wrong. OutsideError: Slurm refuses or does not answer.
    """
    asked = dict(options) | ({"array": array} if array else {})
    spec = job_spec(target, asked, program=program, module=module)
    submission = prepare(spec, _folder(runs), tell=log)
    sent = RunList(handle(run) for run in send(submission))
    if wait:
        sent.wait()
    return sent if array else sent[0]


def send(
    submission: Submission,
    *,
    tell: Callable[[str], None] = log,
    ready: Callable[[], None] = lambda: None,
) -> list[RunFolder]:
    """Hand a submission over, after those that were cut short; return one run per task.

    `ready` is called before it is handed over, once its folder is there; `tell` hears what takes
    long, and what became of others.

    Raises:
        OutsideError: Slurm refuses or does not answer, or the folder of runs cannot be used.
    """
    settle_cut_short(submission.place.dir.parent, (), tell)
    return submit_job(submission, tell=tell, ready=ready)


def resubmit(
    old: RunFolder,
    *,
    wait: bool = False,
    runs: Path | str | None = None,
    **changes: Unpack[Options],
) -> Run:
    """Submit a run's request again with options changed; what differs goes to the log.

    Raises:
        RequestError: the request is wrong. OutsideError: Slurm refuses or does not answer.
    """
    again = asked_again(old, spec_values(dict(changes)), _folder(runs), alone=True, tell=log)
    for line in again.differences:
        log(f"resubmitting {old.run_id}: {line}")
    found = handle(send(again.submission)[0])
    return found.wait() if wait else found


def job_spec(
    target: str,
    words: Mapping[str, object],
    *,
    program: str | os.PathLike[str] | None = None,
    module: str | None = None,
) -> JobSpec:
    """Return the request that a call's options make.

    Raises:
        RequestError: there is no such option, or a value is not of its type.
    """
    return JobSpec(
        target=target,
        program=None if program is None else typed_program(os.fspath(program)),
        module=module,
        **spec_values(words),
    )


def spec_values(words: Mapping[str, object]) -> dict[str, Any]:
    """Return the values of `JobSpec`'s fields that a call's options mean.

    Raises:
        RequestError: there is no such option, or a value is not of its type.
    """
    given = {name: _plain(name, value) for name, value in words.items()}
    args = given.pop("args", None)
    if "settings" in given:  # `set` is Python's own word
        given["set"] = given.pop("settings")
    own = {} if args is None else {"args": tuple(args)}
    return own | option_values(given)


def _plain(name: str, value: Any) -> Any:  # noqa: ANN401  # users' own
    """Return an option's value as the command line could have it."""
    match name:
        case "args" if value is not None:
            return [os.fspath(row) if isinstance(row, os.PathLike) else str(row) for row in value]
        case "settings" if isinstance(value, Mapping):
            return {key: _text(row) for key, row in value.items()}
        case "array" if isinstance(value, Mapping):
            return {key: [_text(row) for row in _values(key, rows)] for key, rows in value.items()}
        case "after" if value is not None:
            rows = [value] if isinstance(value, str | int | Run) else value
            return [row.job_id if isinstance(row, Run) else str(row) for row in rows]
        case "time" if isinstance(value, timedelta):
            return -(-value // timedelta(minutes=1))
        case "env" if isinstance(value, os.PathLike):
            return os.fspath(value)
    return value


def _values(key: str, rows: object) -> Sequence[object]:
    if isinstance(rows, str) or not isinstance(rows, Sequence):
        raise RequestError(f"array={{{key!r}: {rows!r}}} must be a list of values.")
    return rows


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _folder(runs: Path | str | None) -> Path | None:
    return None if runs is None else Path(runs)
