"""Child processes that cannot outlive or hang their parent: start, signal, stop."""

import contextlib
import ctypes
import os
import signal
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from subprocess import Popen  # noqa: TID251  # the type only

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_LIBC = ctypes.CDLL(None)


def prepare_child() -> None:
    """Run in the child between fork and exec.

    The child dies with its parent, and starts with SIGUSR2 ignored: Slurm's time-out warning goes
    to every process of a step, and would kill a script that never heard of it. A script that
    handles the signal installs its handler later. An ignored signal stays so over exec.
    """
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)


def die_with_parent(signum: int) -> None:
    """Let the kernel send this process `signum` when its parent ends."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signum)


def signal_group(child: "Popen[bytes]", signum: int) -> None:
    """Signal a child's whole process group (it was started in a session of its own)."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signum)


def stop_all(children: "list[Popen[bytes]]", grace_s: float) -> None:
    """SIGTERM to every group still alive, SIGKILL to what is left after `grace_s` seconds."""
    for child in children:
        if child.poll() is None:
            signal_group(child, signal.SIGTERM)
    deadline = time.monotonic() + grace_s
    while time.monotonic() < deadline and any(child.poll() is None for child in children):
        time.sleep(0.05)
    for child in children:
        # Also groups whose leader is gone: data loader workers may be left.
        signal_group(child, signal.SIGKILL)
        child.wait()


def wait_for(child: "Popen[bytes] | None", seconds: float) -> None:
    """Wait at most `seconds` for a child to end by itself."""
    deadline = time.monotonic() + seconds
    while child is not None and child.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)


def shell_status(returncode: int) -> int:
    """Return what a shell would: 128 + signal for a killed process."""
    return 128 - returncode if returncode < 0 else returncode
