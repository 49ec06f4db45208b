"""Runs of the workloads' scripts as users start them, and what they leave; several at once."""

import math
import re
import socket
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import CompletedProcess

from hpckit.run_folders.metrics import METRICS, all_rows, counted_rows
from tests.gpu.checks import Recorder
from tests.gpu.chips import WORKLOADS
from tests.gpu.machine import Machine

_OF_A_JOB = ("RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "TORCHELASTIC", "OMP_", "HPCKIT_CPU_")
# Seven steps an epoch; the last batch has one image, so that a second replica or rank gets none.
PLAIN = ("--data", "digits", "--limit", "301", "--batch-size", "50", "--epochs", "2",
         "--log-every", "1", "--lr", "0.01")  # fmt: skip
SHORT = (*PLAIN, "--optimizer", "sgd")
_TAIL = 6000
_FORKING = threading.Lock()
# Of an exception's last line, or of a script's own one; not of a library's log.
_ERROR = re.compile(r"^(?:[\w.]+\.py: error: |ended at its limit|[\w.]*(?:Error|Exception)\b)")


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run of a workload.

    Attributes:
        name: for the report, and of its folder.
        on: `gpu` or `cpu`.
        ranks: how many processes; more than one meet by $HPCKIT_BACKEND or what the script takes.
        backend: of a process group; with it, one rank meets too.
        ieee: products of float32 in float32: no TF32 on GPUs, as on CPUs.
    """

    name: str
    workload: str = "ddp"
    words: tuple[str, ...] = SHORT
    on: str = "gpu"
    ranks: int = 1
    backend: str | None = None
    ieee: bool = True
    environ: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Ended:
    """A run that is over, with the first of its ranks that failed, else the leading one."""

    run: Run
    out: Path
    process: "CompletedProcess[str]"

    @property
    def problem(self) -> str:
        """How it failed, in a line; empty if it did not."""
        if not self.process.returncode:
            return ""
        return f"status {self.process.returncode}: {reason(self.process.stderr)}"

    def rows(self, key: str) -> list[float]:
        """Return a figure of metrics.jsonl, in the order of the steps."""
        path = self.out / METRICS
        found = counted_rows(all_rows(path)) if path.is_file() else []
        return [float(row[key]) for row in found if key in row]


def reason(stderr: str) -> str:
    """Return the line that says why a program failed: libraries warn after it, at the exit."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    errors = [line for line in lines if _ERROR.search(line)]
    return (errors or lines or ["nothing on stderr"])[-1]


def make_runs(
    report: Recorder, machine: Machine, runs: Sequence[Run], *, limit_s: float
) -> dict[str, Ended]:
    """Make runs, as many at a time as have room; return what became of each, by its name."""
    room = Room(machine.places())
    with ThreadPoolExecutor(max(1, len(runs))) as pool:
        begun = [(run, pool.submit(_make, report, machine, run, limit_s, room)) for run in runs]
        found = {run.name: _ended(run, folder_of(machine, run), one.result()) for run, one in begun}
    for name, one in found.items():
        failed = one.process.stderr[-_TAIL:] if one.process.returncode else ""
        machine.keep(f"run {name}", {"losses": one.rows("loss"), "seconds": one.rows("s_per_step"),
                                     "stderr": failed})  # fmt: skip
    return found


def failed(report: Recorder, name: str, problem: str) -> None:
    """Record a program that did not end well; in a dry run, too, that is a failure."""
    report.fact(name, problem, good=False)
    assert report.enforced, f"{name}: {problem}"


def folder_of(machine: Machine, run: Run) -> Path:
    """Return where a run writes."""
    return machine.folder / run.name.replace(" ", "-").replace("/", "-").replace(",", "")


class Room:
    """Places for processes, of which a run takes as many as it has ranks, all at once."""

    def __init__(self, places: int) -> None:
        self._most = self._free = places
        self._changed = threading.Condition()

    @contextmanager
    def of(self, ranks: int) -> Iterator[None]:
        """Wait for room, and give it back; a run that is too large for all of it has it alone."""
        wanted = min(ranks, self._most)
        with self._changed:
            self._changed.wait_for(lambda: self._free >= wanted)
            self._free -= wanted
        try:
            yield
        finally:
            with self._changed:
                self._free += wanted
                self._changed.notify_all()


def _make(
    report: Recorder, machine: Machine, run: Run, limit_s: float, room: Room
) -> "list[CompletedProcess[str]]":
    script = "bench.py" if run.workload == "device_bench" else "train.py"
    out = folder_of(machine, run)
    out.mkdir(parents=True, exist_ok=True)
    path, words = WORKLOADS / run.workload / script, [*run.words, "--out", str(out)]
    port = free_port()

    def rank(at: int) -> "CompletedProcess[str]":
        return program(report, machine, path, words, limit_s, _environ(machine, run, at, port))

    with room.of(run.ranks), ThreadPoolExecutor(run.ranks) as pool:
        return list(pool.map(rank, range(run.ranks)))


def program(
    report: Recorder,
    machine: Machine,
    script: Path,
    words: Sequence[str],
    limit_s: float,
    environ: Mapping[str, str],
) -> "CompletedProcess[str]":
    """Run a script to its end: in a dry run forked from an interpreter that has torch already."""
    argv = [sys.executable, str(script), *words]
    if not machine.dry:
        return report.child(argv, limit_s=limit_s, env=environ)
    from tests.workloads.nursery import Forked

    with _FORKING:  # requests go through one socket
        process = Forked(script, words, environ)
    out, err = process.communicate(limit_s)
    return CompletedProcess(argv, process.returncode or 0, out, err)


def _ended(run: Run, out: Path, processes: "list[CompletedProcess[str]]") -> Ended:
    failed = [process for process in processes if process.returncode]
    return Ended(run, out, (failed or processes)[0])


def _environ(machine: Machine, run: Run, rank: int, port: int) -> dict[str, str]:
    more = dict(run.environ)
    if run.ieee:
        more["NVIDIA_TF32_OVERRIDE"] = "0"
    if run.ranks > 1 or run.backend:
        more |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(run.ranks),
                 "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}  # fmt: skip
    if run.backend:
        more["HPCKIT_BACKEND"] = run.backend if run.on == "gpu" and not machine.dry else "gloo"
    return environment(machine, on=run.on, more=more)


def environment(
    machine: Machine, *, on: str = "gpu", more: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the environment of a program that trains, without traces of a job."""
    kept = {k: v for k, v in machine.environment().items() if not k.startswith(_OF_A_JOB)}
    kept |= {
        "PYTHONPATH": str(WORKLOADS.parent),
        "HPCKIT_DEVICE": "cuda" if on == "gpu" and not machine.dry else "cpu",
    }
    if machine.dry:
        kept["OMP_NUM_THREADS"] = "1"
    return {**kept, **(more or {})}


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def deviation(found: Sequence[float], wanted: Sequence[float]) -> float | None:
    """Return the largest relative difference of two curves.

    None where their steps differ, or one has what is no number: `max` would pass over a NaN.
    """
    if len(found) != len(wanted) or not wanted or not all(map(math.isfinite, [*found, *wanted])):
        return None
    return max(abs(one - other) / abs(other) for one, other in zip(found, wanted, strict=True))
