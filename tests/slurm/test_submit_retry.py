"""`--retry`: a job that the kernel killed for its memory succeeds with more, and nobody watches."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm.conftest import Desk, add_site, eventually

pytestmark = pytest.mark.slurm
_MEMORY = Path("/sys/fs/cgroup/memory")
EATS = 'held = b"x" * (400 << 20); print(len(held), flush=True)\n'
# The kernel's own limit, as Slurm's task/cgroup sets it: a quarter of what was asked for.
_PROLOG = """\
#!/bin/bash
job={memory}/slurm/uid_0/job_$SLURM_JOB_ID
mkdir -p $job
echo $((SLURM_MEM_PER_NODE << 18)) >$job/memory.limit_in_bytes
echo $PPID >$job/cgroup.procs
"""


@pytest.fixture
def limited(desk: Desk) -> Iterator[Desk]:
    """Give a user of a cluster that keeps jobs to their memory by cgroups."""
    if not os.access(_MEMORY / "cgroup.procs", os.W_OK):
        pytest.skip("this machine does not let tests make memory cgroups (v1)")
    prolog = desk.work / "prolog.sh"
    prolog.write_text(_PROLOG.format(memory=_MEMORY))
    prolog.chmod(0o755)
    limits = "partitions:\n  gpu: {mem_gb_per_node: 2}\n"
    add_site(desk, f"{limits}launch:\n  srun_args: [--task-prolog={prolog}]\n")
    yield desk
    for job in desk.submitted:
        folder = _MEMORY / "slurm" / "uid_0" / f"job_{job}"
        assert not folder.exists() or eventually(lambda folder=folder: _removed(folder))


def _removed(folder: Path) -> bool:
    try:
        folder.rmdir()
    except OSError:  # its last process is still on its way out
        return False
    return True


def test_after_an_out_of_memory_kill_a_job_succeeds_with_more(limited: Desk) -> None:
    (limited.work / "eats.py").write_text(EATS)
    asked = ("--site", "box", "-p", "gpu", "--gpus", "0", "--mem-gb", "1", "--time", "9")
    rules = ("--retry", "oom:mem*4,timeout:time*2", "--retries", "2")
    said = limited.call("submit", "serial", "eats.py", *asked, *rules, "--wait", "--json")
    second = said.json
    limited.submitted.append(second["job_id"])
    assert second["state"] == "COMPLETED"
    change = "memory per node: 1 GB -> 2 GB (partition gpu gives at most 2 GB)"
    retry = json.loads(Path(second["run_dir"], "run.json").read_text())["retry"]
    first = retry["job_id"]
    limited.submitted.append(first)
    told = f"job {first} ran out of memory; this job tries again (retry 1 of 2): {change}"
    assert f"note: {second['job_id']}: {told}" in said.err
    assert (retry["number"], retry["kind"], retry["changes"]) == (1, "oom", {"mem_gb": 2})
    assert limited.scontrol(second["job_id"])["MinMemoryNode"] == "2G"
    page = limited.call("status", first).out
    assert page.startswith(f"{first} FAILED")
    assert f"  note     it ran out of memory; job {second['job_id']} tries again" in page
    assert limited.call("wait", first).out.startswith(f"{second['job_id']} COMPLETED")
