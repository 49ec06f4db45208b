"""The job's GPUs on this node, read with a deadline: one that hangs is left behind.

All GPUs are read in one go in a worker thread, since NVML calls hang when the driver does. When it
makes no progress for two seconds, the GPU it is at counts as lost, the thread is given up, and a
new one reads the rest. A GPU that hung is never asked again; one that answered with an error is,
with the slow readings.
"""

import threading
import time
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


class Job(Generic[Answer]):
    """One call on its way: `done` when `answer` or `error` is there."""

    def __init__(self, call: Callable[[], Answer]) -> None:
        self._call = call
        self._done = threading.Event()
        self.answer: Answer | None = None
        self.error: BaseException | None = None

    def work(self) -> None:
        """Make the call; keep what it raises for the one who asked."""
        try:
            self.answer = self._call()
        except BaseException as error:  # noqa: BLE001  # raised again by `result`
            self.error = error
        self._done.set()

    def wait(self, seconds: float) -> bool:
        """Wait at most so long; tell whether it is done."""
        return self._done.wait(seconds)

    def result(self) -> Answer | None:
        """Return the answer of a call that is done, or raise what it raised."""
        if self.error is not None:
            raise self.error
        return self.answer


class Worker:
    """One thread that makes calls in turn, until it is given up."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[Job[object] | None] = SimpleQueue()
        # A daemon: a call that never returns must not keep the sampler from ending.
        threading.Thread(target=self._run, daemon=True).start()

    def ask(self, call: Callable[[], Answer]) -> Job[Answer]:
        """Have a call made; return at once."""
        job = Job(call)
        self._jobs.put(job)  # type: ignore[arg-type]
        return job

    def give_up(self) -> None:
        """Let the thread end when, if ever, its call returns."""
        self._jobs.put(None)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            job.work()


Reading = TypeVar("Reading", GpuSample, GpuSlow, GpuState, bool)

_HANG_S = 2.0
# NVML wakes every GPU when it starts; without persistence mode that takes seconds each.
_OPEN_S = 30.0
_HURRY_S = 0.3
_SLICE_S = 0.05


@frozen(kw_only=True)
class Opened:
    """What became of starting the GPUs' library."""

    readers: tuple[GpuReader, ...] = ()
    method: str | None = None
    shared: bool = False
    driver: str | None = None
    library: str | None = None


@changeable(kw_only=True, slots=False)
class _Round(Generic[Reading]):
    """One reading of some GPUs, by position; `given_up` stops a late thread."""

    positions: tuple[int, ...]
    results: dict[int, Reading] = field(default_factory=dict)
    failed: set[int] = field(default_factory=set)
    given_up: bool = False


class GpuSet:
    """Reads the job's GPUs. `hurry` tells that the sampler has to end: then nothing is waited for.

    `tell` makes notes.
    """

    def __init__(
        self,
        environ: Mapping[str, str],
        tell: Tell,
        hurry: Callable[[], bool],
        *,
        open_s: float = _OPEN_S,
        hang_s: float = _HANG_S,
    ) -> None:
        self._tell = tell
        self._hurry = hurry
        self._hang_s = hang_s
        self._lost: set[int] = set()
        self._hung: set[int] = set()
        self._worker = Worker()
        self.opened = self._open(environ, open_s)

    @property
    def table(self) -> tuple[GpuInfo, ...]:
        """The header's table; every tuple of readings is in its order."""
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
        """Take the readings for once a minute; see whether a lost GPU is back."""
        back = self._read(lambda reader: reader.try_again(now_us), self._lost - self._hung)
        for position in back:
            self._lost.discard(position)
            self._tell("gpu_back", "The GPU can be read again.", self.table[position].uuid)
        return self._each(GpuReader.slow, GpuSlow())

    def state(self, job_pids: Collection[int], here: Collection[int]) -> tuple[GpuState, ...]:
        """Take what seldom changes, and say of each GPU whether it is the job's alone."""
        shared = self.opened.shared
        return tuple(
            replace(
                state,
                confidence=SHARED if shared else confidence(state.processes, job_pids, here),
            )
            for state in self._each(GpuReader.state, GpuState())
        )

    def _open(self, environ: Mapping[str, str], seconds: float) -> Opened:
        job = self._worker.ask(lambda: _start(environ, self._tell))
        if not self._finished(job, seconds, ()):
            self._leave_worker()
            self._tell("no_nvml", f"NVML did not start within {seconds:g} s: no GPU figures.", None)
            return Opened()
        try:
            return job.result() or Opened()
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
            job = self._worker.ask(partial(self._work, turn, read))
            done = self._finished(job, self._hang_s, turn.results)
            results |= turn.results
            if done:
                job.result()
                break
            turn.given_up = True
            self._leave_worker()
            silent = [p for p in left if p not in results and p not in turn.failed]
            if self._hurry():
                self._lost |= set(silent)  # perhaps only slow; there is no time to find out
                break
            for at in silent[:1]:
                self._hung.add(at)
                text = (
                    f"The driver did not answer for {self._hang_s:g} s; the GPU is no longer read."
                )
                self._lose(at, "gpu_hang", text)
            left = tuple(silent[1:])
        return results

    def _work(self, turn: _Round[Reading], read: Callable[[GpuReader], Reading]) -> None:
        """Read one GPU after the other, in the worker's thread."""
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

    def _finished(self, job: Job[Answer], seconds: float, results: Collection[int]) -> bool:
        """Wait for a job as long as it makes progress; only a moment if the sampler has to end."""
        so_far, since = 0, time.monotonic()
        while not job.wait(_SLICE_S):
            if len(results) != so_far:
                so_far, since = len(results), time.monotonic()
            if time.monotonic() - since > (_HURRY_S if self._hurry() else seconds):
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
