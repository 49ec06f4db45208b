"""Processes that run a script as `python -W error SCRIPT` does, less the import of torch.

A fresh interpreter takes one or two seconds for torch and what it imports at an optimizer's first
step; the tests start some hundred. So one interpreter imports that once, and forks. What only a
fresh one shows, such as a missing import, is for `start(..., fresh=True)`.

    pytest ── one socket ──> nursery ── forks ──> nurse, who waits ── forks ──> the script

The script runs in the outermost frame and its process ends as any interpreter does: what goes
wrong at exit shows.
"""

import atexit
import ctypes
import gc
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, NoReturn

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_FDS = 3  # a request brings stdout, stderr, and a socket for what becomes of the script


class Forked:
    """A script at work: what tests use of `subprocess.Popen`."""

    def __init__(self, script: Path, words: Sequence[str], env: Mapping[str, str]) -> None:
        self.returncode: int | None = None
        self._said: tuple[IO[bytes], IO[bytes]] = (
            tempfile.TemporaryFile(),  # noqa: SIM115  # closed by communicate
            tempfile.TemporaryFile(),  # noqa: SIM115
        )
        self._nurse, theirs = socket.socketpair()
        request = json.dumps({"argv": [str(script), *words], "env": dict(env), "cwd": os.getcwd()})
        fds = [*(stream.fileno() for stream in self._said), theirs.fileno()]
        with theirs:
            door = _door()
            socket.send_fds(door, [len(request.encode()).to_bytes(4)], fds)
            door.sendall(request.encode())
        self.pid = self._told()

    def _told(self) -> int:
        number = self._nurse.recv(8, socket.MSG_WAITALL)
        assert len(number) == 8, "the nursery has ended"
        return int.from_bytes(number, signed=True)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the script's end; return its exit status, or a signal's number below zero."""
        if self.returncode is None:
            self._nurse.settimeout(timeout)
            self.returncode = self._told()
            self._nurse.close()
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Wait for the script's end; return what it wrote to stdout and stderr."""
        self.wait(timeout)
        texts = []
        for stream in self._said:
            with stream:
                stream.seek(0)
                texts.append(stream.read().decode())
        return texts[0], texts[1]

    def send_signal(self, signum: int) -> None:
        """Signal the script, unless it is known to have ended."""
        if self.returncode is None:
            os.kill(self.pid, signum)

    def kill(self) -> None:
        """End the script at once."""
        self.send_signal(signal.SIGKILL)


_doors: list[socket.socket] = []


def _door() -> socket.socket:
    """Give the socket of this session's nursery, which is started with the first request."""
    if not _doors:
        ours, theirs = socket.socketpair()
        argv = [sys.executable, "-W", "error", __file__, str(theirs.fileno())]
        with theirs:
            # libgomp reads it when torch is imported; the workloads set more threads themselves.
            env = {**os.environ, "OMP_NUM_THREADS": "1"}
            process = subprocess.Popen(argv, pass_fds=[theirs.fileno()], env=env)
        _doors.append(ours)

        def close() -> None:
            ours.close()
            process.wait(timeout=240)

        atexit.register(close)
    return _doors[0]


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _next_script(door: socket.socket) -> dict[str, object]:
    """Fork a nurse and a script per request; return in the script's process alone."""
    while True:
        head, fds, _, _ = socket.recv_fds(door, 4, _FDS)
        if not head:
            os._exit(0)  # the tests are over
        request = door.recv(int.from_bytes(head), socket.MSG_WAITALL)
        if os.fork() == 0:
            break
        for fd in fds:
            os.close(fd)
        _reap()
    door.close()
    _die_with_parent()
    out, err, news = fds
    if child := os.fork():
        _tend(child, socket.socket(fileno=news))
    _die_with_parent()
    for fd, standard in ((out, 1), (err, 2)):
        os.dup2(fd, standard)
    for fd in (out, err, news):
        os.close(fd)
    found: dict[str, object] = json.loads(request)
    return found


def _tend(child: int, news: socket.socket) -> NoReturn:
    """Tell the script's pid, and how it ended."""
    news.sendall(child.to_bytes(8, signed=True))
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    news.sendall(status.to_bytes(8, signed=True))
    os._exit(0)


def _reap() -> None:
    """Forget the nurses that have done their work."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def _become(argv: list[str], env: dict[str, str], cwd: str) -> str:
    """Be as an interpreter that has just been started on a script; return the script."""
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    sys.argv = argv
    sys.path[0] = str(Path(argv[0]).parent)
    return argv[0]


if __name__ == "__main__":
    import numpy  # noqa: F401
    import torch._dynamo  # noqa: F401

    gc.freeze()  # else each script's end collects all of torch, and copies its pages
    runpy.run_path(
        _become(**_next_script(socket.socket(fileno=int(sys.argv[1])))),  # type: ignore[arg-type]
        run_name="__main__",
    )
