"""Half of a long work in a second process, where a core is idle: nearly twice as fast by the clock.

The second process is a fork, which has all that we have, so only what it found travels. For
programs of our own alone, with one thread: in another's, the copy could wait for ever for a lock
that a thread of a library had.
"""

import io
import math
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn, TypeVar

Value = TypeVar("Value")
# How long the second process may be silent, or as long as the first one had for its own half.
PATIENCE_S = 10.0
_ours: list[bool] = []


def allow() -> None:
    """Say that this program is our own: only then there are second processes."""
    _ours.append(True)


@contextmanager
def beside(work: Callable[[], Value], *, room: int = 0) -> Iterator[Callable[[], Value]]:
    """Have work done by a second process while the block does other; it gives what waits for it.

    Without an idle core there is no such process: on a busy machine the copy only costs time. Then,
    and if it is lost, is stopped or the work fails there, the work is done here when it is waited
    for: what it returns, which must be picklable, and raises is the same.

    What it returns comes through a pipe. Of large numbers, `room` bytes come in memory that both
    have: those that a `__reduce__` of theirs gives as `pickle.PickleBuffer`.
    """
    if not _may_fork():
        yield work
        return
    pipe: tuple[int, ...] = ()
    try:
        shared = _shared(room)
        pipe = reading, writing = os.pipe()
        process = os.fork()
    except OSError:  # as many open files, processes or as much memory as a login node allows
        for descriptor in pipe:
            os.close(descriptor)
        yield work
        return
    began = time.monotonic()
    if process == 0:
        os.close(reading)  # else it would write for ever where the first one was killed
        _answer(work, writing, shared)
    os.close(writing)
    try:
        yield lambda: _answered(_Patient(reading, began), work, shared)
    finally:
        os.kill(process, signal.SIGKILL)  # it has answered, or nobody waits any more
        _reap(process, reading)
        os.close(reading)


def _may_fork() -> bool:
    threads = sys.modules.get("threading")
    alone = threads is None or threads.active_count() == 1
    return bool(_ours) and alone and _running() < len(os.sched_getaffinity(0))


def _running() -> float:
    """Return how many threads of this machine run or wait for a core now, this one too: proc(5)."""
    try:
        return int(Path("/proc/loadavg").read_text().split()[3].partition("/")[0])
    except (OSError, ValueError, IndexError):
        return math.inf


def _shared(room: int) -> memoryview:
    """Return memory that both processes will have; of what is not written, there are no pages."""
    if room <= 0:  # under 0: of a file that was cut meanwhile
        return memoryview(b"")
    import mmap  # noqa: PLC0415  # small work needs none

    return memoryview(mmap.mmap(-1, room))


def _answer(work: Callable[[], object], descriptor: int, shared: memoryview) -> NoReturn:
    """Be the second process. Whatever goes wrong in it, the first one does the work itself."""
    try:
        import pickle  # noqa: PLC0415  # small work needs none

        ends = [0]

        def keep(part: pickle.PickleBuffer) -> bool:
            """Put numbers where both have them; say whether they have to be sent instead."""
            content = part.raw()
            begin = ends[-1]
            if begin + len(content) > len(shared):
                return True
            shared[begin : begin + len(content)] = content
            ends.append(begin + len(content))
            return False

        with os.fdopen(descriptor, "wb") as stream:
            content = pickle.dumps(work(), protocol=5, buffer_callback=keep)
            pickle.dump(ends, stream)
            stream.write(content)
    finally:
        os._exit(0)  # nothing of the first one's is to be flushed or tidied up twice


class _Patient(io.RawIOBase):
    """A pipe of a process that may be stopped, or hang: reading from it waits so long at most."""

    def __init__(self, descriptor: int, began: float) -> None:
        self._descriptor = descriptor
        self._most_s = max(PATIENCE_S, time.monotonic() - began)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview, /) -> int:  # type: ignore[override]  # io's own
        if not _ready(self._descriptor, self._most_s):
            raise TimeoutError
        return os.readv(self._descriptor, [buffer])


def _ready(descriptor: int, most_s: float, *, only_end: bool = False) -> bool:
    """Wait until a pipe has something to read, or until nobody can write to it any more."""
    import select  # noqa: PLC0415  # as above

    poll = select.poll()  # select() knows only the first 1024 descriptors
    poll.register(descriptor, 0 if only_end else select.POLLIN)
    return bool(poll.poll(most_s * 1000))


def _reap(process: int, reading: int) -> None:
    """Take leave of a killed process; one that waits for a file server cannot be waited for."""
    gone = _ready(reading, PATIENCE_S, only_end=True)  # its end of the pipe is closed
    os.waitpid(process, 0 if gone else os.WNOHANG)


def _answered(pipe: _Patient, work: Callable[[], Value], shared: memoryview) -> Value:
    import pickle  # noqa: PLC0415  # as above

    stream = io.BufferedReader(pipe)
    try:
        ends = pickle.load(stream)  # noqa: S301  # from a copy of ourselves
        parts = (shared[begin:end] for begin, end in pairwise(ends))
        found: Any = pickle.load(stream, buffers=parts)  # noqa: S301  # likewise
    except (EOFError, TimeoutError, pickle.UnpicklingError):
        return work()
    return found  # type: ignore[no-any-return]  # what `work` returned there
