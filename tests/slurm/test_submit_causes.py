"""Who is to blame, where the rank whose end is written first is not the one."""

import json
import os
import re
import signal
from pathlib import Path

import pytest

from tests.slurm.conftest import SCRIPTS, Desk, add_site, eventually

pytestmark = pytest.mark.slurm
# Ends a second attempt before any rank begins, as a module that is gone would.
SETUP = """\
setup:
  - 'if [ "${SLURM_RESTART_COUNT:-0}" != 0 ]; then echo "no such module" >&2; exit 5; fi'
"""
MISSES_ITS_PEER = """\
import os, sys, time
from pathlib import Path
here, rank = Path(os.environ["HPCKIT_RUN_DIR"]), os.environ["RANK"]
(here / f"ready-{rank}").touch()
while not (here / "peer-is-gone").exists():
    time.sleep(0.02)
sys.exit("RuntimeError: Connection closed by peer [127.0.0.12]:1234")
"""


def supervisor_of(run_dir: Path, rank: int) -> int:
    """Give the process id of what watches a rank's script."""
    (attempt,) = json.loads((run_dir / "ranks" / f"{rank}.json").read_text())["attempts"]
    found = re.search(r"PPid:\s+(\d+)", Path(f"/proc/{attempt['pid']}/status").read_text())
    assert found
    return int(found[1])


def test_a_rank_that_was_killed_is_to_blame_not_one_that_misses_it(desk: Desk) -> None:
    script = desk.work / "misses.py"
    script.write_text(MISSES_ITS_PEER)
    job = desk.submit("ddp", script, "--nodes", "2", "--tasks-per-node", "1")
    job_id, folder = job["job_id"], Path(job["run_dir"])
    assert eventually(lambda: len([*folder.glob("ready-*")]) == 2)
    desk.until(job_id, "RUNNING")
    assert "no end" not in desk.call("status", job_id).out
    asked = desk.call("logs", job_id, "--errors")
    assert (asked.out, asked.err) == ("", f"{job_id} is RUNNING: no rank has failed so far.\n")

    os.kill(supervisor_of(folder, 1), signal.SIGKILL)
    (folder / "peer-is-gone").touch()
    assert desk.over(job_id)["state"] == "FAILED"
    report = desk.call("logs", job_id, "--errors").out
    assert report.startswith("rank 1 (c2) recorded no end: killed from outside")
    assert "srun saw task 1 of c2 end first: Killed" in report
    assert "  why      rank 1 (c2) recorded no end" in desk.call("status", job_id).out


def test_an_attempt_that_fails_in_its_setup_shows_no_earlier_ones_error(desk: Desk) -> None:
    add_site(desk, SETUP)
    fail = (SCRIPTS / "fail.py", "--gpus", "0", "--site", "box", "--max-requeues", "1")
    job = desk.submit("serial", *fail)
    job_id = job["job_id"]
    assert desk.over(job_id)["state"] == "FAILED"
    assert "no luck on rank 0" in desk.call("logs", job_id, "--errors").out
    # Not at once, by StartTime=now: the node refuses what was allocated in the second of its end.
    desk.slurm.run("scontrol", "requeue", job_id)
    assert "no luck" not in desk.call("status", job_id).out
    ask = ("sacct", "-n", "-P", "-D", "-X", "-o", "State", "-j", job_id)
    # Slurm 26.05 leaves the first attempt's own end in accounting.
    known = (["REQUEUED", "FAILED"], ["FAILED", "FAILED"])
    assert eventually(lambda: desk.slurm.run(*ask).stdout.split() in known)
    # Accounting knows an end before squeue does, which still says COMPLETING.
    assert desk.over(job_id)["state"] == "FAILED"
    for answer in (desk.call("logs", job_id, "--errors"), desk.call("status", job_id)):
        assert "no rank had started: the job's own log says why it failed" in answer.out
        assert "no luck" not in answer.out.partition("no such module")[0]
    assert desk.call("logs", job_id, "--errors").out.endswith("no such module\n")
