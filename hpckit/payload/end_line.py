"""A line from a script to its supervisor: the exit status of its end, and whether it met others.

What is said on it: `3`, by `mpi_script`, which then waits for an answer; `met PID`, `alone PID` or
`unknown PID` (`met` where MPI waits for the others), by `importable/hpckit_meeting.py` at the end
of any Python process that has the script's end of the line.
"""

import _socket  # without the enums that `socket` makes of its constants, in front of every rank
import contextlib
import os
from typing import Self

_VARIABLE = "HPCKIT_END_FD"
# Which socket that is: a child of the script may have another file of the same number.
_WHICH = "HPCKIT_END_INODE"
_BYTES = 1 << 16


class EndLine:
    """A pair of sockets: one end is the supervisor's, the other one the script inherits."""

    def __init__(self) -> None:
        self._ours, self._theirs = _socket.socketpair()
        self._ours.setblocking(False)
        os.set_inheritable(self._theirs.fileno(), True)
        self._said = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._ours.close()
        self._theirs.close()

    def variables(self) -> dict[str, str]:
        """Return what tells the script where its end is."""
        number = self._theirs.fileno()
        return {_VARIABLE: str(number), _WHICH: str(os.fstat(number).st_ino)}

    def started(self) -> None:
        """Close the script's end here, once the script has it."""
        self._theirs.close()

    def told(self) -> int | None:
        """Return the status the script has told by now."""
        return next((int(line) for line in self._lines() if line.isdigit()), None)

    def met(self, pid: int) -> bool | None:
        """Say whether the script, process `pid`, has met other ranks by its own account.

        Any process of the script may have; that none has, only the script itself can say.
        """
        lines = self._lines()
        if any(line.split(b" ")[0] == b"met" for line in lines):
            return True
        return False if b"alone %d" % pid in lines else None

    def at_its_end(self, pid: int) -> bool:
        """Say whether the script, process `pid`, is done but for what Python does at its end."""
        words = (b"met", b"alone", b"unknown")
        return not {b"%s %d" % (word, pid) for word in words}.isdisjoint(self._lines())

    def _lines(self) -> list[bytes]:
        """Return what has been said in whole lines."""
        if len(self._said) < _BYTES:
            # Nothing yet, or the script is gone.
            with contextlib.suppress(OSError):
                self._said += self._ours.recv(_BYTES)
        return self._said.split(b"\n")[:-1]

    def answer(self) -> None:
        """Let the script go on: its end is written down."""
        try:
            self._ours.send(os.linesep.encode())
        except OSError:
            return  # it did not wait
