import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from hpckit.api.resubmit import single_task
from hpckit.cli.view import (
    LiveView,
    NeverStarting,
    status_line,
    status_lines,
    status_page,
    status_pages,
)
from hpckit.errors import OutsideError, RequestError
from hpckit.ranks import write_rank
from hpckit.runs import Run
from hpckit.schedulers.local.state import LocalState, ask_cancel, write_local_state
from hpckit.slurm.rows import COLUMN, ROW
from hpckit.slurm.states import JobState, is_finished
from hpckit.spec import JobSpec
from hpckit.stop_marks import (
    HEARD,
    LIMIT,
    NO_CHECKPOINT,
    PREEMPTED,
    REQUEUED,
    SENT,
    STOPPED,
    add_mark,
    marks_of,
)
from hpckit.submission.record import asked_otherwise, differences
from hpckit.submission.states import statuses
from hpckit.submission.status import RunStatus
from hpckit.submission.waiting import cancel, wait
from tests.conftest import Answer
from tests.unit.made import PLAN, make_run, rank, run_record
from tests.unit.test_causes import NEVER, NOT_LAUNCHED

DOWN = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)"
OFF = "sacct: error: Slurm accounting storage is disabled"


def squeue_row(job: str, state: str, **cells: str) -> str:
    row = {"raw": job.replace("_", ""), "user": "u", "account": "a", "partition": "p", "qos": "q",
           "elapsed": "1:00", "limit": "1:00:00", "submit": "100", "start": "110", "end": "N/A",
           "nodes": "n[1-2]", "reason": "None", "name": "x"} | cells  # fmt: skip
    order = ("raw", "user", "account", "partition", "qos", "state", "elapsed", "limit", "submit",
             "start", "end", "nodes", "reason", "name")  # fmt: skip
    row["state"] = state
    return ROW + COLUMN.join([job, *(row[key] for key in order)]) + "\n"


def sacct_row(job: str, state: str, code: str = "0:0", reason: str = "None") -> str:
    cells = [job, job, "u", "a", "p", "q", state, reason, "n[1-2]", "60", "60", "100", "110",
             "170", code, "x"]  # fmt: skip
    return COLUMN.join(cells) + "\n"


def answers(folder: Path, **said: str) -> None:
    for name, text in said.items():
        (folder / name.replace("_", ".")).write_text(text)


def down(folder: Path, *, accounting: bool = False) -> None:
    answers(folder, squeue_rc="1", squeue_err=DOWN)
    if accounting:
        answers(folder, sacct_rc="1", sacct_err=OFF)


def end_ranks(run: Run, *codes: int | None) -> None:
    for number, code in enumerate(codes):
        ended = None if code is None else 20.0 + number
        write_rank(run.dir, rank(number, exit_code=code, ended=ended))


def one(run: Run) -> RunStatus:
    return statuses([run])[0]


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


# --- a job that may start again ---

AGAIN = {**PLAN, "max_requeues": 2}
ENDS = ("PREEMPTED", "NODE_FAIL", "BOOT_FAIL", "FAILED", "TIMEOUT", "OUT_OF_MEMORY")


@pytest.mark.parametrize("word", ENDS)
def test_without_squeue_an_attempts_end_is_not_the_jobs(
    fake_slurm: Path, tmp_path: Path, word: str
) -> None:
    run = make_run(tmp_path, plan=AGAIN)
    down(fake_slurm)
    answers(fake_slurm, sacct_out=sacct_row("11", word, "9:0"))
    found = one(run)
    assert (found.state, found.finished, found.exit_code) == (JobState.UNKNOWN, False, None)
    why = f"last seen {word} by accounting, but it may start again; squeue: "
    assert str(found.reason_text).startswith(why)
    # Slurm starts no job again that was submitted with --no-requeue.
    assert one(make_run(tmp_path, "ddp-2")).state == word
    # A wrapper may lose squeue's exit status.
    answers(fake_slurm, squeue_rc="0", squeue_out="")
    assert one(run).state is JobState.UNKNOWN
    # Once squeue answers, and does not know the job, it has left the queue for good.
    answers(fake_slurm, squeue_err="")
    assert (one(run).state, one(run).finished) == (word, True)
    answers(fake_slurm, squeue_out=squeue_row("11", "PENDING"))
    assert one(run).state is JobState.PENDING


def test_a_row_of_an_attempt_before_the_ranks_is_no_end(fake_slurm: Path, tmp_path: Path) -> None:
    run = make_run(tmp_path, plan=AGAIN)
    end_ranks(run, 0, 0, 0, 0)
    write_rank(run.dir, rank(0, restart=1))
    down(fake_slurm)
    answers(fake_slurm, sacct_out=sacct_row("11", "CANCELLED by 0"))
    found = one(run)
    assert found.state is JobState.UNKNOWN
    assert "but its ranks have begun another attempt" in str(found.reason_text)


@pytest.mark.parametrize("codes", [(143, 143, 143, 143), (0, 0, 0, 0)])
def test_ends_of_ranks_do_not_end_a_job_that_may_start_again(
    fake_slurm: Path, tmp_path: Path, codes: tuple
) -> None:
    """Ranks end when their job is taken away, with 0 where the script saves its state."""
    run = make_run(tmp_path, plan=AGAIN)
    end_ranks(run, *codes)
    down(fake_slurm, accounting=True)
    found = one(run)
    assert (found.state, found.exit_code) == (JobState.UNKNOWN, None)
    assert "every rank had ended when last seen, but it may start again" in str(found.reason_text)
    answers(fake_slurm, squeue_rc="0", squeue_out="", squeue_err="")
    assert one(run).finished


def test_waiting_outlasts_a_squeue_that_fails_every_other_time(
    fake_slurm: Path, tmp_path: Path, here: Path, monkeypatch
) -> None:
    """The job was preempted, waits, runs again and ends well: only that is its end."""
    run = make_run(tmp_path, plan=AGAIN)
    answers(fake_slurm, sacct_out=sacct_row("11", "PREEMPTED"))
    turns = ["PENDING", None, "RUNNING", None, None, "COMPLETED"]
    seen = []

    def turn(_seconds: float = 0) -> None:
        if word := turns.pop(0):
            answers(fake_slurm, squeue_rc="0", squeue_out=squeue_row("11", word))
        else:
            (fake_slurm / "squeue.out").unlink(missing_ok=True)
            down(fake_slurm)

    clock = SimpleNamespace(sleep=turn, monotonic=time.monotonic)
    monkeypatch.setattr("hpckit.submission.waiting.time", clock)
    turn()
    [found] = wait([run], look=lambda rows: seen.append(str(rows[0].state)))
    assert seen == ["PENDING", "UNKNOWN", "RUNNING", "UNKNOWN", "UNKNOWN", "COMPLETED"]
    assert found.good


# --- what ends, or never starts, is said ---


def test_a_job_that_never_starts_is_not_waited_for(
    fake_slurm: Path, here: Path, cli: Callable[..., Answer]
) -> None:
    run = make_run(here / "runs")
    stuck = squeue_row("11", "PENDING", reason="DependencyNeverSatisfied")
    answers(fake_slurm, squeue_out=stuck)
    assert (one(run).finished, one(run).never_starts) == (False, True)
    answer = cli("wait", "11")
    assert answer.status == 1
    assert answer.out == (
        "11 PENDING: The job of its --after did not end as required, so it will never start, "
        "remove it from the queue: hpckit cancel 11\n"
    )
    cli("logs", "11", "-f")  # returns too
    # A site may let Slurm cancel it by itself.
    cancelled = squeue_row("11", "CANCELLED", reason="DependencyNeverSatisfied")
    answers(fake_slurm, squeue_out=cancelled)
    assert "so it will never start" in cli("wait", "11").out


def test_of_several_it_is_said_while_the_others_run(
    fake_slurm: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [make_run(tmp_path), make_run(tmp_path, "ddp-2", job_id="12")]
    stuck = squeue_row("11", "PENDING", reason="DependencyNeverSatisfied")
    look = NeverStarting()
    answers(fake_slurm, squeue_out=stuck + squeue_row("12", "RUNNING"))
    look(statuses(runs))
    look(statuses(runs))
    assert capsys.readouterr().err.count("11 PENDING") == 1
    answers(fake_slurm, squeue_out=stuck + squeue_row("12", "COMPLETED"))
    look(statuses(runs))
    assert [row.never_starts for row in wait(runs)] == [True, False]
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("PartitionTimeLimit", "more time than the partition allows: lower --time"),
        ("JobHeldUser", "release it with 'scontrol release JOBID'"),
        ("Resources", None),
    ],
)
def test_what_waits_for_a_change_is_said_once_and_waited_for(
    fake_slurm: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    reason: str,
    said: str | None,
) -> None:
    run = make_run(tmp_path)
    look = NeverStarting()
    answers(fake_slurm, squeue_out=squeue_row("11", "PENDING", reason=reason))
    look(statuses([run]))
    look(statuses([run]))
    err = capsys.readouterr().err
    assert err.count("11 PENDING") == (said is not None)
    assert said is None or said in err
    assert not one(run).never_starts  # somebody may change it


@pytest.mark.parametrize(
    ("word", "restarts", "said"),
    [
        ("TIMEOUT", 0, "it reached its time limit of 01:00:00, in attempt 1 of 3 "
                       "(--max-requeues 2)"),
        ("TIMEOUT", 2, "it reached its time limit of 01:00:00, in attempt 3 of 3 "
                       "(--max-requeues 2)"),
        ("PREEMPTED", 2, "jobs with a higher priority took its nodes, in attempt 3 of 3 "
                         "(--max-requeues 2)"),
        ("FAILED", 2, "its script ended after the signal that the time limit of 01:00:00 or a "
                      "preemption was near, in attempt 3 of 3 (--max-requeues 2)"),
        ("FAILED", 1, None),
    ],
)  # fmt: skip
def test_used_up_requeues_are_named_with_limit_and_count(
    fake_slurm: Path, tmp_path: Path, word: str, restarts: int, said: str | None
) -> None:
    run = make_run(tmp_path, plan=AGAIN)
    for number in range(4):
        end = {"exit_code": 0, "ended": 20.0} if word == "FAILED" else {}
        write_rank(run.dir, rank(number, restart=restarts, **end))
    answers(fake_slurm, squeue_out=squeue_row("11", word, start="5"))
    found = one(run)
    assert (found.state, found.reason_text) == (word, said)
    assert "killed from outside?" not in status_page(found)
    # Without requeues there is nothing to count.
    once = make_run(tmp_path, "ddp-2")
    if word == "TIMEOUT":
        assert one(once).reason_text == "it reached its time limit of 01:00:00"


@pytest.mark.parametrize(
    ("word", "mark", "said"),
    [
        ("TIMEOUT", NO_CHECKPOINT, "it reached its time limit of 01:00:00, in attempt 2 of 3 "
                       "(--max-requeues 2), and left no checkpoint that --checkpoint names"),
        ("FAILED", NO_CHECKPOINT, "its script ended after the signal that the time limit of "
                       "01:00:00 or a preemption was near, in attempt 2 of 3 (--max-requeues 2), "
                       "and left no checkpoint that --checkpoint names"),
        ("FAILED", STOPPED, "its script ended after the signal that the time limit of "
                       "01:00:00 or a preemption was near, in attempt 2 of 3 (--max-requeues 2)"),
        ("FAILED", SENT, None),
        ("COMPLETED", STOPPED, None),
    ],
)  # fmt: skip
def test_what_was_said_of_the_signal_tells_why_a_job_did_not_go_on(
    fake_slurm: Path, tmp_path: Path, word: str, mark: str, said: str | None
) -> None:
    run = make_run(tmp_path, plan=AGAIN)
    for number in range(4):
        write_rank(run.dir, rank(number, restart=1, exit_code=0, ended=20.0))
    add_mark(marks_of(run.dir, 0), 0, NO_CHECKPOINT)  # of another attempt
    add_mark(marks_of(run.dir, 0), 1, mark)
    answers(fake_slurm, squeue_out=squeue_row("11", word, start="5"))
    assert one(run).reason_text == said


@pytest.mark.parametrize(
    ("earlier", "said", "code", "state"),
    [
        (PREEMPTED, (), 0, "COMPLETED"),
        (PREEMPTED, (), 3, "FAILED"),
        (PREEMPTED, (PREEMPTED, SENT, HEARD, STOPPED), 0, "PREEMPTED"),
        (PREEMPTED, (PREEMPTED,), 3, "PREEMPTED"),
        (PREEMPTED, (REQUEUED,), 3, "PREEMPTED"),
        (LIMIT, (PREEMPTED, SENT, HEARD), 0, "COMPLETED"),  # complete in its grace time
        (LIMIT, (), 0, "PREEMPTED"),  # Slurm's word is all there is
        (LIMIT, (), 3, "PREEMPTED"),
    ],
)
@pytest.mark.parametrize("by_accounting", [False, True])
def test_an_attempts_end_is_not_an_earlier_ones_preemption(
    fake_slurm: Path, tmp_path: Path, by_accounting: bool,
    earlier: str, said: tuple[str, ...], code: int, state: str,
) -> None:  # fmt: skip
    """Slurm 24.11.5 says PREEMPTED of it, and that its exit status was 0."""
    run = make_run(tmp_path, plan=AGAIN)
    for number in range(4):
        row = rank(number, restart=1, started=120.0, exit_code=code, ended=150.0)
        write_rank(run.dir, replace(row, consequence=bool(code and number)))
    add_mark(marks_of(run.dir, 0), 0, earlier)
    for word in said:
        add_mark(marks_of(run.dir, 0), 1, word)
    if by_accounting:
        rows = sacct_row("11", "REQUEUED") + sacct_row("11", "PREEMPTED")
        answers(fake_slurm, sacct_out=rows)
    else:
        answers(fake_slurm, squeue_out=squeue_row("11", "PREEMPTED"))
    found = one(run)
    assert found.state == state
    assert state == "PREEMPTED" or found.exit_code == code
    assert (wait([run], timeout_s=0)[0].good) == (state == "COMPLETED")


def test_a_rank_that_wrote_no_end_was_preempted(fake_slurm: Path, tmp_path: Path) -> None:
    run = make_run(tmp_path, plan=AGAIN)
    for number in range(4):
        ended = 150.0 if number else None
        code = 0 if number else None
        write_rank(run.dir, rank(number, restart=1, started=120.0, exit_code=code, ended=ended))
    add_mark(marks_of(run.dir, 0), 0, PREEMPTED)
    answers(fake_slurm, squeue_out=squeue_row("11", "PREEMPTED"))
    assert one(run).state == "PREEMPTED"


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
         "template t has changed (was 1, is 2)"),
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
