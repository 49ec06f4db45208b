"""The sampler: a process beside the job's own on each node, which records what the GPUs do.

It never delays the job, makes it fail or outlives it: it is a process of its own, with low
priority, which the kernel ends with its parent. What goes wrong becomes a note in its file.
`hpckit.stats.sampler.start` starts it.
"""

import ctypes
import math
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, replace

from hpckit.stats.sampler.gpuset import GpuSet
from hpckit.stats.sampler.node import NodeReader, allocated_cores, boot_id, job_cores
from hpckit.stats.sampler.procfs import all_pids, own_cost
from hpckit.stats.sampler.schedule import SPOT_S, SamplerOptions, job_ids, moments, parse, period_s
from hpckit.stats.sampler.writer import LOST, Writer
from hpckit.stats.samples.encoding import encoder
from hpckit.stats.samples.records import (
    SHARED,
    UNVERIFIED,
    End,
    GpuState,
    Header,
    Note,
    Record,
    Sample,
    Slow,
    State,
    file_names,
    sampled_host,
)

_STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_WAITED_FOR = (*_STOPPING, signal.SIGALRM)
# Slurm's time-out warning goes to every process of a step.
_IGNORED = (signal.SIGUSR1, signal.SIGUSR2)
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_NICE = 10
_HEADER_AGAIN_S = 3600.0
# The first slow readings are taken before the job has begun to work, so the second follow soon.
_SLOW_SOON_S = 5.0
# How often to look whether the parent is gone, in case the kernel's signal does not come.
_PARENT_S = 5.0
_AT_ONCE_S = 1e-6  # a timer of 0 s is none


def now_us() -> int:
    """Return the samples' clock, which goes on while the node sleeps and which nobody sets."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000


class Sampler:
    """One run of the sampler."""

    def __init__(self, options: SamplerOptions, environ: Mapping[str, str]) -> None:
        self._options = options
        self._notes: list[Note] = []
        self._lock = threading.Lock()
        self._ending = self._ended = False
        self._started_s = time.monotonic()
        ids = job_ids(options.ids, environ)
        host = ids.pop("host", "") or sampled_host(environ)
        restart = int(ids["restart"]) if ids["restart"].isdecimal() else 0
        names = file_names(host, restart, os.getpid())
        paths = (options.folder / name for name in names)
        self._writer = Writer(next(paths), others=paths)
        self._node = NodeReader(options.root_pid, self._tell)
        self._gpus = GpuSet(environ, self._tell, self._told_to_end)
        self._chance = random.Random()  # noqa: S311  # no secret
        self._encode = encoder(len(self._gpus.table))
        self._header = self._make_header(host, ids, environ)
        self._header_due = self._slow_due = 0.0
        self._state: tuple[GpuState, ...] | None = None

    def run(self) -> int:
        """Sample until told to end, or until the parent has ended; return the exit status."""
        try:
            due = self._started_s
            while True:
                self._tick()
                now = time.monotonic()
                while due <= now:  # a moment that was missed is left out
                    due += period_s(due - self._started_s, self._options.interval_s)
                reason = self._read_until(due)
                if reason:
                    break
            self._put_sample()
            self._end(reason)
            return LOST if self._writer.failure else 0
        finally:
            if not self._ended:  # a bug of ours: note where it is, then let it end this process
                import traceback  # noqa: PLC0415  # 3 ms, in front of the first sample

                self._tell("crash", traceback.format_exc(limit=-3)[-1000:], None)
                self._end("error")

    def _tick(self) -> None:
        now = time.monotonic()
        if now >= self._header_due:
            self._put(self._header)  # again each hour: a file without it cannot be read
            self._header_due = now + _HEADER_AGAIN_S
        self._put_sample()
        if now >= self._slow_due:
            self._put_slow()
            first = self._slow_due == 0
            self._slow_due = now + min(self._options.slow_s, _SLOW_SOON_S if first else math.inf)
        self._flush()

    def _put_sample(self) -> None:
        began = now_us()
        usage = self._node.read()
        # Taken before the GPUs are read: the cost of reading them is in the next sample.
        cpu_us, rss_bytes = own_cost()
        gpus = self._gpus.sample(began)
        self._put(
            Sample(
                mono_us=began,
                **asdict(usage),
                own_cpu_us=cpu_us,
                own_rss_bytes=rss_bytes,
                took_us=now_us() - began,
                gpus=gpus,
            )
        )

    def _put_slow(self) -> None:
        if not self._gpus.table:
            return
        now = now_us()
        slow = self._gpus.slow(now)
        self._put(Slow(mono_us=now, epoch_us=time.time_ns() // 1000, gpus=slow))
        state = self._gpus.state(self._node.pids(), all_pids())
        if self._state is None or _seldom(state) != _seldom(self._state):
            self._put(State(mono_us=now_us(), gpus=state))
        self._state = state

    def _read_until(self, due: float) -> str | None:
        """Take the readings between two samples; return why to end, None if there is no reason."""
        for moment in moments(time.monotonic(), due, self._gpus.step_s, self._chance):
            reason = self._sleep_until(moment)
            if reason:
                return reason
            self._gpus.peek(now_us())
        return self._sleep_until(due)

    def _sleep_until(self, due: float) -> str | None:
        """Wait; return why to end, None if there is no reason.

        A timer ends the wait: where SIGSTOP and SIGCONT outlast the time-out of `sigtimedwait`, as
        `scontrol suspend` and `resume` do, Python 3.13 and older return any signal's number.
        """
        while True:
            left = min(due - time.monotonic(), _PARENT_S)
            signal.setitimer(signal.ITIMER_REAL, max(left, _AT_ONCE_S))
            told = signal.sigwaitinfo(_WAITED_FOR).si_signo
            orphan = os.getppid() != self._options.parent_pid
            if orphan or told in _STOPPING:
                self._ending = True
                return "parent" if orphan else "signal"
            if time.monotonic() >= due:
                return None

    def _told_to_end(self) -> bool:
        return self._ending or not signal.sigpending().isdisjoint(_STOPPING)

    def _end(self, reason: str) -> None:
        self._ended = True
        self._flush(last=True)
        self._put(End(mono_us=now_us(), reason=reason))
        self._flush(last=True)
        self._writer.close()

    def _flush(self, *, last: bool = False) -> None:
        with self._lock:
            notes, self._notes = self._notes, []
        for note in notes:
            self._put(note)
        failure = self._writer.flush(time.monotonic(), last=last)
        if failure:
            text = f"The samples could not be written for a while: {failure}"
            self._tell("disk", f"{text}; {self._writer.dropped} records were dropped.", None)

    def _put(self, record: Record) -> None:
        self._writer.put(self._encode(record))

    def _tell(self, code: str, text: str, gpu: str | None, error: int | None = None, /) -> None:
        """Make a note; also called from the thread that reads the GPUs."""
        with self._lock:
            self._notes.append(Note(mono_us=now_us(), code=code, text=text, gpu=gpu, error=error))

    def _make_header(self, host: str, ids: Mapping[str, str], environ: Mapping[str, str]) -> Header:
        opened = self._gpus.opened
        return Header(
            host=host,
            boot_id=boot_id(),
            pid=os.getpid(),
            epoch_us=time.time_ns() // 1000,
            mono_us=now_us(),
            interval_us=round(self._options.interval_s * 1e6),
            ids=ids,
            gpus=self._gpus.table,
            gpu_method=opened.method,
            gpu_confidence=SHARED if opened.shared else UNVERIFIED,
            cores=allocated_cores(environ),
            job_cores=job_cores(environ),
            memory_limit_bytes=self._node.memory_limit_bytes(environ),
            cgroup=self._node.kind,
            summed=self._node.summed,
            driver=opened.driver,
            gpu_library=opened.library,
            spot_us=round(min(SPOT_S, self._options.interval_s) * 1e6),
        )


def _seldom(states: tuple[GpuState, ...]) -> list[GpuState]:
    """Leave out what changes all the time: how much memory each process has."""
    return [
        replace(state, processes=state.processes and tuple((pid, 0) for pid, _ in state.processes))
        for state in states
    ]


def main() -> None:
    """Run the sampler until its parent ends or it is told to.

    `start_sampler` holds back all signals that are named here until this Python handles them.
    """
    # Blocked before any thread starts: the loop takes these signals while it sleeps.
    signal.pthread_sigmask(signal.SIG_BLOCK, _WAITED_FOR)
    for ignored in _IGNORED:
        signal.signal(ignored, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _IGNORED)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    os.nice(max(_NICE - os.nice(0), 0))  # `start_sampler` has done so before
    options = parse(sys.argv[1:])
    status = Sampler(options, os.environ).run()
    # The interpreter's own exit could wait for a thread that hangs in the driver.
    os._exit(status)
