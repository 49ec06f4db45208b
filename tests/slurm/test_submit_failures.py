"""One dead rank ends the job, says where and why, and leaves nothing running."""

from pathlib import Path

import pytest

from tests.slurm.conftest import (
    SCRIPTS,
    Desk,
    Record,
    add_site,
    eventually,
    is_open_mpi_5,
    processes_of,
)

pytestmark = pytest.mark.slurm
FAIL = SCRIPTS / "fail.py"
TWO_BY_TWO = ("--nodes", "2", "--tasks-per-node", "2")


def ended(desk: Desk, *argv: str | Path) -> Record:
    """Submit, and check that the job is over after its rank's failure: the others never end."""
    job = desk.submit("ddp", FAIL, *TWO_BY_TWO, *argv, env={"TMPDIR": str(desk.home)})
    assert eventually(Path(job["run_dir"], "failed").exists)
    status = desk.over(job["job_id"])
    assert status["state"] == "FAILED"
    nothing_runs(job)
    return status


def nothing_runs(job: Record) -> None:
    """Check that nothing of a job is left. Slurm knows its end before all have ended."""
    left = lambda: processes_of(job["run_dir"])  # noqa: E731
    assert eventually(lambda: left() == []), left()


@pytest.mark.parametrize("others", ["", "--deaf"])
def test_a_rank_that_raises_ends_the_job(desk: Desk, others: str) -> None:
    words = [word for word in (others, "--children") if word]
    status = ended(desk, "--", "--rank", "3", *words)
    assert status["exit_code"] == 1
    (failed,) = [row for row in status["ranks"] if row["exit_code"] == 1]
    assert (failed["rank"], failed["host"]) == (3, "c2")
    assert failed["error"].endswith("ValueError: no luck on rank 3")
    report = desk.call("logs", status["job_id"], "--errors").out
    assert report.startswith("rank 3 on c2 failed first, exit status 1")
    assert "Traceback (most recent call last):" in report
    assert "ValueError: no luck on rank 3" in report
    assert "stopped after that: ranks 0, 1, 2" in report
    page = desk.call("status", status["job_id"]).out
    assert "ValueError: no luck on rank 3" in page


@pytest.mark.parametrize("rank", [0, 2])
def test_the_jobs_exit_code_is_the_scripts(desk: Desk, rank: int) -> None:
    status = ended(desk, "--", "--rank", str(rank), "--exit", "7")
    assert status["exit_code"] == 7
    assert exit_code(desk, status["job_id"]) == "7:0"
    report = desk.call("logs", status["job_id"], "--errors").out
    assert report.startswith(f"rank {rank} on c{rank // 2 + 1} failed first, exit status 7")
    assert "about to leave" in report
    waited = desk.call("wait", status["job_id"], "--json", expect=1).json
    assert (waited["state"], waited["exit_code"]) == ("FAILED", 7)


@pytest.mark.parametrize("others", ["", "--deaf"])
def test_under_torchrun_too(desk: Desk, others: str) -> None:
    words = [word for word in (others, "--children") if word]
    status = ended(desk, "--launcher", "torchrun", "--", "--rank", "3", "--exit", "7", *words)
    assert status["exit_code"] == 7
    assert exit_code(desk, status["job_id"]) == "7:0"
    report = desk.call("logs", status["job_id"], "--errors").out
    assert report.startswith("rank 3 on c2 failed first, exit status 7")
    assert not [*desk.home.glob("torchelastic*")]


def test_under_mpirun_too(desk: Desk) -> None:
    job = ("mpi", FAIL, *TWO_BY_TWO, "--launcher", "mpirun", "--", "--rank", "3", "--exit", "7")
    record = desk.submit(*job)
    status = desk.over(record["job_id"])
    assert Path(record["run_dir"], "failed").exists()
    assert (status["state"], status["exit_code"]) == ("FAILED", 7)
    assert exit_code(desk, status["job_id"]) == "7:0"
    report = desk.call("logs", status["job_id"], "--errors").out
    assert report.startswith("rank 3 on c2 failed first, exit status 7")
    nothing_runs(record)


def exit_code(desk: Desk, job_id: str) -> str:
    """Give Slurm's own word: exit status, and signal."""
    return desk.scontrol(job_id)["ExitCode"]


def test_an_mpi_rank_that_fails_ends_all_and_is_named(desk: Desk) -> None:
    """MPI_Finalize waits for all ranks: one that left would wait there until the time limit."""
    pytest.importorskip("mpi4py")
    add_site(desk, "launch: {mpi: pmix}\n")
    shape = (*TWO_BY_TWO, "--site", "box", "--launcher")
    jobs = {
        (launcher, how): desk.submit("mpi", SCRIPTS / "mpi_fail.py", *shape, launcher, "--", how)
        for launcher, how in (
            ("srun", "raise"),
            ("srun", "3"),
            ("mpirun", "raise"),
            ("mpirun", "3"),
        )
    }
    for (launcher, how), job in jobs.items():
        status = desk.over(job["job_id"])
        code = 1 if how == "raise" else 3
        assert (status["state"], status["exit_code"]) == ("FAILED", code)
        said = exit_code(desk, job["job_id"])
        # A rank of Open MPI 5 that sees the failed one's connection close aborts, too.
        aborted = launcher == "srun" and said == "14:0" and is_open_mpi_5(desk)
        assert said == f"{code}:0" or aborted, said
        report = desk.call("logs", job["job_id"], "--errors").out
        assert report.startswith(f"rank 3 on c2 failed first, exit status {code}")
        assert ("ValueError: no luck on rank 3" in report) == (how == "raise")
        assert not list(Path(job["run_dir"]).glob("through-*"))
        nothing_runs(job)


def appear(job: Record, pattern: str, count: int) -> None:
    """Wait until a job has made so many files."""
    folder = Path(job["run_dir"])
    assert eventually(lambda: len(list(folder.glob(pattern))) == count), pattern


def test_signals_reach_the_script_and_its_status_slurm(desk: Desk) -> None:
    heed = SCRIPTS / "heed.py"
    launched = ("--nodes", "2", "--tasks-per-node", "1", "--launcher", "torchrun")
    tasks = desk.submit("serial", heed, "--gpus", "0", "--array", "lr=4,5")["jobs"]
    jobs = {4: tasks[0], 5: tasks[1], 6: desk.submit("ddp", heed, *launched, "--", "6")}
    for job in jobs.values():
        ranks = 2 if job is jobs[6] else 1
        appear(job, "ready-*", ranks)
        for number, name in enumerate(("USR1", "HUP", "USR2"), 1):
            desk.slurm.run("scancel", f"--signal={name}", job["job_id"])
            appear(job, "heard-*", number * ranks)
    for code, job in jobs.items():
        status = desk.over(job["job_id"])
        assert (status["state"], status["exit_code"]) == ("FAILED", code)
        assert exit_code(desk, job["job_id"]) == f"{code}:0"


def test_a_script_that_cannot_start_is_named(desk: Desk) -> None:
    broken = desk.work / "broken.py"
    broken.write_text("import no_such_package\n")
    status = desk.over(desk.submit("serial", broken, "--gpus", "0")["job_id"])
    assert (status["state"], status["exit_code"]) == ("FAILED", 1)
    report = desk.call("logs", status["job_id"], "--errors").out
    assert "ModuleNotFoundError: No module named 'no_such_package'" in report
