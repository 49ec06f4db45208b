"""The files of a project: those that git knows or would offer to add; outside git, all.

What looks like a secret, links that lead elsewhere, environments, runs and caches are left out.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import field
from pathlib import Path
from typing import NamedTuple

from hpckit.code.ignore import GITIGNORE
from hpckit.code.project import Project
from hpckit.code.rules import Kept, Place, unreadable
from hpckit.collections.collection import CodeRules
from hpckit.frozen import changeable
from hpckit.gitfiles.index import MAX_FILES
from hpckit.paths import is_there

# A folder outside git may be anything: it is looked through for no longer than a moment.
MAX_PLAIN_FILES = 20_000
_NEVER = frozenset(
    (".git", ".hg", ".svn", ".bzr", "__pycache__", ".mypy_cache", ".ruff_cache", ".code",
     ".pytest_cache", ".ipynb_checkpoints", ".tox", ".nox", ".eggs", ".DS_Store",
     "hpckit-samples")  # of `hpckit sample`
)  # fmt: skip
_BYTECODE = (".pyc", ".pyo")
_MOST_LINKS = 300  # to what is left out
_OPEN = stat.S_IROTH | stat.S_IXOTH


class Seen(NamedTuple):
    """A file of a project: its path in it, and what tells one version of it from another."""

    path: str
    executable: bool
    open: bool  # others may read it, and reach it
    size: int
    changed_ns: int
    stamp: str
    needed: bool  # git tracks it, or it is the program: it may not be gone a moment later


def stamp(status: os.stat_result) -> str:
    """Return what tells one version of a file from another, with a blank at its end."""
    return f"{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns} {status.st_ino} "


@changeable(kw_only=True)
class Found:
    """What a look at a project found.

    Attributes:
        files: what is kept. links: of those in the project, where they lead.
        folders: those of files that are kept, and whether others may read them.
        left: what is left out, and may be missed beside the code: files and folders.
        secrets, outward, odd: what of it looks like a secret, leads out of the project, or is
            neither file nor folder.
    """

    project: Project
    files: list[Seen] = field(default_factory=list)
    links: dict[str, str] = field(default_factory=dict)
    folders: dict[str, bool] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)
    secrets: list[str] = field(default_factory=list)
    outward: list[str] = field(default_factory=list)
    odd: list[str] = field(default_factory=list)
    met: int = 0  # files and folders, those that are left out among them

    @property
    def bytes(self) -> int:
        """The bytes of all files together."""
        return sum(row.size for row in self.files)

    def lasting(self) -> list[str]:
        """Return what is left out, a folder of which nothing is kept as one; no more than a few."""
        rows = dict.fromkeys(_topmost(path, self.folders) for path in self.left)
        return list(rows)[:_MOST_LINKS]

    def beside(self, runs: Path) -> Iterator[tuple[Path, str, list[str]]]:
        """Yield folders over the project, each with its path in the tree, and names in it.

        Those on the way to the project and runs are left out; hidden ones come first.
        """
        room, below, real = _MOST_LINKS, self.project.root, os.path.realpath(runs)
        for folder, path in self.project.over():
            with suppress(PermissionError):  # passed, but not read: its names are unknown
                names = [
                    name
                    for name in _names(folder)
                    if name != below.name and os.path.join(folder, name) != real  # noqa: PTH118
                    if str(folder) != real or not is_there(folder / name / "run.json")
                ][:room]
                room -= len(names)
                yield folder, path, names
            below = folder


class TooManyError(Exception):
    """A project has more files than are kept; `found` are those up to there."""

    def __init__(self, found: Found) -> None:
        super().__init__(f"over {len(found.files)} files")
        self.found = found


def find_files(project: Project, rules: CodeRules, runs: Path | None = None) -> Found:
    """Look a project through; `runs` is the folder of runs, which is none of it.

    Raises:
        OutsideError: something cannot be read. TooManyError: it has too many files.
    """
    look = _Look(project, rules, runs)
    if project.alone and project.file:
        look.alone(project.file)
    else:
        look.through()
    found = look.found
    found.folders = _with_parents(found)
    return found


class _Look:
    """One look through a project."""

    def __init__(self, project: Project, rules: CodeRules, runs: Path | None) -> None:
        self.found = Found(project=project)
        self._root = str(project.root)
        self._most = MAX_FILES if project.git else MAX_PLAIN_FILES
        self._runs = os.path.realpath(runs) if runs else None
        self._kept = Kept(project, rules)
        self.found.secrets = self._kept.secrets

    def through(self) -> None:
        """Find all of it."""
        first = Place("", _reached(self._root), False, False, "", (), frozenset(), frozenset())
        try:
            ahead = [first]
            while ahead:
                ahead += self._listed(ahead.pop())
        except OSError as error:
            raise unreadable(error.filename or self._root, error) from error

    def alone(self, file: Path) -> None:
        """Take one file, and remember what lies beside it."""
        names: list[str] = []
        try:
            self._take(file.name, file.stat(), open_here=_reached(self._root), needed=True)
            with suppress(PermissionError):  # passed, but not read: a colleague's home
                names = _names(self._root)
        except OSError as error:
            raise unreadable(error.filename or str(file), error) from error
        self.found.left += [name for name in names if name != file.name][:_MOST_LINKS]

    def _listed(self, place: Place) -> Iterator[Place]:
        """Take a folder's files, and yield those of its folders that are to be looked through."""
        try:
            with os.scandir(f"{self._root}/{place.path}") as found:
                entries = sorted(found, key=lambda row: row.name)
        except FileNotFoundError:
            if self._kept.is_needed(place, place.path.rstrip("/")):
                raise
            return  # as below
        names = {entry.name for entry in entries}
        if place.path and (_is_no_project(names) or self._holds_runs(place, names)):
            return
        place = self._kept.entered(place, names)
        for entry in entries:
            if entry.name in _NEVER or entry.name.endswith(_BYTECODE):
                continue
            self.found.met += 1
            # Of a work tree only what is kept counts.
            if (len(self.found.files) if self.found.project.git else self.found.met) > self._most:
                raise TooManyError(self.found)
            try:
                if inner := self._looked_at(place, entry):
                    yield inner
            except FileNotFoundError:  # what another program had there for a moment
                if self._kept.is_needed(place, place.path + entry.name):
                    raise

    def _holds_runs(self, place: Place, names: set[str]) -> bool:
        """Say whether hpckit made a folder for runs: what it wrote beside them is no code either.

        In a work tree git ignores all of it.
        """
        if self.found.project.git or not names >= {".code", GITIGNORE}:
            return False
        store = f"{self._root}/{place.path}.code/trees"
        return os.path.isdir(store) and not self._kept.is_needed(place, place.path.rstrip("/"))  # noqa: PTH112

    def _looked_at(self, place: Place, entry: "os.DirEntry[str]") -> Place | None:
        """Take or leave a file; return a folder that is to be looked through."""
        if not entry.is_symlink() and entry.is_dir():
            return self._folder(place, entry)
        if self._kept.file(place, entry.name):
            self._file(place, entry)
        else:
            self.found.left.append(place.path + entry.name)
        return None

    def _folder(self, place: Place, entry: "os.DirEntry[str]") -> Place | None:
        if self._runs and os.path.realpath(entry.path) == self._runs:
            return None
        inner = self._kept.inner(place, entry.name)
        if inner is None:
            self.found.left.append(place.path + entry.name)
            return None
        mode = entry.stat(follow_symlinks=False).st_mode
        return inner._replace(open=place.open and mode & _OPEN == _OPEN)

    def _file(self, place: Place, entry: "os.DirEntry[str]") -> None:
        path = place.path + entry.name
        status = entry.stat(follow_symlinks=False)
        if stat.S_ISREG(status.st_mode):
            needed = self._kept.is_needed(place, path)
            self._take(path, status, open_here=place.open, needed=needed)
        elif stat.S_ISLNK(status.st_mode):
            self._link(path, entry.path)
        else:
            self.found.odd.append(path)

    def _take(self, path: str, status: os.stat_result, *, open_here: bool, needed: bool) -> None:
        mode = status.st_mode
        self.found.files.append(
            Seen(path, bool(mode & 0o100), open_here and bool(mode & stat.S_IROTH), status.st_size,
                 max(status.st_mtime_ns, status.st_ctime_ns), stamp(status), needed)
        )  # fmt: skip

    def _link(self, path: str, place: str) -> None:
        """Keep a link that leads to something in the project; its way there is made relative."""
        target = os.path.realpath(place)
        if target != self._root and not target.startswith(self._root + "/"):
            self.found.outward.append(path)
            self.found.left.append(path)
            return
        folder = os.path.dirname(f"{self._root}/{path}")  # noqa: PTH120
        self.found.links[path] = os.path.relpath(target, folder)


def _names(folder: Path | str) -> list[str]:
    """Return what code may look for in a folder; `.env` and the like before much data."""
    names = {*os.listdir(folder)} - _NEVER  # noqa: PTH208  # names are enough
    return sorted(names, key=lambda name: (not name.startswith("."), name))


def _is_no_project(names: set[str]) -> bool:
    """Say whether a folder with such names is an environment, or a run."""
    return bool(names & {"pyvenv.cfg", "conda-meta"}) or names >= {"run.json", "job.sh"}


def _reached(root: str) -> bool:
    """Say whether everybody may go to a folder, and read it."""
    try:
        modes = [os.stat(each).st_mode for each in (root, *map(str, Path(root).parents))]  # noqa: PTH116
    except OSError:
        return False
    return modes[0] & _OPEN == _OPEN and all(mode & stat.S_IXOTH for mode in modes)


def _with_parents(found: Found) -> dict[str, bool]:
    """Return the folders of what is kept; one is open as long as a file in it is."""
    folders: dict[str, bool] = {}
    rows = [*((row.path, row.open) for row in found.files), *((path, True) for path in found.links)]
    for path, is_open in rows:
        folder = path.rpartition("/")[0]
        while folder and not (folder in folders and (folders[folder] or not is_open)):
            folders[folder] = is_open
            folder = folder.rpartition("/")[0]
    return folders


def _topmost(path: str, folders: dict[str, bool]) -> str:
    """Return a path, or the topmost folder over it of which nothing is kept."""
    parts = path.split("/")
    for count in range(1, len(parts)):
        folder = "/".join(parts[:count])
        if folder not in folders:
            return folder
    return path
