"""Whether a checkout's files are those of its commit: index against commit, files against index."""

import os
import re
import stat
from functools import cache
from pathlib import Path

from hpckit.files import DamagedFileError, open_regular, read_bytes
from hpckit.frozen import changeable
from hpckit.gitfiles.index import (
    FOLDER,
    LINK,
    MAX_FILES,
    SUBMODULE,
    Index,
    IndexEntry,
    object_id,
    read_index,
    sum_of,
    tree_of,
)
from hpckit.gitfiles.repository import (
    Repository,
    id_bytes,
    read_head,
    read_settings,
    repository_at,
    settings_in,
    tree_of_commit,
)

_MAX_DEPTH = 5  # of submodules in submodules
_MAX_HASHED = 256 * 2**20  # bytes read in all, of files that look touched
_MAX_ATTRIBUTES = 2**20
_CONVERTS = rb"\b(?:filter|ident|working-tree-encoding)\b"
_LINE_ENDS = rb"\b(?:text|eol|crlf)\b"
_SUFFIX = rb"\*(\.[\w.]+)"


@changeable(kw_only=True)
class _Budget:
    """What a checkout and its submodules may cost together."""

    files: int = MAX_FILES
    bytes: int = _MAX_HASHED
    depth: int = _MAX_DEPTH

    def take(self, *, files: int = 0, bytes: int = 0) -> None:
        self.files -= files
        self.bytes -= bytes
        if self.files < 0:
            raise DamagedFileError(f"it has over {MAX_FILES} files in all")
        if self.bytes < 0:
            raise DamagedFileError(f"over {_MAX_HASHED} bytes would have to be compared")


def is_changed(
    repository: Repository,
    commit: str | None,
    *,
    script: Path | None = None,
    budget: _Budget | None = None,
) -> bool:
    """Say whether any file that git knows of is not as in the commit; others are not looked for.

    `script` is a file of the checkout that git should know of: if not, no commit has it.

    Raises:
        OSError: something cannot be read. DamagedFileError: it is not known, and why; a filter,
            which is not run, may have made one file of another.
    """
    width = id_bytes(repository)
    index = read_index(repository.own / "index", width)
    if not all(entry.settled and not entry.intended for entry in index.entries):
        return True
    if script is not None and not _knows(index, repository, script):
        return True
    if commit is None:
        return bool(index.entries)
    tree = index.tree or tree_of(index.entries, width)
    if tree != tree_of_commit(repository.common / "objects", commit):
        return True
    budget = budget or _Budget()
    budget.take(files=len(index.entries))
    return _Look(repository, index, budget).any_changed()


def _knows(index: Index, repository: Repository, script: Path) -> bool:
    """Say whether git knows of a file; of one that is not there, or elsewhere, that it may."""
    if not script.is_file():
        return True
    place = script.parent.resolve() / script.name  # a link is known as the link that it is
    path = os.fsencode(os.path.relpath(place, repository.root.resolve()))
    if path.startswith(b"../"):
        return True
    return any(
        path.startswith(entry.path) if entry.mode == FOLDER else entry.path == path
        for entry in index.entries
    )


class _Look:
    """One look at a checkout's files, with what it has read so far."""

    def __init__(self, repository: Repository, index: Index, budget: _Budget) -> None:
        self._root = os.fsencode(repository.root) + b"/"
        self._index = index
        self._budget = budget
        self._settings = read_settings(repository)
        self._conversions = _Conversions(repository, self._settings)
        self._are_folders = cache(self._are_folders_themselves)

    def any_changed(self) -> bool:
        unknown: DamagedFileError | None = None
        for entry in self._index.entries:
            try:
                if self._changed(entry):
                    return True
            except DamagedFileError as error:  # another file may be changed for certain
                unknown = error
        if unknown:
            raise unknown
        return False

    def _changed(self, entry: IndexEntry) -> bool:
        path = self._root + entry.path  # bytes: a Path for each of many files takes longer
        if entry.mode == FOLDER:  # all of it left out of a sparse checkout
            if _holds_files(path):  # put there since; the index does not say what they should be
                name = os.fsdecode(entry.path)
                raise DamagedFileError(f"its sparse checkout leaves out {name!r}, which has files")
            return False
        try:
            status = os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            return not entry.skipped
        if not self._are_folders(entry.path.rpartition(b"/")[0]):
            return True
        if entry.mode == SUBMODULE:
            return not stat.S_ISDIR(status.st_mode) or self._submodule(
                Path(os.fsdecode(path)), entry
            )
        if self._kind(entry, status) != entry.mode:
            return True
        return not self._untouched(entry, status) and self._differs(path, entry, status)

    def _are_folders_themselves(self, folder: bytes) -> bool:
        """Say whether a folder in the checkout, and each above it, is one and not a link to one."""
        folders = _folders_over(folder + b"/") if folder else []
        return all(stat.S_ISDIR(os.lstat(self._root + each).st_mode) for each in folders)

    def _submodule(self, path: Path, entry: IndexEntry) -> bool:
        inner = repository_at(path)
        if inner is None:  # not fetched
            return False
        commit = read_head(inner)[1]
        if commit != entry.blob.hex():
            return True
        if not self._budget.depth:
            raise DamagedFileError(f"it has submodules in submodules over {_MAX_DEPTH} deep")
        self._budget.depth -= 1
        changed = is_changed(inner, commit, budget=self._budget)
        self._budget.depth += 1
        return changed

    def _kind(self, entry: IndexEntry, status: os.stat_result) -> int:
        """Return a file's mode as git has it; what a setting tells git not to see is as before."""
        if stat.S_ISLNK(status.st_mode):
            return LINK
        if not stat.S_ISREG(status.st_mode):
            return 0
        if entry.mode == LINK and self._settings.get("symlinks") == "false":
            raise DamagedFileError("it keeps links as files")
        if entry.mode != LINK and self._settings.get("filemode") == "false":
            return entry.mode
        return 0o100755 if status.st_mode & 0o100 else 0o100644

    def _untouched(self, entry: IndexEntry, status: os.stat_result) -> bool:
        """Say whether a file is as git last saw it.

        One written when or after the index was may have changed within the clock's tick.
        """
        changed_s, changed_ns, written_s, written_ns, _, inode, *_, size = entry.seen
        now = (status.st_ctime_ns, status.st_mtime_ns, status.st_ino % 2**32)
        then = (changed_s * 10**9 + changed_ns, written_s * 10**9 + written_ns, inode)
        same = now == then and status.st_size % 2**32 == size
        return same and status.st_mtime_ns < self._index.written_ns

    def _differs(self, path: bytes, entry: IndexEntry, status: os.stat_result) -> bool:
        """Compare a file's content with the index's; raise where a filter may lie between."""
        if entry.mode == LINK:
            target = os.readlink(path)  # noqa: PTH115 - Path would tidy it up
            return object_id(b"blob", target, len(entry.blob)) != entry.blob
        self._budget.take(bytes=status.st_size)
        digest, has_returns = _hashed(Path(os.fsdecode(path)), status.st_size, len(entry.blob))
        if digest == entry.blob:
            return False
        if self._conversions.may_touch(entry.path, has_returns=has_returns):
            name = os.fsdecode(entry.path)
            raise DamagedFileError(f"git converts {name!r} by attributes or filters, not run here")
        return True


class _Conversions:
    """What may make a file's content another in git: settings and attributes; none is carried out.

    Their meaning is not worked out: what may convert a file is enough not to call it changed.
    """

    def __init__(self, repository: Repository, settings: dict[str, str]) -> None:
        xdg = os.environ.get("XDG_CONFIG_HOME")
        home = Path(os.path.expanduser("~"))  # noqa: PTH111  # Path.home raises where there is none
        own = Path(xdg or home / ".config") / "git"
        self._root = repository.root
        self._settings = settings
        self._own_settings = cache(lambda: settings_in(own / "config", home / ".gitconfig"))
        places = Path("/etc/gitattributes"), own / "attributes"
        self._places = (*places, repository.common / "info" / "attributes")
        self._rules = cache(_rules)

    def may_touch(self, path: bytes, *, has_returns: bool) -> bool:
        known = self._own_settings() | self._settings
        if "attributesfile" in known or (has_returns and known.get("autocrlf", "false") != "false"):
            return True
        folders = (b"", *_folders_over(path))
        places = [self._root / os.fsdecode(folder) / ".gitattributes" for folder in folders]
        return any(
            re.search(_CONVERTS, rule) or (has_returns and re.search(_LINE_ENDS, rule))
            for place in (*self._places, *places)
            for rule in self._rules(place)
            if _may_mean(rule, path)
        )


def _holds_files(folder: bytes) -> bool:
    """Say whether anything but folders lies at a path."""
    place = Path(os.fsdecode(folder))
    if place.is_symlink() or not place.is_dir():
        return os.path.lexists(place)
    return any(files for _, _, files in os.walk(place))


def _folders_over(path: bytes) -> list[bytes]:
    names = path.split(b"/")[:-1]
    return [b"/".join(names[: count + 1]) for count in range(len(names))]


def _rules(path: Path) -> tuple[bytes, ...]:
    return tuple(read_bytes(path, most=_MAX_ATTRIBUTES).split(b"\n")) if path.exists() else ()


def _may_mean(rule: bytes, path: bytes) -> bool:
    """Say whether a line of attributes may be of a file: only `*.suffix` is looked into."""
    words = rule.split()
    if not words or words[0].startswith(b"#"):
        return False
    suffix = re.fullmatch(_SUFFIX, words[0])
    return suffix is None or path.lower().endswith(suffix[1].lower())


def _hashed(path: Path, size: int, id_bytes: int) -> tuple[bytes, bool]:
    """Return a file's blob id, and whether it holds carriage returns; at most `size` bytes."""
    digest = sum_of(id_bytes)(b"blob %d\0" % size, size)
    has_returns = False
    with open_regular(path) as stream:
        while size > 0 and (piece := stream.read(min(size, 2**20))):
            digest.update(piece)
            has_returns = has_returns or b"\r" in piece
            size -= len(piece)
    return digest.digest(), has_returns
