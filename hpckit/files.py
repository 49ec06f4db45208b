"""The one door for files that others may have written, and for files replaced whole.

In a shared folder a file's name says nothing of what is there: a pipe that never ends, a sparse
file of terabytes, JSON nested until the parser dies, a link to somebody's `.bashrc`. Everything
that is read from, or written into, such a folder goes through here.
"""

import errno
import fcntl
import functools
import json
import math
import os
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, ParamSpec

from hpckit.errors import OutsideError

# Far above what hpckit writes into one JSON file, far below what hurts a login node.
MAX_BYTES = 16 * 2**20
MAX_DEPTH = 40
# Python reads numbers of any length, in time quadratic in it; no field of ours needs more digits.
_MAX_DIGITS = 40
# With all digits written as 0: long numbers, those with a point or exponent; NULs, as of UTF-16.
_NOT_PLAIN = (b"0" * (_MAX_DIGITS + 1), b"0.", b"0e", b"0E", b"NaN", b"Infinity", b"\0")
_ZEROS = bytes.maketrans(b"123456789", b"000000000")
# What file systems say that do not flush folders on demand.
_CANNOT_FLUSH = frozenset({errno.EINVAL, errno.ENOTSUP, errno.EBADF, errno.EROFS})
# Bytes: less than the records and last lines of a few ranks.
_LITTLE_ROOM = 64_000
_Args = ParamSpec("_Args")
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_LOCK = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_APPEND = _LOCK | os.O_APPEND
# Who appends, or puts a new file in an old one's place, is done in milliseconds.
_LOCKED_S, _AGAIN_S = 5.0, 0.01


class DamagedFileError(ValueError):
    """A file is not what hpckit writes; the message says in which way, without its name."""


def open_regular(path: Path | str, *, dir_fd: int | None = None) -> IO[bytes]:
    """Open a regular file for reading, without ever waiting for a writer.

    Raises:
        OSError: it cannot be opened. DamagedFileError: it is no regular file.
    """
    try:
        descriptor = os.open(path, _READ, dir_fd=dir_fd)
    except ValueError as error:  # a name taken from a file may hold anything
        raise DamagedFileError("its name contains a NUL or half a letter") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise DamagedFileError("it is not a regular file")
    return os.fdopen(descriptor, "rb")


def open_to_lock(path: Path | str) -> IO[bytes]:
    """Open a file for reading and for flock(2), and make it if need be; no link is followed.

    Raises:
        OSError: it cannot be opened. DamagedFileError: it is a link, or no regular file.
    """
    try:
        descriptor = os.open(path, _LOCK, 0o644)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise DamagedFileError("it is a link, and nothing is written through links") from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise DamagedFileError("it is not a regular file")
    return os.fdopen(descriptor, "rb")


def _again_if_stale(read: Callable[_Args, bytes]) -> Callable[_Args, bytes]:
    """Read once more where NFS calls a file stale: another machine has just put a new one there."""

    @functools.wraps(read)
    def again(*args: _Args.args, **words: _Args.kwargs) -> bytes:
        try:
            return read(*args, **words)
        except OSError as error:
            if error.errno != errno.ESTALE:
                raise
            return read(*args, **words)

    return again


@_again_if_stale
def read_bytes(path: Path | str, *, most: int = MAX_BYTES, dir_fd: int | None = None) -> bytes:
    """Read a whole file of at most `most` bytes.

    Raises:
        OSError: it cannot be read. DamagedFileError: it is no regular file, or larger.
    """
    with open_regular(path, dir_fd=dir_fd) as stream:
        size = os.fstat(stream.fileno()).st_size
        content = stream.read(most + 1) if size <= most else b""
    if size > most or len(content) > most:
        raise DamagedFileError(f"it has {max(size, len(content))} bytes, over the {most} read here")
    return content


@_again_if_stale
def read_tail(path: Path | str, most: int, *, start: int = 0) -> bytes:
    """Read the last `most` bytes of a file, of those from byte `start` on.

    Raises:
        OSError: it cannot be read. DamagedFileError: it is no regular file.
    """
    with open_regular(path) as stream:
        stream.seek(max(start, os.fstat(stream.fileno()).st_size - most))
        return stream.read(most)


def chunks(
    path: Path | str,
    size: int,
    hole: Callable[[int], bytes],
    part: tuple[int, int] | None = None,
) -> Iterator[bytes]:
    """Yield a file of any length in pieces of `size` bytes; for a long hole, what `hole` says.

    `part` is from which byte on, and before which one. `hole` is given the number of its bytes. A
    hole costs its maker nothing, and may be longer than any disk.

    Raises:
        OSError: it cannot be read. DamagedFileError: it is no regular file.
    """
    with open_regular(path) as stream:
        descriptor = stream.fileno()
        at, end = part or (0, sys.maxsize)
        while chunk := os.pread(descriptor, min(size, max(end - at, 0)), at):
            yield chunk
            at += len(chunk)
            if len(chunk) == size and not chunk.strip(b"\0"):
                data = _next_data(descriptor, at)
                if data > at:
                    yield hole(data - at)
                    at = data


def _next_data(descriptor: int, at: int) -> int:
    """Return where the next byte stands that was written, or the file's end."""
    try:
        return os.lseek(descriptor, at, os.SEEK_DATA)
    except OSError as error:
        if error.errno == errno.ENXIO:  # nothing more
            return os.fstat(descriptor).st_size
        return at  # a file system that knows of no holes


def reason(error: OSError | DamagedFileError) -> str:
    """Return why a file cannot be read, without its name."""
    return (error.strerror or "unknown") if isinstance(error, OSError) else str(error)


def read_text(path: Path | str, *, most: int = MAX_BYTES, dir_fd: int | None = None) -> str:
    """Read a whole file of UTF-8.

    Raises:
        OSError: it cannot be read. DamagedFileError: it is no such file.
    """
    try:
        return read_bytes(path, most=most, dir_fd=dir_fd).decode("utf-8")
    except UnicodeDecodeError as error:
        raise DamagedFileError(f"byte {error.start} is not UTF-8") from error


def read_json(path: Path | str, *, most: int = MAX_BYTES, dir_fd: int | None = None) -> Any:  # noqa: ANN401
    """Read a JSON file.

    Raises:
        OSError: it cannot be read. DamagedFileError: it is no JSON as hpckit writes it.
    """
    return parse_json(read_text(path, most=most, dir_fd=dir_fd))


def parse_json(text: str | bytes, *, nan: bool = False) -> Any:  # noqa: ANN401
    """Parse JSON that others may have written: bounded depth, numbers of bounded length, finite.

    NaN and Infinity, which Python's json writes, are unknown, unless asked for with `nan`.

    Raises:
        DamagedFileError: it is none.
    """
    try:
        if _is_plain(text):
            return json.loads(text)
        constant = float if nan else _unknown
        value = json.loads(text, parse_int=_integer, parse_float=_float, parse_constant=constant)
    except DamagedFileError:
        raise
    except (ValueError, RecursionError) as error:
        raise DamagedFileError(f"it is not JSON: {str(error)[:200]}") from error
    _refuse_deep(value)
    return value


def _is_plain(text: str | bytes) -> bool:
    """Say whether nothing can be refused of a line: a week's samples have 10,000 of these."""
    if not isinstance(text, bytes) or text.count(b"[") + text.count(b"{") > MAX_DEPTH:
        return False
    return not any(map(text.translate(_ZEROS).count, _NOT_PLAIN))


def parse_together(texts: Sequence[bytes]) -> list[Any] | None:
    """Parse JSON documents at once; None if one is none, or has a number of too many digits.

    They may hold fractions, what is not finite, and any depth, which `parse_json` would look at.
    """
    together = b"[%b]" % b",".join(texts)
    if _NOT_PLAIN[0] in together.translate(_ZEROS):
        return None
    try:
        found: list[Any] = json.loads(together)
    except (ValueError, RecursionError):
        return None
    return found if len(found) == len(texts) else None


def _integer(digits: str) -> int:
    if len(digits) > _MAX_DIGITS:
        raise DamagedFileError(f"a number has {len(digits)} digits")
    return int(digits)


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise DamagedFileError(f"the number {text[:20]} is too large")
    return value


def _unknown(_word: str) -> None:
    """Stand for NaN and Infinity."""


def _refuse_deep(value: object) -> None:
    level, depth = [value], 0
    while level := [
        inner
        for outer in level
        if isinstance(outer, dict | list)
        for inner in (outer.values() if isinstance(outer, dict) else outer)
    ]:
        depth += 1
        if depth > MAX_DEPTH:
            raise DamagedFileError(f"its values are nested more than {MAX_DEPTH} levels deep")


def replace_file(
    path: Path | str,
    content: str | bytes,
    *,
    mode: int = 0o644,
    dir_fd: int | None = None,
    check: Callable[[Path], object] | None = None,
) -> None:
    """Write a file whole or not at all: readers never see half of it, and no link is followed.

    `check` is called with the new file's path before it is put in place; what it raises keeps the
    old file.

    Raises:
        OSError: it cannot be written. In no case is anything left behind.
    """
    target = Path(path)
    # A name that can be guessed could be a link, put there before, to any file of the user's.
    beside = target.with_name(f".{target.name[:80]}.{os.urandom(8).hex()}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(beside, flags, mode, dir_fd=dir_fd)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content.encode() if isinstance(content, str) else content)
        if check:
            check(beside)
        os.replace(beside, target, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
    except BaseException:
        os.unlink(beside, dir_fd=dir_fd)
        raise


def flush_to_disk(paths: Iterable[Path]) -> None:
    """Have files and folders written to the disk: a machine that loses power keeps them then.

    Raises:
        OSError: the disk, or its server, refuses what was written before.
    """
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            os.fsync(descriptor)
        except OSError as error:
            if error.errno not in _CANNOT_FLUSH:
                raise
        finally:
            os.close(descriptor)


@contextmanager
def held_to_append(path: Path | str, mode: int = 0o600) -> Iterator[tuple[int, bool | None]]:
    """Open a user's own file for appending, made if need be, and lock it; no link is followed.

    Give its descriptor, and whether it is locked: False where another process keeps the lock, which
    may have been stopped; None where the file system knows no locks. Whoever replaces the file
    holds the lock, so what is opened is what stands there.

    Raises:
        OSError: it cannot be opened. DamagedFileError: it is no regular file.
    """
    with _held(path, _APPEND, mode, fcntl.LOCK_EX, _LOCKED_S) as held:
        yield held


@contextmanager
def locked(path: Path | str, *, shared: bool, patience_s: float) -> Iterator[bool | None]:
    """Lock a user's own file, made if need be, alone or with others; no link is followed.

    Give whether it is locked, as `held_to_append`.

    Raises:
        OSError: it cannot be opened. DamagedFileError: it is no regular file.
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
            held = _lock(descriptor, kind)
            if held and not _stands_at(path, found) and time.monotonic() < settled:
                continue  # it was removed, or another was put in its place
            if held is not False or time.monotonic() >= until:
                yield descriptor, held
                return
        finally:
            os.close(descriptor)
        time.sleep(_AGAIN_S)


@contextmanager
def held_alone(path: Path, what: str = "") -> Iterator[int]:
    """Keep others from a user's own file, opened as by `held_to_append`; its folder is made, too.

    Give its descriptor. `what`, as "the index ", stands before its path in errors.

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


def _lock(descriptor: int, kind: int) -> bool | None:
    """Lock a file; False: somebody else has locked it, None: it cannot be locked at all."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _stands_at(path: Path | str, found: os.stat_result) -> bool:
    try:
        return os.path.samestat(os.lstat(path), found)
    except OSError:
        return False


def append_lines(descriptor: int, lines: bytes) -> None:
    """Append whole lines with one write, on a new line after one that was cut off.

    Raises:
        OSError: they cannot be written. Nothing of them is left where that can be taken back.
    """
    size = os.fstat(descriptor).st_size
    whole = size == 0 or os.pread(descriptor, 1, size - 1) == b"\n"
    text = lines if whole else b"\n" + lines
    written = os.write(descriptor, text)
    if written != len(text):
        if os.fstat(descriptor).st_size == size + written:  # nobody else has written meanwhile
            os.ftruncate(descriptor, size)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def make_first(path: Path) -> bool:
    """Make an empty file that only its owner reads; say whether it was not there before.

    Of any number who try, on any node, one is told so: open(2), O_EXCL.

    Raises:
        OSError: it cannot be made.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        os.close(os.open(path, flags, 0o600))
    except FileExistsError:
        return False
    return True


def write_shown(path: Path, content: str | bytes, what: str, *, mode: int = 0o644) -> Path:
    """Write what a user asked for, a page or a picture, whole or not at all; return its path.

    Raises:
        OutsideError: it cannot be written.
    """
    try:
        replace_file(path, content, mode=mode)
    except OSError as error:
        raise OutsideError(
            f"The {what} {str(path)!r} cannot be written: {reason(error)}."
        ) from error
    return path


def no_room(folder: Path) -> str | None:
    """Say that a folder's disk is full, or the user's part of it; None where there is room."""
    try:
        room = os.statvfs(folder)
    except OSError:
        return None
    if room.f_blocks == 0 or room.f_bavail * room.f_frsize >= _LITTLE_ROOM:
        return None
    return f"there is no room left in {folder}"


def sealed_file(name: str, text: str) -> int:
    """Return the descriptor of a text that is in no folder: none can change or replace it.

    Whoever inherits it reads it at `/dev/fd/N`, each time from its beginning.

    Raises:
        OSError: there is no memory for it.
    """
    descriptor = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    with os.fdopen(descriptor, "wb", closefd=False) as stream:
        stream.write(text.encode())
    os.lseek(descriptor, 0, os.SEEK_SET)
    seals = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
    return descriptor
