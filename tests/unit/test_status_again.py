"""States of a job that may start again, what ends it, and what never starts."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hpckit.cli.view import (
    NeverStarting,
    status_page,
)
from hpckit.run_folders.ranks import write_rank
from hpckit.slurm.states import JobState
from hpckit.stop_marks import (
    HEARD,
    LIMIT,
    NO_CHECKPOINT,
    PREEMPTED,
    REQUEUED,
    SENT,
    STOPPED,
    TERMINATED,
    add_mark,
    marks_of,
)
from hpckit.submission.states import statuses
from hpckit.submission.waiting import wait
from tests.conftest import Answer
from tests.unit.made import PLAN, make_run, rank
from tests.unit.played_slurm import answers, down, end_ranks, one, sacct_row, squeue_row

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
        ("JobHeldUser", "release it with 'scontrol release 11'"),
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
    ("last", "said", "state"),
    [
        ({"exit_code": 0, "ended": 20.0}, (), "COMPLETED"),
        ({"exit_code": 0, "ended": 20.0}, (SENT, HEARD), "COMPLETED"),
        ({"exit_code": 0, "ended": 20.0}, (SENT, HEARD, STOPPED), "TIMEOUT"),
        ({"exit_code": 0, "ended": 20.0}, (SENT,), "TIMEOUT"),
        ({"exit_code": 0, "ended": 20.0, "consequence": True}, (), "TIMEOUT"),  # it was told to end
        ({"exit_code": 1, "ended": 20.0}, (), "TIMEOUT"),
        ({}, (), "TIMEOUT"),
    ],
)
def test_a_job_whose_ranks_had_done_their_work_at_its_time_limit_is_complete(
    fake_slurm: Path, tmp_path: Path, last: dict[str, Any], said: tuple[str, ...], state: str
) -> None:
    """Slurm calls it TIMEOUT where the job's own end, with a summary or `--retry`, was later."""
    run = make_run(tmp_path)
    end_ranks(run, 0, 0, 0)
    write_rank(run.dir, rank(3, **last))
    for word in said:
        add_mark(marks_of(run.dir, 0), 0, word)
    answers(fake_slurm, squeue_out=squeue_row("11", "TIMEOUT"))
    found = one(run)
    assert (found.state, found.exit_code == 0) == (state, state == "COMPLETED")
    answers(fake_slurm, squeue_out="", sacct_out=sacct_row("11", "TIMEOUT"))
    assert one(run).state == state


@pytest.mark.parametrize(
    ("earlier", "said", "code", "state"),
    [
        (PREEMPTED, (), 0, "COMPLETED"),
        (PREEMPTED, (), 3, "FAILED"),
        (PREEMPTED, (PREEMPTED, SENT, HEARD, STOPPED), 0, "PREEMPTED"),
        (PREEMPTED, (PREEMPTED,), 3, "PREEMPTED"),
        (PREEMPTED, (REQUEUED,), 3, "PREEMPTED"),
        (LIMIT, (PREEMPTED, TERMINATED), 0, "PREEMPTED"),
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


@pytest.mark.parametrize(
    ("code", "consequence", "said", "state"),
    [
        (143, True, (PREEMPTED,), "PREEMPTED"),
        (0, False, (PREEMPTED, SENT, STOPPED), "PREEMPTED"),  # told, and no requeue was left
        (143, True, (), "FAILED"),
        (3, False, (PREEMPTED,), "FAILED"),  # a rank's own error
    ],
)
@pytest.mark.parametrize("plan", [PLAN, AGAIN])
def test_what_ends_in_its_grace_time_was_preempted(
    fake_slurm: Path, tmp_path: Path, plan: dict[str, Any],
    code: int, consequence: bool, said: tuple[str, ...], state: str,
) -> None:  # fmt: skip
    """Until Slurm 24.05 the job is FAILED for it."""
    run = make_run(tmp_path, plan=plan)
    attempt = 2 if plan is AGAIN else 0
    ends = {"exit_code": code, "consequence": consequence, "ended": 150.0, "started": 120.0}
    for number in range(4):
        write_rank(run.dir, rank(number, restart=attempt, **ends))
    for word in said:
        add_mark(marks_of(run.dir, 0), attempt, word)
    answers(fake_slurm, squeue_out=squeue_row("11", "FAILED"))
    last = ", in attempt 3 of 3 (--max-requeues 2)" if attempt else ""
    words = f"jobs with a higher priority took its nodes{last}" if state == "PREEMPTED" else None
    found = one(run)
    assert (found.state, found.reason_text) == (state, words)
    rows = sacct_row("11", "PREEMPTED") * attempt + sacct_row("11", "FAILED")
    answers(fake_slurm, squeue_out="", sacct_out=rows)
    assert one(run).state == state
    if not attempt:  # accounting is off
        answers(fake_slurm, sacct_out="")
        assert one(run).state == state or (code == 0 and one(run).state == "COMPLETED")
