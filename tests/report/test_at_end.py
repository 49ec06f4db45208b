"""What a job says of itself in a ledger, at the end of each attempt."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.report.made import START, make_run, write_samples

ENV = {
    "SLURM_CLUSTER_NAME": "c", "SLURM_JOB_ACCOUNT": "lab", "SLURM_JOB_PARTITION": "gpu",
    "SLURM_RESTART_COUNT": "1", "SLURM_JOB_START_TIME": str(START + 7190),
}  # fmt: skip


def attempt(restart: int, **changes: Any) -> dict[str, Any]:
    begun = START + 7200 * restart
    usual = {
        "rank": 0, "restart": restart, "host": "n1", "device": "cuda", "pid": 1, "started": begun,
        "ended": begun + 3600, "exit_code": 0,
    }  # fmt: skip
    return usual | changes


def line_of(folder: Path, ledger: Path, *attempts: dict[str, Any]) -> dict[str, Any]:
    """Let a job whose ranks ended like that write its line."""
    for path in (folder / "ranks").iterdir():
        rank = int(path.stem)
        rows = [row | {"rank": rank} for row in attempts]
        path.write_text(json.dumps({"rank": rank, "attempts": rows}))
    for path in ledger.iterdir():
        path.unlink()
    argv = [sys.executable, "-m", "hpckit.report.at_end", str(folder), str(ledger)]
    done = subprocess.run(argv, env=os.environ | ENV, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    (file,) = ledger.iterdir()
    said: dict[str, Any] = json.loads(file.read_text())
    return said


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A job of two attempts, the first used at 20 %, the second at 80 %."""
    made = make_run(
        tmp_path, job_id="77_3", executor="slurm", workload={"name": "ddp"},
        plan={"gpu_type": "h200", "template": "base"},
    )  # fmt: skip
    for restart, used in ((0, 20.0), (1, 80.0)):
        rows = [[used] * 361] * 4
        write_samples(made / "samples", rows, restart=restart, late_s=7200 * restart, pid=restart)
    return made


@pytest.mark.long
def test_the_line_is_of_the_newest_attempt(folder: Path, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    ledger.mkdir()
    said = line_of(folder, ledger, attempt(0, exit_code=1), attempt(1))
    known = {
        "schema": 1, "job_id": "77_3", "restart": 1, "cluster": "c", "account": "lab",
        "partition": "gpu", "state": "COMPLETED", "gpus": 4, "nodes": 1, "gpu_type": "h200",
        "workload": "ddp", "template": "base", "name": "train", "start": START + 7190,
        "limit_s": 7200,
    }  # fmt: skip
    assert {name: said[name] for name in known} == known
    assert said["utilization_percent"] == pytest.approx(80)
    assert said["energy_joules"] > 0
    failed = line_of(folder, ledger, attempt(0), attempt(1, exit_code=2, error="ValueError"))
    assert failed["state"] == "FAILED"
    stopped = line_of(folder, ledger, attempt(0), attempt(1, exit_code=143, consequence=True))
    assert stopped["state"] == "UNKNOWN"
    assert (folder / "summary.json").exists()
