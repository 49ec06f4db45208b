"""Jobs on the box whose nodes have the stub NVML, and what `hpckit stats` must say of them.

Scripts are written in real seconds from the job script's first line, and played `SCALE` times
faster than a driver would: its windows of utilization are 10 ms long then, and what they blur at
the edges of a job of some seconds is as little as 1/6 s is in a job of minutes.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import pytest

from hpckit.stats.samples.lines import Damage
from hpckit.stats.samples.reading import read_records
from hpckit.stats.samples.records import samples_files
from tests.patience import LONG_S
from tests.slurm.conftest import (
    SCRIPTS,
    Desk,
    Record,
    accounted,
    add_site,
    desk_in,
    eventually,
    processes_of,
)
from tests.slurmbox.fixture import Slurm
from tests.stats.conftest import Played
from tests.stats.exact import Exact, Row, close, read_log
from tests.stats.stub.script import Gpu, Steps, Stub, build_library, busy, uuid

NODES = ("c1", "c2")
SCALE = 32.0
WORK = SCRIPTS / "played.py"
CLOCK = f"{sys.executable} -c 'import time; print(time.monotonic())'"
Nodes = Mapping[str, Sequence[Gpu]]


def gpu(host: str, index: int, util: Steps = ((0, 100),), **words: object) -> Gpu:
    """Return a GPU of a node; `util` is in real seconds, and so are words that are times."""
    times = {"lost", "hang", "energy_reset"}
    words = {
        name: float(str(value)) * SCALE if name in times else value for name, value in words.items()
    }
    made = busy(index, [(at * SCALE, value) for at, value in util], **words)
    made.uuid = gpu_uuid(host, index)
    return made


def gpu_uuid(host: str, index: int) -> str:
    """Return the UUID of a node's GPU, which no other node's has."""
    return uuid(16 * NODES.index(host) + index)


@dataclass(kw_only=True)
class Theatre:
    """Where jobs find the stub library, their script and a clock."""

    desk: Desk
    library: Path

    def __post_init__(self) -> None:
        setup = f'setup:\n  - "export NVML_STUB_T0=$({CLOCK})"\n'
        add_site(self.desk, setup)

    def environment(self, name: str, nodes: Nodes) -> dict[str, str]:
        """Write a script for each node; return what a job must inherit to have it played."""
        for host, gpus in nodes.items():
            (self.desk.work / f"{name}.{host}.txt").write_text(Stub.script(gpus))
        return {
            "LD_LIBRARY_PATH": str(self.library.parent),
            "NVML_STUB_SCRIPT": str(self.desk.work / f"{name}.%h.txt"),
            "NVML_STUB_READS": str(self.desk.work / f"{name}.%h.reads"),
            "NVML_STUB_SCALE": f"{SCALE:g}",
        }

    def submit(
        self,
        name: str,
        nodes: Nodes,
        *,
        shape: Sequence[str] = ("--nodes", "2", "--gpus", "2"),
        interval_s: float = 0.2,
        work: Sequence[str] = ("9",),
        env: Mapping[str, str] | None = None,
    ) -> "Show":
        """Submit a job that works until a real second of its script."""
        options = ("--site", "box", "--name", name, "--sample-interval", str(interval_s))
        environment = self.environment(name, nodes) | dict(env or {})
        argv = ("ddp", WORK, *options, *shape, "--", *work)
        record = self.desk.submit(*argv, env=environment)
        return Show(
            theatre=self,
            name=name,
            nodes=nodes,
            interval_s=interval_s,
            job_id=record["job_id"],
            run_dir=Path(record["run_dir"]),
        )


@pytest.fixture(scope="module")
def theatre(slurm: Slurm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Theatre]:
    folder = tmp_path_factory.mktemp("theatre")
    with desk_in(folder, slurm) as desk:
        yield Theatre(desk=desk, library=build_library(folder))


@dataclass(kw_only=True)
class Show:
    """One job, what was played to it, what it wrote and what `hpckit stats` says."""

    theatre: Theatre
    name: str
    nodes: Nodes
    interval_s: float
    job_id: str
    run_dir: Path
    samples: str = "samples"

    def over(self, within_s: float = LONG_S) -> str:
        """Wait until it has ended and accounting knows when; return its state."""
        state: str = self.theatre.desk.over(self.job_id, within_s)["state"]
        self.ended()
        return state

    def ended(self, within_s: float = LONG_S) -> None:
        """Wait until accounting knows when it ended."""
        accounted(self.theatre.desk.slurm, self.job_id)
        # Accounting knows it before the last process has ended, and has written its last sample.
        left = lambda: processes_of(self.run_dir)  # noqa: E731
        assert eventually(lambda: left() == [], within_s, pause_s=0.3), left()

    @cached_property
    def document(self) -> Record:
        """What `hpckit stats --json` says, asked once."""
        return self.ask()

    def ask(self) -> Record:
        """What `hpckit stats --json` says now."""
        return self.theatre.desk.call("stats", self.job_id, "--json").json

    @cached_property
    def played(self) -> dict[str, Played]:
        """What each node's sampler wrote in the first attempt, once the job is over."""
        return self.counted(0)

    def counted(self, restart: int) -> dict[str, Played]:
        """What each node's sampler wrote in an attempt that is over, as far as it counts.

        A machine that stands still ends a script after Slurm has ended its job; what a GPU does
        more than a second later is not in the job's hours.
        """
        attempt = next(row for row in self.document["attempts"] if row["restart"] == restart)
        found = self.attempt(restart)
        return {host: played.until(attempt["end"] + 1) for host, played in found.items()}

    def attempt(self, restart: int) -> dict[str, Played]:
        """What each node's sampler has written in an attempt."""
        library, folder = self.theatre.library, self.run_dir
        began = float((folder / f"began-{restart}").read_text())
        stub = Stub(library=library, folder=folder, scale=SCALE, started=began)
        found = {}
        for file in samples_files(folder / self.samples):
            if file.restart == restart:
                damage = Damage()
                records = list(read_records(file.path, damage))
                found[file.host] = Played(records=records, damage=damage, stub=stub)
        return found

    def rows(self, host: str) -> list[Row]:
        """Each GPU of the job on a node: its figures, samples, place in them, and script."""
        mine = [row for row in self.document["per_gpu"] if row["host"] == host]
        exact = self.exact(host, self.played[host])
        assert [row["uuid"] for row in mine] == list(exact)
        return [Row(figures=row, **vars(exact[row["uuid"]])) for row in mine]

    def exact(self, host: str, played: Played) -> dict[str, Exact]:
        """What a node's samples must say of each GPU, by UUID."""
        scripts = {gpu.uuid: gpu for gpu in self.nodes[host]}
        log = self.theatre.desk.work / f"{self.name}.{host}.reads"
        reads = read_log(log, played.header.pid)
        return {
            info.uuid: Exact(
                played=played, at=at, gpu=scripts[info.uuid], reads=reads.get(info.uuid, {})
            )
            for at, info in enumerate(played.header.gpus)
        }

    def codes(self) -> set[tuple[str, str | None, str | None]]:
        """Each note's code, host and GPU."""
        return {(note["code"], note["host"], note["gpu"]) for note in self.document["notes"]}


def assert_whole(show: Show) -> None:
    """The job's own figures are its GPUs' and nodes', and within 1 % of the script's."""
    summary = show.document["summary"]
    rows = [row for host in show.played for row in show.rows(host)]
    util = energy = hours = 0.0
    for row in rows:
        util += row.mean("util", "utilization_permille") * row.hours()
        hours += row.hours()
        energy += row.energy()[0]
    assert summary["gpu_utilization_percent"] == close(util / hours)
    assert summary["energy_joules"] == close(energy)
    samples = [len(played.samples) for played in show.played.values()]
    assert summary["samples"] == sum(samples)
    held = show.document["elapsed_s"]
    assert summary["gpu_hours"] == pytest.approx(len(rows) * held / 3600, abs=0.001)
    assert_coverage(show)


def assert_coverage(show: Show, restart: int = 0) -> None:
    """Coverage is the time from first to last sample, of the time the job held its nodes."""
    attempt = next(row for row in show.document["attempts"] if row["restart"] == restart)
    held, seconds, longest = attempt["elapsed_s"], {}, show.interval_s
    for host, played in show.counted(restart).items():
        begin, end = played.span()
        # Accounting's times are whole seconds: a job's last part may be after its end.
        seconds[host] = min((end - begin) / SCALE, held)
        moments = [sample.mono_us / 1e6 for sample in played.samples]
        longest = max([longest, *(after - before for before, after in pairwise(moments))])
    share = sum(seconds.values()) / (held * len(attempt["hosts"])) * 100
    # A sample also speaks for a period before the first, and after the last where it was killed;
    # on a loaded machine a period may be longer than was asked for.
    more = 2 * longest / held * 100 + 0.1
    assert min(share, 100) - 0.1 <= attempt["coverage_percent"] <= share + more
    if len(show.document["attempts"]) == 1:
        found = {row["host"]: row["covered_percent"] for row in show.document["per_node"]}
        assert found.keys() == seconds.keys()
        for host, covered in found.items():
            alone = seconds[host] / held * 100
            assert min(alone, 100) - 0.1 <= covered <= alone + more, host
