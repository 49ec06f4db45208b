"""`hpckit.lock`: what was added, pinned. Written whole or not at all, one writer at a time."""

import contextlib
import fcntl
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

from hpckit.collections.model import LOCK
from hpckit.collections.places import config_folder
from hpckit.collections.source import Source, parse_source
from hpckit.errors import ConfigError, HpckitError, OutsideError
from hpckit.files import replace_file

_FORMAT = 1
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
# `extends "built-in:…"` must mean the built-in one.
RESERVED = ("built-in", "project", "user", "site-wide")


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """One collection of a lock file.

    `commit` is that of a git source, `previous` the one before the last update. `owner` owns a
    folder used in place. `files` are the hashes of the collection's files, by path.
    """

    name: str
    source: str
    rev: str | None = None
    commit: str | None = None
    previous: str | None = None
    owner: str | None = None
    hash: str = ""
    files: Mapping[str, str] = field(default_factory=dict)

    def place(self) -> Source:
        """Return the source as a value."""
        return parse_source(self.source)


def lock_files(environ: Mapping[str, str] = os.environ) -> tuple[Path, Path]:
    """Return the project's lock file and the user's."""
    return Path.cwd() / LOCK, config_folder(environ) / LOCK


def is_name(text: str) -> bool:
    """Say whether a text can name a collection, also in `extends "NAME:…"`."""
    return bool(_NAME.fullmatch(text)) and text not in RESERVED


def read_lock(path: Path) -> tuple[Entry, ...]:
    """Read a lock file, in the order its collections are searched; absent is empty.

    Raises:
        ConfigError: it cannot be read, or is not what hpckit writes.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}.") from error
    return _parse(text, path)


def _parse(text: str, path: Path) -> tuple[Entry, ...]:
    if not text.strip():  # made by a writer that has not come to write yet
        return ()
    try:
        document = json.loads(text)
        if document["format"] != _FORMAT:
            raise ConfigError(
                f"{path}: is of format {document['format']}, this hpckit reads {_FORMAT}. "
                "Upgrade: pip install -U hpckit."
            )
        return tuple(_entry(row) for row in document["collections"])
    except json.JSONDecodeError as error:
        raise ConfigError(
            f"{path}:{error.lineno}: is not valid JSON ({error.msg}). Take the file from git again."
        ) from error
    except (KeyError, TypeError, ValueError, HpckitError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"{path}: is not a lock file of hpckit: {error}.") from error


def _entry(row: Mapping[str, Any]) -> Entry:
    entry = Entry(**row)
    texts = (entry.name, entry.source, entry.hash, *entry.files, *entry.files.values())
    if not all(isinstance(text, str) for text in texts):
        raise ValueError(f"an entry holds what is no text: {entry.name!r}")
    if not is_name(entry.name):
        raise ValueError(f"{entry.name!r} cannot be a collection's name")
    for commit in (entry.commit, entry.previous):
        if commit is not None and not _COMMIT.fullmatch(commit):
            raise ValueError(f"{commit!r} is not a commit")
    if entry.place().is_git != (entry.commit is not None):
        raise ValueError(f"{entry.name!r} is pinned to no commit")
    return entry


@contextlib.contextmanager
def changing(path: Path) -> Iterator[dict[str, Entry]]:
    """Give the entries by name, to change; write them when all went well.

    Raises:
        OutsideError: the file cannot be written. ConfigError: it is damaged.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = _open_locked(path)
    except OSError as error:
        raise OutsideError(f"{path}: cannot be written: {error.strerror}.") from error
    with file:
        entries = {entry.name: entry for entry in _parse(file.read(), path)}
        before = dict(entries)
        yield entries
        if entries != before or not before:
            _write(path, entries)


def _open_locked(path: Path) -> IO[str]:
    """Open the file and lock it; again if another writer has put a new one in its place."""
    while True:
        file = path.open("a+", encoding="utf-8")
        fcntl.flock(file, fcntl.LOCK_EX)
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_ino == os.fstat(file.fileno()).st_ino:
                file.seek(0)
                return file
        file.close()


def _write(path: Path, entries: Mapping[str, Entry]) -> None:
    rows = [_plain(entry) for entry in entries.values()]
    text = json.dumps({"format": _FORMAT, "collections": rows}, indent=2, ensure_ascii=False)
    try:
        replace_file(path, text + "\n")
    except OSError as error:
        raise OutsideError(f"{path}: cannot be written: {error.strerror}.") from error


def _plain(entry: Entry) -> dict[str, Any]:
    row = {key: value for key, value in asdict(entry).items() if value is not None}
    row["files"] = dict(sorted(row["files"].items()))
    return row
