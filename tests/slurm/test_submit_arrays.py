"""Arrays through our template: one call of sbatch, one query for all, each task on its own."""

import json
from collections import Counter
from pathlib import Path

import pytest

from tests.slurm.conftest import SCRIPTS, Desk, Record, eventually, rank_files

pytestmark = pytest.mark.slurm
SEEN = SCRIPTS / "seen.py"
CPU = ("--gpus", "0")


def counting(desk: Desk, folder: Path, *programs: str) -> dict[str, str]:
    """Give a PATH on which each call of these programs is written down before it is made."""
    folder.mkdir()
    for name in programs:
        real = desk.slurm.run("which", name).stdout.strip()
        wrapper = folder / name
        wrapper.write_text(f'#!/bin/bash\necho "{name} $1" >>{folder}/calls\nexec {real} "$@"\n')
        wrapper.chmod(0o755)
    return {"PATH": f"{folder}:{desk.env['PATH']}"}


def calls(folder: Path) -> list[str]:
    """Give the calls so far, and forget them."""
    log = folder / "calls"
    lines = log.read_text().splitlines() if log.exists() else []
    log.unlink(missing_ok=True)
    return lines


def test_an_array_of_twenty(desk: Desk, tmp_path: Path) -> None:
    counted = tmp_path / "bin"
    env = counting(desk, counted, "squeue", "sbatch")
    values = [f"{0.01 * number:.2f}" for number in range(1, 21)]
    jobs = desk.submit(
        "serial", SEEN, *CPU, "--array", f"lr={','.join(values)}", "--parallel", "4",
        "--", "--epochs", "3", env=env,
    )["jobs"]  # fmt: skip
    made = calls(counted)
    assert made.count("sbatch --parsable") == 1
    array = jobs[0]["job_id"].partition("_")[0]
    assert [row["job_id"] for row in jobs] == [f"{array}_{index}" for index in range(20)]

    check_script(desk, array, jobs)
    found = desk.status(array, env=env)["jobs"]
    assert [row["job_id"] for row in found] == [row["job_id"] for row in jobs]
    assert Counter(word.split()[0] for word in calls(counted)) == {"squeue": 1}
    desk.until(array, "COMPLETED")
    for index, (job, value) in enumerate(zip(jobs, values, strict=True)):
        check_task(job, index, value)


def check_script(desk: Desk, array: str, jobs: list[Record]) -> None:
    """Check that Slurm has our script, byte for byte, and so does each task's folder."""
    stored = desk.slurm.run("scontrol", "write", "batch_script", array, "-").stdout.rstrip("\n")
    assert "#SBATCH --array=0-19%4\n" in stored
    assert "template slurm/base.sh.j2 of built-in" in stored
    for job in jobs:
        assert Path(job["run_dir"], "job.sh").read_text() == f"{stored}\n"


def check_task(job: Record, index: int, value: str) -> None:
    (seen,) = rank_files(job["run_dir"]).values()
    assert seen["argv"] == ["--epochs", "3", "--lr", value]
    assert seen["env"]["HPCKIT_RUN_DIR"] == job["run_dir"]
    assert seen["env"]["SLURM_ARRAY_TASK_ID"] == str(index)
    record = json.loads(Path(job["run_dir"], "run.json").read_text())
    assert record["job_id"] == job["job_id"]
    assert record["array"]["index"] == index
    assert record["command"][-2:] == ["--lr", value]
    assert Path(job["run_dir"]).name == job["run_id"] == record["run_id"]


def test_one_task_is_cancelled_alone(desk: Desk) -> None:
    jobs = desk.submit(
        "serial", SEEN, *CPU, "--array", "n=1,2,3,4", "--parallel", "2", "--", "--hold"
    )["jobs"]
    ids = [job["job_id"] for job in jobs]
    for job_id in ids[:2]:
        desk.until(job_id, "RUNNING")
    # Slurm says why when it has tried to start it.
    assert eventually(lambda: desk.status(ids[2])["reason"] == "JobArrayTaskLimit")
    waiting = desk.status(ids[2])
    assert waiting["state"] == "PENDING"
    assert "limit of tasks at once" in waiting["reason_text"]
    for victim in (ids[3], ids[0]):
        assert desk.call("cancel", victim).out.startswith(f"{victim} CANCELLED")
    assert desk.status(ids[1])["state"] == "RUNNING"
    for job in jobs[1:3]:
        Path(job["run_dir"], "go").touch()
    assert eventually(lambda: desk.status(ids[2])["state"] == "COMPLETED")
    states = [row["state"] for row in desk.status(ids[0].partition("_")[0])["jobs"]]
    assert states == ["CANCELLED", "COMPLETED", "COMPLETED", "CANCELLED"]
    assert len(desk.call("wait", *ids, expect=1).out.splitlines()) == 4


def test_a_waiting_array_is_cancelled_whole(desk: Desk) -> None:
    blocker = desk.submit("ddp", SEEN, "--nodes", "2", "--gpus", "4", "--", "--hold")["job_id"]
    desk.until(blocker, "RUNNING")
    jobs = desk.submit("serial", SEEN, "--gpus", "4", "--array", "n=1,2,3")["jobs"]
    array = jobs[0]["job_id"].partition("_")[0]
    assert [row["state"] for row in desk.status(array)["jobs"]] == ["PENDING"] * 3
    cancelled = desk.call("cancel", array, "--json").json["jobs"]
    assert [row["state"] for row in cancelled] == ["CANCELLED"] * 3
    assert desk.call("wait", array, expect=1).out.count("CANCELLED") == 3


def test_an_array_of_one_value_is_an_array(desk: Desk) -> None:
    answer = desk.submit("serial", SEEN, *CPU, "--array", "lr=0.5")
    (job,) = answer["jobs"]
    assert job["job_id"].endswith("_0")
    assert desk.over(job["job_id"])["state"] == "COMPLETED"
    (seen,) = rank_files(job["run_dir"]).values()
    assert seen["argv"] == ["--lr", "0.5"]
    assert Path(job["run_dir"], "job.out").exists()
    assert "rank 0 restart 0" in desk.call("logs", job["job_id"]).out


def test_two_lists_make_their_product(desk: Desk) -> None:
    jobs = desk.submit("serial", SEEN, *CPU, "--array", "lr=1,2", "--array", "name=a b,c")["jobs"]
    desk.until(jobs[0]["job_id"].partition("_")[0], "COMPLETED")
    given = [rank_files(job["run_dir"])[0]["argv"] for job in jobs]
    words = [(lr, name) for lr in "12" for name in ("a b", "c")]
    assert given == [["--lr", lr, "--name", name] for lr, name in words]
