"""`python -m hpckit.session.pipe PORT`: the far end of a stream, on the job's node.

Slurm starts it as a step of the job, and its standard input and output are the stream: nothing
listens anywhere. It ends when they do.
"""

import asyncio
import os
import socket
import sys
import threading
import tty

from hpckit.session.stream import HELLO, far_end

_PIECE = 1 << 16


def main(port: int) -> None:
    """Serve standard input and output until they end."""
    if os.isatty(1):  # `srun --unbuffered` gives a terminal, which would change bytes
        tty.setraw(1)
    ours, theirs = socket.socketpair()
    write_all(1, HELLO)
    threading.Thread(target=_from_input, args=(theirs,), daemon=True).start()
    out = threading.Thread(target=_to_output, args=(theirs,), daemon=True)
    out.start()
    asyncio.run(far_end(ours, port))
    out.join()


def _from_input(to: socket.socket) -> None:
    while content := os.read(0, _PIECE):
        to.sendall(content)
    to.shutdown(socket.SHUT_WR)


def _to_output(came: socket.socket) -> None:
    while content := came.recv(_PIECE):
        write_all(1, content)


def write_all(descriptor: int, content: bytes) -> None:
    """Write all of it, in as many pieces as the other side takes."""
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


if __name__ == "__main__":
    main(int(sys.argv[1]))
