"""What `hpckit stats` must say of a GPU that the stub plays: exact, however late it was read.

A sample speaks for the time since the one before it; what it says is of the time between two
readings, which come after the samples' times: by how much is the machine's load's matter. The stub
tells when it was read, so that the exact figure is known.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.stats.conftest import Played
from tests.stats.stub.script import ENERGY_BASE_MJ, Gpu

Record = dict[str, Any]
_BUSY_PERMILLE = 10


@dataclass(frozen=True, kw_only=True)
class Read:
    """One reading, and until when its answer speaks of the GPU, in script seconds."""

    at: float
    until: float


@dataclass(frozen=True, kw_only=True)
class Said:
    """What one sample says: for how long it stands, and of which time, in script seconds."""

    number: int
    weight: float
    begin: float
    end: float


def close(exact: float) -> object:
    """Say that a figure is within 1 % of the exact one."""
    return pytest.approx(exact, rel=0.01, abs=1e-6)


def read_log(path: Path, pid: int) -> dict[str, dict[str, list[Read]]]:
    """What the stub told of the readings of one process, by UUID and what was read."""
    found: dict[str, dict[str, list[Read]]] = {}
    for line in path.read_text().splitlines():
        reader, uuid, word, at, until = line.split()
        if int(reader) == pid:
            read = Read(at=float(at), until=float(until))
            found.setdefault(uuid, {}).setdefault(word, []).append(read)
    return found


@dataclass(frozen=True, kw_only=True)
class Exact:
    """What samples must say of one GPU: its place in them, its script, and when it was read."""

    played: Played
    at: int
    gpu: Gpu
    reads: Mapping[str, Sequence[Read]]

    @property
    def scale(self) -> float:
        return self.played.stub.scale

    @cached_property
    def times(self) -> list[float]:
        """The samples' times."""
        return [time for time, _ in self.played.gpu(self.at)]

    def values(self, name: str) -> list[int | None]:
        """A field of each sample."""
        return [getattr(sample, name) for _, sample in self.played.gpu(self.at)]

    def last(self, name: str) -> float:
        """The time of the last sample that knows a field."""
        known = zip(self.times, self.values(name), strict=True)
        return max(time for time, value in known if value is not None)

    def said(self, name: str) -> list[Said]:
        """What samples say of a field that is a mean between two readings.

        Where the stub was not told when it is read, as of a spot reading, it is of the sample's
        own time.
        """
        word = "gpm" if self.gpu.slice_of or not name.startswith("util") else "samples"
        reads = self.reads.get(word, [])
        moments = [read.at for read in reads]
        values, ends = self.values(name), [*self.times[1:], float("inf")]
        found = []
        for number, ((since, time), end) in enumerate(
            zip(pairwise(self.times), ends[1:], strict=True), start=1
        ):
            if values[number] is None:
                continue
            last, first = bisect_left(moments, end) - 1, bisect_left(moments, time) - 1
            told = first >= 0 and reads[last].until > reads[first].until
            begin, until = (reads[first].until, reads[last].until) if told else (time, time + 1e-6)
            found.append(Said(number=number, weight=time - since, begin=begin, end=until))
        return found

    def mean(self, curve: str, name: str) -> float:
        """The exact mean of what samples say of a curve."""
        said = self.said(name)
        total = sum(part.weight * self.gpu.mean(curve, part.begin, part.end) for part in said)
        return total / sum(part.weight for part in said)

    def peak(self, curve: str, name: str) -> float:
        """The highest value until the last sample that knows it."""
        last = self.last(name)
        return max(value for since, value in self.gpu.curves[curve] if since < last)

    def hours(self) -> float:
        """For how long utilization is known."""
        return sum(part.weight for part in self.said("utilization_permille")) / self.scale / 3600

    def idle_percent(self) -> float:
        """The share of the time that samples without a kernel stand for."""
        said = self.said("utilization_permille")
        idle = [
            part.weight
            for part in said
            if round(self.gpu.mean("util", part.begin, part.end) * 10) < _BUSY_PERMILLE
        ]
        return sum(idle) / sum(part.weight for part in said) * 100

    def energy(self) -> tuple[float, float]:
        """What the counter grew by, in joules, and from the first to the last sample, seconds."""
        reads, values = self.reads["energy"], self.values("energy_mj")
        moments = [read.at for read in reads]
        known = [number for number, value in enumerate(values) if value is not None]
        places = [bisect_left(moments, end) - 1 for end in self.times[1:]]
        # A sampler that is killed may have read once more, for a sample that it never wrote.
        places.append(min(bisect_left(moments, self.times[-1] - 1e-3), len(reads) - 1))
        seen = [self._counter(reads[places[at]].until) for at in known]
        if "energy_reset" in self.gpu.words:
            grown = sum(b - a if b >= a else b for a, b in pairwise(seen))
        else:  # only a reset takes the counter back
            grown = seen[-1] - seen[0]
        return grown / 1000, (self.times[known[-1]] - self.times[known[0]]) / self.scale

    def _counter(self, time: float) -> float:
        reset = float(str(self.gpu.words.get("energy_reset", "inf")))
        begin, base = (reset, 0.0) if time >= reset else (0.0, ENERGY_BASE_MJ)
        if time <= begin:
            return base
        return base + self.gpu.mean("power", begin, time) * (time - begin) / self.scale


@dataclass(frozen=True, kw_only=True)
class Row(Exact):
    """One GPU of a job, and its figures in what `hpckit stats` says."""

    figures: Record


def assert_gpu(row: Row) -> None:
    """Mean, peak, idle share, memory, power and energy are within 1 % of the script's."""
    gpu, found = row.gpu, row.figures
    exact = {
        "utilization_percent": row.mean("util", "utilization_permille"),
        "utilization_peak_percent": row.peak("util", "utilization_permille"),
        "idle_percent": row.idle_percent(),
        "hours": row.hours(),
    }
    memory = row.peak("memory", "memory_bytes")
    assert found["memory_peak_bytes"] == memory
    total = row.played.header.gpus[row.at].memory_total_bytes
    exact["memory_used_percent"] = memory / total * 100
    for name, curve in (("sm_active", "sm"), ("tensor", "tensor"), ("dram", "dram")):
        # A sample's permille has no tenths.
        near = pytest.approx(row.mean(curve, f"{curve}_permille"), rel=0.01, abs=0.051)
        assert found[f"{name}_percent"] == near, (name, found["uuid"])
    if not gpu.slice_of:
        joules, seconds = row.energy()
        exact |= {"power_watts_mean": joules / seconds, "energy_joules": joules}
    wrong = {
        name: (found[name], value)
        for name, value in exact.items()
        if found[name] != pytest.approx(value, rel=0.01, abs=0.0005)
    }
    assert wrong == {}, found["uuid"]


def assert_moments(row: Row, began: float, *, first: float, last: float) -> None:
    """First use and idle tail are those of the samples in which use begins and ends.

    `first` and `last` are when it does, in script seconds; `began` is the attempt's start, in epoch
    seconds.
    """
    values, header = row.values("utilization_permille"), row.played.header
    busy = [number for number, value in enumerate(values) if (value or 0) >= _BUSY_PERMILLE]
    said = {part.number: part for part in row.said("utilization_permille")}
    edge = 2e-3 * row.scale  # by how much the clocks of sampler and stub may differ
    if busy[0] > 1:  # in the first sample is what went before it
        assert said[busy[0]].begin - edge <= first <= said[busy[0]].end + edge
    if busy[-1] + 1 in said:
        assert said[busy[-1]].begin - edge <= last <= said[busy[-1] + 1].end + edge
    boot_to_epoch = header.epoch_us / 1e6 - row.played.stub.script_time(header.mono_us) / row.scale
    wanted = row.times[max(busy[0] - 1, 0)] / row.scale + boot_to_epoch - began
    assert row.figures["first_use_s"] == pytest.approx(wanted, abs=2e-3)
    tail = (row.times[-1] - row.times[busy[-1]]) / row.scale
    assert row.figures["idle_tail_s"] == pytest.approx(tail, abs=2e-3)
