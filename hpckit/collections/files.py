"""The files of a collection, and their hashes; those of a folder in place are remembered by stat.

Only what hpckit reads counts: `templates/`, `workloads/` and the manifest.
"""

import contextlib
import hashlib
import itertools
import json
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from hpckit.collections.model import LOCK, PARTS
from hpckit.errors import ConfigError
from hpckit.files import DamagedFileError, read_json, replace_file
from hpckit.values import check

_MOST = 20_000
_SKIPPED = ("__pycache__", ".git")
Rows = list[tuple[str, os.stat_result]]


def walk(folder: Path) -> Rows:
    """Return every file, folder and link of a collection: path below `folder`, and its lstat.

    Raises:
        ConfigError: a folder cannot be read, or there are more files than a collection has.
    """
    rows: Rows = []
    try:
        for part in PARTS:
            for row in _below(folder / part, part):
                rows.append(row)
                if len(rows) > _MOST:
                    raise ConfigError(
                        f"{folder}: holds more than {_MOST} files in templates/ and workloads/. "
                        "Keep data somewhere else."
                    )
    except OSError as error:
        raise ConfigError(f"{error.filename}: cannot be read: {error.strerror}.") from error
    return rows


def glance(folder: Path, most: int = 2000) -> Rows:
    """Return the first files of a collection, as `walk`; a project may hold any number of them."""
    below = itertools.chain.from_iterable(_below(folder / part, part) for part in (*PARTS, LOCK))
    with contextlib.suppress(OSError):  # what cannot be read is not used either
        return list(itertools.islice(below, most))
    return []


def _below(path: Path, name: str) -> Iterator[tuple[str, os.stat_result]]:
    try:
        status = path.lstat()
    except FileNotFoundError:
        return
    yield name, status
    if stat.S_ISDIR(status.st_mode):
        with os.scandir(path) as entries:
            names = sorted(entry.name for entry in entries if entry.name not in _SKIPPED)
        for below in names:
            yield from _below(path / below, f"{name}/{below}")


def file_hashes(folder: Path, rows: Rows) -> dict[str, str]:
    """Return the hash of each file, by its path below `folder`; links count by what they name."""
    hashes = {}
    for name, status in rows:
        path = folder / name
        if stat.S_ISREG(status.st_mode) or (stat.S_ISLNK(status.st_mode) and path.is_file()):
            hashes[name] = hashlib.sha256(_bytes(path)).hexdigest()[:16]
    return hashes


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}.") from error


def hash_of(files: Mapping[str, str]) -> str:
    """Return one hash over those of all files: `sha256:` and 16 hex digits."""
    lines = "".join(f"{name}\0{value}\n" for name, value in sorted(files.items()))
    return f"sha256:{hashlib.sha256(lines.encode()).hexdigest()[:16]}"


def remembered_hashes(folder: Path, rows: Rows, cache: Path) -> dict[str, str]:
    """Return the hashes of files, without reading those that have not changed since the last time.

    Unchanged means: the same size, inode, mtime and ctime; the last cannot be set by hand.
    """
    key = hashlib.sha256(str(folder).encode()).hexdigest()[:32]
    memory = cache / "hashes" / f"{key}.json"
    known = _recall(memory)
    marks = {name: _mark(folder / name, status) for name, status in rows}
    fresh = [row for row in rows if known.get(row[0], ("", ""))[0] != marks[row[0]]]
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
        memory.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_file(memory, json.dumps(known))
