"""Has a job left a checkpoint since its attempt began? What lies there is compared, not clocks."""

import contextlib
import glob
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from hpckit.files import DamagedFileError, read_json
from hpckit.run_folders.run_files import write_json

# What is looked at of one pattern, and of one folder that is a checkpoint.
_MOST = 10_000

Mark = tuple[int, int, int]


class Checkpoints:
    """The files and folders that count as a run's checkpoints, as they were when this was made.

    Those in the run's `checkpoints/` count, and what `pattern` names: a path with `*`, `?`, `[…]`
    or `**`, from the folder that the job runs in, or from the run's.
    """

    def __init__(self, run_dir: Path, pattern: str | None, cwd: Path) -> None:
        self._run_dir = run_dir
        self._pattern = pattern
        self._cwd = cwd
        self._before = self._seen()

    def newer(self) -> bool:
        """Say whether one has been written since."""
        return any(self._before.get(path) != mark for path, mark in self._seen().items())

    def keep(self, path: Path) -> None:
        """Write down what lay there, for a process that begins to look later."""
        with contextlib.suppress(OSError):  # of a full disk: then all that is there is new
            write_json(path, self._before, indent=None)

    def as_kept(self, path: Path) -> "Checkpoints":
        """Compare with what was written down; return itself."""
        self._before = {}
        with contextlib.suppress(OSError, DamagedFileError, ValueError, TypeError):
            for name, (moment, number, size) in dict(read_json(path)).items():
                self._before[name] = int(moment), int(number), int(size)
        return self

    def _seen(self) -> dict[str, Mark]:
        found = ((path, _mark(Path(path))) for path in self._paths())
        return {path: mark for path, mark in found if mark is not None}

    def _paths(self) -> Iterator[str]:
        yield from (str(path) for path in islice(_entries(self._run_dir / "checkpoints"), _MOST))
        for start in (self._cwd, self._run_dir) if self._pattern else ():
            pattern = glob.escape(str(start)) + "/" + str(self._pattern)
            pattern = str(self._pattern) if str(self._pattern).startswith("/") else pattern
            yield from islice(glob.iglob(pattern, recursive=True), _MOST)  # noqa: PTH207


def _mark(path: Path) -> Mark | None:
    """Return what changes when a file is written, or a file in a folder; None: it is not there."""
    marks = []
    for one in (path, *islice(_entries(path), _MOST)):
        try:
            status = one.stat()
        except OSError:
            continue
        marks.append((status.st_mtime_ns, status.st_ino, status.st_size))
    return max(marks, default=None)


def _entries(folder: Path) -> Iterator[Path]:
    try:
        yield from folder.iterdir()
    except OSError:
        return  # it is a file, or is not there
