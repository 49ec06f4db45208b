"""How a run's files are written: whole or not at all, for their owner alone to write.

All that ranks need of a run's folder, and what reads runs needs more.
"""

import json
import os
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import IO, TypeVar

from hpckit.files import DamagedFileError, read_json, replace_file
from hpckit.values import rebuild

# A group's folder may let all its members write, and a umask of 002 every file in it. What a run
# starts, loads or sends again must be its owner's own words: others read, where the umask lets
# them, and never write.
FOLDER_MODE, _FILE_MODE = 0o755, 0o644
_PAUSES_S = (0.1, 0.4, 0.5)
_NOTE_BYTES = 1 << 16
_Found = TypeVar("_Found")
JOB_LOG = "job.out"
SUMMARY = "summary.json"  # what a run did with what it had; `hpckit.report.at_end` writes it


def patiently(act: Callable[[], _Found]) -> _Found:
    """Do in a job what a disk may refuse now and take a moment later; what is missing is missing.

    Raises:
        OSError: it still refuses after a second: a rank that is to end has three.
    """
    for pause in _PAUSES_S:
        try:
            return act()
        except FileNotFoundError:
            raise
        except OSError:
            time.sleep(pause)
    return act()


def read_note(path: Path, kind: type[_Found], *, in_job: bool = False) -> _Found | None:
    """Read what was noted in a run's folder; None: nothing was, or it cannot be read.

    `in_job`: what follows from it cannot be taken back, so a disk that refuses is asked again.
    """

    def read() -> _Found:
        return rebuild(kind, read_json(path, most=_NOTE_BYTES), newer=True)

    try:
        return patiently(read) if in_job else read()
    except (OSError, DamagedFileError):
        return None


def write_json(path: Path, value: object, *, indent: int | None = 2) -> None:
    """Write a JSON file whole or not at all: readers never see half of it."""
    replace_file(path, json.dumps(value, indent=indent) + "\n", mode=_FILE_MODE)


def json_members(values: Mapping[str, object]) -> list[str]:
    """Return the members of an object as `write_json` writes them, to be used in many files."""
    texts = {key: json.dumps(value, indent=2) for key, value in values.items()}
    return [f"{json.dumps(key)}: {text}".replace("\n", "\n  ") for key, text in texts.items()]


def write_members(path: Path, members: Iterable[str]) -> None:
    """Write an object of such members, as `write_json` would."""
    text = ",\n  ".join(members)
    replace_file(path, f"{{\n  {text}\n}}\n", mode=_FILE_MODE)


def write_text(path: Path, text: str) -> None:
    """Write a file of a run, which others cannot write to."""
    with open_to_write(path) as stream:
        stream.write(text.encode())


def open_to_write(path: Path, mode: str = "wb") -> IO[bytes]:
    """Open a file of a run for writing: others cannot write to it, and it is no link of theirs."""
    return open(path, mode, opener=_owners_alone)


def _owners_alone(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, _FILE_MODE)
