"""Many connections over one stream: whole, at once, and none held up by another."""

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable

import pytest

from hpckit.errors import OutsideError
from hpckit.session.stream import HELLO, far_end, near_end
from tests.patience import LONG_S

Use = Callable[[int], Awaitable[None]]


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Say again what is heard, to the end."""
    while content := await reader.read(65_536):
        writer.write(content)
        await writer.drain()
    writer.close()


async def said_again(port: int, content: bytes) -> bytes:
    """Send all of it, end that direction, and return what comes back."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)

    async def say() -> None:
        writer.write(content)
        await writer.drain()
        writer.write_eof()

    _, heard = await asyncio.gather(say(), reader.read())
    writer.close()
    return heard


async def carried(port: int, use: Use, noise: bytes = b"") -> None:
    """Carry connections to a port over a stream within this process, while `use` uses them."""
    here, there = socket.socketpair()
    there.sendall(noise + HELLO)
    up = asyncio.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        near = asyncio.create_task(near_end(listening, here, up.set, LONG_S))
        far = asyncio.create_task(far_end(there, port))
        await up.wait()
        await use(listening.getsockname()[1])
        far.cancel()
        await asyncio.gather(far, near, return_exceptions=True)


async def with_echo(use: Use, noise: bytes = b"") -> None:
    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    await carried(server.sockets[0].getsockname()[1], use, noise)
    server.close()


def test_what_many_connections_say_at_once_arrives_whole() -> None:
    sizes = (0, 1, 40_000, 600_000, 1, 300_000)

    async def use(port: int) -> None:
        sent = [os.urandom(size) for size in sizes]
        assert await asyncio.gather(*(said_again(port, row) for row in sent)) == sent

    asyncio.run(with_echo(use, noise=b"Welcome to c1!\n\0hpckit"))


def test_who_does_not_read_holds_up_nobody() -> None:
    async def use(port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(bytes(2_000_000))  # more than its room; nobody reads what comes back
        assert await asyncio.wait_for(said_again(port, b"hello"), LONG_S) == b"hello"
        writer.transport.abort()
        del reader
        assert await asyncio.wait_for(said_again(port, b"again"), LONG_S) == b"again"

    asyncio.run(with_echo(use))


def test_a_refused_connection_ends_at_once() -> None:
    async def use(near: int) -> None:
        assert await asyncio.wait_for(said_again(near, b""), LONG_S) == b""

    with socket.socket() as held:  # nobody else gets its port, and it does not listen
        held.bind(("127.0.0.1", 0))
        asyncio.run(carried(held.getsockname()[1], use))


@pytest.mark.parametrize("said", [b"", b"srun: nothing\n" * 9])
def test_a_far_end_that_does_not_come_up_is_an_error(said: bytes) -> None:
    async def run() -> None:
        here, there = socket.socketpair()
        there.sendall(said)
        there.close()
        with socket.create_server(("127.0.0.1", 0)) as listening:
            await near_end(listening, here, lambda: None, LONG_S)

    with pytest.raises(OutsideError, match="ended at once"):
        asyncio.run(run())
