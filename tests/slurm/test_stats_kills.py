"""Whatever kills a job: `hpckit stats` answers from what was written, and says how much that is.

Each job has one GPU on each of two nodes, at 60 % all the time. Lost is what came after the last
sample: never more than a period, and what a loaded machine adds to it.
"""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.slurm.conftest import HPCKIT, Record, accounted, eventually, processes_of
from tests.slurm.playing import (
    CLOCK,
    NODES,
    SCALE,
    WORK,
    Show,
    Theatre,
    assert_coverage,
    assert_whole,
    gpu,
    theatre,
)
from tests.slurmbox import daemons
from tests.slurmbox.fixture import Slurm
from tests.stats.conftest import Played
from tests.stats.exact import assert_gpu

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(600)]
__all__ = ["theatre"]

GPUS = {host: [gpu(host, index, [(0, 60)]) for index in range(4)] for host in NODES}
PAIR = ("--nodes", "2", "--gpus", "1")
LONG = "600"
LAST_S = 5.0


@pytest.fixture(scope="module", autouse=True)
def timed_out(theatre: Theatre) -> Show:
    """A job that works on to its time limit, a minute; it runs beside the first tests."""
    return submitted(theatre, "timed-out", "--time", "1")


@pytest.fixture(scope="module", autouse=True)
def again(theatre: Theatre, timed_out: Show) -> Show:
    """A job that is requeued; it waits for its second start beside the first tests."""
    show = submitted(theatre, "again", "--max-requeues", "1")
    sampled(show)
    accounted(theatre.desk.slurm, show.job_id, moment="Start")  # else it may lose that
    theatre.desk.slurm.run("scontrol", "requeue", show.job_id)
    return show


def submitted(theatre: Theatre, name: str, *more: str, work: str = LONG) -> Show:
    return theatre.submit(name, GPUS, shape=(*PAIR, *more), work=(work,))


def sampled(show: Show, restart: int = 0) -> dict[str, Played]:
    """Wait until both nodes have some samples of an attempt."""

    def enough() -> bool:
        if not (show.run_dir / f"began-{restart}").exists():
            return False
        found = show.attempt(restart)
        return len(found) == 2 and all(len(played.samples) >= 15 for played in found.values())

    assert eventually(enough, pause_s=0.3), f"no samples of {show.job_id}"
    return show.attempt(restart)


def now_s(show: Show) -> float:
    """The script's time now, in real seconds."""
    return time.monotonic() - show.attempt(0)["c1"].stub.start


def ended_s(show: Show) -> float:
    """When Slurm ended the job, in whole seconds of its clock, in the same seconds."""
    clock = time.time() - time.monotonic()
    return float(show.document["end"]) - clock - show.attempt(0)["c1"].stub.start


def last_s(show: Show, host: str) -> float:
    """When a node's last sample was taken, in the same seconds."""
    return show.attempt(0)[host].span()[1] / SCALE


def codes(show: Show, code: str) -> list[str]:
    """The hosts of the notes with a code."""
    return sorted(note["host"] for note in show.document["notes"] if note["code"] == code)


def ends(show: Show) -> dict[str, str | None]:
    """How each sampler says that it ended, if it could."""
    found = show.attempt(0)
    return {host: played.end.reason if played.end else None for host, played in found.items()}


def assert_account(show: Show, state: str) -> None:
    """The state is right, figures are those of the time that samples cover, coverage is honest."""
    assert show.document["state"] == state
    assert show.document["running"] is False
    for host in show.played:
        assert show.played[host].damage.bad_lines == 0
        for row in show.rows(host):
            assert_gpu(row)
    assert_whole(show)
    written: Record = json.loads((show.run_dir / "summary.json").read_text())
    assert (written["state"], written["summary"]) == (state, show.document["summary"])


def command_line(pid: int) -> str:
    """Give a process's words; none of one that has ended since it was listed."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def stepds(slurm: Slurm, show: Show, node: str) -> list[int]:
    """The slurmstepd of the ranks on a node."""
    found = []
    for pid in daemons.processes(slurm.layout, node):
        words = command_line(pid).replace("\0", " ")
        if words.startswith(f"slurmstepd: [{show.job_id}.0]"):
            found.append(pid)
    return found


def test_the_script_is_killed(theatre: Theatre) -> None:
    show = submitted(theatre, "script")
    sampled(show)
    rank: Record = json.loads((show.run_dir / "ranks" / "0.json").read_text())
    killed = now_s(show)
    os.kill(rank["attempts"][-1]["pid"], signal.SIGKILL)
    assert show.over() == "FAILED"
    # Its rank zero lives on to write the summary.
    assert (show.run_dir / "summary.json").exists()
    assert_account(show, "FAILED")
    assert ends(show) == {"c1": "signal", "c2": "signal"}
    assert all(last_s(show, host) > killed - LAST_S for host in NODES)
    assert codes(show, "sampler_stopped") == []


def test_a_sampler_is_killed(theatre: Theatre) -> None:
    show = submitted(theatre, "sampler")
    pid = sampled(show)["c1"].header.pid
    killed = now_s(show)
    os.kill(pid, signal.SIGKILL)
    gone = now_s(show)
    # The other node's goes on for as long again, and more.
    assert eventually(lambda: last_s(show, "c2") > 2 * gone + 5, pause_s=0.3)
    (show.run_dir / "enough").touch()
    assert show.over() == "COMPLETED"
    assert_account(show, "COMPLETED")
    assert codes(show, "sampler_stopped") == ["c1"]
    assert ends(show) == {"c1": None, "c2": "signal"}
    assert killed - LAST_S < last_s(show, "c1") < gone + 0.1
    covered = {row["host"]: row["covered_percent"] for row in show.document["per_node"]}
    assert covered["c1"] < covered["c2"] - 20


def test_slurmstepd_is_killed(theatre: Theatre, slurm: Slurm) -> None:
    show = submitted(theatre, "stepd")
    sampled(show)
    (pid,) = stepds(slurm, show, "c2")
    killed = now_s(show)
    os.kill(pid, signal.SIGKILL)
    # Slurm cannot end what runs there any more: nothing of ours may stay, least of all a sampler.
    mine = str(show.run_dir)
    there = lambda: [  # noqa: E731
        pid for pid in daemons.processes(slurm.layout, "c2") if mine in command_line(pid)
    ]
    assert eventually(lambda: there() == [])
    # Slurm itself would wait for it until the time limit: its supervisors end the job.
    assert show.over() == "FAILED"
    assert_account(show, "FAILED")
    assert last_s(show, "c2") > killed - LAST_S
    assert last_s(show, "c1") > last_s(show, "c2")


def why(show: Show) -> str:
    """Give the first line of what `logs --errors` says."""
    return show.theatre.desk.call("logs", show.job_id, "--errors").out.splitlines()[0]


def test_it_is_cancelled(theatre: Theatre) -> None:
    show = submitted(theatre, "cancelled")
    sampled(show)
    cancelled = now_s(show)
    theatre.desk.slurm.run("scancel", show.job_id)
    assert show.over() == "CANCELLED"
    assert why(show) == "the job was cancelled; no rank is the cause"
    assert_account(show, "CANCELLED")
    assert ends(show) == {"c1": "signal", "c2": "signal"}
    assert all(last_s(show, host) > cancelled - LAST_S for host in NODES)
    assert processes_of(show.run_dir) == []


def test_it_starts_again(theatre: Theatre, again: Show) -> None:
    show = again
    sampled(show, restart=1)
    theatre.desk.slurm.run("scancel", show.job_id)
    assert show.over() == "CANCELLED"
    assert show.document["state"] == "CANCELLED"
    first, second = show.document["attempts"]
    assert [row["restart"] for row in (first, second)] == [0, 1]
    assert [row["state"] for row in (first, second)] == ["REQUEUED", "CANCELLED"]
    for row in (first, second):
        assert row["hosts"] == ["c1", "c2"]
        assert row["gpu_utilization_percent"] == pytest.approx(60, rel=0.01)
        played = show.counted(row["restart"]).items()
        gpus = [gpu for host, samples in played for gpu in show.exact(host, samples).values()]
        joules = sum(gpu.energy()[0] for gpu in gpus)
        assert row["energy_joules"] == pytest.approx(joules, rel=0.001)
        assert_coverage(show, row["restart"])
    assert first["end"] <= second["start"]
    summary = show.document["summary"]
    assert summary["energy_joules"] == pytest.approx(
        first["energy_joules"] + second["energy_joules"], abs=0.01
    )
    assert summary["gpu_utilization_percent"] == pytest.approx(60, rel=0.01)
    assert show.document["elapsed_s"] == first["elapsed_s"] + second["elapsed_s"]


def test_a_job_that_hpckit_did_not_submit(theatre: Theatre) -> None:
    desk = theatre.desk
    folder = desk.work / "elsewhere"
    folder.mkdir()
    script = (
        f"#!/bin/bash\nexport NVML_STUB_T0=$({CLOCK})\n"
        f"srun {HPCKIT} sample --interval 0.2 -- python3 {WORK} 9\n"
    )
    options = ("--parsable", "--nodes=2", "--ntasks-per-node=1", "--gpus-per-node=1")
    sbatch = subprocess.run(
        ["sbatch", *options],
        input=script,
        env=desk.env | theatre.environment("foreign", GPUS),
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    job_id = sbatch.stdout.strip()
    desk.submitted.append(job_id)
    show = Show(
        theatre=theatre,
        name="foreign",
        nodes=GPUS,
        interval_s=0.2,
        job_id=job_id,
        run_dir=folder,
        samples=f"hpckit-samples/{job_id}",
    )
    show.ended()
    assert show.document["submitted_by_hpckit"] is False
    assert show.document["state"] == "COMPLETED"
    assert show.document["sources"][0] == "samples"
    for host in show.played:
        for row in show.rows(host):
            assert_gpu(row)
    assert_whole(show)
    assert not (folder / "summary.json").exists()


def test_it_is_at_its_time_limit(timed_out: Show) -> None:
    sampled(timed_out)
    assert timed_out.over() == "TIMEOUT"
    assert why(timed_out) == "the job reached its time limit; no rank is the cause"
    assert_account(timed_out, "TIMEOUT")
    assert ends(timed_out) == {"c1": "signal", "c2": "signal"}
    assert all(last_s(timed_out, host) > ended_s(timed_out) - LAST_S for host in NODES)


def test_a_node_is_lost(theatre: Theatre, slurm: Slurm, timed_out: Show) -> None:
    timed_out.over()
    show = submitted(theatre, "node")
    sampled(show)
    killed = now_s(show)
    slurm.kill_node("c1", noticed=True)
    try:
        assert show.over() == "NODE_FAIL"
        # Until the ranks of the other node have been ended, the log alone could tell which it was.
        assert eventually(lambda: why(show) == "node c1 was lost")
        # Accounting knows it before the other node's last process has ended.
        assert eventually(lambda: processes_of(show.run_dir) == [])
        # Rank zero, who writes the summary, was there: it is for `stats` to do.
        assert not (show.run_dir / "summary.json").exists()
        assert_account(show, "NODE_FAIL")
    finally:
        slurm.start_node("c1")
    assert codes(show, "sampler_stopped") == ["c1"]
    assert killed - LAST_S < last_s(show, "c1")
    assert last_s(show, "c2") > killed - LAST_S
