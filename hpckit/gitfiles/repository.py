"""A checkout's git folder, how it is set up, the commit its HEAD names, and that commit's tree."""

import os
import re
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

from hpckit.files import DamagedFileError, open_regular, read_bytes, read_text
from hpckit.frozen import frozen

_MAX_REFS = 64 * 2**20
_MAX_SMALL = 2**20
_COMMIT_ID = r"[0-9a-f]{40}(?:[0-9a-f]{24})?"
_NAME = r"refs(?:/(?!\.)[^\0-\x20/\\]+)+"
_SETTING = r"(?m)^\s*(?:\[[^]\n]*\])?\s*([a-z]+)\s*=\s*\"?([^\s\"]*)"
_MAX_COMMIT = 2**20
_MAX_DELTAS = 60  # git makes chains of up to 50
_MAX_DELTA = 2**16
_MAX_PACKS = 2000
_MAX_STORES = 20
_TREE = rb"tree ([0-9a-f]{40}(?:[0-9a-f]{24})?)\n"
_ID_BYTES = {"sha1": 20, "sha256": 32}
_COMMIT, _BY_OFFSET, _BY_NAME = 1, 6, 7


@frozen(kw_only=True)
class Repository:
    """A checkout: its topmost folder, and where git keeps what it knows of it.

    `own` holds HEAD and the index of this working tree; `common` holds references, objects and
    configuration, which all working trees of a repository share.
    """

    root: Path
    own: Path
    common: Path


def find_repository(folder: Path) -> Repository | None:
    """Return the checkout that a folder is in, on the same file system; None outside any.

    Raises:
        OSError, DamagedFileError: it cannot be read.
    """
    here = folder.resolve()
    device = here.stat().st_dev
    for root in (here, *here.parents):
        if root.stat().st_dev != device:
            return None
        if found := repository_at(root):
            return found
    return None


def repository_at(root: Path) -> Repository | None:
    """Return the checkout whose topmost folder this is; a bare repository is none.

    Raises:
        OSError, DamagedFileError: it cannot be read.
    """
    place = root / ".git"
    if place.is_dir():
        own = place
        if not (own / "HEAD").exists():
            return None
    elif place.exists():  # a further working tree, or a submodule
        own = root / _path_in(place, "gitdir: ")
    else:
        return None
    shared = own / "commondir"
    return Repository(root=root, own=own, common=own / _path_in(shared) if shared.exists() else own)


def read_head(repository: Repository) -> tuple[str, str | None]:
    """Return branch and commit; the commit is None before a branch's first one.

    Raises:
        OSError, DamagedFileError: it cannot be read, or is kept in a way not read here.
    """
    if (kind := read_settings(repository).get("refstorage", "files")) != "files":
        raise DamagedFileError(
            f"its references are of the kind {kind!r}, which hpckit does not read"
        )
    text = read_text(repository.own / "HEAD", most=_MAX_SMALL).strip()
    if re.fullmatch(_COMMIT_ID, text):
        return "(detached)", text
    name = _reference(text)
    return name.removeprefix("refs/heads/"), _follow(repository, name)


def id_bytes(repository: Repository) -> int:
    """Return how many bytes the ids of its objects have: 20 of SHA-1, 32 of SHA-256.

    Raises:
        OSError, DamagedFileError: its settings cannot be read, or name another kind.
    """
    kind = read_settings(repository).get("objectformat", "sha1")
    if kind not in _ID_BYTES:
        raise DamagedFileError(f"its objects are of the kind {kind!r}, which hpckit does not read")
    return _ID_BYTES[kind]


def read_settings(repository: Repository) -> dict[str, str]:
    """Return the repository's settings by their last word, in lower case; includes are not read.

    Raises:
        OSError, DamagedFileError: they cannot be read.
    """
    return settings_in(repository.common / "config", repository.own / "config.worktree")


def settings_in(*files: Path) -> dict[str, str]:
    """Return settings by their last word, of configuration files where there are any.

    Raises:
        OSError, DamagedFileError: one cannot be read.
    """
    return dict(pair for file in files if file.exists() for pair in _settings(file))


def _settings(file: Path) -> Iterator[tuple[str, str]]:
    text = read_bytes(file, most=_MAX_SMALL).decode("utf-8", "replace")
    yield from re.findall(_SETTING, text.lower())


def _path_in(file: Path, before: str = "") -> str:
    text = read_text(file, most=_MAX_SMALL).strip("\n")
    if not text.startswith(before) or "\0" in text:
        raise DamagedFileError(f"{file.name} names no folder")
    return text.removeprefix(before)


def _reference(text: str) -> str:
    name = text.removeprefix("ref: ")
    if name == text or not re.fullmatch(_NAME, name):
        raise DamagedFileError("its HEAD names no branch or commit")
    return name


def _follow(repository: Repository, name: str) -> str | None:
    for _ in range(5):  # as many names of names as git follows
        loose = repository.common / name
        if not loose.is_file():  # an empty folder may be left there
            return _packed_ref(repository, name)
        text = read_text(loose, most=_MAX_SMALL).strip()
        if re.fullmatch(_COMMIT_ID, text):
            return text
        name = _reference(text)
    raise DamagedFileError("its HEAD names a name of a name without end")


def _packed_ref(repository: Repository, name: str) -> str | None:
    packed = repository.common / "packed-refs"
    if not packed.exists():
        return None
    line = re.compile(rb"^([0-9a-f]{40,64}) " + re.escape(name.encode()) + rb"$", re.MULTILINE)
    match = line.search(read_bytes(packed, most=_MAX_REFS))
    return match[1].decode() if match else None


def tree_of_commit(store: Path, commit: str) -> str:
    """Return the tree's id of a commit in an object folder, or in one it borrows from.

    Raises:
        OSError: it cannot be read. DamagedFileError: it is not there, or not as git writes it.
    """
    try:
        for folder in _stores(store):
            content = _loose(folder, commit) or _from_packs(folder, bytes.fromhex(commit))
            if match := re.match(_TREE, content or b""):
                return match[1].decode()
    except (zlib.error, struct.error, IndexError, OverflowError) as error:
        raise DamagedFileError(f"commit {commit[:12]} is damaged: {error}") from error
    raise DamagedFileError(f"commit {commit[:12]} is not among its objects")


def _stores(store: Path) -> Iterator[Path]:
    """Yield an object folder and those it borrows from, which may borrow themselves."""
    stores = [store]
    for folder in stores:
        yield folder
        borrowed = folder / "info" / "alternates"
        if borrowed.exists():
            lines = read_text(borrowed, most=_MAX_COMMIT).split("\n")
            paths = (line for line in lines if line and "\0" not in line and line[0] != "#")
            stores += [path for line in paths if (path := folder / line) not in stores]
        if len(stores) > _MAX_STORES:
            raise DamagedFileError(f"it borrows objects from over {_MAX_STORES} folders")


def _loose(folder: Path, commit: str) -> bytes | None:
    path = folder / commit[:2] / commit[2:]
    if not path.exists():
        return None
    kind, _, content = _inflated(read_bytes(path, most=_MAX_COMMIT)).partition(b"\0")
    return content if kind.startswith(b"commit ") else None


def _inflated(data: bytes, most: int = _MAX_COMMIT) -> bytes:
    content = zlib.decompressobj().decompress(data, most + 1)
    if len(content) > most:
        raise DamagedFileError(f"its commit has over {most} bytes")
    return content


def _from_packs(folder: Path, name: bytes) -> bytes | None:
    packs = sorted((folder / "pack").glob("*.idx"))
    if len(packs) > _MAX_PACKS:
        raise DamagedFileError(f"it has over {_MAX_PACKS} packs")
    for index in packs:
        offset = _offset(index, name)
        if offset is not None:
            return _packed(index, offset, len(name))
    return None


def _offset(index: Path, name: bytes) -> int | None:
    """Look an object up in a pack's index of version 2, by halves."""
    with open_regular(index) as stream:
        descriptor = stream.fileno()
        if os.pread(descriptor, 8, 0) != b"\xfftOc\0\0\0\x02":
            raise DamagedFileError("a pack's index is of a version not read here")
        fanout = struct.unpack(">256I", os.pread(descriptor, 1024, 8))
        low, high, count = (fanout[name[0] - 1] if name[0] else 0), fanout[name[0]], fanout[255]
        while low < high:
            middle = (low + high) // 2
            here = os.pread(descriptor, len(name), 1032 + len(name) * middle)
            if here == name:
                return _place(descriptor, len(name), count, middle)
            low, high = (middle + 1, high) if here < name else (low, middle)
    return None


def _place(descriptor: int, width: int, count: int, row: int) -> int:
    (place,) = struct.unpack(">I", os.pread(descriptor, 4, 1032 + (width + 4) * count + 4 * row))
    if place < 2**31:
        return int(place)
    far = 1032 + (width + 8) * count + 8 * (place - 2**31)
    return int(struct.unpack(">Q", os.pread(descriptor, 8, far))[0])


def _packed(index: Path, offset: int, width: int) -> bytes | None:
    """Return a commit out of a pack: the differences down to a whole one, then applied."""
    deltas: list[bytes] = []
    with open_regular(index.with_suffix(".pack")) as stream:
        while len(deltas) <= _MAX_DELTAS:
            data = os.pread(stream.fileno(), _MAX_COMMIT, offset)
            kind, at = (data[0] >> 4) & 7, 1
            while data[at - 1] & 0x80:
                at += 1
            if kind == _COMMIT:
                content = _inflated(data[at:])
                for delta in reversed(deltas):
                    content = _applied(delta, content)
                return content
            if kind == _BY_OFFSET:
                back, at = _distance(data, at)
                base: int | None = offset - back
            elif kind == _BY_NAME:
                base, at = _offset(index, data[at : at + width]), at + width
            else:
                return None
            deltas.append(_inflated(data[at:], _MAX_DELTA))
            if base is None or not base > 0:
                break
            offset = base
    raise DamagedFileError("a commit in a pack is a difference from nothing")


def _distance(data: bytes, at: int) -> tuple[int, int]:
    value = data[at] & 0x7F
    while data[at] & 0x80 and value < 2**63:
        at += 1
        value = (value + 1) << 7 | data[at] & 0x7F
    return value, at + 1


def _applied(delta: bytes, base: bytes) -> bytes:
    """Apply a delta: pieces copied from the base, and pieces it brings itself."""
    at = 0
    for _ in range(2):  # the sizes of base and result
        while delta[at] & 0x80:
            at += 1
        at += 1
    content = bytearray()
    while at < len(delta):
        word, at = delta[at], at + 1
        if word & 0x80:
            numbers = []
            for bit in range(7):
                numbers.append(delta[at] if word & 1 << bit else 0)
                at += word >> bit & 1
            start = int.from_bytes(numbers[:4], "little")
            content += base[start : start + (int.from_bytes(numbers[4:], "little") or 0x10000)]
        else:
            content += delta[at : at + word]
            at += word
        if len(content) > _MAX_COMMIT:
            raise DamagedFileError(f"its commit has over {_MAX_COMMIT} bytes")
    return bytes(content)
