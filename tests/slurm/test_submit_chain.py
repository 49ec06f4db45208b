"""`--chain`: jobs that follow one another where requeues are forbidden, as one run."""

from pathlib import Path

import pytest

from tests.slurm.conftest import SCRIPTS, Desk, eventually, lacking
from tests.slurm.test_submit_requeue import attempts

pytestmark = pytest.mark.slurm
EVERYTHING = ("--nodes", "2", "--gpus", "4")
SMALL = ("--gpus", "0", "--time", "5", "--sample-interval", "0")
# Waits in its first two attempts: for a signal to save its state, then until it is taken away.
WAITS = """\
import os, signal, sys, time
from pathlib import Path
here, attempt = Path(os.environ["HPCKIT_RUN_DIR"]), os.environ["HPCKIT_RESTART"]
def save(signum, frame):
    signal.signal(signum, signal.SIG_IGN)
    (here / "checkpoints").mkdir(exist_ok=True)
    (here / "checkpoints" / os.environ["RANK"]).write_text("step 3")
    sys.exit(0)
signal.signal(signal.SIGUSR2, save)
found = here / "checkpoints" / os.environ["RANK"]
print("attempt", attempt, "from", found.read_text() if found.exists() else "nothing", flush=True)
while attempt in "01":
    time.sleep(0.1)
"""
# It says that it handles the signal: where Slurm itself sends that, too, hpckit may look at the
# script for the first time when it ignores the signal while it saves.
WORKLOAD = "description: d\nstrategy: ddp\nscript: waits.py\nhandles_stop_signal: true\n"


def queued(desk: Desk, job_id: str) -> str:
    return desk.slurm.run("squeue", "-h", "-t", "all", "-j", job_id, "-o", "%T").stdout.strip()


def workload(desk: Desk) -> str:
    """Make a workload of the script; return its name."""
    folder = desk.work / "workloads" / "waits"
    folder.mkdir(parents=True)
    (folder / "workload.yaml").write_text(WORKLOAD)
    (folder / "waits.py").write_text(WAITS)
    return folder.name


def test_a_chain_goes_on_until_the_work_is_done(desk: Desk) -> None:
    job = desk.submit(workload(desk), *EVERYTHING, "--time", "9", "--chain", "3")
    run_dir, said = Path(job["run_dir"]), desk.status(job["job_id"])
    first, second, third, fourth = said["chain"]
    assert first == job["job_id"]
    logs = [run_dir / "logs" / f"{rank}.out" for rank in range(8)]

    def all_in(attempt: int) -> bool:
        return all(log.exists() and f"attempt {attempt} " in log.read_text() for log in logs)

    assert eventually(lambda: all_in(0))
    # What Slurm sends before a time limit: the script saves its state, and the next job goes on.
    desk.slurm.run("scancel", "--signal=USR2", first)
    assert eventually(lambda: all_in(1))
    assert desk.status(second)["restarts"] == 1
    urgent = desk.submit("ddp", SCRIPTS / "seen.py", *EVERYTHING, "--partition", "urgent")
    assert desk.over(urgent["job_id"])["state"] == "COMPLETED"
    desk.call("wait", job["job_id"])
    status = desk.status(fourth)
    assert (status["state"], status["restarts"], status["exit_code"]) == ("COMPLETED", 2, 0)
    assert status["job_id"] == first
    states = [queued(desk, name) for name in (first, second, third, fourth)]
    assert states == ["FAILED", "PREEMPTED", "COMPLETED", "CANCELLED"]
    for rank in range(8):
        rows = attempts(job["run_dir"], rank)
        assert [row["restart"] for row in rows] == [0, 1, 2]
        lines = logs[rank].read_text().splitlines()
        assert [line for line in lines if line.startswith("attempt")] == [
            "attempt 0 from nothing",
            "attempt 1 from step 3",
            "attempt 2 from step 3",
        ]
    log = (run_dir / "job.out").read_text()
    assert f"hpckit: job {first} has ended before the work was done; job {second} goes on." in log
    assert f"hpckit: job {second} has ended before the work was done; job {third} goes on." in log
    stats = desk.call("stats", third, "--json").json
    assert [row["restart"] for row in stats["attempts"]] == [0, 1, 2]
    assert stats["state"] == "COMPLETED"
    page = desk.call("status", first).out
    assert (
        f"  chain    job {third} is attempt 3 of 4 ({first}, {second}, {third}, {fourth})" in page
    )


def test_a_chain_ends_with_a_job_that_failed_by_itself(desk: Desk) -> None:
    # A cluster on which a job cannot take others out of the queue: they start, and end at once.
    fails = lacking(desk, desk.home / "bin", scancel="echo 'scancel: error: no' >&2; exit 1")
    job = desk.submit("serial", SCRIPTS / "fail.py", *SMALL, "--chain", "2", env=fails)
    jobs = desk.status(job["job_id"])["chain"]
    ranks = ("--tasks-per-node", "2", "--launcher", "mpirun")
    fails = ("mpi", SCRIPTS / "mpi_fail.py", *SMALL, *ranks, "--chain", "2", "--", "3")
    asked = desk.submit(*fails)
    assert eventually(lambda: [queued(desk, name) for name in jobs] == ["FAILED"] * 3)
    assert desk.over(jobs[2])["state"] == "FAILED"
    log = Path(job["run_dir"], "job.out").read_text()
    why = "rank 0 on c1 failed first, exit status 1"
    assert f"hpckit: job {jobs[0]} failed: {why}" in log
    assert "The next 2 jobs would fail again, so none runs.\n" in log
    assert f"hpckit: job {jobs[0]} cannot cancel {jobs[1]}, {jobs[2]}, which will end at" in log
    assert f"hpckit: job {jobs[2]} is not needed: job {jobs[0]} failed ({why}" in log
    assert len(attempts(job["run_dir"], 0)) == 1
    desk.over(asked["job_id"])
    rest = desk.status(asked["job_id"])["chain"][1:]
    assert eventually(lambda: [queued(desk, name) for name in rest] == ["CANCELLED"] * 2)


def test_a_job_that_waits_may_be_cancelled_and_the_others_go_on(desk: Desk) -> None:
    """The last one waits for the first, too: it began beside it, and called it failed."""
    (desk.work / "waits.py").write_text(WAITS)
    job = desk.submit("serial", "waits.py", *SMALL, "--chain", "2")
    first, second, third = desk.status(job["job_id"])["chain"]
    log = Path(job["run_dir"], "logs", "0.out")
    assert eventually(lambda: log.exists() and "attempt 0 " in log.read_text())
    # Of these jobs Slurm will call one COMPLETED, and the first FAILED.
    after = ("serial", SCRIPTS / "seen.py", *SMALL, "--after")
    waiting = [desk.submit(*after, f"{kind}{third}")["job_id"] for kind in ("", "afterany:")]
    desk.slurm.run("scancel", second)
    assert eventually(lambda: queued(desk, second) == "CANCELLED")
    status = desk.status(third)
    assert (status["state"], status["restarts"], queued(desk, third)) == ("RUNNING", 0, "PENDING")
    desk.slurm.run("scancel", "--signal=USR2", first)
    status = desk.over(first)
    assert (status["state"], status["restarts"]) == ("COMPLETED", 1)
    assert [desk.over(job_id)["state"] for job_id in waiting] == ["COMPLETED"] * 2
    assert log.read_text() == "attempt 0 from nothing\nattempt 2 from step 3\n"


def test_a_chain_that_was_held_goes_on_once_its_first_job_is_released(desk: Desk) -> None:
    job = desk.submit(workload(desk), *SMALL, "--chain", "1", "--sbatch", "hold")
    first, second = desk.status(job["job_id"])["chain"]
    assert eventually(lambda: desk.status(first)["reason"] == "JobHeldUser")
    desk.slurm.run("scontrol", "release", first)
    log = Path(job["run_dir"], "logs", "0.out")
    for attempt, name in enumerate((first, second)):
        assert eventually(lambda to=attempt: log.exists() and f"attempt {to} " in log.read_text())
        desk.slurm.run("scancel", "--signal=USR2", name)
    assert desk.over(first)["restarts"] == 1


def test_a_chain_outlives_its_node(desk: Desk) -> None:
    """Its script has no time to say what became of it, or is told that all went well."""
    (desk.work / "waits.py").write_text(WAITS)
    job = desk.submit("serial", "waits.py", *SMALL, "--chain", "2", "--sbatch", "nodelist=c2")
    log = Path(job["run_dir"], "logs", "0.out")
    assert eventually(lambda: log.exists() and "attempt 0 " in log.read_text())
    update = ("scontrol", "update", "nodename=c2")
    desk.slurm.run(*update, "state=down", "reason=test")
    assert eventually(lambda: queued(desk, job["job_id"]) == "NODE_FAIL")
    # Refused where the node has come back by itself (ReturnToService=2), or not yet gone.

    def goes_on() -> bool:
        desk.slurm.run(*update, "state=resume", check=False)
        return "attempt 1 " in log.read_text()

    assert eventually(goes_on)
    desk.slurm.kill_node("c2", noticed=True)
    desk.slurm.start_node("c2")
    status = desk.over(job["job_id"])
    assert (status["state"], status["restarts"]) == ("COMPLETED", 2)


def test_all_jobs_of_a_chain_are_cancelled(desk: Desk) -> None:
    job = desk.submit("ddp", SCRIPTS / "patient.py", *SMALL, "--chain", "2")
    assert eventually(Path(job["run_dir"], "port-0").exists)
    jobs = desk.status(job["job_id"])["chain"]
    desk.call("cancel", jobs[1])
    assert desk.over(job["job_id"])["state"] == "CANCELLED"
    assert [queued(desk, name) for name in jobs] == ["CANCELLED"] * 3
    assert len(attempts(job["run_dir"], 0)) == 1
