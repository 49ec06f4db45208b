"""Arrays as people meet them: the failed tasks again, their parameters, and whose log is meant."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hpckit.api.array_tasks import task_to_show
from hpckit.api.failed_tasks import failed_tasks, only_tasks, refuse_beside_failed
from hpckit.api.run import handle
from hpckit.api.run_list import RunList
from hpckit.cli.output import table
from hpckit.errors import OutsideError, RequestError
from hpckit.job_spec.option_words import array_values
from hpckit.job_spec.spec import JobSpec
from hpckit.report.array_page import distribution_page
from hpckit.report.job_page import Page, page
from hpckit.report.terminal import Style
from hpckit.run_folders.run_record import task_parameters
from hpckit.run_folders.runs import Run
from hpckit.slurm.rows import parse_sacct, parse_squeue
from hpckit.slurm.states import JobRecord, JobState
from hpckit.stats.summary.figures import JobUse
from hpckit.submission.resubmitted import write_notes
from hpckit.submission.states import _as_recorded
from hpckit.submission.status import RunStatus
from hpckit.submission.verdict import not_begun
from hpckit.text import cells, cut, settings_text
from tests.conftest import Answer
from tests.unit.made import make_run, rank
from tests.unit.played_slurm import OFF, answers, down, sacct_row, squeue_row

Cli = Callable[..., Answer]
ODD = "a\x1b[31m,b\nc"
NAME = "sweep-20261101-101010-abc123"


def array_run(root: Path, number: int, value: str = "", **changes: Any) -> Run:
    given = {
        "request": {"target": "serial", "program": "/t.py", "array": ["lr=0.1,0.2,0.3,0.4"]},
        "parameters": {"lr": value or f"0.{number + 1}", "epochs": 3},
        "array": {"job_id": "20", "index": number},
        **changes,
    }
    return make_run(root, f"{NAME}_{number}", job_id=f"20_{number}", **given)


def status(run: Run, state: str, **changes: Any) -> RunStatus:
    return RunStatus(run=run, state=JobState[state], source="squeue", **changes)


def spec(*array: str, **changes: Any) -> JobSpec:
    return JobSpec(target="serial", program="/t.py", array=array, **changes)


# --- the request of some of the tasks ---


def test_a_part_of_a_product_stands_in_pairs() -> None:
    asked = spec("a=1,2", r"b=x\,y,z", "c=p,q,r", parallel=2)
    points = [(a, b, c) for a in "12" for b in ("x,y", "z") for c in "pqr"]
    for numbers in ([0], [11], [1, 4, 9], [*range(12)]):
        again = only_tasks(asked, numbers)
        columns = [array_values(text)[1] for text in again.array]
        assert [*zip(*columns, strict=True)] == [points[number] for number in numbers]
        assert (again.zip, again.parallel) == (True, 2)


def test_a_part_of_one_list_is_a_list_and_of_pairs_pairs() -> None:
    one = only_tasks(spec("seed=7,8,9"), [2, 0])
    assert (one.array, one.zip) == (("seed=9,7",), False)
    pairs = only_tasks(spec("a=1,2,3", "b=4,5,6", zip=True), [1, 2])
    assert (pairs.array, pairs.zip) == (("a=2,3", "b=5,6"), True)


@pytest.mark.parametrize("asked", [spec("a=1,2", "b=1,2"), spec("a=1,2,3", "b=1,2,3", zip=True)])
def test_a_task_that_the_request_does_not_have_is_damage(asked: JobSpec) -> None:
    with pytest.raises(RequestError, match="no task 4: is its record damaged"):
        only_tasks(asked, [0, 4])


@pytest.mark.parametrize(
    ("changes", "unset", "words"),
    [
        ({"array": ("a=5",)}, (), "--array and --failed"),
        ({"zip": True}, (), "--zip and --failed"),
        ({}, ("array",), "--unset array and --failed"),
        ({}, ("--zip",), "--unset --zip and --failed"),
    ],
)
def test_other_tasks_are_refused(changes: dict[str, Any], unset: tuple[str], words: str) -> None:
    with pytest.raises(RequestError, match=words):
        refuse_beside_failed(spec("a=1"), changes, unset)


def test_tasks_are_not_matched_by_numbers_that_changed() -> None:
    asked = spec("a=1,2", after=("afterok:5", "aftercorr:7"))
    with pytest.raises(RequestError, match=r"--after aftercorr:7 matches tasks .* --unset after"):
        refuse_beside_failed(asked, {}, ())
    refuse_beside_failed(asked, {"after": asked.after}, ())
    refuse_beside_failed(spec("a=1,2", after=("afterok:5",)), {}, ("partition",))


def test_the_only_task_of_an_array_keeps_its_number_and_a_job_has_none(
    fake_slurm: Path, here: Path, cli: Cli
) -> None:
    (here / "fit.sh").write_text("echo $SLURM_ARRAY_TASK_ID")
    for array, kept in (((), False), (("--array", "x=5"), True)):
        said = cli("submit", "serial", "fit.sh", "--gpus", "0", *array, "--json")
        found = json.loads(said.out)
        old = found["jobs"][0] if array else found
        again = cli("resubmit", old["run_id"], "--json")
        record = json.loads(Path(json.loads(again.out)["run_dir"], "run.json").read_text())
        assert record.get("task_number") == (0 if kept else None)
        assert ("which a job of one task does not have" in again.err) == kept


# --- which tasks failed ---


def ask(folder: Path, *states: str) -> None:
    down(folder, accounting=True)
    rows = [squeue_row(f"20_{number}", state) for number, state in enumerate(states)]
    answers(folder, squeue_rc="0", squeue_err="", squeue_out="".join(rows))


def runs_of(root: Path, count: int, **changes: Any) -> RunList:
    return RunList(handle(array_run(root, number, **changes)) for number in range(count))


def test_failed_are_those_that_are_over_and_not_good(fake_slurm: Path, tmp_path: Path) -> None:
    states = [
        "FAILED",
        "COMPLETED",
        "TIMEOUT",
        "RUNNING",
        "CANCELLED",
        "PENDING",
        "OUT_OF_MEMORY",
        "NODE_FAIL",
    ]
    ask(fake_slurm, *states)
    found = failed_tasks(runs_of(tmp_path, len(states)), "20")
    assert found.numbers == (0, 2, 4, 6, 7)
    assert found.rest == "1 COMPLETED, 1 RUNNING (20_3), 1 PENDING (20_5)"
    assert found.lines[:2] == [
        "5 of 8 tasks of array 20 did not end well:",
        "  20_0 FAILED (lr=0.1), task 0 of the new array",
    ] or found.lines[1].startswith("  20_0 FAILED")
    assert [row["job_id"] for row in found.document()["failed"]] == [
        "20_0", "20_2", "20_4", "20_6", "20_7",
    ]  # fmt: skip
    assert found.document()["left"][0] == {
        "job_id": "20_1", "state": "COMPLETED", "parameters": {"lr": "0.2"}, "again": None,
    }  # fmt: skip


def test_no_failed_task_is_one_error(fake_slurm: Path, tmp_path: Path) -> None:
    ask(fake_slurm, "COMPLETED", "RUNNING")
    runs = runs_of(tmp_path, 2)
    with pytest.raises(RequestError, match=r"no failed task .* 1 RUNNING \(20_1\).*hpckit wait 20"):
        failed_tasks(runs)
    ask(fake_slurm, "COMPLETED", "COMPLETED")
    with pytest.raises(RequestError, match=r"2 COMPLETED.*hpckit resubmit 20"):
        failed_tasks(runs)


def test_where_slurm_is_silent_none_is_known_to_have_failed(
    fake_slurm: Path, tmp_path: Path
) -> None:
    down(fake_slurm, accounting=True)
    with pytest.raises(OutsideError, match="Which tasks of array 20 failed is not known"):
        failed_tasks(runs_of(tmp_path, 2))


def test_what_is_not_one_array_is_refused(tmp_path: Path) -> None:
    single = handle(make_run(tmp_path, "one", job_id="7"))
    with pytest.raises(RequestError, match="Job 7 is not an array"):
        failed_tasks([single])
    runs = runs_of(tmp_path, 2)
    with pytest.raises(RequestError, match=r"20_1 is one task of array 20.* 20 --failed"):
        failed_tasks([runs[1]], "20_1")
    other = array_run(tmp_path / "elsewhere", 3)
    with pytest.raises(RequestError, match="of 2 submissions"):
        failed_tasks([*runs, handle(other)])
    with pytest.raises(RequestError, match="no run in this list"):
        failed_tasks([])


@pytest.mark.parametrize(("became", "failed"), [("COMPLETED", (1,)), ("FAILED", (0, 1))])
def test_a_task_that_was_retried_is_judged_by_its_last_retry(
    fake_slurm: Path, tmp_path: Path, became: str, failed: tuple[int]
) -> None:
    request = {"target": "serial", "array": ["lr=0.1,0.2"], "retry": ["oom:mem*2"]}
    runs = runs_of(tmp_path, 2, request=request)
    retry = {
        "of": runs[0].run_id, "job_id": "20_0", "number": 1, "kind": "oom", "changes": {},
        "text": "tries it again",
    }  # fmt: skip
    make_run(tmp_path, "again", job_id="31", retry=retry)
    note = {"text": "tried again", "run_id": "again", "job_id": "31"}
    (runs[0].dir / "retry.json").write_text(json.dumps(note))
    ask(fake_slurm, "OUT_OF_MEMORY", "FAILED")
    answers(
        fake_slurm, squeue_out=(fake_slurm / "squeue.out").read_text() + squeue_row("31", became)
    )
    found = failed_tasks(runs)
    assert found.numbers == failed
    assert found.rest == ("1 COMPLETED" if became == "COMPLETED" else "")
    if became == "FAILED":
        assert "OUT_OF_MEMORY (lr=0.1), and FAILED again as 31, task 0" in found.lines[1]


def resubmitted(root: Path, old: Run, name: str, job_id: str, **changes: Any) -> Run:
    """Make the run that `hpckit resubmit` submitted in another's place."""
    before = {"of": old.run_id, "job_id": old.job_id, "dir": str(old.dir)}
    new = make_run(root, name, job_id=job_id, **{"resubmit": before, **changes})
    write_notes([new], pytest.fail)
    return new


@pytest.mark.parametrize(
    ("became", "failed", "rest"),
    [
        ("COMPLETED", (1,), "1 COMPLETED"),
        ("RUNNING", (1,), "1 RUNNING (32)"),
        ("FAILED", (0, 1), ""),
    ],
)
def test_a_task_that_was_submitted_again_is_judged_by_the_last_run_in_its_place(
    fake_slurm: Path, tmp_path: Path, became: str, failed: tuple[int], rest: str
) -> None:
    runs = runs_of(tmp_path, 2)
    old = runs[0]._folder
    first = resubmitted(tmp_path, old, "first", "31")
    resubmitted(tmp_path, first, "second", "32")
    # With other arguments it is another task.
    resubmitted(tmp_path, runs[1]._folder, "other", "33", command=["python", "other.py"])
    resubmitted(tmp_path, first, "another", "34", command=["python", "other.py"])
    ask(fake_slurm, "FAILED", "FAILED")
    rows = squeue_row("31", "FAILED") + squeue_row("32", became) + squeue_row("33", "COMPLETED")
    answers(fake_slurm, squeue_out=(fake_slurm / "squeue.out").read_text() + rows)
    found = failed_tasks(runs)
    assert (found.numbers, found.rest) == (failed, rest)
    said = found.document()
    (row,) = (row for row in said["failed"] + said["left"] if row["job_id"] == "20_0")
    assert row["again"] == {"job_id": "32", "state": became}


def test_all_failed_tasks_again_already_is_an_error_that_names_them(
    fake_slurm: Path, tmp_path: Path
) -> None:
    runs = runs_of(tmp_path, 2)
    again = {"array": {"job_id": "31", "index": 0}}
    resubmitted(tmp_path, runs[1]._folder, "again_0", "31_0", **again)
    ask(fake_slurm, "COMPLETED", "FAILED")
    rows = (fake_slurm / "squeue.out").read_text()
    answers(fake_slurm, squeue_out=rows + squeue_row("31_0", "PENDING"))
    with pytest.raises(RequestError, match=r"1 COMPLETED, 1 PENDING \(31_0\).*: hpckit wait 31$"):
        failed_tasks(runs)
    answers(fake_slurm, squeue_out=rows + squeue_row("31_0", "COMPLETED"))
    with pytest.raises(RequestError, match=r"2 COMPLETED\. Submit all .*: hpckit resubmit 20$"):
        failed_tasks(runs)


def test_the_commands_errors_end_with_two(fake_slurm: Path, here: Path, cli: Cli) -> None:
    runs_of(here / "runs", 2)
    ask(fake_slurm, "COMPLETED", "COMPLETED")
    for words in (["20"], ["20_1"], ["20", "--array", "lr=1"]):
        said = cli("resubmit", *words, "--failed")
        assert (said.status, said.out, said.err.count("error:")) == (2, "", 1)


# --- whose log is meant ---


def test_the_log_is_of_the_first_that_failed(tmp_path: Path) -> None:
    runs = [array_run(tmp_path, number) for number in range(5)]
    begun = {"start_time": 5.0, "elapsed_s": 1.0}
    never, done = status(runs[0], "CANCELLED"), status(runs[1], "COMPLETED", **begun)
    cancelled, failed = (
        status(runs[number], state, **begun) for number, state in ((2, "CANCELLED"), (3, "FAILED"))
    )
    waits = status(runs[4], "PENDING")
    assert task_to_show([never, done, cancelled, failed, waits]) is failed
    assert task_to_show([never, done, cancelled, waits]) is cancelled
    assert task_to_show([waits, never, done]) is done
    assert task_to_show([never, waits]) is waits
    assert task_to_show([failed, waits], following=True) is waits
    broken = status(runs[4], "RUNNING", ranks=(rank(0, ended=2.0, exit_code=1),))
    assert task_to_show([done, cancelled, broken]) is broken


def test_logs_of_an_array_say_whose_they_are(fake_slurm: Path, here: Path, cli: Cli) -> None:
    runs = [array_run(here / "runs", number) for number in range(4)]
    for run in runs[:3]:
        (run.dir / "logs" / "0.out").write_text(f"line of {run.task}\n")
    ask(fake_slurm, "COMPLETED", "FAILED", "FAILED", "PENDING")
    said = cli("logs", "20")
    assert said.out == "line of 1\n"
    assert said.err == (
        "Log of task 20_1 (lr=0.2), which is FAILED: one of 4 tasks of array 20, of which 2 "
        "failed. Another: hpckit logs 20_2\n"
    )
    said = cli("logs", "20", "--errors")
    assert said.err.startswith("20_1 FAILED (lr=0.2):\n")
    assert "1 other task of array 20 failed: 20_2 FAILED." in said.err
    assert "hpckit resubmit 20 --failed" in said.err
    ask(fake_slurm, "COMPLETED", "COMPLETED", "RUNNING", "PENDING")
    said = cli("logs", "20", "--errors")
    assert (said.out, said.status) == ("", 0)
    assert said.err == ("No task of array 20 has failed: 2 COMPLETED, 1 PENDING, 1 RUNNING.\n")


def test_a_log_that_is_not_there_says_whether_it_may_come(
    fake_slurm: Path, here: Path, cli: Cli
) -> None:
    for number in range(3):
        array_run(here / "runs", number)
    ask(fake_slurm, "CANCELLED", "FAILED", "PENDING")
    for number, words in enumerate(
        ("CANCELLED", "20_1 has written nothing. See", "20_2 has written nothing yet. See")
    ):
        assert number == 0 or words in cli("logs", f"20_{number}").err


# --- never started: the same words, whatever the source ---


def cancelled_in_queue() -> list[JobRecord]:
    """Return what each source says of a job that was cancelled while it waited."""
    columns = squeue_row("20_0", "CANCELLED")
    (queue,) = parse_squeue(columns)
    (accounting,) = parse_sacct(sacct_row("20_0", "CANCELLED by 0"), "")
    lost = {"nodes": None, "start_time": None, "elapsed_s": 0}
    rows = [JobRecord(**{**vars_of(row), **lost}) for row in (queue, accounting)]
    return [*rows, JobRecord(job_id="20_0", state=JobState.CANCELLED, source="squeue")]


def vars_of(row: JobRecord) -> dict[str, Any]:
    return {name: getattr(row, name) for name in JobRecord.__dataclass_fields__}


@pytest.mark.parametrize("record", cancelled_in_queue(), ids=["squeue", "sacct", "removed"])
def test_a_job_that_never_started_has_no_time(tmp_path: Path, record: JobRecord) -> None:
    found = _as_recorded(array_run(tmp_path, 0), record, ())
    assert (found.elapsed_s, found.start_time, found.nodes) == (None, None, ())
    assert found.never_started
    assert found.why() == []
    assert handle(found.run).errors(found) == "the job never started: it is CANCELLED"


def test_what_began_or_is_no_end_is_not_one_that_never_started() -> None:
    def row(state: str, **changes: Any) -> JobRecord:
        return JobRecord(job_id="1", state=JobState[state], source="sacct", **changes)

    assert not not_begun(row("CANCELLED", elapsed_s=0, nodes=("n1",)), ())
    assert not not_begun(row("CANCELLED", elapsed_s=0, start_time=5.0), ())
    assert not not_begun(row("CANCELLED", elapsed_s=2), ())
    assert not not_begun(row("CANCELLED", elapsed_s=0), (rank(0),))
    # Slurm at times loses the start of a job that ended well.
    assert not not_begun(row("COMPLETED", elapsed_s=0), ())
    assert not not_begun(row("RUNNING", elapsed_s=0), ())
    assert not_begun(row("PENDING", elapsed_s=0), ())


# --- what a task was given ---


def test_parameters_are_what_the_array_varies_as_the_program_gets_it(tmp_path: Path) -> None:
    run = array_run(tmp_path, 1)
    assert run.parameters == {"lr": "0.2"}
    record = {
        "array": {"job_id": "1", "index": 0},
        "request": {"array": ["n_epochs=1,2", "flag=true", "gone=1", 5]},
        "parameters": {"n-epochs": 2, "flag": True, "seed": 1},
    }
    assert task_parameters(record) == {"n-epochs": "2", "flag": "true"}
    assert task_parameters({**record, "array": None}) == {}
    assert task_parameters({**record, "request": {}}) == {}


def test_parameters_are_others_words(
    tmp_path: Path, fake_slurm: Path, here: Path, cli: Cli
) -> None:
    """No escape sequence or line break of a value gets to a terminal, wherever it is shown."""
    (here / "t.py").write_text("")
    request = {"target": "serial", "program": "t.py", "array": ["lr=1"]}
    array_run(here / "runs", 0, ODD, request=request, cwd=str(here))
    ask(fake_slurm, "FAILED")
    for words in (
        ("status", "20_0"), ("jobs", "--tasks"), ("stats", "20_0"), ("logs", "20_0", "--errors"),
        ("resubmit", "20_0", "--dry-run"), ("wait", "20_0"),
    ):  # fmt: skip
        said = cli(*words)
        assert "\x1b" not in said.out + said.err, words
        assert r"lr=a\x1b[31m,b\nc" in said.out + said.err, words
    document = json.loads(cli("status", "20_0", "--json").out)
    assert document["parameters"] == {"lr": ODD}


def test_long_parameters_are_cut_where_a_line_says_more(
    fake_slurm: Path, here: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    array_run(here / "runs", 0, "x" * 300)
    array_run(here / "runs", 1, "y" * 300)
    ask(fake_slurm, "RUNNING", "RUNNING")
    monkeypatch.setenv("COLUMNS", "60")
    said = cli("jobs", "--tasks").out
    assert max(map(len, said.splitlines())) <= 60
    assert "lr=" + "x" * 36 + "…" in said.replace("\n", "")
    assert "x" * 300 in cli("status", "20_0").out


def test_texts_are_cut_by_columns() -> None:
    assert cut("abcdef", 6) == "abcdef"
    assert cut("abcdefg", 6) == "abcde…"
    wide = cut("\u6f22" * 9, 6)
    assert (cells(wide), wide[-1]) == (5, "…")
    assert settings_text({"a": "1", "b": "x\ty"}) == r"a=1, b=x\ty"


def test_stats_show_what_tasks_were_given() -> None:
    jobs = [
        JobUse(job_id=f"20_{n}", state="COMPLETED", elapsed_s=9.0, start=1.0,
               parameters={"lr": f"0.{n}", "name": "n" * 30 * n})
        for n in range(3)
    ]  # fmt: skip
    jobs.append(JobUse(job_id="20_3", state="CANCELLED", parameters={"lr": "9"}))
    lines = distribution_page(jobs, {}, Style(), all_jobs=False).splitlines()
    head = next(line for line in lines if line.startswith("job "))
    assert head.endswith("  lr, name")
    rows = [line for line in lines if line.startswith("20_")]
    assert rows[0].endswith("  0.0,")
    assert all(len(line) <= 80 for line in lines)
    assert rows[2].endswith("…")
    assert "never" in rows[3]
    assert rows[3].endswith("9, ?")
    alone = page(Page(job=jobs[1]), Style()).splitlines()
    assert any(line.startswith("  lr=0.1, name=nnn") for line in alone)
    others = distribution_page([JobUse(job_id="1"), JobUse(job_id="2")], {}, Style(), all_jobs=True)
    assert any(line.endswith("      memory") for line in others.splitlines())


def test_a_table_of_tasks_without_parameters_has_no_such_column(
    fake_slurm: Path, here: Path, cli: Cli
) -> None:
    make_run(here / "runs", "one", job_id="7")
    answers(fake_slurm, squeue_out=squeue_row("7", "RUNNING"), sacct_rc="1", sacct_err=OFF)
    assert "PARAMETERS" not in cli("jobs", "--tasks").out
    assert table(["A"], [[None]]) == "A\n-"


def test_json_and_the_table_count_arrays_alike(fake_slurm: Path, here: Path, cli: Cli) -> None:
    make_run(here / "runs", "one", job_id="7", submitted_at=100.0)
    for number in range(3):
        array_run(here / "runs", number, submitted_at=500.0)
    ask(fake_slurm, "RUNNING", "RUNNING", "PENDING")

    def ids(*words: str) -> list[str]:
        return [row["job_id"] for row in json.loads(cli("jobs", "--json", *words).out)["jobs"]]

    assert ids("-n", "1") == ["20_0", "20_1", "20_2"]
    assert ids("-n", "2") == ["20_0", "20_1", "20_2", "7"]
    assert len(ids("-n", "1", "--tasks")) == 1
    assert cli("jobs", "-n", "1").out.splitlines()[1].startswith("20 ")
