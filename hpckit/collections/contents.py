"""The files of a collection, and their hashes; those of a folder in place are remembered by stat.

Only what hpckit reads counts: `templates/`, `workloads/` and the manifest.
"""

import contextlib
import itertools
import json
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from hpckit import digests
from hpckit.collections.collection import LOCK, PARTS, sha256, take_in
from hpckit.errors import ConfigError
from hpckit.files import DamagedFileError, chunks, open_regular, read_json, reason, replace_file
from hpckit.owners import way_in
from hpckit.paths import CACHE, make_folder, refuse_foreign
from hpckit.values import check

_MOST, _MOST_BYTES, _DEEPEST = 20_000, 1 << 30, 60
_BYTECODE = "__pycache__"
Rows = list[tuple[str, os.stat_result]]


def is_open_folder(folder: Path) -> bool:
    """Say whether there is such a folder.

    Raises:
        ConfigError: this user may not look.
    """
    try:
        return stat.S_ISDIR(folder.stat().st_mode)
    except PermissionError as error:
        let = way_in(folder, error)
        raise ConfigError(f"cannot be read: {error.strerror}.{let}", at=folder) from error
    except OSError:
        return False


def walk(folder: Path) -> Rows:
    """Return every file, folder and link of a collection: path below `folder`, and its lstat.

    Raises:
        ConfigError: a folder cannot be read, or there is more in it than a collection has.
    """
    rows: Rows = []
    size = 0
    try:
        for part in PARTS:
            for row in _below(folder / part, part, strict=True):
                rows.append(row)
                size += row[1].st_size
                if len(rows) > _MOST or size > _MOST_BYTES:
                    raise ConfigError(
                        f"holds more than {_MOST} files, or {_MOST_BYTES >> 20} MiB, in "
                        "templates/ and workloads/. Keep data in another place.",
                        at=folder,
                    )
    except OSError as error:
        let = way_in(error.filename or folder, error)
        raise ConfigError(f"cannot be read: {error.strerror}.{let}", at=error.filename) from error
    return rows


def glance(folder: Path) -> Rows:
    """Return the files of a project, as `walk`; what cannot be read is not used either.

    Raises:
        ConfigError: there are so many, or so deep, that somebody's could be among them unseen.
    """
    parts = (_below(folder / part, part, strict=False) for part in (*PARTS, LOCK))
    rows = list(itertools.islice(itertools.chain.from_iterable(parts), _MOST + 1))
    if len(rows) > _MOST:
        raise ConfigError(
            f"{folder} holds more than {_MOST} files in templates/ and workloads/, too many to "
            "check them all"
        )
    return rows


def _below(path: Path, name: str, *, strict: bool) -> Iterator[tuple[str, os.stat_result]]:
    try:
        status = path.lstat()
        yield name, status
        names = []
        if stat.S_ISDIR(status.st_mode):
            with os.scandir(path) as entries:
                names = sorted(entry.name for entry in entries if entry.name != ".git")
    except FileNotFoundError:
        return
    except OSError:
        if strict:
            raise
        return
    if names and name.count("/") >= _DEEPEST:
        raise ConfigError(f"{path} is more than {_DEEPEST} folders deep, too deep to check")
    for below in names:
        yield from _below(path / below, f"{name}/{below}", strict=strict)


def below(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield a folder and all in it with its lstat, but for git's; links are not followed.

    Raises:
        ConfigError: it is too deep to look at. OSError: a folder in it cannot be read.
    """
    for name, status in _below(folder, folder.name, strict=True):
        yield folder.parent / name, status


def content_hash(*paths: Path) -> str:
    """Return `sha256:` and 16 hex digits over the bytes of files, or of all files of a folder.

    Raises:
        ConfigError: a folder is too deep to look at. OSError: something cannot be read.
    """
    files = [
        (file, name)
        for path in paths
        for file in (_files(path) if path.is_dir() else (path,))
        if _BYTECODE not in (name := file.relative_to(path.parent)).parts
    ]
    digest = digests.sha256(size=sum(file.stat().st_size for file, _ in files))
    for file, name in files:
        digest.update(os.fsencode(name.as_posix()) + b"\0")
        for chunk in chunks(file, 1 << 20, _hole):
            digest.update(chunk)
    return f"sha256:{digest.hexdigest()[:16]}"


def files_like(folder: Path, pattern: str) -> Iterator[Path]:
    """Yield the files of a folder that match a pattern of pathlib's, in order.

    Raises:
        ConfigError: it is too deep to look at.
    """
    folders, every, name = pattern.partition("**/")
    if not every:
        yield from (path for path in sorted(folder.glob(pattern)) if path.is_file())
    elif os.access(folder, os.R_OK | os.X_OK) and folder.is_dir():
        for path in _files(folder):
            if path.match(name) and len(path.relative_to(folder).parts) > folders.count("/"):
                yield path


def _files(folder: Path) -> Iterator[Path]:
    """Yield the files in a folder, which may itself be a link; what may not be read is left out."""
    for name in sorted(os.listdir(folder)):  # noqa: PTH208
        found = _below(folder / name, name, strict=False)
        yield from (path for below_it, _ in found if (path := folder / below_it).is_file())


def _hole(size: int) -> bytes:
    return b"[%d bytes that nobody wrote]" % size


def _counted(rows: Rows) -> Rows:
    """Leave out bytecode, which jobs do not read either: see `hpckit_sources_only.py`."""
    return [row for row in rows if _BYTECODE not in row[0].split("/")]


def file_hashes(folder: Path, rows: Rows) -> dict[str, str]:
    """Return the hash of each file, by its path below `folder`; links count by what they name."""
    hashes = {}
    for name, status in _counted(rows):
        path = folder / name
        if stat.S_ISREG(status.st_mode) or (stat.S_ISLNK(status.st_mode) and path.is_file()):
            hashes[name] = _digest(path)[:16]
    return hashes


def _digest(path: Path) -> str:
    try:
        with open_regular(path) as stream:
            take_in(digest := sha256(), stream)
    except (OSError, DamagedFileError) as error:
        let = way_in(path, error)
        raise ConfigError(f"cannot be read: {reason(error)}.{let}", at=path) from error
    return digest.hexdigest()


def hash_of(files: Mapping[str, str]) -> str:
    """Return one hash over those of all files: `sha256:` and 16 hex digits."""
    lines = "".join(f"{name}\0{value}\n" for name, value in sorted(files.items()))
    return f"sha256:{sha256(os.fsencode(lines)).hexdigest()[:16]}"


def remembered_hashes(folder: Path, rows: Rows, cache: Path) -> dict[str, str]:
    """Return the hashes of files, without reading those that have not changed since the last time.

    Unchanged means: the same size, inode, mtime and ctime; the last cannot be set by hand. What a
    cache remembers that others can write counts for nothing.
    """
    try:
        refuse_foreign(cache / "hashes", CACHE)
    except ConfigError:
        return file_hashes(folder, rows)
    key = sha256(os.fsencode(folder)).hexdigest()[:32]
    memory = cache / "hashes" / f"{key}.json"
    known = _recall(memory)
    counted = _counted(rows)
    marks = {name: _mark(folder / name, status) for name, status in counted}
    fresh = [row for row in counted if known.get(row[0], ("", ""))[0] != marks[row[0]]]
    hashes = {name: known[name][1] for name in marks if name in known} | {
        **{name: "" for name, _ in fresh},
        **file_hashes(folder, fresh),
    }
    if fresh or known.keys() - marks.keys():
        _remember(memory, {name: (marks[name], hashes[name]) for name in marks})
    return {name: value for name, value in hashes.items() if value}


def _mark(path: Path, status: os.stat_result) -> str:
    if stat.S_ISLNK(status.st_mode):  # what it names may change while the link does not
        with contextlib.suppress(OSError):
            status = path.stat()
    return f"{status.st_size} {status.st_ino} {status.st_mtime_ns} {status.st_ctime_ns}"


def _recall(memory: Path) -> dict[str, tuple[str, str]]:
    try:
        known: dict[str, tuple[str, str]] = check(dict[str, tuple[str, str]], read_json(memory), "")
    except (OSError, DamagedFileError):
        return {}  # a cache: what is not in it is worked out again
    return known


def _remember(memory: Path, known: Mapping[str, tuple[str, str]]) -> None:
    with contextlib.suppress(OSError):  # a full or read-only home costs time, not correctness
        for folder in (memory.parents[1], memory.parent):
            make_folder(folder, mode=0o700)
        replace_file(memory, json.dumps(known))
