"""What a job says of itself in a ledger, at the end of each attempt."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hpckit.report import at_end
from hpckit.run_folders.runs import read_run
from hpckit.stop_marks import (
    NO_CHECKPOINT,
    PREEMPTED,
    REQUEUED,
    SENT,
    STOPPED,
    TERMINATED,
    add_mark,
    marks_of,
)
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
    argv = [sys.executable, "-m", "hpckit.report", str(folder), str(ledger)]
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


STOPPED_RANK = {"exit_code": 143, "consequence": True}
GOES_ON = {"ended": None, "exit_code": None}


def ranks_of(folder: Path, *changes: dict[str, Any], restart: int = 0) -> None:
    """Let the ranks of a run end like that in their newest attempt; others have not begun."""
    for path in (folder / "ranks").iterdir():
        path.unlink()
    for rank, change in enumerate(changes):
        row = attempt(restart, rank=rank, **change)
        text = json.dumps({"rank": rank, "attempts": [row]})
        (folder / "ranks" / f"{rank}.json").write_text(text)


@pytest.mark.parametrize(
    ("ranks", "marks", "state", "exit_code"),
    [
        (({}, {}), (), "COMPLETED", 0),
        (({}, {"exit_code": 3}), (), "FAILED", 3),
        ((STOPPED_RANK, {"exit_code": 3}), (), "FAILED", 3),
        ((GOES_ON, {"exit_code": 3}), (), "FAILED", 3),
        (({}, GOES_ON), (), "UNKNOWN", None),
        (({},), (), "UNKNOWN", None),
        ((), (), "UNKNOWN", None),
        ((STOPPED_RANK, STOPPED_RANK), (), "UNKNOWN", None),  # a time limit, or scancel
        ((STOPPED_RANK, STOPPED_RANK), (PREEMPTED,), "PREEMPTED", 143),
        (({}, {"exit_code": 3}), (PREEMPTED,), "PREEMPTED", 3),
        (({}, {}), (PREEMPTED,), "COMPLETED", 0),
        (({}, {}), (PREEMPTED, STOPPED), "PREEMPTED", 0),
        (({}, {}), (PREEMPTED, TERMINATED), "PREEMPTED", 0),
        (({}, {}), (TERMINATED,), "UNKNOWN", None),  # scancel, and it saved
        ((STOPPED_RANK, STOPPED_RANK), (PREEMPTED, REQUEUED), "UNKNOWN", None),
        (({}, {}), (REQUEUED,), "UNKNOWN", None),
        (({}, {}), (SENT,), "UNKNOWN", None),  # work may be left undone
        (({}, {}), (NO_CHECKPOINT,), "UNKNOWN", None),
    ],
)
def test_the_summary_has_the_end_that_the_ranks_know(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    ranks: tuple[dict[str, Any], ...],
    marks: tuple[str, ...],
    state: str,
    exit_code: int | None,
) -> None:
    plan = {"ranks": 2, "account": "asked"}
    folder = make_run(tmp_path, job_id="77", executor="slurm", plan=plan)
    ranks_of(folder, *ranks, restart=1)
    for word in marks:
        add_mark(marks_of(folder, 0), 1, word)
    for name, value in (ENV | {"SLURM_JOB_QOS": "short", "SLURM_JOB_USER": "ann"}).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(at_end, "learn_at_end", lambda *_: None)
    monkeypatch.setattr(sys, "argv", ["at_end", str(folder)])
    at_end.main()
    said = json.loads((folder / "summary.json").read_text())
    assert (said["state"], said["exit_code"]) == (state, exit_code)
    named = ("account", "partition", "qos", "user")
    assert [said[name] for name in named] == ["lab", "gpu", "short", "ann"]
    assert "rank_times" not in {note["code"] for note in said["notes"]}
    if ranks:  # also where others had not ended yet
        assert [row["restart"] for row in said["attempts"]] == [1]


def test_the_end_of_a_run_that_was_cancelled_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_JOB_ACCOUNT", "of another job")
    folder = make_run(tmp_path, plan={"ranks": 1})
    ranks_of(folder, STOPPED_RANK)
    run = read_run(folder)
    assert at_end.status_at_end(run, {}) is None
    (folder / ".cancel").touch()
    status = at_end.status_at_end(run, {})
    assert status
    assert (str(status.state), status.exit_code, status.source) == ("CANCELLED", 143, "ranks")
    monkeypatch.setattr(sys, "argv", ["at_end", str(folder)])
    at_end.main()
    assert json.loads((folder / "summary.json").read_text())["account"] is None
