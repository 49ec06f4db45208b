"""A chain of jobs: which of them speaks for all, and what each leaves to the next one."""

import errno
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from hpckit.errors import CommandError
from hpckit.job_ends.failures import why_from_inside
from hpckit.payload.task import GOES_ON
from hpckit.run_folders import run_files
from hpckit.run_folders.find import find_runs
from hpckit.run_folders.index import add_to_index
from hpckit.run_folders.ranks import write_rank
from hpckit.run_folders.runs import Run
from hpckit.slurm.states import JobRecord, JobState, SlurmSource
from hpckit.stop_marks import NEXT, NO_CHECKPOINT, OVER, SENT, TERMINATED, add_mark, marks, marks_of
from hpckit.submission import chain as chains
from hpckit.submission import chained, follow_up
from hpckit.submission.chain import LinkEnd, Outcome, read_end, record_of, write_end
from hpckit.submission.chained import Link
from hpckit.submission.states import statuses
from tests.unit.made import PLAN, make_run, rank
from tests.unit.played_slurm import answers, down, sacct_row, squeue_row
from tests.unit.test_causes import NEVER, NOT_LAUNCHED
from tests.unit.test_faulty_disk import refuse

JOBS = ("11", "12", "13")
TIME_LIMIT = "slurmstepd-c1: error: *** JOB 11 ON c1 CANCELLED AT T DUE TO TIME LIMIT ***\n"
CANCELLED = "slurmstepd-c1: error: *** STEP 11.0 ON c1 CANCELLED AT T ***\n"
PREEMPTED = "slurmstepd-c1: error: *** JOB 11 ON c1 CANCELLED AT T DUE TO PREEMPTION ***\n"
NODE = "slurmstepd-c1: error: *** JOB 11 ON c1 CANCELLED AT T DUE TO NODE FAILURE, SEE LOG ***\n"


@pytest.fixture
def chain(tmp_path: Path) -> Run:
    return make_run(tmp_path, plan={**PLAN, "ranks": 1, "chain": 2}, chain=list(JOBS))


def ended(run: Run, link: int, outcome: Outcome) -> None:
    write_end(run.dir, LinkEnd(link=link, job_id=JOBS[link], outcome=outcome))


# --- which job speaks for a chain ---

# R: runs, P: waits, T: time limit, F: failed, X: preempted, K: killed by scancel while it ran,
# C: completed, -: cancelled before it began, ?: Slurm does not know it.
_STATES = {"R": "RUNNING", "P": "PENDING", "T": "TIMEOUT", "F": "FAILED", "X": "PREEMPTED",
           "C": "COMPLETED", "K": "CANCELLED", "-": "CANCELLED"}  # fmt: skip


@pytest.mark.parametrize(
    ("jobs", "over", "attempt", "state"),
    [
        ("PPP", None, 0, "PENDING"),
        ("RPP", None, 0, "RUNNING"),
        ("TPP", None, 1, "PENDING"),
        ("XRP", None, 1, "RUNNING"),
        ("TFR", None, 2, "RUNNING"),  # told of its end, it ended with GOES_ON
        ("?RP", None, 1, "RUNNING"),
        ("CPP", None, 0, "COMPLETED"),
        ("TC-", None, 1, "COMPLETED"),
        ("TCC", (1, Outcome.COMPLETE), 1, "COMPLETED"),
        ("FPP", (0, Outcome.FAILED), 0, "FAILED"),
        ("FCC", (0, Outcome.FAILED), 0, "FAILED"),
        ("TFC", (1, Outcome.FAILED), 1, "FAILED"),
        ("TTT", (2, Outcome.GOES_ON), 2, "TIMEOUT"),
        ("T--", (0, Outcome.GOES_ON), 0, "CANCELLED"),
        ("K--", None, 0, "CANCELLED"),
        # One that waited was cancelled.
        ("R-P", None, 0, "RUNNING"),
        ("R-R", (1, Outcome.FAILED), 0, "RUNNING"),
        # It ended well between its limit and Slurm's kill.
        ("TT-", (1, Outcome.COMPLETE), 1, "COMPLETED"),
        # Its process was killed while it took those after it out of the queue.
        ("TF-", (1, Outcome.COMPLETE), 1, "COMPLETED"),
        ("---", None, 0, "CANCELLED"),
    ],
)
def test_one_job_of_a_chain_speaks_for_it(
    chain: Run, jobs: str, over: tuple[int, Outcome] | None, attempt: int, state: str
) -> None:
    records = {
        name: JobRecord(
            job_id=name,
            state=JobState(_STATES[letter]),
            source=SlurmSource.SQUEUE,
            nodes=None if letter in "P-" else ("c1",),
        )
        for name, letter in zip(JOBS, jobs, strict=True)
        if letter != "?"
    }
    if over:
        ended(chain, *over)
    found = record_of(chain, records)
    assert found is not None
    assert (found.restarts, found.state) == (attempt, state)
    assert record_of(chain, {}) is None


def test_a_chain_has_one_status(fake_slurm: Path, chain: Run) -> None:
    rows = [squeue_row("11", "TIMEOUT"), squeue_row("12", "RUNNING", start="5"),
            squeue_row("13", "PENDING", nodes="", reason="Dependency")]  # fmt: skip
    answers(fake_slurm, squeue_out="".join(rows))
    write_rank(chain.dir, rank(0, exit_code=143, ended=20.0, consequence=True))
    write_rank(chain.dir, rank(0, restart=1, started=30.0))
    (found,) = statuses([chain])
    assert (found.state, found.restarts, found.unanswered) == (JobState.RUNNING, 1, False)
    assert [row.restart for row in found.ranks] == [1]
    assert found.chain == "job 12 is attempt 2 of 3 (11, 12, 13)"
    assert found.document()["chain"] == ["11", "12", "13"]
    rows = [squeue_row("11", "TIMEOUT"), squeue_row("12", "PREEMPTED"), squeue_row("13", "TIMEOUT")]
    answers(fake_slurm, squeue_out="".join(rows))
    (found,) = statuses([chain])
    assert found.reason_text == (
        "it reached its time limit of 01:00:00, in attempt 3 of 3 (--chain 2)"
    )
    # Nobody can say what follows: an end is not the chain's.
    down(fake_slurm)
    answers(fake_slurm, sacct_out=sacct_row("11", "TIMEOUT"))
    (found,) = statuses([chain])
    assert (found.state, found.unanswered) == (JobState.UNKNOWN, True)


@pytest.mark.parametrize(
    ("second", "with_ranks", "restarts"),
    [
        ({"state": "CANCELLED", "nodes": "", "start": "N/A", "elapsed": "0:00"}, False, 1),
        ({"state": "FAILED"}, False, 2),  # in its set-up: none of its ranks had begun
        (None, False, 1),  # Slurm has forgotten it, as it does where there is no accounting
        (None, True, 2),
    ],
)
def test_a_job_of_a_chain_that_never_began_is_no_restart(
    fake_slurm: Path, chain: Run, second: dict[str, str] | None, with_ranks: bool, restarts: int
) -> None:
    rows = [squeue_row("11", "TIMEOUT"), squeue_row("13", "RUNNING", start="50")]
    if second:
        rows.append(squeue_row("12", **second))
    answers(fake_slurm, squeue_out="".join(rows))
    for number in (0, 1, 2) if with_ranks else (0, 2):
        ended = None if number == 2 else 20.0 * number + 15
        write_rank(chain.dir, rank(0, restart=number, started=20.0 * number + 11, ended=ended))
    (found,) = statuses([chain])
    assert (found.state, found.restarts, found.attempt) == (JobState.RUNNING, restarts, 2)
    assert found.document()["restarts"] == restarts
    assert found.chain == "job 13 is attempt 3 of 3 (11, 12, 13)"
    assert [row.restart for row in found.ranks] == [2]
    assert [row.restart for row in found.earlier()] == ([0, 1] if with_ranks else [0])


def test_a_chain_is_found_by_each_of_its_jobs(tmp_path, monkeypatch, chain: Run) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for root in (tmp_path, tmp_path / "elsewhere"):  # by its folder, then by the index
        assert [find_runs(name, root)[0].run_id for name in JOBS] == ["ddp-1"] * 3
        add_to_index([chain])


# --- how an attempt ended, by what the job itself can see ---


@pytest.mark.parametrize(
    ("log", "end", "failed"),
    [
        (TIME_LIMIT, {"exit_code": 143, "consequence": True}, None),
        (PREEMPTED, {"exit_code": 143, "consequence": True}, None),
        (NODE, {"ended": None}, None),
        ("srun: error: Node failure on c1\n", {"ended": None}, None),
        # Nobody says who sent it.
        ("", {"exit_code": 143, "consequence": True}, None),
        # Slurm does: scancel.
        (CANCELLED, {"exit_code": 143, "consequence": True}, "ranks were ended from outside"),
        (CANCELLED, {"exit_code": 1}, "rank 0 on n0 failed first, exit status 1"),
        ("", {"exit_code": 1}, "rank 0 on n0 failed first, exit status 1"),
        ("slurmstepd: error: Detected 1 oom-kill event(s) in StepId=11.0.\n", {"exit_code": 137},
         "rank 0 on n0 failed first, exit status 137 (out of memory)"),
        ("", {"ended": None}, "rank 0 (n0) recorded no end: killed from outside"),
        ("module: not found\n", None, "no rank had started"),
    ],
)  # fmt: skip
def test_a_crash_is_told_from_what_took_the_job_away(
    chain: Run, log: str, end: dict[str, Any] | None, failed: str | None
) -> None:
    (chain.dir / "job.out").write_text(log)
    ranks = [] if end is None else [rank(0, **{"ended": 20.0, **end})]
    cause = why_from_inside(chain, ranks)
    assert (cause is None) == (failed is None)
    assert cause is None or cause.text.startswith(str(failed))


# --- what a job of a chain does ---


class Controller:
    """Stands for Slurm's: keeps in mind what was cancelled."""

    def __init__(self) -> None:
        self.cancelled: list[str] = []
        self.silent = False

    def cancel(self, jobs: tuple[str, ...]) -> None:
        if self.silent:
            raise CommandError("no answer.")
        self.cancelled += jobs


@pytest.fixture
def controller(monkeypatch: pytest.MonkeyPatch):
    one = Controller()
    monkeypatch.setattr(chained.control, "cancel", one.cancel)
    before = {number: signal.getsignal(number) for number in signal.valid_signals()}
    yield one
    for number, handler in before.items():
        if handler is not None and number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, handler)


def link(run: Run, number: int, code: str, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setenv("SLURM_JOB_ID", JOBS[number])
    return Link(run.dir, number, (sys.executable, "-c", code)).run()


def test_a_job_that_is_done_cancels_those_after_it(
    chain: Run, controller: Controller, monkeypatch, capfd
) -> None:
    code = "import os; print('attempt', os.environ['HPCKIT_RESTART'])"
    assert link(chain, 0, code, monkeypatch) == 0
    assert controller.cancelled == ["13", "12"]
    assert read_end(chain.dir) == LinkEnd(link=0, job_id="11", outcome=Outcome.COMPLETE)
    assert capfd.readouterr() == ("attempt 0\n", "")
    # One that starts anyway has nothing to do.
    controller.silent = True
    assert link(chain, 1, code, monkeypatch) == 0
    assert capfd.readouterr() == (
        "",
        "hpckit: job 12 is not needed: job 11 has COMPLETED. It ends at once.\n"
        "hpckit: job 12 cannot cancel 13, which will end at once: no answer.\n",
    )


def test_a_job_that_cannot_write_down_its_end_is_over_and_cancels_those_after_it(
    chain: Run, controller: Controller, monkeypatch, capfd
) -> None:
    monkeypatch.setattr(run_files, "_PAUSES_S", (0.0,))
    (chain.dir / "chain.json").mkdir()  # cannot be written, as on a full disk
    assert link(chain, 0, "pass", monkeypatch) == 0
    assert controller.cancelled == ["13", "12"]
    assert f"job 11 cannot write into {chain.dir} how a job ended: " in capfd.readouterr().err


def test_a_job_that_was_told_of_its_end_leaves_the_rest_to_the_next(
    chain: Run, controller: Controller, monkeypatch, capfd
) -> None:
    for number, then in enumerate(("job 12 goes on", "job 13 goes on", str(chain.dir))):
        assert link(chain, number, f"raise SystemExit({GOES_ON})", monkeypatch) == GOES_ON
        said = capfd.readouterr().err
        assert said.startswith(f"hpckit: job {JOBS[number]} has ended before the work was done")
        assert said.endswith(f"{then}.\n")
    assert controller.cancelled == []
    assert read_end(chain.dir) == LinkEnd(link=2, job_id="13", outcome=Outcome.GOES_ON)


@pytest.mark.parametrize("attempt", [0, 1])
def test_what_rank_0_has_decided_counts_and_not_another_ranks_status(
    chain: Run, controller: Controller, monkeypatch, attempt: int
) -> None:
    """srun ends with the highest status, which is that of a rank that a preemption has ended."""
    add_mark(marks_of(chain.dir, 0), attempt, NEXT)
    write_rank(chain.dir, rank(0, exit_code=143, ended=20.0, consequence=True))
    (chain.dir / "job.out").write_text(CANCELLED)
    assert link(chain, 0, "raise SystemExit(143)", monkeypatch) == 143
    goes_on = attempt == 0
    assert controller.cancelled == ([] if goes_on else ["13", "12"])
    said = read_end(chain.dir)
    assert said is not None
    assert said.outcome is (Outcome.GOES_ON if goes_on else Outcome.FAILED)


@pytest.mark.parametrize("who", [0, 1])  # rank 0 may have done its part before
@pytest.mark.parametrize(
    ("log", "word", "outcome"),
    [
        (PREEMPTED, TERMINATED, Outcome.GOES_ON),
        (TIME_LIMIT, TERMINATED, Outcome.GOES_ON),
        (CANCELLED, TERMINATED, Outcome.FAILED),
        (PREEMPTED, OVER, Outcome.COMPLETE),  # it had ended before the signal
    ],
)
def test_who_saves_on_sigterm_and_ends_with_0_may_have_work_left(
    tmp_path: Path,
    controller: Controller,
    monkeypatch,
    log: str,
    word: str,
    outcome: Outcome,
    who: int,
) -> None:
    chain = make_run(tmp_path, plan={**PLAN, "ranks": 2, "chain": 2}, chain=list(JOBS))
    write_rank(chain.dir, rank(1, exit_code=0, ended=20.0, consequence=True))
    add_mark(marks_of(chain.dir, who), 0, word)
    write_rank(chain.dir, rank(0, exit_code=0, ended=20.0, consequence=True))
    (chain.dir / "job.out").write_text(log)
    assert link(chain, 0, "pass", monkeypatch) == 0
    assert controller.cancelled == ([] if outcome is Outcome.GOES_ON else ["13", "12"])
    said = read_end(chain.dir)
    assert said is not None
    assert said.outcome is outcome


def test_with_checkpoint_the_next_job_needs_a_newer_one(
    chain: Run, controller: Controller, monkeypatch, capfd
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "11")
    saved = chain.dir / "saved.pt"
    saves = f"open({str(saved)!r}, 'a').write('x'); raise SystemExit({GOES_ON})"
    stops = f"raise SystemExit({GOES_ON})"
    for number, code in enumerate((saves, stops)):
        monkeypatch.setenv("SLURM_JOB_ID", JOBS[number])
        words = ["x", "chain", str(chain.dir), str(number), "--checkpoint=*.pt", "--"]
        monkeypatch.setattr(sys, "argv", [*words, sys.executable, "-c", code])
        with pytest.raises(SystemExit) as ends:
            follow_up.main()
        assert ends.value.code == GOES_ON
        assert (controller.cancelled == ["13"]) == (code is stops)
    said = capfd.readouterr().err.splitlines()
    assert said[0] == "hpckit: job 11 has ended before the work was done; job 12 goes on."
    assert said[1].startswith("hpckit: job 12 failed: it ended before its work was done, and noth")
    assert "The next job of the chain would fail again, so none runs" in said[1]
    end = read_end(chain.dir)
    assert end == LinkEnd(link=1, job_id="12", outcome=Outcome.FAILED, why=end.why if end else "")
    assert marks(marks_of(chain.dir, 0), 1) == {NO_CHECKPOINT}


def test_a_job_that_failed_by_itself_is_the_last(
    chain: Run, controller: Controller, monkeypatch, capfd
) -> None:
    write_rank(chain.dir, rank(0, exit_code=3, ended=20.0))
    assert link(chain, 0, "raise SystemExit(3)", monkeypatch) == 3
    assert controller.cancelled == ["13", "12"]
    assert capfd.readouterr().err == (
        "hpckit: job 11 failed: rank 0 on n0 failed first, exit status 3, 10.0 s after its start. "
        "The next 2 jobs would fail again, so none runs.\n"
    )


def test_a_supervisor_that_still_starts_gets_the_warning_once_it_handles_it(
    chain: Run, controller: Controller, monkeypatch
) -> None:
    code = """if 1:
        import os, pathlib, signal
        os.kill(os.getppid(), signal.SIGUSR2)
        here = pathlib.Path("/proc/self/status").read_text()
        assert int(here.split("SigIgn:")[1].split()[0], 16) >> signal.SIGUSR2 - 1 & 1
        signal.signal(signal.SIGUSR2, lambda *_: os._exit(85))
        while True:
            signal.pause()
    """
    assert link(chain, 0, code, monkeypatch) == GOES_ON


def test_a_job_whose_ranks_srun_could_not_start_is_the_last(
    chain: Run, controller: Controller, monkeypatch, capfd
) -> None:
    """Though srun ends with 0; an attempt before may have had ranks."""
    write_rank(chain.dir, rank(0, exit_code=143, ended=20.0))
    ended(chain, 0, Outcome.GOES_ON)
    (chain.dir / "job.out").write_text(NOT_LAUNCHED)
    assert link(chain, 1, "", monkeypatch) == 1
    assert controller.cancelled == ["13"]
    end = read_end(chain.dir)
    assert end is not None
    assert (end.outcome, end.why) == (Outcome.FAILED, NEVER)
    assert f"job 12 has FAILED, though srun ended with 0: {NEVER}" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("log", "end", "status"),
    [
        (TIME_LIMIT, {"exit_code": 143, "consequence": True}, 7),
        (NODE, {"ended": None}, 7),
        ("", {"exit_code": 3}, 1),
    ],
)
def test_what_the_job_before_could_not_say_is_judged(
    chain: Run, controller: Controller, monkeypatch, log: str, end: dict[str, Any], status: int
) -> None:
    (chain.dir / "job.out").write_text(log)
    write_rank(chain.dir, rank(0, **{"ended": 20.0, **end}))
    assert link(chain, 1, "raise SystemExit(7)", monkeypatch) == status
    assert bool(controller.cancelled) == (not log)
    said = json.loads((chain.dir / "chain.json").read_text())
    assert said["link"] == (1 if log else 0)


def told_of_its_end(run: Run, link: int) -> None:
    """Let a job's only rank end well after Slurm's warning."""
    write_rank(run.dir, rank(0, restart=link, exit_code=0, ended=20.0))
    add_mark(marks_of(run.dir, 0), link, SENT)


@pytest.mark.parametrize("times", [1, 10**9], ids=["once", "for good"])
@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE])
def test_a_chain_goes_on_whose_note_cannot_be_read(
    chain: Run, controller: Controller, monkeypatch, number: int, times: int
) -> None:
    monkeypatch.setattr(run_files, "_PAUSES_S", (0.0,))
    ended(chain, 0, Outcome.GOES_ON)
    told_of_its_end(chain, 0)
    said = refuse(monkeypatch, os, "open", number, only="/chain.json", times=times)
    assert link(chain, 1, "raise SystemExit(85)", monkeypatch) == GOES_ON
    assert said
    assert controller.cancelled == []


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_a_chain_goes_on_whose_note_cannot_be_written(
    chain: Run, controller: Controller, monkeypatch, capfd, number: int
) -> None:
    monkeypatch.setattr(run_files, "_PAUSES_S", (0.0,))
    told_of_its_end(chain, 0)
    with monkeypatch.context() as patch:
        refuse(patch, chains, "write_json", number, times=1)
        assert link(chain, 0, "raise SystemExit(85)", patch) == GOES_ON
    assert read_end(chain.dir) == LinkEnd(link=0, job_id="11", outcome=Outcome.GOES_ON)
    assert "cannot write" not in capfd.readouterr().err
    (chain.dir / "chain.json").unlink()
    with monkeypatch.context() as patch:
        refuse(patch, chains, "write_json", number)
        assert link(chain, 0, "raise SystemExit(85)", patch) == GOES_ON
    assert "job 11 cannot write into" in capfd.readouterr().err
    assert link(chain, 1, "raise SystemExit(85)", monkeypatch) == GOES_ON
    assert controller.cancelled == []


@pytest.mark.parametrize(("code", "says"), [(0, "has COMPLETED"), (3, "failed (rank 0")])
def test_a_job_before_that_left_no_note_and_that_slurm_calls_completed(
    chain: Run, controller: Controller, monkeypatch, capfd, code: int, says: str
) -> None:
    write_rank(chain.dir, rank(0, exit_code=code, ended=20.0))
    slurm_says(monkeypatch, "COMPLETED", "c1")
    assert link(chain, 1, "raise SystemExit(85)", monkeypatch) == int(code > 0)
    assert f"job 12 is not needed: job 11 {says}" in capfd.readouterr().err
    assert controller.cancelled == ["13"]


def slurm_says(monkeypatch: pytest.MonkeyPatch, state: str | None, *nodes: str) -> None:
    row = state and JobRecord(
        job_id="x", state=JobState(state), source=SlurmSource.SQUEUE, nodes=nodes or None
    )
    monkeypatch.setattr("hpckit.schedulers.slurm.asking.records_of", lambda _: row and [row])


def test_after_a_lost_node_that_could_say_nothing_the_next_job_goes_on(
    chain: Run, controller: Controller, monkeypatch
) -> None:
    """The job's script died with its node: its log has no word of it."""
    write_rank(chain.dir, rank(0, ended=None))
    slurm_says(monkeypatch, "NODE_FAIL", "c1")
    assert link(chain, 1, "raise SystemExit(85)", monkeypatch) == GOES_ON
    assert controller.cancelled == []


@pytest.mark.parametrize("first", [LinkEnd(link=0, job_id="11", outcome=Outcome.GOES_ON), None])
def test_a_job_that_was_cancelled_while_it_waited_is_passed_over(
    chain: Run, controller: Controller, monkeypatch, first: LinkEnd | None
) -> None:
    if first:
        write_end(chain.dir, first)
    slurm_says(monkeypatch, "CANCELLED")
    assert link(chain, 2, "raise SystemExit(85)", monkeypatch) == GOES_ON
    assert read_end(chain.dir) == LinkEnd(link=2, job_id="13", outcome=Outcome.GOES_ON)


@pytest.mark.parametrize("state", [None, "FAILED"])
def test_a_job_that_left_no_word_is_not_tried_again(
    chain: Run, controller: Controller, monkeypatch, state: str | None
) -> None:
    slurm_says(monkeypatch, state, "c1")
    assert link(chain, 1, "raise SystemExit(85)", monkeypatch) == 1
    assert controller.cancelled == ["13"]


@pytest.mark.parametrize(
    ("end", "outcome"),
    [
        # A node was set down under it, or lost, and srun ended with 0.
        ({"exit_code": 143, "ended": 20.0, "consequence": True}, Outcome.GOES_ON),
        ({"ended": None}, Outcome.GOES_ON),
        ({"exit_code": 3, "ended": 20.0}, Outcome.FAILED),
        ({"exit_code": 0, "ended": 20.0}, Outcome.COMPLETE),
    ],
)
def test_status_0_of_srun_is_believed_only_if_the_ranks_agree(
    chain: Run, controller: Controller, monkeypatch, end: dict[str, Any], outcome: Outcome
) -> None:
    monkeypatch.setattr(chained, "LATE_S", 0.0)
    write_rank(chain.dir, rank(0, **end))
    assert link(chain, 0, "", monkeypatch) == int(outcome is not Outcome.COMPLETE)
    found = read_end(chain.dir)
    assert found is not None
    assert found.outcome is outcome
    assert bool(controller.cancelled) == (outcome is not Outcome.GOES_ON)


def test_an_older_note_says_nothing_of_the_job_before(
    chain: Run, controller: Controller, monkeypatch
) -> None:
    ended(chain, 0, Outcome.GOES_ON)
    write_rank(chain.dir, rank(0, restart=1, exit_code=3, ended=20.0))
    assert link(chain, 2, "raise SystemExit(7)", monkeypatch) == 1


def test_a_job_may_end_before_the_chain_is_submitted(
    chain: Run, controller: Controller, monkeypatch
) -> None:
    record = chain.dir / "run.json"
    text = record.read_text()
    record.unlink()
    waits: list[float] = []

    def submitted(seconds: float) -> None:
        waits.append(seconds)
        record.write_text(text)

    monkeypatch.setattr(chained.time, "sleep", submitted)
    assert link(chain, 0, "", monkeypatch) == 0
    assert (len(waits), controller.cancelled) == (1, ["13", "12"])
