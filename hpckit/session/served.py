"""What a session's host serves: a shell, a notebook server."""

import contextlib
import os
from typing import Protocol


class Served(Protocol):
    """One thing that is started, served until it ends, and may be told to end."""

    def start(self) -> None:
        """Start it, and write down in the run's `session/` how it is reached.

        Raises:
            CommandError: it cannot be started. OSError: nothing can be written.
        """

    def serve(self, seconds: float) -> int | None:
        """Serve it for so long at most; return the rank's exit status once it is over."""

    def last_use(self) -> float | None:
        """Return when it was used last, by `idle.now_s`, beside what samples say; None: unknown."""

    def warn(self, text: str) -> None:
        """Tell who is there."""

    def stop(self, why: str) -> None:
        """Begin to end it: `serve` returns soon, whatever it does. Signal handlers call it."""

    def close(self) -> None:
        """Remove what is of use only while it lasts."""


def say(text: str) -> None:
    """Write a line into the rank's log."""
    put(1, f"hpckit: {text}\n".encode(errors="replace"))


def put(descriptor: int, content: bytes) -> None:
    """Write into one of the rank's logs; what a full disk refuses is lost, and ends no session."""
    with contextlib.suppress(OSError):
        while content:
            content = content[os.write(descriptor, content) :]
