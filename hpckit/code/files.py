"""Which files are a project's: those that git knows or would offer to add; outside git, all.

What looks like a secret, links that lead elsewhere, environments, runs and caches are left out.
"""

import os
import stat
from collections.abc import Iterator
from dataclasses import field
from pathlib import Path
from typing import NamedTuple

from hpckit.code.ignore import GITIGNORE, Patterns, outer_patterns, patterns, patterns_of
from hpckit.code.project import Project
from hpckit.code.secrets import looks_secret
from hpckit.collections.collection import CodeRules
from hpckit.errors import OutsideError
from hpckit.files import DamagedFileError, reason
from hpckit.frozen import changeable
from hpckit.gitfiles.index import FOLDER, MAX_FILES, read_index
from hpckit.gitfiles.repository import repository_at

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


class _Place(NamedTuple):
    """A folder on the way: what holds in it."""

    path: str  # from the root, with a slash at its end; "" is the root
    open: bool
    ignored: bool  # by git, or a rule: only what is tracked or included is kept
    included: bool
    base: str  # the work tree's that it is in: of a submodule its own
    ignores: tuple[tuple[str, Patterns], ...]  # the innermost first
    tracked: frozenset[str]  # files, from the root
    above: frozenset[str]  # folders of these


class _Look:
    """One look through a project."""

    def __init__(self, project: Project, rules: CodeRules, runs: Path | None) -> None:
        self.found = Found(project=project)
        self._root = str(project.root)
        self._most = MAX_FILES if project.git else MAX_PLAIN_FILES
        self._runs = os.path.realpath(runs) if runs else None
        self._include, self._exclude = patterns(rules.include), patterns(rules.exclude)
        self._ahead = _folders_ahead(rules.include)
        self._program = _and_above(project)

    def through(self) -> None:
        """Find all of it."""
        first = _Place("", _reached(self._root), False, False, "", (), frozenset(), frozenset())
        try:
            ahead = [first]
            while ahead:
                ahead += self._listed(ahead.pop())
        except OSError as error:
            raise unreadable(error.filename or self._root, error) from error

    def alone(self, file: Path) -> None:
        """Take one file, and remember what lies beside it."""
        try:
            self._take(file.name, file.stat(), open_here=_reached(self._root), needed=True)
            names = sorted(os.listdir(self._root))  # noqa: PTH208  # names are enough
        except OSError as error:
            raise unreadable(error.filename or str(file), error) from error
        plain = (name for name in names if not name.startswith((".", "__pycache__")))
        self.found.left += [name for name in plain if name != file.name][:_MOST_LINKS]

    def _entered(self, place: _Place, names: set[str]) -> _Place:
        """Read what a folder with such names says itself of what is in it."""
        if not self.found.project.git:
            return place
        if place.path == "" or ".git" in names:
            place = self._work_tree(place)
        if GITIGNORE not in names:
            return place
        try:
            own = patterns_of(f"{self._root}/{place.path}{GITIGNORE}")
        except (OSError, DamagedFileError) as error:
            raise unreadable(f"{self._root}/{place.path}{GITIGNORE}", error) from error
        return place._replace(ignores=((place.path, own), *place.ignores)) if own else place

    def _work_tree(self, place: _Place) -> _Place:
        """Return a place as the topmost folder of a work tree: the project's, or a submodule's."""
        folder = Path(self._root, place.path)
        try:
            repository = repository_at(folder)
            if repository is None:
                return place
            ignores = tuple((place.path, row) for row in reversed(outer_patterns(repository)))
            entries = read_index(repository.own / "index").entries
        except (OSError, DamagedFileError) as error:
            raise OutsideError(
                f"Which files of {str(folder)!r} git knows cannot be read: {reason(error)}. "
                "--no-code submits without a copy of the code."
            ) from error
        # Of a folder that a sparse checkout leaves out the index names no file.
        named = (row.path for row in entries if row.mode != FOLDER)
        tracked = frozenset(place.path + os.fsdecode(path).rstrip("/") for path in named)
        return place._replace(
            base=place.path, ignores=ignores, tracked=tracked, above=_folders_over(tracked)
        )

    def _listed(self, place: _Place) -> Iterator[_Place]:
        """Take a folder's files, and yield those of its folders that are to be looked through."""
        try:
            with os.scandir(f"{self._root}/{place.path}") as found:
                entries = sorted(found, key=lambda row: row.name)
        except FileNotFoundError:
            if self._is_needed(place, place.path.rstrip("/")):
                raise
            return  # as below
        names = {entry.name for entry in entries}
        if place.path and (_is_no_project(names) or self._holds_runs(place, names)):
            return
        place = self._entered(place, names)
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
                if self._is_needed(place, place.path + entry.name):
                    raise

    def _holds_runs(self, place: _Place, names: set[str]) -> bool:
        """Say whether hpckit made a folder for runs: what it wrote beside them is no code either.

        In a work tree git ignores all of it.
        """
        if self.found.project.git or not names >= {".code", GITIGNORE}:
            return False
        store = f"{self._root}/{place.path}.code/trees"
        return os.path.isdir(store) and not self._is_needed(place, place.path.rstrip("/"))  # noqa: PTH112

    def _looked_at(self, place: _Place, entry: "os.DirEntry[str]") -> _Place | None:
        """Take or leave a file; return a folder that is to be looked through."""
        if not entry.is_symlink() and entry.is_dir():
            return self._folder(place, entry)
        if self._kept(place, entry.name):
            self._file(place, entry)
        else:
            self.found.left.append(place.path + entry.name)
        return None

    def _is_needed(self, place: _Place, path: str) -> bool:
        """Say whether the code is not whole without something: git tracks it, or it is run."""
        return path in self._program or path in place.tracked or path in place.above

    def _folder(self, place: _Place, entry: "os.DirEntry[str]") -> _Place | None:
        path = place.path + entry.name
        if self._runs and os.path.realpath(entry.path) == self._runs:
            return None
        included = place.included or bool(self._include and self._include.match(path + "/"))
        if not included and looks_secret(entry.name, folder=True):
            self.found.secrets.append(path)
            self.found.left.append(path)
            return None
        ignored = not included and (place.ignored or self._is_left(place, path + "/"))
        known = path in place.above or path in place.tracked  # the latter is a submodule
        if ignored and not (known and not self._excluded(path + "/")) and path not in self._ahead:
            self.found.left.append(path)
            return None
        shown = place.open and entry.stat(follow_symlinks=False).st_mode & _OPEN == _OPEN
        return place._replace(
            path=path + "/",
            open=shown,
            ignored=ignored and path not in place.tracked,
            included=included,
        )

    def _kept(self, place: _Place, name: str) -> bool:
        path = place.path + name
        if place.included or (self._include and self._include.match(path)):
            return not (place.included and looks_secret(name) and not self._named(path))
        if looks_secret(name):
            self.found.secrets.append(path)
            return False
        if self._excluded(path):
            return False
        if path in place.tracked:
            return True
        return not (place.ignored or self._is_left(place, path))

    def _named(self, path: str) -> bool:
        if self._include and self._include.match(path):
            return True
        self.found.secrets.append(path)
        return False

    def _excluded(self, path: str) -> bool:
        return bool(self._exclude and self._exclude.match(path))

    def _is_left(self, place: _Place, path: str) -> bool:
        """Say whether a rule or git leaves a path out."""
        if self._excluded(path):
            return True
        for base, rows in place.ignores:
            verdict = rows.match(path[len(base) :])
            if verdict is not None:
                return verdict
        return False

    def _file(self, place: _Place, entry: "os.DirEntry[str]") -> None:
        path = place.path + entry.name
        status = entry.stat(follow_symlinks=False)
        if stat.S_ISREG(status.st_mode):
            needed = self._is_needed(place, path)
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


def _and_above(project: Project) -> frozenset[str]:
    """Return a project's program and the folders it is in, from the root, which is ""."""
    file = project.file
    if file is None or not file.is_relative_to(project.root):
        return frozenset({""})
    path = str(file.relative_to(project.root))
    return _folders_over(frozenset({path})) | {path, ""}


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


def _folders_over(paths: frozenset[str]) -> frozenset[str]:
    found: set[str] = set()
    for path in paths:
        folder = path.rpartition("/")[0]
        while folder and folder not in found:
            found.add(folder)
            folder = folder.rpartition("/")[0]
    return frozenset(found)


def _folders_ahead(include: tuple[str, ...]) -> frozenset[str]:
    """Return the folders in which something that is to be included may lie, as far as named."""
    found: set[str] = set()
    for text in include:
        parts = text.strip("/").split("/")
        whole = "/" in text.strip("/") or text.startswith("/")
        for count in range(1, len(parts)) if whole else ():
            if any(sign in parts[count - 1] for sign in "*?["):
                break
            found.add("/".join(parts[:count]))
    return frozenset(found)


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


def unreadable(path: str | Path, error: OSError | DamagedFileError) -> OutsideError:
    """Return the error of a file of the code that cannot be read."""
    return OutsideError(
        f"{str(path)!r} is part of the code and cannot be read: {reason(error)}. Let it be read "
        "(chmod u+r), leave it out (`code: {exclude: [...]}` in the project's hpckit.yaml), or "
        "submit without a copy of the code: --no-code."
    )
