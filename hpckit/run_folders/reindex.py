"""The index of runs made anew from their folders, and rid of lines whose folders are gone.

The folders are the truth: nothing is written into them, and a line is taken out only where its
folder is certainly not there any more.
"""

import contextlib
import os
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from hpckit.errors import OutsideError
from hpckit.file_locks import held_alone
from hpckit.files import DamagedFileError, parse_json, read_text, replace_file
from hpckit.frozen import frozen
from hpckit.owners import is_mine
from hpckit.paths import is_folder
from hpckit.run_folders.index import (
    IndexEntry,
    entry_of,
    handed_over,
    index_line,
    index_path,
    read_index,
)
from hpckit.run_folders.runs import DamagedRun, Run, list_runs

# What a damaged line may still say of where its run is.
_DIR = re.compile(r'"dir": ("(?:[^"\\]|\\.)*")')


@frozen(kw_only=True)
class FolderFound:
    """A folder of runs as `rebuild` found it.

    Attributes:
        runs: the user's own in it. new: of these, such as were not in the index.
        damaged: those that cannot be read. error: why the folder itself cannot be, or "".
    """

    dir: Path
    runs: tuple[Run, ...] = ()
    new: int = 0
    damaged: tuple[DamagedRun, ...] = ()
    error: str = ""


@frozen(kw_only=True)
class Rebuilt:
    """An index made anew.

    Attributes:
        path: its file. folders: where runs were looked for, and what is there.
        dropped: lines taken out, of runs that are gone. torn: lines that were damaged.
        kept: lines left as they were, whose folders cannot be looked at now.
    """

    path: Path
    folders: tuple[FolderFound, ...]
    dropped: int
    torn: int
    kept: tuple[str, ...]


def known_roots() -> list[Path]:
    """Return the folders of runs that the index speaks of, damaged lines included."""
    entries, torn, _ = read_index()
    folders = [row.dir for row in entries]
    for line in torn:
        for match in _DIR.finditer(line):
            with contextlib.suppress(DamagedFileError):
                folders.append(parse_json(match[1]))
    with contextlib.suppress(OSError):
        for path in handed_over().iterdir():
            with contextlib.suppress(OSError, DamagedFileError):
                folders.append(read_text(path, most=8192).strip())
    parents = (Path(folder).parent for folder in folders if "\0" not in folder)
    return [path for path in dict.fromkeys(parents) if path.is_absolute()]


def distinct(roots: Iterable[Path]) -> list[Path]:
    """Return the folders that are there, each once, whatever links lead to it."""
    found = {os.path.realpath(path): path for path in reversed(list(roots)) if is_folder(path)}
    return list(reversed(found.values()))


def rebuild(roots: Sequence[Path]) -> Rebuilt:
    """Write the index anew: the user's own runs below `roots`, and lines that may still be right.

    Raises:
        OutsideError: it cannot be written, or another command keeps it locked.
    """
    folders = [_looked_at(root) for root in distinct(roots)]
    runs = sorted((run for row in folders for run in row.runs), key=lambda run: run.submitted_at)
    with held_alone(index_path(), "the index "):
        entries, torn, _ = read_index()
        there = {os.path.realpath(run.dir) for run in runs}
        others = {row.dir: row for row in entries if os.path.realpath(row.dir) not in there}
        kept = [row for row in others.values() if not is_gone(Path(row.dir))]
        _write(map(index_line, [*reversed(kept), *map(entry_of, runs)]))
    known = {os.path.realpath(row.dir) for row in entries}
    return Rebuilt(
        path=index_path(),
        folders=tuple(_counted(row, known) for row in folders),
        dropped=len(others) - len(kept),
        torn=len(torn),
        kept=tuple(row.dir for row in kept),
    )


def _looked_at(root: Path) -> FolderFound:
    """Return the user's own runs of a folder; colleagues' come after them in the list."""
    damaged: list[DamagedRun] = []
    runs: list[Run] = []
    try:
        for run in list_runs(root, damaged):
            if not is_mine(run.dir):
                break
            runs += [run] if run.mine else []
    except OutsideError as error:
        return FolderFound(dir=root, error=str(error))
    return FolderFound(
        dir=root, runs=tuple(runs), damaged=tuple(row for row in damaged if is_mine(row.dir))
    )


def _counted(row: FolderFound, known: Collection[str]) -> FolderFound:
    new = sum(os.path.realpath(run.dir) not in known for run in row.runs)
    return replace(row, new=new)


def forget_gone(removed: Collection[str] = ()) -> int:
    """Take out the lines of runs that are gone, and of folders just removed; return how many.

    Raises:
        OutsideError: the index cannot be written, or another command keeps it locked.
    """

    def stale(row: IndexEntry) -> bool:
        return row.dir in removed or is_gone(Path(row.dir))

    if not any(map(stale, read_index()[0])):
        return 0
    with held_alone(index_path(), "the index "):
        entries, torn, _ = read_index()
        kept = [row for row in reversed(entries) if not stale(row)]
        # What is damaged stays for `rebuild`, which still can read the folder in it.
        _write([*(f"{line}\n" for line in torn), *map(index_line, kept)])
    return len(entries) - len(kept)


def is_gone(folder: Path) -> bool:
    """Say whether a run's folder is certainly removed.

    It is not where the folder around it is missing or empty: its file system may not be mounted.
    """
    try:
        folder.lstat()
    except FileNotFoundError:
        with contextlib.suppress(OSError), os.scandir(folder.parent) as beside:
            return any(beside)
    except (OSError, ValueError):
        return False
    return False


def _write(lines: Iterable[str]) -> None:
    replace_file(index_path(), "".join(lines), mode=0o600)
