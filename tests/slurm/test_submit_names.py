"""Names that a shell, Slurm or a template could take for something else."""

from pathlib import Path

import pytest

from tests.slurm.conftest import SCRIPTS, Desk, rank_files

pytestmark = pytest.mark.slurm
NASTY = 'it\'s 100%x of "$(touch owned)" `id` a;b & #1'


@pytest.mark.parametrize("name", [NASTY, "100% %x %N", "-dash", "näme ünï"])
def test_a_job_of_that_name_in_that_place_works(desk: Desk, name: str) -> None:
    place = desk.work / name
    place.mkdir()
    script = place / f"{name}.py"
    script.write_text((SCRIPTS / "seen.py").read_text())
    words = (name, "--", "", "two\nlines", "tab\there")
    status = desk.done(
        "ddp", script, "--nodes", "2", "--tasks-per-node", "1", f"--name={name}",
        "--runs", place / "all runs %x", "--", *words, cwd=place,
    )  # fmt: skip
    files = rank_files(status["run_dir"])
    assert [seen["argv"] for seen in files.values()] == [list(words)] * 2
    assert {seen["cwd"] for seen in files.values()} == {str(place)}
    run_dir = Path(status["run_dir"])
    assert run_dir.parent == place / "all runs %x"
    assert (run_dir / "job.out").exists()
    assert (run_dir / "logs" / "1.out").read_text() == "rank 1 restart 0\n"
    assert files[0]["env"]["SLURM_JOB_NAME"] == name
    assert not list(desk.work.rglob("owned"))
    assert {path.name for path in place.iterdir()} == {script.name, "all runs %x"}


def test_an_array_of_that_name_works(desk: Desk) -> None:
    place = desk.work / NASTY
    place.mkdir()
    jobs = desk.submit(
        "serial", SCRIPTS / "seen.py", "--gpus", "0", "--array", "lr=a b,$(touch owned)",
        f"--name={NASTY}", "--runs", place / "runs", cwd=place,
    )["jobs"]  # fmt: skip
    desk.until(jobs[0]["job_id"].partition("_")[0], "COMPLETED", cwd=place)
    given = [rank_files(job["run_dir"])[0]["argv"] for job in jobs]
    assert given == [["--lr", "a b"], ["--lr", "$(touch owned)"]]
    assert all(Path(job["run_dir"], "job.out").exists() for job in jobs)
    assert not list(desk.work.rglob("owned"))


def test_a_backslash_is_a_letter(desk: Desk) -> None:
    place = desk.work / "back\\slash \\n"
    place.mkdir()
    status = desk.done("serial", SCRIPTS / "seen.py", "--gpus", "0", "--name=a\\b 'c\\'", cwd=place)
    (seen,) = rank_files(status["run_dir"]).values()
    assert seen["cwd"] == str(place)
    assert seen["env"]["SLURM_JOB_NAME"] == "a\\b 'c\\'"
    refused = desk.call("submit", "serial", SCRIPTS / "seen.py", "--runs", place, expect=2)
    assert "contains a backslash" in refused.err
    assert list(place.iterdir()) == []


def test_slurms_patterns_in_the_place_of_submission_are_left_alone(desk: Desk) -> None:
    """In a run's folder submitit would rewrite them, so there they are refused."""
    place = desk.work / "100%j %a %A %t"
    place.mkdir()
    status = desk.done("serial", SCRIPTS / "seen.py", "--gpus", "0", "--name=%j_%a", cwd=place)
    (seen,) = rank_files(status["run_dir"]).values()
    assert seen["cwd"] == str(place)
    assert seen["env"]["SLURM_JOB_NAME"] == "%j_%a"
    refused = desk.call("submit", "serial", SCRIPTS / "seen.py", "--runs", place, expect=2)
    assert "contains %j" in refused.err
    assert list(place.iterdir()) == []
