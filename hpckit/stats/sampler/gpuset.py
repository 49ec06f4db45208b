"""Reading the job's GPUs on this node, with a deadline: a GPU that hangs is no longer read.

A worker thread reads all GPUs one after another, since NVML calls hang when the driver does. If it
makes no progress for two seconds, the GPU that it is reading counts as lost, the thread is
abandoned, and a new thread reads the rest. A GPU that hung is never read again. One that answered
with an error is tried again with the slow readings.
"""

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from queue import SimpleQueue
from typing import Generic, TypeVar

from hpckit.frozen import changeable, frozen
from hpckit.stats.sampler.gpu_library import GpuLibraryError, open_library
from hpckit.stats.sampler.gpu_reader import GpuReader, Tell
from hpckit.stats.sampler.job_gpus import Mapped, confidence, find_mine
from hpckit.stats.sampler.schedule import NEVER_S
from hpckit.stats.samples.records import SHARED, GpuInfo, GpuSample, GpuSlow, GpuState

Answer = TypeVar("Answer")


class PendingCall(Generic[Answer]):
    """A call that a worker makes; it is done once `answer` or `error` is set."""

    def __init__(self, call: Callable[[], Answer]) -> None:
        self._call = call
        self._done = threading.Event()
        self.answer: Answer | None = None
        self.error: BaseException | None = None

    def work(self) -> None:
        """Make the call; keep what it raises for `result`."""
        try:
            self.answer = self._call()
        except BaseException as error:  # noqa: BLE001  # raised again by `result`
            self.error = error
        self._done.set()

    def wait(self, seconds: float) -> bool:
        """Wait at most `seconds`; say whether it is done."""
        return self._done.wait(seconds)

    def result(self) -> Answer | None:
        """Return the answer of a call that is done, or raise what it raised."""
        if self.error is not None:
            raise self.error
        return self.answer


class Worker:
    """A thread that makes calls, one after another, until it is abandoned."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[PendingCall[object] | None] = SimpleQueue()
        # A daemon: a call that never returns must not keep the sampler from ending.
        threading.Thread(target=self._run, daemon=True).start()

    def ask(self, call: Callable[[], Answer]) -> PendingCall[Answer]:
        """Have a call made; return at once."""
        pending = PendingCall(call)
        self._calls.put(pending)  # type: ignore[arg-type]
        return pending

    def give_up(self) -> None:
        """Let the thread end when its call returns, which may be never."""
        self._calls.put(None)

    def _run(self) -> None:
        while (pending := self._calls.get()) is not None:
            pending.work()


Reading = TypeVar("Reading", GpuSample, GpuSlow, GpuState, bool)

_HANG_S = 2.0
# NVML wakes every GPU when it starts; without persistence mode that takes seconds each.
_OPEN_S = 30.0
_HURRY_S = 0.3
_SLICE_S = 0.05


@frozen(kw_only=True)
class Opened:
    """What starting the GPUs' library gave; without it, nothing."""

    readers: tuple[GpuReader, ...] = ()
    method: str | None = None
    shared: bool = False
    driver: str | None = None
    library: str | None = None


@changeable(kw_only=True, slots=False)
class _Round(Generic[Reading]):
    """One reading of some GPUs, by their positions; `given_up` stops a thread that is too late."""

    positions: tuple[int, ...]
    results: dict[int, Reading] = field(default_factory=dict)
    failed: set[int] = field(default_factory=set)
    given_up: bool = False


class GpuSet:
    """Reads the job's GPUs; `tell` makes notes.

    `hurry` says whether the sampler has to end: then no GPU is waited for.
    """

    def __init__(
        self,
        environ: Mapping[str, str],
        tell: Tell,
        hurry: Callable[[], bool],
    ) -> None:
        self._tell = tell
        self._hurry = hurry
        self._lost: set[int] = set()
        self._hung: set[int] = set()
        self._worker = Worker()
        self.opened = self._open(environ)

    @property
    def table(self) -> tuple[GpuInfo, ...]:
        """The GPUs, as the header lists them; every tuple of readings is in this order."""
        return tuple(reader.unit.info for reader in self.opened.readers)

    def sample(self, now_us: int) -> tuple[GpuSample, ...]:
        """Take the cheap readings; a lost GPU's are unknown."""
        return self._each(lambda reader: reader.sample(now_us), GpuSample())

    @property
    def step_s(self) -> float:
        """How often to `peek` between samples."""
        readers = enumerate(self.opened.readers)
        return min((r.step_s for at, r in readers if at not in self._lost), default=NEVER_S)

    def peek(self, now_us: int) -> None:
        """Read utilization between two samples."""
        readers = self.opened.readers
        asked = {at for at, reader in enumerate(readers) if reader.step_s < NEVER_S}
        self._read(lambda reader: reader.peek(now_us), asked - self._lost)

    def slow(self, now_us: int) -> tuple[GpuSlow, ...]:
        """Take the readings of once a minute; try lost GPUs again."""
        back = self._read(lambda reader: reader.try_again(now_us), self._lost - self._hung)
        for position in back:
            self._lost.discard(position)
            self._tell("gpu_back", "The GPU can be read again.", self.table[position].uuid)
        return self._each(GpuReader.slow, GpuSlow())

    def state(self, job_pids: Collection[int], here: Collection[int]) -> tuple[GpuState, ...]:
        """Read what seldom changes, and whether each GPU is used by this job alone."""
        shared = self.opened.shared
        return tuple(
            replace(
                state,
                confidence=SHARED if shared else confidence(state.processes, job_pids, here),
            )
            for state in self._each(GpuReader.state, GpuState())
        )

    def _open(self, environ: Mapping[str, str]) -> Opened:
        call = self._worker.ask(lambda: _start(environ, self._tell))
        if not self._finished(call, _OPEN_S, ()):
            self._leave_worker()
            why = f"NVML did not start within {_OPEN_S:g} s"
            if self._hurry():
                why = "The sampler was told to end before NVML had started"
            self._tell("no_nvml", f"{why}: no GPU figures.", None)
            return Opened()
        try:
            return call.result() or Opened()
        except GpuLibraryError as error:
            self._tell("no_nvml", f"No GPU figures: {error}", None)
            return Opened()

    def _each(self, read: Callable[[GpuReader], Reading], blank: Reading) -> tuple[Reading, ...]:
        count = len(self.opened.readers)
        results = self._read(read, set(range(count)) - self._lost)
        return tuple(results.get(position, blank) for position in range(count))

    def _read(
        self, read: Callable[[GpuReader], Reading], positions: Collection[int]
    ) -> dict[int, Reading]:
        """Read some GPUs; those without an answer are lost."""
        results: dict[int, Reading] = {}
        left = tuple(sorted(positions))
        while left:
            turn: _Round[Reading] = _Round(positions=left)
            call = self._worker.ask(partial(self._work, turn, read))
            done = self._finished(call, _HANG_S, turn.results)
            results |= turn.results
            if done:
                call.result()
                break
            turn.given_up = True
            self._leave_worker()
            silent = [p for p in left if p not in results and p not in turn.failed]
            if self._hurry():
                self._lost |= set(silent)  # perhaps only slow; there is no time to find out
                break
            for at in silent[:1]:
                self._hung.add(at)
                text = f"The driver did not answer for {_HANG_S:g} s; the GPU is no longer read."
                self._lose(at, "gpu_hang", text)
            left = tuple(silent[1:])
        return results

    def _work(self, turn: _Round[Reading], read: Callable[[GpuReader], Reading]) -> None:
        """Read one GPU after another, in the worker's thread."""
        for position in turn.positions:
            try:
                reading = read(self.opened.readers[position])
            except GpuLibraryError as error:
                turn.failed.add(position)
                self._lose(position, "gpu_lost", f"The GPU is no longer read: {error}", error.code)
                continue
            if turn.given_up:
                return
            turn.results[position] = reading

    def _lose(self, position: int, code: str, text: str, error: int | None = None) -> None:
        if position not in self._lost or position in self._hung:
            self._lost.add(position)
            self._tell(code, text, self.table[position].uuid, error)

    def _finished(
        self, call: PendingCall[Answer], seconds: float, results: Collection[int]
    ) -> bool:
        """Wait for a call while it makes progress; only for a moment if the sampler has to end.

        What counts is time in which both were awake: a job may be suspended in between, and the
        driver has no part in that.
        """
        so_far, waited_s = 0, 0.0
        while not call.wait(_SLICE_S):
            waited_s += _SLICE_S
            if len(results) != so_far:
                so_far, waited_s = len(results), 0.0
            if waited_s > (_HURRY_S if self._hurry() else seconds):
                return False
        return True

    def _leave_worker(self) -> None:
        self._worker.give_up()
        self._worker = Worker()


def _start(environ: Mapping[str, str], tell: Tell) -> Opened:
    """Start the library and find the job's GPUs, in the worker's thread."""
    library, units, failures = open_library()
    for failure in failures:
        tell("gpu_lost", str(failure), None, failure.code)
    mine: Mapped = find_mine(units, environ, amd=library.amd)
    if mine.doubt:
        tell("gpu_mapping", mine.doubt, None)
    readers: Sequence[GpuReader] = [GpuReader(library, unit, tell) for unit in mine.units]
    return Opened(
        readers=tuple(readers),
        method=mine.method,
        shared=mine.shared,
        driver=library.driver(),
        library=library.name,
    )
