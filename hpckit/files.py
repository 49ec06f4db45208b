"""Reading files that others may have written, and replacing files as a whole.

In a shared folder, any name may lead to a pipe that never ends, a sparse file of terabytes, JSON
nested so deep that it kills the parser, or a link to somebody's `.bashrc`. So everything that is
read from such a folder, or written into it, goes through this module (tests/unit/test_one_door.py).
"""

import contextlib
import errno
import fcntl
import functools
import json
import math
import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import IO, Any, ParamSpec

from hpckit.errors import OutsideError

# Far above what hpckit writes into one JSON file, and far below what would hurt a login node.
MAX_BYTES = 16 * 2**20
MAX_DEPTH = 40
# Python parses integers of any length, in quadratic time; none of our fields needs more digits.
_MAX_DIGITS = 40
# What `_is_plain` looks for, once all digits are written as 0: numbers that are long or not
# integers, and NULs (as UTF-16 has them).
_NOT_PLAIN = (b"0" * (_MAX_DIGITS + 1), b"0.", b"0e", b"0E", b"NaN", b"Infinity", b"\0")
_ZEROS = bytes.maketrans(b"123456789", b"000000000")
# Errors of file systems that cannot fsync a folder.
_CANNOT_FLUSH = frozenset({errno.EINVAL, errno.ENOTSUP, errno.EBADF, errno.EROFS})
# Bytes: less than the records and last lines of a few ranks.
_LITTLE_ROOM = 64_000
_Args = ParamSpec("_Args")
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY


class DamagedFileError(ValueError):
    """A file is not what hpckit writes; the message says in which way, without its name."""


def open_regular(path: Path | str, *, dir_fd: int | None = None) -> IO[bytes]:
    """Open a regular file for reading, without ever waiting for a writer.

    Raises:
        OSError: it cannot be opened. DamagedFileError: it is not a regular file.
    """
    try:
        descriptor = os.open(path, _READ, dir_fd=dir_fd)
    except ValueError as error:  # a name that was read from a file may hold anything
        raise DamagedFileError("its name contains a NUL or half a letter") from error
    return only_regular(descriptor)


def only_regular(descriptor: int) -> IO[bytes]:
    """Return a file that was opened; close it if it is not a regular one.

    Raises:
        DamagedFileError: it is not.
    """
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise DamagedFileError("it is not a regular file")
    return os.fdopen(descriptor, "rb")


def _again_if_stale(read: Callable[_Args, bytes]) -> Callable[_Args, bytes]:
    """Read once more where NFS calls a file stale: another machine has just replaced it."""

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
        OSError: it cannot be read. DamagedFileError: it is not a regular file, or larger.
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
        OSError: it cannot be read. DamagedFileError: it is not a regular file.
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
    """Yield a file of any length in pieces of `size` bytes; of a long hole, one piece by `hole`.

    `hole` makes that piece from the hole's size in bytes. A hole takes no room on the disk, so
    anybody can make one that is larger than the disk. `part`: where to begin and end, in bytes.

    Raises:
        OSError: it cannot be read. DamagedFileError: it is not a regular file.
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
    """Return the offset of the next byte that is not in a hole, or of the file's end."""
    try:
        return os.lseek(descriptor, at, os.SEEK_DATA)
    except OSError as error:
        if error.errno == errno.ENXIO:  # nothing more
            return os.fstat(descriptor).st_size
        return at  # a file system without holes


def reason(error: OSError | DamagedFileError) -> str:
    """Return why a file cannot be read, without its name."""
    return (error.strerror or "unknown") if isinstance(error, OSError) else str(error)


def read_text(path: Path | str, *, most: int = MAX_BYTES) -> str:
    """Read a whole file of UTF-8.

    Raises:
        OSError: it cannot be read. DamagedFileError: it is too large, or not UTF-8.
    """
    try:
        return read_bytes(path, most=most).decode("utf-8")
    except UnicodeDecodeError as error:
        raise DamagedFileError(f"byte {error.start} is not UTF-8") from error


def read_json(path: Path | str, *, most: int = MAX_BYTES) -> Any:  # noqa: ANN401
    """Read a JSON file.

    Raises:
        OSError: it cannot be read. DamagedFileError: it is not JSON as hpckit writes it.
    """
    return parse_json(read_text(path, most=most))


def parse_json(text: str | bytes, *, nan: bool = False) -> Any:  # noqa: ANN401
    """Parse JSON that others may have written; bound its depth, and the size of its numbers.

    NaN and Infinity, which Python's json writes, become None; with `nan` they stay.

    Raises:
        DamagedFileError: it is not JSON, or over a bound.
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
    """Say whether a text cannot be over a bound: samples of a week have 10,000 such lines."""
    if not isinstance(text, bytes) or text.count(b"[") + text.count(b"{") > MAX_DEPTH:
        return False
    return not any(map(text.translate(_ZEROS).count, _NOT_PLAIN))


def parse_together(texts: Sequence[bytes]) -> list[Any] | None:
    """Parse several JSON documents at once; None if one is damaged, or has too long a number.

    Unlike `parse_json`, this bounds no depth, and keeps NaN and Infinity.
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
    # Level by level, and only what has something in it: a file may hold a million empty lists.
    while level := [one for one in level if one and isinstance(one, (dict, list))]:
        depth += 1
        if depth > MAX_DEPTH:
            raise DamagedFileError(f"its values are nested more than {MAX_DEPTH} levels deep")
        level = list(chain.from_iterable(map(_inner, level)))


def _inner(one: dict[str, object] | list[object]) -> Iterable[object]:
    return one.values() if isinstance(one, dict) else one


def replace_file(
    path: Path | str,
    content: str | bytes,
    *,
    mode: int = 0o644,
    exactly: int | None = None,
    check: Callable[[Path], object] | None = None,
) -> None:
    """Write a file whole or not at all: readers never see half of it, and no link is followed.

    It has `mode` without what the umask forbids, or the mode `exactly`.

    `check` is called with the new file's path before it replaces the old one. If it raises, the old
    file stays.

    Raises:
        OSError: it cannot be written; nothing is left behind.
    """
    target = Path(path)
    # Under a name that can be guessed, somebody could have put a link to any file of the user's.
    beside = target.with_name(f".{target.name[:80]}.{os.urandom(8).hex()}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(beside, flags, mode)
    try:
        if exactly is not None:
            with contextlib.suppress(OSError):  # some file systems have one mode for all files
                # By its number: in a group's folder, its name may be a link by now.
                os.fchmod(descriptor, exactly)
        _fill(descriptor, content)
        if check:
            check(beside)
        beside.replace(target)
    except BaseException:
        with contextlib.suppress(OSError):  # of a disk that has just refused more than this
            beside.unlink()
        raise


def _fill(descriptor: int, content: str | bytes) -> None:
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(content.encode() if isinstance(content, str) else content)


def flush_to_disk(paths: Iterable[Path]) -> None:
    """Have files and folders written to the disk, so that they outlive a loss of power.

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


def write_shown(path: Path, content: str | bytes, what: str, *, mode: int = 0o644) -> Path:
    """Write a page or a picture that the user asked for, whole or not at all; return its path.

    What is there and is no regular file is written into, as by a shell's `>`: a device, a pipe,
    /dev/stdout. A link to a file is replaced, as by `replace_file`.

    Raises:
        OutsideError: it cannot be written.
    """
    try:
        if _is_written_into(path):
            _fill(os.open(path, os.O_WRONLY | os.O_NOCTTY | os.O_CLOEXEC), content)
        else:
            replace_file(path, content, mode=mode)
    except OSError as error:
        raise OutsideError(
            f"The {what} {str(path)!r} cannot be written: {reason(error)}."
        ) from error
    return path


def _is_written_into(path: Path) -> bool:
    """Say whether a path is a device or a pipe, by no link that somebody else may have put."""
    if not path.exists() or path.is_file() or path.is_dir():
        return False
    return not path.is_symlink() or path.lstat().st_uid in (0, os.geteuid())


def no_room(folder: Path) -> str | None:
    """Say that a folder's disk, or the user's quota there, is full; None where there is room."""
    try:
        room = os.statvfs(folder)
    except OSError:
        return None
    if room.f_blocks == 0 or room.f_bavail * room.f_frsize >= _LITTLE_ROOM:
        return None
    return f"there is no room left in {folder}"


def sealed_file(name: str, text: str) -> int:
    """Return the descriptor of a text in memory, which nobody can change or replace.

    A process that inherits it reads it at `/dev/fd/N`, each time from its beginning.

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
