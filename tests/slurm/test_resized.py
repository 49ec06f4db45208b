"""A job that gives a node back while it runs: what accounting has of it, and what hpckit says."""

import shlex
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from hpckit.stats.samples.lines import Damage
from hpckit.stats.samples.reading import read_records
from hpckit.stats.samples.records import Header, Sample, samples_files
from tests.slurm.conftest import HPCKIT, Desk, Record, accounted, eventually
from tests.slurm.playing import CLOCK, NODES, Theatre, gpu, theatre
from tests.slurm.test_stats_sources import sbatch, stats

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(600)]
__all__ = ["theatre"]
COLUMNS = "State,Submit,Start,End,ElapsedRaw,Suspended"
PART_S = 8.0
LEVELS = {"c1": 90, "c2": 30}
_SAMPLED = "srun --exact -N1 -n1 -w {node} {hpckit} sample --interval 0.2 -- sleep 600 &"


@dataclass(frozen=True)
class Resized:
    """A job that is over, with its rows of accounting and its samples."""

    job_id: str
    rows: list[list[str]]
    samples: Path

    @property
    def change(self) -> float:
        """When the first part ended."""
        return float(self.rows[0][3])

    @property
    def seconds(self) -> tuple[float, float]:
        """For how long each part held its nodes.

        To Slurm 22.05 the second began when the job did, to 24.11 at the change.
        """
        (_, _, began, _, first, _), (_, _, again, _, second, _) = self.rows
        return float(first), float(second) - (float(first) if again == began else 0.0)

    @property
    def gpu_hours(self) -> tuple[float, float]:
        """GPU-hours of each part."""
        return 4 * self.seconds[0] / 3600, 2 * self.seconds[1] / 3600


@pytest.fixture(scope="module")
def resized(theatre: Theatre) -> Resized:
    """Two GPUs of c1 at 90 %, also when the job has given c2 back, of which two were at 30 %."""
    desk = theatre.desk
    nodes = {
        host: [gpu(host, at, [(0, level)]) for at in range(4)] for host, level in LEVELS.items()
    }
    environment = theatre.environment("resized", nodes)
    lines = [f"export {name}={shlex.quote(value)}" for name, value in environment.items()]
    lines += [f"export NVML_STUB_T0=$({CLOCK})"]
    lines += [_SAMPLED.format(node=node, hpckit=HPCKIT) for node in NODES]
    shape = ("-N2", "-n2", "--gpus-per-node=2", "--mem=200M", "--time=10", "--job-name=resized")
    job_id = sbatch(desk, "\n".join([*lines, "wait"]), *shape)
    accounted(desk.slurm, job_id, moment="Start")
    assert eventually(lambda: is_read(desk, job_id, *NODES), pause_s=1)
    time.sleep(PART_S)
    desk.slurm.run("scontrol", "update", f"JobId={job_id}", "NumNodes=1")
    time.sleep(PART_S)
    desk.slurm.run("scontrol", "suspend", job_id)
    time.sleep(PART_S)
    desk.slurm.run("scontrol", "resume", job_id)
    desk.slurm.run("scancel", job_id)
    accounted(desk.slurm, job_id, rows=2)
    return Resized(job_id, rows_of(desk, job_id), desk.work / "hpckit-samples" / job_id)


def is_read(desk: Desk, job_id: str, *hosts: str) -> bool:
    """Say whether the GPUs of these nodes have samples."""
    rows = stats(desk, job_id)["per_gpu"]
    return {row["host"] for row in rows if row["utilization_percent"] is not None} == {*hosts}


def first_part_s(resized: Resized) -> dict[str, float]:
    """For how long each node was sampled in the first part.

    How soon its sampler began, a busy machine decides. Accounting has whole seconds: the node
    that was given back was sampled for a part of one more.
    """
    sampled = {}
    for file in samples_files(resized.samples):
        header, *records = read_records(file.path, Damage())
        assert isinstance(header, Header)
        times = [row.mono_us for row in records if isinstance(row, Sample)]
        first, last = (header.epoch_at(at) / 1e6 for at in (times[0], times[-1]))
        sampled[file.host] = (resized.change if file.host == "c1" else last) - first
    return sampled


def rows_of(desk: Desk, job_id: str) -> list[list[str]]:
    ask = ("sacct", "-X", "-D", "-n", "-P", "-o", COLUMNS, "-j", job_id)
    text = desk.slurm.run("env", "SLURM_TIME_FORMAT=%s", *ask).stdout
    return [line.split("|") for line in text.splitlines()]


def test_accounting_gives_the_second_row_the_start_of_the_first_or_its_end(
    resized: Resized,
) -> None:
    (state, _, start, end, first, _), (_, submit, again, over, whole, suspended) = resized.rows
    assert (state, submit) == ("RESIZING", end)
    assert again in (start, end)
    assert int(first) == int(end) - int(start)
    # But the time that it was suspended, which Slurm tells apart.
    hours, minutes, seconds = map(int, suspended.split(":"))
    assert minutes * 60 + seconds >= PART_S - 1
    held_s = int(over) - int(again) - (hours * 3600 + minutes * 60 + seconds)
    assert int(whole) == pytest.approx(held_s, abs=1)


def test_stats_parts_the_job_and_the_samples_at_the_change(
    theatre: Theatre, resized: Resized
) -> None:
    found = stats(theatre.desk, resized.job_id)
    first, second = found["attempts"]
    assert (first["state"], first["end"], second["start"]) == (
        "RESIZING", resized.change, resized.change,
    )  # fmt: skip
    assert (first["hosts"], second["hosts"]) == (["c1", "c2"], ["c1"])
    assert (first["elapsed_s"], second["elapsed_s"]) == resized.seconds
    sampled = first_part_s(resized)
    busy_s = sum(LEVELS[host] * seconds for host, seconds in sampled.items())
    mean = pytest.approx(busy_s / sum(sampled.values()), abs=1)
    assert first["gpu_utilization_percent"] == mean
    assert second["gpu_utilization_percent"] == pytest.approx(90, abs=1)
    assert found["summary"]["gpu_hours"] == pytest.approx(sum(resized.gpu_hours), rel=0.001)
    assert first["gpu_utilization_percent"] < found["summary"]["gpu_utilization_percent"] < 90


def test_report_counts_each_part_once(theatre: Theatre, resized: Resized) -> None:
    said = theatre.desk.call("report", "--since", "1h", "--by", "name", "--json").json
    total: Record = next(row for row in said["groups"] if row["name"] == "resized")
    assert total["gpu_hours"] == pytest.approx(sum(resized.gpu_hours), abs=1e-4)
    assert (total["jobs"], sum(total["wait_attempts"])) == (1, 1)
    asked = resized.gpu_hours[0] + 2 * (600 - resized.seconds[0]) / 3600
    assert total["gpu_hours_asked"] == pytest.approx(asked, abs=1e-4)


def test_a_run_of_hpckit_that_is_resized_was_not_restarted(theatre: Theatre) -> None:
    nodes = {host: [gpu(host, at, [(0, 60)]) for at in range(4)] for host in NODES}
    show = theatre.submit("kept", nodes, work=("60",))
    desk, job_id = theatre.desk, show.job_id
    desk.until(job_id, "RUNNING")
    accounted(desk.slurm, job_id, moment="Start")
    assert eventually(lambda: show.ask()["summary"]["samples"], pause_s=1)
    desk.slurm.run("scontrol", "update", f"JobId={job_id}", "NumNodes=1")
    time.sleep(5)
    desk.call("cancel", job_id, expect=None)
    status = desk.over(job_id)
    accounted(desk.slurm, job_id, rows=2)
    assert [row[0] for row in rows_of(desk, job_id)][:-1] == ["RESIZING"]
    assert not status["restarts"]
    found = show.ask()
    assert [part["restart"] for part in found["attempts"]] == [0, 1]
    assert found["summary"]["gpu_utilization_percent"] == pytest.approx(60, abs=2)
    assert found["attempts"][0]["why"] is None
