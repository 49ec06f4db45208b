"""git's index: which files a checkout holds, and what they were when git last looked."""

import os
import re
import struct
from collections.abc import Callable, Iterable
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from hpckit.digests import sha1, sha256
from hpckit.files import DamagedFileError, open_regular

if TYPE_CHECKING:
    import hashlib

    from hpckit.gitfiles.split_index import Link

MAX_BYTES = 64 * 2**20
# Each file is looked at once, which on a busy shared file system takes up to a millisecond.
MAX_FILES = 50_000
FOLDER, LINK, SUBMODULE = 0o040000, 0o120000, 0o160000
_DAMAGED = "its index is not as git writes it"
_REMEDY = "`git status` says more, and `rm .git/index && git reset` makes it anew"
_HEAD = struct.Struct(">4sII")
# By the bytes of an object's id: SHA-1's, or SHA-256's.
_ENTRIES = {20: struct.Struct(">10I20sH"), 32: struct.Struct(">10I32sH")}
_EXTENDED, _STAGE = 0x4000, 0x3000
_INTENDED, _SKIPPED = 0x2000, 0x4000
_MAX_PATH = 4096  # of Linux
# The whole tree in the extension of trees: its path, which is empty, the number of its files, that
# of its folders, and its id.
_WHOLE_TREE = rb"\0(\d{1,9}) \d{1,9}\n(.{%d})"


class IndexEntry(NamedTuple):
    """A file in the index.

    `seen` is ctime and mtime (whole seconds and nanoseconds), device, inode, mode, user, group and
    size modulo 2^32, of the file when its content was `blob`. `stage` is not 0 amid a merge.
    `skipped`: it need not be on disk (sparse checkouts). `intended`: added without content.
    """

    path: bytes
    mode: int
    blob: bytes
    seen: tuple[int, ...]
    stage: int
    skipped: bool
    intended: bool

    @property
    def settled(self) -> bool:
        """Whether no merge has left it to the user."""
        return not self.stage


class Index(NamedTuple):
    """The index's files in git's order, and when it was written, in ns of the epoch.

    `tree` is the id of the tree that a commit of these files would have; None: git has not written
    it down.
    """

    entries: tuple[IndexEntry, ...]
    written_ns: int
    tree: str | None


class _Parsed(NamedTuple):
    """One file of an index: its entries, the tree that is written down in it, its other part."""

    entries: tuple[IndexEntry, ...]
    tree: tuple[int, str] | None = None
    link: "Link | None" = None


def read_index(path: Path, id_bytes: int) -> Index:
    """Read an index, versions 2 to 4, split or whole; one that is absent has no files.

    `id_bytes` is what the ids of the checkout's objects have: nothing in an index says so.

    Raises:
        OSError: it cannot be read. DamagedFileError: it is too large, or none read here.
    """
    try:
        data, written_ns = _content(path)
    except FileNotFoundError:
        return Index((), 0, None)
    parsed = _understood(data, id_bytes)
    link = parsed.link
    entries = parsed.entries
    if link and link.shared:
        shared = _shared_part(path.with_name(f"sharedindex.{link.shared}"), id_bytes)
        entries = _joined(shared, parsed, link)
    whole = parsed.tree and parsed.tree[0] == len(entries)  # else it is not up to date
    return Index(entries, written_ns, parsed.tree[1] if parsed.tree and whole else None)


def _content(path: Path) -> tuple[bytes, int]:
    with open_regular(path) as stream:
        status = os.fstat(stream.fileno())
        data = stream.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise DamagedFileError(f"its index has over {MAX_BYTES} bytes")
    return data, status.st_mtime_ns


def _understood(data: bytes, id_bytes: int) -> _Parsed:
    try:
        return _parse(data, id_bytes)
    except (struct.error, IndexError) as error:
        raise DamagedFileError(f"{_DAMAGED}: it is cut off; {_REMEDY}") from error
    except ValueError as error:
        raise DamagedFileError(f"{_DAMAGED}: {error}; {_REMEDY}") from error


def _shared_part(path: Path, id_bytes: int) -> tuple[IndexEntry, ...]:
    """Return the files of a split index's larger part."""
    try:
        data, _ = _content(path)
    except FileNotFoundError as error:
        raise DamagedFileError(f"{_DAMAGED}: {path.name} is missing; {_REMEDY}") from error
    if data[-id_bytes:].hex() != path.name.rpartition(".")[2]:
        raise DamagedFileError(f"{_DAMAGED}: {path.name} is another; {_REMEDY}")
    return _understood(data, id_bytes).entries


def _joined(shared: tuple[IndexEntry, ...], own: _Parsed, link: "Link") -> tuple[IndexEntry, ...]:
    """Return all files of a split index: the shared ones, some of them replaced, and its own."""
    rows = list(shared)
    if max((*link.deleted, *link.replaced), default=-1) >= len(rows):
        raise DamagedFileError(f"{_DAMAGED}: it takes more of its shared part than this has")
    count = len(link.replaced)
    if count > len(own.entries) or not all(row.path for row in own.entries[count:]):
        raise DamagedFileError(f"{_DAMAGED}: what it adds to its shared part has no names")
    for at, row in zip(link.replaced, own.entries, strict=False):
        rows[at] = row._replace(path=rows[at].path)
    gone = {*link.deleted}
    found = {(row.path, row.stage): row for at, row in enumerate(rows) if at not in gone}
    found |= {(row.path, row.stage): row for row in own.entries[count:]}
    if len(found) > MAX_FILES:
        raise _too_many(len(found))
    return tuple(found[key] for key in sorted(found))


def _too_many(count: int) -> DamagedFileError:
    return DamagedFileError(f"it has {count} files, over the {MAX_FILES} looked at")


def tree_of(entries: Iterable[IndexEntry], id_bytes: int) -> str:
    """Return the id of the tree that a commit of these files would have.

    The index's order is that of trees, so folders begin and end one after another.
    """
    names: list[bytes] = []
    open_trees = [bytearray()]

    def close(depth: int) -> None:
        while len(names) > depth:
            inner = object_id(b"tree", open_trees.pop(), id_bytes)
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
    return object_id(b"tree", open_trees[0], id_bytes).hex()


def _shared(one: list[bytes], other: list[bytes]) -> int:
    """Return how many folders two paths begin with alike."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((n for n, (a, b) in pairs if a != b), min(len(one), len(other)))


def object_id(kind: bytes, content: bytes | bytearray, id_bytes: int) -> bytes:
    """Return the id that git gives to a tree or blob."""
    return sum_of(id_bytes)(b"%b %d\0" % (kind, len(content)) + content).digest()


def sum_of(id_bytes: int) -> "Callable[..., hashlib._Hash]":
    """Return what git makes ids of so many bytes with."""
    return sha1 if id_bytes == 20 else sha256


# A submission asks twice, what was changed and what is kept, of an index and its shared part.
@lru_cache(maxsize=2)
def _parse(data: bytes, id_bytes: int) -> _Parsed:
    """Return the files, and the id of their tree where git has written it down."""
    magic, version, count = _HEAD.unpack_from(data)
    if magic != b"DIRC":
        raise ValueError("it does not begin with DIRC")
    if version not in (2, 3, 4):
        raise DamagedFileError(f"its index is of version {version}")
    if count > MAX_FILES:
        raise _too_many(count)
    entries: list[IndexEntry] = []
    at, path, row = _HEAD.size, b"", _ENTRIES[id_bytes]
    for _ in range(count):
        start = at
        *seen, blob, flags = row.unpack_from(data, at)
        at += row.size
        more = 0
        if flags & _EXTENDED:
            (more,) = struct.unpack_from(">H", data, at)
            at += 2
        kept, at = _varint(data, at, len(path)) if version == 4 else (0, at)
        if (end := data.find(b"\0", at)) < 0:
            raise ValueError("it is cut off")
        path = _checked(path[:kept] + data[at:end])
        # Before version 4 one to eight zeros fill up to a multiple of eight.
        at = end + 1 if version == 4 else start + (end - start + 8) // 8 * 8
        entries.append(
            IndexEntry(path, _mode(seen[6]), blob, tuple(seen), (flags & _STAGE) >> 12,
                  bool(more & _SKIPPED), bool(more & _INTENDED))
        )  # fmt: skip
    return _Parsed(tuple(entries), *_read_extensions(data, at, id_bytes))


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


def _read_extensions(
    data: bytes, at: int, id_bytes: int
) -> "tuple[tuple[int, str] | None, Link | None]":
    """Return the number of files and the id of their tree, if git knew it; and the other part.

    Raises:
        DamagedFileError: one changes the index's meaning, as a signature in lower case says.
    """
    tree, link = None, None
    while at < len(data) - id_bytes:
        signature, size = struct.unpack_from(">4sI", data, at)
        content = data[at + 8 : at + 8 + size]
        found = re.match(_WHOLE_TREE % id_bytes, content, re.DOTALL)
        if signature == b"link":
            from hpckit.gitfiles.split_index import read_link  # noqa: PLC0415  # few are split

            link = read_link(content, MAX_FILES, id_bytes)
        elif signature[:1].islower() and signature != b"sdir":
            raise DamagedFileError(
                f"its index has the extension {signature.decode(errors='replace')!r} of a newer "
                "git, which hpckit does not read"
            )
        elif signature == b"TREE" and found:
            tree = int(found[1]), found[2].hex()
        at += 8 + size
    return tree, link
