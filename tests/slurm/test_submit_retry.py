"""`--retry`: a job that the kernel killed for its memory succeeds with more, and nobody watches."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.slurm.conftest import Desk, add_site
from tests.slurmbox import daemons
from tests.slurmbox.layout import NODES

pytestmark = pytest.mark.slurm
_MEMORY = Path("/sys/fs/cgroup/memory")
EATS = 'held = b"x" * (1300 << 20); print(len(held), flush=True)\n'
# One MPI rank ends the first job; the second one's ranks add up.
CALL = """\
import os, sys, hpckit
def fails_once(mark):
    from mpi4py import MPI
    world = MPI.COMM_WORLD
    print("job", os.environ["SLURM_JOB_ID"], flush=True)
    if world.allreduce(not os.path.exists(mark)):
        if world.rank == 1:
            open(mark, "x").close()
            sys.exit(3)
        world.Barrier()
    return world.allreduce(1), os.environ["SLURM_JOB_ID"]
ranks = dict(strategy="mpi", launcher="mpirun", tasks_per_node=2, gpus=0, time=2)
call = hpckit.call(fails_once, os.path.abspath("mark"), retry="fail", **ranks)
print(call.job_id, *call.result(), call.done())
"""
_CGROUP_CONF = """\
CgroupPlugin=cgroup/v1
CgroupAutomount=no
ConstrainRAMSpace=yes
MinRAMSpace=1
"""


@pytest.fixture
def limited(desk: Desk) -> Iterator[Desk]:
    """Give a user of a cluster that keeps jobs to their memory by Slurm's own cgroups."""
    if not os.access(_MEMORY / "cgroup.procs", os.W_OK):
        pytest.skip("this machine does not let tests make memory cgroups (v1)")
    add_site(desk, "partitions:\n  gpu: {mem_gb_per_node: 2}\n")
    conf = desk.slurm.layout.conf
    whole, cgroup = conf.read_text(), conf.with_name("cgroup.conf")
    cgroup.write_text(_CGROUP_CONF)
    conf.write_text(whole.replace("TaskPlugin=task/none", "TaskPlugin=task/cgroup"))
    restart_nodes(desk)
    yield desk
    conf.write_text(whole)
    cgroup.unlink()
    restart_nodes(desk)
    for node in NODES:
        with suppress(OSError):  # another box may be in it
            (_MEMORY / f"slurm_{node}").rmdir()


def restart_nodes(desk: Desk) -> None:
    for node in NODES:
        daemons.stop(desk.slurm.layout, node)
        daemons.start(desk.slurm.layout, node)
    for node in NODES:
        desk.slurm.start_node(node)


def test_after_an_out_of_memory_kill_a_job_succeeds_with_more(limited: Desk) -> None:
    (limited.work / "eats.py").write_text(EATS)
    asked = ("--site", "box", "-p", "gpu", "--gpus", "0", "--mem-gb", "1", "--time", "9")
    rules = ("--retry", "oom:mem*4,timeout:time*2", "--retries", "2")
    said = limited.call("submit", "serial", "eats.py", *asked, *rules, "--wait", "--json")
    second = said.json
    limited.submitted.append(second["job_id"])
    assert second["state"] == "COMPLETED"
    change = "memory per node: 1 GiB -> 2 GiB (partition gpu gives at most 2 GiB)"
    retry = json.loads(Path(second["run_dir"], "run.json").read_text())["retry"]
    first = retry["job_id"]
    limited.submitted.append(first)
    told = f"job {first} ran out of memory; this job tries again (retry 1 of 2): {change}"
    assert f"note: {second['job_id']}: {told}" in said.err
    assert (retry["number"], retry["kind"], retry["changes"]) == (1, "oom", {"mem_gb": 2})
    assert limited.scontrol(second["job_id"])["MinMemoryNode"] == "2G"
    page = limited.call("status", first).out
    assert page.startswith(f"{first} FAILED")
    assert "exit status 137 (out of memory)" in page
    log = (limited.runs / retry["of"] / "job.out").read_text()
    assert "task 0: Out Of Memory" in log
    stats = limited.call("stats", first, "--json").json
    assert stats["summary"]["oom_kills"] == 1
    assert "out-of-memory" in [row["id"] for row in stats["advice"]]
    assert f"  note     it ran out of memory; job {second['job_id']} tries again" in page
    assert limited.call("wait", first).out.startswith(f"{second['job_id']} COMPLETED")


def test_a_call_has_the_result_of_the_job_that_tries_it_again(desk: Desk) -> None:
    (desk.work / "program.py").write_text(CALL)
    done = subprocess.run(
        [sys.executable, "program.py"], cwd=desk.work, env=desk.env, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    first, total, second, over = done.stdout.split()
    desk.submitted.extend((first, second))
    assert (total, over) == ("2", "True")
    assert first != second
    # Who follows the first follows the second.
    said = desk.call("logs", first, "-f").out.splitlines()
    folder = desk.status(second)["run_dir"].rpartition("/")[2]
    at = said.index(f"==> {folder}/logs/0.out <==")
    assert (said.index(f"job {first}") < at, said.index(f"job {second}") > at) == (True, True)


def test_a_retry_runs_the_copy_of_a_program_that_is_gone_by_then(desk: Desk) -> None:
    text = "import pathlib, sys\nfile = pathlib.Path('once.py')\nif file.exists():\n"
    (desk.work / "once.py").write_text(
        f"{text}    file.unlink()\n    sys.exit(3)\nprint('again')\n"
    )
    said = desk.call(
        "submit", "serial", "once.py", "--gpus", "0", "--retry", "fail", "--wait", "--json"
    )
    desk.submitted.append(said.json["job_id"])
    assert said.json["state"] == "COMPLETED"
    assert "this job tries again" in said.err
