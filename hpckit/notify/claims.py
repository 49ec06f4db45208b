"""Each event once: who makes its file in `notify/` tells of it, be it of all tasks of an array.

`notify/` lies in the run's folder, an array's in that of the array itself. O_EXCL is the file
system's own word for "the first one", also over NFS from version 3 on: open(2).
"""

import contextlib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path

from hpckit.files import DamagedFileError, read_json, replace_file
from hpckit.run_folders.run_files import FOLDER_MODE

FOLDER = "notify"
_ENDED = re.compile(r"ended-(\d{1,10})\.json", re.ASCII)


class Claims:
    """The events of one run, or of all tasks of one array."""

    def __init__(self, base: Path) -> None:
        self.folder = base / FOLDER
        self._mine: set[str] = set()

    def take(self, name: str) -> bool:
        """Say whether this process is the first to tell of an event.

        Where nothing can be written, it is, once: better told twice than never.
        """
        if name in self._mine:
            return False
        self._mine.add(name)
        try:
            with contextlib.suppress(FileExistsError):
                self.folder.mkdir(mode=FOLDER_MODE)
            return _make_first(self.folder / f"{name}.json")
        except OSError:
            return True

    def write(self, name: str, outcome: Mapping[str, object]) -> None:
        """Write down what became of telling; a disk that is full keeps no job from its end."""
        with contextlib.suppress(OSError):
            replace_file(
                self.folder / f"{name}.json", json.dumps(outcome, indent=2) + "\n", mode=0o600
            )

    def task_ended(self, task: int, state: str) -> dict[int, str]:
        """Write down how an array's task ended; return the states of all that have."""
        with contextlib.suppress(OSError):
            with contextlib.suppress(FileExistsError):
                self.folder.mkdir(mode=FOLDER_MODE)
            replace_file(
                self.folder / f"ended-{task}.json", json.dumps({"state": state}) + "\n", mode=0o600
            )
        found = {}
        with contextlib.suppress(OSError):
            for entry in os.scandir(self.folder):
                if match := _ENDED.fullmatch(entry.name):
                    found[int(match[1])] = _state(Path(entry.path))
        return {**found, task: state}


def _state(path: Path) -> str:
    try:
        document = read_json(path)
    except (OSError, DamagedFileError):
        return "UNKNOWN"
    state = document.get("state") if isinstance(document, dict) else None
    return state if isinstance(state, str) else "UNKNOWN"


def _make_first(path: Path) -> bool:
    """Create an empty file for its owner alone; say whether it was not there before.

    Raises:
        OSError: it cannot be created.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        os.close(os.open(path, flags, 0o600))
    except FileExistsError:
        return False
    return True
