"""Processes that run a script as `python -W error SCRIPT` does, less the import of torch.

A fresh interpreter takes one or two seconds for torch and what it imports at an optimizer's first
step; the tests start some hundred. So one interpreter imports that once, and forks. What only a
fresh one shows, such as a missing import, is for `start(..., fresh=True)`.

    pytest ──── a connection ──> nursery ── forks ──> nurse, who waits ── forks ──> the script
    mpirun ──> stand-in ── a connection ──> the same

The script runs in the outermost frame and its process ends as any interpreter does: what goes
wrong at exit shows. A stand-in is what mpirun starts for a rank (`python nursery.py stand-in
ADDRESS SCRIPT WORD...`): it hands signals on, and ends as its script does.
"""

import atexit
import contextlib
import ctypes
import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, NoReturn

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_FDS = 3  # a request brings stdin, stdout and stderr
_HANDED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


class Forked:
    """A script at work: what tests use of `subprocess.Popen`."""

    def __init__(self, script: Path, words: Sequence[str], env: Mapping[str, str]) -> None:
        self.returncode: int | None = None
        self._said: tuple[IO[bytes], IO[bytes]] = (
            tempfile.TemporaryFile(),  # noqa: SIM115  # closed by communicate
            tempfile.TemporaryFile(),  # noqa: SIM115
        )
        out, err = (stream.fileno() for stream in self._said)
        with open(os.devnull) as empty:
            fds = [empty.fileno(), out, err]
            self._nurse = _ask(address(), [str(script), *words], env, fds)
        self.pid = _told(self._nurse)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the script's end; return its exit status, or a signal's number below zero."""
        if self.returncode is None:
            self._nurse.settimeout(timeout)
            self.returncode = _told(self._nurse)
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


def _ask(
    where: str, argv: Sequence[str], env: Mapping[str, str], fds: Sequence[int]
) -> socket.socket:
    """Ask the nursery for a script; return the connection to its nurse."""
    nurse = socket.socket(socket.AF_UNIX)
    nurse.connect(f"\0{where}")
    request = json.dumps({"argv": list(argv), "env": dict(env), "cwd": os.getcwd()}).encode()
    socket.send_fds(nurse, [len(request).to_bytes(4)], fds)
    nurse.sendall(request)
    return nurse


def _told(nurse: socket.socket) -> int:
    number = nurse.recv(8, socket.MSG_WAITALL)
    assert len(number) == 8, "the nursery has ended"
    return int.from_bytes(number, signed=True)


_addresses: list[str] = []


def address() -> str:
    """Return where this session's nursery takes requests; start it with the first one."""
    if not _addresses:
        ours, theirs = socket.socketpair()
        _addresses.append(f"hpckit-nursery-{os.getpid()}")
        with theirs, socket.socket(socket.AF_UNIX) as door:
            door.bind(f"\0{_addresses[0]}")
            door.listen(64)
            fds = [door.fileno(), theirs.fileno()]
            # libgomp reads it when torch is imported; the workloads set more threads themselves.
            env = {**os.environ, "OMP_NUM_THREADS": "1"}
            argv = [sys.executable, "-W", "error", __file__, "nursery", *map(str, fds)]
            process = subprocess.Popen(argv, pass_fds=fds, env=env)

        def close() -> None:
            ours.close()
            process.wait(timeout=240)

        atexit.register(close)
    return _addresses[0]


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _next_script(door: socket.socket, tests: socket.socket) -> dict[str, object]:
    """Fork a nurse and a script per request; return in the script's process alone."""
    while True:
        ready, _, _ = select.select([door, tests], [], [])
        if tests in ready:
            os._exit(0)  # the tests are over
        nurse, _ = door.accept()
        if os.fork() == 0:
            break
        nurse.close()
        _reap()
    door.close()
    tests.close()
    _die_with_parent()
    head, fds, _, _ = socket.recv_fds(nurse, 4, _FDS)
    request: dict[str, object] = json.loads(
        nurse.recv(int.from_bytes(head), socket.MSG_WAITALL),
    )
    if child := os.fork():
        _tend(child, nurse)
    _die_with_parent()
    for standard, fd in enumerate(fds):
        os.dup2(fd, standard)
        os.close(fd)
    nurse.close()
    return request


def _tend(child: int, news: socket.socket) -> NoReturn:
    """Tell the script's pid, and how it ended; end it when nobody wants to know any more."""
    with contextlib.suppress(OSError):
        news.sendall(child.to_bytes(8, signed=True))
        running = os.pidfd_open(child)
        if news in select.select([running, news], [], [])[0]:
            os.kill(child, signal.SIGKILL)
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


def _stand_in(where: str, *argv: str) -> NoReturn:
    """Be the process that mpirun knows as a rank."""
    nurse = _ask(where, argv, os.environ, [0, 1, 2])
    pid = _told(nurse)
    for number in _HANDED_ON:
        signal.signal(number, lambda signum, _frame: os.kill(pid, signum))
    status = _told(nurse)
    if status < 0:
        signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


if __name__ == "__main__":
    role, *words = sys.argv[1:]
    if role == "stand-in":
        _stand_in(*words)

    import numpy  # noqa: F401
    import torch._dynamo  # noqa: F401

    gc.freeze()  # else each script's end collects all of torch, and copies its pages
    runpy.run_path(
        _become(**_next_script(*(socket.socket(fileno=int(fd)) for fd in words))),  # type: ignore[arg-type]
        run_name="__main__",
    )
