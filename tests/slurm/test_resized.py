"""A job that gives a node back while it runs: what accounting has of it, and what hpckit says."""

import shlex
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.slurm.conftest import HPCKIT, Desk, Record, accounted, desk_in, eventually
from tests.slurm.playing import CLOCK, NODES, Theatre, gpu
from tests.slurm.test_stats_sources import sbatch, stats
from tests.slurmbox.fixture import Slurm
from tests.stats.stub.script import build_library

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(600)]
COLUMNS = "State,Submit,Start,End,ElapsedRaw,Suspended"
CHANGE_S = 15.0
_SAMPLED = "srun --exact -N1 -n1 -w {node} {hpckit} sample --interval 0.2 -- sleep 600 &"


@dataclass(frozen=True)
class Resized:
    """A job that is over, with its rows of accounting and when it changed its size."""

    job_id: str
    rows: list[list[str]]

    @property
    def change(self) -> float:
        """When the first part ended."""
        return float(self.rows[0][3])


@pytest.fixture(scope="module")
def theatre(slurm: Slurm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Theatre]:
    folder = tmp_path_factory.mktemp("theatre")
    with desk_in(folder, slurm) as desk:
        yield Theatre(desk=desk, library=build_library(folder))


@pytest.fixture(scope="module")
def resized(theatre: Theatre) -> Resized:
    """Two GPUs of c1 at 90 % until the change and at 60 % then; two of c2 at 60 % until it."""
    desk = theatre.desk
    steps = {"c1": [(0, 90), (CHANGE_S, 60)], "c2": [(0, 60)]}
    nodes = {host: [gpu(host, at, steps[host]) for at in range(4)] for host in NODES}
    environment = theatre.environment("resized", nodes)
    begun = desk.work / "begun"
    lines = [f"export {name}={shlex.quote(value)}" for name, value in environment.items()]
    lines += [f"export NVML_STUB_T0=$({CLOCK})", f"touch {begun}"]
    lines += [_SAMPLED.format(node=node, hpckit=HPCKIT) for node in NODES]
    shape = ("-N2", "-n2", "--gpus-per-node=2", "--mem=200M", "--time=10", "--job-name=resized")
    job_id = sbatch(desk, "\n".join([*lines, "wait"]), *shape)
    assert eventually(begun.exists, pause_s=0.05)
    time.sleep(CHANGE_S)
    desk.slurm.run("scontrol", "update", f"JobId={job_id}", "NumNodes=1")
    time.sleep(CHANGE_S / 3)
    desk.slurm.run("scontrol", "suspend", job_id)
    time.sleep(CHANGE_S / 3)
    desk.slurm.run("scontrol", "resume", job_id)
    time.sleep(2 * CHANGE_S / 3)
    desk.slurm.run("scancel", job_id)
    accounted(desk.slurm, job_id, rows=2)
    return Resized(job_id, rows_of(desk, job_id))


def rows_of(desk: Desk, job_id: str) -> list[list[str]]:
    ask = ("sacct", "-X", "-D", "-n", "-P", "-o", COLUMNS, "-j", job_id)
    text = desk.slurm.run("env", "SLURM_TIME_FORMAT=%s", *ask).stdout
    return [line.split("|") for line in text.splitlines()]


def test_accounting_gives_the_second_row_the_start_of_the_first(resized: Resized) -> None:
    (state, _, start, end, _, _), (_, submit, again, _, elapsed, suspended) = resized.rows
    assert (state, submit, again) == ("RESIZING", end, start)
    assert suspended == "00:00:05"
    assert int(elapsed) > 2 * CHANGE_S - 3


def test_stats_parts_the_job_and_the_samples_at_the_change(
    theatre: Theatre, resized: Resized
) -> None:
    found = stats(theatre.desk, resized.job_id)
    first, second = found["attempts"]
    assert (first["state"], first["end"], second["start"]) == (
        "RESIZING", resized.change, resized.change,
    )  # fmt: skip
    assert (first["hosts"], second["hosts"]) == (["c1", "c2"], ["c1"])
    for part in (first, second):
        assert part["elapsed_s"] == pytest.approx(CHANGE_S, abs=4)
        assert part["coverage_percent"] > 50  # a loaded machine starts a sampler slowly
    assert first["gpu_utilization_percent"] == pytest.approx(75, abs=3)
    assert second["gpu_utilization_percent"] == pytest.approx(60, abs=3)
    assert found["summary"]["gpu_utilization_percent"] == pytest.approx(70, abs=3)
    held = 4 * first["elapsed_s"] + 2 * second["elapsed_s"]
    assert found["summary"]["gpu_hours"] == pytest.approx(held / 3600, rel=0.001)


def test_report_counts_each_part_once(theatre: Theatre, resized: Resized) -> None:
    first, second = stats(theatre.desk, resized.job_id)["attempts"]
    said = theatre.desk.call("report", "--since", "1h", "--by", "name", "--json").json
    total: Record = next(row for row in said["groups"] if row["name"] == "resized")
    held = (4 * first["elapsed_s"] + 2 * second["elapsed_s"]) / 3600
    assert total["gpu_hours"] == pytest.approx(held, abs=1e-4)
    assert (total["jobs"], sum(total["wait_attempts"])) == (1, 1)
    asked = (4 * first["elapsed_s"] + 2 * (600 - first["elapsed_s"])) / 3600
    assert total["gpu_hours_asked"] == pytest.approx(asked, abs=1e-3)


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
