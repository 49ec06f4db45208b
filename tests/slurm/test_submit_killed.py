"""A job of which one of hpckit's or Slurm's own processes is killed: it ends, and says why."""

import json
import os
import re
import signal
from pathlib import Path

import pytest

from tests.slurm.conftest import Desk, Record, eventually, processes_of
from tests.slurm.test_submit_causes import supervisor_of

pytestmark = pytest.mark.slurm
PAIR = ("--nodes", "2", "--tasks-per-node", "1", "--time", "9")
WAITS = """\
import os, time
from pathlib import Path
Path(os.environ["HPCKIT_RUN_DIR"], f"ready-{os.environ['RANK']}").touch()
while not Path("go").exists():
    time.sleep(0.05)
"""
TRIED = r"it failed; job (\d+) tries again \(retry 1 of 1\): the same again"


def started(desk: Desk, *options: str) -> tuple[str, Path]:
    """Give a job of two ranks that have begun, and its folder."""
    (desk.work / "waits.py").write_text(WAITS)
    job = desk.submit("ddp", "waits.py", *PAIR, *options)
    folder = Path(job["run_dir"])
    assert eventually(lambda: len([*folder.glob("ready-*")]) == 2)
    assert eventually(lambda: len([*folder.glob("ranks/*.json")]) == 2)
    return job["job_id"], folder


def parent_of(pid: int) -> int:
    found = re.search(r"PPid:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    assert found
    return int(found[1])


def slurmstepd_of(folder: Path, rank: int) -> int:
    """Give what watches a rank's supervisor."""
    pid = supervisor_of(folder, rank)
    while not Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"slurmstepd"):
        pid = parent_of(pid)
    return pid


def is_tried_again(desk: Desk, job_id: str, folder: Path) -> Record:
    """Check that one other job has followed, as the log and `status` say; give how it ended."""
    assert desk.over(job_id)["state"] == "FAILED"
    (note,) = desk.status(job_id)["notes"]
    told = re.fullmatch(TRIED, note)
    assert told, note
    desk.submitted.append(told[1])
    assert (folder / "job.out").read_text().count(f"hpckit: job {job_id}: {note}\n") == 1
    (desk.work / "go").touch()
    again = desk.over(told[1])
    assert len([*desk.runs.glob("waits-*")]) == 2
    return again


@pytest.mark.parametrize("rank", [0, 1])
def test_a_killed_supervisor_is_a_failure_that_is_tried_again(desk: Desk, rank: int) -> None:
    job_id, folder = started(desk, "--retry", "fail")
    os.kill(supervisor_of(folder, rank), signal.SIGKILL)
    assert is_tried_again(desk, job_id, folder)["state"] == "COMPLETED"
    assert f"rank {rank} (c{rank + 1}) recorded no end: killed" in desk.call("status", job_id).out


@pytest.mark.parametrize("rank", [0, 1])
def test_a_job_that_may_be_tried_again_ends_with_its_slurmstepd(desk: Desk, rank: int) -> None:
    """srun waits for ever for what that would tell it."""
    job_id, folder = started(desk, "--retry", "fail")
    os.kill(slurmstepd_of(folder, rank), signal.SIGKILL)
    assert is_tried_again(desk, job_id, folder)["state"] == "COMPLETED"
    said = f"hpckit: job {job_id} has lost a slurmstepd, and srun would wait for it for ever: srun"
    assert said in (folder / "job.out").read_text()
    page = desk.call("status", job_id).out
    assert f"rank {rank}   c{rank + 1}, exit status 143: its slurmstepd was killed" in page
    assert f"  stopped  rank {1 - rank}, after that" in page


def test_under_torchrun_too(desk: Desk) -> None:
    """No rank of its own sees that: torchrun ends them."""
    job_id, folder = started(desk, "--retry", "fail", "--launcher", "torchrun")
    os.kill(slurmstepd_of(folder, 1), signal.SIGKILL)
    assert is_tried_again(desk, job_id, folder)["state"] == "COMPLETED"
    page = desk.call("status", job_id).out
    assert "  why      a slurmstepd was killed, and hpckit ended the ranks" in page


def test_a_job_of_a_chain_ends_with_its_slurmstepd(desk: Desk) -> None:
    job_id, folder = started(desk, "--chain", "1")
    os.kill(slurmstepd_of(folder, 1), signal.SIGKILL)
    assert desk.over(job_id)["state"] == "FAILED"
    assert "The next job of the chain would fail again" in (folder / "job.out").read_text()
    assert eventually(lambda: processes_of(str(folder)) == [])


def test_others_ask_slurm_where_rank_zeros_supervisor_is_dead(desk: Desk) -> None:
    """They would hold their nodes until they give up to wait for its answer."""
    job_id, folder = started(desk, "--max-requeues", "1")
    os.kill(supervisor_of(folder, 0), signal.SIGKILL)
    assert desk.over(job_id)["state"] == "FAILED"
    assert (folder / "signals" / "asked-0").exists()
    assert "0 over\n" in (folder / "signals" / "0").read_text()
    assert desk.status(job_id)["restarts"] == 0


def test_a_step_that_was_cancelled_is_not_tried_again(desk: Desk) -> None:
    job_id, folder = started(desk, "--retry", "fail")
    desk.slurm.run("scancel", f"{job_id}.0")
    assert desk.over(job_id)["state"] == "FAILED"
    why = "not tried again: --retry has no rule for ranks that a signal from outside has ended"
    (note,) = desk.status(job_id)["notes"]
    assert note.startswith(why)
    assert f"hpckit: job {job_id} is {note}.\n" in (folder / "job.out").read_text()
    assert not (folder / "retry.json").exists()


def test_a_job_whose_script_was_killed_says_how_to_try_it_again(desk: Desk) -> None:
    job_id, folder = started(desk, "--retry", "fail")
    script = re.compile(rb"hpckit\.submission\.follow_up\0retry\0" + os.fsencode(folder))
    (pid,) = [
        int(one.name)
        for one in Path("/proc").iterdir()
        if one.name.isdecimal() and script.search(command_of(one))
    ]
    os.kill(pid, signal.SIGKILL)
    assert desk.over(job_id)["state"] == "FAILED"
    by_hand = f"hpckit resubmit {job_id}"
    said = f"it failed, and could not submit itself again. To do so: {by_hand}"
    assert desk.status(job_id)["notes"] == [said]
    assert not (folder / "retry.json").exists()
    assert eventually(lambda: processes_of(str(folder)) == [])


def command_of(process: Path) -> bytes:
    try:
        return (process / "cmdline").read_bytes()
    except OSError:
        return b""  # it has ended


def test_a_killed_job_of_an_array_is_tried_again_alone(desk: Desk) -> None:
    (desk.work / "waits.py").write_text(WAITS)
    asked = ("--gpus", "0", "--retry", "fail", "--array", "lr=1,2", "--time", "9")
    first, second = desk.submit("serial", "waits.py", *asked)["jobs"]
    folders = [Path(job["run_dir"]) for job in (first, second)]
    assert eventually(lambda: all((folder / "ranks" / "0.json").exists() for folder in folders))
    os.kill(slurmstepd_of(folders[0], 0), signal.SIGKILL)
    assert desk.over(first["job_id"])["state"] == "FAILED"
    (note,) = desk.status(first["job_id"])["notes"]
    told = re.fullmatch(TRIED, note)
    assert told, note
    desk.submitted.append(told[1])
    assert desk.status(second["job_id"])["state"] == "RUNNING"
    (desk.work / "go").touch()
    assert [desk.over(name)["state"] for name in (told[1], second["job_id"])] == ["COMPLETED"] * 2
    assert json.loads((folders[0] / "retry.json").read_text())["job_id"] == told[1]
