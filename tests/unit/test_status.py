"""Which state a run is in: Slurm's word, accounting's, and the ranks'."""

import time
from pathlib import Path

import pytest

from hpckit.cli.view import (
    status_line,
)
from hpckit.errors import OutsideError
from hpckit.run_folders.ranks import write_rank
from hpckit.schedulers.local.state import LocalState, ask_cancel, write_local_state
from hpckit.slurm.rows import COLUMN
from hpckit.slurm.states import JobState, is_finished
from hpckit.submission.states import statuses
from hpckit.submission.waiting import cancel, wait
from tests.unit.made import make_run, rank
from tests.unit.played_slurm import OFF, answers, down, end_ranks, one, sacct_row, squeue_row
from tests.unit.test_causes import NEVER, NOT_LAUNCHED


@pytest.mark.parametrize("word", list(JobState))
def test_every_word_of_slurm_is_shown_and_only_completed_is_good(
    fake_slurm: Path, tmp_path: Path, word: JobState
) -> None:
    run = make_run(tmp_path)
    answers(fake_slurm, squeue_out=squeue_row("11", str(word)))
    found = one(run)
    assert (found.state, found.source) == (word, "squeue")
    assert found.good == (word is JobState.COMPLETED)
    assert found.finished == is_finished(word)
    assert found.nodes == ("n1", "n2")


@pytest.mark.parametrize("word", ["DREAMING", "", "???"])
def test_a_word_that_nobody_knows_is_never_finished(
    fake_slurm: Path, tmp_path: Path, word: str
) -> None:
    run = make_run(tmp_path)
    end_ranks(run, 0, 0, 0, 0)
    answers(fake_slurm, squeue_out=squeue_row("11", word))
    assert (one(run).state, one(run).finished, one(run).good) == (JobState.UNKNOWN, False, False)


def test_a_pending_job_says_why_in_plain_words_and_when(fake_slurm: Path, tmp_path: Path) -> None:
    run = make_run(tmp_path)
    answers(
        fake_slurm, squeue_out=squeue_row("11", "PENDING", reason="Priority", start="4102444800")
    )
    found = one(run)
    assert found.reason == "Priority"
    assert found.reason_text
    assert found.reason_text != "Priority"
    assert found.expected_start == 4102444800
    assert "expected start 2" in status_line(found)


def test_a_session_that_is_ending_is_not_a_place_to_go(fake_slurm: Path, tmp_path: Path) -> None:
    run = make_run(tmp_path, session={"kind": "shell", "idle_s": None})
    for word, notes in (("RUNNING", ["a session; go there: hpckit shell 11"]), ("COMPLETING", [])):
        answers(fake_slurm, squeue_out=squeue_row("11", word))
        assert list(one(run).notes) == notes


@pytest.mark.parametrize(("rank_s", "said"), [(90.0, 90.0), (0.4, 0)])
def test_a_start_that_accounting_lost_does_not_make_a_job_take_no_time(
    fake_slurm: Path, tmp_path: Path, rank_s: float, said: float
) -> None:
    run = make_run(tmp_path)
    for number in range(4):
        write_rank(run.dir, rank(number, exit_code=1, started=100.0, ended=100.0 + rank_s))
    lost = sacct_row("11", "FAILED", "1:0").replace(
        f"{COLUMN}60{COLUMN}60{COLUMN}100{COLUMN}110",
        f"{COLUMN}0{COLUMN}60{COLUMN}100{COLUMN}Unknown",
    )
    answers(fake_slurm, sacct_out=lost)
    assert one(run).elapsed_s == said


def test_a_job_that_ends_keeps_the_nodes_that_are_done(fake_slurm: Path, tmp_path: Path) -> None:
    run = make_run(tmp_path, job_id="7")
    assert run.record["plan"]["nodes"] == 2
    for number, host in enumerate(("n1", "n2")):
        write_rank(run.dir, rank(number, host=host, ended=200.0, exit_code=1))
    answers(fake_slurm, squeue=squeue_row("7", "COMPLETING", nodes="n2"))
    assert one(run).nodes == ("n1", "n2")


def test_a_status_is_shown_in_a_line_that_a_notebook_can_bear(
    fake_slurm: Path, tmp_path: Path
) -> None:
    run = make_run(tmp_path)
    end_ranks(run, 0, 0, 0, 0)
    answers(fake_slurm, squeue_out=squeue_row("11", "COMPLETED", elapsed="1:00", end="170"))
    shown = repr(one(run))
    assert shown.startswith("RunStatus('11', 'COMPLETED', source=")
    assert "elapsed_s=60," in shown
    assert "None" not in shown
    assert len(shown) < 200
    assert repr(run) == f"Run({str(run.dir)!r})"


def test_what_squeue_forgot_accounting_remembers(fake_slurm: Path, tmp_path: Path) -> None:
    run = make_run(tmp_path)
    answers(fake_slurm, sacct_out=sacct_row("11", "OUT_OF_MEMORY", "0:125"))
    found = one(run)
    assert (found.state, found.source) == (JobState.OUT_OF_MEMORY, "sacct")
    assert (found.finished, found.good, found.exit_code) == (True, False, 253)


@pytest.mark.parametrize(
    ("state", "finished"), [("COMPLETED", True), ("CANCELLED by 1000", True), ("RUNNING", False)]
)
def test_with_the_controller_down_accounting_answers_as_far_as_it_knows(
    fake_slurm: Path, tmp_path: Path, state: str, finished: bool
) -> None:
    run = make_run(tmp_path)
    down(fake_slurm)
    answers(fake_slurm, sacct_out=sacct_row("11", state))
    found = one(run)
    assert (found.source, found.finished) == ("sacct", finished)
    if not finished:
        assert found.reason_text is not None
        assert "as accounting last knew it" in found.reason_text
        assert "Unable to contact" in found.reason_text


@pytest.mark.parametrize(
    ("codes", "state", "exit_code"),
    [
        ((0, 0, 0, 0), JobState.COMPLETED, 0),
        ((0, 7, 0, 0), JobState.FAILED, 7),
        ((0, 0, 0, None), JobState.UNKNOWN, None),
        ((0, 0, 0), JobState.UNKNOWN, None),
        ((1, None, None, None), JobState.UNKNOWN, None),
        ((), JobState.UNKNOWN, None),
    ],
)
def test_with_both_failing_the_ranks_own_files_count(
    fake_slurm: Path, tmp_path: Path, codes: tuple, state: JobState, exit_code: int | None
) -> None:
    run = make_run(tmp_path)
    down(fake_slurm, accounting=True)
    end_ranks(run, *codes)
    found = one(run)
    assert (found.state, found.source, found.exit_code) == (state, "ranks", exit_code)
    assert found.finished == (state is not JobState.UNKNOWN)
    assert "squeue" in str(found.reason_text)
    assert "sacct" in str(found.reason_text)


# --- Slurm's word and the ranks' ---


@pytest.mark.parametrize(
    ("codes", "said"),
    [
        ((0, 0, 0, 143), "rank 3 on n1 ended with exit status 143"),
        ((0, 0, 0, None), "rank 3 on n1 recorded no end"),
        ((0, 0, 0), "rank 3 left no record"),
        ((0,), "rank 1 left no record, rank 2 left no record, rank 3 left no record"),
        ((7, None), "rank 0 on n0 ended with exit status 7, rank 1 on n0 recorded no end, "
                    "rank 2 left no record and 1 more"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("by", ["squeue", "sacct"])
def test_completed_is_no_success_of_a_rank_that_failed_or_vanished(
    fake_slurm: Path, tmp_path: Path, codes: tuple, said: str, by: str
) -> None:
    run = make_run(tmp_path)
    end_ranks(run, *codes)
    row = {"squeue": squeue_row, "sacct": sacct_row}[by]
    answers(fake_slurm, **{f"{by}_out": row("11", "COMPLETED")})
    found = one(run)
    assert (found.state, found.finished, found.good) == (JobState.FAILED, True, False)
    assert found.reason_text == f"Slurm says COMPLETED, but {said}"
    assert found.exit_code in (143, 7, None)
    assert found.exit_code == next((code for code in codes if code), None)


@pytest.mark.parametrize("by", ["squeue", "sacct"])
def test_completed_is_no_success_where_srun_started_no_rank(
    fake_slurm: Path, tmp_path: Path, by: str
) -> None:
    run, now = make_run(tmp_path), int(time.time())
    (run.dir / "job.out").write_text(NOT_LAUNCHED)
    if by == "squeue":
        answers(fake_slurm, squeue_out=squeue_row("11", "COMPLETED", end=str(now - 1)))
    else:
        answers(fake_slurm, sacct_out=sacct_row("11", "COMPLETED"))
    found = one(run)
    assert (found.state, found.exit_code, found.source) == (JobState.FAILED, None, "ranks")
    assert found.reason_text == f"Slurm says COMPLETED, but {NEVER}"
    assert found.why() == [("why", NEVER)]
    end_ranks(run, 0, 0, 0, 0)
    assert one(run).good


def test_with_accounting_alone_the_ranks_count_too(fake_slurm: Path, tmp_path: Path) -> None:
    run = make_run(tmp_path)
    end_ranks(run, 0, 0, 0, None)
    down(fake_slurm)
    answers(fake_slurm, sacct_out=sacct_row("11", "COMPLETED"))
    assert one(run).state is JobState.FAILED
    end_ranks(run, 0, 0, 0, 0)
    assert one(run).good


def test_a_rank_file_may_come_late_but_not_for_ever(fake_slurm: Path, tmp_path: Path) -> None:
    """Over NFS what another node wrote is seen up to a minute later."""
    run, now = make_run(tmp_path), int(time.time())
    end_ranks(run, 0, 0, 0)
    answers(fake_slurm, squeue_out=squeue_row("11", "COMPLETED", end=str(now - 5)))
    found = one(run)
    assert (found.state, found.finished) == (JobState.COMPLETING, False)
    assert found.reason_text == (
        "Slurm says COMPLETED, and rank 3 left no record: it may come late"
    )
    end_ranks(run, 0, 0, 0, 0)
    assert one(run).good
    # A failure on record needs no more.
    end_ranks(run, 0, 0, 1, None)
    assert one(run).state is JobState.FAILED
    end_ranks(run, 0, 0, 0, None)
    answers(fake_slurm, squeue_out=squeue_row("11", "COMPLETED", end=str(now - 90)))
    assert one(run).state is JobState.FAILED


def test_scripts_that_are_none_of_hpckits_have_slurms_word(
    fake_slurm: Path, tmp_path: Path
) -> None:
    """A group's own template may start no rank of hpckit's."""
    answers(fake_slurm, squeue_out=squeue_row("11", "COMPLETED"))
    assert one(make_run(tmp_path)).good


def test_only_the_newest_attempts_ranks_count(fake_slurm: Path, tmp_path: Path) -> None:
    run = make_run(tmp_path)
    end_ranks(run, 143, 143, None, 137)
    for number in range(4):
        write_rank(run.dir, rank(number, restart=1, exit_code=0, ended=20.0))
    answers(fake_slurm, squeue_out=squeue_row("11", "COMPLETED"))
    assert one(run).good


def test_a_local_run_is_judged_alike(tmp_path: Path) -> None:
    run = make_run(tmp_path, job_id="local-1", executor="local")
    end_ranks(run, 0, 0, 0, None)
    state = LocalState(job_id="local-1", state=JobState.COMPLETED, host="h", pid=1, pid_started=1,
                       started=10.0, ended=time.time(), exit_code=0)  # fmt: skip
    write_local_state(run.dir, state)
    assert one(run).state is JobState.FAILED
    assert "but rank 3 on n1 recorded no end" in str(one(run).reason_text)


@pytest.mark.parametrize(
    ("asked", "consequence", "state"),
    [(True, True, "CANCELLED"), (True, False, "FAILED"), (False, True, "FAILED")],
)
def test_a_cancelled_job_that_slurm_forgot_was_cancelled(
    fake_slurm: Path, tmp_path: Path, asked: bool, consequence: bool, state: str
) -> None:
    """Without accounting, minutes after its end."""
    run = make_run(tmp_path)
    for number in range(4):
        write_rank(run.dir, rank(number, ended=20.0, exit_code=143, consequence=consequence))
    answers(fake_slurm, sacct_rc="1", sacct_err=OFF)
    if asked:
        ask_cancel(run.dir)
    assert one(run).state == state


def test_a_job_that_nobody_knows_is_unknown_and_says_so(fake_slurm: Path, tmp_path: Path) -> None:
    found = one(make_run(tmp_path))
    assert (found.state, found.finished) == (JobState.UNKNOWN, False)
    assert "Slurm no longer knows this job" in str(found.reason_text)


def test_ranks_of_an_earlier_attempt_do_not_end_the_next(fake_slurm: Path, tmp_path: Path) -> None:
    run = make_run(tmp_path)
    down(fake_slurm, accounting=True)
    end_ranks(run, 0, 0, 0, 0)
    write_rank(run.dir, rank(2, restart=1))
    assert one(run).state is JobState.UNKNOWN
    assert one(run).restarts == 1


def test_without_slurms_programs_the_state_is_unknown(here: Path, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("PATH", str(here))
    found = one(make_run(tmp_path))
    assert found.state is JobState.UNKNOWN
    assert "'squeue' was not found on PATH" in str(found.reason_text)


def test_a_whole_array_is_asked_for_in_one_query(fake_slurm: Path, tmp_path: Path) -> None:
    runs = [
        make_run(tmp_path, f"a_{n}", job_id=f"20_{n}", array={"job_id": "20", "index": n})
        for n in range(30)
    ]
    rows = (squeue_row(f"20_{n}", "RUNNING" if n % 2 else "COMPLETED") for n in range(30))
    answers(fake_slurm, squeue_out="".join(rows))
    found = statuses(runs)
    assert [row.state for row in found[:2]] == [JobState.COMPLETED, JobState.RUNNING]
    calls = (fake_slurm / "calls.jsonl").read_text().splitlines()
    assert len(calls) == 1
    assert '"--jobs=20"' in calls[0]


def test_a_local_run_asks_no_slurm(fake_slurm: Path, tmp_path: Path) -> None:
    run = make_run(tmp_path, job_id="local-1", executor="local")
    lost = one(run)  # it is written before run.json
    assert (lost.state, lost.elsewhere) == (JobState.UNKNOWN, True)
    assert str(lost.reason_text).startswith("local.json is gone; no process of this run is on ")
    state = LocalState(job_id="local-1", state=JobState.COMPLETED, host="h", pid=1, pid_started=1,
                       started=10.0, ended=15.0, exit_code=0)  # fmt: skip
    write_local_state(run.dir, state)
    assert (one(run).state, one(run).elapsed_s, one(run).exit_code) == (JobState.COMPLETED, 5.0, 0)
    assert not (fake_slurm / "calls.jsonl").exists()


def test_status_json_has_the_words_of_the_contract(fake_slurm: Path, tmp_path: Path) -> None:
    run = make_run(tmp_path)
    end_ranks(run, 0, 3, None, None)
    answers(fake_slurm, squeue_out=squeue_row("11", "RUNNING"))
    record = one(run).document()
    wanted = {"job_id", "state", "reason", "nodes", "elapsed_s", "restarts", "exit_code", "run_dir"}
    assert wanted | {"ranks"} <= set(record)
    assert [row["exit_code"] for row in record["ranks"]] == [0, 3, None, None]
    assert {"rank", "host", "exit_code", "error"} <= set(record["ranks"][0])


def test_another_job_with_the_same_id_is_not_ours(fake_slurm: Path, tmp_path: Path) -> None:
    """Of another cluster that shares the home folder, or of before Slurm was set up anew."""
    run = make_run(tmp_path)
    end_ranks(run, 0, 0, 0, 0)
    answers(fake_slurm, squeue_out=squeue_row("11", "RUNNING", submit="9000", name="theirs"))
    assert (one(run).state, one(run).source) == (JobState.COMPLETED, "ranks")
    end_ranks(run, 0, 0, 0, None)
    assert (one(run).state, one(run).elsewhere) == (JobState.UNKNOWN, True)
    assert "job 11 here is another, 'theirs'" in status_line(one(run))
    cancel([run])
    assert "scancel" not in (fake_slurm / "calls.jsonl").read_text()
    with pytest.raises(OutsideError, match="Nothing to wait for here: job 11 here is another"):
        wait([run])
    # The user renamed it; it was requeued.
    for cells in ({"submit": "101", "name": "new"}, {"submit": "9000", "name": "ddp"}):
        answers(fake_slurm, squeue_out=squeue_row("11", "RUNNING", **cells))
        assert one(run).state is JobState.RUNNING


def test_an_old_run_of_the_same_number_does_not_hide_the_new_one(
    fake_slurm: Path, tmp_path: Path
) -> None:
    old = make_run(tmp_path, "old-1", name="other")
    new = make_run(tmp_path, "ddp-1", name="mine", submitted_at=9000.0)
    answers(fake_slurm, squeue_out=squeue_row("11", "RUNNING", submit="9000", name="mine"))
    for runs in ([old, new], [new, old]):
        found = {row.run.run_id: row for row in statuses(runs)}
        assert found["ddp-1"].state is JobState.RUNNING
        assert found["old-1"].elsewhere
