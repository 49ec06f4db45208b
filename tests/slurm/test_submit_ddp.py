"""The default workload on a real Slurm: a model is trained by four ranks on two nodes.

The README's own line has eight: `test_pages` types it.
"""

import json
from collections import Counter
from pathlib import Path

import pytest

from tests.slurm.conftest import Desk, Record

pytestmark = [pytest.mark.slurm, pytest.mark.torch]


def trained(desk: Desk, gpus: int, *options: str) -> tuple[Record, float]:
    """Train the default workload on its default data; give status and accuracy."""
    options = (*options, "--set", "epochs=3")
    argv = ("submit", "ddp", "--nodes", "2", "--gpus", str(gpus), *options, "--wait", "--json")
    record = desk.call(*argv, env={"TMPDIR": str(desk.home)}).json
    assert (record["state"], record["exit_code"], record["executor"]) == ("COMPLETED", 0, "slurm")
    lines = map(json.loads, Path(record["run_dir"], "metrics.jsonl").read_text().splitlines())
    accuracies = [line["test_accuracy"] for line in lines if "test_accuracy" in line]
    return desk.status(record["job_id"]), float(accuracies[-1])


@pytest.mark.parametrize("launcher", ["srun", "torchrun"])
def test_the_ddp_workload_trains_on_two_nodes(desk: Desk, launcher: str) -> None:
    gpus = 2
    status, accuracy = trained(desk, gpus, "--launcher", launcher)
    assert accuracy >= 0.93
    assert status["nodes"] == ["c1", "c2"]
    assert [row["rank"] for row in status["ranks"]] == list(range(2 * gpus))
    assert [row["host"] for row in status["ranks"]] == ["c1"] * gpus + ["c2"] * gpus
    assert Counter(row["exit_code"] for row in status["ranks"]) == {0: 2 * gpus}
    log = desk.call("logs", status["job_id"]).out
    assert f"{2 * gpus} ranks on 2 hosts" in log
    assert f"held-out accuracy {accuracy:.3f}" in log
    assert not [*desk.home.glob("torchelastic*")]  # torchrun alone leaves a folder per node
