"""Files and folders of a kept tree on the disk: read by pieces, written once, closed to changes."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from hpckit.code.rules import unreadable
from hpckit.code.tree import WHEN_NS

_PIECE = 2**20
_FEW = 64  # files: more of them are synced at once
READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def _opened(path: Path | str) -> Iterator[int]:
    opened = os.open(path, READ)
    try:
        yield opened
    finally:
        os.close(opened)


def pieces_of(opened: int, path: str) -> Iterator[bytes]:
    """Yield what an open file holds.

    Raises:
        OutsideError: the disk does not give it.
    """
    try:
        while piece := os.read(opened, _PIECE):
            yield piece
    except OSError as error:
        raise unreadable(path, error) from error


def status_of(opened: int, path: str) -> os.stat_result:
    """Return what an open file is.

    Raises:
        OutsideError: the disk does not say.
    """
    try:
        return os.fstat(opened)
    except OSError as error:
        raise unreadable(path, error) from error


def write_kept(path: Path | str, content: bytes, mode: int) -> None:
    """Write a new file of kept bytes."""
    descriptor = os.open(path, WRITE, 0o600)
    try:
        left = memoryview(content)
        while left:
            left = left[os.write(descriptor, left) :]
        seal(descriptor, mode)
    finally:
        os.close(descriptor)


def copy_kept(place: str, target: str, mode: int) -> None:
    """Copy an object, where it cannot be linked; by pieces, as it may be large."""
    source = os.open(place, READ)
    try:
        with os.fdopen(os.open(target, WRITE, 0o600), "wb") as stream:
            for piece in pieces_of(source, place):
                stream.write(piece)
            stream.flush()
            seal(stream.fileno(), mode)
    finally:
        os.close(source)


def finish_folder(folder: Path, mode: int) -> None:
    """Give a folder, with all that belongs in it, its time and its bits."""
    os.utime(folder, ns=(WHEN_NS, WHEN_NS))
    folder.chmod(mode)


def sync(folder: Path, paths: Sequence[str]) -> None:
    """Have files below a folder on the disk: each by itself, or many at once by syncfs(2).

    Raises:
        OSError: there is no room for them.
    """
    if len(paths) <= _FEW:
        for path in paths:
            with _opened(path) as opened:
                os.fsync(opened)
        return
    import ctypes  # noqa: PLC0415  # a project's first submission alone needs it

    with _opened(folder) as opened:
        call = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
        if call is None:
            os.sync()
        elif call(opened):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(folder))


def seal(descriptor: int, mode: int) -> None:
    """Give an open file, wholly written, its bits and the time of all that is kept."""
    os.fchmod(descriptor, mode)
    os.utime(descriptor, ns=(WHEN_NS, WHEN_NS))
