"""One client of a session, as its host sees it: what came from it, what waits to go to it."""

import contextlib
import os
import socket
import struct
import tempfile
from pathlib import Path

from hpckit.files import DamagedFileError
from hpckit.session.frames import Frames, Kind, frame, message
from hpckit.session.idle import now_s

_CHUNK = 1 << 16
# What waits for a client that reads slowly; above that, nothing more is read for it.
_ENOUGH = 1 << 18
# Above that is a client that took nothing for so long: what is shown meanwhile it sees no more.
_STUCK_S = 5.0
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid: unix(7), SO_PEERCRED
# unix(7): a socket's path has 108 bytes with its end.
_LONGEST_PATH, _NAMED = 100, "/hpckit-12345678/socket"


def peer_uid(connection: socket.socket) -> int:
    """Return whose process is at the other end."""
    text = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(text)[1])


def socket_folder() -> Path:
    """Make a folder that only this user may open, on the node's own disk; its path is short.

    Raises:
        OSError: there is no place for one.
    """
    first = Path(tempfile.gettempdir())
    short = len(os.fsencode(first)) + len(_NAMED) <= _LONGEST_PATH
    return Path(tempfile.mkdtemp(prefix="hpckit-", dir=first if short else "/tmp"))  # noqa: S108


def listen(folder: Path) -> socket.socket:
    """Return a socket that listens in such a folder.

    Raises:
        OSError: it cannot be made.
    """
    path = str(folder / "socket")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.setblocking(False)
    listener.bind(path)
    Path(path).chmod(0o600)
    listener.listen(8)
    return listener


class Link:
    """One connection.

    Attributes:
        attached: it has said who it is, and is shown the session.
        behind: it took nothing for a while, and has missed what was shown since.
    """

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self.socket = connection
        self.attached = False
        self.behind = False
        self._frames = Frames()
        self._waiting = bytearray()
        self._took_s = now_s()

    @property
    def has_enough(self) -> bool:
        """Whether programs are to wait until it has read more, as for any slow terminal."""
        return len(self._waiting) > _ENOUGH and not self.behind

    @property
    def waits(self) -> bool:
        """Whether something is to be sent."""
        return bool(self._waiting)

    def is_stuck(self) -> bool:
        """Say whether it has taken nothing for so long that nobody waits for it any more."""
        return self.has_enough and now_s() - self._took_s > _STUCK_S

    def fall_behind(self) -> None:
        """Put no more beside what waits: once that is read, it is shown where things are then."""
        self.behind = True

    def show(self, content: bytes) -> None:
        """Send bytes to its terminal, unless it is behind."""
        if not self.behind:
            self._put(frame(Kind.OUTPUT, content))

    def end(self, text: str) -> None:
        """Tell it that it is over, and why."""
        self._put(message(Kind.END, {"text": text}))
        with contextlib.suppress(OSError):
            self.send()

    def _put(self, content: bytes) -> None:
        if not self._waiting:
            self._took_s = now_s()
        self._waiting += content

    def send(self) -> None:
        """Send what it takes now.

        Raises:
            OSError: it is gone.
        """
        with contextlib.suppress(BlockingIOError):
            while self._waiting:
                sent = self.socket.send(memoryview(self._waiting)[:_CHUNK])
                del self._waiting[:sent]
                self._took_s = now_s()

    def received(self) -> list[tuple[Kind, bytes]] | None:
        """Return the frames that have come; None: it has left, or does not speak our language."""
        try:
            chunk = self.socket.recv(_CHUNK)
            return [*self._frames.feed(chunk)] if chunk else None
        except BlockingIOError:
            return []
        except (OSError, DamagedFileError):
            return None
