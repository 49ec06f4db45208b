"""What people see of a run: its page, the live view, what differs from an earlier run."""

from dataclasses import replace
from pathlib import Path

import pytest

from hpckit.api.earlier_request import single_task
from hpckit.cli.view import (
    LiveView,
    status_line,
    status_lines,
    status_page,
    status_pages,
)
from hpckit.errors import RequestError
from hpckit.job_spec.spec import JobSpec
from hpckit.run_folders.ranks import write_rank
from hpckit.slurm.states import JobState
from hpckit.submission.record import asked_otherwise, differences
from hpckit.submission.states import statuses
from hpckit.submission.status import RunStatus
from tests.unit.made import PLAN, make_run, rank, run_record
from tests.unit.played_slurm import answers, end_ranks, one, sacct_row, squeue_row


def test_the_page_names_the_rank_that_failed(fake_slurm: Path, tmp_path: Path) -> None:
    run = make_run(tmp_path)
    error = "Traceback (most recent call last):\n  x\nValueError: boom"
    write_rank(run.dir, rank(2, exit_code=1, ended=20.0, error=error))
    write_rank(run.dir, rank(0, exit_code=143, ended=21.0, consequence=True))
    answers(fake_slurm, squeue_out=squeue_row("11", "FAILED"))
    page = status_page(one(run))
    assert "rank 2   n1, exit status 1: ValueError: boom" in page
    assert "stopped  rank 0, after that" in page
    assert "hpckit logs 11 --errors" in page


# --- the live view ---


def test_a_log_gets_a_line_only_when_something_changed(
    fake_slurm: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, view = make_run(tmp_path), LiveView()
    for elapsed in ("1:00", "1:30", "2:00"):
        answers(fake_slurm, squeue_out=squeue_row("11", "RUNNING", elapsed=elapsed))
        view(statuses([run]))
    answers(fake_slurm, squeue_out=squeue_row("11", "COMPLETED", elapsed="2:05"))
    view(statuses([run]))
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.splitlines() == ["11 RUNNING", "11 COMPLETED: 2 min 05 s"]


def test_a_terminal_gets_its_lines_rewritten(
    fake_slurm: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "20")
    run, view = make_run(tmp_path), LiveView()
    answers(fake_slurm, squeue_out=squeue_row("11", "RUNNING"))
    view(statuses([run]))
    view(statuses([run]))
    lines = capsys.readouterr().err.split("\n")
    assert lines[0].endswith("11 RUNNING: 1 min 0")  # cut to the width
    assert lines[1].startswith("\x1b[1A\r\x1b[2K11 RUNNING")


def test_a_waiting_job_shows_when_it_should_start(
    fake_slurm: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row = squeue_row("11", "PENDING", reason="Resources", start="4102444800")
    answers(fake_slurm, squeue_out=row)
    LiveView()(statuses([make_run(tmp_path)]))
    line = capsys.readouterr().err
    assert line.startswith("11 PENDING: ")
    assert "expected start 2" in line


# --- what differs ---

RECORD = {**run_record(), "templates": [{"name": "t", "hash": "1", "collection": "c"}],
          "site": {"name": "box", "hash": "1"}, "workload": {"name": "ddp", "hash": "1"},
          "code": {"commit": "a" * 40, "dirty": False}, "script_hash": "1"}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({}, None),
        ({"plan": {**PLAN, "nodes": 3}}, "nodes: 2 -> 3"),
        ({"plan": {**PLAN, "time_min": 5}}, "time min: 60 -> 5"),
        ({"parameters": {"lr": 1}}, "parameter lr: None -> 1"),
        ({"code": {"commit": "b" * 40}}, "code: commit aaaaaaaaaaaa -> bbbbbbbbbbbb"),
        ({"code": None}, "code: commit aaaaaaaaaaaa -> none"),
        ({"code": {"commit": "a" * 40, "dirty": True}}, "code: there are uncommitted changes now"),
        ({"code": {"commit": "a" * 40, "dirty": None, "unknown": "a filter"}},
         "code: whether there are uncommitted changes is unknown: a filter"),
        ({"script_hash": "2"}, "code: the script itself has changed"),
        ({"templates": [{"name": "t", "hash": "2", "collection": "c"}]},
         "template t of c has changed (was 1, is 2)"),
        ({"templates": [{"name": "t", "hash": "1", "collection": "c"},
                        {"name": "u", "hash": "3", "collection": "lab"}]},
         "template u of lab is new"),
        ({"site": {"name": "box", "hash": "2"}}, "site box has changed"),
        ({"site": {"name": "vera", "hash": "2"}}, "site: box -> vera"),
        ({"workload": {"name": "ddp", "hash": "2"}}, "workload ddp has changed"),
        ({"hpckit_version": "0.2.0"}, "hpckit 0.1.0 -> 0.2.0"),
    ],
)  # fmt: skip
def test_each_difference_has_its_line(changes: dict, line: str | None) -> None:
    assert differences(RECORD, {**RECORD, **changes}) == ([] if line is None else [line])


def test_a_template_that_extends_another_of_its_name_is_compared_with_itself() -> None:
    """As a group's base.sh.j2 extends hpckit's."""

    def record(**hashes: str) -> dict:
        rows = [{"name": "t", "hash": value, "collection": key} for key, value in hashes.items()]
        return {**RECORD, "templates": rows}

    old = record(lab="1", c="2")
    assert differences(old, record(lab="1", c="2")) == []
    assert differences(old, record(lab="3", c="2")) == [
        "template t of lab has changed (was 1, is 3)"
    ]
    assert differences(old, record(c="2")) == ["template t of lab is not used any more"]
    assert differences(record(c="2"), old) == ["template t of lab is new"]
    assert differences(old, record(group="1", c="2")) == []  # the same file in another place


@pytest.mark.parametrize(
    ("asked", "lines"),
    [
        ({}, []),
        ({"retry": ("fail",), "retries": 2}, ["retry: none -> fail", "retries: 1 -> 2"]),
        ({"no_code": True, "skip_checks": ("time",)},
         ["no code: no -> yes", "skip checks: none -> time"]),
        ({"checkpoint": "x/*.pt", "max_requeues": 2}, ["checkpoint: none -> x/*.pt"]),
        ({"exclude_bad": True, "args": ("--lr", "1")}, ["args: none -> --lr 1",
                                                       "exclude bad: no -> yes"]),
        ({"gpus": 4, "env": "torch", "settings": ("a=1",), "site": "box", "nodes": 2}, []),
    ],
)  # fmt: skip
def test_what_was_asked_otherwise_and_no_plan_shows_has_its_line(
    asked: dict, lines: list[str]
) -> None:
    before = JobSpec(target="ddp", program="/p")
    plan = {**PLAN, "template": "base", "max_requeues": 0}
    assert asked_otherwise(before, replace(before, **asked), plan) == lines


def test_values_of_a_difference_are_written_for_people() -> None:
    new = {**RECORD, "plan": {**PLAN, "sbatch": ["mail-type=END", "exclusive"]}}
    old = {**RECORD, "plan": {**PLAN, "sbatch": None, "sample_interval_s": 10.0}}
    new["plan"]["sample_interval_s"] = 2.5
    assert differences(old, new) == [
        "sbatch: none -> mail-type=END exclusive",
        "sample interval: 10 -> 2.5",
    ]


def test_a_task_alone_keeps_its_values_where_they_stood(tmp_path: Path) -> None:
    asked = JobSpec(target="serial", program="/p", args=("-var", "T", "{T}", "log.{T}.{b_c}"),
                    array=("T=1,2", "seed=3,4", "b_c=x y"), parallel=2)  # fmt: skip
    values = {"T": "2", "seed": "3", "b_c": "x y"}
    run = make_run(tmp_path, parameters=values, array={"job_id": "7", "index": 2})
    alone = single_task(asked, run)
    assert alone.args == ("-var", "T", "2", "log.2.x y", "--seed", "3")
    assert (alone.array, alone.parallel) == ((), None)
    damaged = make_run(tmp_path, "ddp-2", parameters={}, array={"job_id": "7", "index": 2})
    with pytest.raises(RequestError, match="records no parameter 'T'"):
        single_task(asked, damaged)


def test_uncommitted_changes_of_the_recorded_run_are_said() -> None:
    old = {**RECORD, "code": {"commit": "a" * 40, "dirty": True}}
    [line] = differences(old, RECORD)
    assert line.startswith("code: the recorded run had uncommitted changes")


def test_of_many_runs_the_ones_to_look_at_come_first(tmp_path: Path) -> None:
    def told(number: int, state: JobState) -> RunStatus:
        return RunStatus(run=make_run(tmp_path, f"r{number}", job_id=f"7_{number}"), state=state,
                         source="squeue")  # fmt: skip

    good, waits, runs_now, bad = (
        JobState.COMPLETED, JobState.PENDING, JobState.RUNNING, JobState.FAILED,
    )  # fmt: skip
    few = [told(number, good) for number in range(11)] + [told(11, bad)]
    assert status_lines(few).splitlines() == [status_line(row) for row in few]
    assert status_pages(few, everything=False) == "\n".join(map(status_page, few))
    many = [*few, told(12, waits), told(13, runs_now), told(14, bad)]
    lines = status_lines(many).splitlines()
    assert lines[0] == "15 jobs: 11 COMPLETED, 2 FAILED, 1 PENDING, 1 RUNNING"
    assert lines[1:5] == ["7_11 FAILED", "7_14 FAILED", "7_13 RUNNING", "7_12 PENDING"]
    assert len(lines[1:-1]) == 12
    assert lines[-1] == "and 3 more: hpckit status --all, or --json"
    assert status_pages(many, everything=False) == status_lines(many)
    assert status_pages(many, everything=True) == "\n".join(map(status_page, many))


@pytest.mark.parametrize(
    ("code", "ranks", "words"),
    [
        ("15:0", (), "exit status 15 or 143 (accounting does not tell which)"),
        ("0:15", (), "exit status 143"),  # a signal that ended the script itself is told exactly
        ("15:0", (143, 0, 0, 0), "exit status 143"),  # the rank's own record tells
        ("1:0", (0, 0, 0, 0), "exit status 1"),  # hpckit's own, of one that saved and may not go on
        ("0:0", (), ""),  # a script's own 128, or none at all
    ],
)
def test_accountings_exit_status_is_shown_as_what_it_is(
    fake_slurm: Path, tmp_path: Path, code: str, ranks: tuple[int, ...], words: str
) -> None:
    run = make_run(tmp_path)
    end_ranks(run, *ranks)
    answers(fake_slurm, squeue_out="", sacct_out=sacct_row("11", "FAILED", code))
    found = one(run)
    assert (found.exit_words, found.source) == (words, "sacct")
    assert status_line(found).endswith(words or "FAILED: 1 min 00 s")


def test_a_held_job_has_no_expected_start(tmp_path: Path, fake_slurm: Path) -> None:
    """Slurm gives the begin time of a held job as its start; it starts once it is released."""
    run = make_run(tmp_path, "a-1", job_id="11")
    for reason, words in (("JobHeldUser", "is held by its user"), ("JobHeldAdmin", "is held by")):
        answers(fake_slurm, squeue_out=squeue_row("11", "PENDING", start="4000", reason=reason))
        [held] = statuses([run])
        assert held.expected_start is None
        assert words in status_line(held)
        assert "expected start" not in status_line(held)
    answers(fake_slurm, squeue_out=squeue_row("11", "PENDING", start="4000", reason="BeginTime"))
    assert "expected start" in status_line(statuses([run])[0])
