"""`hpckit stats` of jobs that hpckit knows little of: what a real Slurm says of them."""

import json
import re
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.js1 import encode
from tests.slurm.conftest import HPCKIT, Desk, Record, accounted, desk_in, eventually
from tests.slurm.playing import NODES, Theatre, gpu
from tests.slurmbox.fixture import Slurm
from tests.stats.stub.script import build_library

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(600)]
BURN = (
    "python3 -c 'import time\nx = bytearray(200 << 20)\nwhile time.process_time() < 3: pass\n"
    "del x\ntime.sleep({sleep})'"
)


def sbatch(desk: Desk, command: str, *options: str, env: Mapping[str, str] | None = None) -> str:
    """Submit as anyone does without hpckit."""
    done = subprocess.run(
        ["sbatch", "--parsable", "--output=/dev/null", *options],
        input=f"#!/bin/bash\n{command}\n",
        env=env or desk.env,
        cwd=desk.work,
        capture_output=True,
        text=True,
        check=True,
    )
    job_id = done.stdout.strip()
    desk.submitted.append(job_id)
    return job_id


def stats(desk: Desk, *job_ids: str) -> Record:
    return desk.call("stats", *job_ids, "--json").json


def test_a_job_of_sbatch(desk: Desk) -> None:
    job_id = sbatch(desk, BURN.format(sleep=2), "--job-name=a|b\nc", "--gpus=2", "--mem=500M")
    accounted(desk.slurm, job_id)
    found = stats(desk, job_id)
    assert (found["name"], found["state"]) == ("a|b\nc", "COMPLETED")
    assert (found["submitted_by_hpckit"], found["gpus"], found["sources"]) == (False, 2, ["sacct"])
    summary = found["summary"]
    assert 2.9 < summary["cpu_s"] < 4.5
    assert 200 < summary["memory_peak_bytes"] / 2**20 < 260
    assert summary["gpu_hours"] == pytest.approx(2 * found["elapsed_s"] / 3600, abs=0.001)
    # Nobody measured its GPUs: unknown, not idle.
    assert (summary["gpu_utilization_percent"], summary["gpu_hours_idle"]) == (None, None)
    assert found["origins"]["summary.cpu_s"] == "sacct"
    assert not [row for row in found["advice"] if row["level"] == "red"]


def test_a_running_job_is_asked_for_on_its_nodes(desk: Desk) -> None:
    job_id = sbatch(desk, BURN.format(sleep=600), "--gpus=1", "--mem=500M")

    def seen() -> bool:
        # sstat says whole seconds.
        return bool((stats(desk, job_id)["summary"]["cpu_s"] or 0) >= 2)

    def freed() -> bool:
        ask = ("sstat", "-a", "-n", "-P", "-o", "TRESUsageInTot", "-j", job_id)
        held = re.search(r"mem=(\d+)K", desk.slurm.run(*ask).stdout)
        return held is not None and int(held[1]) < 100 << 10

    assert eventually(seen, pause_s=1)
    accounted(desk.slurm, job_id, moment="Start")
    # Slurm's last look finds little; its highest is what counts.
    assert eventually(freed, pause_s=1)
    found = stats(desk, job_id)
    assert (found["running"], found["origins"]["summary.cpu_s"]) == (True, "sstat")
    assert 200 < found["summary"]["memory_peak_bytes"] / 2**20 < 260


def test_a_job_that_was_suspended(desk: Desk) -> None:
    enough = desk.work / "enough"
    job_id = sbatch(desk, f"until [ -e {enough} ]; do sleep 0.2; done", "--gpus=2", "--mem=50M")
    running = ("squeue", "-h", "-o", "%T", "-j", job_id)
    assert eventually(lambda: "RUNNING" in desk.slurm.run(*running).stdout, pause_s=0.2)
    accounted(desk.slurm, job_id, moment="Start")
    desk.slurm.run("scontrol", "suspend", job_id)
    time.sleep(4)
    desk.slurm.run("scontrol", "resume", job_id)
    enough.touch()
    accounted(desk.slurm, job_id)
    found = stats(desk, job_id)
    (attempt,) = found["attempts"]
    assert attempt["end"] - attempt["start"] >= found["elapsed_s"] + 3
    assert attempt["elapsed_s"] == found["elapsed_s"]
    assert attempt["gpu_hours"] == found["summary"]["gpu_hours"]
    assert attempt["gpu_hours"] == pytest.approx(2 * found["elapsed_s"] / 3600, abs=1e-6)
    assert "suspended" in [note["code"] for note in found["notes"]]


def test_both_parts_of_a_heterogeneous_job(desk: Desk) -> None:
    both = f"srun --het-group=0,1 {HPCKIT} sample -- sleep 2"
    job_id = sbatch(desk, both, "--mem=50M", ":", "--gpus=1", "--mem=70M")
    accounted(desk.slurm, job_id, rows=2)
    first, second = stats(desk, f"{job_id}+0"), stats(desk, f"{job_id}+1")
    assert [row["job_id"] for row in (first, second)] == [f"{job_id}+0", f"{job_id}+1"]
    assert [row["gpus"] for row in (first, second)] == [0, 1]
    # Slurm tells both of them SLURM_JOB_ID of the first: so the samples' folder is called.
    nodes = [[node["host"] for node in row["per_node"]] for row in (first, second)]
    assert [len(hosts) for hosts in nodes] == [1, 1]
    assert {note["code"] for row in (first, second) for note in row["notes"]}.isdisjoint(
        {"unmatched", "no_samples"}
    )
    assert [row["job_id"] for row in stats(desk, job_id)["jobs"]] == [f"{job_id}+0", f"{job_id}+1"]


def test_an_array_and_a_bad_id_in_one_call(desk: Desk) -> None:
    job_id = sbatch(desk, "[ $SLURM_ARRAY_TASK_ID != 2 ]", "--array=0-3", "--mem=50M")
    accounted(desk.slurm, job_id, rows=4)
    found = stats(desk, job_id)
    states = {row["job_id"]: row["state"] for row in found["jobs"]}
    assert states == {
        f"{job_id}_{index}": "FAILED" if index == 2 else "COMPLETED" for index in range(4)
    }
    assert found["distribution"]["states"] == {"COMPLETED": 3, "FAILED": 1}
    alone = desk.call("stats", "999999", f"{job_id}_1", "--json", expect=2)
    assert [row["job_id"] for row in alone.json["jobs"]] == [f"{job_id}_1"]
    assert "no step '7'; it has batch" in desk.call("stats", f"{job_id}_1.7", expect=2).err
    assert "999999" in alone.err


# What is used before a sampler's first sample is not in its figures, so it is waited for.
_STEP = (
    "srun --exact -n1 -c1 --gpus=1 --mem=100 {hpckit} sample -- sh -c '"
    'until [ $(grep -ls "^.*{{.s.:" hpckit-samples/$SLURM_JOB_ID/* | wc -l) = 4 ]; do sleep 0.1; '
    'done; exec python3 -c "import time\nwhile time.process_time() < 2: pass\ntime.sleep(6)"\' &\n'
)


def test_steps_side_by_side_are_one_job(theatre: Theatre) -> None:
    """Four steps share a job's cores and GPUs, as many do who pack small trainings into one job."""
    nodes = {host: [gpu(host, at, [(0, 20.0 + 10 * at)]) for at in range(4)] for host in NODES}
    desk = theatre.desk
    played = theatre.environment("packed", nodes)
    steps = _STEP.format(hpckit=HPCKIT) * 4
    shape = ("-N1", "-n4", "--gpus=4", "--mem-per-cpu=500")
    job_id = sbatch(desk, f"{steps}wait", *shape, env=desk.env | played)
    accounted(desk.slurm, job_id)
    found = stats(desk, job_id)
    (node,) = found["per_node"]
    # Each step's cgroup, or its processes, used 2 s; the wait for all samplers comes on top.
    assert (node["cores"], node["memory_limit_bytes"]) == (4, 2000 << 20)
    assert 7.5 < node["cpu_s"] < 14
    assert node["cpu_efficiency_percent"] == pytest.approx(node["cores_used"] / 4 * 100)
    assert len(found["per_gpu"]) == 4
    step = stats(desk, f"{job_id}.2")
    assert (step["gpus"], len(step["per_gpu"]), step["per_node"][0]["cores"]) == (1, 1, 1)
    assert step["summary"]["gpu_utilization_percent"] == step["per_gpu"][0]["utilization_percent"]
    assert step["summary"]["memory_limit_bytes"] == 100 << 20


@pytest.fixture
def theatre(slurm: Slurm, tmp_path: Path) -> Iterator[Theatre]:
    (tmp_path / "theatre").mkdir()
    with desk_in(tmp_path / "theatre", slurm) as desk:
        yield Theatre(desk=desk, library=build_library(tmp_path))


def test_a_jobstats_record_goes_through_accounting(theatre: Theatre) -> None:
    nodes = {host: [gpu(host, at, [(0, 30.0 + 10 * at)]) for at in range(4)] for host in NODES}
    show = theatre.submit("js1", nodes, work=("5",))
    assert show.over() == "COMPLETED"
    own = show.document
    said = theatre.desk.call("stats", show.job_id, "--jobstats").out.strip()
    record: Record = json.loads(said)
    assert set(record["nodes"]) == set(NODES)
    desk = theatre.desk
    enough = desk.work / "enough"
    wait = f"sleep 2; until [ -e {enough} ]; do sleep 0.2; done"
    job_id = sbatch(desk, wait, "--nodes=2", "--gpus-per-node=2", "--mem=50M")
    # An epilog does it so too. `sacctmgr modify job` of Slurm 22.05 makes small letters of it.
    desk.slurm.run("scontrol", "update", f"JobId={job_id}", f"AdminComment={encode(record)}")
    enough.touch()
    accounted(desk.slurm, job_id)
    theirs = stats(desk, job_id)
    assert theirs["sources"] == ["JS1", "sacct"]
    assert theirs["origins"]["summary.gpu_utilization_percent"] == "JS1"
    assert theirs["summary"]["gpu_utilization_percent"] == pytest.approx(
        own["summary"]["gpu_utilization_percent"], rel=0.01
    )
    hours = 4 * theirs["elapsed_s"] / 3600
    assert theirs["summary"]["gpu_hours"] == pytest.approx(hours, abs=0.001)
    uses = [
        {(row["host"], row["index"]): row["utilization_percent"] for row in found["per_gpu"]}
        for found in (own, theirs)
    ]
    assert uses[1] == {key: pytest.approx(value, abs=0.06) for key, value in uses[0].items()}
