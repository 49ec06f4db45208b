"""What a local job started ends with it, whatever it is: as Slurm's cgroups do it, by adoption.

A process that adopts (PR_SET_CHILD_SUBREAPER, prctl(2)) becomes the parent of every descendant that
loses its own: a daemon's double fork and `setsid` lead to it, not to init. It then ends its own
children, layer by layer, until there are none. A child's number is taken until its parent has
waited for it, so no signal can reach a process that is not one of ours.
"""

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from hpckit.processes import GROUP, PARENT, stat_fields

if TYPE_CHECKING:
    from subprocess import Popen  # noqa: TID251  # the type only

_PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
_LIBC = ctypes.CDLL(None)
_POLL_S = 0.02
# How long SIGKILL is given, again and again: a process may wait in the kernel for a file system.
_KILL_S = 5.0


def adopt_orphans() -> None:
    """Make this process the parent of every descendant that loses its own."""
    _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    # Whoever started us may have ignored it: children would vanish, and their statuses with them.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def reap(known: "Collection[Popen[bytes]]" = ()) -> None:
    """Wait for all children that have ended; those that are `known` keep their statuses."""
    while (pid := _ended_child()) is not None:
        # An orphan may have the number of a known one that ended before.
        child = next((row for row in known if row.pid == pid and row.returncode is None), None)
        if child is None:
            os.waitpid(pid, 0)
        else:
            child.poll()


def _ended_child() -> int | None:
    try:
        found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:  # none at all
        return None
    return found.si_pid if found else None


def sweep(
    grace_s: float,
    known: "Collection[Popen[bytes]]" = (),
    *,
    spare: Collection[int] = (),
    heard: int | None = None,
) -> list[str]:
    """End all children of this process, and what they leave: SIGTERM, SIGKILL after `grace_s`.

    Those in `spare` stay; the process group `heard` has had its SIGTERM. A child that was stopped
    goes on, so that it can hear. Return the names of those that outlive SIGKILL: they wait in the
    kernel, or have become another user's.
    """
    begun, told = time.monotonic(), set[int]()
    while True:
        reap(known)
        left = [pid for pid in _children() if pid not in spare]
        passed_s = time.monotonic() - begun
        if not left or passed_s > grace_s + _KILL_S:
            return [_name(pid) for pid in left]
        for pid in left:
            with contextlib.suppress(PermissionError):  # it has become another user's: see above
                if passed_s > grace_s:
                    os.kill(pid, signal.SIGKILL)
                elif pid not in told:
                    told.add(pid)
                    fields = stat_fields(pid)
                    if not fields or fields[GROUP] != str(heard):
                        os.kill(pid, signal.SIGTERM)
                    os.kill(pid, signal.SIGCONT)
        if passed_s <= grace_s:
            time.sleep(_POLL_S)


def _children() -> Iterator[int]:
    """Yield the children of this process, by the parents that proc(5) names."""
    me = str(os.getpid())
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            fields = stat_fields(int(entry.name))
            if fields and fields[PARENT] == me:
                yield int(entry.name)


def _name(pid: int) -> str:
    try:
        name = Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return str(pid)
    return f"{name.strip()} ({pid})"
