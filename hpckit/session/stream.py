"""Many connections over one stream of bytes, as from a login node into a job: both ends of it.

The near end listens on a port of this machine's loopback; the far end opens a connection to a port
of its own loopback for each that comes in. Each connection has a number, and room for what is on
its way: a browser that reads slowly holds up nobody else.
"""

import asyncio
import socket
import struct
from collections.abc import Callable, Coroutine
from typing import Any

from hpckit.errors import OutsideError

# What the far end says first. Whatever a site's prolog prints comes before it.
HELLO = b"\0hpckit stream 1\n"
LOOPBACK = "127.0.0.1"
# What a message is, its connection, and how many bytes follow (OPEN, DATA) or were read (READ).
_HEAD = struct.Struct("!BII")
_OPEN, _DATA, _ENDED, _CLOSED, _READ = range(5)
# Bytes of a connection that may be on their way, and bytes of one message.
_ROOM, _PIECE = 1 << 18, 1 << 15


class Stream:
    """One end. `dial` opens what the other end asks for; None: it asks for nothing."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        dial: int | None = None,
    ) -> None:
        self._reader, self._writer, self._dial = reader, writer, dial
        self._sending = asyncio.Lock()
        self._connections: dict[int, _Connection] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._number = 0

    async def run(self) -> None:
        """Pass messages on until the other end is gone; then all connections end."""
        try:
            await self._pass_on()
        except (asyncio.IncompleteReadError, OSError):
            pass  # how the other end goes
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            self._writer.close()

    async def _pass_on(self) -> None:
        while True:
            what, number, count = _HEAD.unpack(await self._reader.readexactly(_HEAD.size))
            if what == _OPEN and self._dial is not None:
                self._start(self._dialled(self._opened(number), self._dial))
                continue
            content = await self._reader.readexactly(count) if what == _DATA else b""
            if one := self._connections.get(number):
                one.heard(what, content, count)

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry a connection that came in here, to its end."""
        self._number += 1
        one = self._opened(self._number)
        try:
            await self.send(_OPEN, one.number)
        except OSError:  # the other end is gone, and `run` about to end
            writer.close()
            return
        self._start(one.carry(reader, writer))

    async def send(self, what: int, number: int, content: bytes = b"", count: int = 0) -> None:
        """Send one message, and wait until there is room for the next."""
        async with self._sending:
            self._writer.write(_HEAD.pack(what, number, len(content) or count) + content)
            await self._writer.drain()

    def forget(self, number: int) -> None:
        """Let a connection go."""
        self._connections.pop(number, None)

    def _opened(self, number: int) -> "_Connection":
        one = self._connections[number] = _Connection(self, number)
        return one

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _dialled(self, one: "_Connection", port: int) -> None:
        try:
            reader, writer = await asyncio.open_connection(LOOPBACK, port)
        except OSError:
            self.forget(one.number)
            await self.send(_CLOSED, one.number)
            return
        await one.carry(reader, writer)


class _Connection:
    """One connection at one end: what it reads goes out, what comes in it writes."""

    def __init__(self, stream: Stream, number: int) -> None:
        self._stream, self.number = stream, number
        self._room = _ROOM
        self._more_room = asyncio.Event()
        self._coming: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._closed = asyncio.Event()

    def heard(self, what: int, content: bytes, count: int) -> None:
        """Take a message from the other end."""
        if what == _DATA:
            self._coming.put_nowait(content)
        elif what == _ENDED:
            self._coming.put_nowait(None)
        elif what == _READ:
            self._room += count
            self._more_room.set()
        elif what == _CLOSED:
            self._closed.set()

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry both directions until both have ended, or either end breaks off."""
        ways = [asyncio.ensure_future(way) for way in (self._out(reader), self._in(writer))]
        closed = asyncio.ensure_future(self._closed.wait())
        both = asyncio.gather(*ways)
        try:
            await asyncio.wait((closed, both), return_when=asyncio.FIRST_COMPLETED)
            if not closed.done() and both.exception():
                await self._stream.send(_CLOSED, self.number)
        finally:
            for task in (closed, *ways):
                task.cancel()
            await asyncio.gather(closed, *ways, both, return_exceptions=True)
            self._stream.forget(self.number)
            writer.close()

    async def _out(self, reader: asyncio.StreamReader) -> None:
        while True:
            while self._room <= 0:
                self._more_room.clear()
                await self._more_room.wait()
            content = await reader.read(min(_PIECE, self._room))
            if not content:
                await self._stream.send(_ENDED, self.number)
                return
            self._room -= len(content)
            await self._stream.send(_DATA, self.number, content)

    async def _in(self, writer: asyncio.StreamWriter) -> None:
        while (content := await self._coming.get()) is not None:
            writer.write(content)
            await writer.drain()
            await self._stream.send(_READ, self.number, count=len(content))
        if writer.can_write_eof():
            writer.write_eof()


async def near_end(
    listening: socket.socket, link: socket.socket, ready: Callable[[], None], within_s: float
) -> None:
    """Carry connections to `listening` over `link` until the far end is gone.

    `ready` is called once the far end answers, which it must within so many seconds.

    Raises:
        OutsideError: it does not.
    """
    reader, writer = await asyncio.open_connection(sock=link)
    server = None
    try:
        await _hello(reader, within_s)
        stream = Stream(reader, writer)
        server = await asyncio.start_server(stream.accept, sock=listening)
        ready()
        await stream.run()
    finally:
        writer.close()
        if server is not None:
            server.close()


async def _hello(reader: asyncio.StreamReader, within_s: float) -> None:
    try:
        await asyncio.wait_for(reader.readuntil(HELLO), within_s)
    except TimeoutError as error:
        raise OutsideError(f"the job's node did not answer within {within_s:.0f} s") from error
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError) as error:
        raise OutsideError("what was started on the job's node ended at once") from error


async def far_end(link: socket.socket, port: int) -> None:
    """Open a connection to a port of this machine's loopback for each that comes over `link`."""
    reader, writer = await asyncio.open_connection(sock=link)
    await Stream(reader, writer, dial=port).run()
