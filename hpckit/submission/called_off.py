"""A run of `--retry` that is cancelled while its job submits it again: nothing is left that runs.

The canceller leaves a mark in the run's folder (1), ends the job, and looks which run the folder
names as the next one (2). The job names that run in the folder before it calls sbatch (a), and
looks for the mark just before and after (b). In whatever order these come, 2 sees a or b sees 1,
which ends the new job. Where the job was killed before b, the new one looks for the mark itself as
it starts.
Each writes into the folder before it looks there, so that an NFS client looks anew, too.

`scancel` leaves no mark, but a line in the job's log, which counts as one.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from hpckit.errors import HpckitError, NotFoundError, OutsideError, StoppedError
from hpckit.files import DamagedFileError, read_json, reason
from hpckit.job_ends.failures import attempt_log
from hpckit.job_ends.joblog import was_cancelled
from hpckit.run_folders.run_files import open_to_write, patiently
from hpckit.run_folders.run_record import RetryOf
from hpckit.run_folders.runs import Run, read_run
from hpckit.submission.handover import HANDOVER, Handover
from hpckit.submission.retry import read_note, retry_after
from hpckit.submission.status import RunStatus
from hpckit.values import rebuild

_MARK = ".no-retry"
_MOST_BYTES = 1 << 22


def call_off(run: Run) -> str | None:
    """Leave the mark that a run is not tried again; return why that cannot be, None: it is done."""
    try:
        open_to_write(run.dir / _MARK, "ab").close()
    except OSError as error:
        return f"{run.dir} cannot be written: {reason(error)}"
    return None


def is_called_off(run_dir: Path) -> bool:
    """Say whether a run, or one that it tries again, was cancelled at its end.

    Raises:
        OSError: its folder cannot be looked into.
    """
    folder: Path | None = run_dir
    while folder:
        if _is_marked(folder):
            return True
        note = read_note(folder, in_job=True)
        since = note.log_bytes if note else None
        if since is not None and was_cancelled(attempt_log(folder, since)):
            return True
        before = before_it(folder)
        folder = folder.with_name(before["of"]) if before and "/" not in before["of"] else None
    return False


def _is_marked(folder: Path) -> bool:
    try:
        patiently((folder / _MARK).lstat)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def refuse_called_off(run: Run) -> None:
    """Refuse to try a run again that was cancelled.

    Raises:
        StoppedError: it was.
    """
    if is_called_off(run.dir):
        raise StoppedError(f"Job {run.job_id} was cancelled.")


def before_it(run_dir: Path) -> RetryOf | None:
    """Return which run a new one tries again, also where its job has no record yet; None: none.

    A job may start before its number is written down, and its submitter may have been killed.
    """
    for look in (_recorded, _handed_over, _recorded):
        try:
            return look(run_dir)
        except (HpckitError, OSError, DamagedFileError):
            continue  # the one is written just before the other is removed
    return None


def _recorded(run_dir: Path) -> RetryOf | None:
    return read_run(run_dir, in_job=True).record.get("retry")


def _handed_over(run_dir: Path) -> RetryOf | None:
    text = patiently(lambda: read_json(run_dir / HANDOVER, most=_MOST_BYTES))
    said = rebuild(Handover, text, newer=True)
    found = {**said.common, **said.records[0]}.get("retry")
    return rebuild(RetryOf, found, newer=True) if found else None


def next_run(run: Run) -> Run | None:
    """Return the run that tries one again, also where its record is not written; None: none.

    Raises:
        UnknownOutcomeError: Slurm does not say whether there is one.
    """
    note = read_note(run.dir)
    if note is None or note.run_id is None or (found := retry_after(run)):
        return found if note and note.run_id else None
    from hpckit.submission.lost_jobs import find_lost_jobs  # noqa: PLC0415  # it brings submitit's

    try:
        find_lost_jobs(run.dir.parent, (note.run_id,), unfinished=True)
    except NotFoundError:
        return None
    return retry_after(run)


def end_with_retries(
    runs: Sequence[Run], end: Callable[[Sequence[Run]], list[RunStatus]]
) -> list[RunStatus]:
    """End runs by a function, and those that try them again; the runs themselves come first.

    Raises:
        UnknownOutcomeError: one was being submitted again, and Slurm does not say whether it was.
        OutsideError: the folder of one cannot be written, so it may be submitted again.
    """
    every, troubles = _called_off(runs, retry_after)
    found = end(every)
    # A job that is over submits nothing any more; what it had begun may lack its number.
    while new := _called_off(every, next_run)[0][len(every) :]:
        found += end(new)
        every += new
    if troubles:
        raise OutsideError(
            f"{troubles[0]}. So hpckit cannot tell its job not to submit it again (--retry). Look "
            f"whether it did: hpckit jobs"
        )
    return found


def _called_off(
    runs: Sequence[Run], after: Callable[[Run], Run | None]
) -> tuple[list[Run], list[str]]:
    """Call runs off and those that come after them; return all, and what stands in the way."""
    every = {run.dir: run for run in runs}
    todo, troubles = list(every.values()), []
    for run in todo:
        if not run.record["request"].get("retry"):
            continue
        if trouble := call_off(run):
            troubles.append(trouble)
        new = after(run)
        if new and new.dir not in every:
            every[new.dir] = new
            todo.append(new)
    return list(every.values()), troubles
