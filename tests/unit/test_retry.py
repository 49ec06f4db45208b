"""`--retry`: its rules, what follows a failure, and who is said to follow whom."""

import errno
import json
import os
import re
import signal
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hpckit import shell
from hpckit.api import retry as api_retry
from hpckit.api.evidence import limits
from hpckit.api.retry import _had, _holds, _slurms_word
from hpckit.cli.view import status_page
from hpckit.errors import (
    CommandError,
    NotTakenError,
    OutsideError,
    RequestError,
    StoppedError,
    SubmissionError,
    UnknownOutcomeError,
)
from hpckit.job_ends.causes import Cause, Kind
from hpckit.job_ends.tracebacks import OUT_OF_MEMORY
from hpckit.job_spec.recorded_spec import spec_from_record, without
from hpckit.job_spec.retry_rules import Rule, parse_rules, read_rules
from hpckit.job_spec.spec import option_values
from hpckit.run_folders import ranks as rank_files
from hpckit.run_folders import run_files
from hpckit.run_folders.ranks import write_rank
from hpckit.run_folders.runs import Run
from hpckit.slurm.states import JobState
from hpckit.stop_marks import PREEMPTED, STOPPED, add_mark, marks_of
from hpckit.submission.called_off import before_it, call_off, is_called_off
from hpckit.submission.chained import Link
from hpckit.submission.follow_up import watched
from hpckit.submission.retried import Retried
from hpckit.submission.retry import (
    Had,
    RetryNote,
    changes,
    kind_of,
    look_at_rules,
    read_note,
    retry_after,
    write_note,
)
from hpckit.submission.states import statuses
from hpckit.submission.waiting import wait
from tests.conftest import write_files
from tests.unit.made import PLAN, make_run, rank
from tests.unit.played_slurm import answers, squeue_row
from tests.unit.recorded import slurm_said
from tests.unit.test_chain import CANCELLED, TIME_LIMIT
from tests.unit.test_faulty_disk import refuse, refused

HAD = Had(mem_gb=10, time_min=60, most_mem_gb=64, most_time_min=100, partition="gpu")
RULES = ("oom:mem*2", "timeout:time*2")


# --- the rules ---


@pytest.mark.parametrize("value", ["64", "64G", "64GB", "64GiB"])
def test_memory_is_written_as_slurm_or_hpckit_writes_it(value: str) -> None:
    assert parse_rules([f"oom:mem={value}"]) == (Rule(kind="oom", field="mem_gb", value=64),)


def test_rules_say_a_kind_and_a_change() -> None:
    given = ["oom:mem*2, timeout:time*1.5", "timeout:mem=64,fail", "oom:time=1-00:00:00"]
    rules = parse_rules(read_rules(given))
    assert rules == (
        Rule(kind="oom", field="mem_gb", factor=2.0),
        Rule(kind="timeout", field="time_min", factor=1.5),
        Rule(kind="timeout", field="mem_gb", value=64),
        Rule(kind="fail"),
        Rule(kind="oom", field="time_min", value=1440),
    )
    assert option_values({"retry": "oom:mem*2,timeout:time*2"}) == {"retry": RULES}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "'' is not a rule: write KIND, as in fail, or KIND:CHANGE, as in oom:mem*2"),
        ("mem*2", "with a KIND of oom, timeout, fail"),
        ("oom:mem", "'oom:mem' is not a rule"),
        ("oom", "needs a change, or it fails again: oom:mem*2"),
        ("oom:gpus*2", "changes 'gpus'; what can be changed is mem and time"),
        ("oom:mem*1", "the factor must be a number above 1"),
        ("oom:mem*nan", "the factor must be a number above 1"),
        ("oom:mem*1e9", "the factor must be a number above 1, at most 100"),
        ("oom:mem=0", "memory is a whole number of GiB"),
        ("timeout:time=x", "--retry 'timeout:time=x': 'timeout:time=x': 'x' is not a duration"),
        ("oom:mem*2,oom:mem*3", "two rules of oom for the same"),
        ("node", "Slurm itself starts a job again whose node failed, with --max-requeues N"),
        ("oom:mem*2,node_fail", "a job again whose node failed, with --max-requeues N"),
        ("NODE_FAIL:time*2", "a job again whose node failed, with --max-requeues N"),
        ("PREEMPTED", "Slurm itself starts a job again that was preempted, with --max-requeues N"),
    ],
)
def test_what_is_no_rule_is_refused_in_one_sentence(text: str, said: str) -> None:
    with pytest.raises(RequestError) as refused:
        option_values({"retry": [text]})
    assert said in str(refused.value)


# --- the decision ---


@pytest.mark.parametrize(
    ("rules", "kind", "found"),
    [
        ("oom:mem*2", "oom", ["memory per node: 10 GiB -> 20 GiB"]),
        ("oom:mem*1.25", "oom", ["memory per node: 10 GiB -> 13 GiB"]),
        ("oom:mem=48", "oom", ["memory per node: 10 GiB -> 48 GiB"]),
        ("oom:mem*9", "oom",
         ["memory per node: 10 GiB -> 64 GiB (partition gpu gives at most 64 GiB)"]),
        ("timeout:time*2", "timeout",
         ["time: 01:00:00 -> 01:40:00 (partition gpu gives at most 01:40:00)"]),
        ("oom:mem*2,oom:time*1.5,timeout:time*2", "oom",
         ["memory per node: 10 GiB -> 20 GiB", "time: 01:00:00 -> 01:30:00"]),
        ("fail", "fail", []),
        ("oom:mem=10", "oom", "it had 10 GiB of memory per node, and the rule asks for 10 GiB"),
    ],
)  # fmt: skip
def test_a_rule_changes_what_the_job_had(rules: str, kind: str, found: list[str] | str) -> None:
    rows = changes(parse_rules(read_rules(rules)), kind, HAD)
    assert (rows if isinstance(rows, str) else [row.line for row in rows]) == found


def test_a_limit_that_is_reached_ends_the_retries() -> None:
    most = Had(mem_gb=64, time_min=60, most_mem_gb=64, partition="gpu")
    said = changes(parse_rules(RULES), "oom", most)
    assert said == "it had 64 GiB of memory per node, and partition gpu gives at most 64 GiB"
    unknown = Had(mem_gb=None, time_min=60)
    assert changes(parse_rules(RULES), "oom", unknown) == (
        "how much memory per node it had is unknown"
    )


@pytest.mark.parametrize(
    ("state", "kind", "found"),
    [
        (JobState.OUT_OF_MEMORY, None, "oom"),
        (JobState.FAILED, Kind.OUT_OF_MEMORY, "oom"),
        (JobState.TIMEOUT, Kind.TIME_LIMIT, "timeout"),
        (JobState.FAILED, Kind.RANK, "fail"),
        (JobState.FAILED, Kind.KILLED, "fail"),
        (JobState.FAILED, Kind.LOST, None),
        (JobState.FAILED, Kind.UNKNOWN, None),
        (JobState.CANCELLED, Kind.KILLED, None),
        (JobState.FAILED, Kind.STOPPED, None),
        (JobState.CANCELLED, Kind.CANCELLED, None),
        (JobState.CANCELLED, Kind.RANK, None),
        (JobState.NODE_FAIL, Kind.LOST, None),
        (JobState.PREEMPTED, Kind.PREEMPTED, None),
        (JobState.FAILED, None, None),
    ],
)
def test_kinds_of_failure(state: JobState, kind: Kind | None, found: str | None) -> None:
    assert kind_of(state, Cause(kind=kind, text="x") if kind else None) == found


def test_memory_that_nobody_asked_for_is_told_by_slurm() -> None:
    class Asked:
        mem_gb, time_min, options = None, 5, {"partition": None}
        scheduler = type("One", (), {"one_machine": True})

    def gb(**environ: str) -> int | None:
        return _had(Asked, environ, None).mem_gb  # type: ignore[arg-type]

    assert gb(SLURM_MEM_PER_NODE="1500") == 2
    assert gb(SLURM_MEM_PER_CPU="2000", SLURM_CPUS_ON_NODE="4") == 8
    assert gb() is None


def test_a_job_that_was_held_is_tried_again_at_once() -> None:
    held = spec_from_record({"target": "x", "sbatch": ["hold", "mail-type=END", "hint=x"]})
    assert without(held, _holds(held.sbatch)).sbatch == ("mail-type=END", "hint=x")
    assert _holds(("ho",)) == ["sbatch:ho"]
    assert _holds(("h", "hint=hold")) == []
    assert _holds(("--hold",)) == ["sbatch:hold"]


def test_what_slurm_gave_counts_and_not_what_was_asked_for(
    fake_slurm: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`scontrol update` and plugins of the cluster change a job that is there."""

    class Asked:
        mem_gb, time_min, options = 1, 60, {"partition": None}
        scheduler = type("One", (), {"one_machine": True})

    run = make_run(tmp_path)
    answers(fake_slurm, squeue_out=squeue_row("11", "RUNNING", limit="3:00:00"))
    word = _slurms_word(run)
    assert word
    had = _had(Asked, {"SLURM_MEM_PER_NODE": "3000"}, word.time_limit_min)  # type: ignore[arg-type]
    assert (had.mem_gb, had.time_min) == (3, 180)
    had = _had(Asked, {}, None)  # type: ignore[arg-type]
    assert (had.mem_gb, had.time_min) == (1, 60)
    answers(fake_slurm, squeue_rc="1", squeue_err="down")
    assert _slurms_word(run) is None
    assert "its time limit is taken to be the one asked for: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("named", "found"),
    [
        (None, ("gpu", 1440, 19)),
        ("short", ("short", 30, 19)),
        ("short,gpu", ("gpu,short", 1440, 19)),
        ("gone", ("gone", None, None)),
    ],
)
def test_the_most_that_can_be_asked_for_is_that_of_all_partitions_named(
    fake_slurm: Path, named: str | None, found: tuple[str, int | None, int | None]
) -> None:
    (fake_slurm / "scontrol.out").write_text(slurm_said("scontrol-partition-22.05.8.txt"))
    (fake_slurm / "sinfo.out").write_text(slurm_said("sinfo-22.05.8.txt"))

    asked = SimpleNamespace(
        options={"partition": named},
        scheduler=SimpleNamespace(one_machine=False),
        site=SimpleNamespace(partitions={}),
    )
    assert limits(asked) == found  # type: ignore[arg-type]


# --- inside the job ---


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Give a run with rules, and the kinds by which it was submitted again."""
    run = make_run(tmp_path, plan={**PLAN, "ranks": 1}, request={"target": "x", "retry": RULES})
    asked: list[str] = []
    spawn = shell.spawn

    def again(argv: Any, **options: Any) -> Any:
        if "hpckit.api.retry" in argv:
            folder, kind = argv[argv.index("hpckit.api.retry") + 1 :][:2]
            assert folder == str(run.dir)
            asked.append(kind)
            return spawn(["true"])
        return spawn(argv, **options)

    monkeypatch.setattr(shell, "spawn", again)
    before = {number: signal.getsignal(number) for number in signal.valid_signals()}
    yield run, asked
    for number, handler in before.items():
        if handler is not None and number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, handler)


@pytest.mark.parametrize(
    ("log", "end", "kinds"),
    [
        ("", {"exit_code": 137, "error": OUT_OF_MEMORY}, ["oom"]),
        ("slurmstepd: error: Detected 1 oom_kill event in StepId=11.0.\n", {"ended": None},
         ["oom"]),
        (TIME_LIMIT, {"exit_code": 143, "consequence": True}, ["timeout"]),
        (CANCELLED, {"exit_code": 143, "consequence": True}, []),
        ("", {"exit_code": 1, "error": "ValueError: x"}, []),  # no rule of this kind
    ],
)  # fmt: skip
def test_a_job_that_failed_is_submitted_again_by_its_kind(
    job: tuple[Run, list[str]], log: str, end: dict[str, Any], kinds: list[str]
) -> None:
    run, asked = job
    (run.dir / "job.out").write_text(log)
    write_rank(run.dir, rank(0, **{"ended": 20.0, **end}))
    assert Retried(run.dir, (sys.executable, "-c", "raise SystemExit(9)")).run() == 9
    assert asked == kinds


@pytest.mark.parametrize(
    ("log", "end", "said"),
    [
        ("", {"exit_code": 1, "error": "ValueError: x"},
         "it failed, and --retry oom:mem*2,timeout:time*2 has no rule of the kind fail"),
        ("", {"ended": None},
         "it failed, and --retry oom:mem*2,timeout:time*2 has no rule of the kind fail"),
        ("srun: error: Node failure on c2\n", {"ended": None},
         "--retry has no rule for a lost node"),
        ("", {"exit_code": 143, "consequence": True},
         "--retry has no rule for ranks that a signal from outside has ended"),
        ("", {"exit_code": 0}, "--retry has no rule for a job script that failed"),
        (CANCELLED.replace("STEP 11.0", "JOB 11"), {"exit_code": 143, "consequence": True}, None),
        (TIME_LIMIT, {"exit_code": 143, "consequence": True}, None),
    ],
    ids=["rank", "killed", "node", "stopped", "script", "cancelled", "tried again"],
)  # fmt: skip
def test_a_job_that_is_not_tried_again_says_why(
    job: tuple[Run, list[str]],
    fake_slurm: Path,
    capfd: pytest.CaptureFixture[str],
    log: str,
    end: dict[str, Any],
    said: str | None,
) -> None:
    """In its log, and `status` says the same."""
    run, _ = job
    (run.dir / "job.out").write_text(log)
    write_rank(run.dir, rank(0, **{"ended": 20.0, **end}))
    assert Retried(run.dir, (sys.executable, "-c", "raise SystemExit(9)")).run() == 9
    heard = capfd.readouterr().err
    assert (f"is not tried again: {said}" in heard) if said else ("not tried" not in heard)
    answers(fake_slurm, squeue_out=squeue_row(run.job_id, "FAILED"))
    (status,) = statuses([run])
    told = [note for note in status.notes if note.startswith("not tried again: ")]
    if said:
        assert told[0].startswith(f"not tried again: {said}")


def test_a_job_that_ended_in_a_preemptions_grace_time_says_so(
    job: tuple[Run, list[str]], fake_slurm: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run, asked = job
    (run.dir / "job.out").write_text(CANCELLED)
    write_rank(run.dir, rank(0, ended=20.0, exit_code=143, consequence=True))
    add_mark(marks_of(run.dir, 0), 0, PREEMPTED)
    assert Retried(run.dir, (sys.executable, "-c", "raise SystemExit(9)")).run() == 9
    said = "not tried again: --retry has no rule for a preemption (--max-requeues N is for these)"
    assert said in capfd.readouterr().err
    answers(fake_slurm, squeue_out=squeue_row(run.job_id, "FAILED"))
    (status,) = statuses([run])
    assert (status.state, asked) == ("PREEMPTED", [])
    assert said in status.notes


@pytest.mark.parametrize(
    ("why", "rule"),
    [("JOB REQUEUE", "a preemption"), ("NODE FAILURE, SEE SLURMCTLD LOG", "a lost node")],
)
@pytest.mark.parametrize(("restart", "speaks"), [("0", False), ("1", True)])
def test_a_job_that_is_requeued_is_not_said_to_have_no_rule(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    restart: str,
    speaks: bool,
    why: str,
    rule: str,
) -> None:
    """After its warning, too, the log says JOB REQUEUE; the last attempt is not requeued."""
    request = {"target": "x", "retry": ["timeout:time*2"], "max_requeues": 1}
    run = make_run(tmp_path, plan={**PLAN, "ranks": 1}, request=request)
    monkeypatch.setenv("SLURM_RESTART_COUNT", restart)
    monkeypatch.setenv("SLURM_JOB_ID", run.job_id)
    lost = "srun: error: Node failure on c2\n" if "NODE" in why else ""
    said = f"slurmstepd: error: *** JOB {run.job_id} ON c1 CANCELLED AT x DUE TO {why} ***\n"
    (run.dir / "job.out").write_text(lost + said)
    write_rank(run.dir, rank(0, restart=int(restart), ended=20.0, exit_code=143, consequence=True))
    assert Retried(run.dir, (sys.executable, "-c", "raise SystemExit(9)")).run() == 9
    assert (f"no rule for {rule}" in capfd.readouterr().err) == speaks


@pytest.mark.parametrize(
    ("log", "said"),
    [
        ("hpckit: job 11 is not tried again: --retry has no rule for ...\n", "not tried again: "),
        ("", "it failed, and could not submit itself again. To do so: hpckit resubmit"),
    ],
    ids=["it spoke", "killed"],
)
def test_a_job_whose_script_was_killed_is_not_said_to_have_no_rule(
    tmp_path: Path, fake_slurm: Path, log: str, said: str
) -> None:
    """srun goes with it, and at times its ranks can still record that they were told to end."""
    request = {"target": "x", "retry": ["fail"]}
    run = make_run(tmp_path, plan={**PLAN, "ranks": 1}, request=request)
    (run.dir / "job.out").write_text(log)
    write_rank(run.dir, rank(0, ended=20.0, exit_code=143, consequence=True))
    answers(fake_slurm, squeue_out=squeue_row(run.job_id, "FAILED"))
    (status,) = statuses([run])
    assert any(note.startswith(said) for note in status.notes), status.notes


def test_a_killed_supervisor_is_a_failure(job: tuple[Run, list[str]], tmp_path: Path) -> None:
    run, asked = job
    text = (run.dir / "run.json").read_text()
    (run.dir / "run.json").write_text(text.replace("oom:mem*2", "fail"))
    write_rank(run.dir, rank(0))
    (run.dir / "job.out").write_text("srun: error: c1: task 0: Killed\n")
    assert Retried(run.dir, (sys.executable, "-c", "raise SystemExit(9)")).run() == 9
    assert asked == ["fail"]


@pytest.mark.parametrize(("state", "tried"), [("RUNNING", True), ("COMPLETING", False)])
def test_a_job_that_slurm_is_ending_is_not_tried_again(
    fake_slurm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str, tried: bool
) -> None:
    """So a cancelled one is not, also where the log does not tell."""
    run = make_run(tmp_path, request={"target": "x", "retry": ("fail",), "retries": 1})
    answers(fake_slurm, squeue_out=squeue_row(run.job_id, state))
    asked = SimpleNamespace(submission=SimpleNamespace(job=None))
    monkeypatch.setattr(api_retry, "asked_again", lambda *_args, **_more: asked)

    def had(*_args: object) -> Had:
        raise StoppedError("it goes on")

    monkeypatch.setattr(api_retry, "_had", had)
    if tried:
        with pytest.raises(StoppedError):
            api_retry.retry(run, "fail", {})
    else:
        note = api_retry.retry(run, "fail", {})
        assert note.text.startswith("it failed, and is not tried again: Slurm was ending the job")
        assert note.run_id is None


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE])
def test_a_job_that_failed_is_submitted_again_though_a_disk_refuses_for_a_moment(
    job: tuple[Run, list[str]], monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    run, asked = job
    monkeypatch.setattr(run_files, "_PAUSES_S", (0.0,))
    write_rank(run.dir, rank(0, ended=20.0, exit_code=137, error=OUT_OF_MEMORY))
    (run.dir / "job.out").touch()
    said = refuse(monkeypatch, rank_files, "read_attempts", number, only="0.json", times=1)
    size = refuse(monkeypatch, os, "stat", number, only="job.out", times=1)
    assert Retried(run.dir, (sys.executable, "-c", "raise SystemExit(9)")).run() == 9
    assert (asked, len(said), len(size)) == (["oom"], 1, 1)


def asked_to_retry(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_files, "_PAUSES_S", (0.0,))
    monkeypatch.setattr(sys, "argv", ["retry", str(run.dir), "fail"])
    api_retry.main()


def test_what_a_disk_refuses_for_good_is_one_line_and_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_run(tmp_path, request={"target": "x", "retry": ("fail",), "retries": 1})
    failed = "it failed, and could not be submitted again"
    with monkeypatch.context() as patch:
        refuse(patch, os, "open", errno.EIO, only="run.json")
        with pytest.raises(SystemExit, match="1"):
            asked_to_retry(run, patch)
    said = capsys.readouterr().err
    assert re.fullmatch(rf"hpckit: {failed}: .* cannot be read: Input/output.*\n", said)
    error = refused(errno.ENOSPC, "/a/b")
    monkeypatch.setattr(api_retry, "retry", lambda *_: (_ for _ in ()).throw(error))
    refuse(monkeypatch, os, "open", errno.EIO, only="run.json", times=1)
    asked_to_retry(run, monkeypatch)
    note = read_note(run.dir)
    assert note is not None
    assert note.text.startswith(f"{failed}: '/a/b' cannot be read or written: No space left")


@pytest.mark.parametrize(
    ("error", "other", "calls", "said"),
    [
        (OutsideError("the folder cannot be written."), False, 2, "job 12 tries"),
        (OutsideError("the folder cannot be written."), True, 1, "run b tries"),  # Slurm has it
        (CommandError("no answer."), False, 2, "job 12 tries"),
        (NotTakenError("Socket timed out."), False, 2, "job 12 tries"),
        (UnknownOutcomeError("Socket timed out."), False, 1, "run b tries"),
        (SubmissionError("refused."), False, 1, "could not be submitted again: refused"),
        (RequestError("wrong."), False, 1, "could not be submitted again: wrong"),
    ],
)
def test_a_retry_that_disk_or_slurm_refused_is_submitted_once_more_unless_slurm_has_it(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    other: bool,
    calls: int,
    said: str,
) -> None:
    run = make_run(tmp_path, request={"target": "x", "retry": ("fail",), "retries": 1})
    asked: list[str] = []
    late: list[str] = []
    monkeypatch.setattr(api_retry, "job_of", lambda run_id, _since: f"job of {run_id}")
    monkeypatch.setattr(api_retry.control, "cancel", late.extend)

    def retry(run: Run, kind: str, *_: object) -> RetryNote:
        asked.append(kind)
        if len(asked) > 1:
            return RetryNote(text="it failed; job 12 tries again", run_id="b", job_id="12")
        write_note(run.dir, RetryNote(text="it failed; run b tries again", run_id="b"))
        raise error

    monkeypatch.setattr(api_retry, "retry", retry)
    monkeypatch.setattr(api_retry, "next_run", lambda run: run if other else None)
    monkeypatch.setattr(api_retry, "_AGAIN_S", 0.0)
    asked_to_retry(run, monkeypatch)
    note = read_note(run.dir)
    assert note is not None
    assert said in note.text
    assert len(asked) == calls
    # What Slurm took after all ends.
    assert late == (["job of b"] if isinstance(error, NotTakenError) else [])


def test_a_disk_that_does_not_answer_is_no_leave_to_run_a_job_that_was_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_files, "_PAUSES_S", (0.0,))
    run, new = pair(tmp_path)
    assert call_off(run) is None
    for name in ("stat", "lstat"):
        refuse(monkeypatch, os, name, errno.EIO, only=".no-retry", times=1)
    refuse(monkeypatch, os, "open", errno.EIO, only="run.json", times=1)
    assert before_it(new.dir) is not None
    assert is_called_off(run.dir)
    for name in ("stat", "lstat"):
        refuse(monkeypatch, os, name, errno.EIO, only=".no-retry")
    with pytest.raises(OSError, match="Input/output"):
        is_called_off(run.dir)


def test_a_job_that_ends_well_is_not(job: tuple[Run, list[str]]) -> None:
    run, asked = job
    assert Retried(run.dir, ("true",)).run() == 0
    assert asked == []


def test_at_its_time_limit_a_deaf_job_is_submitted_before_slurm_kills_it(
    job: tuple[Run, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, asked = job
    write_rank(run.dir, rank(0))
    (run.dir / "job.out").write_text(TIME_LIMIT)
    # What Slurm does: SIGTERM to the job script, while its ranks go on.
    code = f"""if 1:
        import os, signal, time
        os.kill({os.getpid()}, signal.SIGTERM)
        while not os.path.exists({str(run.dir / "go")!r}):
            time.sleep(0.01)
    """
    ending = Retried.ending

    def looked(self: Retried) -> None:
        ending(self)
        if asked:
            (run.dir / "go").touch()  # the ranks end only now

    monkeypatch.setattr(Retried, "ending", looked)
    argv = ("/usr/bin/env", sys.executable, "-c", code)
    assert Retried(run.dir, argv).run() == 0
    assert asked == ["timeout"]


@pytest.mark.parametrize(
    ("end", "said", "tried"),
    [
        ({"exit_code": 0}, "", False),
        ({"exit_code": 0}, STOPPED, True),  # which `status` calls TIMEOUT, too
        ({"exit_code": 0, "consequence": True}, "", True),
        ({}, "", True),
    ],
)
def test_a_job_whose_work_is_done_at_its_time_limit_is_not_tried_again(
    job: tuple[Run, list[str]], end: dict[str, Any], said: str, tried: bool
) -> None:
    """Only the job's own end is left; a script that was told to end may have saved its state."""
    run, asked = job
    if said:
        add_mark(marks_of(run.dir, 0), 0, said)
    write_rank(run.dir, rank(0, **({"ended": 20.0} if end else {}), **end))
    (run.dir / "job.out").write_text(TIME_LIMIT)
    for look in (Retried.ending, lambda ended: ended.ended(143)):
        asked.clear()
        look(Retried(run.dir, ("true",)))
        assert asked == (["timeout"] if tried else [])


def test_a_job_script_says_which_job_is_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    assert watched("retry", "/r/a", 0, ("x",)).run_dir == Path("/r/a")
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "7")
    assert watched("retry", "/r/a", 1000, ("x",)).run_dir == Path("/r/a_1007")
    assert isinstance(watched("chain", "/r/a", 2, ("x",)), Link)


# --- what is said ---


def pair(tmp_path: Path) -> tuple[Run, Run]:
    first = make_run(tmp_path, "a-1", job_id="11", request={"target": "x", "retry": RULES})
    of = {"of": "a-1", "job_id": "11", "number": 1, "kind": "oom", "changes": {"mem_gb": 2},
          "text": "ran out of memory; this job tries again"}  # fmt: skip
    second = make_run(tmp_path, "a-2", job_id="12", retry=of,
                      request={"target": "x", "retry": RULES})  # fmt: skip
    return first, second


def test_both_runs_say_who_follows_whom(fake_slurm: Path, tmp_path: Path) -> None:
    first, second = pair(tmp_path)
    killed = squeue_row("11", "OUT_OF_MEMORY")
    answers(fake_slurm, squeue_out=killed + squeue_row("12", "COMPLETED"))
    one, two = statuses([first, second])
    assert one.notes == (
        "it ran out of memory, and could not submit itself again. To do so: hpckit resubmit 11 "
        "--right-size",
    )
    assert retry_after(first) is None
    write_note(first.dir, RetryNote(text="it ran; job 12 tries again", run_id="a-2", job_id="12"))
    assert one.notes == ("it ran; job 12 tries again",)
    assert "  note     it ran; job 12 tries again\n" in status_page(one)
    assert two.notes == ("job 11 ran out of memory; this job tries again",)
    first_said, second_said = one.document(), two.document()
    assert (first_said["resubmit_of"], first_said["resubmitted_as"]) == (None, "12")
    assert (second_said["resubmit_of"], second_said["resubmitted_as"]) == ("11", None)
    assert [row.run.run_id for row in wait([first])] == ["a-2"]
    # A note that names a run which says otherwise leads nowhere.
    write_note(first.dir, RetryNote(text="x", run_id="../a-2", job_id="12"))
    assert retry_after(first) is None
    write_note(second.dir, RetryNote(text="x", run_id="a-1", job_id="11"))
    assert retry_after(second) is None


def test_the_command_to_do_it_by_hand_is_exact_where_the_memory_is_known(
    fake_slurm: Path, tmp_path: Path
) -> None:
    run = make_run(tmp_path, request={"target": "x", "retry": RULES}, plan={**PLAN, "mem_gb": 4})
    answers(fake_slurm, squeue_out=squeue_row("11", "OUT_OF_MEMORY"))
    assert statuses([run])[0].notes[0].endswith("hpckit resubmit 11 --mem-gb 8")
    answers(fake_slurm, squeue_out=squeue_row("11", "TIMEOUT"))
    assert statuses([run])[0].notes[0].endswith("hpckit resubmit 11 --time 02:00:00")
    answers(fake_slurm, squeue_out=squeue_row("11", "TIMEOUT", limit="3:00:00"))  # was updated
    assert statuses([run])[0].notes[0].endswith("hpckit resubmit 11 --time 06:00:00")
    answers(fake_slurm, squeue_out=squeue_row("11", "CANCELLED"))
    assert statuses([run])[0].notes == ()
    broken = json.loads((run.dir / "run.json").read_text())
    broken["request"]["retry"] = [3, "timeout:%"]
    answers(fake_slurm, squeue_out=squeue_row("11", "TIMEOUT"))
    notes = statuses([Run(dir=run.dir, record=broken)])[0].notes
    assert notes[0].endswith("hpckit resubmit 11 --right-size")


# --- rules that cannot act ---

ASKED = ("submit", "serial", "train.py", "--dry-run", "--executor", "slurm", "--mem-gb", "8")
SITE = "description: A box.\npartitions: {short: {max_time: 1h, mem_gb_per_node: 64}}\n"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--retries", "3"], "--retries 3 says how often --retry may act. Give --retry"),
        (["--retry", "oom:mem=8"],
         "--retry oom:mem=8 can never act: the job has 8 GiB of memory per node, and the rule"),
        (["--retry", "fail,timeout:time=30m", "--time", "1h"],
         "--retry timeout:time=30 can never act: the job has 01:00:00 of time, and the rule asks"),
        (["--retry", "timeout:time*2", "--time", "1h", "--site", "box", "--partition", "short"],
         "--retry timeout:time*2 can never act: the job has 01:00:00 of time, and partition short"),
    ],
)  # fmt: skip
def test_a_rule_that_can_never_act_is_refused(
    here: Path, fake_slurm: Path, cli: Any, words: list[str], says: str
) -> None:
    write_files(here, {"train.py": "", "templates/sites/box.yaml": SITE})
    answer = cli(*ASKED, *words)
    assert answer.status != 0
    assert says in " ".join(answer.err.split())


def test_more_retries_than_the_rules_can_act_are_told(
    here: Path, fake_slurm: Path, cli: Any
) -> None:
    write_files(here, {"train.py": ""})
    told = cli(*ASKED, "--retry", "oom:mem=16", "--retries", "2")
    assert told.status == 0
    assert "--retries 2: --retry oom:mem=16 names fixed sizes and can act only once" in told.err
    for rules in ("oom:mem*2", "fail", "oom:mem=16,timeout:time=30", "timeout:time*2"):
        answer = cli(*ASKED, "--retry", rules, "--retries", "2", "--time", "10")
        assert (answer.status, "--retries" in answer.err) == (0, False)


def test_of_a_request_made_again_they_are_told(tmp_path: Path) -> None:
    """The last retry has the memory that its rule asks for."""
    job: Any = SimpleNamespace(
        retry=("oom:mem=16",), mem_gb=16, time_min=10, options={"partition": None},
        site=SimpleNamespace(partitions={}), is_array=False,
    )  # fmt: skip
    [note] = look_at_rules(job, 2, again=True)
    assert note.startswith("--retry oom:mem=16 can never act: the job has 16 GiB")
    with pytest.raises(RequestError):
        look_at_rules(job, 2, again=False)
