"""git's index: which files a checkout holds, and what they were when git last looked."""

import os
import re
import struct
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from hpckit.digests import sha1
from hpckit.files import DamagedFileError, open_regular

MAX_BYTES = 64 * 2**20
# Each file is looked at once, which on a busy shared file system takes up to a millisecond.
MAX_FILES = 50_000
FOLDER, LINK, SUBMODULE = 0o040000, 0o120000, 0o160000
_HEAD = struct.Struct(">4sII")
_ENTRY = struct.Struct(">10I20sH")
_EXTENDED, _STAGE, _NAME_BYTES = 0x4000, 0x3000, 0x0FFF
_INTENDED, _SKIPPED = 0x2000, 0x4000
_MAX_PATH = 4096  # of Linux
# The whole tree in the extension of trees: its path, which is empty, the number of its files, that
# of its folders, and its id.
_WHOLE_TREE = rb"\0(\d{1,9}) \d{1,9}\n(.{20})"


class IndexEntry(NamedTuple):
    """A file in the index.

    `seen` is ctime and mtime (whole seconds and nanoseconds), device, inode, mode, user, group and
    size modulo 2^32, of the file when its content was `blob`. `settled` is False amid a merge.
    `skipped`: it need not be on disk (sparse checkouts). `intended`: added without content.
    """

    path: bytes
    mode: int
    blob: bytes
    seen: tuple[int, ...]
    settled: bool
    skipped: bool
    intended: bool


class Index(NamedTuple):
    """The index's files in git's order, and when it was written, in ns of the epoch.

    `tree` is the id of the tree that a commit of these files would have; None: git has not written
    it down.
    """

    entries: tuple[IndexEntry, ...]
    written_ns: int
    tree: str | None


def read_index(path: Path) -> Index:
    """Read an index, versions 2 to 4; one that is absent has no files.

    Raises:
        OSError: it cannot be read. DamagedFileError: it is too large, or none read here.
    """
    try:
        with open_regular(path) as stream:
            status = os.fstat(stream.fileno())
            data = stream.read(MAX_BYTES + 1)
    except FileNotFoundError:
        return Index((), 0, None)
    if len(data) > MAX_BYTES:
        raise DamagedFileError(f"its index has over {MAX_BYTES} bytes")
    try:
        entries, tree = _parse(data)
    except (struct.error, IndexError, ValueError) as error:
        raise DamagedFileError(f"its index is not as git writes it: {error}") from error
    return Index(entries, status.st_mtime_ns, tree)


def tree_of(entries: Iterable[IndexEntry]) -> str:
    """Return the id of the tree that a commit of these files would have.

    The index's order is that of trees, so folders begin and end one after another.
    """
    names: list[bytes] = []
    open_trees = [bytearray()]

    def close(depth: int) -> None:
        while len(names) > depth:
            inner = _object_id(b"tree", open_trees.pop())
            open_trees[-1] += b"40000 " + names.pop() + b"\0" + inner

    for entry in entries:
        if entry.intended:
            continue
        *folders, name = entry.path.rstrip(b"/").split(b"/")
        close(_shared(names, folders))
        for folder in folders[len(names) :]:
            names.append(folder)
            open_trees.append(bytearray())
        open_trees[-1] += b"%o %b\0" % (entry.mode, name) + entry.blob
    close(0)
    return _object_id(b"tree", open_trees[0]).hex()


def _shared(one: list[bytes], other: list[bytes]) -> int:
    """Return how many folders two paths begin with alike."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((n for n, (a, b) in pairs if a != b), min(len(one), len(other)))


def _object_id(kind: bytes, content: bytes | bytearray) -> bytes:
    return sha1(b"%b %d\0" % (kind, len(content)) + content).digest()


@lru_cache(maxsize=1)  # a submission asks twice: what was changed, and what is kept
def _parse(data: bytes) -> tuple[tuple[IndexEntry, ...], str | None]:
    """Return the files, and the id of their tree where git has written it down."""
    magic, version, count = _HEAD.unpack_from(data)
    if magic != b"DIRC" or version not in (2, 3, 4):
        raise DamagedFileError(f"its index is of version {version}")
    if count > MAX_FILES:
        raise DamagedFileError(f"it has {count} files, over the {MAX_FILES} looked at")
    entries: list[IndexEntry] = []
    at, path = _HEAD.size, b""
    for _ in range(count):
        start = at
        *seen, blob, flags = _ENTRY.unpack_from(data, at)
        at += _ENTRY.size
        more = 0
        if flags & _EXTENDED:
            (more,) = struct.unpack_from(">H", data, at)
            at += 2
        kept, at = _varint(data, at, len(path)) if version == 4 else (0, at)
        end = data.index(b"\0", at)
        path = _checked(path[:kept] + data[at:end])
        # Before version 4 one to eight zeros fill up to a multiple of eight.
        at = end + 1 if version == 4 else start + (end - start + 8) // 8 * 8
        entries.append(
            IndexEntry(path, _mode(seen[6]), blob, tuple(seen), not flags & _STAGE,
                  bool(more & _SKIPPED), bool(more & _INTENDED))
        )  # fmt: skip
    return tuple(entries), _read_extensions(data, at, count)


def _checked(path: bytes) -> bytes:
    if len(path) > _MAX_PATH or path.startswith(b"/") or b".." in path.split(b"/"):
        raise ValueError("a path leads out of it, or is too long")
    return path


def _varint(data: bytes, at: int, length: int) -> tuple[int, int]:
    """Return how much of the path before is kept, and where reading goes on."""
    value = data[at] & 0x7F
    while data[at] & 0x80:
        at += 1
        value = (value + 1) << 7 | data[at] & 0x7F
        if value > length:
            break
    if value > length:
        raise ValueError("a path is cut by more than it has")
    return length - value, at + 1


def _mode(recorded: int) -> int:
    if recorded & 0o170000 == 0o100000:
        return 0o100755 if recorded & 0o100 else 0o100644
    return recorded & 0o170000


def _read_extensions(data: bytes, at: int, files: int) -> str | None:
    """Return the id of the tree of all files, if git knew it when it wrote the index.

    Raises:
        DamagedFileError: one changes the index's meaning: a signature in lower case, as of a split
            index.
    """
    tree = None
    while at < len(data) - 20:
        signature, size = struct.unpack_from(">4sI", data, at)
        if signature[:1].islower() and signature != b"sdir":
            raise DamagedFileError(f"its index has the extension {signature!r}")
        found = re.match(_WHOLE_TREE, data[at + 8 : at + 8 + size], re.DOTALL)
        if signature == b"TREE" and found and int(found[1]) == files:  # else it is not up to date
            tree = found[2].hex()
        at += 8 + size
    return tree
