"""`--after JOB` when that job has ended: what cannot come is said, not waited for."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hpckit.errors import PlanError, RequestError
from hpckit.run_folders.runs import Run
from hpckit.schedulers.local.controller import _gate
from hpckit.schedulers.local.state import LocalState, write_local_state
from hpckit.slurm.states import JobState
from hpckit.submission.after import KINDS, dependency, refuse_beside_chain, refuse_hopeless
from hpckit.submission.awaited import notes_on
from hpckit.submission.resubmitted import write_notes
from tests.conftest import Answer
from tests.unit.made import make_run
from tests.unit.played_slurm import answers, down, end_ranks, sacct_row, squeue_row


@pytest.mark.parametrize("word", ["11", "afterok:11"])
@pytest.mark.parametrize("ours", [True, False])
def test_after_a_job_that_failed_nothing_would_start(
    fake_slurm: Path, tmp_path: Path, word: str, ours: bool
) -> None:
    if ours:
        make_run(tmp_path / "runs")
    answers(fake_slurm, sacct_out=sacct_row("11", "FAILED", "1:0"))
    with pytest.raises(PlanError) as said:
        refuse_hopeless((word,), tmp_path / "runs")
    assert str(said.value) == (
        f"--after {word}: job 11 is FAILED, but the new job starts only after a job that is "
        "COMPLETED, so it would never start. Run that job again first (hpckit resubmit 11), or "
        "give --after afterany:11. (--skip-check after submits it anyway.)"
    )
    for kind in ("afterany", "afternotok", "after", "aftercorr"):
        refuse_hopeless((f"{kind}:11",), tmp_path / "runs")


def test_nor_after_one_that_only_slurm_calls_completed(fake_slurm: Path, tmp_path: Path) -> None:
    run = make_run(tmp_path)
    answers(fake_slurm, squeue_out=squeue_row("11", "COMPLETED"))
    end_ranks(run, 0, 0, 0, 0)
    refuse_hopeless(("11",), tmp_path)
    with pytest.raises(
        PlanError, match="job 11 is COMPLETED, but the new job starts only after a f"
    ):
        refuse_hopeless(("afternotok:11",), tmp_path)
    end_ranks(run, 0, 0, 0, 143)
    with pytest.raises(PlanError, match="job 11 is FAILED"):
        refuse_hopeless(("11",), tmp_path)


def test_one_failed_task_of_an_array_is_enough(fake_slurm: Path, tmp_path: Path) -> None:
    rows = squeue_row("20_0", "COMPLETED") + squeue_row("20_1", "TIMEOUT")
    answers(fake_slurm, squeue_out=rows)
    with pytest.raises(PlanError, match="job 20_1 is TIMEOUT"):
        refuse_hopeless(("20",), tmp_path)


def again(root: Path, old: Run, name: str, job_id: str, **changes: Any) -> Run:
    """Make what `hpckit resubmit` submitted in the place of a run."""
    before = {"of": old.run_id, "job_id": old.job_id, "dir": str(old.dir)}
    new = make_run(root, name, job_id=job_id, resubmit=before, **changes)
    write_notes([new], pytest.fail)
    return new


def tasks_of_20(root: Path) -> list[Run]:
    return [
        make_run(root, f"a_{n}", job_id=f"20_{n}", array={"job_id": "20", "index": n})
        for n in range(4)
    ]


def queue(folder: Path, **states: str) -> None:
    down(folder, accounting=True)
    rows = [squeue_row(job.removeprefix("job"), state) for job, state in states.items()]
    answers(folder, squeue_rc="0", squeue_err="", squeue_out="".join(rows))


def test_in_the_place_of_a_failed_task_the_run_counts_that_tries_it_again(
    fake_slurm: Path, tmp_path: Path
) -> None:
    runs = tasks_of_20(tmp_path)
    first = {"job20_0": "COMPLETED", "job20_1": "FAILED", "job20_2": "RUNNING"}
    queue(fake_slurm, **first, job20_3="COMPLETED")
    assert dependency("20", "slurm", tmp_path)[0] == "afterok:20"
    with pytest.raises(PlanError, match=r"job 20_1 is FAILED.*\(hpckit resubmit 20 --failed\)"):
        refuse_hopeless(("20",), tmp_path)
    new = again(tmp_path, runs[1], "b", "31")
    again(tmp_path, runs[3], "c", "32")  # once more, though it had ended well
    again(tmp_path, runs[1], "d", "33", command=["python", "other.py"])  # other work
    queue(fake_slurm, **first, job20_3="COMPLETED", job31="PENDING", job32="CANCELLED")
    refuse_hopeless(("20",), tmp_path)
    found = dependency("20", "slurm", tmp_path)
    assert found[0] == "afterok:31:20_2"
    dirs = [f"afterok:{run.dir}" for run in (runs[0], new, *runs[2:])]
    assert found[1] == tuple(dirs)
    assert list(notes_on(("20",), [found], tmp_path)) == [
        "--after 20: job 20_1 is tried again as 31; this one waits for that one"
    ]
    # What is only to be over is the array that was named.
    for kind in ("afterany", "afternotok"):
        assert dependency(f"{kind}:20", "slurm", tmp_path)[0] == f"{kind}:20"


def test_to_refuse_and_to_name_slurm_is_asked_once(
    fake_slurm: Path, tmp_path: Path, cli: Callable[..., Answer]
) -> None:
    root = tmp_path / "runs"
    again(root, tasks_of_20(root)[1], "b", "31")
    states = {f"job20_{n}": "FAILED" if n == 1 else "COMPLETED" for n in range(4)}
    queue(fake_slurm, **states, job31="RUNNING")
    script = tmp_path / "script.py"
    script.touch()
    words = ("serial", str(script), "--runs", str(root), "--executor", "slurm", "--gpus", "0")
    said = cli("submit", *words, "--after", "20")
    assert said.status == 0, said.err
    assert "job 20_1 is tried again as 31; this one waits for that one" in said.err
    calls = [json.loads(line) for line in (fake_slurm / "calls.jsonl").read_text().splitlines()]
    assert [call[-1] for call in calls if call[0] == "squeue"] == ["--jobs=20,31"]


def test_what_tries_a_failed_task_again_may_fail_or_be_complete(
    fake_slurm: Path, tmp_path: Path
) -> None:
    runs = tasks_of_20(tmp_path)
    again(tmp_path, runs[1], "b", "31")
    states = {f"job20_{n}": "FAILED" if n == 1 else "COMPLETED" for n in range(4)}
    queue(fake_slurm, **states, job31="TIMEOUT")
    with pytest.raises(PlanError, match="job 31, which tries job 20_1 again, is TIMEOUT, but"):
        refuse_hopeless(("20",), tmp_path)
    queue(fake_slurm, **states, job31="COMPLETED")
    refuse_hopeless(("20",), tmp_path)
    assert dependency("20", "slurm", tmp_path)[0] == "afterok:20_3"  # there is nothing to wait for


def test_a_job_that_was_submitted_again_by_hand_is_waited_for(
    fake_slurm: Path, tmp_path: Path
) -> None:
    new = again(tmp_path, make_run(tmp_path), "b", "31")
    queue(fake_slurm, job11="FAILED", job31="RUNNING")
    refuse_hopeless(("11",), tmp_path)
    assert dependency("11", "slurm", tmp_path) == ("afterok:31", (f"afterok:{new.dir}",))
    assert dependency("afterany:11", "slurm", tmp_path)[0] == "afterany:11"
    queue(fake_slurm, job11="COMPLETED", job31="FAILED")
    refuse_hopeless(("11",), tmp_path)
    assert dependency("11", "slurm", tmp_path)[0] == "afterok:11"


def test_what_is_not_known_is_not_refused(fake_slurm: Path, tmp_path: Path) -> None:
    for rows in (squeue_row("11", "RUNNING"), squeue_row("11", "PENDING")):
        answers(fake_slurm, squeue_out=rows)
        refuse_hopeless(("11", "latest-of-nothing"), tmp_path)
    (fake_slurm / "squeue.out").unlink()
    down(fake_slurm)
    answers(fake_slurm, sacct_out=sacct_row("11", "FAILED"))
    refuse_hopeless(("11",), tmp_path)  # of somebody's; it may start again


def test_a_job_that_nobody_has_is_refused_for_slurm_would_not_wait(
    fake_slurm: Path, tmp_path: Path
) -> None:
    answers(fake_slurm, squeue_out=squeue_row("12", "RUNNING"))
    for word in ("11", "afterany:11", "11_3"):
        with pytest.raises(PlanError, match=r"Slurm knows no job 11.*--skip-check after"):
            refuse_hopeless((word,), tmp_path)
    make_run(tmp_path)  # what hpckit knows is over, or was forgotten
    refuse_hopeless(("11",), tmp_path)
    refuse_hopeless(("afterok:nobody",), tmp_path)  # `dependency` says that there is no such run


@pytest.mark.parametrize(
    ("word", "each"),
    [("1,2_3", "--after 1 --after 2_3"), ("afterany:1:2", "--after afterany:1 --after afterany:2"),
     ("afterok:1,afterany:2", "--after afterok:1 --after afterany:2")],
)  # fmt: skip
def test_a_list_as_sbatch_takes_it_is_told_apart(tmp_path: Path, word: str, each: str) -> None:
    said = f"--after {word!r} names 2 jobs. Give it for each: {each}."
    with pytest.raises(RequestError, match=re.escape(said)):
        dependency(word, "slurm", tmp_path)


def test_a_chain_is_completed_with_any_of_its_jobs_and_over_with_all(tmp_path: Path) -> None:
    """Slurm calls the first FAILED once the second goes on: afterok of it was never met."""
    run = make_run(tmp_path, chain=["11", "12", "13"])
    for job in ("11", "13", run.run_id):
        found = {kind: dependency(f"{kind}:{job}", "slurm", tmp_path)[0] for kind in KINDS[:4]}
        assert found == {
            "afterok": "afterok:11?afterok:12?afterok:13",
            "afterany": "afterany:11:12:13",
            "afternotok": "afternotok:11:12:13",
            "after": "after:11",
        }
    text = found["afterok"]
    refuse_beside_chain(["11"], [text], more=False)
    for words, texts, more in ((["11", "7"], [text, "afterok:7"], False), (["11"], [text], True)):
        with pytest.raises(RequestError, match=r"--after 11 is a chain.*afterany:11"):
            refuse_beside_chain(words, texts, more=more)


def test_a_wrong_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="'afterlife' is not one of afterok"):
        dependency("afterlife:3", "slurm", tmp_path)


@pytest.mark.parametrize(
    ("state", "gates"),
    [
        (JobState.COMPLETED, {"afterok": None, "afterany": None, "afternotok": JobState.CANCELLED,
                              "after": None, "aftercorr": None}),
        (JobState.FAILED, {"afterok": JobState.CANCELLED, "afterany": None, "afternotok": None,
                           "after": None, "aftercorr": JobState.CANCELLED}),
        (JobState.RUNNING, {"afterok": JobState.PENDING, "afterany": JobState.PENDING,
                            "afternotok": JobState.PENDING, "after": None}),
        (JobState.PENDING, {"afterok": JobState.PENDING, "after": JobState.PENDING}),
    ],
)  # fmt: skip
def test_local_runs_know_slurms_kinds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: JobState, gates: dict
) -> None:
    started = None if state is JobState.PENDING else 1.0
    local = LocalState(job_id="local-1", state=state, host="h", pid=1, pid_started=1,
                       started=started)  # fmt: skip
    write_local_state(tmp_path, local)
    monkeypatch.setattr("hpckit.schedulers.local.controller.read_local_state", lambda _: local)
    assert {kind: _gate([f"{kind}:{tmp_path}"]) for kind in gates} == gates


def test_what_a_local_run_waits_for_may_be_removed(tmp_path: Path) -> None:
    assert _gate([f"afterany:{tmp_path}"]) is JobState.PENDING  # it is about to be written
    assert _gate([f"afterany:{tmp_path / 'gone'}"]) is JobState.CANCELLED


def array_run(root: Path, name: str, job_id: str, index: int, whole: str = "100") -> None:
    array = {"job_id": job_id.partition("_")[0], "index": index, "whole": whole}
    make_run(root, f"{name}_{index}", job_id=job_id, array=array)


def test_a_number_means_all_arrays_of_a_long_one(tmp_path: Path) -> None:
    array_run(tmp_path, "sweep", "100_0", 0)
    array_run(tmp_path, "sweep", "101_0", 1000)
    assert dependency("100", "slurm", tmp_path)[0] == "afterok:100:101"
    assert dependency("afterany:100_1000", "slurm", tmp_path)[0] == "afterany:101_0"
    with pytest.raises(RequestError, match="2 arrays"):
        dependency("aftercorr:100", "slurm", tmp_path)
    # What hpckit did not submit is for Slurm to know.
    assert dependency("77_3", "slurm", tmp_path) == ("afterok:77_3", ())
