"""Submissions that were cut short: whether their jobs exist, by what each carries.

What they left on disk is a `Handover`; this finds its job's number and writes it down.
"""

import contextlib
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hpckit.errors import CommandError, NotFoundError, UnknownOutcomeError, disk_advice
from hpckit.files import DamagedFileError, read_json, read_text
from hpckit.job.place import ArrayPart, submitit_folder
from hpckit.owners import is_mine_alone
from hpckit.run_folders.index import add_to_index, handed_over, read_index
from hpckit.run_folders.runs import Run, read_or_tell
from hpckit.schedulers.base import Scheduler, find_scheduler, link_name
from hpckit.schedulers.local.state import start_ticks
from hpckit.schedulers.pickles import name_pickles, task_ids
from hpckit.slurm.client import patience
from hpckit.submission.folders import remove_run
from hpckit.submission.handover import ARRAY_RECORD, HANDOVER, Handover, finish, forget
from hpckit.values import rebuild

_MOST_BYTES = 256 * 2**20  # some 500,000 tasks
# Longer than sbatch, and the questions after it, may take.
_SUBMITTING_S = 180.0


def find_lost_jobs(
    root: Path | None = None, words: tuple[str, ...] = (), *, unfinished: bool = False
) -> list[str]:
    """Find the jobs of submissions that were cut short; return what is to be said of them.

    Those on the user's list are looked at, and runs of `root` that are called by name; with
    `unfinished`, these also while a process of this machine submits them.

    Raises:
        UnknownOutcomeError, NotFoundError: one that was called by name has no job, or Slurm does
        not say.
    """
    with patience():
        return list(_lost_jobs(root, words, words if unfinished else ()))


def _lost_jobs(
    root: Path | None, words: tuple[str, ...], unfinished: tuple[str, ...]
) -> Iterator[str]:
    named = [root / word for word in words if root and "/" not in word]
    for folder in dict.fromkeys([*_listed(), *(path for path in named if _unsettled(path))]):
        handover = _read(folder)
        if handover is None:
            _index_if_missing(folder)
            forget(folder.name)
            continue
        try:
            yield from _find_lost_job(handover, unfinished=folder.name in unfinished)
        except (UnknownOutcomeError, NotFoundError) as error:
            if folder.name in words:
                raise
            yield str(error)


def _index_if_missing(folder: Path) -> None:
    """Put runs into the index whose submission was killed when all but that was done."""
    names = [folder.name]
    with contextlib.suppress(OSError, DamagedFileError, AttributeError):
        names = list(read_json(folder / ARRAY_RECORD, most=_MOST_BYTES).get("runs", ()))
    found = (read_or_tell(folder.with_name(str(name))) for name in names)
    runs = [run for run in found if run and run.mine]
    known = {row.dir for row in read_index()[0]} if runs else set()
    if missing := [run for run in runs if str(run.dir) not in known]:
        add_to_index(missing)


def _listed() -> Iterator[Path]:
    try:
        names = sorted(path for path in handed_over().iterdir())
    except OSError:
        return
    for name in names:
        with contextlib.suppress(OSError, DamagedFileError):
            folder = Path(read_text(name, most=8192).strip())
            if folder.is_absolute() and folder.name == name.name:
                yield folder
            elif not name.name.startswith("."):  # not one that is about to be put in its place
                name.unlink()


def _unsettled(folder: Path) -> bool:
    with contextlib.suppress(OSError):
        return (folder / HANDOVER).is_file()
    return False


def _read(folder: Path) -> Handover | None:
    """Read a handover of this user's own that is still open."""
    try:
        path = folder / HANDOVER
        if not (is_mine_alone(folder, folder.lstat()) and is_mine_alone(path, path.lstat())):
            return None
        found = rebuild(Handover, read_json(path, most=_MOST_BYTES))
    except (OSError, DamagedFileError):
        return None
    return found if found.base == folder else None


def _find_lost_job(handover: Handover, *, unfinished: bool) -> list[str]:
    here = handover.host == os.uname().nodename
    if here and _under_way(handover) and not unfinished:
        return []  # it is being submitted in this moment
    who = _scheduler(handover).takes_jobs
    try:
        job_ids = _jobs(handover)
    except CommandError as error:
        raise UnknownOutcomeError(
            f"hpckit does not know yet whether {who} took run {handover.run_id}: {error} "
            "Ask again later, and do not submit the run again before."
        ) from error
    if len(job_ids) < handover.jobs and _under_way(handover):
        return []  # it may be: that host's processes cannot be seen from this one
    if not job_ids:
        forget(handover.run_id)
        raise NotFoundError(
            f"{who} has no job of run {handover.run_id}: submit it again. The files of the first "
            f"submission are in {handover.base}; hpckit clean removes them."
        )
    jobs = ", ".join(job_ids)
    try:
        found = adopt(handover, job_ids)
    except OSError as error:
        raise UnknownOutcomeError(
            f"{who} has taken run {handover.run_id} as job {jobs}, but hpckit cannot write this "
            f"to {handover.base}: {error.strerror}. Ask again when it can. {disk_advice(error)}"
        ) from error
    forget(handover.run_id)
    if handover.chain and len(job_ids) < handover.jobs:
        return [
            f"Slurm has taken only {len(job_ids)} of the {handover.jobs} jobs of run "
            f"{handover.run_id}, a chain, as job {jobs}: hpckit was ended before it submitted the "
            f"rest. Let these run, or cancel them and submit again: hpckit cancel {handover.run_id}"
        ]
    if len(found) < len(handover.records):
        for record in handover.records[len(found) :]:
            remove_run(handover.base.with_name(record["run_id"]))
        return [
            f"{who} has taken only tasks 0 to {len(found) - 1} of run {handover.run_id}, as job "
            f"{jobs}: hpckit was ended before it submitted the other "
            f"{len(handover.records) - len(found)}. Cancel these, and submit again: "
            f"hpckit cancel {handover.run_id}"
        ]
    return [f"{who} has taken run {handover.run_id}: it is job {jobs}."]


def has_no_job(folder: Path) -> bool:
    """Say whether a submission was cut short and, as its scheduler answers, has no job."""
    handover = _read(folder)
    if handover is None or _under_way(handover):
        return False
    try:
        return not _jobs(handover)
    except CommandError:
        return False


def _under_way(handover: Handover) -> bool:
    """Say whether a submission may still be going on: other hosts' processes cannot be seen."""
    if handover.host == os.uname().nodename:
        return start_ticks(handover.pid) == handover.pid_started
    return abs(time.time() - handover.since) < _SUBMITTING_S * handover.jobs


def _scheduler(handover: Handover) -> Scheduler:
    return find_scheduler({**handover.common, **handover.records[0]}.get("executor", "slurm"))


def _jobs(handover: Handover) -> list[str]:
    """Return the jobs that Slurm took, in the order of submission: the first missing ends them."""
    found: list[str] = []
    scheduler = _scheduler(handover)
    asked: list[tuple[str, ArrayPart | None]] = [
        (handover.run_id, part) for part in handover.parts or (None,)
    ]
    if handover.chain:
        asked = [(link_name(handover.run_id, link), None) for link in range(handover.jobs)]
    for token, part in asked:
        job = scheduler.job_at(handover.base, token, handover.since, part)
        if job is None:
            break
        found.append(job)
    return found


def adopt(handover: Handover, jobs: list[str]) -> list[Run]:
    """Write down the jobs of a handover that another process began.

    Raises:
        OSError: a folder cannot be written.
    """
    job_ids: list[str] = []
    for link, job in enumerate(jobs if handover.chain else ()):
        name_pickles(submitit_folder(handover.base, link), [job])
        job_ids.append(job)
    for job, part in zip(jobs, (() if handover.chain else handover.parts or (None,)), strict=False):
        count = part.count if part else len(handover.records)
        its = task_ids(job, count, array=handover.array)
        name_pickles(submitit_folder(handover.base, part.first if part else 0), its)
        job_ids += its

    @contextmanager
    def own(name: str) -> Iterator[Path]:
        yield Path(handover.root) / name

    return finish(own, handover, job_ids)
