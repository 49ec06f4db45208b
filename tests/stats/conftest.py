"""The stub NVML, built once, and samplers that play its scripts."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import pytest

from hpckit.stats.samples.lines import Damage
from hpckit.stats.samples.reading import read_records
from hpckit.stats.samples.records import (
    End,
    GpuSample,
    Header,
    Note,
    Record,
    Sample,
    Slow,
    State,
    samples_files,
)
from tests.patience import LONG_S
from tests.stats.stub.script import SAMPLER, Gpu, Stub, build_library


@contextmanager
def mounted(folder: Path, options: str) -> Iterator[None]:
    """Put a file system in memory into a folder, as of a few pages only."""
    argv = ["mount", "-t", "tmpfs", "-o", options, "none", str(folder)]
    done = subprocess.run(argv, capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"cannot mount a small disk: {done.stderr.decode()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_library(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def stub(library: Path, tmp_path: Path) -> Stub:
    return Stub(library=library, folder=tmp_path)


@dataclass
class Played:
    """What a sampler wrote."""

    records: list[Record]
    damage: Damage
    stub: Stub

    def of(self, kind: type) -> list:
        return [record for record in self.records if isinstance(record, kind)]

    @property
    def header(self) -> Header:
        return self.of(Header)[0]

    @property
    def samples(self) -> list[Sample]:
        return self.of(Sample)

    @property
    def notes(self) -> list[Note]:
        return self.of(Note)

    @property
    def slow(self) -> list[Slow]:
        return self.of(Slow)

    @property
    def states(self) -> list[State]:
        return self.of(State)

    @property
    def end(self) -> End | None:
        found = self.of(End)
        return found[0] if found else None

    def codes(self) -> set[str]:
        return {note.code for note in self.notes}

    def gpu(self, position: int) -> list[tuple[float, GpuSample]]:
        """One GPU's samples, with their script seconds."""
        return [(self.stub.script_time(s.mono_us), s.gpus[position]) for s in self.samples]

    def span(self) -> tuple[float, float]:
        first, last = (self.samples[at].mono_us for at in (0, -1))
        return self.stub.script_time(first), self.stub.script_time(last)

    def until(self, epoch_s: float) -> "Played":
        """What it wrote without the samples after a moment."""
        last_us = self.header.mono_us + round(epoch_s * 1e6) - self.header.epoch_us
        late = {id(row) for row in self.samples if row.mono_us > last_us}
        kept = [row for row in self.records if id(row) not in late]
        return replace(self, records=kept)

    def mean(self, position: int, name: str) -> float:
        """The time-weighted mean of a field that holds since the last sample; gaps left out."""
        rows = self.gpu(position)
        total = weight = 0.0
        for (before, _), (at, sample) in pairwise(rows):
            value = getattr(sample, name)
            if value is not None:
                total += value * (at - before)
                weight += at - before
        return total / weight

    def energy_mj(self, position: int) -> int:
        """Energy by counter differences; a counter that went back starts again at 0."""
        found = [s.energy_mj for _, s in self.gpu(position) if s.energy_mj is not None]
        steps = pairwise(found)
        return sum(after - before if after >= before else after for before, after in steps)


def read_folder(folder: Path, stub: Stub) -> Played:
    damage = Damage()
    files = samples_files(folder)
    records = [record for file in files for record in read_records(file.path, damage)]
    return Played(records=records, damage=damage, stub=stub)


@dataclass
class Running:
    """A sampler at work."""

    process: subprocess.Popen
    folder: Path
    stub: Stub

    def play_until(self, script_s: float) -> None:
        """Play from the library's first call until a second of the script."""
        self.wait_for(self.stub.began.exists)
        time.sleep(max(0.0, self.stub.start + script_s / self.stub.scale - time.monotonic()))

    def stop(self) -> Played:
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(LONG_S) == 0
        return read_folder(self.folder, self.stub)

    def wait_for_samples(self, count: int = 1) -> None:
        self.wait_for(lambda: len(read_folder(self.folder, self.stub).samples) >= count)

    def wait_for_notes(self, code: str, count: int) -> None:
        def told() -> int:
            return sum(note.code == code for note in read_folder(self.folder, self.stub).notes)

        self.wait_for(lambda: told() >= count)

    def wait_for(self, true: Callable[[], bool]) -> None:
        deadline = time.monotonic() + LONG_S
        while not true():
            assert time.monotonic() < deadline, "it did not happen"
            assert self.process.poll() is None, "the sampler has ended"
            time.sleep(0.02)


Start = Callable[..., Running]


@pytest.fixture
def start(stub: Stub, tmp_path: Path) -> Iterator[Start]:
    """Start a sampler on a script; it is ended with the test."""
    running: list[subprocess.Popen] = []

    def begin(
        gpus: Sequence[Gpu] = (),
        *,
        scale: float = 1.0,
        interval: float = 0.2,
        slow: float = 60.0,
        folder: Path | None = None,
        env: dict[str, str] | None = None,
        argv: Sequence[str] = (),
    ) -> Running:
        place = folder or tmp_path / "samples"
        words = ["--dir", place, "--interval", f"{interval:g}", "--slow-interval", f"{slow:g}"]
        environment = {**stub.environment(gpus, scale=scale), **(env or {})}
        process = subprocess.Popen(
            [*SAMPLER, *words, "--root-pid", str(os.getpid()), *argv],
            env=environment,
            start_new_session=True,
        )
        running.append(process)
        return Running(process=process, folder=place, stub=stub)

    yield begin
    for process in running:
        process.kill()
        process.wait()
