"""The line with which a process of a job ends, whole in a log that many of them write to."""

import contextlib
import sys
from typing import NoReturn


def end_with(line: str, status: int = 1) -> NoReturn:
    """Write a line to stderr, and end with an exit status.

    `sys.exit` with a text writes the line's end by itself, and jobs' Pythons keep nothing back
    (`-u`): lines of several ranks would mix.
    """
    with contextlib.suppress(OSError):  # a full disk costs the line, not the status
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()
    sys.exit(status)
