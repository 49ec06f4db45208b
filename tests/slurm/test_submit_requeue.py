"""A job that Slurm takes away goes on later: after a preemption, after its time limit."""

import json
from pathlib import Path

import pytest

from hpckit.job_ends.causes import TAKEN_AWAY
from tests.slurm.conftest import OVER, SCRIPTS, Desk, Record, accounted, eventually, lacking

pytestmark = pytest.mark.slurm
FAIL = SCRIPTS / "fail.py"
EQUAL = SCRIPTS / "mpi_equal.py"
LAST = ("--time", "9", "--max-requeues", "1")
EVERYTHING = ("--nodes", "2", "--gpus", "4")
WORKLOAD = """\
description: works until it is told to stop
strategy: ddp
script: patient.py
handles_stop_signal: true
"""

# Its ranks work independently of one another. Who ignores the signal while it saves has no
# handler then; it may come twice: from Slurm, where that signals all of a step, and from hpckit.
PARTS = """\
import os, signal, sys
from pathlib import Path

def save(signum, _frame):
    signal.signal(signum, signal.SIG_IGN)
    os.write(1, b"saved\\n")
    sys.exit(0)

signal.signal(getattr(signal, sys.argv[1]), save)
print("attempt", os.environ["HPCKIT_RESTART"], flush=True)
Path(os.environ["HPCKIT_RUN_DIR"], "ready-" + os.environ["RANK"]).touch()
while os.environ["RANK"] != "0" and os.environ["HPCKIT_RESTART"] == "0":
    signal.pause()
"""


def attempts(run_dir: str, rank: int) -> list[Record]:
    found: list[Record] = json.loads(Path(run_dir, "ranks", f"{rank}.json").read_text())["attempts"]
    return found


def epochs(job: Record) -> list[str]:
    """Give the epochs that rank 0 has printed, of all attempts that could save what they did.

    On a machine that stands still, an attempt may be killed before; the next one begins where it
    had. Every attempt must begin where the last one that saved has ended.
    """
    text, step, found = Path(job["run_dir"], "logs", "0.out").read_text(), "0", list[str]()
    for attempt in text.split("from step ")[1:]:
        first, *lines = attempt.splitlines()
        assert first == step, text
        if lines and lines[-1].startswith("saved at step "):
            step = lines[-1].split()[-1]
            found += [line.split()[1] for line in lines if line.startswith("epoch ")]
    return found


def said_by_0(job: Record) -> str:
    log = Path(job["run_dir"], "logs", "0.out")
    return log.read_text() if log.exists() else ""


def words_of_0(run_dir: Path) -> str:
    signals = run_dir / "signals" / "0"
    return signals.read_text() if signals.exists() else ""


def add_patient(desk: Desk) -> None:
    """Give the user's project a workload that handles SIGUSR2."""
    folder = desk.work / "workloads" / "patient"
    folder.mkdir(parents=True)
    (folder / "workload.yaml").write_text(WORKLOAD)
    (folder / "patient.py").write_text((SCRIPTS / "patient.py").read_text())


def test_a_preempted_job_starts_again(desk: Desk) -> None:
    patient = str(SCRIPTS / "patient.py")
    job = desk.submit("ddp", patient, *EVERYTHING, "--max-requeues", "1")
    # Beside it one that Slurm gives time to save, by SIGTERM alone, in a partition of its own.
    desk.slurm.run("scontrol", "update", "PartitionName=short", "GraceTime=240")
    ranks = ("--nodes", "2", "--tasks-per-node", "2", "--gpus", "0", "--time", "9")
    # Another requeue is left, which Slurm 24.11 would use when the job is complete.
    saves = desk.submit("mpi", EQUAL, *ranks, "--partition", "short", "--max-requeues", "2")
    # Nothing may start the third one again, nor one of two ranks on two nodes.
    alone = ("--gpus", "0", "--partition", "short", "--retry", "fail")
    ends = desk.submit("serial", patient, *LAST[:2], *alone)
    pair = desk.submit("mpi", patient, "--nodes", "2", *LAST[:2], *alone[:4])
    # One that saves and ends with 0, where nothing may start it again.
    undone = desk.submit("serial", SCRIPTS / "saves_on_term.py", *LAST[:2], *alone[:4])
    assert eventually(lambda: "step 20\n" in said_by_0(saves))
    run_dir = Path(job["run_dir"])
    logs = [run_dir / "logs" / f"{rank}.out" for rank in range(8)]
    assert eventually(lambda: all(log.exists() and log.read_text() for log in logs))
    for one in (job, ends, pair, undone):
        assert eventually(Path(one["run_dir"], "port-0").exists)
    whole = (*EVERYTHING, "--sbatch", "exclusive", "--partition", "urgent")
    urgent = desk.submit("ddp", SCRIPTS / "seen.py", *whole)
    assert desk.over(urgent["job_id"])["state"] == "COMPLETED"
    back = desk.until(job["job_id"], "PENDING", "RUNNING", "COMPLETED")
    assert back["restarts"] in (0, 1)
    # The end of its first attempt is none of its own, whoever is silent.
    silent = "echo 'Unable to contact slurm controller' >&2; exit 1"
    by_sacct = lacking(desk, desk.home / "a", squeue=silent)
    by_ranks = lacking(desk, desk.home / "b", squeue=silent, sacct=silent)
    for env in (by_sacct, by_ranks):
        found = desk.status(job["job_id"], env=env)
        assert found["state"] not in OVER, found
        desk.call("wait", job["job_id"], "--timeout", "0", expect=3, env=env)
    # It may not start again before the box's cred_expire.
    status = desk.over(job["job_id"])
    assert (status["state"], status["restarts"], status["exit_code"]) == ("COMPLETED", 1, 0)
    assert {row["restart"] for row in status["ranks"]} == {1}
    for rank in range(8):
        first, second = attempts(job["run_dir"], rank)
        assert (first["restart"], second["restart"], second["exit_code"]) == (0, 1, 0)
        log = (run_dir / "logs" / f"{rank}.out").read_text()
        assert log == "attempt 0\nattempt 1\nresumed from nothing\n"
    assert (run_dir / "port-0").read_text() != (run_dir / "port-1").read_text()
    # Their scripts died of the SIGTERM, and Slurm had not yet ended them: it says FAILED.
    for one in (ends, pair):
        assert desk.over(one["job_id"])["state"] == "PREEMPTED"
        assert desk.call("logs", one["job_id"], "--errors").out.startswith(TAKEN_AWAY)
        assert {row["restart"] for row in attempts(one["run_dir"], 0)} == {0}
    # Neither is its work done, nor may what waits for it by afterok begin.
    assert desk.over(undone["job_id"])["state"] == "PREEMPTED"
    # From 24.05 on Slurm says PREEMPTED itself, of which the exit status is no news.
    said = desk.call("wait", undone["job_id"], expect=1).out
    assert said.startswith(f"{undone['job_id']} PREEMPTED: ")
    assert Path(undone["run_dir"], "saved").exists()
    log = desk.call("logs", undone["job_id"], "--errors").out
    assert "Slurm preempted the job, which may not start again" in log
    line, *page = desk.call("status", ends["job_id"]).out.splitlines()
    assert "PREEMPTED" in line
    assert "jobs with a higher priority took its nodes" in line
    assert f"  why      {TAKEN_AWAY}; no rank is the cause" in page
    assert any("no rule for a preemption (--max-requeues N is for these)" in row for row in page)
    assert desk.call("wait", ends["job_id"], expect=1).out.startswith(line)
    accounted(desk.slurm, ends["job_id"])
    assert desk.call("stats", ends["job_id"], "--json").json["state"] == "PREEMPTED"
    # The other has lost no step, and ends as if nothing had been.
    status = desk.over(saves["job_id"])
    assert (status["state"], status["restarts"], status["exit_code"]) == ("COMPLETED", 1, 0)
    # hpckit itself has requeued it, in its grace time.
    assert [row["why"] for row in status["earlier_attempts"]] == [TAKEN_AWAY]
    desk.call("wait", saves["job_id"])
    accounted(desk.slurm, saves["job_id"])
    stats = desk.call("stats", saves["job_id"], "--json").json
    assert [row["state"] for row in stats["attempts"]] == ["REQUEUED", "COMPLETED"]
    assert desk.status(saves["job_id"], env=by_sacct)["state"] == "COMPLETED"
    *steps, value = said_by_0(saves).splitlines()
    assert steps == [f"step {number}" for number in range(1, 201)]
    undisturbed = desk.done("mpi", EQUAL, *ranks, "--", "undisturbed")
    assert value.startswith("ends with 0x")
    assert said_by_0(undisturbed).splitlines()[-1] == value


def test_jobs_at_their_time_limit_save_and_start_again(desk: Desk) -> None:
    add_patient(desk)
    # Slurm knows no limit under a minute, and warns when it looks, every 30 s: 15 to 45 s before.
    shape = ("--nodes", "2", "--gpus", "2", "--time", "1", "--max-requeues", "1")
    launchers = ("srun", "torchrun")
    # In its second and last attempt at once, by a user's own requeue.
    last = desk.submit("serial", FAIL, *LAST, "--", "--rank", "9")
    assert eventually(Path(last["run_dir"], "ready-0").exists)
    desk.slurm.run("scontrol", "requeue", last["job_id"])
    jobs = [desk.submit("patient", *shape, "--launcher", name) for name in launchers]
    rules = ("--gpus", "0", "--time", "1", "--retry", "timeout:time*2")
    late = desk.submit("serial", SCRIPTS / "patient.py", *rules)
    # Trainings that ask should_stop. One by torch may need a minute to start on a busy machine.
    script = SCRIPTS / "mpi_goes_on.py"
    long = ("--nodes", "2", "--tasks-per-node", "1", "--gpus", "0", "--time", "1")
    many = (*long, "--max-requeues", "20", "--launcher")
    trained = [desk.submit("mpi", script, *many, name) for name in ("srun", "mpirun")]
    assert eventually(lambda: len(attempts(last["run_dir"], 0)) == 2)
    # On the box this goes to all of the step's processes, also to the scontrol that does so.
    assert eventually(lambda: desk.scontrol(last["job_id"])["Requeue"] == "0")
    desk.slurm.run("scancel", "--signal=USR2", f"{last['job_id']}.0")
    for job in jobs:
        status = desk.over(job["job_id"])
        assert (status["state"], status["restarts"], status["exit_code"]) == ("COMPLETED", 1, 0)
        (before,) = status["earlier_attempts"]
        assert before["why"] == "requeued after the signal that its time limit was near"
        for rank in range(4):
            log = Path(job["run_dir"], "logs", f"{rank}.out").read_text()
            assert log == "attempt 0\nsaved on SIGUSR2\nattempt 1\nresumed from SIGUSR2\n"
            assert [row["restart"] for row in attempts(job["run_dir"], rank)] == [0, 1]
    assert desk.over(late["job_id"])["state"] == "TIMEOUT"
    again = json.loads(Path(late["run_dir"], "retry.json").read_text())["job_id"]
    assert desk.scontrol(again)["TimeLimit"] == "00:02:00"
    desk.call("cancel", again)
    for job in trained:
        status = desk.over(job["job_id"])
        assert (status["state"], status["exit_code"]) == ("COMPLETED", 0)
        assert status["restarts"] >= 1
        assert epochs(job) == [str(number) for number in range(1, 11)]
    # No requeue is left: Slurm may not requeue it either, which a preemption would do.
    assert desk.scontrol(last["job_id"])["Requeue"] == "0"
    # So the warning is nobody's business: it works on.
    assert desk.status(last["job_id"])["state"] == "RUNNING"
    urgent = desk.submit("ddp", SCRIPTS / "seen.py", *EVERYTHING, "--partition", "urgent")
    ended = desk.over(last["job_id"])
    assert (ended["state"], ended["restarts"]) == ("PREEMPTED", 1)
    assert desk.over(urgent["job_id"])["state"] == "COMPLETED"
    assert "Traceback" not in Path(last["run_dir"], "job.out").read_text()


def test_where_rank_0_has_done_its_part_the_job_goes_on_for_the_others(desk: Desk) -> None:
    """Its supervisor has left: nobody requeued the job, and it was COMPLETED with work undone."""
    (desk.work / "parts.py").write_text(PARTS)
    shape = ("--nodes", "2", "--gpus", "0", "--time", "9")
    ways = (("--max-requeues", "1"), ("--chain", "1"))
    warned = [desk.submit("ddp", "parts.py", *shape, *way, "--", "SIGUSR2") for way in ways]
    desk.slurm.run("scontrol", "update", "PartitionName=short", "GraceTime=240")
    shape = (*shape, "--partition", "short")
    preempted = [desk.submit("ddp", "parts.py", *shape, *way, "--", "SIGTERM") for way in ways]
    for job in (*warned, *preempted):
        run_dir = Path(job["run_dir"])
        assert eventually((run_dir / "ready-1").exists)
        # Its supervisor has done what it does after the rank's end.
        assert eventually(lambda at=run_dir: "left" in words_of_0(at))
    for job in warned:
        # It says of the task that has ended that it cannot be signalled.
        desk.slurm.run("scancel", "--signal=USR2", f"{job['job_id']}.0", check=False)
    whole = ("--nodes", "2", "--gpus", "0", "--sbatch", "exclusive", "--partition", "urgent")
    for job in warned:
        status = desk.over(job["job_id"])
        assert (status["state"], status["restarts"]) == ("COMPLETED", 1)
    urgent = desk.submit("ddp", SCRIPTS / "seen.py", *whole)
    for job in preempted:
        status = desk.over(job["job_id"])
        assert (status["state"], status["restarts"]) == ("COMPLETED", 1)
        assert [row["why"] for row in status["earlier_attempts"]] == [TAKEN_AWAY]
    assert desk.over(urgent["job_id"])["state"] == "COMPLETED"
    for job in (*warned, *preempted):
        log = Path(job["run_dir"], "logs", "1.out").read_text()
        assert log == "attempt 0\nsaved\nattempt 1\n"
