"""Scripts that hpckit has never seen run unchanged: Lightning and Hugging Face accelerate."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import HPCKIT
from tests.slurmbox.fixture import Slurm

pytestmark = [pytest.mark.slurm, pytest.mark.clients, pytest.mark.timeout(120)]

_HERE = Path(__file__).parent
LIGHTNING = _HERE / "lightning_script.py"
ACCELERATE = _HERE / "accelerate_script.py"
LAUNCHERS = pytest.mark.parametrize("launcher", ["srun", "torchrun"])


@LAUNCHERS
def test_lightning_on_two_nodes(
    launcher: str, slurm: Slurm, client_venv: Path, tmp_path: Path
) -> None:
    ranks = run_client(LIGHTNING, tmp_path, client_venv, slurm.env, "slurm", launcher)
    assert [rank["host"] for rank in ranks] == ["c1", "c1", "c2", "c2"]
    assert [rank["node_rank"] for rank in ranks] == [0, 0, 1, 1]
    assert {rank["steps"] for rank in ranks} == {5}


@LAUNCHERS
def test_accelerate_on_two_nodes(
    launcher: str, slurm: Slurm, client_venv: Path, tmp_path: Path
) -> None:
    ranks = run_client(ACCELERATE, tmp_path, client_venv, slurm.env, "slurm", launcher)
    assert [rank["host"] for rank in ranks] == ["c1", "c1", "c2", "c2"]
    # 256 samples in batches of 8, shared by 4.
    assert {rank["steps"] for rank in ranks} == {8}


# On this machine torchrun gives each script the same as on Slurm: one launcher each is enough.
def test_lightning_on_two_simulated_nodes(client_venv: Path, tmp_path: Path) -> None:
    ranks = run_client(LIGHTNING, tmp_path, client_venv, {}, "local", "srun")
    assert [rank["node_rank"] for rank in ranks] == [0, 0, 1, 1]


def test_accelerate_on_two_simulated_nodes(client_venv: Path, tmp_path: Path) -> None:
    run_client(ACCELERATE, tmp_path, client_venv, {}, "local", "torchrun")


def run_client(
    script: Path, folder: Path, venv: Path, env: dict[str, str], executor: str, launcher: str
) -> list[dict[str, Any]]:
    """Run a script on 2 x 2 ranks; return what each rank saw, checked."""
    out = folder / "out"
    out.mkdir()
    command = [
        *(*HPCKIT, "submit", "ddp", str(script), "--nodes", "2", "--gpus", "2", "--time", "2"),
        *("--env", str(venv), "--executor", executor, "--launcher", launcher, "--wait", "--json"),
        *("--", str(out), "2"),
    ]
    done = subprocess.run(
        command,
        cwd=folder,
        env={**_clean_environment(), **env, "XDG_STATE_HOME": str(folder / "state")},
        capture_output=True,
        text=True,
        check=False,
        timeout=110,
    )
    assert done.returncode == 0, done.stdout + done.stderr + logs(folder)
    assert json.loads(done.stdout)["state"] == "COMPLETED"
    ranks = [json.loads((out / f"{rank}.json").read_text()) for rank in range(4)]
    assert len(list(out.iterdir())) == 4
    assert [rank["rank"] for rank in ranks] == [0, 1, 2, 3]
    assert [rank["local_rank"] for rank in ranks] == [0, 1, 0, 1]
    assert {rank["world_size"] for rank in ranks} == {rank["gathered"] for rank in ranks} == {4}
    assert all(rank["same_weights"] for rank in ranks)
    assert {rank["python"] for rank in ranks} == {str(venv)}
    return ranks


def logs(folder: Path) -> str:
    """Return all logs of a run that failed."""
    found = [path for part in ("job.out", "logs/*") for path in folder.glob(f"runs/*/{part}")]
    return "".join(f"\n--- {path}\n{path.read_text()}" for path in sorted(found))


def _clean_environment() -> dict[str, str]:
    """Return this process's environment without what torch scripts and hpckit would react to."""
    prefixes = ("HPCKIT_", "SLURM", "SBATCH", "SUBMITIT", "PYTHON", "VIRTUAL_ENV")
    ours = {name: value for name, value in os.environ.items() if not name.startswith(prefixes)}
    return {**ours, "OMP_NUM_THREADS": "1"}
