"""Loads of known duty, on a GPU of our own: a queue of work, in a time of its own."""

import math
import random
from itertools import pairwise
from statistics import fmean
from types import SimpleNamespace

import pytest

from tests.gpu import loads
from tests.gpu.machine import Machine
from tests.gpu.sampling import Span

MS = 1e-3


class Gpu:
    """A device that does one thing after the other, and the host's clock, which it moves.

    Attributes:
        now_s: the host's time; each look at it costs a microsecond.
        cycles_per_ms: the device's clock.
        ran: begin and end of each kernel.
    """

    def __init__(self) -> None:
        self.now_s = self.free_s = 0.0
        self.cycles_per_ms = 1_000_000.0
        self.ran: list[tuple[float, float]] = []

    def look(self) -> float:
        self.now_s += 1e-6
        return self.now_s

    def wait(self, seconds: float) -> None:
        self.now_s += seconds + 60e-6  # a host wakes late

    def start(self, cycles: int) -> None:
        begin = max(self.free_s, self.look())
        self.free_s = begin + cycles / self.cycles_per_ms * MS
        self.ran.append((begin, self.free_s))

    def synchronize(self, _device: object = None) -> None:
        self.now_s = max(self.now_s, self.free_s)

    def event(self, *, enable_timing: bool) -> "Event":
        assert enable_timing
        return Event(self)


class Event:
    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu

    def record(self) -> None:
        self.at_s = max(self.gpu.free_s, self.gpu.look())

    def query(self) -> bool:
        return self.gpu.look() >= self.at_s

    def synchronize(self) -> None:
        self.gpu.now_s = max(self.gpu.now_s, self.at_s)

    def elapsed_time(self, later: "Event") -> float:
        return (later.at_s - self.at_s) / MS


class Made(Machine):
    """The real machine's own lines, on that device."""

    def __init__(self, gpu: Gpu) -> None:
        cuda = SimpleNamespace(Event=gpu.event, _sleep=gpu.start, synchronize=gpu.synchronize)
        self.__dict__["torch"] = SimpleNamespace(cuda=cuda, device=lambda *words: words)


@pytest.fixture
def gpu(monkeypatch) -> Gpu:
    made = Gpu()
    clock = SimpleNamespace(perf_counter=made.look, monotonic=made.look, sleep=made.wait)
    monkeypatch.setattr(loads, "time", clock)
    monkeypatch.setattr(loads, "now_us", lambda: int(made.look() * 1e6))
    return made


@pytest.mark.parametrize("duty", [0.25, 0.5, 0.9])
def test_a_wave_has_the_duty_that_its_kernels_had(gpu: Gpu, duty) -> None:
    wave = loads.square_wave(Made(gpu), duty, period_s=0.02, seconds=8)
    kernels = gpu.ran[-len(wave.beats) :]
    took = sum(end - begin for begin, end in kernels[:-1])
    assert len(kernels) == pytest.approx(400, rel=0.05)
    exact = took / (kernels[-1][0] - kernels[0][0])
    assert wave.duty(wave.span) == pytest.approx(exact, abs=2e-4)
    assert exact == pytest.approx(duty, abs=0.01)


def test_a_wave_goes_on_while_its_witness_writes(gpu: Gpu) -> None:
    until = gpu.now_s + 6
    wave = loads.square_wave(
        Made(gpu), 0.5, period_s=0.02, seconds=2, more=lambda: gpu.now_s < until
    )
    assert wave.span.seconds == pytest.approx(6, abs=0.8)
    endless = loads.square_wave(Made(gpu), 0.5, period_s=0.02, seconds=2, more=lambda: True)
    assert endless.span.seconds == pytest.approx(22, abs=0.8)


def test_kernels_follow_a_clock_that_changes(gpu: Gpu, monkeypatch) -> None:
    monkeypatch.setattr(loads, "cycles_per_ms", lambda _: 2 * gpu.cycles_per_ms)
    monkeypatch.setattr(loads, "_JITTER", 0)
    monkeypatch.setattr(loads, "_SWAY", 0)
    wave = loads.square_wave(Made(gpu), 0.25, period_s=0.02, seconds=2)
    first, last = (gpu.ran[at][1] - gpu.ran[at][0] for at in (0, -1))
    assert (first, last) == (pytest.approx(0.01), pytest.approx(0.005, rel=0.01))
    assert wave.duty(wave.span.inner(1.0)) == pytest.approx(0.25, abs=0.01)


def test_a_busy_device_never_waits_and_its_calls_are_counted(gpu: Gpu) -> None:
    machine = Made(gpu)
    found = loads.keep_busy(machine, loads.spin(machine), 6)
    kernels = gpu.ran[-found.calls :]
    assert found.each_s == pytest.approx(2 * MS, rel=0.001)
    idle = sum(later[0] - earlier[1] for earlier, later in pairwise(kernels))
    assert idle == pytest.approx(0, abs=1e-9)
    assert found.span.seconds == pytest.approx(6, rel=0.05)


@pytest.mark.parametrize("duty", [0.25, 0.5, 0.9])
@pytest.mark.parametrize("window_s", [1 / 6, 0.2, 1.0])
def test_a_driver_of_whole_percents_and_any_windows_tells_the_duty(gpu, duty, window_s) -> None:
    """A real driver's windows are of its own time and may cut percents off: below a point, then."""
    wave = loads.square_wave(Made(gpu), duty, period_s=0.02, seconds=7.7)
    begin = wave.span.begin / 1e6 + 2
    ends = [begin + (at + 1) * window_s for at in range(int(5 / window_s))]
    told = [
        100 * sum(max(0.0, min(b, end) - max(a, end - window_s)) for a, b in gpu.ran) / window_s
        for end in ends
    ]
    true = 100 * wave.duty(Span(round(begin * 1e6), round(ends[-1] * 1e6)))
    for name, cut in (("rounded", round), ("cut off", math.floor)):
        assert fmean(map(cut, told)) == pytest.approx(true, abs=0.85), name
    # Eight readings a second of single windows, as where there is no buffer.
    chance = random.Random(1)
    spot = fmean(chance.choice(told) for _ in range(24))
    assert spot == pytest.approx(true, abs=0.9)


def test_the_sway_goes_evenly_from_minus_one_to_one() -> None:
    turns = [at / 1000 for at in range(3000)]
    values = [loads.sway(turn) for turn in turns]
    assert (min(values), max(values)) == (pytest.approx(-1), pytest.approx(1))
    assert fmean(values) == pytest.approx(0, abs=1e-9)


def test_pauses_begin_and_end_with_a_rest(gpu: Gpu) -> None:
    wave = loads.pauses(Made(gpu), busy_s=1.3, idle_s=1.3, times=3)
    kernels = gpu.ran[-len(wave.beats) :]
    begin, end = wave.span.begin / 1e6, wave.span.end / 1e6
    assert kernels[0][0] - begin == pytest.approx(2.6, abs=0.01)
    assert end - kernels[-1][1] == pytest.approx(2.6, abs=0.03)
    rests = [b[0] - a[1] for a, b in pairwise(kernels) if b[0] - a[1] > 0.01]
    assert rests == [pytest.approx(1.3, abs=0.03)] * 2
    busy_s = wave.share(wave.span) * wave.span.seconds
    assert busy_s == pytest.approx(sum(b - a for a, b in kernels), rel=0.001)
    assert busy_s == pytest.approx(3 * 1.3, abs=0.15)  # one kernel goes on after each
    assert [row[0] for row in wave.rows()] == [beat.at_us for beat in wave.beats]
