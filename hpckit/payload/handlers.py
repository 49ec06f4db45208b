"""Which processes of a script handle a signal: /proc/PID/status (proc(5), SigCgt).

By their handlers shells, workers of data loaders, and what saves its state are told apart.
"""

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from hpckit.processes import GROUP, PARENT, RUN_STATE, stat_fields

# Signals that no program but a shell handles all of, and Go's, which pass on what they get.
_BY_EXIT_TRAP = (signal.SIGSYS, signal.SIGXCPU, signal.SIGVTALRM, signal.SIGALRM)
# What a worker of torch's DataLoader handles (torch/csrc/DataLoader.cpp), and what it does not:
# Open MPI, UCX and faulthandler handle one of these, too. Such a worker saves nothing, and its
# Python fails when it ends.
_BY_WORKER = (signal.SIGTERM, signal.SIGBUS, signal.SIGSEGV, signal.SIGFPE)
_NOT_BY_WORKER = (signal.SIGABRT, signal.SIGILL)
# The pause between two looks at what may answer a signal of Slurm's own: a script may have hundreds
# of threads and workers.
_LOOK_S = 1.0


class Savers:
    """What of a script handles SIGTERM: it may save, and end with 0 before its work is done.

    It may answer Slurm's own signal before hpckit has heard of it. So it is looked for again and
    again where Slurm signals scripts, too, and once more when the script is told to end.
    """

    def __init__(self) -> None:
        self.before: list[int] = []
        self.told: list[int] = []
        self._look_at = 0.0

    def __bool__(self) -> bool:
        return bool(self.before or self.told)

    def look(self, pid: int) -> None:
        """Look for them once a second, below a script's process; call this often."""
        if time.monotonic() >= self._look_at:
            self.before = handlers_of(pid, signal.SIGTERM) or self.before
            self._look_at = time.monotonic() + _LOOK_S

    def tell(self, pid: int) -> None:
        """Note who gets the SIGTERM that is sent now."""
        self.told = handlers_of(pid, signal.SIGTERM) or self.told

    def save(self, group: int, *, heard: bool) -> bool:
        """Say whether one of a process group is still at it; what is stopped (T) gets no signal.

        `heard`: Slurm has signalled. Who got that may ignore the next one while it saves, and then
        shows no handler.
        """
        savers = [*self.told, *(self.before if heard else [])]
        left = [fields for pid in savers if (fields := stat_fields(pid))]
        return any(row[GROUP] == str(group) and row[RUN_STATE] not in "ZT" for row in left)


def handlers_of(pid: int, signum: int = signal.SIGUSR2) -> list[int]:
    """Return a script's process if it handles a signal, else those of its children that do.

    A shell script may have started a Python that handles it. The children of a process that
    handles it, such as the workers of its data loader, are that process's own business. But bash
    with a trap of EXIT shows a handler of every signal that ends it (sig.c of bash,
    initialize_terminating_signals), and may have no trap of this one: then its children are asked.
    """
    itself = [pid] if handles(pid, signum) else []
    if itself and not may_only_clean_up(pid):
        return itself
    below = [
        found
        for child in _children(pid)
        if not _loads_data(child)
        for found in handlers_of(child, signum)
    ]
    return below or itself


def handles(pid: int, signum: int) -> bool:
    """Say whether a process has a handler for a signal."""
    return _has(_caught(pid), signum)


def may_only_clean_up(pid: int) -> bool:
    """Say whether a process may be a bash whose one trap is that of EXIT."""
    caught = _caught(pid)
    return all(_has(caught, number) for number in _BY_EXIT_TRAP)


def _loads_data(pid: int) -> bool:
    """Say whether a process looks like a worker of torch's DataLoader."""
    caught = _caught(pid)
    others = any(_has(caught, number) for number in _NOT_BY_WORKER)
    return not others and all(_has(caught, number) for number in _BY_WORKER)


def _has(mask: int, signum: int) -> bool:
    return bool(mask >> (signum - 1) & 1)


def _caught(pid: int) -> int:
    """Return the signals for which a process has handlers, as a mask."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0
    for line in status.splitlines():
        name, _, mask = line.partition(":")
        if name == "SigCgt":
            return int(mask, 16)
    return 0


def _children(pid: int) -> Iterator[int]:
    try:
        threads = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208  # names are enough
    except OSError:  # the process is gone
        return
    for thread in threads:
        with contextlib.suppress(OSError):
            path = Path(f"/proc/{pid}/task/{thread}/children")
            yield from map(int, path.read_text(encoding="ascii").split())


def parent_of(pid: int) -> int | None:
    """Return the parent of a process; None: it is gone."""
    fields = stat_fields(pid)
    return int(fields[PARENT]) if fields else None


def is_below(pid: int, above: int) -> bool:
    """Say whether a process was started by another, or by one that this one started, and so on."""
    parent = parent_of(pid)
    while parent and parent != above:
        parent = parent_of(parent)
    return parent == above
