"""A node on which a job met a fault of the hardware is remembered, and left out if asked."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.slurm.conftest import SCRIPTS, Desk, eventually
from tests.slurmbox.daemons import without_jobs

pytestmark = pytest.mark.slurm
# The first node that it is on is broken, in torch's words.
BROKEN = """\
import socket
from pathlib import Path

mark, host = Path("broken"), socket.gethostname()
if not mark.exists():
    mark.write_text(host)
if mark.read_text() == host:
    raise RuntimeError("CUDA error: uncorrectable ECC error encountered")
"""
ALONE = ("--nodes", "1", "--gpus", "1", "--time", "5")


def test_a_job_after_a_fault_of_the_hardware_runs_on_the_other_node(desk: Desk) -> None:
    script = desk.work / "broken.py"
    script.write_text(BROKEN)
    job = desk.submit("serial", script, *ALONE, "--retry", "fail", "--exclude-bad")
    # The job itself has written it down, before anybody asked what became of it.
    memory = Path(desk.env["XDG_STATE_HOME"], "hpckit", "bad-nodes.jsonl")
    assert eventually(memory.exists)
    assert desk.over(job["job_id"])["state"] == "FAILED"
    host, what = (desk.work / "broken").read_text(), "CUDA: uncorrectable ECC error"
    how = f"Leave it out: hpckit resubmit {job['job_id']} --exclude-bad"
    assert f"node {host} looked bad: {what}. {how}" in desk.call("status", job["job_id"]).out
    [event] = map(json.loads, memory.read_text().splitlines())
    cluster = desk.slurm.run("sacctmgr", "-nP", "show", "cluster", "format=Cluster").stdout.strip()
    known = (event["cluster"], event["host"], event["what"], event["job_id"])
    assert known == (cluster, host, what, job["job_id"])

    waited = desk.call("wait", job["job_id"], "--json").json
    desk.submitted.append(waited["job_id"])
    assert (waited["state"], waited["job_id"] == job["job_id"]) == ("COMPLETED", False)
    assert [row["host"] == host for row in waited["ranks"]] == [False]
    record = json.loads(Path(waited["run_dir"], "run.json").read_text())
    assert record["request"]["exclude_bad"] is True
    assert record["plan"]["exclude"] == host
    assert (record["bad_nodes"]["by"], record["bad_nodes"]["hosts"]) == ("--exclude-bad", [host])

    again = ("submit", "serial", SCRIPTS / "seen.py", *ALONE, "--check")
    offered = f"nodes that looked bad: {host} ({what}, job {job['job_id']}, "
    assert offered in desk.call(*again).err
    two = ("submit", "ddp", SCRIPTS / "seen.py", *ALONE, "--nodes", "2", "--exclude-bad")
    refused = desk.call(*two, expect=2).err
    assert "--exclude-bad leaves 1 of 2 nodes of partition gpu" in refused


@contextmanager
def driver_on(desk: Desk, node: str) -> Iterator[None]:
    """Let a node look as if it had NVIDIA's driver, which no other has."""
    pid = without_jobs(desk.slurm.layout, node)[0]
    # Held open, because numbers of processes are used again.
    with Path(f"/proc/{pid}/ns/mnt").open("rb") as namespace:
        number = namespace.fileno()
        inside = ["nsenter", f"--mount=/proc/self/fd/{number}", "sh", "-ec"]
        make = "mount -t tmpfs driver /proc/driver; mkdir /proc/driver/nvidia; : >$0"
        words = [*inside, make, "/proc/driver/nvidia/version"]
        subprocess.run(words, check=True, pass_fds=[number])
        try:
            yield
        finally:
            subprocess.run([*inside, "umount /proc/driver"], check=True, pass_fds=[number])


@pytest.mark.parametrize(
    ("launcher", "good", "bad"), [("srun", "c1", "c2"), ("torchrun", "c2", "c1")]
)
def test_a_node_without_a_driver_beside_one_that_has_it_ends_the_job(
    desk: Desk, launcher: str, good: str, bad: str
) -> None:
    """Ranks over NCCL and ranks over gloo would wait for one another."""
    script = desk.work / "wait.py"
    script.write_text("import time\n\ntime.sleep(300)\n")
    words = ("--nodes", "2", "--gpus", "2", "--time", "5", "--launcher", launcher)
    with driver_on(desk, good):
        job = desk.over(desk.submit("ddp", script, *words)["job_id"])
    assert (job["state"], job["exit_code"]) == ("FAILED", 1)
    assert {row["host"]: row["device"] for row in job["ranks"]} == {good: "cuda", bad: "cpu"}
    said = desk.call("status", job["job_id"]).out
    assert f"hpckit: node {bad} has no GPU driver (" in said
    assert f", while {good} has one: the job ends" in said
    assert f"node {bad} looked bad: no GPU driver. Leave it out: hpckit resubmit" in said
    assert f"some ranks run on the CPU, and the job's GPUs idle: node {bad} has" in said


def test_a_job_without_any_driver_goes_on_and_is_told_so(desk: Desk) -> None:
    job = desk.done("ddp", SCRIPTS / "seen.py", "--nodes", "2", "--gpus", "1")
    assert job["state"] == "COMPLETED"
    note = "its ranks run on the CPU, and the job's GPUs idle: nodes c1, c2 have no GPU driver"
    assert note in job["notes"]
    assert f"note: {job['job_id']}: {note}" in desk.call("wait", job["job_id"]).err
