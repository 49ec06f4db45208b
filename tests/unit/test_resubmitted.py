"""A run that was submitted again, and the one in its place, know of each other."""

import json
import shutil
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import hpckit
from hpckit.api.resubmit import Again
from hpckit.cli.view import status_page
from hpckit.errors import OutsideError, RequestError
from hpckit.job_spec.recorded_spec import spec_from_record
from hpckit.run_folders.runs import RESUBMITTED, Run, read_run
from hpckit.slurm.states import JobState
from hpckit.submission import resubmitted
from hpckit.submission.handover import HANDOVER
from hpckit.submission.resubmitted import (
    before_and_after,
    followers,
    one_at_a_time,
    refuse_resubmitted,
    refuse_twin,
    replaced_by,
    resubmitted_as,
    same_work,
    write_notes,
)
from hpckit.submission.retry import RetryNote, write_note
from hpckit.submission.status import RunStatus
from tests.conftest import Answer
from tests.unit.made import PLAN, make_run, run_record

Cli = Callable[..., Answer]


def pair(root: Path, **changes: Any) -> tuple[Run, Run]:
    """Make a run, and one that was submitted in its place."""
    old = make_run(root, "old", job_id="20")
    before = {"of": old.run_id, "job_id": old.job_id, "dir": str(old.dir)}
    return old, make_run(root, "new", job_id="30", resubmit={**before, **changes})


def after(run: Run) -> list[str]:
    return [found.run_id for found in resubmitted_as(run)]


def test_each_names_the_other(tmp_path: Path) -> None:
    old, new = pair(tmp_path)
    assert (after(old), before_and_after(old)) == ([], (None, None))
    write_notes([old, new], pytest.fail)
    assert after(old) == ["new"]
    pages = []
    for run, names in ((old, (None, "30")), (new, ("20", None))):
        found = RunStatus(run=run, state=JobState.FAILED, source="squeue")
        assert before_and_after(run) == found.resubmits() == names
        said = found.document()
        assert (said["resubmit_of"], said["resubmitted_as"], said["notes"]) == (*names, [])
        pages.append(status_page(found))
    assert "\n  resubmit again as job 30\n" in pages[0]
    assert "\n  resubmit of job 20\n" in pages[1]


def test_all_that_are_still_there_are_known_the_newest_first(tmp_path: Path) -> None:
    old, new = pair(tmp_path)
    later = make_run(tmp_path, "later", job_id="40", resubmit=new.record["resubmit"])
    write_notes([new], pytest.fail)
    write_notes([later], pytest.fail)
    assert after(old) == ["later", "new"]
    tmp_path.rename(tmp_path.with_name("moved"))
    moved = read_run(tmp_path.with_name("moved") / "old")
    assert after(moved) == ["later", "new"]
    shutil.rmtree(moved.dir.with_name("later"))
    assert (after(moved), before_and_after(moved)) == (["new"], (None, "30"))
    shutil.rmtree(moved.dir.with_name("new"))
    assert after(moved) == []


def test_a_note_is_there_while_its_submission_can_still_be_found(
    here: Path, cli: Cli, fake_slurm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command that is killed after it submits an array's tasks again must not do so twice."""
    (here / "x.py").touch()
    asked = ("serial", "x.py", "--executor=slurm", "--gpus=0", "--no-code")
    assert cli("submit", *asked).status == 0
    noted: list[bool] = []
    real = resubmitted.write_json

    def write(path: Path, value: object) -> None:
        noted.append(any((here / "runs").glob(f"*/{HANDOVER}")))
        real(path, value)

    monkeypatch.setattr(resubmitted, "write_json", write)
    assert cli("resubmit", "latest", "--no-code").status == 0
    assert noted == [True]
    old, new = sorted((read_run(path) for path in (here / "runs").glob("x-*")), key=by_job)
    assert after(old) == [new.run_id]
    write_notes([new], pytest.fail)  # as by who finds the job
    assert after(old) == [new.run_id]


def by_job(run: Run) -> str:
    return run.job_id


def test_what_is_not_that_run_is_not_named(tmp_path: Path) -> None:
    old, new = pair(tmp_path)
    write_notes([new], pytest.fail)
    (note,) = json.loads((old.dir / RESUBMITTED).read_text())["runs"]
    make_run(tmp_path, "third", job_id="40")
    for wrong in (
        {**note, "run_id": "third", "dir": str(tmp_path / "third")},  # it is of no other run
        {**note, "run_id": "../x", "dir": str(tmp_path / "third")},
        {**note, "run_id": "gone", "dir": str(tmp_path / "gone")},
        {"run_id": "new"},
    ):
        (old.dir / RESUBMITTED).write_text(json.dumps({"runs": [wrong]}))
        assert after(old) == []
    (old.dir / RESUBMITTED).write_text(json.dumps({"runs": [{**note, "dir": "/gone"}]}))
    assert after(old) == ["new"]  # beside it


@pytest.mark.parametrize(
    ("command", "same"),
    [
        (["/other/python3", "/t.py", "--lr", "1"], True),
        (["apptainer", "exec", "a.sif", "python", "/t.py", "--lr", "1"], True),
        (["python", "/t.py", "--lr", "2"], False),
        (["python", "/u.py", "--lr", "1"], False),
    ],
)
def test_what_starts_a_program_is_no_part_of_its_work(command: list[str], same: bool) -> None:
    program = {"kind": "python", "word": "/t.py"}
    one = run_record(command=["python", "/t.py", "--lr", "1"], program=program)
    assert same_work(one, run_record(command=command, program=program)) is same


def test_nothing_is_written_to_others_runs_or_to_what_is_gone(tmp_path: Path) -> None:
    old, new = pair(tmp_path)
    old.dir.chmod(0o777)
    write_notes([new], pytest.fail)
    assert not (old.dir / RESUBMITTED).exists()
    old.dir.chmod(0o755)
    _, other = pair(tmp_path / "b", of="another", dir=str(old.dir))
    shutil.rmtree(tmp_path / "b" / "old")
    _, gone = pair(tmp_path / "c", dir=str(tmp_path / "b" / "old"))
    write_notes([other, gone], pytest.fail)
    assert not (old.dir / RESUBMITTED).exists()


def test_a_note_that_cannot_be_written_is_told_once(tmp_path: Path) -> None:
    said: list[str] = []
    old, new = pair(tmp_path)
    (old.dir / RESUBMITTED).mkdir()
    write_notes([new, new], said.append)
    assert len(said) == 1
    assert "`hpckit status 20` will not say that it was submitted again" in said[0]
    assert after(old) == []


def test_whose_place_a_new_run_takes(tmp_path: Path) -> None:
    array = {"array": {"job_id": "25", "index": 0, "whole": "20"}}
    plan = {**PLAN, "array_size": 3}
    task = make_run(tmp_path, "sweep-1_0", job_id="25_0", plan=plan, **array)
    folder = str(tmp_path)
    whole = replaced_by(task, alone=False, failed=())
    assert [(row["of"], row["job_id"]) for row in whole] == [
        ("sweep-1_0", "20_0"), ("sweep-1_1", "20_1"), ("sweep-1_2", "20_2"),
    ]  # fmt: skip
    assert replaced_by(task, alone=True, failed=()) == (
        {"of": "sweep-1_0", "job_id": "25_0", "dir": f"{folder}/sweep-1_0"},
    )
    assert replaced_by(task, alone=False, failed=(2, 5)) == (
        {"of": "sweep-1_2", "job_id": "20_2", "dir": f"{folder}/sweep-1_2"},
        {"of": "sweep-1_5", "job_id": "20_5", "dir": f"{folder}/sweep-1_5"},
    )


def test_one_command_at_a_time_submits_failed_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = [make_run(tmp_path, f"new_{number}", job_id=f"20_{number}") for number in range(2)]
    monkeypatch.setattr("hpckit.submission.resubmitted._PATIENCE_S", 0.0)
    said = "Another command is submitting failed tasks of array .* in 0 s: try again later"
    what = "failed tasks of array 20"
    with one_at_a_time(tasks[1], what), pytest.raises(OutsideError, match=said):
        one_at_a_time(tasks[0], what).__enter__()  # whichever task each looks at
    for task in tasks:  # what is left of a command that is over keeps nobody out
        with one_at_a_time(task, "job 20"):
            pass
    shutil.rmtree(tasks[0].dir)
    with one_at_a_time(tasks[1], "failed tasks of array 20"):
        pass


def test_who_can_write_no_note_waits_for_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = make_run(tmp_path, "new_0", job_id="20_0")
    with monkeypatch.context() as others:
        others.setattr(Run, "mine", False)
        with one_at_a_time(task, "job 20"), one_at_a_time(task, "job 20"):
            assert not (task.dir / "resubmit.lock").exists()
    (task.dir / "resubmit.lock").mkdir()
    with one_at_a_time(task, "job 20"), one_at_a_time(task, "job 20"):
        pass


def test_who_submits_again_what_another_has_just_submitted_is_refused(tmp_path: Path) -> None:
    """Both would write the same files; who asks for something else means another job."""
    old, new = pair(tmp_path)
    asked = spec_from_record(old.record["request"])
    told = followers(old)
    refuse_twin(old, told, asked)
    write_notes([new], pytest.fail)
    with pytest.raises(RequestError, match=r"has just submitted job 20 again, as job 30\. To "):
        refuse_twin(old, told, asked)
    with pytest.raises(RequestError, match="it was submitted again meanwhile, as job 30"):
        refuse_resubmitted(old, told)
    refuse_twin(old, told, replace(asked, time_min=7))
    refuse_twin(old, followers(old), asked)  # its user was told
    refuse_resubmitted(old, followers(old))


def test_what_submits_itself_again_is_not_submitted_by_its_user(tmp_path: Path) -> None:
    run = make_run(tmp_path, "old", request={"target": "ddp", "retry": ("oom",)})
    asked = spec_from_record(run.record["request"])
    told = followers(run)
    write_note(run.dir, RetryNote(text="it failed; run b tries again", run_id="b"))
    with pytest.raises(RequestError, match="has failed and just submits itself again"):
        refuse_twin(run, told, replace(asked, mem_gb=7))
    refuse_twin(run, told, replace(asked, args=("--other",)))
    refuse_twin(run, followers(run), asked)


@pytest.mark.parametrize("how", ["command", "python"])
def test_two_that_resubmit_a_run_at_one_moment_submit_it_once(
    here: Path, fake_slurm: Path, cli: Cli, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one comes when all is prepared and nothing is submitted, as late as it can."""
    (here / "train.py").touch()
    assert cli("submit", "serial", "train.py", "--gpus", "0").out == "Submitted 1001\n"
    inner: list[object] = []
    real = Again.claim

    def late(again: Again, held: ExitStack) -> None:
        if not inner:
            inner.append(None)
            inner.append(cli("resubmit", "1001").out)
        real(again, held)

    monkeypatch.setattr(Again, "claim", late)
    said = "Another command has just submitted job 1001 again, as job 1002."
    if how == "command":
        answer = cli("resubmit", "1001")
        assert (answer.status, answer.out) == (2, "")
        assert said in answer.err
    else:
        with pytest.raises(RequestError, match=said):
            hpckit.find("1001").resubmit()
    assert inner[1] == "Submitted 1002\n"
    assert len(list((here / "runs").glob("train-*"))) == 2  # nothing is left of the second
    answer = cli("resubmit", "1001")  # its user is told, and may
    assert (answer.status, answer.out) == (0, "Submitted 1003\n")
    assert "job 1001 was submitted again before, as job 1002" in answer.err


@pytest.mark.usefixtures("here")
def test_a_job_of_slurms_is_not_run_on_a_login_node_whose_slurm_is_silent(
    here: Path, cli: Cli
) -> None:
    (here / "train.py").touch()
    asked = {"target": "serial", "program": "train.py", "gpus": 0}
    make_run(here / "runs", "old", job_id="20", executor="slurm", cwd=str(here), request=asked)
    said = cli("resubmit", "20")
    assert (said.status, said.out) == (3, "")
    assert "No sbatch here can reach a cluster. Log in to the cluster, or use --exec" in said.err
    assert [path.name for path in (here / "runs").iterdir()] == ["old"]
