"""A launcher that hpckit has never heard of: one file, which is installed beside it."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.installed import command, install
from tests.patience import LONG_S

pytestmark = pytest.mark.long

SCRIPT = """\
import json, os, pathlib, signal, sys, time
names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK")
print(*(os.environ[name] for name in names), flush=True)
if os.environ["RANK"] == "2" and sys.argv[1:] == ["fail"]:
    logs = pathlib.Path(os.environ["HPCKIT_RUN_DIR"], "logs")
    while sum(path.stat().st_size > 0 for path in logs.glob("*.out")) < 4:
        time.sleep(0.05)
    raise SystemExit(3)
if sys.argv[1:]:
    time.sleep(600)
"""
SHAPE = ("--executor", "local", "--nodes", "2", "--gpus", "0", "--tasks-per-node", "2")
Hpckit = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def hpckit(here: Path) -> Hpckit:
    """Give the hpckit of a Python in which that launcher is installed too."""
    argv = command(install(here.parent / "venv", "fork = fork_launcher:Fork"))

    def call(*words: str, status: int = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [*argv, *words], capture_output=True, text=True, check=False, timeout=LONG_S
        )
        assert done.returncode == status, done.stdout + done.stderr
        return done

    (here / "s.py").write_text(SCRIPT)
    return call


def submit(hpckit: Hpckit, *words: str, status: int = 0) -> tuple[Path, dict[str, Any]]:
    argv = ("submit", "ddp", "s.py", "--launcher", "fork", *SHAPE, "--wait", "--json", *words)
    said = json.loads(hpckit(*argv, status=status).stdout)
    return Path(said["run_dir"]), said


def test_its_ranks_have_places_logs_and_records(hpckit: Hpckit) -> None:
    folder, said = submit(hpckit)
    assert said["state"] == "COMPLETED"
    for rank in range(4):
        assert (folder / f"logs/{rank}.out").read_text() == f"{rank} 4 {rank % 2} 2 {rank // 2}\n"
        (attempt,) = json.loads((folder / f"ranks/{rank}.json").read_text())["attempts"]
        assert attempt["exit_code"] == 0
    assert json.loads((folder / "run.json").read_text())["plan"]["launcher"] == "fork"
    assert "0 GPUs, ddp by fork\n" in hpckit("status", "latest").stdout


def test_a_rank_that_fails_ends_the_others_and_gives_the_status(hpckit: Hpckit) -> None:
    folder, said = submit(hpckit, "--", "fail", status=1)
    assert (said["state"], said["exit_code"]) == ("FAILED", 3)
    records = [json.loads((folder / f"ranks/{rank}.json").read_text()) for rank in range(4)]
    assert [row["attempts"][0]["consequence"] for row in records] == [True, True, False, True]
    errors = hpckit("logs", "latest", "--errors").stdout
    assert "rank 2 on " in errors
    assert "stopped after that: ranks 0, 1, 3" in errors


def test_its_own_limits_and_its_argv_on_slurm(hpckit: Hpckit) -> None:
    said = hpckit("submit", "mpi", "s.py", "--launcher", "fork", *SHAPE, status=2).stderr
    assert "--launcher fork knows nothing of MPI. (--skip-check launcher submits" in said
    words = ("--launcher", "fork", "--executor", "slurm", "--nodes", "2", "--gpus", "4")
    script = hpckit("submit", "ddp", "s.py", *words, "--max-requeues", "1", "--dry-run").stdout
    (line,) = (line for line in script.splitlines() if line.startswith("srun "))
    assert "--nodes=2 --ntasks=2 --ntasks-per-node=1" in line
    assert "#SBATCH --signal=USR2@" in script  # its supervisors are tasks: no `B:`
