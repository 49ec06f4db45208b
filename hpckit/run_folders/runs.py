"""The run folder: one submission, one folder, which says all there is to know of the run."""

import errno
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from hpckit.errors import (
    DamagedRunError,
    HpckitError,
    NotFoundError,
    OutsideError,
    RequestError,
    UnsetVariableError,
)
from hpckit.files import DamagedFileError, read_json
from hpckit.frozen import frozen
from hpckit.owners import writers
from hpckit.paths import typed_path, users_path
from hpckit.run_folders.run_record import MAX_BYTES, checked_record, task_parameters
from hpckit.schedulers.base import Scheduler, find_scheduler

RECORD = "run.json"
# In the folder of a run that was submitted again: see `hpckit.submission.resubmitted`.
RESUBMITTED = "resubmit.json"
SCHEMA = 1
# What stands in the way of believing a run whose disk does not answer; nobody is to blame.
UNREAD = "it can no longer be read"
# Bytes of colleagues' records in one list: some 5,000 runs. Parsed, they take ten times as much.
_MOST_OF_OTHERS = 32 * 2**20


@frozen(kw_only=True)
class Run:
    """A run's folder and what `run.json` says."""

    dir: Path
    record: Mapping[str, Any]

    def __repr__(self) -> str:
        return f"Run({str(self.dir)!r})"  # a record has a hundred lines

    @property
    def run_id(self) -> str:
        """The folder's name."""
        return str(self.record["run_id"])

    @property
    def job_id(self) -> str:
        """Slurm's job id (`123_4` for an array task), or the local run's."""
        return str(self.record["job_id"])

    @property
    def jobs(self) -> tuple[str, ...]:
        """The ids of its jobs, in order; only a chain has more than one."""
        return tuple(self.record.get("chain") or ()) or (self.job_id,)

    def need_folder(self) -> None:
        """Tell a run that wrote nothing from one whose folder is gone since it was looked at.

        Raises:
            NotFoundError: it was removed or moved. OutsideError: it cannot be looked at.
        """
        try:
            (self.dir / RECORD).lstat()
        except (FileNotFoundError, NotADirectoryError) as error:
            raise NotFoundError(
                f"The folder of run {self.run_id} (job {self.job_id}), {self.dir}, is gone: it was "
                "removed or moved. If you moved it, name its new folder."
            ) from error
        except OSError as error:
            raise OutsideError(
                f"The folder of run {self.run_id}, {self.dir}, cannot be read: {error.strerror}."
            ) from error

    @property
    def doubt(self) -> str:
        """Why the record may be of another run, or not by the folder's owner; "" if it is sound."""
        name, record = os.path.realpath(self.dir).rpartition("/")[2], self.dir / RECORD
        if name != self.run_id:
            return f"its folder is called {name}"
        try:
            around, inside = self.dir.stat(), record.lstat()
        except OSError:
            return UNREAD
        if around.st_uid != inside.st_uid:
            return f"its {RECORD} does not belong to the owner of its folder"
        who = writers(self.dir, around) or writers(record, inside)
        return f"{who} may write to it" if who else ""

    @property
    def mine(self) -> bool:
        """Whether only this user can have written what the run says."""
        try:
            return self.dir.stat().st_uid == os.getuid() and not self.doubt
        except OSError:  # removed since
            return False

    @property
    def owner(self) -> str:
        """Who made the folder: a user's name, or number.

        Raises:
            NotFoundError, OutsideError: it is gone, or cannot be looked at.
        """
        self.need_folder()
        try:
            return self.dir.owner()
        except KeyError:
            return f"user {self.dir.stat().st_uid}"

    @property
    def executor(self) -> str:
        """The name of its scheduler: slurm, local, or a package's."""
        return str(self.record["executor"])

    @property
    def scheduler(self) -> Scheduler:
        """Who queued it."""
        return find_scheduler(self.executor)

    @property
    def array_job_id(self) -> str | None:
        """The array's own id, for a task of an array."""
        array = self.record.get("array")
        return str(array["job_id"]) if array else None

    @property
    def whole(self) -> str | None:
        """The id that means all tasks; of a submission in several arrays, the first array's."""
        array = self.record.get("array")
        return str(array.get("whole") or array["job_id"]) if array else None

    @property
    def names(self) -> tuple[str, ...]:
        """What this run alone is called: by Slurm, by its folder, and as a task of the whole."""
        task = (f"{self.whole}_{self.task}",) if self.whole else ()
        return (*self.jobs, self.run_id, *task)

    @property
    def task(self) -> int:
        """The number of an array task; 0 for a run that is not one."""
        array = self.record.get("array")
        return int(array["index"]) if array else 0

    @property
    def parameters(self) -> dict[str, str]:
        """What a task of an array alone was given; empty for other runs."""
        return task_parameters(self.record)

    @property
    def ranks(self) -> int:
        """Ranks in all, as planned."""
        return int(self.record["plan"]["ranks"])

    @property
    def gpus(self) -> int:
        """GPUs in all, as planned."""
        return int(self.record["plan"]["total_gpus"])

    @property
    def workload(self) -> str | None:
        """The name of its workload; None for a user's own program."""
        workload = self.record.get("workload")
        return str(workload["name"]) if isinstance(workload, dict) else None

    @property
    def template(self) -> str | None:
        """The name of its script's template; None where the record is too old to say."""
        return str(self.record["plan"].get("template") or "") or None

    @property
    def submitted_at(self) -> float:
        """Epoch seconds."""
        return float(self.record["submitted_at"])


@frozen(kw_only=True)
class DamagedRun:
    """A run's folder, and why it cannot be read."""

    dir: Path
    error: HpckitError


def runs_root(option: Path | None, site_runs: str | None, environ: Mapping[str, str]) -> Path:
    """Return where runs live: `--runs`, else `$HPCKIT_RUNS`, else the site's, else `./runs`.

    `~` and `$VARIABLES` in the site's value are those of the user.

    Raises:
        RequestError: no folder can have such a name, or the site's has a variable that is not set.
    """
    if option is not None:
        if "\0" in str(option):
            raise RequestError(f"The folder of runs {str(option)!r} contains a NUL byte.")
        return typed_path(option)
    if environ.get("HPCKIT_RUNS"):
        return typed_path(environ["HPCKIT_RUNS"])
    if site_runs:
        return typed_path(_sites_folder(site_runs))
    return typed_path("runs")


def _sites_folder(site_runs: str) -> str:
    try:
        return users_path(site_runs, "runs")
    except UnsetVariableError as error:
        raise RequestError(
            f"The site's {error.why}. Set it, or name the folder of runs by --runs or HPCKIT_RUNS."
        ) from error


def new_run_id(name: str) -> str:
    """Return a folder name that sorts by time and says what it is: `ddp-20261121-033512-7f3a1c`."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")[:40] or "run"
    return f"{plain}-{time.strftime('%Y%m%d-%H%M%S')}-{os.urandom(3).hex()}"


def following(run: Run, how: str, run_id: str, folder: Path) -> Run | None:
    """Return the run of a folder that came after another one, as its own record has to say.

    Args:
        run: the one before it, of the same user.
        how: what the record says that under: `retry`, `resubmit`.
        run_id: the later one's, as somebody wrote it down.
        folder: where it may be.

    Returns:
        None: it was removed since, or is another run.
    """
    try:
        found = read_run(folder)
    except HpckitError:
        return None
    same = found.run_id == run_id and found.mine == run.mine
    return found if same and (found.record.get(how) or {}).get("of") == run.run_id else None


def read_run(folder: Path, *, in_job: bool = False) -> Run:
    """Read a run's folder.

    `in_job`: nobody is there to ask again, so a disk that refuses is asked for a second.

    Raises:
        NotFoundError: there is no run. OutsideError: it cannot be read. DamagedRunError: it is
            damaged.
    """
    path = folder / RECORD

    def read() -> Run:
        return Run(dir=folder, record=checked_record(read_json(path, most=MAX_BYTES)))

    try:
        if in_job:
            from hpckit.run_folders.run_files import patiently  # noqa: PLC0415  # seldom

            return patiently(read)
        return read()
    except FileNotFoundError as error:
        raise NotFoundError(
            f"{str(folder)!r} is not a run's folder: it has no {RECORD}."
        ) from error
    except OSError as error:
        raise OutsideError(f"Run {str(folder)!r} cannot be read: {error.strerror}.") from error
    except DamagedFileError as error:
        raise DamagedRunError(
            f"{path} is damaged: {error}. Its logs are still in {folder}."
        ) from error


def read_or_tell(folder: Path, damaged: list[DamagedRun] | None = None) -> Run | None:
    """Read a run's folder; None if it is not one, or cannot be read: `damaged` gets the reason.

    A folder that the user has no permission to read is left out in silence.
    """
    try:
        return read_run(folder)
    except NotFoundError:
        return None
    except (OutsideError, DamagedRunError) as error:
        if damaged is not None and not isinstance(error.__cause__, PermissionError):
            error.__cause__ = error.__context__ = None  # they hold all that was read
            damaged.append(DamagedRun(dir=folder, error=error))
        return None


def list_runs(
    root: Path,
    damaged: list[DamagedRun] | None = None,
    wants: Callable[[Path], bool] = lambda _: True,
) -> Iterator[Run]:
    """Yield the readable runs below `root`: the user's own, then others', each newest first.

    `damaged` gets what cannot be read, and says so where others have too many records to read.
    Folders for which `wants` is false are not read.
    """
    size = 0
    for mine, _, folder in sorted(map(_place, _folders(root)), reverse=True):
        if not wants(folder):
            continue
        size += 0 if mine else _record_size(folder)
        if size > _MOST_OF_OTHERS:
            if damaged is not None:
                damaged.append(DamagedRun(dir=folder, error=_too_many(root)))
            return
        if run := read_or_tell(folder, damaged):
            yield run


def _too_many(root: Path) -> DamagedRunError:
    return DamagedRunError(
        f"{str(root)!r} has too many records of other users to read them all "
        f"({_MOST_OF_OTHERS >> 20} MiB). Give the name of a run."
    )


def _folders(root: Path) -> list[Path]:
    try:
        return [Path(entry.path) for entry in os.scandir(root) if _is_run(entry)]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise OutsideError(f"Runs in {str(root)!r} cannot be read: {error.strerror}.") from error


# What says that a folder has no record, or is somebody else's.
_NO_RUN = (
    *(errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.ELOOP, errno.ENAMETOOLONG),
)


def _is_run(entry: "os.DirEntry[str]") -> bool:
    if entry.name.startswith("."):  # `hpckit clean` was removing it
        return False
    try:
        if entry.is_symlink() and _is_beside(entry.path):
            return False  # a name that the user gave to a run which is listed itself
        return entry.is_dir() and bool(os.stat(f"{entry.path}/{RECORD}"))  # noqa: PTH116
    except OSError as error:
        # Where the disk does not answer it may be one: who reads it says why that cannot be.
        return error.errno not in _NO_RUN


def _is_beside(link: str) -> bool:
    """Say whether a link leads to a run in the link's own folder."""
    root, target = map(os.path.realpath, (os.path.dirname(link), link))  # noqa: PTH120
    return os.path.dirname(target) == root  # noqa: PTH120


def _place(folder: Path) -> tuple[bool, float, Path]:
    """Return what lists are sorted by: whether the folder is the user's own, and its age."""
    try:
        mine = folder.stat().st_uid == os.getuid()
        return mine, (folder / RECORD).stat().st_mtime, folder
    except OSError:
        return False, 0.0, folder


def _record_size(folder: Path) -> int:
    """Return the bytes of a run's record; one that is too large is not read."""
    try:
        size = (folder / RECORD).stat().st_size
    except OSError:
        return 0
    return size if size <= MAX_BYTES else 0
