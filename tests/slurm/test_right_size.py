"""`resubmit --right-size` asks the real Slurm for what a job used, and for more where it lacked."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm.conftest import Desk, desk_in
from tests.slurm.playing import Theatre, gpu
from tests.slurmbox.fixture import Slurm
from tests.stats.stub.script import build_library

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(600)]

# Needs more than a GiB, and waits to be killed where it has no more.
EATS = """\
import os, time
held = b"x" * (1200 << 20)
print(len(held), flush=True)
while int(os.environ["SLURM_MEM_PER_NODE"]) < 2048:
    time.sleep(0.1)
"""
# Ends once the sampler has written so much that the job is known. Slurm counts whole seconds: a
# job that began and ended within one took none, of which nothing is a share.
WORKS = """\
import os, time
from pathlib import Path
folder, began = Path(os.environ["HPCKIT_RUN_DIR"], "samples"), time.time()
def lines():
    return sum(len(file.read_bytes().splitlines()) for file in folder.glob("*.jsonl"))
while lines() < 8 or time.time() < began + 2:
    time.sleep(0.1)
"""


@pytest.fixture
def theatre(slurm: Slurm, tmp_path: Path) -> Iterator[Theatre]:
    with desk_in(tmp_path, slurm) as desk:
        yield Theatre(desk=desk, library=build_library(tmp_path))


@pytest.fixture
def killing(slurm: Slurm) -> Iterator[None]:
    """Let Slurm kill steps that use more memory than they asked for, as it does with cgroups."""
    before = slurm.layout.conf.read_text()
    slurm.layout.conf.write_text(before + "JobAcctGatherParams=OverMemoryKill\n")
    slurm.run("scontrol", "reconfigure")
    yield
    slurm.layout.conf.write_text(before)
    slurm.run("scontrol", "reconfigure")


def test_a_job_that_asked_too_much_is_sent_again_with_what_it_used(theatre: Theatre) -> None:
    desk = theatre.desk
    script = desk.work / "works.py"
    script.write_text(WORKS)
    asked = ("--gpus=2", "--cpus-per-task=4", "--mem-gb=6", "--time=12h", "--sample-interval=0.2")
    gpus = [gpu("c1", 0, [(0, 60)]), gpu("c1", 1, [(0, 0)])]
    played = theatre.environment("wide", {"c1": gpus, "c2": gpus})
    job = desk.submit("ddp", script, "--site=box", *asked, env=played)["job_id"]
    assert desk.over(job)["state"] == "COMPLETED"
    dry = desk.call("resubmit", job, "--right-size", "--dry-run", "--mem-gb=3").err
    assert "  memory per node: 3 GiB stays, as given here\n" in dry
    said = desk.call("resubmit", job, "--right-size", "--wait", "--json")
    new = {row["field"]: row["value"] for row in said.json["right_size"]}
    cores = new.pop("cpus_per_task")  # what ranks use while they start
    assert new == {"time_min": 5, "mem_gb": 1, "gpus": 1}
    assert cores in (1, 2, 3)
    assert re.search(r"time: 12:00:00 -> 00:05:00, the last run took at most 0:0\d:\d\d,", said.err)
    assert "; 2 -> 1 ranks: a script that sets the batch of each rank" in said.err
    assert "time min" not in said.err  # said once, with its reason
    assert said.json["state"] == "COMPLETED"
    given = desk.scontrol(said.json["job_id"])
    assert (given["TimeLimit"], given["MinMemoryNode"]) == ("00:05:00", "1G")
    assert (given["NumTasks"], given["CPUs/Task"]) == ("1", str(cores))
    assert given["TresPerNode"] in ("gres:gpu:1", "gres/gpu:1")  # as before and since 23.11


def test_a_job_that_was_killed_for_its_memory_gets_more(desk: Desk, killing: None) -> None:
    script = desk.work / "eats.py"
    script.write_text(EATS)
    job = desk.submit("serial", script, "--gpus=0", "--mem-gb=1", "--time=10")["job_id"]
    assert desk.over(job)["state"] in ("FAILED", "OUT_OF_MEMORY")
    assert "out of memory" in desk.call("logs", job, "--errors").out
    said = desk.call("resubmit", job, "--right-size", "--wait", "--json")
    line = f"memory per node: 1 GiB -> 2 GiB, job {job} ran out of its 1 GiB, x 1.5"
    assert line in said.err
    assert "time: 00:10:00 stays, no such run has COMPLETED" in said.err
    assert said.json["state"] == "COMPLETED"
    assert desk.scontrol(said.json["job_id"])["MinMemoryNode"] == "2G"
