"""`hpckit scale` on a real Slurm: runs in several sizes, gathered and drawn; who stops waiting."""

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.conftest import needs
from tests.patience import LONG_S
from tests.slurm.conftest import HPCKIT, Desk, Record, eventually

needs("torch", "sklearn")
pytestmark = [pytest.mark.slurm, pytest.mark.torch]
QUIET = ("--sample-interval", "0")  # nobody looks at the samples
SMALL_VI = {
    "n-agents": 50,
    "n-timesteps": 5,
    "n-epochs": 4,
    "n-samples-per-epoch": 2,
    "n-samples-regularisation": 100,
    "posterior-samples": 10,
    "no-figures": "true",
}
SMALL_DDP = {"data": "digits", "limit": 256, "batch-size": 16, "epochs": 1, "checkpoint-every": 0}


def settings(values: dict[str, object]) -> list[str]:
    return [word for name, value in values.items() for word in ("--set", f"{name}={value}")]


def ranks_times(run_dir: str) -> tuple[float, float]:
    """Return when the first rank of a run began, and when its last one ended."""
    files = Path(run_dir, "ranks").glob("*.json")
    ranks = [json.loads(path.read_text())["attempts"][0] for path in files]
    return min(rank["started"] for rank in ranks), max(rank["ended"] for rank in ranks)


def all_count(found: Record, sizes: list[int]) -> None:
    """Check that each run counts, and that the figures are those of its metrics."""
    assert [row["size"] for row in found["sizes"]] == sizes
    assert [(row["runs"], row["runs_of"]) for row in found["sizes"]] == [(2, 2)] * len(sizes)
    assert found["timed"] == "program"
    assert all(row["efficiency"]["value"] > 0 for row in found["sizes"])
    assert found["sizes"][1]["efficiency"]["low"] is not None
    first = found["sizes"][0]["time_s"]["value"]
    for row in found["sizes"]:
        assert row["time_s"]["value"] == pytest.approx(sum(row["seconds"]) / 2, rel=1e-3)
        assert row["speed_up"]["value"] == pytest.approx(first / row["time_s"]["value"], rel=1e-3)
    assert found["law"]["standard_error"] is None


def test_mpi_vi_over_gpus_is_timed_and_drawn(desk: Desk) -> None:
    """The seeds' picture of time over GPUs, by one command."""
    pytest.importorskip("mpi4py")
    words = ("scale", "mpi_vi", "--gpus", "1,2", "--repeat", "2", *QUIET, *settings(SMALL_VI))
    shown = ("--png", "time.png", "--html", "study.html")
    found = desk.call(*words, *shown, "--full-epochs", "500", "--json").json
    all_count(found, [1, 2])
    one, two = found["sizes"]
    assert one["communication_s"] == 0  # a rank alone sends nothing
    assert two["communication_s"] > 0
    assert one["compute_s"] == pytest.approx(one["time_s"]["value"], rel=1e-3)
    assert (one["input_s"], found["full"]) == (None, {"steps": 500, "from": "--full-epochs"})
    assert any("ran on CPUs" in line for line in found["notes"])
    assert (desk.work / "time.png").read_bytes().startswith(b"\x89PNG")
    assert found["study"] in (desk.work / "study.html").read_text()
    files = [*desk.runs.glob("*/metrics.jsonl")]
    assert len(files) == 4
    for file in files:
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        drawn = [row["samples_per_s"] * row["s_per_step"] for row in rows]
        assert drawn == pytest.approx([2] * 4)  # --n-samples-per-epoch
    # Round by round, there and back; and the same again from the runs alone.
    rows = sorted(found["runs"], key=lambda row: int(row["job_id"]))
    assert [row["size"] for row in rows] == [1, 2, 2, 1]
    again = desk.call("scale", "--from", found["study"], "--full-epochs", "500", "--json").json
    assert again == found


def test_ddp_over_nodes_is_timed(desk: Desk) -> None:
    words = ("scale", "ddp", "--nodes", "1,2", "--repeat", "2", *QUIET, *settings(SMALL_DDP))
    found = desk.call(*words, "--json").json
    all_count(found, [1, 2])
    assert [row["nodes"] for row in found["sizes"]] == [1, 2]
    assert all(row["input_s"] > 0 for row in found["sizes"])


def test_who_stops_waiting_gathers_it_later(desk: Desk) -> None:
    """Ctrl-C ends the wait alone; a size that the cluster does not have is refused beforehand."""
    script = desk.work / "steps.py"
    script.write_text(
        "import json, os, pathlib, time\n"
        "gate = pathlib.Path('gate')\n"
        "while not gate.exists(): time.sleep(0.05)\n"
        "if os.environ['RANK'] == '0':\n"
        "    with open(os.environ['HPCKIT_RUN_DIR'] + '/metrics.jsonl', 'a') as log:\n"
        "        for step in (1, 2, 3):\n"
        "            print(json.dumps({'step': step, 's_per_step': 1.5}), file=log)\n"
    )
    refused = desk.call("scale", "ddp", script, "--nodes", "1,2,64", expect=None)
    assert refused.status != 0
    assert not desk.runs.exists() or not list(desk.runs.iterdir())
    with (desk.work / "said").open("w+") as said:
        waiting = subprocess.Popen(
            [HPCKIT, "scale", "ddp", script, "--nodes", "1,2", "--gpus", "1", "--repeat", "1",
             "--in-turn"],
            env=desk.env, cwd=desk.work, stdout=said, stderr=said, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        # The second waits for the first, and that one for us.
        one_of_each = "2 runs: 1 PENDING, 1 RUNNING"
        assert eventually(lambda: one_of_each in (desk.work / "said").read_text())
        os.kill(waiting.pid, signal.SIGINT)
        assert waiting.wait(LONG_S) == 130
    words = (desk.work / "said").read_text()
    assert "the runs go on. Gather them: hpckit scale --from steps-scale-" in words
    (desk.work / "gate").touch()
    found = desk.call("scale", "--from", "latest", "--json").json
    assert [row["seconds"] for row in found["sizes"]] == [[1.5], [1.5]]
    assert f"--from {found['study']}" in words
    one, two = (desk.status(row["job_id"])["run_dir"] for row in found["runs"])
    assert ranks_times(one)[1] <= ranks_times(two)[0]  # it began when the first was over
