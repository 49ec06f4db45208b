"""Work for a GPU of which is known, by the GPU's own clock, how long it ran.

What a kernel took is measured by CUDA events in the same run, and never assumed: clocks change.
In a dry run nothing computes for long: the same lines run, and the library plays what was expected.
"""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.gpu.machine import Machine
from tests.gpu.sampling import Span, now_us, pass_time

_WARM_S = 0.4
# A driver that looks at a rhythm of its own must not see the same of ours each time: periods
# differ by a fifth. And it may cut percents off: a duty that goes up and down by two points, slower
# than its windows of at most a second, is cut now more and now less.
_JITTER, _SWAY, _SWAY_S = 0.2, 0.02, 2.7
_BATCH_S = 0.02
_DEEP = 4
_SPIN_CYCLES = 2_000_000
_MORE_S = 20.0


@dataclass(frozen=True)
class Beat:
    """One period of a square wave: when it was begun by the host, and two CUDA events."""

    at_us: int
    begin: Any
    done: Any


@dataclass(frozen=True)
class Wave:
    """A square wave as it was."""

    span: Span
    beats: list[Beat]
    played: float | None = None

    def duty(self, span: Span) -> float:
        """Return in how much of a stretch a kernel ran, 0 to 1, by the GPU's clock.

        From the begin of the first whole period in it to the begin of the last one.

        Raises:
            AssertionError: there are fewer than ten periods.
        """
        if self.played is not None:
            return self.played
        rows = [row for row in self.beats if span.begin <= row.at_us <= span.end]
        assert len(rows) > 10, f"only {len(rows)} periods in {span.seconds:.1f} s"
        ran = sum(row.begin.elapsed_time(row.done) for row in rows[:-1])
        return float(ran / rows[0].begin.elapsed_time(rows[-1].begin))

    def rows(self) -> list[tuple[int, float, float]]:
        """Return when each kernel was handed out and began, and how long it ran."""
        first = self.beats[0].begin
        return [
            (row.at_us, round(first.elapsed_time(row.begin), 3),
             round(row.begin.elapsed_time(row.done), 3))
            for row in self.beats
        ]  # fmt: skip

    def share(self, span: Span) -> float:
        """Return what all kernels took, by the GPU's clock, of a stretch that has all of them."""
        if self.played is not None:
            return self.played
        ran_ms = sum(float(row.begin.elapsed_time(row.done)) for row in self.beats)
        return ran_ms / 1e3 / span.seconds


def square_wave(
    machine: Machine,
    duty: float,
    *,
    period_s: float,
    seconds: float,
    more: Callable[[], bool] = lambda: False,
) -> Wave:
    """Run one kernel of one thread in each period of about so long, for a part of it.

    Its length is set anew each time by what the one before took. It goes on for as long as `more`
    says so, up to `_MORE_S`.
    """
    if machine.dry:
        return Wave(pass_time(machine, seconds), [], duty)
    cuda, chance = machine.torch.cuda, random.Random(1)
    rate = cycles_per_ms(machine)
    beats: list[Beat] = []
    begin, due = now_us(), time.perf_counter()
    since, until = due, due + seconds
    while due < until or (due < until + _MORE_S and more()):
        length_s = period_s * chance.uniform(1 - _JITTER, 1 + _JITTER)
        wanted_ms = (duty + _SWAY * sway((due - since) / _SWAY_S)) * length_s * 1e3
        beat = Beat(now_us(), *(cuda.Event(enable_timing=True) for _ in range(2)))
        beat.begin.record()
        cuda._sleep(max(int(wanted_ms * rate), 1))
        beat.done.record()
        beats.append(beat)
        due += length_s
        time.sleep(max(due - time.perf_counter(), 0.0))
        if beat.done.query():
            took = beat.begin.elapsed_time(beat.done)
            rate *= min(max(wanted_ms / took, 0.8), 1.25) if took > 0 else 1.0
    machine.synchronize()
    wave = Wave(Span(begin, now_us()), beats)
    machine.keep("wave: host's us, GPU's ms since the first, ms", wave.rows())
    return wave


def sway(turns: float) -> float:
    """Return a number that goes from -1 to 1 and back in each turn, evenly."""
    return 4 * abs(turns % 1 - 0.5) - 1


def pauses(machine: Machine, *, busy_s: float, idle_s: float, times: int) -> Wave:
    """Run kernels for a while, then none, by turns; at both ends the rest is twice as long."""
    if machine.dry:
        return Wave(pass_time(machine, (busy_s + idle_s) * times), [], busy_s / (busy_s + idle_s))
    cuda = machine.torch.cuda
    rate, beats, begin = cycles_per_ms(machine), [], now_us()
    time.sleep(2 * idle_s)
    for _ in range(times):
        until = time.perf_counter() + busy_s
        while time.perf_counter() < until:
            beat = Beat(now_us(), *(cuda.Event(enable_timing=True) for _ in range(2)))
            beat.begin.record()
            cuda._sleep(int(20 * rate))
            beat.done.record()
            beats.append(beat)
            if len(beats) > 1:
                beats[-2].done.synchronize()  # one ahead, so that no time is between two
        machine.synchronize()
        time.sleep(idle_s)
    time.sleep(idle_s)
    wave = Wave(Span(begin, now_us()), beats)
    machine.keep("pauses: host's us, GPU's ms since the first, ms", wave.rows())
    return wave


def cycles_per_ms(machine: Machine) -> float:
    """Return how many cycles of `torch.cuda._sleep` take a millisecond, once clocks are up."""
    cuda = machine.torch.cuda
    began = time.monotonic()
    while time.monotonic() - began < _WARM_S:
        cuda._sleep(_SPIN_CYCLES)
        machine.synchronize()
    return _SPIN_CYCLES / (machine.seconds(lambda: cuda._sleep(_SPIN_CYCLES)) * 1e3)


@dataclass(frozen=True)
class Busy:
    """A stretch in which the device always had work: how many calls, and their seconds."""

    span: Span
    calls: int
    seconds: float

    @property
    def each_s(self) -> float:
        """The time of one call."""
        return self.seconds / self.calls


def keep_busy(machine: Machine, call: Callable[[], object], seconds: float) -> Busy:
    """Repeat a call so that the device never waits for the host."""
    if machine.dry:
        call()
        return Busy(pass_time(machine, seconds), 1, seconds)
    cuda = machine.torch.cuda
    count = max(1, round(_BATCH_S / max(machine.seconds(call), 1e-6)))
    events = [cuda.Event(enable_timing=True)]
    begin, until = now_us(), time.perf_counter() + seconds
    events[0].record()
    while time.perf_counter() < until:
        for _ in range(count):
            call()
        events.append(cuda.Event(enable_timing=True))
        events[-1].record()
        if len(events) > _DEEP:
            events[-_DEEP].synchronize()
    ended = now_us()  # what is queued still goes on: to its end the device was busy
    machine.synchronize()
    took = events[0].elapsed_time(events[-1]) / 1e3
    return Busy(Span(begin, ended), count * (len(events) - 1), took)


def spin(machine: Machine) -> Callable[[], object]:
    """Return a kernel of one thread, about a millisecond long: one SM of all works."""
    if machine.dry:
        return lambda: None
    return lambda: machine.torch.cuda._sleep(_SPIN_CYCLES)


def product(machine: Machine, size: int, kind: str, *, scale: float = 1.0) -> Callable[[], object]:
    """Return a product of two square matrices of random numbers times `scale`, into a third."""
    torch = machine.torch
    dtype = getattr(torch, kind)
    left, right = (
        (scale * torch.randn(size, size, device=machine.device, dtype=torch.float32)).to(dtype)
        for _ in range(2)
    )
    out = torch.empty(size, size, device=machine.device, dtype=dtype)
    return lambda: torch.mm(left, right, out=out)


def copy(machine: Machine, size: int) -> Callable[[], object]:
    """Return a kernel that reads some bytes of the device's memory, and writes as many."""
    torch = machine.torch
    source = torch.zeros(size // 4, device=machine.device, dtype=torch.float32)
    target = torch.empty_like(source)
    # Not `copy_`: that may be the copy engine's work, which is no kernel.
    return lambda: torch.add(source, 1.0, out=target)
