"""The wave_inversion workload on two real nodes: shots over four ranks, one answer."""

import json
from pathlib import Path

import pytest

from tests.conftest import needs
from tests.slurm.conftest import Desk

needs("torch", "deepwave", "scipy", "matplotlib")
pytestmark = [pytest.mark.slurm, pytest.mark.torch]
SMALL = {
    "shape": "60,40",
    "nt": 80,
    "taper": 20,
    "receivers": 20,
    "smooth": 5,
    "shots": 6,
    "frequencies": "15",
    "steps": 1,
    "iterations": 2,
}
WORDS = [part for name, value in SMALL.items() for part in ("--set", f"{name}={value}")]


def test_four_ranks_on_two_nodes_invert(desk: Desk) -> None:
    status = desk.done("wave_inversion", "--nodes", "2", "--gpus", "2", *WORDS)
    out = Path(status["run_dir"])
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert rows[1]["model_error"] < rows[0]["model_error"]
    assert (out / "models.png").exists()
    said = desk.call("logs", status["job_id"]).out
    assert "4 ranks on 2 hosts (cpu, gloo), 1 or 2 shots each" in said


def test_a_model_that_is_not_there_is_said_once(desk: Desk) -> None:
    words = ("--set", "velocity=/nowhere.npy")
    job_id = desk.submit("wave_inversion", "--nodes", "2", "--gpus", "1", *words)["job_id"]
    assert desk.over(job_id)["state"] == "FAILED"
    said = desk.call("logs", job_id, "--all", expect=None).out
    assert said.count("--velocity /nowhere.npy cannot be read") == 1
    assert "Traceback" not in said
