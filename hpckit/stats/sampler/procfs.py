"""A job's use as a sum over its processes in /proc: for where Slurm made no cgroup, or half a one.

Worse than a cgroup: a process that came and went between two looks is seen only by what its parent
inherited of it, and what shared memory holds is known only as the largest share of one process.
"""

import os
import time
from collections.abc import Mapping
from pathlib import Path

from hpckit.stats.sampler.cgroup import read_once
from hpckit.stats.samples.records import Usage

_TICK_US = 1_000_000 // os.sysconf("SC_CLK_TCK")
# A process that is found late brings all its CPU time at once: as if it had used many cores. So the
# list of /proc is read at each sample and what is new in it looked at, as far as that takes no more
# than a share of the time. Looking at every process of the node, some thousand at times, may take
# less; but it is done each half minute, since a new process may have an old one's number.
_LIST_SHARE = 0.0005
_LOOK_SHARE = 0.0001
_LOOK_S = 30.0
# In /proc/PID/stat, after the name in brackets: ppid, utime to cstime, starttime.
_PPID, _TIMES, _START = 1, slice(11, 15), 19


def step_root(pid: int, proc: Path = Path("/proc")) -> int:
    """Return the slurmstepd above a process: all tasks of its step on this node descend from it.

    The process itself where there is none.
    """
    at = pid
    while at > 1:
        if _bytes(f"{proc}/{at}/comm").strip() == b"slurmstepd":
            return at
        stat = _stat(f"{proc}/{at}")
        at = int(stat[_PPID]) if stat else 0
    return pid


class ProcessTree:
    """The processes that descend from one, also after they were handed to init."""

    def __init__(self, root: int, proc: Path = Path("/proc"), leave_out: int | None = None) -> None:
        """Start at process `root`; `leave_out` is the sampler itself."""
        self._root = root
        self._proc = proc
        self._leave_out = leave_out
        self._known: dict[int, bytes] = {}  # pid -> start time, which tells a reused pid
        self._began = time.monotonic()
        self._list_again = self._look_again = 0.0
        self._listed: frozenset[int] = frozenset()
        self._so_far: dict[str, int] = {}

    def pids(self) -> frozenset[int]:
        """Return the living processes of the tree."""
        self._look()
        return frozenset(self._known)

    def read(self) -> Usage:
        """Sum over the processes; page cache and OOM kills are not to be had."""
        self._look()
        cpu_us, anonymous, swap, shared, read, written = 0, 0, 0, 0, 0, 0
        for pid in list(self._known):
            folder = f"{self._proc}/{pid}"
            stat = _stat(folder)
            if stat is None or stat[_START] != self._known[pid]:
                del self._known[pid]
                continue
            cpu_us += sum(map(int, stat[_TIMES])) * _TICK_US
            status = _bytes(f"{folder}/status")
            anonymous += _number(status, b"RssAnon") * 1024
            shared = max(shared, _number(status, b"RssShmem") * 1024)
            swap += _number(status, b"VmSwap") * 1024
            traffic = _bytes(f"{folder}/io")
            read += _number(traffic, b"read_bytes")
            written += _number(traffic, b"write_bytes")
        if not self._known:
            return Usage()
        return Usage(
            cpu_us=self._grown("cpu", cpu_us),
            memory_bytes=anonymous + shared,
            swap_bytes=swap,
            io_read_bytes=self._grown("read", read),
            io_write_bytes=self._grown("written", written),
        )

    def _grown(self, name: str, value: int) -> int:
        """Keep a counter from falling when a process ends that no one of the tree waited for."""
        self._so_far[name] = max(self._so_far.get(name, 0), value)
        return self._so_far[name]

    def _look(self) -> None:
        began = time.monotonic()
        if began < self._list_again:
            return
        pids = all_pids(self._proc)
        took = time.monotonic() - began
        whole = began >= self._look_again
        # Paths as texts: to make a thousand objects of them would take longer than to read.
        new = {
            pid: stat
            for pid in (pids if whole else pids - self._listed)
            if (stat := _stat(f"{self._proc}/{pid}"))
        }
        if whole:
            self._known = {
                pid: start
                for pid, start in self._known.items()
                if pid in new and new[pid][_START] == start
            }
        self._listed = pids
        self._known |= {pid: new[pid][_START] for pid in self._descendants(new)}
        ended = time.monotonic()
        self._list_again = ended + took / _LIST_SHARE
        if whole:
            pause = min((ended - began) / _LOOK_SHARE, _LOOK_S, ended - self._began)
            self._look_again = ended + pause

    def _descendants(self, new: Mapping[int, list[bytes]]) -> set[int]:
        """Return those of the new processes that are the root, or descend from a known one."""
        children: dict[int, list[int]] = {}
        for pid, stat in new.items():
            children.setdefault(int(stat[_PPID]), []).append(pid)
        queue = [*self._known, *([self._root] if self._root in new else [])]
        found: set[int] = set()
        while queue:
            pid = queue.pop()
            if pid not in found and pid != self._leave_out:
                found.add(pid)
                queue += children.get(pid, [])
        return found & new.keys()


def all_pids(proc: Path = Path("/proc")) -> frozenset[int]:
    """Return every process that can be seen from here."""
    return frozenset(int(name) for name in os.listdir(proc) if name.isdecimal())  # noqa: PTH208


def own_cost() -> tuple[int, int | None]:
    """Return this process's CPU time in microseconds and its memory in bytes."""
    statm = _bytes("/proc/self/statm").split()
    pages = int(statm[1]) if len(statm) > 1 else None
    memory = None if pages is None else pages * os.sysconf("SC_PAGE_SIZE")
    return time.process_time_ns() // 1000, memory


def _stat(folder: str) -> list[bytes] | None:
    """Return the words after the name, which may hold blanks and brackets; None if it is gone."""
    words = _bytes(f"{folder}/stat").rpartition(b")")[2].split()
    return words if len(words) > _START else None


def _number(text: bytes, name: bytes) -> int:
    """Return the number of a line `name: number`; 0 if there is none."""
    words = text.partition(b"\n%b:" % name)[2].split(maxsplit=1)
    return int(words[0]) if words else 0


def _bytes(path: str) -> bytes:
    try:
        return read_once(path)
    except OSError:
        return b""  # the process has ended, or is not ours to look into
