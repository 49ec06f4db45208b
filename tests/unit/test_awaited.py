"""Jobs that wait for a job with `--retry` are made to wait for the one that tries it again."""

import json
from pathlib import Path

import pytest

from hpckit.errors import CommandError, PlanError
from hpckit.run_folders.runs import Run
from hpckit.slurm.dependencies import moved
from hpckit.slurm.rows import COLUMN, ROW
from hpckit.submission import awaited
from hpckit.submission.after import dependency, refuse_hopeless
from hpckit.submission.awaited import catch_up, notes_on, take_along
from hpckit.submission.retry import RetryNote, write_note
from hpckit.submission.states import statuses
from tests.unit.made import make_run
from tests.unit.played_slurm import answers, squeue_row
from tests.unit.test_retry import RULES, pair


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("afterok:11(unfulfilled)", "afterok:12"),
        ("afterok:11(failed)", "afterok:12"),
        ("afterany:11(unfulfilled),afterok:9(unfulfilled)", "afterany:12,afterok:9"),
        ("afterok:9(failed)?afternotok:11(unfulfilled)", "afterok:9?afternotok:12"),
        ("singleton(unfulfilled),afterok:11(unfulfilled)", "singleton,afterok:12"),
        ("after:11+5(unfulfilled)", None),
        ("after:11(unfulfilled)", None),
        ("aftercorr:11_*(unfulfilled)", None),
        ("afterok:11_*(unfulfilled)", None),
        ("afterok:111(unfulfilled)", None),
        ("(null)", None),
    ],
)
def test_a_dependency_is_moved(before: str, after: str | None) -> None:
    assert moved(before, "11", "12") == after


def test_one_on_a_task_is_moved_and_one_on_its_array_is_not() -> None:
    assert moved("afterok:20_3(unfulfilled)", "20_3", "31") == "afterok:31"
    assert moved("afterok:20_*(unfulfilled)", "20_3", "31") is None


def waiting(*rows: tuple[str, str]) -> str:
    return "".join(f"{ROW}{COLUMN.join((job, 'Dependency', on))}\n" for job, on in rows)


def updates(fake_slurm: Path) -> list[list[str]]:
    calls = map(json.loads, (fake_slurm / "calls.jsonl").read_text().splitlines())
    return [row[2:] for row in calls if row[:2] == ["scontrol", "update"]]


def test_each_job_is_told_once_and_one_that_cannot_be_is_told(
    fake_slurm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(awaited, "_AGAIN_S", 0.0)
    on = "afterok:11(unfulfilled)"
    answers(fake_slurm, squeue_out=waiting(("13", on), ("14_[0-9]", on), ("15", "afterok:9")))
    said: list[str] = []
    take_along("11", "12", said.append)
    assert updates(fake_slurm) == [
        ["JobId=13", "Dependency=afterok:12"],
        ["JobId=14", "Dependency=afterok:12"],
    ]
    assert said == [f"job {job} waits for job 12 now, in place of job 11" for job in (13, 14)]
    answers(fake_slurm, scontrol_rc="1", scontrol_err="Job is no longer pending execution\n")
    said.clear()
    take_along("11", "12", said.append)
    assert [line.partition(": ")[0] for line in said] == [
        f"job {job} cannot be made to wait for job 12, not for 11" for job in (13, 14)
    ]
    answers(fake_slurm, squeue_rc="1", squeue_out="", squeue_err="squeue: error: no\n")
    said.clear()
    take_along("11", "12", said.append)
    assert said[0].startswith("jobs that wait for job 11 cannot be made to wait for job 12: ")


def test_slurm_that_does_not_answer_for_a_moment_leaves_no_job_behind(
    fake_slurm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def once(job: str, _other: str) -> dict[str, str]:
        asked.append(job)
        if len(asked) == 1:
            raise CommandError("no answer.")
        return {"13": "afterok:12"}

    monkeypatch.setattr(awaited, "ask_moved", once)
    monkeypatch.setattr(awaited, "_AGAIN_S", 0.0)
    said: list[str] = []
    take_along("11", "12", said.append)
    assert (asked, said) == (["11", "11"], ["job 13 waits for job 12 now, in place of job 11"])
    assert updates(fake_slurm) == [["JobId=13", "Dependency=afterok:12"]]


def test_who_was_submitted_in_that_moment_looks_for_itself(
    fake_slurm: Path, tmp_path: Path
) -> None:
    first, _ = pair(tmp_path)
    answers(fake_slurm, squeue_out=waiting(("13", "afterok:11(unfulfilled)")))
    said: list[str] = []
    dirs = (f"afterok:{first.dir}",)
    catch_up(dirs, said.append)
    assert said == []
    write_note(first.dir, RetryNote(text="x", run_id="a-2", job_id="12"))
    catch_up(dirs, said.append)
    assert said == ["note: job 13 waits for job 12 now, in place of job 11"]
    assert updates(fake_slurm) == [["JobId=13", "Dependency=afterok:12"]]
    catch_up((f"afterok:{tmp_path}/gone",), said.append)
    assert "is not a run's folder" in said[1]


def test_after_a_job_that_was_tried_again_means_the_last_retry(
    fake_slurm: Path, tmp_path: Path
) -> None:
    first, second = pair(tmp_path)
    answers(fake_slurm, squeue_out=squeue_row("11", "FAILED") + squeue_row("12", "RUNNING"))
    with pytest.raises(PlanError, match="job 11 is FAILED"):
        refuse_hopeless(("11",), tmp_path)
    write_note(first.dir, RetryNote(text="x", run_id="a-2", job_id="12"))
    refuse_hopeless(("11",), tmp_path)
    found = [dependency(word, "slurm", tmp_path) for word in ("11", "afterany:11", "after:11")]
    assert found == [
        ("afterok:12", (f"afterok:{second.dir}",)),
        ("afterany:12", (f"afterany:{second.dir}",)),
        ("after:11", (f"after:{first.dir}",)),
    ]
    assert list(notes_on(("11", "afterany:11", "after:11"), found, tmp_path)) == [
        "--after 11: job 11 is tried again as 12; this one waits for that one",
        "--after afterany:11: job 11 is tried again as 12; this one waits for that one",
    ]
    answers(fake_slurm, squeue_out=squeue_row("11", "FAILED") + squeue_row("12", "TIMEOUT"))
    with pytest.raises(PlanError, match="job 12, which tries job 11 again, is TIMEOUT"):
        refuse_hopeless(("11",), tmp_path)


def test_what_is_not_waited_for_is_told(tmp_path: Path) -> None:
    request = {"target": "x", "retry": RULES}
    tasks = [
        make_run(tmp_path, f"b_{n}", job_id=f"20_{n}", array={"job_id": "20", "index": n},
                 request=request)
        for n in (0, 1)
    ]  # fmt: skip
    asked = ("afterok:20", tuple(f"afterok:{run.dir}" for run in tasks))
    assert list(notes_on(("20", "9"), (asked, ("afterok:9", ())), tmp_path)) == [
        "--after 20 is an array with --retry: this job waits for each task, not for one that tries "
        "it again"
    ]


def test_a_job_that_can_never_start_names_the_retry(fake_slurm: Path, tmp_path: Path) -> None:
    first, _ = pair(tmp_path)
    waits = make_run(tmp_path, "a-3", job_id="13", request={"target": "x", "after": ["11", "zz"]})
    answers(fake_slurm, squeue_out=squeue_row("13", "PENDING", reason="DependencyNeverSatisfied"))
    assert statuses([waits])[0].notes == ()
    write_note(first.dir, RetryNote(text="x", run_id="a-2", job_id="12"))
    assert statuses([waits])[0].notes == (
        "job 11, which it waits for, is tried again as job 12. To wait for that: hpckit cancel 13, "
        "then hpckit resubmit 13",
    )


def test_a_colleagues_retry_cannot_take_others_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = pair(tmp_path)
    monkeypatch.setattr(Run, "mine", False)
    monkeypatch.setattr(Run, "owner", "ann")
    found = ("afterok:11", (f"afterok:{first.dir}",))
    assert list(notes_on((str(first.dir),), (found,), tmp_path)) == [
        f"--after {first.dir}, of ann, has --retry: this job waits for that job, not for one that "
        "tries it again"
    ]
