"""`accelerate launch` under hpckit: one task on each node, told where the others are."""

import json
from pathlib import Path

import pytest

from tests.clients.page import read_page
from tests.clients.test_clients import Shell, logs
from tests.slurmbox.fixture import Slurm

pytestmark = [pytest.mark.slurm, pytest.mark.clients, pytest.mark.timeout(600)]
ROOT = Path(__file__).parents[2]
LAUNCH = ROOT / "examples" / "launchers" / "accelerate.sh"
ENDS = """\
import os, sys
print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], flush=True)
if os.environ["NODE_RANK"] == "1":
    sys.exit(3) if sys.argv[2] == "3" else os.kill(os.getpid(), 11)
import time
time.sleep(600)
"""


def test_accelerate_launch_on_two_nodes(slurm: Slurm, client_venv: Path, tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()  # accelerate's torchrun leaves a folder there when it is ended
    env = {"ACCELERATE_USE_CPU": "1", "TMPDIR": str(tmp_path / "tmp")}
    shell = Shell(tmp_path, slurm.env | env)
    (tmp_path / "accelerate_train.py").write_text(read_page()["accelerate_train.py"].text)
    (tmp_path / "ends.py").write_text(ENDS)
    each = f"--nodes 2 --tasks-per-node 1 --gpus 0 --sample-interval 1 --env {client_venv}"
    shown = LAUNCH.read_text().partition("exec ")[2]
    assert shown in (ROOT / "docs" / "programs.md").read_text()
    line = f"{LAUNCH} {each} --json -- accelerate_train.py"
    whole = json.loads(shell.type(f"hpckit submit serial {line}").stdout)
    line = f"{each} --array how=3,segv --json -- launch --cpu --num_processes 1 ends.py"
    ends = json.loads(shell.type(f"hpckit submit serial accelerate {line}").stdout)["jobs"]
    ended = shell.type(f"hpckit wait {whole['job_id']}")
    assert ended.returncode == 0, ended.stdout + ended.stderr + logs(tmp_path)
    said = [Path(whole["run_dir"], "logs", f"{rank}.out").read_text() for rank in (0, 1)]
    assert "rank 0 of 2: weight " in said[0]
    assert said[1] == said[0].replace("rank 0", "rank 1")
    samples = {path.name[:2] for path in Path(whole["run_dir"], "samples").iterdir()}
    assert samples == {"c1", "c2"}
    for job, how in zip(ends, ("exit status 3", "SIGSEGV"), strict=True):
        assert shell.type(f"hpckit wait {job['job_id']}").returncode == 1
        report = shell.type(f"hpckit logs {job['job_id']} --errors").stdout
        assert report.startswith("rank 1 on c2 failed first, exit status 1, "), report
        assert how in report, report
