"""From a port of this machine's loopback to one of a job's node, as long as somebody waits here.

By ssh where the node lets its job's owner in; else through a step of the job, whose standard input
and output carry all connections: srun is let in wherever the job is.
"""

import asyncio
import contextlib
import select
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import IO, TYPE_CHECKING

from hpckit import shell
from hpckit.errors import OutsideError
from hpckit.frozen import frozen
from hpckit.payload.children import prepare_script, stop_all, wait_for
from hpckit.session.connection import Connection
from hpckit.session.step import step_argv, step_environment
from hpckit.session.stream import LOOPBACK, near_end

if TYPE_CHECKING:
    from subprocess import Popen  # noqa: TID251  # the type only

SSH, STEP, AUTO = "ssh", "srun", "auto"
# What ssh says once it is in and listens here: its own exit status comes too late.
_READY = b"hpckit-forward-ready\n"
_NOTHING = -3  # subprocess.DEVNULL
_SSH_WITHIN_S, _STEP_WITHIN_S, _LOOK_S = 20.0, 120.0, 1.0
# What a program gets to say why it ended, and Slurm that the job did.
_ENDS_WITHIN_S, _SAID_WITHIN_S = 2.0, 15.0


@frozen(kw_only=True)
class Target:
    """A server in a job of Slurm's, and the port it is to have here; None: the same, or any."""

    job_id: str
    connection: Connection
    port: int | None = None


def forward(
    target: Target, way: str, *, ready: Callable[[int, str], None], over: Callable[[], bool]
) -> None:
    """Carry connections until the job is over; `ready` hears of the port here, and of the way.

    Raises:
        OutsideError: no way leads there, or the port is taken.
    """
    why = ""
    if way in (AUTO, SSH):
        try:
            _by_ssh(target, ready, over)
            return
        except OutsideError as error:
            if way == SSH:
                raise
            why = f" By ssh: {error}"
    try:
        _by_step(target, ready, over)
    except OutsideError as error:
        raise OutsideError(f"{error}{why}") from error


def listen(port: int, other: bool) -> socket.socket:
    """Listen on a port of the loopback; on any, where it is taken and `other` says so.

    Raises:
        OutsideError: it is taken.
    """
    try:
        return socket.create_server((LOOPBACK, port))
    except OSError as error:
        if other:
            return socket.create_server((LOOPBACK, 0))
        raise OutsideError(
            f"Port {port} of this machine is taken ({error.strerror}): choose another with --port."
        ) from error


def ssh_argv(port: int, found: Connection) -> tuple[str, ...]:
    """Return the ssh that forwards a port to a node, asks nothing, and says when it listens."""
    options = {
        "BatchMode": "yes",
        "ConnectTimeout": "8",
        "ExitOnForwardFailure": "yes",
        "ControlMaster": "no",
        "ControlPath": "none",
        "PermitLocalCommand": "yes",
        "LocalCommand": f"echo {_READY.decode().strip()}",
    }
    words = (word for name, value in options.items() for word in ("-o", f"{name}={value}"))
    return (
        "ssh",
        "-N",
        "-T",
        *words,
        "-L",
        f"{LOOPBACK}:{port}:{LOOPBACK}:{found.port}",
        found.node,
    )


def _by_ssh(target: Target, ready: Callable[[int, str], None], over: Callable[[], bool]) -> None:
    wanted = target.port or target.connection.port
    with listen(wanted, other=target.port is None) as free:
        port = free.getsockname()[1]
    ours, theirs = socket.socketpair()
    argv = ssh_argv(port, target.connection)
    with ours, _child(argv, output=theirs.fileno()) as (child, said):
        theirs.close()
        if not _heard(ours):
            raise OutsideError(_last_line(said) or "it gave no answer")
        ready(port, SSH)
        while child.poll() is None and not over():
            time.sleep(_LOOK_S)
        _refuse_broken(said, over)


def _heard(stream: socket.socket) -> bool:
    """Say whether ssh listens; whatever the user's own configuration prints comes before it."""
    heard, until = b"", time.monotonic() + _SSH_WITHIN_S
    while _READY not in heard:
        if not select.select([stream], [], [], max(0.0, until - time.monotonic()))[0]:
            return False
        content = stream.recv(4096)
        if not content:
            return False
        heard = (heard + content)[-4096:]
    return True


def _by_step(target: Target, ready: Callable[[int, str], None], over: Callable[[], bool]) -> None:
    found = target.connection
    ours, theirs = socket.socketpair()
    words = (str(found.port),)
    argv = step_argv(target.job_id, found.node, "hpckit.session.pipe", words, pty=False)
    with (
        listen(target.port or found.port, other=target.port is None) as listening,
        ours,
        _child(argv, env=step_environment(), input=theirs.fileno(), output=theirs.fileno()) as (
            child,
            said,
        ),
    ):
        theirs.close()
        port = listening.getsockname()[1]
        try:
            asyncio.run(near_end(listening, ours, lambda: ready(port, STEP), _STEP_WITHIN_S))
        except OutsideError as error:
            raise OutsideError(
                f"No step of job {target.job_id} reaches the node: {_last_line(said) or error}."
            ) from error
        wait_for(child, _ENDS_WITHIN_S)
        _refuse_broken(said, over)


def _refuse_broken(said: IO[bytes], over: Callable[[], bool]) -> None:
    """Accept that a connection has ended because its job is over, which Slurm may say later.

    Raises:
        OutsideError: the job goes on.
    """
    until = time.monotonic() + _SAID_WITHIN_S
    while not over():
        if time.monotonic() > until:
            why = _last_line(said) or "nobody says why"
            raise OutsideError(f"The connection to the job's node has ended: {why}.")
        time.sleep(_LOOK_S)


@contextlib.contextmanager
def _child(
    argv: tuple[str, ...],
    *,
    output: int,
    input: int = _NOTHING,
    env: dict[str, str] | None = None,
) -> Iterator[tuple["Popen[bytes]", IO[bytes]]]:
    """Start a program that ends with the block, and with us; give it, and what it says."""
    with tempfile.TemporaryFile() as said:
        child = shell.spawn(
            argv,
            env=env,
            stdin=input,
            stdout=output,
            stderr=said,
            new_session=True,
            prepare=prepare_script,
        )
        try:
            yield child, said
        finally:
            stop_all([child], grace_s=2.0)


def _last_line(said: IO[bytes]) -> str:
    """Return the last line that a program wrote on stderr."""
    said.seek(0)
    lines = said.read(1 << 16).decode(errors="replace").split("\n")
    return next((line.strip().rstrip(".") for line in reversed(lines) if line.strip()), "")
