"""Runs that version 0.1 wrote are read as it read them: tests/data/runs-0.1."""

import json
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hpckit.text import counted
from tests.conftest import Answer

OLD = Path(__file__).parents[1] / "data" / "runs-0.1"
ROOT = Path(__file__).parents[2]
RUNS = {
    "ranks": "ranks-20261122-111740-537f12",
    "failed": "failed-20261122-111759-eac811",
    "requeued": "requeued-20261122-111923-1d7594",
    "array": "array-20261122-111833-a55dff",
    "array_1": "array-20261122-111833-a55dff_1",
}
# Rows of a page of `stats` that are one figure each.
FIGURES = ("GPU utilization", "GPU memory", "SM activity", "CPU  ")

# What is another word, or was wrong: an attempt whose end nobody wrote went on until it was asked.
CORRECTED = {
    "failed": [".advice[0].message: 'It ended as FAILED.' became 'The job ended as FAILED.'"],
    "requeued": [
        ".elapsed_s: 116.776303 became 7.276872",
        ".summary.gpu_hours: 0.064876 became 0.004043",
        ".summary.coverage_percent: 5.460345 became 87.625412",
        ".per_node[0].covered_percent: 5.460345 became 87.625412",
        ".attempts[0].end: 1795346483.07116 became 1795346373.571728",
        ".attempts[0].elapsed_s: 114.9879 became 5.488469",
        ".attempts[0].gpu_hours: 0.063882 became 0.003049",
        ".attempts[0].coverage_percent: 4.256655 became 89.180395",
        ".jobstats.total_time: 117 became 7",
        "a note of both attempts stands once",
    ],
}

# What status knows to say since.
ADDED = {
    "requeued": "  before   attempt 0 on node7: requeued before its time limit\n",
}
# A task's own parameters are new in its page: a line each.
_TASK = r"(?m)^  task     \d of array local-1572b6: lr=0\.[12]\n"


@pytest.fixture
def old(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put the runs where their texts say they are."""
    monkeypatch.setenv("COLUMNS", "120")
    shutil.copytree(OLD / "made", here / "runs")
    shutil.copy(OLD / "train.py", here / "train.py")
    for path in (here / "runs").rglob("*"):
        if path.suffix in (".json", ".sh", ".out", ".err"):
            path.write_text(placed(path.read_text(), here))
    return here


def placed(text: str, here: Path) -> str:
    """Put this machine's places, and today's words, into a text in which the old ones stand."""
    text = re.sub(r"\b(\d+) (\w+)\(s\)", lambda match: counted(int(match[1]), match[2]), text)
    text = re.sub(r"\brank\(s\) (\d+)(, \d+)?", _ranks, text)
    text = re.sub(r"\b([1-9]\d* GPUs?(?: in all)?),", r"\1 (simulated on CPUs),", text)
    return (
        text.replace("/tmp/old-eb37/.venv/bin/python", sys.executable)
        .replace("/tmp/old-eb37", str(ROOT))
        .replace("/tmp/runs-0.1/work", str(here))
    )


def _ranks(match: re.Match[str]) -> str:
    return f"{'ranks' if match[2] else 'rank'} {match[1]}{match[2] or ''}"


def said(name: str, here: Path) -> str:
    path = OLD / "said" / name
    return placed(path.read_text(), here) if path.exists() else ""


def lost(old: Any, new: Any, at: str = "") -> Iterator[str]:
    """Yield where a document no longer says what the old one said; new keys are welcome."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key, value in old.items():
            yield from lost(value, new.get(key, "missing"), f"{at}.{key}")
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for number, (value, other) in enumerate(zip(old, new, strict=True)):
            yield from lost(value, other, f"{at}[{number}]")
    elif old != new:
        yield f"{at}: {old!r} became {new!r}"


# One task's value was told as if the array, or the task's own arguments, had lost it.
NO_DIFFERENCE = {
    "array": {"  parameter lr: 0.1 -> None"},
    # Who names one task knows that it is no array.
    "array_1": {"  parameter lr: 0.2 -> None", "  array size: 2 -> None"},
}


def test_jobs_lists_them(
    old: Path, cli: Callable[..., Answer], monkeypatch: pytest.MonkeyPatch
) -> None:
    try:
        with monkeypatch.context() as there:  # what it said, it said in UTC
            there.setenv("TZ", "UTC")
            time.tzset()
            now = [line.split() for line in cli("jobs", "--tasks").out.splitlines()]
            before = [line.split() for line in said("jobs.txt", old).splitlines()]
    finally:
        time.tzset()
    # What their GPUs were is new in the table, and so are the parameters of tasks.
    assert {row[2] for row in now} == {"PARAMETERS", "-", "lr=0.1", "lr=0.2"}
    rows = [[word for word in row[:2] + row[3:] if word != "(CPU)"] for row in now]
    assert rows[:2] + sorted(rows[2:4], reverse=True) + rows[4:] == before
    assert ["2", "(CPU)"] in [row[5:7] for row in now]


@pytest.mark.parametrize("run", RUNS)
def test_status_and_logs_say_what_they_said(old: Path, cli, run: str) -> None:
    status = cli("status", RUNS[run]).out
    page, tasks = re.subn(_TASK, "", status)
    assert tasks == {"array": 2, "array_1": 1}.get(run, 0)
    assert page == said(f"{run}.status.txt", old) + ADDED.get(run, "")
    found = cli("logs", RUNS[run], "--all")
    if run == "array":  # one of its tasks had to be named
        assert found.err.startswith("Log of task local-1572b6_0 (lr=0.1), which is COMPLETED: one")
        assert found.out == cli("logs", "local-1572b6_0", "--all").out != ""
        return
    head, _, logs = found.out.partition("\n")
    assert re.fullmatch(r"==> (job|0)\.out <==", head)  # which no older hpckit said
    assert (logs, found.err) == (said(f"{run}.logs.txt", old), "")


@pytest.mark.parametrize("run", RUNS)
def test_resubmit_knows_what_was_asked(old: Path, cli, run: str) -> None:
    found = cli("resubmit", RUNS[run], "--dry-run")
    assert found.status == 0
    differences = said(f"{run}.resubmit.txt.err", old).splitlines()[1:]
    assert set(differences) - set(found.err.splitlines()) == NO_DIFFERENCE.get(run, set())
    script = said(f"{run}.resubmit.txt", old).splitlines()
    (shape,) = [line for line in script if re.search(r" x \d+ ranks?, ", line)]
    assert shape in found.out.splitlines()
    printed = json.loads(cli("resubmit", RUNS[run], "--dry-run", "--json").out)
    assert {*printed} == {"run_id", "script"}
    assert shape in printed["script"].splitlines()


@pytest.mark.parametrize("run", RUNS)
def test_the_page_of_stats_has_their_figures(old: Path, cli, run: str) -> None:
    rows = [row for row in said(f"{run}.stats.txt", old).splitlines() if row.startswith(FIGURES)]
    assert rows
    assert set(rows) <= set(cli("stats", RUNS[run]).out.splitlines())


@pytest.mark.parametrize("run", RUNS)
def test_stats_figures_are_the_same(old: Path, cli, run: str) -> None:
    found = json.loads(cli("stats", RUNS[run], "--json").out)
    before = json.loads(said(f"{run}.stats.json", old))
    differ = [row for row in lost(before, found) if not row.startswith(".notes")]
    if found.get("notes") != before.get("notes"):
        differ.append("a note of both attempts stands once")
        assert all(note in found["notes"] for note in before["notes"])
    assert differ == CORRECTED.get(run, [])
