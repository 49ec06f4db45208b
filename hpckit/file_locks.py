"""Locks on a user's own files, and appending to files that several processes write to."""

import errno
import fcntl
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from hpckit.errors import OutsideError
from hpckit.files import DamagedFileError, only_regular, reason

_LOCK = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_APPEND = _LOCK | os.O_APPEND
# Appending a line, or replacing the file, takes milliseconds.
_LOCKED_S, _AGAIN_S = 5.0, 0.01


def open_to_lock(path: Path | str) -> IO[bytes]:
    """Open a file to be locked by flock(2), and create it if it is missing; follow no link.

    Raises:
        OSError: it cannot be opened. DamagedFileError: it is a link, or not a regular file.
    """
    try:
        descriptor = os.open(path, _LOCK, 0o644)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise DamagedFileError("it is a link, and nothing is written through links") from error
        raise
    return only_regular(descriptor)


def open_locked(path: Path | str, *, shared: bool) -> IO[bytes] | None:
    """Open a user's own file as `open_to_lock` does, and lock it, or return None if others have.

    It is locked while it is open, here or in a child that it was passed to. Where the file system
    has no locks, it is not, and keeps nobody out.

    Raises:
        OSError: it cannot be opened. DamagedFileError: it is not a regular file.
    """
    file = open_to_lock(path)
    if locks(file.fileno(), fcntl.LOCK_SH if shared else fcntl.LOCK_EX) is False:
        file.close()
        return None
    return file


@contextmanager
def held_to_append(path: Path | str) -> Iterator[tuple[int, bool | None]]:
    """Open a user's own file for appending, and lock it; create it if it is missing.

    Yield its descriptor, and whether it is locked: False where another process, which may have been
    stopped, keeps the lock; None where the file system has no locks. A process that replaces the
    file holds its lock, so the file opened here is the one that the path names. No link is
    followed.

    Raises:
        OSError: it cannot be opened. DamagedFileError: it is not a regular file.
    """
    with _held(path, _APPEND, 0o600, fcntl.LOCK_EX, _LOCKED_S) as held:
        yield held


@contextmanager
def locked(path: Path | str, *, shared: bool, patience_s: float) -> Iterator[bool | None]:
    """Lock a user's own file, for this process alone or `shared`; create it if it is missing.

    Yield whether it is locked, as `held_to_append` does. No link is followed.

    Raises:
        OSError: it cannot be opened. DamagedFileError: it is not a regular file.
    """
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    with _held(path, _LOCK, 0o644, kind, patience_s) as (_, held):
        yield held


@contextmanager
def _held(
    path: Path | str, flags: int, mode: int, kind: int, patience_s: float
) -> Iterator[tuple[int, bool | None]]:
    now = time.monotonic()
    until, settled = now + patience_s, now + max(patience_s, _LOCKED_S)
    while True:
        descriptor = os.open(path, flags, mode)
        try:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                raise DamagedFileError("it is not a regular file")
            held = locks(descriptor, kind)
            if held and not _stands_at(path, found) and time.monotonic() < settled:
                continue  # it was removed or replaced before it was locked
            if held is not False or time.monotonic() >= until:
                yield descriptor, held
                return
        finally:
            os.close(descriptor)
        time.sleep(_AGAIN_S)


@contextmanager
def held_alone(path: Path, what: str = "") -> Iterator[int]:
    """Open and lock a user's own file as `held_to_append` does, and create its folder, or fail.

    Yield its descriptor. In errors, `what` ("the index ") stands before its path.

    Raises:
        OutsideError: it cannot be written, or another command keeps it locked.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with held_to_append(path) as (descriptor, held):
            if held is False:
                raise OutsideError(
                    f"Another command keeps {what}{path} locked: run this again later."
                )
            yield descriptor
    except (OSError, DamagedFileError) as error:
        ours = isinstance(error, OSError) and error.errno not in (errno.EISDIR, errno.ELOOP)
        todo = "Nothing in it was changed." if ours else "Remove what stands in its place."
        raise OutsideError(
            f"{what.capitalize()}{path} cannot be written: {reason(error)}. {todo}"
        ) from error


def locks(descriptor: int, kind: int) -> bool | None:
    """Lock a file; False: another process has locked it. None: it cannot be locked at all."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _stands_at(path: Path | str, found: os.stat_result) -> bool:
    """Say whether a path still names the file that was opened."""
    try:
        return os.path.samestat(os.lstat(path), found)
    except OSError:
        return False


def append_lines(descriptor: int, lines: bytes) -> None:
    """Append whole lines with one write; where the last line was cut off, begin a new one.

    Raises:
        OSError: they cannot be written. What was written of them is removed again, unless another
            process has appended meanwhile.
    """
    size = os.fstat(descriptor).st_size
    whole = size == 0 or os.pread(descriptor, 1, size - 1) == b"\n"
    text = lines if whole else b"\n" + lines
    written = os.write(descriptor, text)
    if written != len(text):
        if os.fstat(descriptor).st_size == size + written:  # nobody else has written meanwhile
            os.ftruncate(descriptor, size)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
