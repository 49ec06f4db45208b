"""Several samplers in one attempt are one timeline: made-up ones, and 60 drawn by seed.

The figures of the drawn ones are compared with what is counted second by second.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from pathlib import Path

import pytest

from hpckit.stats.advice.engine import advise
from hpckit.stats.merge import merge
from hpckit.stats.samples.collecting import read_columns
from hpckit.stats.samples.columns import Columns
from hpckit.stats.samples.encoding import encoder
from hpckit.stats.samples.records import (
    End,
    GpuSample,
    Header,
    Note,
    Record,
    Sample,
    samples_files,
)
from hpckit.stats.summary.attempts import Span
from hpckit.stats.summary.figures import GpuUse, JobUse
from hpckit.stats.summary.summarise import Account, summarise
from tests.advice.made import RULES
from tests.report.made import BEGAN_US, START, table, write_samples

pytestmark = pytest.mark.long

BUSY = [95.0] * 361


def account(folder: Path, spans: list[Span]) -> Account:
    files = [read_columns(file.path, file.restart) for file in samples_files(folder)]
    return summarise([file for file in files if file], spans)


def rules_of(found: Account, elapsed_s: float) -> set[str]:
    bare = JobUse(job_id="1", state="COMPLETED", elapsed_s=elapsed_s, gpus=1)
    return {item.id for item in advise(merge(bare, found, ()), RULES)}


def test_steps_that_follow_one_another_are_not_attempts(tmp_path: Path) -> None:
    """Two steps of an hour, 95 % busy, and some minutes between them."""
    write_samples(tmp_path, [BUSY], pid=1, ids={"step_id": "0"})
    write_samples(tmp_path, [BUSY], pid=2, ids={"step_id": "1"}, late_s=3960)
    span = Span(restart=0, start=START, end=START + 7560, gpus=1)
    found = account(tmp_path, [span])
    (gpu,) = found.per_gpu
    assert gpu.first_use_s == 0
    assert gpu.idle_tail_s == 0
    assert gpu.hours == pytest.approx(2)
    assert gpu.covered_percent == pytest.approx(100 * 7201 / 7560, abs=0.05)
    assert found.summary.coverage_percent == pytest.approx(gpu.covered_percent)
    assert [line for line in rules_of(found, 7560) if "use" in line or "idle" in line] == []
    # What nobody sampled is no idle time.
    assert found.summary.gpu_hours_idle == 0


def test_a_last_step_that_idles_is_an_idle_tail(tmp_path: Path) -> None:
    write_samples(tmp_path, [BUSY], pid=1)
    write_samples(tmp_path, [[0.0] * 361], pid=2, late_s=3600)
    found = account(tmp_path, [Span(restart=0, start=START, end=START + 7200, gpus=1)])
    assert found.per_gpu[0].idle_tail_s == 3600
    assert "idle-tail" in rules_of(found, 7200)


def test_a_first_step_nobody_sampled_makes_no_late_first_use(tmp_path: Path) -> None:
    write_samples(tmp_path, [BUSY], late_s=3600)
    found = account(tmp_path, [Span(restart=0, start=START, end=START + 7200, gpus=1)])
    (gpu,) = found.per_gpu
    assert (gpu.first_use_s, gpu.idle_hours, gpu.energy_joules) == (None, None, None)
    assert gpu.covered_percent == pytest.approx(50, abs=0.1)


def test_steps_at_once_are_counted_once(tmp_path: Path) -> None:
    write_samples(tmp_path, [BUSY], pid=1)
    write_samples(tmp_path, [[95.0] * 721], pid=2, period_s=5)
    write_samples(tmp_path, [[95.0] * 61], pid=3, late_s=3300)
    found = account(tmp_path, [Span(restart=0, start=START, end=START + 3900, gpus=1)])
    (gpu,) = found.per_gpu
    assert gpu.hours == pytest.approx(3900 / 3600)
    assert gpu.covered_percent == pytest.approx(100)
    assert found.summary.coverage_percent == pytest.approx(100)


def test_killed_processes_of_the_job_are_counted_once(tmp_path: Path) -> None:
    """The cgroup's counter is the job's, whichever step reads it."""
    for pid, late_s in ((1, 0), (2, 100)):
        header = Header(
            host="n1", boot_id="b", pid=pid, epoch_us=(START + late_s) * 10**6,
            mono_us=BEGAN_US + late_s * 10**6, interval_us=10**7, gpus=(), cores=8, cgroup="v2",
        )  # fmt: skip
        rows = [
            Sample(
                mono_us=BEGAN_US + (late_s + at) * 10**6,
                oom_kills=3,
                cpu_us=(late_s + at) * 2 * 10**6,
            )
            for at in range(0, 101, 10)
        ]
        text = b"".join(map(encoder(0), (header, *rows)))
        (tmp_path / f"n1.r0.{pid}.jsonl").write_bytes(text)
    found = account(tmp_path, [])
    assert found.summary.oom_kills == 3
    assert found.summary.cpu_s == pytest.approx(400)
    assert found.per_node[0].cores_used == pytest.approx(2)


def write_taking_turns(
    folder: Path, kind: str, summed: tuple[str | None, str | None] = (None, None), reset: int = 99
) -> None:
    """Two samplers that begin and end at once: 500 W and 8 cores for 10 min.

    The first one always reads 20 ms after its sample's time, and after the other one, whose
    samples' times are 5 ms later. From sample `reset` on, the GPU's counter is that of a driver
    that was loaded anew.
    """
    for pid, late_us, read_us in ((1, 0, 20_000), (2, 5_000, 6_000)):
        header = Header(
            host="n1", boot_id="b", pid=pid, epoch_us=START * 10**6 + late_us,
            mono_us=BEGAN_US + late_us, interval_us=10**7, gpus=table(1), cores=16, cgroup=kind,
            summed=summed[pid - 1],
        )  # fmt: skip
        rows: list[Record] = []
        for at in range(61):
            read = at * 10**7 + read_us
            energy = 500 * (read // 1000 - (reset * 10**4 if at >= reset else -(10**9)))
            sample = GpuSample(utilization_permille=500, energy_mj=energy)
            time = BEGAN_US + at * 10**7 + late_us
            rows.append(Sample(mono_us=time, cpu_us=10**9 + 8 * read, gpus=(sample,)))
        if reset < len(rows):
            said = "the driver was loaded again"
            rows.append(Note(mono_us=BEGAN_US, code="counter_reset", text=said, gpu="GPU-n1-0"))
        text = b"".join(map(encoder(1), (header, *rows)))
        (folder / f"n1.r0.{pid}.jsonl").write_bytes(text)


@pytest.mark.parametrize(("kind", "root"), [("v2", None), ("v1", None), ("proc", "1:7")])
def test_samplers_that_take_turns_read_one_counter(
    tmp_path: Path, kind: str, root: str | None
) -> None:
    """A sample's time is that before it is read: of two, the later one may have read less."""
    write_taking_turns(tmp_path, kind, (root, root))
    found = account(tmp_path, [])
    (gpu,), (node,) = found.per_gpu, found.per_node
    assert gpu.energy_joules == pytest.approx(500 * 600, rel=1e-4)
    assert gpu.power_watts_mean == pytest.approx(500, rel=1e-4)
    assert found.summary.cpu_s == pytest.approx(8 * 600, rel=1e-4)
    assert node.cores_used == pytest.approx(8, rel=1e-4)


@pytest.mark.parametrize("roots", [("1:7", "1:8"), ("1:7", "2:7"), (None, None)])
def test_other_processes_are_another_sum(
    tmp_path: Path, roots: tuple[str | None, str | None]
) -> None:
    write_taking_turns(tmp_path, "proc", roots)
    assert account(tmp_path, []).summary.cpu_s == pytest.approx(2 * 8 * 600, rel=1e-4)


def test_a_driver_loaded_again_is_seen_by_both_samplers_and_counts_once(tmp_path: Path) -> None:
    write_taking_turns(tmp_path, "v2", reset=30)
    (gpu,) = account(tmp_path, []).per_gpu
    # What was used between the last look before and the reset is lost: 10 s of it.
    assert gpu.energy_joules == pytest.approx(500 * 590, rel=1e-4)


# Drawn timelines. Times are whole seconds of an attempt.


@dataclass(frozen=True)
class File:
    """A sampler: its samples' times, and the GPUs it could read at each."""

    pid: int
    host: str
    interval: int
    times: tuple[int, ...]
    lost: tuple[tuple[int, int, int], ...]  # GPU, from, to
    ended: bool

    def reads(self, gpu: int, time: int) -> bool:
        return not any(one == gpu and first <= time < last for one, first, last in self.lost)

    def spans(self, gpu: int | None) -> Iterator[tuple[int, int, int]]:
        """Each sample with what it stands for, the seconds up to it; and the sample before."""
        longest = max(3 * self.interval, 15)
        for before, time in zip((self.times[0], *self.times), self.times, strict=False):
            if gpu is None or self.reads(gpu, time):
                yield time - min(time - before, longest), time, before


@dataclass
class Drawn:
    """One attempt of a job on some hosts."""

    seed: int
    chance: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.length = self.chance.choice([240, 900, 1800, 3600])
        self.gpus = self.chance.randint(1, 3)
        self.hosts = [f"n{at}" for at in range(self.chance.randint(1, 2))]
        self.files = [file for host in self.hosts for file in self._files(host)]

    @cached_property
    def busy(self) -> dict[tuple[str, int], list[int]]:
        """Permille of each second, in runs; the first is of the second that ends at 1."""
        found = {}
        for host in self.hosts:
            for gpu in range(self.gpus):
                row: list[int] = []
                while len(row) < self.length:
                    value = self.chance.choice([0, 0, 5, 400, 950, 1000])
                    row += [value] * self.chance.randint(1, self.length // 2)
                found[host, gpu] = row[: self.length]
        return found

    def _files(self, host: str) -> Iterator[File]:
        begins = sorted(self.chance.sample(range(self.length // 2), self.chance.randint(1, 3)))
        for pid, begin in enumerate([begins[0] // 20, *begins[1:]]):
            interval = self.chance.choice([1, 5, 10, 30])
            end = self.chance.randint(min(begin + 5 * interval, self.length), self.length)
            end = self.length if self.chance.random() < 0.6 else end
            times = [*range(begin, end, interval), end]
            if self.chance.random() < 0.4 and len(times) > 20:
                at = self.chance.randrange(2, len(times) - 5)
                del times[at : at + self.chance.randint(1, len(times) // 3)]
            lost = []
            for gpu in range(self.gpus):
                if self.chance.random() < 0.35:
                    first = self.chance.randint(begin, end)
                    last = self.chance.choice([self.length + 1, self.chance.randint(first, end)])
                    lost.append((gpu, first, last))
            unique = tuple(sorted(set(times)))
            ended = self.chance.random() < 0.7
            yield File(pid, host, interval, unique, tuple(lost), ended)

    @cached_property
    def sums(self) -> dict[tuple[str, int], list[int]]:
        """The sum of `busy` up to each second."""
        return {key: [0, *accumulate(row)] for key, row in self.busy.items()}

    def mean(self, host: str, gpu: int, begin: int, end: int) -> int:
        sums = self.sums[host, gpu]
        return round((sums[end] - sums[begin]) / (end - begin)) if end > begin else 0

    def energy(self, host: str, gpu: int, time: int) -> int:
        """Milliwatts are 100 W and half a watt for each permille."""
        return 10**9 + 100_000 * time + 500 * self.sums[host, gpu][time]

    def cpu_us(self, time: int) -> int:
        return 3_000_000 * time + 1_000_000 * (time // 7)

    def write(self, folder: Path) -> list[Columns]:
        found = []
        for file in self.files:
            encode, path = encoder(self.gpus), folder / f"{file.host}.r0.{file.pid}.jsonl"
            begin = file.times[0]
            records: list[object] = [
                Header(
                    host=file.host, boot_id=file.host, pid=file.pid,
                    # Wall clocks are set while a job runs.
                    epoch_us=(START + begin) * 10**6, mono_us=BEGAN_US + begin * 10**6,
                    interval_us=file.interval * 10**6, gpus=table(self.gpus, file.host),
                    cores=8, memory_limit_bytes=1 << 36, cgroup="v2",
                )
            ]  # fmt: skip
            for before, time in zip((begin, *file.times), file.times, strict=False):
                gpus = tuple(self._reading(file, gpu, before, time) for gpu in range(self.gpus))
                records.append(
                    Sample(
                        mono_us=BEGAN_US + time * 10**6,
                        cpu_us=self.cpu_us(time),
                        memory_bytes=(1 << 30) + time,
                        gpus=gpus,
                    )
                )
            for gpu, first, _ in file.lost:
                at = next((time for time in file.times if time >= first), None)
                if at is not None and not file.reads(gpu, at):
                    mono_us, uuid = BEGAN_US + at * 10**6 + 9, f"GPU-{file.host}-{gpu}"
                    text = "Not read any more"
                    records.append(Note(mono_us=mono_us, code="gpu_lost", text=text, gpu=uuid))
            if file.ended:
                records.append(End(mono_us=BEGAN_US + file.times[-1] * 10**6, reason="parent"))
            path.write_bytes(b"".join(map(encode, records)))  # type: ignore[arg-type]
            columns = read_columns(path, 0)
            assert columns is not None
            found.append(columns)
        return found

    def _reading(self, file: File, gpu: int, before: int, time: int) -> GpuSample:
        if not file.reads(gpu, time):
            return GpuSample()
        return GpuSample(
            utilization_permille=self.mean(file.host, gpu, before, time),
            memory_bytes=(1 + gpu) << 30,
            energy_mj=self.energy(file.host, gpu, time),
        )


def enough(part: float, whole: float) -> bool:
    return part >= 0.8 * whole or whole - part <= 60


@dataclass
class Counted:
    """One GPU, counted second by second: which sample speaks for each second."""

    drawn: Drawn
    host: str
    gpu: int | None

    def __post_init__(self) -> None:
        files = [file for file in self.drawn.files if file.host == self.host]
        self.files = sorted(files, key=lambda file: file.times[0])
        # The oldest file that read in a second speaks for it.
        self.of: dict[int, tuple[int, int]] = {}
        for file in self.files:
            for begin, end, before in file.spans(self.gpu):
                for second in range(begin, end):
                    self.of.setdefault(second, (before, end))

    @property
    def covered(self) -> float:
        """Seconds, and the period before the first and after a last that was killed."""
        seconds = set(self.of)
        if not seconds:
            return 0
        first, last = min(seconds), max(seconds) + 1
        more = after = 0
        for file in self.files:
            *_, (begin, end, _) = file.spans(None)
            more = 1 if file.times[0] == first else more
            after = end - begin if file.times[-1] == last and not file.ended else after
        return min(len(seconds) + more + after, self.drawn.length)

    def value(self, second: int) -> int:
        """The permille that the sample of a second says."""
        assert self.gpu is not None
        return self.drawn.mean(self.host, self.gpu, *self.of[second])

    def read_times(self) -> list[int]:
        assert self.gpu is not None
        return sorted(
            {time for file in self.files for time in file.times if file.reads(self.gpu, time)}
        )


def assert_gpu(gpu: GpuUse, drawn: Drawn) -> None:
    counted = Counted(drawn, gpu.host, gpu.index)
    length, read = drawn.length, len(counted.of)
    assert gpu.covered_percent == pytest.approx(100 * counted.covered / length, abs=0.01)
    if not read:
        assert gpu.utilization_percent is None
        return
    values = {second: counted.value(second) for second in counted.of}
    assert gpu.utilization_percent == pytest.approx(sum(values.values()) / read / 10, abs=0.05)
    assert gpu.hours == pytest.approx(read / 3600)
    idle = sum(value < 10 for value in values.values())
    assert gpu.idle_percent == pytest.approx(100 * idle / read)
    assert (gpu.idle_hours is None) == (not enough(read, length))
    if gpu.idle_hours is not None:
        assert gpu.idle_hours == pytest.approx(idle / 3600)
    times = counted.read_times()
    grown = drawn.energy(gpu.host, gpu.index or 0, times[-1]) - drawn.energy(
        gpu.host, gpu.index or 0, times[0]
    )
    seen = times[-1] - times[0]
    assert (gpu.energy_joules is None) == (not enough(seen, length))
    if gpu.energy_joules is not None:
        assert gpu.energy_joules == pytest.approx(grown / 1000)
    if gpu.power_watts_mean is not None and enough(seen, counted.covered):
        assert gpu.power_watts_mean == pytest.approx(grown / 1000 / seen)
    assert gpu.memory_peak_bytes == (1 + (gpu.index or 0)) << 30
    assert_moments(gpu, drawn, counted, max(counted.of) + 1)


def assert_moments(gpu: GpuUse, drawn: Drawn, counted: Counted, last_read: int) -> None:
    assert counted.gpu is not None
    uses = []
    for file in counted.files:
        for at, time in enumerate(file.times):
            before, reads = file.times[max(at - 1, 0)], file.reads(counted.gpu, time)
            if reads and drawn.mean(gpu.host, counted.gpu, before, time) >= 10:
                uses.append((max(before, time - max(3 * file.interval, 15)), time))
    if not uses:
        assert (gpu.first_use_s, gpu.idle_tail_s) == (None, None)
        return
    first, last = min(begin for begin, _ in uses), max(end for _, end in uses)
    before = sum(second < first for second in counted.of)
    after = sum(second >= last for second in counted.of)
    assert gpu.first_use_s == (first if enough(before, first) else None)
    known = enough(after, drawn.length - last)
    assert gpu.idle_tail_s == (max(last_read - last, 0) if known else None)


@pytest.mark.parametrize("seed", range(60))
def test_figures_of_drawn_timelines_are_those_counted_by_the_second(
    seed: int, tmp_path: Path
) -> None:
    drawn = Drawn(seed)
    gpus = drawn.gpus * len(drawn.hosts)
    span = Span(restart=0, start=START, end=START + drawn.length, gpus=gpus, nodes=len(drawn.hosts))
    found = summarise(drawn.write(tmp_path), [span])
    assert len(found.per_gpu) == gpus
    for gpu in found.per_gpu:
        assert_gpu(gpu, drawn)
    summary, length = found.summary, drawn.length
    rows = [Counted(drawn, host, at) for host in drawn.hosts for at in range(drawn.gpus)]
    read = sum(len(row.of) for row in rows)
    used = sum(row.value(second) for row in rows for second in row.of)
    if read:
        assert summary.gpu_utilization_percent == pytest.approx(used / read / 10, abs=0.05)
    covered = sum(row.covered for row in rows)
    assert summary.gpu_coverage_percent == pytest.approx(100 * covered / gpus / length, abs=0.01)
    parts = [gpu.energy_joules for gpu in found.per_gpu]
    whole = None if None in parts else pytest.approx(sum(part or 0 for part in parts))
    assert summary.energy_joules == whole
    assert summary.gpu_hours == pytest.approx(gpus * length / 3600)
    nodes = [Counted(drawn, host, None) for host in drawn.hosts]
    for node, row in zip(found.per_node, nodes, strict=True):
        assert node.covered_percent == pytest.approx(100 * row.covered / length, abs=0.01)
        times = [time for file in row.files for time in (file.times[0], file.times[-1])]
        cpu_s = (drawn.cpu_us(max(times)) - drawn.cpu_us(min(times))) / 1e6
        seen = max(times) - min(times)
        assert node.cores_used == pytest.approx(cpu_s / seen)
        assert node.cpu_efficiency_percent == pytest.approx(cpu_s / seen / 8 * 100)
        assert (node.cpu_s is None) == (not enough(seen, length))
        assert node.memory_peak_bytes == (1 << 30) + max(times)
    share = sum(row.covered for row in nodes) / len(nodes) / length
    assert summary.coverage_percent == pytest.approx(100 * share, abs=0.01)
