"""The checks of benchmarks/soak.py: each thing that may be wrong with a job is told."""

import importlib
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
GOOD = {
    "state": "COMPLETED",
    "exit_code": 0,
    "restarts": 0,
    "damaged": [],
    "reason_text": None,
    "ranks": [{}],
}
LINES = ["0 0 0", "0 0 1", "0 0 end"]


@pytest.fixture
def soak(monkeypatch: pytest.MonkeyPatch) -> dict[str, ModuleType]:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    names = ("soak", "soak_check", "soak_jobs", "soak_kills")
    return {name: importlib.import_module(name) for name in names}


def job(soak: dict[str, ModuleType], folder: Path, lines: list[str], **words: Any) -> Any:
    (folder / "logs").mkdir()
    (folder / "logs" / "0.out").write_text("".join(f"{line}\n" for line in lines))
    (folder / "summary.json").touch()
    jobs = soak["soak_jobs"]
    usual = {"ends": jobs.GOOD, "lines": 2, "whole": True, "job_id": "7", "run_id": "x"}
    return jobs.Job(kind=jobs.KINDS[0], run_dir=folder, **{**usual, **words})


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ({}, []),
        ({"state": "FAILED", "exit_code": 1}, ["not COMPLETED", "exit status 1, not 0"]),
        ({"exit_code": None}, ["exit status None, not 0"]),
        ({"restarts": 1}, ["1 restarts, not 0"]),
        ({"restarts": None}, ["None restarts, not 0"]),
        ({"restarts": None, "ranks": []}, []),
        ({"damaged": ["ranks/0.json"]}, ["damaged"]),
    ],
)
def test_a_status_that_is_not_what_is_known(
    soak: dict[str, ModuleType], tmp_path: Path, row: dict[str, Any], told: list[str]
) -> None:
    found = soak["soak_check"]._of_status(job(soak, tmp_path, LINES), GOOD | row)
    assert len(found) == len(told)
    assert all(word in line for word, line in zip(told, found, strict=True))


@pytest.mark.parametrize(
    ("lines", "words", "wrong"),
    [
        (LINES, {}, 0),
        (LINES[:2], {}, 1),  # cut off
        ([], {}, 1),
        (LINES[1:], {}, 2),  # the first is missing
        ([LINES[0], *LINES], {}, 2),  # one twice
        ([*LINES, "garbage"], {}, 1),
        (LINES[:1], {"whole": False}, 0),  # killed
        ([LINES[0], "1 0 0", "1 0 1", "1 0 end"], {"kill": "requeue"}, 0),
        ([LINES[0], "1 0 0", "1 0 1"], {"kill": "requeue"}, 1),
    ],
)
def test_logs_that_lack_a_line_or_have_one_twice(
    soak: dict[str, ModuleType],
    tmp_path: Path,
    lines: list[str],
    words: dict[str, Any],
    wrong: int,
) -> None:
    found = soak["soak_check"]._of_folder(job(soak, tmp_path, lines, **words))
    assert len(found) == wrong, found


def test_a_plan_follows_from_its_seed_and_a_tenth_is_killed(soak: dict[str, ModuleType]) -> None:
    plan = soak["soak"].make_plan(300, 0.1, 7)
    assert plan == soak["soak"].make_plan(300, 0.1, 7)
    assert sum(kind.jobs for kind, _ in plan) == 300
    assert sum(bool(kill) for _, kill in plan) == 30
    known = soak["soak_kills"]._ACTS
    assert all(kill in known for kind in soak["soak_jobs"].KINDS for kill in kind.kills)


def test_a_process_of_a_run_is_seen_wherever_it_went(
    soak: dict[str, ModuleType], tmp_path: Path
) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", "print(flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={"HPCKIT_RUN_DIR": str(tmp_path)},
    )
    try:
        assert child.stdout is not None
        child.stdout.readline()  # before its exec it is a copy of this process
        assert child.pid in [pid for pid, _ in soak["soak_kills"].processes(bytes(tmp_path))]
    finally:
        child.communicate(b"\n")
    assert [*soak["soak_kills"].processes(bytes(tmp_path))] == []


@pytest.mark.parametrize(("ranks", "wrong"), [([{}], 1), ([], 0)])
def test_an_unknown_exit_status_is_wrong_where_a_rank_began(
    soak: dict[str, ModuleType], tmp_path: Path, ranks: list[dict[str, Any]], wrong: int
) -> None:
    row = GOOD | {"state": "FAILED", "exit_code": None, "ranks": ranks}
    killed = job(soak, tmp_path, LINES, ends=("FAILED", None))
    assert len(soak["soak_check"]._of_status(killed, row)) == wrong


@pytest.mark.parametrize(
    ("job_id", "ends", "began", "none"),
    [
        ("7_1", "CANCELLED", False, True),
        ("7_1", "CANCELLED", True, False),
        ("7", "CANCELLED", False, False),
        ("7_1", "FAILED", False, False),
    ],
)
def test_accounting_has_no_row_of_an_arrays_task_that_was_cancelled_waiting(
    soak: dict[str, ModuleType], tmp_path: Path, job_id: str, ends: str, began: bool, none: bool
) -> None:
    one = job(soak, tmp_path, [], job_id=job_id, ends=(ends, None))
    if began:
        (tmp_path / "job.out").touch()
    assert soak["soak_check"]._never_counted(one) is none
