"""Threads that wait for the next run, for a while: a new one for each run would cost more.

To begin and end a thread takes 0.1 ms. And each thread that computes has helpers of its own (a team
of OpenMP), and what torch keeps for each thread: both would begin and end with it.
"""

import atexit
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from queue import Empty, SimpleQueue

import torch

IDLE_NAME = "mirrored-idle"
_PATIENCE_S = 10.0
_Work = Callable[[], object]


class IdleThread:
    """A thread that does one piece of work after another, and ends when none comes.

    Attributes:
        cores: how many torch uses in it.
    """

    def __init__(self) -> None:
        self.cores = 0
        self._work: SimpleQueue[tuple[_Work, str] | None] = SimpleQueue()
        self._done: SimpleQueue[None] = SimpleQueue()
        self.busy = False
        self._thread = threading.Thread(target=self._serve, name=IDLE_NAME, daemon=True)
        self._thread.start()

    def begin(self, work: _Work, *, name: str = IDLE_NAME) -> None:
        """Have it do something, which may not raise, under a name."""
        self.busy = True
        self._work.put((work, name))

    def wait(self) -> None:
        """Return when it has done what it was given; Ctrl-C interrupts this."""
        if self.busy:
            self._done.get()
            self.busy = False

    def dismiss(self) -> threading.Thread:
        """Have it end, after its work; return the thread."""
        self._work.put(None)
        return self._thread

    def _serve(self) -> None:
        while given := self._next():
            work, self._thread.name = given
            work()
            del work, given  # what they refer to may not live until the next run
            self._thread.name = IDLE_NAME
            self._done.put(None)

    def _next(self) -> tuple[_Work, str] | None:
        while True:
            try:
                return self._work.get(timeout=_PATIENCE_S)
            except Empty:
                if _left(self):
                    return None


_idle: list[IdleThread] = []
_noting = threading.Lock()


@contextmanager
def hired(count: int, *, cores: int) -> Iterator[Sequence[IdleThread]]:
    """Have threads for a while, of which each computes on so many cores.

    Raises:
        RuntimeError: there are no more threads to be had.
    """
    with _noting:
        threads = _idle[-count:]
        del _idle[-count:]
    try:
        while len(threads) < count:
            threads.append(IdleThread())
        _set_cores(threads, cores)
        yield threads
    finally:
        with _noting:
            _idle.extend(one for one in threads if not one.busy)
        for one in threads:
            if one.busy:  # Ctrl-C, pressed again: the caller does not wait any more
                one.dismiss()


def end_idle() -> None:
    """End the threads that wait, as they do by themselves after a while."""
    with _noting:
        threads = _idle.copy()
        _idle.clear()
    for thread in [one.dismiss() for one in threads]:
        thread.join()


def _set_cores(threads: Sequence[IdleThread], cores: int) -> None:
    """Have threads compute on so many cores.

    OpenMP and MKL keep that number for each thread, and torch also for those that begin later, so
    the caller's is set again. It is done once, since torch forgets prepared convolutions with it.
    """
    others = [one for one in threads if one.cores != cores]
    if not others:
        return
    before = torch.get_num_threads()
    try:
        for one in others:
            one.begin(partial(_use, cores))
        for one in others:
            one.wait()
            one.cores = cores
    finally:
        torch.set_num_threads(before)


def _use(cores: int) -> None:
    """Have torch use so many cores in the thread that calls."""
    torch.get_num_threads()  # a thread's first call takes the number that torch notes for all
    torch.set_num_threads(cores)


def _left(thread: IdleThread) -> bool:
    """Take a thread off the list, unless somebody has hired it."""
    with _noting:
        waits = thread in _idle
        if waits:
            _idle.remove(thread)
        return waits


def _forget() -> None:
    """After a fork: the child has none of these threads, and one may have had the lock."""
    global _noting
    _noting = threading.Lock()
    _idle.clear()


os.register_at_fork(after_in_child=_forget)
atexit.register(end_idle)
