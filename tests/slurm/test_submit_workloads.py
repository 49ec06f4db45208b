"""Each training workload on two real nodes: COMPLETED, its curve kept, and `stats` knows it."""

import json
from pathlib import Path

import pytest

from tests.conftest import needs
from tests.slurm.conftest import Desk, Record

needs("torch", "sklearn")
pytestmark = [pytest.mark.slurm, pytest.mark.torch]
SMALL = ("--set", "data=digits", "--set", "epochs=2", "--set", "limit=256")
TWO = ("--set", "devices=cpu:2")


def losses(run_dir: str) -> list[float]:
    rows = map(json.loads, (Path(run_dir) / "metrics.jsonl").read_text().splitlines())
    return [row["test_loss"] for row in rows if "test_loss" in row]


def checked(desk: Desk, *words: str) -> Record:
    """Submit, wait until it has COMPLETED, and see that `stats` has figures of it."""
    status = desk.done(*words)
    found = desk.call("stats", status["job_id"], "--json").json
    assert (found["state"], found["sources"][0]) == ("COMPLETED", "samples")
    assert found["summary"]["cpu_s"] > 0
    return status


def test_workloads_of_one_process_have_the_curve_of_ddp(desk: Desk) -> None:
    four = checked(desk, "ddp", "--nodes", "2", "--gpus", "2", *SMALL)
    expected = losses(four["run_dir"])
    assert len(expected) == 2
    for name in ("dp", "mirrored"):
        one = checked(desk, name, "--gpus", "2", *SMALL, *TWO)
        assert losses(one["run_dir"]) == pytest.approx(expected, rel=1e-4), name
    scratch = checked(desk, "from-scratch", "--gpus", "2", *SMALL, *TWO, "--set", "reduce=ring")
    assert len(losses(scratch["run_dir"])) == 2


def test_mpi_ranks_of_two_nodes_have_the_losses_of_one(desk: Desk) -> None:
    """The site does not say how srun starts MPI: hpckit finds out."""
    pytest.importorskip("mpi4py")
    small = {"n-agents": 200, "n-timesteps": 20, "n-epochs": 8, "n-samples-per-epoch": 7}
    words = [word for name, value in small.items() for word in ("--set", f"{name}={value}")]
    curves = {}
    for shape in (("2", "2"), ("1", "1")):
        status = checked(desk, "mpi-vi", "--nodes", shape[0], "--gpus", shape[1], *words)
        rows = (Path(status["run_dir"]) / "metrics.jsonl").read_text().splitlines()
        curves[shape] = [json.loads(row)["total"] for row in rows]
        kept = {path.name for path in Path(status["run_dir"]).iterdir()}
        assert {"posterior.npz", "posterior.png", "loss.png", "predictive.png"} <= kept
    assert len(curves["2", "2"]) == 8
    assert curves["2", "2"] == pytest.approx(curves["1", "1"], rel=1e-6)


@pytest.mark.parametrize("model", ["resnet18", "gpt-small"])
def test_large_networks_take_some_steps(desk: Desk, model: str) -> None:
    data = ("--set", "data=digits") if model == "resnet18" else ()
    some = ("--set", f"model={model}", "--set", "limit=32", "--set", "epochs=1", *data)
    status = checked(desk, "ddp", "--nodes", "2", "--gpus", "1", *some, "--set", "batch-size=16")
    assert len(losses(status["run_dir"])) == 1


def test_devices_are_measured(desk: Desk) -> None:
    sizes = ("size=100", "product-size=64", "seconds=0", "repeat=2", "megabytes=1")
    small = tuple(word for size in sizes for word in ("--set", size))
    status = checked(desk, "device-bench", "--gpus", "2", *TWO, *small)
    found = json.loads((Path(status["run_dir"]) / "device_bench.json").read_text())
    assert found["devices"] == ["cpu", "cpu"]
    assert {"done", "all at once", "all-reduce of 1 MiB, ring"} <= found["seconds"].keys()
    assert found["products"]["cpu"]["fp32"]["tflops"] > 0


def test_an_error_of_one_rank_ends_all_with_one_line(desk: Desk) -> None:
    job_id = desk.submit("ddp", "--nodes", "2", "--gpus", "2", "--set", "data=/nowhere")["job_id"]
    assert desk.over(job_id)["state"] == "FAILED"
    said = desk.call("logs", job_id, "--errors").out
    assert "--data /nowhere: there is no folder /nowhere" in said
    assert "Traceback" not in said
