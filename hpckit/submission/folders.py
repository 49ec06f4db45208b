"""Making the folders of a submission where no other user can put theirs in a folder's place.

A folder's name says nothing of what it leads to a moment later, if others may write the folder
around it. So the root is looked at first, and a folder once made is known by what it is: all that
is written goes through a descriptor, and only what was made here is ever removed.
"""

import contextlib
import errno
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from hpckit.errors import OutsideError
from hpckit.files import DamagedFileError, read_bytes
from hpckit.owners import is_mine_alone, strangers
from hpckit.run_folders.run_files import FOLDER_MODE, open_to_write

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Runs are no part of the project around them: `git status` would show them as new, `git add -A`
# take them in, and `git stash -u` move them away from under a job.
_IGNORED, _ALL = ".gitignore", b"*\n"
# What a run's folder is called while it is removed.
REMOVED = r"\..+\.removed\.[0-9a-f]{16}"
# A disk that refuses once may do as it is told the next time.
_REMOVALS = 2
Identity = tuple[int, int]


class Root:
    """A folder of runs, held open; `path` is its name for people and for Slurm."""

    def __init__(self, path: Path, descriptor: int, parents: list[tuple[Path, Identity]]) -> None:
        self.path = path
        self._descriptor = descriptor
        self._parents = parents  # made for it, outermost first
        # Whether this folder itself was made here, not only some above it. It is asked now, for
        # later its disk may give no answer.
        self._is_new = (path, _identity(os.fstat(descriptor))) in parents
        self._made: dict[str, Identity] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """What was made here."""
        return tuple(self._made)

    def let_git_ignore(self) -> None:
        """Have git ignore this folder if it was made here; one that was there is its owner's.

        Raises:
            OSError: the disk is full.
        """
        if self._is_new:
            path = Path(f"/proc/self/fd/{self._descriptor}") / _IGNORED
            with contextlib.suppress(FileExistsError), open_to_write(path, "xb") as stream:
                stream.write(_ALL)

    def make(self, name: str) -> None:
        """Make a run's folder.

        Raises:
            OSError: it cannot be made.
        """
        os.mkdir(name, FOLDER_MODE, dir_fd=self._descriptor)
        try:
            descriptor = os.open(name, _FOLDER, dir_fd=self._descriptor)
        except OSError:
            with contextlib.suppress(OSError):
                os.rmdir(name, dir_fd=self._descriptor)
            raise
        try:
            status = os.fstat(descriptor)
            # Another's, or one of ours that was moved here since: in a root that others may write.
            if not is_mine_alone(descriptor, status) or list(os.scandir(descriptor)):
                raise FileExistsError(errno.EEXIST, "it was replaced by another folder", name)
            self._made[name] = _identity(status)
        finally:
            os.close(descriptor)

    def close(self) -> None:
        """Hold it open no longer."""
        os.close(self._descriptor)

    @contextmanager
    def opened(self, name: str) -> Iterator[Path]:
        """Open a folder that was made here; give a path that leads into it whatever its name.

        Raises:
            OSError: it cannot be opened, or another is in its place.
        """
        descriptor = os.open(name, _FOLDER, dir_fd=self._descriptor)
        try:
            if _identity(os.fstat(descriptor)) != self._made[name]:
                raise FileNotFoundError(errno.ENOENT, "it was replaced by another folder", name)
            yield Path(f"/proc/self/fd/{descriptor}")
        finally:
            os.close(descriptor)

    def remove(self, before: Callable[[], None] = lambda: None) -> list[str]:
        """Remove what was made, and nothing else: whatever took its name since stays.

        `before` is called once the runs are gone, before the folders above them go.

        What cannot be removed stays too, and is returned: an error is on its way that says more.
        """
        left = [*self._made]
        for name, identity in self._made.items():
            for _ in range(_REMOVALS):
                with contextlib.suppress(OSError):
                    _remove(name, identity, self._descriptor)
                    left.remove(name)
                    break
        before()
        if self._is_new:
            _remove_ignored(self._descriptor)
        _remove_parents(self._parents)
        return left


@contextmanager
def held_root(path: Path, *, shared: bool = False) -> Iterator[Root]:
    """Make a folder of runs where it is missing, and hold it open; `shared` takes any.

    Raises:
        OutsideError: it cannot be made, or others could put their folders in a run's place.
    """
    parents: list[tuple[Path, Identity]] = []
    try:
        _refuse_strangers(path, shared=shared)
        _make_parents(path, parents)
        _refuse_strangers(path, shared=shared)  # somebody else may have been faster
        root = _opened_root(path, parents)
    except BaseException as error:
        _remove_parents(parents)
        if isinstance(error, OSError):
            raise OutsideError(
                f"Folder of runs {str(path)!r} cannot be made or entered: {error.strerror}. "
                "Choose another place with --runs DIR or HPCKIT_RUNS."
            ) from error
        raise
    try:
        yield root
    finally:
        root.close()


def _opened_root(path: Path, parents: list[tuple[Path, Identity]]) -> Root:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return Root(path, descriptor, parents)
    except OSError:
        os.close(descriptor)
        raise


def remove_run(folder: Path) -> None:
    """Remove a run's folder, if it is this user's own, and its root if that leaves it empty."""
    with contextlib.suppress(OSError):  # what cannot be removed stays
        root = os.open(folder.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            status = os.stat(folder.name, dir_fd=root, follow_symlinks=False)
            if is_mine_alone(folder, status):
                _remove(folder.name, _identity(status), root)
            _remove_ignored(root)
        finally:
            os.close(root)
        folder.parent.rmdir()  # refuses one that is not empty


def discard(folder: Path) -> None:
    """Remove a folder of this user's own for good; from the first moment on it is no run any more.

    What a kill leaves of it has a name by which `hpckit clean` finds it.

    Raises:
        OSError: it is another's, or something of it cannot be removed.
    """
    root = os.open(folder.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        status = os.stat(folder.name, dir_fd=root, follow_symlinks=False)
        if not stat.S_ISDIR(status.st_mode) or not is_mine_alone(folder, status):
            raise PermissionError(errno.EPERM, "it is not a folder that you alone can write")
        beside = folder.name
        if not re.fullmatch(REMOVED, beside):
            beside = f".{folder.name[:150]}.removed.{os.urandom(8).hex()}"
            os.rename(folder.name, beside, src_dir_fd=root, dst_dir_fd=root)
        _remove(beside, _identity(status), root)
    finally:
        os.close(root)


def _remove_ignored(root: int) -> None:
    """Remove what `Root.let_git_ignore` wrote, if nothing else is left in a folder of runs."""
    # What cannot be removed stays.
    with contextlib.suppress(OSError, DamagedFileError):
        alone = [entry.name for entry in os.scandir(root)] == [_IGNORED]
        # It is empty where the disk was full.
        if alone and read_bytes(_IGNORED, dir_fd=root) in {_ALL, b""}:
            os.unlink(_IGNORED, dir_fd=root)


def _refuse_strangers(path: Path, *, shared: bool) -> None:
    who = "" if shared else strangers(path)
    if who:
        raise OutsideError(
            f"Folder of runs {str(path)!r} is not safe: {who}, and so could put another script in "
            "place of yours. Name a folder that you alone write with --runs DIR or HPCKIT_RUNS, "
            "or have its owner (you or root) say `chmod g-w,o-w` or, for a folder that many "
            "share, `chmod +t`. (--skip-check shared-runs uses it anyway.)"
        )


def _make_parents(path: Path, made: list[tuple[Path, Identity]]) -> None:
    """Make a folder and what is missing above it, writable by this user alone.

    `made` gets what was missing, also when an error ends this.
    """
    missing = []
    while not os.path.lexists(path):
        missing.append(path)
        path = path.parent
    for folder in reversed(missing):
        with contextlib.suppress(FileExistsError):  # another submission's, in this moment
            folder.mkdir(mode=FOLDER_MODE)
            made.append((folder, _identity(folder.lstat())))


def _remove_parents(made: list[tuple[Path, Identity]]) -> None:
    """Remove what `_make_parents` has made, and is empty."""
    for path, identity in reversed(made):
        with contextlib.suppress(OSError):
            if _identity(path.lstat()) == identity:
                path.rmdir()


def _remove(name: str, identity: Identity, root: int) -> None:
    """Empty a folder through its descriptor, then remove the name if it still leads there."""
    descriptor = os.open(name, _FOLDER, dir_fd=root)
    try:
        if _identity(os.fstat(descriptor)) != identity:
            return
        for entry in list(os.scandir(descriptor)):
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.name, ignore_errors=True, dir_fd=descriptor)
            else:
                os.unlink(entry.name, dir_fd=descriptor)
    finally:
        os.close(descriptor)
    if _identity(os.stat(name, dir_fd=root, follow_symlinks=False)) == identity:
        os.rmdir(name, dir_fd=root)


def _identity(status: os.stat_result) -> Identity:
    return status.st_dev, status.st_ino
