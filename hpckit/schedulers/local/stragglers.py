"""A job of which some ranks have ended well long ago, and the others neither work nor end.

srun's --wait would end such a job by the clock alone, and with it rank zero at work on its plots.
Here nothing is ended that works: a rank that computes, reads or writes may take all of its time.
"""

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from hpckit.launchers.srun import WAIT_S
from hpckit.processes import PARENT, TIMES, stat_fields
from hpckit.run_folders.ranks import not_ended, read_ranks

# What counts as nothing meanwhile. Threads that torch leaves look at their clocks meanwhile.
_CPU_TICKS, _BYTES = 100, 1 << 20
_LOOK_S = 5.0


@dataclass(frozen=True, slots=True)
class _Work:
    """What processes have done since their starts: CPU time in ticks (1/100 s), bytes moved."""

    ticks: int
    moved: int


class Stragglers:
    """Watches the ranks of one attempt that have not ended while others have."""

    def __init__(self, run_dir: Path, restart: int, planned: int, wait_s: float = WAIT_S) -> None:
        self.run_dir = run_dir
        self.restart = restart
        self.planned = planned
        self.wait_s = wait_s
        self._due = self._since = 0.0
        self._done: _Work | None = None

    def idle(self) -> str | None:
        """Say which ranks have not ended and did nothing for `wait_s` seconds; None before."""
        now = time.monotonic()
        if self.planned < 2 or self.wait_s <= 0 or now < self._due:
            return None
        self._due = now + min(_LOOK_S, self.wait_s / 4)
        ranks = [row for row in read_ranks(self.run_dir) if row.restart == self.restart]
        words = not_ended(ranks, self.planned)
        done = _work(row.pid for row in ranks if row.ended is None) if words else None
        if done is None or self._done is None or _has_worked(self._done, done):
            self._done, self._since = done, now
        return words if now - self._since >= self.wait_s else None


def _has_worked(before: _Work, after: _Work) -> bool:
    """Say whether there is work between two looks; less than before means that a process ended."""
    ticks, moved = after.ticks - before.ticks, after.moved - before.moved
    return not (0 <= ticks < _CPU_TICKS and 0 <= moved < _BYTES)


def _work(scripts: Iterable[int]) -> _Work:
    """Add up what scripts and all that they started have done."""
    parents = dict(_parents())
    wanted, found = set(scripts), set[int]()
    while wanted:
        found |= wanted
        wanted = {pid for pid, parent in parents.items() if parent in wanted} - found
    ticks = sum(sum(map(int, stat_fields(pid)[TIMES])) for pid in found)
    return _Work(ticks=ticks, moved=sum(map(_moved, found)))


def _parents() -> Iterator[tuple[int, int]]:
    for entry in Path("/proc").glob("[0-9]*"):
        if fields := stat_fields(int(entry.name)):
            yield int(entry.name), int(fields[PARENT])


def _moved(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/io").read_text(encoding="utf-8").splitlines()
    except OSError:  # gone, or a program that keeps others out: CPU time must tell
        return 0
    counts = dict(line.split(": ") for line in lines)
    return int(counts["rchar"]) + int(counts["wchar"])
