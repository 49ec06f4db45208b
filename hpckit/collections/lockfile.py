"""`hpckit.lock`: what was added, pinned. Written whole or not at all, one writer at a time."""

import contextlib
import errno
import fcntl
import json
import os
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, field
from pathlib import Path
from typing import IO, Any

from hpckit.collections.collection import LOCK, is_file_name, is_name
from hpckit.collections.source import Source, check_rev, is_commit, parse_source
from hpckit.errors import ConfigError, Location, OutsideError, RequestError
from hpckit.files import DamagedFileError, parse_json, read_text, reason, replace_file
from hpckit.frozen import frozen
from hpckit.paths import config_folder, here, make_folder
from hpckit.values import rebuild

FORMAT = 1
# Patterns that hpckit.schemas has, too.
COMMIT, HASH, FILE_HASH = r"[0-9a-f]{40}|[0-9a-f]{64}", r"sha256:[0-9a-f]{16}", r"[0-9a-f]{16}"
# useradd(8) takes fewer; directory services have DOMAIN\\name and name@domain, some with a space.
_OWNER = r"\w[\w .@+\\$-]{0,254}"
# A writer holds the lock for milliseconds.
_LOCKED_S, _AGAIN_S = 30, 0.02


@frozen(kw_only=True)
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

    def parsed_source(self) -> Source:
        """Return the source as a value."""
        return parse_source(self.source)


@frozen(kw_only=True)
class _Document:
    """A lock file."""

    format: int
    collections: tuple[Entry, ...]


def lock_files(environ: Mapping[str, str] = os.environ) -> tuple[Path, Path]:
    """Return the project's lock file and the user's."""
    return here() / LOCK, config_folder(environ) / LOCK


def origin_of(lock: Path) -> str:
    """Return whose word a lock file is: `user` or `project`."""
    return "user" if lock == lock_files()[1] else "project"


def read_lock(path: Path) -> tuple[Entry, ...]:
    """Read a lock file, in the order its collections are searched; absent is empty.

    Raises:
        ConfigError: it cannot be read, or is not what hpckit writes.
    """
    try:
        text = read_text(path)
    except FileNotFoundError:
        return ()
    except (OSError, DamagedFileError) as error:
        raise ConfigError(f"cannot be read: {reason(error)}.", at=path) from error
    return _parse(text, path)


def _parse(text: str, path: Path) -> tuple[Entry, ...]:
    if not text.strip():  # made by a writer that has not come to write yet
        return ()
    if conflict := re.search(r"^(<{7}|>{7}) .*$", text, re.MULTILINE):
        raise ConfigError(
            "has a merge conflict of git's. Take either side (git checkout --ours hpckit.lock), "
            "add the collections that only the other side has, then run: hpckit collections update",
            at=Location(path, text.count("\n", 0, conflict.start()) + 1),
        )
    try:
        document = parse_json(text)
        if isinstance(document, dict) and document.get("format", FORMAT) != FORMAT:
            raise ConfigError(
                f"has format {document['format']!r}, but this hpckit reads {FORMAT}. "
                "Install a newer one: README.md, Install.",
                at=path,
            )
        entries = rebuild(_Document, document).collections
        for entry in entries:
            _check(entry)
        return entries
    except DamagedFileError as error:
        if isinstance(error.__cause__, json.JSONDecodeError):
            raise ConfigError(
                f"is not valid JSON ({error.__cause__.msg}). {repair(path)}",
                at=Location(path, error.__cause__.lineno),
            ) from error
        raise ConfigError(
            f"is not an hpckit lock file: {error}. {repair(path)}", at=path
        ) from error
    except (ValueError, RequestError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"is not an hpckit lock file: {error} {repair(path)}", at=path) from error


def repair(path: Path) -> str:
    """Say what to do with a lock file that is not as hpckit wrote it."""
    from hpckit.gitfiles.repository import find_repository  # noqa: PLC0415  # an error alone asks

    try:
        in_git = find_repository(path.parent) is not None
    except (OSError, DamagedFileError):  # then git restores nothing there either
        in_git = False
    if in_git:
        return "Restore the file from git, or correct it by hand."
    return (
        "Correct the file; or remove it, and add its collections again: hpckit collections add "
        "SOURCE."
    )


def _check(entry: Entry) -> None:
    """Refuse an entry with a field that is not what hpckit writes there.

    Raises:
        ValueError: a name, a commit, an owner, a hash or a path is none. RequestError: the source
            or the revision is none.
    """
    if not is_name(entry.name):
        raise ValueError(f"{entry.name!r} cannot be a collection's name.")
    for commit in (entry.commit, entry.previous):
        if commit is not None and not re.fullmatch(COMMIT, commit):
            raise ValueError(f"{commit!r} is not a commit.")
    if entry.parsed_source().is_git != (entry.commit is not None):
        raise ValueError(f"{entry.name!r} is not pinned to a commit.")
    if (
        entry.rev is not None
        and check_rev(entry.rev).lower() != entry.commit
        and is_commit(entry.rev)
    ):
        raise ValueError(f"{entry.name!r} is pinned to a commit that is not {entry.rev!r}.")
    if entry.owner is not None and not re.fullmatch(_OWNER, entry.owner):
        raise ValueError(f"{entry.owner!r} is not a user's name.")
    if not re.fullmatch(HASH, entry.hash):
        raise ValueError(f"{entry.hash!r} is not a hash.")
    for name, value in entry.files.items():
        if not is_file_name(name) or not re.fullmatch(FILE_HASH, value):
            raise ValueError(f"{name!r} with {value!r} is not a collection's file with its hash.")


@contextlib.contextmanager
def changing(path: Path) -> Iterator[dict[str, Entry]]:
    """Give the entries by name, to change; write them when all went well.

    Raises:
        OutsideError: the file cannot be written. ConfigError: it is damaged.
    """
    try:
        make_folder(path.parent)
        file = _open_locked(path)
    except (OSError, DamagedFileError) as error:
        raise _unwritable(path, error) from error
    with file:
        entries = {entry.name: entry for entry in read_lock(path)}
        before = dict(entries)
        yield entries
        if entries != before or not before:
            # A group's file stays readable, and writable, for it, whatever this writer's umask is.
            _write(path, entries, os.fstat(file.fileno()).st_mode & 0o664)


def _open_locked(path: Path) -> IO[bytes]:
    """Open the file and lock it; again if another writer has put a new one in its place."""
    from hpckit.file_locks import locks, open_to_lock  # noqa: PLC0415  # most commands only read

    deadline = time.monotonic() + _LOCKED_S
    while True:
        file = open_to_lock(path)
        with contextlib.suppress(FileNotFoundError):
            # Where the file system has no locks, nobody is kept out.
            free = locks(file.fileno(), fcntl.LOCK_EX) is not False
            if free and os.path.samestat(path.lstat(), os.fstat(file.fileno())):
                return file
        file.close()
        if time.monotonic() > deadline:  # in a shared folder anybody can hold it for ever
            raise TimeoutError(errno.ETIMEDOUT, f"another command has locked it for {_LOCKED_S} s")
        time.sleep(_AGAIN_S)


def _write(path: Path, entries: Mapping[str, Entry], mode: int) -> None:
    try:
        for entry in entries.values():
            _check(entry)
        rows = [_plain(entry) for entry in entries.values()]
        text = json.dumps({"format": FORMAT, "collections": rows}, indent=2, ensure_ascii=False)
        replace_file(path, text + "\n", exactly=mode)
    except (OSError, ValueError) as error:
        raise _unwritable(path, error) from error


def _unwritable(path: Path, error: OSError | ValueError) -> OutsideError:
    why = error.strerror if isinstance(error, OSError) else str(error).rstrip(".")
    return OutsideError(f"{path}: cannot be written: {why}.")


def _plain(entry: Entry) -> dict[str, Any]:
    row = {key: value for key, value in asdict(entry).items() if value is not None}
    row["files"] = dict(sorted(row["files"].items()))
    return row
