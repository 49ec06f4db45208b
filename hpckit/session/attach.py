"""A terminal at a session: what its user types goes there, what is shown comes here.

`python -m hpckit.session.attach RUN_DIR JOBID` runs on the session's node, in a step with a
terminal of srun's; for a job on this machine it is called.
"""

import contextlib
import errno
import fcntl
import os
import select
import signal
import socket
import stat
import struct
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from hpckit.errors import HpckitError, OutsideError
from hpckit.files import DamagedFileError, reason
from hpckit.owners import is_mine_alone
from hpckit.payload.last_line import end_with
from hpckit.session.folder import END, read_patiently
from hpckit.session.frames import Frames, Kind, frame, mapping, message
from hpckit.session.link import peer_uid
from hpckit.session.screen import Screen
from hpckit.session.terminal import PLACE

_CHUNK = 1 << 16
# Keys that wait for a program that reads none.
_MOST_KEYS = 1 << 20
_LAST_KEYS_S = 1.0
# Ctrl-], so often within so many seconds, leaves. Each but the last one goes to the program, too:
# none has to wait for what comes next, as an editor's own Ctrl-] would.
LEAVE, _TIMES, _WITHIN_S = 0x1D, 3, 1.0
LEAVE_WORDS = "Ctrl-] three times"
# How long a job that runs may take until its host listens: modules and containers load before.
_PATIENCE_S, _AGAIN_S = 120.0, 0.2
_SAID_AFTER_S = 3.0


class Leaving:
    """Looks for the keys that leave."""

    def __init__(self) -> None:
        self._times: list[float] = []

    def until_left(self, keys: bytes, now_s: float) -> tuple[bytes, bool]:
        """Return which keys are the session's, and whether the user leaves after them."""
        for at, key in enumerate(keys):
            if key != LEAVE:
                self._times.clear()
                continue
            self._times = [then for then in self._times if now_s - then < _WITHIN_S] + [now_s]
            if len(self._times) >= _TIMES:
                return keys[:at], True
        return keys, False


def attach(run_dir: Path, job_id: str, is_over: Callable[[], bool] = lambda: False) -> None:
    """Connect this process's terminal to a session, until its user leaves or it is over.

    `is_over` says whether the job has ended, while its session does not listen yet.

    Raises:
        OutsideError: there is no session to be reached, or others could have put it there; or its
            host is gone.
    """
    with _connected(run_dir, job_id, is_over) as connection, _raw(0):
        host = socket.gethostname().partition(".")[0]
        _tell(f"job {job_id} on {host}. Leave it running: {LEAVE_WORDS}. End it: exit")
        try:
            end = _carry(connection)
        except (OSError, DamagedFileError) as error:
            raise OutsideError(
                f"The connection to the session of job {job_id} is lost ({reason(error)}). See: "
                f"hpckit status {job_id}"
            ) from error
        _tell(end or f"the session goes on. Come back: hpckit shell {job_id}")


@contextlib.contextmanager
def _connected(run_dir: Path, job_id: str, is_over: Callable[[], bool]) -> Iterator[socket.socket]:
    """Connect to a session as soon as it listens."""
    until = time.monotonic() + _PATIENCE_S
    tell_at = time.monotonic() + _SAID_AFTER_S
    while True:
        try:
            if place := read_patiently(run_dir, PLACE):
                connection = _open(str(place.get("socket", "")))
                break
            over = read_patiently(run_dir, END) or is_over()
        except (OSError, DamagedFileError) as error:
            raise OutsideError(f"Job {job_id} cannot be reached: {reason(error)}.") from error
        if over or time.monotonic() > until:
            why = "its session has ended" if over else "its session does not listen"
            raise OutsideError(f"Job {job_id} cannot be reached: {why}. See: hpckit logs {job_id}")
        if time.monotonic() > tell_at:
            tell_at = float("inf")
            sys.stderr.write("hpckit: the job runs, and loads its environment...\n")
        time.sleep(_AGAIN_S)
    with connection:
        yield connection


def _open(path: str) -> socket.socket:
    """Connect to a socket of this user's, in a folder that nobody else may open.

    Raises:
        OSError: it is not there. DamagedFileError: it may be another's.
    """
    folder = Path(path).parent
    status = folder.lstat()
    alone = stat.S_ISDIR(status.st_mode) and is_mine_alone(folder, status)
    if not alone or status.st_mode & 0o077:
        raise DamagedFileError(f"{folder} is not a folder that only you may open")
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(path)
        if peer_uid(connection) != os.getuid():
            raise DamagedFileError(f"{path} is another user's")
    except BaseException:
        connection.close()
        raise
    return connection


def terminal_as_it_is(descriptor: int) -> list[Any]:
    """Return a terminal's settings, to be put back.

    Raises:
        OutsideError: it is gone.
    """
    try:
        return termios.tcgetattr(descriptor)
    except termios.error as error:
        raise OutsideError(f"This terminal cannot be used: {error.args[-1]}.") from error


@contextlib.contextmanager
def _raw(descriptor: int) -> Iterator[None]:
    """Let keys pass as they are typed; whatever happens, the terminal is as before in the end."""
    before = terminal_as_it_is(descriptor)
    try:
        with contextlib.suppress(termios.error):  # it is gone, which reading from it will say
            tty.setraw(descriptor)
        yield
    finally:
        with contextlib.suppress(termios.error):  # it is gone
            termios.tcsetattr(descriptor, termios.TCSANOW, before)


class _Client:
    """The terminal's side of one connection."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self.screen = Screen()
        self._connection = connection
        self._frames = Frames()
        self._leaving = Leaving()
        self._waiting = bytearray(message(Kind.HELLO, _size()))

    def carry(self, changes: int) -> str:
        """Carry keys and output; return why the session is over, or "" where its user leaves.

        `changes` can be read from when the terminal's size has changed.
        """
        here = self._connection.fileno()
        while True:
            # Also while keys wait for the other side, what comes from there is read.
            reads = [here, changes, *([0] if len(self._waiting) < _MOST_KEYS else [])]
            ready, takes, _ = select.select(reads, [here] if self._waiting else [], [])
            if takes:
                del self._waiting[: self._connection.send(self._waiting)]
            if changes in ready:
                os.read(changes, _CHUNK)
                self._waiting += message(Kind.SIZE, _size())
            if here in ready and (end := self._shown()) is not None:
                return end
            if 0 in ready and not self._typed(_keys()):
                self._send_rest()
                return ""

    def _send_rest(self) -> None:
        """Send what was typed before its user left, unless the session reads nothing."""
        self._connection.settimeout(_LAST_KEYS_S)
        with contextlib.suppress(TimeoutError):
            self._connection.sendall(self._waiting)

    def _typed(self, keys: bytes) -> bool:
        """Take keys; say whether the user stays."""
        theirs, left = self._leaving.until_left(keys, time.monotonic())
        if theirs:
            self._waiting += frame(Kind.INPUT, theirs)
        return bool(keys) and not left

    def _shown(self) -> str | None:
        """Show what has come; return why the session is over, None: it goes on."""
        chunk = self._connection.recv(_CHUNK)
        if not chunk:
            raise DamagedFileError("its host is gone")
        for kind, content in self._frames.feed(chunk):
            if kind is Kind.OUTPUT:
                self.screen.feed(content)
                _write(content)
            elif kind is Kind.END:
                return str(mapping(content).get("text", ""))
        return None


def _carry(connection: socket.socket) -> str:
    """Carry keys and output, sizes too, and leave the terminal without a program's modes."""
    changes, change = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    before = signal.signal(signal.SIGWINCH, lambda _number, _frame: None)
    signal.set_wakeup_fd(change, warn_on_full_buffer=False)
    client = _Client(connection)
    try:
        return client.carry(changes)
    finally:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGWINCH, before)
        for descriptor in (changes, change):
            os.close(descriptor)
        _write(client.screen.left())


def _keys() -> bytes:
    """Return what was typed; nothing where the terminal is gone."""
    try:
        return os.read(0, _CHUNK)
    except OSError as error:
        if error.errno == errno.EIO:
            return b""
        raise


def _write(content: bytes) -> None:
    """Write to the terminal, however slowly it reads."""
    with contextlib.suppress(OSError):  # it is gone, which reading from it will say
        while content:
            content = content[os.write(1, content) :]


def _tell(text: str) -> None:
    _write(f"\r\n[hpckit: {text}]\r\n".encode())


def _size() -> dict[str, int]:
    try:
        text = fcntl.ioctl(1, termios.TIOCGWINSZ, b"\0" * 8)
    except OSError:
        return {}
    rows, columns, _, _ = struct.unpack("HHHH", text)
    return {"rows": rows, "columns": columns}


def main() -> None:
    """Attach srun's terminal."""
    for signum in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, lambda number, _frame: sys.exit(128 + number))
    try:
        attach(Path(sys.argv[1]), sys.argv[2])
    except HpckitError as error:
        end_with(f"hpckit: error: {error}")


if __name__ == "__main__":
    main()
