"""An array of which some tasks fail, run, wait and were never started; its failed tasks again."""

import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.slurm.conftest import HPCKIT, Desk, Record, eventually, rank_files

pytestmark = pytest.mark.slurm
CPU = ("--gpus", "0")
# Fails where it is told to, holds until it is let go, and says what it was given.
PROGRAM = """\
import json, os, sys, time
folder = os.environ["HPCKIT_RUN_DIR"]
given = dict(zip(sys.argv[1::2], sys.argv[2::2]))
with open(f"{folder}/seen-0.json", "w") as file:
    json.dump({"argv": sys.argv[1:]}, file)
if given["--kind"] == "fail":
    raise ValueError(f"no data for {given}")
while given["--kind"] == "hold" and not os.path.exists(f"{folder}/go"):
    time.sleep(0.1)
"""


def tasks_of(document: Record) -> list[str]:
    return [row["job_id"] for row in document["jobs"]]


def array_of_six(desk: Desk) -> list[str]:
    """Submit an array: one good, two failed, one runs, one waits, one was cancelled."""
    (desk.work / "t.py").write_text(PROGRAM)
    document = desk.submit(
        "serial", "t.py", *CPU, "--array", "kind=ok,fail,fail,hold,ok,ok",
        "--array", r"name=a,b\,c,d e,f,g,h", "--zip", "--parallel", "1",
    )  # fmt: skip
    ids = tasks_of(document)
    for job_id, state in zip(ids, ("COMPLETED", "FAILED", "FAILED", "RUNNING"), strict=False):
        desk.until(job_id, state)
    desk.call("cancel", ids[4])
    return ids


def test_the_failed_tasks_again(desk: Desk) -> None:
    ids = array_of_six(desk)
    array = ids[0].partition("_")[0]
    again = desk.call("resubmit", array, "--failed", "--parallel", "3", "--time", "7m", "--json")
    new = tasks_of(again.json)
    desk.submitted.extend(new)
    assert [row["job_id"] for row in again.json["failed"]] == [ids[1], ids[2], ids[4]]
    assert f"1 COMPLETED, 1 RUNNING ({ids[3]}), 1 PENDING ({ids[5]})" in again.err
    assert f"  {ids[2]} FAILED (kind=fail, name=d e), task 1 of the new array" in again.err
    assert "tasks at once: 1 -> 3" in again.err
    for job_id, state in zip(new, ("FAILED", "FAILED", "COMPLETED"), strict=True):
        desk.until(job_id, state)
    given = [rank_files(row["run_dir"])[0]["argv"] for row in again.json["jobs"]]
    assert given == [
        ["--kind", "fail", "--name", "b,c"],
        ["--kind", "fail", "--name", "d e"],
        ["--kind", "ok", "--name", "g"],
    ]
    script = desk.slurm.run("scontrol", "write", "batch_script", new[0].partition("_")[0], "-")
    assert "#SBATCH --array=0-2%3\n" in script.stdout
    assert "#SBATCH --time=00:07:00\n" in script.stdout
    # Once more: who has ended well in the new array is done.
    one = desk.call("resubmit", array, "--failed", "--dry-run", "--json").json
    assert {row["job_id"] for row in one["left"]} == {ids[0], ids[3], ids[4], ids[5]}
    assert [row["again"]["job_id"] for row in one["failed"]] == new[:2]
    assert desk.status(ids[4])["resubmitted_as"] == new[2]
    assert desk.status(new[2])["resubmit_of"] == ids[4]
    which(desk, array, ids)
    never_started(desk, ids[4])


def which(desk: Desk, array: str, ids: list[str]) -> None:
    """Check whose log and error the array's id shows, and what tasks were given."""
    said = desk.call("logs", array, "--errors")
    assert said.err.startswith(f"{ids[1]} FAILED (kind=fail, name=b,c):\n")
    assert "ValueError: no data for" in said.out
    assert (
        f"2 other tasks of array {array} failed: {ids[2]} FAILED, {ids[4]} CANCELLED." in said.err
    )
    assert f"Log of task {ids[1]} " in desk.call("logs", array).err
    assert desk.status(ids[2])["parameters"] == {"kind": "fail", "name": "d e"}
    assert (
        f"  task     2 of array {array}: kind=fail, name=d e\n" in desk.call("status", ids[2]).out
    )
    rows = desk.call("jobs", "--json", "-n", "2").json["jobs"]
    assert len(rows) == 9  # as the table's two lines: the new array of three, and this one
    assert {row["parameters"]["kind"] for row in rows} == {"ok", "fail", "hold"}


def never_started(desk: Desk, job_id: str) -> None:
    """Check that a task that was cancelled while it waited is told of alike, whoever is asked."""
    broken = desk.work / "bin"
    broken.mkdir()
    (broken / "squeue").write_text("#!/bin/sh\necho 'squeue: error: no controller' >&2\nexit 1\n")
    (broken / "squeue").chmod(0o755)
    without = {"PATH": f"{broken}:{desk.env['PATH']}"}
    assert desk.call("status", job_id).out.startswith(f"{job_id} CANCELLED: never started\n")
    assert desk.status(job_id)["elapsed_s"] is None
    assert "it never started, and wrote nothing" in desk.call("logs", job_id).err

    alone = desk.submit("serial", "t.py", *CPU, "--sbatch", "begin=now+1hour")["job_id"]
    logs = [HPCKIT, "logs", alone, "-f"]
    with subprocess.Popen(logs, env=desk.env, cwd=desk.work, stderr=subprocess.PIPE) as follow:
        assert follow.stderr is not None
        assert follow.stderr.readline().startswith(f"{alone} PENDING: It may not start".encode())
        desk.call("cancel", alone)
        end = f"{alone} is CANCELLED: it never started, and wrote nothing.\n"
        assert follow.stderr.read().decode() == end

    def alike() -> bool:  # accounting hears of it some seconds later
        said = [desk.call("status", alone, env=env).out for env in ({}, without)]
        return {text.splitlines()[0] for text in said} == {f"{alone} CANCELLED: never started"}

    assert eventually(alike)


def test_two_at_one_moment_submit_them_once(desk: Desk) -> None:
    (desk.work / "t.py").write_text(PROGRAM)
    ids = tasks_of(desk.submit("serial", "t.py", *CPU, "--array", "kind=fail,ok"))
    array = ids[0].partition("_")[0]
    desk.until(ids[0], "FAILED")
    desk.until(ids[1], "COMPLETED")
    again = ("resubmit", array, "--failed", "--sbatch", "hold", "--json")
    with ThreadPoolExecutor() as pool:
        calls = [pool.submit(desk.call, *again, expect=None) for _ in range(2)]
    second, first = sorted((call.result() for call in calls), key=lambda said: -said.status)
    (new,) = tasks_of(first.json)
    desk.submitted.append(new)
    assert (first.status, second.status) == (0, 2)
    assert f"no failed task to submit again: 1 COMPLETED, 1 PENDING ({new})" in second.err
    assert desk.status(ids[0])["resubmitted_as"] == new


def test_an_array_without_failed_tasks_is_refused(desk: Desk) -> None:
    (desk.work / "t.py").write_text(PROGRAM)
    ids = tasks_of(
        desk.submit("serial", "t.py", *CPU, "--array", "kind=ok,hold", "--parallel", "2")
    )
    array = ids[0].partition("_")[0]
    desk.until(ids[0], "COMPLETED")
    desk.until(ids[1], "RUNNING")
    said = desk.call("resubmit", array, "--failed", expect=2)
    assert f"1 COMPLETED, 1 RUNNING ({ids[1]})" in said.err
    (one,) = (path for path in desk.runs.glob("*_1"))
    (one / "go").touch()
    desk.until(array, "COMPLETED")
    assert "2 COMPLETED" in desk.call("resubmit", array, "--failed", expect=2).err


NUMBERED = """\
import os, sys
number = os.environ["HPCKIT_ARRAY_INDEX"]
with open(os.environ["SEEN"], "a") as file:
    print(number, sys.argv[2], os.environ.get("SLURM_ARRAY_TASK_ID"), file=file)
sys.exit(number == "2" and not os.path.exists(os.environ["SEEN"] + ".good"))
"""


def test_a_task_that_is_tried_again_keeps_its_number(desk: Desk) -> None:
    (desk.work / "n.py").write_text(NUMBERED)
    seen, good = desk.work / "seen", desk.work / "seen.good"
    desk.env["SEEN"] = str(seen)
    words = ("serial", "n.py", *CPU, "--array", "n=5,6,7", "--retry", "fail", "--json")
    done = desk.call("submit", *words)
    ids = tasks_of(done.json)
    desk.submitted.extend(ids)
    note = "n.py reads SLURM_ARRAY_TASK_ID, which a retry of a task does not have"
    assert done.err.count(note) == 1
    desk.call("wait", *ids, expect=1)
    assert sorted(seen.read_text().splitlines()) == ["0 5 0", "1 6 1", "2 7 2", "2 7 None"]
    good.touch()
    again = desk.call("resubmit", ids[0].partition("_")[0], "--failed", "--json", "--wait")
    assert "n.py reads SLURM_ARRAY_TASK_ID, which is 0 where it was 2" in again.err
    assert seen.read_text().splitlines()[-1] == "2 7 0"
    (new,) = tasks_of(again.json)
    desk.call("resubmit", new, "--json", "--wait")
    assert seen.read_text().splitlines()[-1] == "2 7 None"
