"""Ending jobs: runs at hand, and what words mean, also where Slurm alone knows the job."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field
from pathlib import Path

from hpckit.api import log
from hpckit.api.lookup import settled_folder
from hpckit.api.run import Run, handle
from hpckit.api.run_list import RunList
from hpckit.api.run_status import runs_or_ids
from hpckit.errors import (
    DamagedRunError,
    HpckitError,
    JobError,
    NotFoundError,
    OutsideError,
    RequestError,
)
from hpckit.frozen import frozen
from hpckit.run_folders.find import find_runs, refuse_doubtful
from hpckit.run_folders.run_record import is_slurm_id
from hpckit.run_folders.runs import DamagedRun
from hpckit.run_folders.runs import Run as RunFolder
from hpckit.schedulers.local.state import cancel_asked, read_local_state
from hpckit.schedulers.slurm import SLURM
from hpckit.schedulers.slurm.ending import cancel_by_id, known_in_slurm
from hpckit.slurm.client import own_patience_s, patience
from hpckit.slurm.states import JobRecord, JobState
from hpckit.submission.status import RunStatus
from hpckit.submission.waiting import cancel as cancel_runs
from hpckit.submission.waiting import refuse_of_others


def cancel(
    runs: Run | str | int | Path | Iterable[Run | str | int | Path | Sequence[Run]],
) -> RunList:
    """End runs, or remove them from the queue; those that are over stay as they were.

    Runs that try one again (`retry=`) end with it.

    Args:
        runs: as in `wait`; a job's id in Slurm is enough also where hpckit has no run of it.

    Returns:
        The runs that were named, and those that try them again.

    Raises:
        RequestError: one is somebody else's, or is no run or id: nothing was cancelled. JobError:
            Slurm does not end one. OutsideError: Slurm does not answer, or a run's machine is
            another, or the folder of a run on this machine cannot be written.
    """
    rows = runs_or_ids(runs)
    every = RunList(row for row in rows if isinstance(row, Run))
    words = [row for row in rows if isinstance(row, str)]
    done = cancel_called(words, None, log, [run._folder for run in every])
    for run in every:
        run._answer = None  # what was said of it before
    named = {run._folder.dir for run in every}
    every += [handle(status.run) for status in done.runs if status.run.dir not in named]
    for error in done.errors:
        raise error
    return every


@frozen(kw_only=True)
class Cancelled:
    """What became of jobs that were to end, a moment later.

    Attributes:
        runs: those of hpckit's. by_id: state of jobs that only Slurm knows, by their ids.
        errors: what is wrong with some.
    """

    runs: list[RunStatus]
    by_id: dict[str, JobState]
    errors: list[HpckitError] = field(default_factory=list)


def cancel_called(
    words: Sequence[str],
    runs: Path | None,
    tell: Callable[[str], None],
    also: Sequence[RunFolder] = (),
) -> Cancelled:
    """Cancel what words mean; Slurm's own id is enough where the run cannot be read.

    `also` are runs that are at hand.

    Raises:
        RequestError: a word means nothing, or a job is somebody else's: nothing was cancelled.
            CommandError: Slurm does not answer.
    """
    with patience():
        with _all_or_none(len(words) + len(also)):
            for run in also:
                refuse_doubtful(run, run.run_id)
            with patience(own_patience_s() / 3):
                root = settled_folder(runs, words, tell) if words else Path()
            wrong: list[HpckitError] = []
            called, by_id, errors = _called(words, root, wrong, here_only=runs is not None)
            every = list({run.dir: run for run in (*also, *called)}.values())
            refuse_of_others(every)
            # One job alone is asked for when it is cancelled, in the same time.
            first = len(by_id) + len(every) + len(wrong) > 1
            known = _known(by_id, wrong) if first else {}
            if wrong:
                wrong[0].args = (" ".join(map(str, wrong)),)
                raise wrong[0]
        states: dict[str, JobState] = {}
        for word, why in by_id.items():
            try:
                states[word] = cancel_by_id(word, why, known.get(word, ()))
            except HpckitError as error:  # others shall end nevertheless
                errors.append(error)
        found = cancel_runs(every) if every else []
    return Cancelled(runs=found, by_id=states, errors=[*errors, *_troubles(found, states)])


@contextmanager
def _all_or_none(count: int) -> Iterator[None]:
    """Say in an error that comes before the first of several is cancelled that none was."""
    try:
        yield
    except HpckitError as error:
        if count > 1:
            error.args = (f"Nothing was cancelled. {error}",)
        raise


def _called(
    words: Sequence[str], root: Path, wrong: list[HpckitError], *, here_only: bool
) -> tuple[list[RunFolder], dict[str, HpckitError | None], list[HpckitError]]:
    """Return the runs that words mean, ids that only Slurm may know with why, and errors.

    `wrong` is told of words that mean nothing.
    """
    called: dict[Path, RunFolder] = {}
    by_id: dict[str, HpckitError | None] = {}
    errors: list[HpckitError] = []
    for word in words:
        damaged: list[DamagedRun] = []
        why: HpckitError | None = None
        try:
            found = find_runs(word, root, damaged, here_only=here_only)
            for run in found:
                refuse_doubtful(run, word)
        except (RequestError, OutsideError) as error:
            if not (is_slurm_id(word) or isinstance(error, DamagedRunError | OutsideError)):
                wrong.append(error)
                continue
            found, why = [], error
        errors += [row.error for row in damaged]
        if is_slurm_id(word) and not (found and all(run.mine for run in found)):
            by_id[word] = why
        elif why:
            errors.append(why)
        called |= {run.dir: run for run in found if word not in by_id}
    return list(called.values()), by_id, errors


def _known(
    by_id: Mapping[str, HpckitError | None], wrong: list[HpckitError]
) -> dict[str, list[JobRecord]]:
    """Return what Slurm says of jobs that it alone may know; `wrong` is told of those it does not.

    Raises:
        RequestError: one is somebody else's. CommandError: Slurm does not answer.
    """
    known: dict[str, list[JobRecord]] = {}
    for word, why in by_id.items():
        try:
            known[word] = known_in_slurm(word, why)
        except NotFoundError as error:
            wrong.append(error)
    return known


def _troubles(found: Sequence[RunStatus], by_id: Mapping[str, JobState]) -> list[HpckitError]:
    """Return what kept jobs from ending, by what became of them."""
    silent = [row.run for row in found if row.unanswered and not row.finished]
    answered = [row for row in found if row.run not in silent]
    asked = [(row.run.scheduler, row.run.job_id, row.state) for row in answered]
    asked += [(SLURM, *row) for row in by_id.items()]
    texts = [scheduler.unheeded(job_id, state) for scheduler, job_id, state in asked]
    errors: list[HpckitError] = [JobError(text) for text in texts if text]
    by_mark = [row for row in found if row.run.scheduler.by_mark and not row.finished]
    here = [row.run for row in by_mark if not row.elsewhere]
    errors += [_nobody_here(row) for row in by_mark if row.elsewhere]
    errors += [_not_told(run) for run in here if not cancel_asked(run.dir)]
    return [*errors, _not_answered(silent)] if silent else errors


def _not_answered(runs: Sequence[RunFolder]) -> OutsideError:
    words = " ".join(dict.fromkeys(run.array_job_id or run.job_id for run in runs))
    return OutsideError(
        f"Asked Slurm to cancel {words}. Slurm has not answered; ask again: hpckit status {words}"
    )


def _not_told(run: RunFolder) -> OutsideError:
    state = read_local_state(run.dir)
    by_hand = f", or end its job with all its tasks: kill {state.pid}" if state else ""
    return OutsideError(
        f"Run {run.run_id} goes on: {run.dir} cannot be written, where it would see that it is to "
        f"end. Make room or let it be written, and cancel again{by_hand}"
    )


def _nobody_here(status: RunStatus) -> OutsideError:
    return OutsideError(
        f"Run {status.run.run_id} cannot be ended from here: {status.reason_text}. If it was "
        f"submitted on another machine, cancel it there. Its logs are in {status.run.dir}/logs."
    )
