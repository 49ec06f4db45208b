"""`hpckit.submit` and `Run.resubmit`: the command line's words, typed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Unpack, overload

from hpckit.api import log
from hpckit.api.lookup import settle_cut_short
from hpckit.api.options import JobSpec, Options, job_spec, spec_values
from hpckit.api.prepare import Submission, preflight, prepare
from hpckit.api.run import Run, handle
from hpckit.api.run_list import RunList
from hpckit.errors import HpckitError, RequestError
from hpckit.job_spec.arguments import PATH, TEXTS, VALUES, checked, maybe, several
from hpckit.paths import typed_path

if TYPE_CHECKING:
    from hpckit.api.resubmit import Again

Values = Mapping[str, Iterable[object]] | Sequence[str]


@overload
def submit(
    target: str,
    program: str | os.PathLike[str] | None = None,
    *,
    module: str | None = None,
    array: Values,
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
@checked(array=maybe(VALUES), wait=bool, runs=maybe(PATH))
def submit(
    target: str,
    program: str | os.PathLike[str] | None = None,
    *,
    module: str | None = None,
    array: Values | None = None,
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
        array: option -> values, or the command line's texts (`lr=0.1,0.2`, `lr=@FILE`); a run for
            each combination, in a `RunList`.
        wait: return when the job is over.
        runs: where runs live (else $HPCKIT_RUNS, the site's, ./runs).
        **options: those of `hpckit submit`: nodes=2, gpus=4, args=["--lr", 0.1]...

    Raises:
        RequestError: the request is wrong. OutsideError: Slurm refuses or does not answer.
    """
    sent = send(prepare(_spec(target, program, module, array, options), _folder(runs), tell=log))
    if wait:
        sent.wait()
    return sent if array else sent[0]


@checked(array=maybe(VALUES), runs=maybe(PATH))
def script(
    target: str,
    program: str | os.PathLike[str] | None = None,
    *,
    module: str | None = None,
    array: Values | None = None,
    runs: Path | str | None = None,
    **options: Unpack[Options],
) -> str:
    """Return the job script that `submit` would submit with the same words; it needs no Slurm.

    Raises:
        RequestError: the request is wrong.
    """
    spec = _spec(target, program, module, array, options)
    return prepare(spec, _folder(runs), preview=True, tell=log).rendered.text


@checked(array=maybe(VALUES), runs=maybe(PATH))
def check(
    target: str,
    program: str | os.PathLike[str] | None = None,
    *,
    module: str | None = None,
    array: Values | None = None,
    runs: Path | str | None = None,
    **options: Unpack[Options],
) -> str:
    """Ask Slurm whether and when a job of the same words would start; return what it says.

    Raises:
        RequestError: the request is wrong, or not for Slurm. OutsideError: no Slurm answers, or it
            would refuse the job.
    """
    spec = _spec(target, program, module, array, options)
    return preflight(prepare(spec, _folder(runs), tell=log))


def load_submitit() -> None:
    """Load what hands jobs over, which `send` would do later."""
    from hpckit.schedulers import pickles  # noqa: PLC0415  # as in `send`

    pickles.load()


def send(
    submission: Submission,
    *,
    tell: Callable[[str], None] = log,
    ready: Callable[[], None] = lambda: None,
) -> RunList:
    """Hand a submission over, after those that were cut short; return one run per task.

    `ready` is called before it is handed over, once its folder is there; `tell` hears what takes
    long, and what became of others.

    Raises:
        OutsideError: Slurm refuses or does not answer, or the folder of runs cannot be used.
    """
    from hpckit.submission.submit import submit as submit_job  # noqa: PLC0415  # brings submitit's

    settle_cut_short(submission.place.dir.parent, (), lambda line: tell(f"note: {line}"))
    found = RunList(handle(run) for run in submit_job(submission, tell=tell, ready=ready))
    try:
        _look_around(submission, found, tell)
    except (HpckitError, OSError) as error:
        tell(f"note: {error}")
    except BaseException:  # there is a job, which nobody has been told of
        job_id = found[0].array_job_id or found[0].job_id
        tell(f"Job {job_id} is submitted and goes on. End it: hpckit cancel {job_id}")
        raise
    return found


def _look_around(submission: Submission, found: RunList, tell: Callable[[str], None]) -> None:
    """Say what the user should know of jobs that were submitted, and let them wait for retries."""
    if submission.job.total_gpus and submission.job.device != "cpu":
        from hpckit.submission.used_before import gpus_used_before  # noqa: PLC0415  # with GPUs

        if said := gpus_used_before(found[0]._folder):
            tell(f"note: {said}")
    after, dirs = submission.place.after, submission.after_dirs
    # Of an array, whose tasks' retries nobody waits for, there is a folder for each task.
    if submission.job.scheduler.accounting and 0 < len(dirs) <= len(after):
        from hpckit.submission.awaited import catch_up  # noqa: PLC0415  # few wait for others

        catch_up(dirs, tell)


@checked(wait=bool, runs=maybe(PATH), right_size=bool, same_code=bool)
def resubmit(
    old: Run,
    *,
    wait: bool = False,
    runs: Path | str | None = None,
    unset: Sequence[str] = (),
    right_size: bool = False,
    same_code: bool = False,
    **changes: Unpack[Options],
) -> Run:
    """Submit a run's request again with options changed; what differs goes to the log.

    `unset` are words of options of which what was asked is forgotten; for `right_size`
    and `same_code` see `Run.resubmit`.

    Raises:
        RequestError: the request is wrong. OutsideError: Slurm refuses or does not answer.
    """
    again = _again(old, runs, unset, changes, right_size=right_size, same_code=same_code)
    _log_again(again, old.run_id)
    with ExitStack() as held:
        found = send(again.submission, ready=lambda: again.claim(held))[0]
    return found.wait() if wait else found


def _log_again(again: Again, what: str, lines: Sequence[str] = ()) -> None:
    if again.whose:
        log(again.whose)
    for line in (*lines, *(row.line for row in again.right_size), *again.differences):
        log(f"resubmitting {what}: {line}")


@checked(unset=TEXTS, wait=bool, runs=maybe(PATH), right_size=bool, same_code=bool)
def resubmit_failed(
    tasks: Sequence[Run],
    *,
    wait: bool = False,
    runs: Path | str | None = None,
    unset: Sequence[str] = (),
    right_size: bool = False,
    same_code: bool = False,
    **changes: Unpack[Options],
) -> RunList:
    """Submit an array's failed tasks again, as an array of these; see `RunList.resubmit_failed`.

    Raises:
        RequestError: none failed, they are not one array, or the request is wrong. OutsideError:
            Slurm refuses or does not answer.
    """
    # Most submit no such array.
    from hpckit.api.failed_tasks import failed_tasks, one_array_at_a_time  # noqa: PLC0415

    with one_array_at_a_time(tasks):
        found = failed_tasks(tasks)
        again = _again(
            tasks[0], runs, unset, changes,
            right_size=right_size, same_code=same_code, failed=found.numbers,
        )  # fmt: skip
        _log_again(again, again.what, found.lines)
        sent = send(again.submission)
    return sent.wait() if wait else sent


@checked(runs=maybe(PATH), right_size=bool, same_code=bool)
def preview(
    old: Run,
    *,
    runs: Path | str | None = None,
    unset: Sequence[str] = (),
    right_size: bool = False,
    same_code: bool = False,
    **changes: Unpack[Options],
) -> Again:
    """Return what `resubmit` would submit, and what differs from the run; it needs no Slurm.

    Raises:
        RequestError: the request is wrong.
    """
    return _again(
        old, runs, unset, changes, right_size=right_size, same_code=same_code, preview=True
    )


def _again(
    old: Run,
    runs: Path | str | None,
    unset: Sequence[str],
    changes: Options,
    *,
    right_size: bool,
    same_code: bool,
    preview: bool = False,
    failed: Sequence[int] = (),
) -> Again:
    if "array" in changes and not failed:
        raise RequestError("resubmit makes one job; for an array: hpckit.submit(..., array=...).")
    values = spec_values(dict(changes))
    from hpckit.api.resubmit import asked_again  # noqa: PLC0415  # not of a first submission

    return asked_again(
        old,
        values,
        _folder(runs),
        alone=not failed,
        unset=several(unset, "unset"),
        right_size=right_size,
        same_code=same_code,
        preview=preview,
        failed=failed,
        tell=log,
    )


def _spec(
    target: str,
    program: str | os.PathLike[str] | None,
    module: str | None,
    array: Values | None,
    options: Options,
) -> JobSpec:
    if array is not None and not array:
        raise RequestError(f"array={array!r} has no values: leave it out for a single job.")
    asked = dict(options) | ({"array": array} if array else {})
    return job_spec(target, asked, program=program, module=module)


def _folder(runs: Path | str | None) -> Path | None:
    return None if runs is None else typed_path(runs)
