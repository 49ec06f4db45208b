"""The real sampler beside a load, and its samples over a stretch of time."""

import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from hpckit.stats.sampler.gpu_library import GpuLibraryError
from hpckit.stats.sampler.nvml import GPM_GRAPHICS
from hpckit.stats.sampler.start import start_sampler, stop_sampler
from hpckit.stats.samples.lines import Damage
from hpckit.stats.samples.reading import read_records
from hpckit.stats.samples.records import Header, Note, Record, Sample, Slow, State, samples_files
from tests.gpu.machine import Machine

if TYPE_CHECKING:
    from subprocess import Popen

_FIRST_S = 60.0


def now_us() -> int:
    """Return the samples' clock."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000


def clocks_us() -> dict[str, int]:
    """Return now by the clocks that a driver's times may be of, in microseconds."""
    names = {"wall": time.CLOCK_REALTIME, "boot": time.CLOCK_BOOTTIME, "mono": time.CLOCK_MONOTONIC}
    return {name: time.clock_gettime_ns(clock) // 1000 for name, clock in names.items()}


@dataclass(frozen=True)
class Span:
    """From when to when, in microseconds of the samples' clock."""

    begin: int
    end: int

    @property
    def seconds(self) -> float:
        """How long it is."""
        return (self.end - self.begin) / 1e6

    def inner(self, after_s: float, before_s: float = 0.0) -> "Span":
        """Return it without its first and last seconds."""
        return Span(self.begin + round(after_s * 1e6), self.end - round(before_s * 1e6))


@dataclass
class Run:
    """One run of the sampler; `records` are what it has written when asked."""

    folder: Path
    process: "Popen[bytes] | None" = None

    @property
    def records(self) -> list[Record]:
        """All that can be read."""
        damage = Damage()
        return [
            one for file in samples_files(self.folder) for one in read_records(file.path, damage)
        ]

    @property
    def header(self) -> Header:
        """What holds for the whole."""
        return next(row for row in self.records if isinstance(row, Header))

    @property
    def samples(self) -> list[Sample]:
        """All samples."""
        return [row for row in self.records if isinstance(row, Sample)]

    @property
    def slow(self) -> list[Slow]:
        """The readings of each minute."""
        return [row for row in self.records if isinstance(row, Slow)]

    @property
    def states(self) -> list[State]:
        """What seldom changes."""
        return [row for row in self.records if isinstance(row, State)]

    @property
    def notes(self) -> list[Note]:
        """What could not be read, and why."""
        return [row for row in self.records if isinstance(row, Note)]

    def last(self, name: str, gpu: int = 0) -> int | None:
        """Return the newest value of a GPU's metric; a sample soon after another has no power."""
        values = [getattr(row.gpus[gpu], name) for row in self.samples]
        return next((value for value in reversed(values) if value is not None), None)

    def within(self, span: Span) -> list[tuple[Sample, Sample]]:
        """Return samples with those before them, where both lie in a stretch of time."""
        return [
            (before, row)
            for before, row in pairwise(self.samples)
            if before.mono_us >= span.begin and row.mono_us <= span.end
        ]

    def covered(self, span: Span) -> Span:
        """Return the stretch that whole samples within it speak of.

        Raises:
            AssertionError: there is none.
        """
        rows = self.within(span)
        assert rows, f"no whole sample lies in {span.seconds:.1f} s"
        return Span(rows[0][0].mono_us, rows[-1][1].mono_us)

    def mean(self, name: str, span: Span, gpu: int = 0) -> float | None:
        """Return the time-weighted mean of a GPU's metric; None if no sample knows it."""
        total = weight = 0.0
        for before, row in self.within(span):
            value = getattr(row.gpus[gpu], name)
            if value is not None:
                took = row.mono_us - before.mono_us
                total += value * took
                weight += took
        return total / weight if weight else None

    def percent(self, name: str, span: Span) -> float | None:
        """Return the mean of a metric in permille, in percent."""
        found = self.mean(name, span)
        return None if found is None else found / 10

    def grown(self, name: str, span: Span) -> tuple[float, float] | None:
        """Return by how much a GPU's counter grew, and in how many seconds; None if unknown."""
        rows = [row for pair in self.within(span) for row in pair]
        known = [(row.mono_us, getattr(row.gpus[0], name)) for row in rows]
        known = [row for row in known if row[1] is not None]
        if len(known) < 2:
            return None
        return known[-1][1] - known[0][1], (known[-1][0] - known[0][0]) / 1e6


def why_not(run: Run, *fields: str) -> str:
    """Return what the sampler's notes say of a reading that it could not have."""
    said = [note.text for note in run.notes]
    ends = (":", " for a while:")
    found = [
        text
        for field in fields
        for text in said
        if text.startswith(tuple(f"No {field}{end}" for end in ends))
    ]
    return (found or said or ["no note says why"])[0]


@contextmanager
def sampled(
    machine: Machine, *, interval_s: float = 1.0, more: Mapping[str, str] | None = None
) -> Iterator[Run]:
    """Run the sampler as a job does, from its first sample on; its file is whole afterwards.

    Raises:
        AssertionError: it did not start, or has no GPU.
    """
    folder = Path(tempfile.mkdtemp(prefix="samples-", dir=machine.folder))
    environ = machine.environment(more)
    process = start_sampler(folder, interval_s, {}, root_pid=os.getpid(), environ=environ)
    assert process is not None, "the sampler could not be started"
    run = Run(folder, process)
    machine.sampling = run
    try:
        _wait_for_first(run)
        yield run
    finally:
        machine.sampling = None
        stop_sampler(process)
        kept = [row for row in run.records if not isinstance(row, Header)]
        machine.keep("sampler", [{"kind": type(row).__name__, "row": row} for row in kept])
        machine.keep("driver's buffer", {"now": clocks_us(), "pairs": machine.buffer()})


def wait_until(what: str, true: Callable[[], bool], limit_s: float = _FIRST_S) -> None:
    """Wait for what a loaded machine makes true later.

    Raises:
        AssertionError: it did not become true in time.
    """
    began = time.monotonic()
    while not true():
        assert time.monotonic() - began < limit_s, f"not in {limit_s:g} s: {what}"
        time.sleep(0.05)


def pass_time(machine: Machine, seconds: float) -> Span:
    """Wait, and return the time that passed; in a dry run, until some samples lie in it."""
    begin = now_us()
    time.sleep(seconds)
    run = machine.sampling
    if machine.dry and run is not None:
        wait_until("three samples", lambda: sum(row.mono_us >= begin for row in run.samples) >= 3)
    return Span(begin, now_us())


def _wait_for_first(run: Run) -> None:
    def there() -> bool:
        assert run.process is not None
        status = run.process.poll()
        assert status is None, f"the sampler ended with status {status}"
        return bool(run.samples)

    wait_until("a first sample", there)
    said = "; ".join(note.text for note in run.notes)
    assert run.header.gpus, f"the sampler sees no GPU: {said}"


@dataclass
class Poll:
    """Asks for some values again and again, in a thread, as an own witness.

    Attributes:
        asked: what to call, by a name; None is no answer.
        rows: time in microseconds and value, by name.
    """

    machine: Machine
    asked: Mapping[str, Callable[[], float | None]]
    every_s: float = 0.05
    rows: dict[str, list[tuple[int, float]]] = field(default_factory=dict)

    def __enter__(self) -> "Poll":
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join(10)
        self.machine.keep("witness", self.rows)

    def _run(self) -> None:
        while not self._over.wait(self.every_s):
            for name, call in self.asked.items():
                value = call()
                if value is not None:
                    self.rows.setdefault(name, []).append((now_us(), float(value)))

    @classmethod
    def of_gpm(cls, machine: Machine) -> "Poll":
        """Ask GPM how long the engine of graphics and computing was busy: the exact mean of each

        quarter of a second, and another counter than NVML's utilization. No rows without GPM.
        """
        if not machine.unit.info.gpm:
            return cls(machine, {})
        try:
            gpm = machine.nvml.activities(machine.unit)
        except GpuLibraryError:
            return cls(machine, {})

        def percent() -> float | None:
            try:
                permille = gpm.permilles().get(GPM_GRAPHICS)
            except GpuLibraryError:
                return None
            return None if permille is None else permille / 10

        return cls(machine, {"graphics": percent}, every_s=0.25)

    def mean(self, name: str, span: Span) -> float | None:
        """Return the mean over a stretch by the trapezoidal rule; None: too little is known."""
        rows = [row for row in self.rows.get(name, []) if span.begin <= row[0] <= span.end]
        if len(rows) < 2:
            return None
        total = sum((b[0] - a[0]) * (a[1] + b[1]) / 2 for a, b in pairwise(rows))
        return total / (rows[-1][0] - rows[0][0])
