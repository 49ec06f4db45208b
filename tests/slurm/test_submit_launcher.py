"""A launcher of a package that is installed beside hpckit, on real nodes."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.integration.installed import command, install
from tests.slurm.conftest import SCRIPTS, Desk, rank_files
from tests.slurm.test_submit_ranks import TWO_BY_FOUR, check_places

pytestmark = pytest.mark.slurm


def submit(desk: Desk, script: Path, *words: str) -> str:
    argv = command(install(desk.home / "venv", "fork = fork_launcher:Fork"))
    argv += ["submit", "ddp", str(script), *TWO_BY_FOUR, "--launcher", "fork", "--json", *words]
    done = subprocess.run(
        argv, env=desk.env, cwd=desk.work, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    job_id: str = json.loads(done.stdout)["job_id"]
    desk.submitted.append(job_id)
    return job_id


def test_its_ranks_know_who_and_where_they_are(desk: Desk) -> None:
    status = desk.over(submit(desk, SCRIPTS / "seen.py"))
    assert status["state"] == "COMPLETED"
    check_places(rank_files(status["run_dir"]), "fork")
    assert [row["host"] for row in status["ranks"]] == ["c1"] * 4 + ["c2"] * 4


def test_one_failing_rank_ends_those_of_the_other_node(desk: Desk) -> None:
    job_id = submit(desk, SCRIPTS / "fail.py", "--", "--rank", "5", "--exit", "7")
    status = desk.over(job_id)
    assert status["state"] == "FAILED"
    said = desk.call("logs", job_id, "--errors").out
    assert said.startswith("rank 5 on c2 failed first, exit status 7")
    assert [row["rank"] for row in status["ranks"] if row["exit_code"] is None] == []
