"""A line from a script to its supervisor: the exit status it is about to end with."""

import os
import socket
from typing import Self

_VARIABLE = "HPCKIT_END_FD"


class EndLine:
    """A pair of sockets: one end is the supervisor's, the other one the script inherits."""

    def __init__(self) -> None:
        self._ours, self._theirs = socket.socketpair()
        self._ours.setblocking(False)
        self._theirs.set_inheritable(True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._ours.close()
        self._theirs.close()

    def variables(self) -> dict[str, str]:
        """Return what tells the script where its end is."""
        return {_VARIABLE: str(self._theirs.fileno())}

    def started(self) -> None:
        """Close the script's end here, once the script has it."""
        self._theirs.close()

    def told(self) -> int | None:
        """Return the status the script has told by now."""
        try:
            words = self._ours.recv(16)
        except OSError:  # nothing yet, or the script is gone
            return None
        return int(words) if words.strip().isdigit() else None

    def answer(self) -> None:
        """Let the script go on: its end is written down."""
        try:
            self._ours.send(os.linesep.encode())
        except OSError:
            return  # it did not wait
