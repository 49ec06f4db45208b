"""How the attempts before the newest one ended: by Slurm's words in the log, and by the ranks."""

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hpckit.job_ends.restarts import earlier_ends
from hpckit.payload.task import Task
from hpckit.run_folders.ranks import write_rank
from hpckit.schedulers.slurm import Slurm
from hpckit.slurm import jobs
from hpckit.slurm.states import JobState
from hpckit.stop_marks import add_mark, marks_of
from hpckit.submission.kept_signal import requeue_if_kept, signalled_host
from tests.unit.made import PLAN, make_run, rank

TERM = {"exit_code": 143, "ended": 15.0, "consequence": True, "error": "ended by SIGTERM"}
PEER = {"exit_code": 1, "ended": 12.0, "error": "RuntimeError: Connection closed by peer [::1]:1"}
GONE: dict[str, Any] = {}
GOOD = {"exit_code": 0, "ended": 20.0}
# Of the real Slurm of the tests, 22.05.8.
LOGS = {
    "a job of higher priority took its place": (
        "slurmstepd-c1: error: *** JOB 7 ON c1 CANCELLED AT 2026-11-22T20:03:39 DUE TO PREEMPTION "
        "***\nsrun: Job step aborted: Waiting up to 12 seconds for job step to finish.\n"
        "srun: error: c2: task 1: Exited with exit code 1\n",
        (TERM, TERM),
    ),
    "node c2 was lost": (
        "srun: error: c1: task 0: Exited with exit code 1\nsrun: error: Node failure on c2\n"
        "slurmstepd-c1: error: *** JOB 7 ON c1 CANCELLED AT 2026-11-22T20:38:23 DUE TO NODE "
        "FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***\n",
        (PEER, GONE),
    ),
    "the job was put back into the queue": (
        "slurmstepd-c1: error: *** JOB 7 ON c1 CANCELLED AT 2026-11-22T20:04:02 DUE TO JOB REQUEUE "
        "***\n",
        (TERM, TERM),
    ),
    # The node of the job script was lost: nobody was left to write anything.
    "node c1 was lost": ("", (GONE, TERM)),
}


def write(folder: Path, number: int, start: int, *ends: Mapping[str, Any]) -> None:
    for at, end in enumerate(ends):
        write_rank(folder, rank(at, restart=number, host=f"c{at + 1}", log_start=start, **end))


def test_an_attempt_that_was_told_of_its_end_has_not_failed(tmp_path: Path) -> None:
    run = make_run(tmp_path, plan={**PLAN, "ranks": 2})
    write(run.dir, 0, 0, GOOD, GOOD)
    write(run.dir, 1, 9, GOOD, GOOD)
    told = "its script ended after the signal that the time limit or a preemption was near"
    for word, why in (("warned", "every rank ended well: the job wrote no log"), ("sent", told)):
        add_mark(marks_of(run.dir, 0), 0, word)
        assert earlier_ends(run, 1)[0].why.startswith(why)


def test_each_attempt_is_told_by_its_own_part_of_the_log(tmp_path: Path) -> None:
    run = make_run(tmp_path, ranks=2)
    text = ""
    for number, (log, ends) in enumerate(LOGS.values()):
        write(run.dir, number, len(text), *ends)
        text += log
    write(run.dir, len(LOGS), len(text), GOOD, GOOD)
    (run.dir / "job.out").write_text(text)
    found = earlier_ends(run, len(LOGS))
    assert [row.why for row in found] == list(LOGS)
    assert [row.text.split(":")[0] for row in found[:2]] == [
        "attempt 0 on c1, c2",
        "attempt 1 on c1, c2",
    ]
    # One that waits to start again has left all of these.
    assert [row.restart for row in earlier_ends(run, None)] == [0, 1, 2, 3]
    assert [row.restart for row in earlier_ends(run, len(LOGS) + 1)] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("warned", "preempted", "sent", "requeued"), "a job of higher priority took its place"),
        # By its script; its supervisor then ends it.
        (("preempted", "sent", "requeued", "over"), "a job of higher priority took its place"),
        (
            ("warned", "sent", "limit", "requeued"),
            "requeued after the signal that its time limit was near",
        ),
        (("requeued", "warned"), "the job was put back into the queue"),  # by its user
    ],
)
def test_what_hpckit_requeued_says_why(tmp_path: Path, words: tuple[str, ...], why: str) -> None:
    """Slurm's log has the same words for each; a script may end with any status."""
    run = make_run(tmp_path, ranks=2)
    log, ends = LOGS["the job was put back into the queue"]
    if "limit" in words:
        ends = ({"exit_code": 1, "ended": 14.0, "error": "saved"}, TERM)
    write(run.dir, 0, 0, *ends)
    write(run.dir, 1, len(log), GOOD, GOOD)
    (run.dir / "job.out").write_text(log)
    for word in words:
        add_mark(marks_of(run.dir, 0), 0, word)
    (found,) = earlier_ends(run, 1)
    assert (found.why, found.lost) == (why, ())


@pytest.mark.parametrize(
    ("before", "now", "host"),
    [
        ((PEER, GONE), (GONE, TERM), "c2"),
        ((PEER, GONE), (TERM | {"ended": 16.0}, TERM), "c2"),
        ((PEER, GONE), (TERM, TERM | {"ended": 16.0}), None),  # the other node's was first
        ((TERM, TERM), (GONE, TERM), None),  # no node was lost
        ((PEER, GONE), (GONE, PEER), None),  # it failed by itself
        ((PEER, GONE), (GONE, TERM | {"ended": 4000.0}), None),  # much later
        ((PEER, GONE), (GONE, GONE), None),
    ],
)
def test_a_signal_that_slurm_kept_is_told_by_the_node_that_was_lost(
    tmp_path: Path,
    before: tuple[dict[str, Any], ...],
    now: tuple[dict[str, Any], ...],
    host: str | None,
) -> None:
    write(tmp_path, 0, 0, *before)
    write(tmp_path, 1, 0, *now)
    assert signalled_host(tmp_path, 1) == host


@pytest.mark.parametrize("listed", ["7", "6_1"])  # of an array, squeue lists the task so
@pytest.mark.parametrize(("state", "again"), [("RUNNING", True), ("COMPLETING", False)])
def test_a_job_that_was_cancelled_after_a_lost_node_does_not_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str, again: bool, listed: str
) -> None:
    """Its ranks end as by a signal that Slurm kept; only the job's own state tells."""
    write(tmp_path, 0, 0, PEER, GONE)
    write(tmp_path, 1, 0, {**TERM, "ended": 16.0}, TERM)
    requeues: list[object] = []
    monkeypatch.setattr(Slurm, "requeue", lambda _self: requeues.append(1))
    row = SimpleNamespace(state=JobState(state))
    monkeypatch.setattr(jobs, "squeue", lambda ids: {listed: row} if ids == ["7"] else {})
    for name, value in {"SLURM_JOB_ID": "7", "SLURM_RESTART_COUNT": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("SLURM_PROCID", raising=False)
    task = Task(
        run_dir=str(tmp_path), run_id="r", executor="slurm", launcher="srun", nodes=2,
        tasks_per_node=1, command=("true",), python=("python",), device="cpu", max_requeues=2,
    )  # fmt: skip
    requeue_if_kept(task)
    assert bool(requeues) == again
