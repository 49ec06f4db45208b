"""`RUN/session/`: what only the run's owner may read, and whether anybody else can have written it.

Runs may lie in a folder that others read, and write to. What says where a session is reached must
be its owner's own words: who could write it could send its user's keys to a program of theirs.
"""

import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hpckit.files import DamagedFileError, open_regular, parse_json, replace_file
from hpckit.owners import is_mine_alone
from hpckit.run_folders.run_files import patiently

FOLDER = "session"
# How a session ended, where its end says less.
END = "end"
_MOST = 1 << 16  # bytes
_OTHERS = 0o077


def session_folder(run_dir: Path) -> Path:
    """Return the folder of a run's session."""
    return run_dir / FOLDER


def make_session_folder(run_dir: Path) -> Path:
    """Make the folder, or take the one that an earlier attempt has made.

    Raises:
        OSError: it cannot be made. DamagedFileError: it is not this user's alone.
    """
    folder = session_folder(run_dir)
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        _refuse_others(folder)
    return folder


def write_private(run_dir: Path, name: str, value: Mapping[str, Any]) -> None:
    """Write `RUN/session/NAME.json`, whole or not at all; only its owner may read it.

    Raises:
        OSError: it cannot be written. DamagedFileError: the folder is not this user's alone.
    """
    text = json.dumps(dict(value)) + "\n"

    def write() -> None:
        replace_file(make_session_folder(run_dir) / f"{name}.json", text, mode=0o600)

    patiently(write)


def remove_private(run_dir: Path, name: str) -> None:
    """Remove `RUN/session/NAME.json`, if it is there.

    Raises:
        OSError: it cannot be removed.
    """
    path = session_folder(run_dir) / f"{name}.json"
    patiently(lambda: path.unlink(missing_ok=True))


def read_private(run_dir: Path, name: str) -> dict[str, Any] | None:
    """Return what `RUN/session/NAME.json` says; None: it is not there.

    Raises:
        OSError: it cannot be read.
        DamagedFileError: it is not this user's alone, or is not a mapping.
    """
    folder = session_folder(run_dir)
    try:
        _refuse_others(folder)
        with open_regular(folder / f"{name}.json") as stream:
            status = os.fstat(stream.fileno())
            if not is_mine_alone(stream.fileno(), status) or status.st_mode & _OTHERS:
                raise DamagedFileError("others may read or write it, or it is another user's")
            text = stream.read(_MOST + 1)
    except FileNotFoundError:
        return None
    if len(text) > _MOST:
        raise DamagedFileError(f"it has more than {_MOST} bytes")
    value = parse_json(text)
    if not isinstance(value, dict):
        raise DamagedFileError("it is not a mapping")
    return value


def read_patiently(run_dir: Path, name: str) -> dict[str, Any] | None:
    """Do the same for who waits for it: a disk that refuses once says nothing of the session.

    Raises:
        OSError, DamagedFileError: as `read_private`.
    """
    return patiently(lambda: read_private(run_dir, name))


def _refuse_others(folder: Path) -> None:
    status = folder.lstat()
    mine = stat.S_ISDIR(status.st_mode) and is_mine_alone(folder, status)
    if not mine or status.st_mode & _OTHERS:
        raise DamagedFileError(f"{folder} is not a folder of yours that only you may open")
