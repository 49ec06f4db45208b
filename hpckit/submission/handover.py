"""A submission between "given to sbatch" and "its number is written down", on disk.

Whatever ends hpckit or cuts Slurm off in between, the records lie in the run's folder and lack only
the job's number. `find_lost_jobs` asks Slurm for it by what the job carries (`slurm.sbatch`).
"""

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, field, fields
from pathlib import Path
from typing import Any

from hpckit.errors import CommandError, NotFoundError, UnknownOutcomeError
from hpckit.files import DamagedFileError, flush_to_disk, read_json, read_text, replace_file
from hpckit.find import add_to_index, handed_over, read_index
from hpckit.frozen import frozen
from hpckit.job.script import ArrayPart, submitit_folder
from hpckit.paths import is_mine_alone
from hpckit.run_files import json_members, write_json, write_members
from hpckit.runs import RECORD, Run, read_or_tell
from hpckit.schedulers.base import Scheduler, find_scheduler, link_name
from hpckit.schedulers.local.state import my_start_ticks, start_ticks
from hpckit.schedulers.pickles import name_pickles, task_ids
from hpckit.slurm.client import patience
from hpckit.submission.folders import remove_run
from hpckit.values import rebuild

HANDOVER, ARRAY_RECORD, SCRIPT = "handover.json", "array.json", "job.sh"
# Longer than sbatch, and the questions after it, may take.
_MOST_BYTES = 256 * 2**20  # some 500,000 tasks
_SUBMITTING_S = 180.0
# What the records of an array may take on their way to the disk.
_FLUSHED_S = 2.0
Opener = Callable[[str], AbstractContextManager[Path]]


@frozen(kw_only=True)
class Handover:
    """What is written down once a job has its number.

    Attributes:
        root: the folder of runs.
        common: what the records of all tasks say.
        records: what each task's says besides, without its job's id.
        parts: the arrays, if there are several. chain: how many jobs follow the first one.
        since: epoch seconds before sbatch started.
        host, pid, pid_started: the process that submits, as in a `LocalState`.
    """

    run_id: str
    root: str
    array: bool
    records: tuple[dict[str, Any], ...]
    since: float
    host: str
    pid: int
    pid_started: int
    common: dict[str, Any] = field(default_factory=dict)
    parts: tuple[ArrayPart, ...] = ()
    chain: int = 0

    @property
    def jobs(self) -> int:
        """How many jobs, or arrays, are submitted."""
        return max(1, len(self.parts), self.chain + 1)

    @property
    def base(self) -> Path:
        """The run's folder, or the array's own."""
        return Path(self.root) / self.run_id


def new_handover(
    run_id: str,
    root: Path,
    records: list[dict[str, Any]],
    *,
    array: bool,
    parts: tuple[ArrayPart, ...] = (),
    chain: int = 0,
) -> Handover:
    """Return a handover that begins now, by this process."""
    common = {
        key: value
        for key, value in records[0].items()
        if all(row.get(key) is value for row in records)
    }
    own = [{key: row[key] for key in row.keys() - common.keys()} for row in records]
    return Handover(
        run_id=run_id,
        root=str(root),
        array=array,
        common=common,
        records=tuple(own),
        parts=parts,
        chain=chain,
        since=time.time(),
        host=os.uname().nodename,
        pid=os.getpid(),
        pid_started=my_start_ticks(),
    )


def begin(base: Path, handover: Handover) -> None:
    """Write down what is about to be given to Slurm.

    Raises:
        OSError: the run's folder cannot be written.
    """
    said = {row.name: getattr(handover, row.name) for row in fields(handover)}
    said["parts"] = [asdict(part) for part in handover.parts]
    write_json(base / HANDOVER, said, indent=None)
    flush_to_disk((base / HANDOVER, base, Path(handover.root)))


def remember(run_id: str, root: Path) -> None:
    """Put a submission on the user's list of those that are on their way."""
    with contextlib.suppress(OSError):  # without a home, its run id finds it again
        handed_over().mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_file(handed_over() / run_id, str(root / run_id))


def finish(opened: Opener, handover: Handover, job_ids: list[str]) -> list[Run]:
    """Write each task's record, now that the job has its number; the handover is over.

    An array in several has tasks of several ids; the first is the whole's. A chain's are its jobs.

    Raises:
        OSError: a folder cannot be written.
    """
    whole = job_ids[0].rpartition("_")[0] if handover.array else None
    if whole:
        run_ids = [{**handover.common, **row}["run_id"] for row in handover.records]
        with opened(handover.run_id) as base:
            write_json(base / ARRAY_RECORD, {"job_id": whole, "runs": run_ids})
    runs = []
    shared = json_members(handover.common)  # most of each record
    for index, (row, job_id) in enumerate(zip(handover.records, job_ids, strict=False)):
        array: dict[str, Any] | None = None
        if whole:
            array = {"job_id": job_id.rpartition("_")[0], "index": index}
        if array and handover.parts:
            array["whole"] = whole
        own = {**row, "job_id": job_id, "array": array}
        if handover.chain:
            own["chain"] = job_ids
        record = {**handover.common, **own}
        with opened(record["run_id"]) as folder:
            write_members(folder / RECORD, [*shared, *json_members(own)])
        runs.append(Run(dir=Path(handover.root) / record["run_id"], record=record))
    _flush(opened, runs)
    with opened(handover.run_id) as base:
        (base / HANDOVER).unlink(missing_ok=True)
    add_to_index(runs)
    forget(handover.run_id)
    return runs


def _flush(opened: Opener, runs: Sequence[Run]) -> None:
    """Have records survive a loss of power: of a long array, as many as a short time allows.

    A machine writes the others by itself, most often within half a minute.
    """
    until = time.monotonic() + _FLUSHED_S
    for run in runs:
        if time.monotonic() < until:
            with opened(run.run_id) as folder:
                flush_to_disk((folder / RECORD, folder))


def forget(run_id: str) -> None:
    """Take a submission off the list of those on their way."""
    with contextlib.suppress(OSError):  # it was never on it, or home cannot be written
        (handed_over() / run_id).unlink()


def find_lost_jobs(root: Path | None = None, words: tuple[str, ...] = ()) -> list[str]:
    """Find the jobs of submissions that were cut short; return what is to be said of them.

    Those on the user's list are looked at, and runs of `root` that are called by name.

    Raises:
        UnknownOutcomeError, NotFoundError: one that was called by name has no job, or Slurm does
        not say.
    """
    with patience():
        return list(_lost_jobs(root, words))


def _lost_jobs(root: Path | None, words: tuple[str, ...]) -> Iterator[str]:
    named = [root / word for word in words if root and "/" not in word]
    for folder in dict.fromkeys([*_listed(), *(path for path in named if _unsettled(path))]):
        handover = _read(folder)
        if handover is None:
            _index_if_missing(folder)
            forget(folder.name)
            continue
        try:
            yield from _find_lost_job(handover)
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


def _find_lost_job(handover: Handover) -> list[str]:
    here = handover.host == os.uname().nodename
    if here and _under_way(handover):
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
            f"to {handover.base}: {error.strerror}. Free some space there and ask again."
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
