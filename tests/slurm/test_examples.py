"""The tutorial's batch scripts and commands, on two real nodes."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import needs
from tests.slurm.conftest import HPCKIT, Desk, eventually

needs("torch", "sklearn")
pytestmark = [pytest.mark.slurm, pytest.mark.torch]
ROOT = Path(__file__).parents[2]
FEW = ("--data", "digits", "--limit", "100", "--batch-size", "30", "--epochs", "1")
SEEN = re.compile(r"^rank (\d) of 4 on (\S+) cpu: input \((\d+), 1, 8, 8\)$", re.MULTILINE)


def ran(desk: Desk, name: str, *arguments: str) -> str:
    """Submit a batch script of the tutorial from a copy of its folder; return its output."""
    folder = desk.work / "examples" / "tutorial"
    if not folder.exists():
        shutil.copytree(ROOT / "examples" / "tutorial", folder)
        (desk.work / "workloads").symlink_to(ROOT / "workloads")
    env = desk.env | {
        "HPCKIT_DEVICE": "cpu",
        "PATH": f"{HPCKIT.parent}{os.pathsep}{desk.env['PATH']}",
        "PYTHONUNBUFFERED": "1",
        "TMPDIR": str(desk.home),  # torchrun by hand leaves a folder there
    }
    argv = ["sbatch", "--parsable", "--output=out.txt", name, *arguments]
    done = subprocess.run(argv, cwd=folder, env=env, capture_output=True, text=True, check=True)
    job_id = done.stdout.strip()
    desk.submitted.append(job_id)
    ask = ("sacct", "-X", "-n", "-P", "-o", "State", "-j", job_id)

    def state() -> str:
        return desk.slurm.run(*ask).stdout.strip()

    over = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT")
    assert eventually(lambda: state() in over, pause_s=0.5)
    said = (folder / "out.txt").read_text()
    assert state() == "COMPLETED", said
    return said


def sizes(said: str) -> dict[str, list[int]]:
    """The number of images in each batch, by rank."""
    found: dict[str, list[int]] = {}
    for rank, _, size in SEEN.findall(said):
        found.setdefault(rank, []).append(int(size))
    return found


@pytest.mark.parametrize("name", ["two_nodes_srun.sbatch", "two_nodes_torchrun.sbatch"])
def test_ddp_by_hand_on_two_nodes(desk: Desk, name: str) -> None:
    said = ran(desk, name, *FEW)
    assert "4 ranks on 2 hosts (cpu, gloo)" in said
    # Each shape is told once: batches of 30 are dealt out as 8, 8, 7, 7, the last as 3, 3, 2, 2.
    seen = sizes(said)
    assert sorted(seen) == ["0", "1", "2", "3"]
    assert {size for mine in seen.values() for size in mine} <= {7, 8, 2, 3}
    assert "each rank sees 25 samples per epoch" in said


def test_dp_by_hand(desk: Desk) -> None:
    said = ran(desk, "one_node_dp.sbatch", *FEW, "--devices", "cpu:2")
    # Each shape is told once by each replica: batches of 30, of which the last has 10.
    found = re.findall(r"^replica (\d) on cpu: input \((\d+), 1, 8, 8\)$", said, re.MULTILINE)
    trained = sorted(row for row in found if row[1] in ("15", "5"))  # the others are held out
    assert trained == [("0", "15"), ("0", "5"), ("1", "15"), ("1", "5")]


def test_without_the_sampler_all_ranks_do_all_the_work(desk: Desk) -> None:
    few = ("--set", "data=digits", "--set", "limit=100", "--set", "epochs=1")
    status = desk.done("ddp", "--nodes", "2", "--gpus", "2", *few, "--set", "no-sampler=true")
    said = desk.call("logs", status["job_id"]).out
    assert "each rank sees 100 samples per epoch" in said
