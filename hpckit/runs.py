"""The run folder: one submission, one folder, which is the truth."""

import json
import os
import re
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpckit.errors import NotFoundError, OutsideError, RequestError

RECORD = "run.json"
SCHEMA = 1
# What commands read of a record without asking whether it is there.
_KEYS = ("run_id", "job_id", "executor", "submitted_at", "name", "cwd", "request", "parameters",
         "command", "hpckit_version")  # fmt: skip
_PLAN_KEYS = ("nodes", "tasks_per_node", "ranks", "total_gpus", "time_min", "strategy", "launcher")


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
        return option.expanduser().absolute()
    if environ.get("HPCKIT_RUNS"):
        return Path(environ["HPCKIT_RUNS"]).expanduser().absolute()
    if site_runs:
        return Path(os.path.expandvars(site_runs)).expanduser().absolute()
    return Path("runs").absolute()


def new_run_id(name: str) -> str:
    """Return a folder name that sorts by time and says what it is: `ddp-20261121-033512-7f3a1c`."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")[:40] or "run"
    return f"{plain}-{time.strftime('%Y%m%d-%H%M%S')}-{os.urandom(3).hex()}"


def make_folder(root: Path, run_id: str) -> Path:
    """Make a run's folder.

    Raises:
        OutsideError: the place cannot be written.
    """
    folder = root / run_id
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        raise OutsideError(
            f"Run folder {str(folder)!r} cannot be made: {error.strerror}. "
            "Choose another place with --runs DIR or HPCKIT_RUNS."
        ) from error
    return folder


def remove_folders(folders: list[Path]) -> None:
    """Remove folders of a submission that did not happen, and the root if that leaves it empty."""
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
    if folders and folders[0].parent.is_dir() and not any(folders[0].parent.iterdir()):
        folders[0].parent.rmdir()


def write_json(path: Path, value: object, *, indent: int | None = 2) -> None:
    """Write a JSON file whole or not at all: readers never see half of it."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_text(json.dumps(value, indent=indent) + "\n", encoding="utf-8")
    beside.replace(path)


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
        _ = (run.ranks, run.submitted_at, run.array_job_id, run.task)
    except FileNotFoundError as error:
        raise NotFoundError(
            f"{str(folder)!r} is not a run's folder: it has no {RECORD}."
        ) from error
    except OSError as error:
        raise OutsideError(f"Run {str(folder)!r} cannot be read: {error.strerror}.") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RequestError(
            f"{path} is damaged ({type(error).__name__}: {error}). Its logs are still in {folder}."
        ) from error
    return run


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
        return entry.is_dir() and os.path.exists(os.path.join(entry.path, RECORD))  # noqa: PTH110,PTH118
    except OSError:
        return False


def _written_at(folder: Path) -> float:
    try:
        return (folder / RECORD).stat().st_mtime
    except OSError:
        return 0.0
