"""The run folder: one submission, one folder, which is the truth."""

import json
import os
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from hpckit.errors import NotFoundError, OutsideError, RequestError
from hpckit.files import replace_file
from hpckit.paths import is_file, typed_path

RECORD = "run.json"
SCHEMA = 1
# What commands read of a record without asking whether it is there.
_KEYS = ("run_id", "job_id", "executor", "submitted_at", "name", "cwd", "request", "parameters",
         "command", "hpckit_version")  # fmt: skip
# What a folder's name, and an id given to Slurm's programs, may be: the record may be another's.
_RUN_ID = re.compile(r"[\w][\w.-]{0,200}", re.ASCII)
_JOB_ID = re.compile(r"\d{1,20}([_+]\d{1,10})?|local-[\w-]{1,40}", re.ASCII)
# A group's folder may let all its members write, and a umask of 002 every file in it. What a run
# starts, loads or sends again must be its owner's own words: others read, where the umask lets
# them, and never write.
FOLDER_MODE, _FILE_MODE = 0o755, 0o644
_PLAN_KEYS = ("nodes", "tasks_per_node", "ranks", "total_gpus", "time_min", "strategy", "launcher")
_PLAN_NUMBERS = ("nodes", "tasks_per_node", "ranks", "total_gpus", "time_min")
_LAST_MOMENT = 253_402_300_800.0  # the year 10000, which time.localtime() still knows


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """A run's folder and what `run.json` says."""

    dir: Path
    record: Mapping[str, Any]

    @property
    def run_id(self) -> str:
        """The folder's name."""
        return str(self.record["run_id"])

    @property
    def job_id(self) -> str:
        """Slurm's job id (`123_4` for an array task), or the local run's."""
        return str(self.record["job_id"])

    @property
    def mine(self) -> bool:
        """Whether this user made the folder."""
        try:
            return self.dir.stat().st_uid == os.getuid()
        except OSError:  # removed since
            return False

    @property
    def owner(self) -> str:
        """Who made the folder: a user's name, or number."""
        try:
            return self.dir.owner()
        except KeyError:
            return f"user {self.dir.stat().st_uid}"

    @property
    def executor(self) -> str:
        """Slurm or local."""
        return str(self.record["executor"])

    @property
    def array_job_id(self) -> str | None:
        """The array's own id, for a task of an array."""
        array = self.record.get("array")
        return str(array["job_id"]) if array else None

    @property
    def task(self) -> int:
        """The number of an array's task; 0 for a run that is none."""
        array = self.record.get("array")
        return int(array["index"]) if array else 0

    @property
    def ranks(self) -> int:
        """Ranks in all, as planned."""
        return int(self.record["plan"]["ranks"])

    @property
    def submitted_at(self) -> float:
        """Epoch seconds."""
        return float(self.record["submitted_at"])


def runs_root(option: Path | None, site_runs: str | None, environ: Mapping[str, str]) -> Path:
    """Return where runs live: `--runs`, else `$HPCKIT_RUNS`, else the site's, else `./runs`.

    `~` and `$VARIABLES` in the site's value are those of the user.
    """
    if option is not None:
        return typed_path(option)
    if environ.get("HPCKIT_RUNS"):
        return typed_path(environ["HPCKIT_RUNS"])
    if site_runs:
        return typed_path(os.path.expandvars(site_runs))
    return Path("runs").absolute()


def new_run_id(name: str) -> str:
    """Return a folder name that sorts by time and says what it is: `ddp-20261121-033512-7f3a1c`."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")[:40] or "run"
    return f"{plain}-{time.strftime('%Y%m%d-%H%M%S')}-{os.urandom(3).hex()}"


def write_json(path: Path, value: object, *, indent: int | None = 2) -> None:
    """Write a JSON file whole or not at all: readers never see half of it."""
    replace_file(path, json.dumps(value, indent=indent) + "\n", mode=_FILE_MODE)


def write_text(path: Path, text: str) -> None:
    """Write a file of a run, which others cannot write to."""
    with open_to_write(path) as stream:
        stream.write(text.encode())


def open_to_write(path: Path, mode: str = "wb") -> IO[bytes]:
    """Open a file of a run for writing: others cannot write to it, and it is no link of theirs."""
    return open(path, mode, opener=_owners_alone)


def _owners_alone(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, _FILE_MODE)


def read_run(folder: Path) -> Run:
    """Read a run's folder.

    Raises:
        NotFoundError: there is no run. OutsideError: it cannot be read. RequestError: it is broken.
    """
    path = folder / RECORD
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        run = Run(dir=folder, record=record)
        _ = [record[key] for key in _KEYS], [record["plan"][key] for key in _PLAN_KEYS]
        _check(run)
    except FileNotFoundError as error:
        raise NotFoundError(
            f"{str(folder)!r} is not a run's folder: it has no {RECORD}."
        ) from error
    except OSError as error:
        raise OutsideError(f"Run {str(folder)!r} cannot be read: {error.strerror}.") from error
    except (
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        OverflowError,
        RecursionError,
    ) as error:
        raise RequestError(
            f"{path} is damaged ({type(error).__name__}: {error}). Its logs are still in {folder}."
        ) from error
    return run


def _check(run: Run) -> None:
    """Refuse what no run of hpckit's has: in a shared folder somebody else may have written it.

    Raises:
        ValueError, TypeError, OverflowError: a value that commands could not use.
    """
    wrong = [word for word in (run.job_id, run.array_job_id or "0") if not _JOB_ID.fullmatch(word)]
    if wrong or not _RUN_ID.fullmatch(run.run_id):
        raise ValueError(f"{(wrong or [run.run_id])[0][:80]!r} cannot be an id")
    if not 0 <= run.submitted_at < _LAST_MOMENT:
        raise ValueError(f"{run.submitted_at} is no moment")
    plan = run.record["plan"]
    _ = run.ranks, run.task, [int(plan[key]) for key in _PLAN_NUMBERS]
    for key in ("name", "cwd"):
        if not isinstance(run.record[key], str):
            raise TypeError(f"{key!r} is no text")


def list_runs(root: Path) -> Iterator[Run]:
    """Yield the readable runs below `root`, newest first; damaged ones are passed over."""
    for folder in sorted(_folders(root), key=_written_at, reverse=True):
        try:
            yield read_run(folder)
        except (OutsideError, RequestError):
            continue


def _folders(root: Path) -> list[Path]:
    try:
        return [Path(entry.path) for entry in os.scandir(root) if _is_run(entry)]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise OutsideError(f"Runs in {str(root)!r} cannot be read: {error.strerror}.") from error


def _is_run(entry: "os.DirEntry[str]") -> bool:
    try:
        # A regular file: reading a pipe put there would never end.
        return entry.is_dir() and is_file(Path(entry.path) / RECORD)
    except OSError:
        return False


def _written_at(folder: Path) -> float:
    try:
        return (folder / RECORD).stat().st_mtime
    except OSError:
        return 0.0
