"""Square waves read by the sampler's own schedule and reader, on a clock of the test's."""

import json
import math
import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from hpckit.stats.sampler.gpu_library import Trouble
from hpckit.stats.sampler.gpu_reader import GpuReader
from hpckit.stats.sampler.job_gpus import Unit
from hpckit.stats.sampler.nvml import NvmlError
from hpckit.stats.sampler.schedule import NEVER_S, Utilization, add_buffer, moments, period_s
from hpckit.stats.samples.records import GpuInfo

WINDOW_S = 1 / 6
PERIODS = (0.5, 1.0, 1.25, 3.3, 10.0, 12.0, 60.0, 120.0)
INTERVALS = (1, 10, 30, 60)


class Wave:
    """NVML of one GPU that works half of each period, on a clock that is set."""

    def __init__(self, period: float, *, buffer_s: float | None) -> None:
        self.period, self.buffer_s, self.now = period, buffer_s, 0.0
        self.readings = 0

    def integral(self, time: float) -> float:
        whole, rest = divmod(max(time, 0.0), self.period)
        return whole * self.period / 2 + min(rest, self.period / 2)

    def percent(self, begin: float, end: float) -> float:
        return 100 * (self.integral(end) - self.integral(begin)) / (end - begin)

    def spot_percent(self, _handle: object) -> float:
        self.readings += 1
        return self.percent(self.now - WINDOW_S, self.now)

    def buffered_percents(self, _handle: object, since_us: int) -> list[tuple[int, float]]:
        if self.buffer_s is None:
            raise NvmlError("not supported", Trouble.NEVER, 3)
        self.readings += 1
        oldest = max(since_us / 1e6, self.now - self.buffer_s)
        first, last = math.floor(oldest / WINDOW_S) + 1, math.floor(self.now / WINDOW_S)
        ends = ((number * WINDOW_S, (number - 1) * WINDOW_S) for number in range(first, last + 1))
        return [(round(end * 1e6), self.percent(begin, end)) for end, begin in ends]

    def memory_bytes(self, _handle: object) -> int:
        return 1

    def energy_mj(self, _board: object) -> int:
        return 1


def error_percent(wave: Wave, interval: float, seconds: float, seed: int = 1) -> float:
    """Return by how much the mean of the samples is wrong: as the sampler's loop takes them."""
    reader = GpuReader(wave, Unit(info=GpuInfo(index=0, uuid="x"), handle=0, board=0), quiet)  # type: ignore[arg-type]
    chance = random.Random(seed)
    start = wave.now = begin = 100.0 + 0.37 * wave.period
    reader.sample(round(begin * 1e6))
    amount = 0.0
    while begin < start + seconds:
        due = begin + period_s(begin - start, interval)
        for moment in moments(begin, due, reader.step_s, chance):
            wave.now = moment
            reader.peek(round(moment * 1e6))
        wave.now = due
        sample = reader.sample(round(due * 1e6))
        assert sample.utilization_permille is not None
        amount += sample.utilization_permille / 10 * (due - begin)
        begin = due
    return amount / (begin - start) - wave.percent(start, begin)


def quiet(_code: str, _text: str, _gpu: str | None, _error: int | None = None, /) -> None:
    """Make no note."""


@pytest.mark.parametrize("interval", INTERVALS)
@pytest.mark.parametrize("period", PERIODS)
def test_spot_readings_know_a_square_wave_to_a_percent(period: float, interval: int) -> None:
    """Also one whose period is the samples' or the readings' own."""
    seconds = 3600 if period < 2 else max(1200, 20 * period)
    assert abs(error_percent(Wave(period, buffer_s=None), interval, seconds)) < 1


@pytest.mark.parametrize("buffer_s", [16.7, 14.0, 4.0])
@pytest.mark.parametrize("interval", INTERVALS)
@pytest.mark.parametrize("period", [0.5, 10.0, 12.0, 120.0])
def test_nothing_of_a_buffer_is_missed(period: float, interval: int, buffer_s: float) -> None:
    wave = Wave(period, buffer_s=buffer_s)
    assert abs(error_percent(wave, interval, max(1200, 10 * period))) < 1


def test_readings_cost_what_was_meant() -> None:
    """Four a second where there is no buffer; a buffer is read about every seven seconds."""
    spot, buffer = Wave(12.0, buffer_s=None), Wave(12.0, buffer_s=16.7)
    for wave in (spot, buffer):
        error_percent(wave, 60, 1200)
    assert spot.readings / 1200 == pytest.approx(4, rel=0.05)
    assert buffer.readings / 1200 == pytest.approx(0.2, rel=0.6)
    each = Wave(12.0, buffer_s=14.0)
    error_percent(each, 10, 3600)
    # With the samples alone.
    assert each.readings == pytest.approx(1 + 60 + 240 // 5 + 3300 // 10, abs=1)


def test_moments_are_one_in_each_slice() -> None:
    chance = random.Random(5)
    found = list(moments(10, 20, 0.25, chance))
    assert len(found) == 40
    assert all(10 + at / 4 <= moment < 10.25 + at / 4 for at, moment in enumerate(found))
    assert list(moments(0, 0.2, 0.25, chance)) == []
    assert list(moments(0, 60, NEVER_S, chance)) == []


def test_a_buffer_that_forgot_its_start_is_read_more_often() -> None:
    gathered = Utilization()
    assert add_buffer(gathered, 0, [(100_000, 10), (200_000, 30)]) is None
    assert gathered.take() == 200
    assert gathered.take() is None
    pairs: Any = [(10_000_000 + at * 100_000, 50) for at in range(60)]
    assert add_buffer(gathered, 0, pairs) == pytest.approx(2.0)
    # Of what it forgot nothing is said.
    assert gathered.weight == 6_000_000


def test_a_real_drivers_buffer_gives_the_mean_of_work_with_pauses() -> None:
    """An H200's keeps readings of an idle GPU, too, so that no rest is forgotten."""
    path = Path(__file__).parents[1] / "recorded" / "nvml" / "h200-pauses.json"
    recorded = json.loads(path.read_text())
    busy = recorded["busy_us"]
    pairs = [(time, percent) for time, percent in recorded["buffer"]]
    gaps = [(after[0] - before[0]) / 1e3 for before, after in pairwise(pairs)]
    assert len(pairs) == 71
    assert 195 < min(gaps) <= max(gaps) < 205
    begin = max(time for time, _ in pairs if time < busy[0][0] - 300_000)  # it rests then
    rest = [pair for pair in pairs if pair[0] > begin]
    gathered = Utilization()
    for first in range(0, len(rest), 25):  # read every 5 s
        part = rest[first : first + 25]
        assert add_buffer(gathered, rest[first - 1][0] if first else begin, part) is None
    end = rest[-1][0]
    true = 1000 * sum(min(until, end) - since for since, until in busy) / (end - begin)
    assert gathered.take() == pytest.approx(true, abs=5)
