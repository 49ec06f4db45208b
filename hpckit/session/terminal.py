"""A shell with a terminal of its own, which goes on whether or not a client is connected.

Clients reach it through a socket in a folder that only its user may open, on the node's own disk:
a port would be open to everybody, and network file systems have no sockets. One client is connected
at a time; the next one takes over.
"""

import contextlib
import fcntl
import os
import select
import selectors
import shutil
import signal
import socket
import struct
import termios
import time
from pathlib import Path
from typing import TYPE_CHECKING

from hpckit import shell
from hpckit.errors import OutsideError
from hpckit.files import DamagedFileError
from hpckit.payload.children import shell_status
from hpckit.payload.container import find_container
from hpckit.session.folder import remove_private, write_private
from hpckit.session.frames import Kind, mapping
from hpckit.session.idle import now_s
from hpckit.session.link import Link, listen, peer_uid, socket_folder
from hpckit.session.screen import Screen
from hpckit.session.served import put, say
from hpckit.session.shells import Start, start_of

if TYPE_CHECKING:
    from subprocess import Popen  # noqa: TID251  # the type only

PLACE = "place"
_CHUNK = 1 << 16
# How many bytes of keys wait for a program that does not read; no more are taken from the client.
_KEYS = 1 << 16
# How long a shell may take to end by itself, and its last output to reach the client.
_GRACE_S, _LAST_WORDS_S = 3.0, 2.0
# Full-screen programs redraw when the size changes, so the terminal is a row smaller for so long.
_NUDGE_S = 0.1
# For kernels that do not report a child's end.
_POLL_S = 0.5
_SIZE = (24, 80)
_MOST_SIZE = 1000
_SHOWN_START = 4096  # bytes


def job_word() -> str:
    """Return the id of the job that this process is part of."""
    names = ("SLURM_JOB_ID", "SUBMITIT_LOCAL_JOB_ID", "HPCKIT_RUN_ID")
    return next((os.environ[name] for name in names if os.environ.get(name)), "")


class Terminal:
    """One shell: see `Served`."""

    def __init__(
        self, run_dir: Path, command: tuple[str, ...], container: str | None = None
    ) -> None:
        self._run_dir = run_dir
        self._command = command
        self._container = container
        self._folder = socket_folder()
        self._screen = Screen()
        self._links: list[Link] = []
        self._keys = bytearray()
        self._used: float | None = None
        self._typed = self._hung_up = False
        self._size = _SIZE
        self._nudge_at: float | None = None
        self._why = ""
        self._kill_at: float | None = None
        self._child: Popen[bytes] | None = None
        self._wakes, self._wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._master = self._ended = -1
        self._listener: socket.socket | None = None

    def start(self) -> None:
        """Start the shell, and listen."""
        prompt = f"(job {job_word()} {socket.gethostname().partition('.')[0]}) "
        inside = self._container is not None
        start = start_of(self._command, os.environ, self._folder, prompt, in_container=inside)
        self._listener = listen(self._folder)
        self._master, slave = os.openpty()
        try:
            _set_size(self._master, self._size)
            os.set_blocking(self._master, False)
            self._child = _spawned(start, slave, self._container)
        finally:
            os.close(slave)
        with contextlib.suppress(OSError):
            self._ended = os.pidfd_open(self._child.pid)
        host = socket.gethostname()
        place = {"socket": str(self._folder / "socket"), "host": host, "job": job_word()}
        write_private(self._run_dir, PLACE, place)
        say(f"a {self._command[-1]} on {host} waits for you: hpckit shell {job_word()}")

    def last_use(self) -> float | None:
        """Return when a key was last typed, or a client last connected."""
        return self._used

    def warn(self, text: str) -> None:
        """Show a line to the client, or to the next one that comes."""
        bar = f"\x1b[7m[hpckit: {text}]\x1b[0m".encode()
        if self._screen.alternate:
            shown = b"\x1b7\x1b[1;1H" + bar + b"\x1b8\a"
        else:
            shown = b"\r\n" + bar + b"\a\r\n"
        if (link := self._client()) is None:
            self._screen.feed(shown)
        else:
            link.show(shown)
            if not self._screen.alternate:
                self._signal(signal.SIGWINCH)  # a shell shows its prompt again
        say(text)

    def stop(self, why: str) -> None:
        """Hang up, as when a terminal is closed; kill what does not end."""
        self._why = self._why or why
        self._kill_at = self._kill_at or time.monotonic() + _GRACE_S
        if self._child and self._child.poll() is None:
            self._signal(signal.SIGHUP)
            self._signal(signal.SIGCONT)
            self._child.send_signal(signal.SIGHUP)
            self._child.send_signal(signal.SIGCONT)
        with contextlib.suppress(OSError):
            os.write(self._wake, b"!")

    def close(self) -> None:
        """Remove the socket, and the file that says where it is."""
        for connection in (*(link.socket for link in self._links), self._listener):
            if connection:
                connection.close()
        shutil.rmtree(self._folder, ignore_errors=True)
        with contextlib.suppress(OSError):
            remove_private(self._run_dir, PLACE)
        for descriptor in (self._master, self._ended, self._wakes, self._wake):
            if descriptor >= 0:
                os.close(descriptor)

    def serve(self, seconds: float) -> int | None:
        """Pass on keys and output for so long; return the shell's exit status once it has ended."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self._turn(min([left, *self._due()]))
            if self._child and self._child.poll() is not None:
                return self._over(self._child.returncode)
        return None

    def _due(self) -> list[float]:
        """Return after how many seconds there is something to do, even if nothing comes."""
        now = time.monotonic()
        moments = (self._nudge_at, self._kill_at)
        due = [max(0.0, moment - now) for moment in moments if moment is not None]
        slow = any(link.has_enough for link in self._links)
        return [*due, _POLL_S] if slow or self._ended < 0 else due

    def _turn(self, seconds: float) -> None:
        """Wait for what comes next, and do it."""
        with selectors.DefaultSelector() as waits:
            for descriptor in (self._listener, self._wakes, self._ended):
                if descriptor is not None and descriptor != -1:
                    waits.register(descriptor, selectors.EVENT_READ)
            self._register(waits)
            ready = {key.fileobj: events for key, events in waits.select(seconds)}
        if self._wakes in ready:
            os.read(self._wakes, _CHUNK)
        if events := ready.get(self._master):
            self._carry(events)
        for link in [*self._links]:
            self._attend(link, ready.get(link.socket, 0))
        if self._listener in ready:
            self._accept(self._listener)
        self._do_due()

    def _register(self, waits: selectors.BaseSelector) -> None:
        client = self._client()
        full = self._hung_up or (client and client.has_enough)
        read = 0 if full else selectors.EVENT_READ
        events = read | (selectors.EVENT_WRITE if self._keys else 0)
        if self._master >= 0 and events:
            waits.register(self._master, events)
        for link in self._links:
            hears = selectors.EVENT_READ if len(self._keys) < _KEYS else 0
            if events := hears | (selectors.EVENT_WRITE if link.waits else 0):
                waits.register(link.socket, events)

    def _do_due(self) -> None:
        now = time.monotonic()
        if self._nudge_at is not None and now >= self._nudge_at:
            self._nudge_at = None
            _set_size(self._master, self._size)
        if self._kill_at is not None and now >= self._kill_at and self._child:
            self._kill_at = now + _GRACE_S
            self._signal(signal.SIGKILL)
            self._child.kill()
        client = self._client()
        if client and client.is_stuck():
            client.fall_behind()

    def _carry(self, events: int) -> None:
        """Carry what the shell's programs have written, and what was typed."""
        if events & selectors.EVENT_WRITE:
            with contextlib.suppress(OSError):
                del self._keys[: os.write(self._master, self._keys)]
        if events & selectors.EVENT_READ:
            self._show(self._read())

    def _read(self) -> bytes:
        """Return what has come; nothing where nothing has, or where nobody can write any more."""
        found = bytearray()
        try:
            while len(found) < _CHUNK:  # the kernel gives 4 KiB at a time
                chunk = os.read(self._master, _CHUNK)
                if not chunk:
                    break
                found += chunk
        except BlockingIOError:
            pass
        except OSError:  # EIO: pty(7)
            self._hung_up = True
        return bytes(found)

    def _show(self, chunk: bytes) -> None:
        if not chunk:
            return
        self._screen.feed(chunk)
        if client := self._client():
            client.show(chunk)

    def _attend(self, link: Link, events: int) -> None:
        """Send what waits for a client, and take what came from it."""
        try:
            if events & selectors.EVENT_WRITE:
                link.send()
        except OSError:
            self._drop(link)
            return
        if link.behind and not link.waits:  # it reads again: it is shown where things are now
            link.behind = False
            link.show(self._screen.shown_again(self._size[0]))
        if not events & selectors.EVENT_READ:
            return
        frames = link.received()
        if frames is None:
            self._drop(link)
            return
        try:
            for kind, content in frames:
                self._take(link, kind, content)
        except DamagedFileError:
            self._drop(link)

    def _take(self, link: Link, kind: Kind, content: bytes) -> None:
        if kind is Kind.HELLO:
            self._attach(link, mapping(content))
        elif kind is Kind.SIZE and link.attached:
            self._resize(mapping(content))
        elif kind is Kind.INPUT and link.attached and content:
            self._keys += content
            self._typed = True
            self._used = now_s()

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            connection, _ = listener.accept()
            if peer_uid(connection) == os.getuid():
                self._links.append(Link(connection))
            else:  # root, since nobody else can open the folder
                connection.close()

    def _attach(self, link: Link, hello: dict[str, object]) -> None:
        """Show the session to a client, in the place of the one before."""
        for other in [*self._links]:
            if other.attached and other is not link:
                other.end("another terminal has come to this session")
                self._drop(other)
        link.attached = True
        self._used = now_s()
        before = self._size
        self._resize(hello)
        link.show(self._screen.shown_again(self._size[0]))
        if self._size != before:
            return
        if self._screen.alternate:
            _set_size(self._master, (max(1, self._size[0] - 1), self._size[1]))
            self._nudge_at = time.monotonic() + _NUDGE_S

    def _resize(self, value: dict[str, object]) -> None:
        rows, columns = value.get("rows"), value.get("columns")
        known = isinstance(rows, int) and isinstance(columns, int)
        if known and 0 < rows <= _MOST_SIZE and 0 < columns <= _MOST_SIZE:  # type: ignore[operator]
            self._size = (rows, columns)  # type: ignore[assignment]
            self._nudge_at = None
            _set_size(self._master, self._size)

    def _client(self) -> Link | None:
        return next((link for link in self._links if link.attached), None)

    def _drop(self, link: Link) -> None:
        link.socket.close()
        self._links.remove(link)

    def _signal(self, signum: int) -> None:
        """Signal what is in the foreground of the terminal."""
        with contextlib.suppress(OSError):
            group = os.tcgetpgrp(self._master)
            if group > 0:
                os.killpg(group, signum)

    def _over(self, code: int) -> int:
        """Show the last words, say how it ended, and return the rank's exit status.

        Who has typed into a shell has been there: whatever status the last command leaves, the
        session did what it was for. A shell that ends by itself before that could not start.
        """
        while chunk := self._read():
            self._show(chunk)
        status = shell_status(code)
        if self._why:
            end = self._why
        else:
            end = f"the shell has ended with status {status}" if status else "the shell has ended"
        if not self._why:  # else the host says it
            say(end)
        failed = code < 0 or (code > 0 and not self._typed)
        if failed and not self._typed:
            put(1, self._screen.shown_again(_MOST_SIZE)[-_SHOWN_START:])
        self._last_words(end)
        return status if failed else 0

    def _last_words(self, end: str) -> None:
        client = self._client()
        if client is None:
            return
        client.end(end)
        until = time.monotonic() + _LAST_WORDS_S
        with contextlib.suppress(OSError):
            while client.waits and (left := until - time.monotonic()) > 0:
                select.select([], [client.socket], [], left)
                client.send()


def _spawned(start: Start, slave: int, container: str | None) -> "Popen[bytes]":
    """Start a shell whose terminal is `slave`."""

    def take_terminal() -> None:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    environ, prepare = start.environ, take_terminal
    if container is not None:
        box = find_container(container, os.environ.get("SLURMD_NODENAME"), os.environ)
        environ, prepare = box.environment(environ, os.environ), box.entering(prepare)
    try:
        return shell.spawn(
            start.argv,
            env=environ,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            new_session=True,
            prepare=prepare,
        )
    except OutsideError as error:
        raise OutsideError(
            f"The shell cannot be started on {socket.gethostname()}: {error}"
        ) from error


def _set_size(descriptor: int, size: tuple[int, int]) -> None:
    with contextlib.suppress(OSError):
        fcntl.ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
