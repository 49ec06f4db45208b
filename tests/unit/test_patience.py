"""How long and how often Slurm is asked: on a clock of the tests' own."""

import os
import pwd
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import hpckit
from hpckit import shell
from hpckit.cli.view import LiveView
from hpckit.errors import CommandError, OutsideError, RequestError
from hpckit.schedulers.slurm import ending
from hpckit.slurm import client
from hpckit.slurm.client import ask, patience
from hpckit.slurm.states import JobState
from hpckit.submission import waiting
from hpckit.submission.handover import begin, new_handover, remember
from hpckit.submission.status import RunStatus
from hpckit.submission.waiting import over_by_and_by, wait
from tests.conftest import Answer
from tests.patience import LONG_S
from tests.unit.made import make_run
from tests.unit.played_slurm import answers, squeue_row

Cli = Callable[..., Answer]


@dataclass
class Clock:
    """A clock that stands still but for sleeps and for programs that hang."""

    now: float = 1000.0
    slept: list[float] = field(default_factory=list)
    limits: list[tuple[str, float]] = field(default_factory=list)

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    def hang(self, argv: list[str], *, timeout_s: float, **_: object) -> shell.Completed:
        self.limits.append((argv[0], timeout_s))
        self.now += timeout_s
        raise CommandError(f"'{argv[0]}' gave no answer within {timeout_s:g} s", argv=argv)


def patiently(argv: list[str], **options: Any) -> shell.Completed:
    """Run a program that does not hang: it may take its time, which this clock does not know."""
    return shell.run(argv, **options | {"timeout_s": LONG_S})


@pytest.fixture
def clock(here: Path, monkeypatch: pytest.MonkeyPatch) -> Clock:
    monkeypatch.delenv("HPCKIT_PATIENCE")
    monkeypatch.setattr(client, "shell", SimpleNamespace(**vars(shell) | {"run": patiently}))
    one = Clock()
    module = SimpleNamespace(monotonic=one.monotonic, sleep=one.sleep, time=time.time)
    monkeypatch.setattr(client, "time", module)
    monkeypatch.setattr(waiting, "time", module)
    monkeypatch.setattr(waiting, "_SHORTEST_S", 2.0)  # as it is: nobody waits by this clock
    return one


@pytest.fixture
def hanging(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Let all of Slurm's programs hang."""
    programs = SimpleNamespace(run=clock.hang, failed=shell.failed, Completed=shell.Completed)
    monkeypatch.setattr(client, "shell", programs)
    return clock


def calls(folder: Path) -> list[str]:
    path = folder / "calls.jsonl"
    return path.read_text().splitlines() if path.exists() else []


def test_questions_share_their_time(hanging: Clock) -> None:
    with patience():
        for name in ("squeue", "sacct", "squeue", "scontrol"):
            with pytest.raises(CommandError) as said:
                ask([name])
            if name == "scontrol":
                assert "was not asked" in str(said.value)
                assert "HPCKIT_PATIENCE=60" in str(said.value)
    # Who kept silent is not asked again; the second had what the first left.
    assert hanging.limits == [("squeue", 6.0), ("sacct", 3.0)]
    with pytest.raises(CommandError):
        ask(["squeue"])
    assert hanging.limits[-1] == ("squeue", 60)


def test_the_shorter_patience_counts_and_the_users_word(hanging: Clock, monkeypatch) -> None:
    monkeypatch.setenv("HPCKIT_PATIENCE", "90")
    with patience(), patience(3), patience(30), pytest.raises(CommandError):
        ask(["squeue"])
    with patience(), patience(), pytest.raises(CommandError):
        ask(["squeue"], timeout_s=70)
    assert hanging.limits == [("squeue", 3.0), ("squeue", 60.0)]
    for word in ("soon", "0", "-1", "nan", "inf"):
        monkeypatch.setenv("HPCKIT_PATIENCE", word)
        with pytest.raises(RequestError, match="is not a number of seconds"), patience():
            pass


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (["status", "11"], 0),
        (["jobs"], 0),
        (["logs", "11", "--errors"], 0),
        (["wait", "11", "--timeout", "1"], 3),
        (["cancel", "11"], 3),
        (["stats", "11"], 0),
        (["stats", "11", "77", "78", "79"], 3),
    ],
)
def test_a_silent_slurm_costs_no_command_ten_seconds(
    fake_slurm: Path, here: Path, hanging: Clock, cli: Cli, words: list[str], status: int
) -> None:
    make_run(here / "runs")
    began = hanging.now
    answer = cli(*words)
    assert answer.status == status, answer
    assert 0 < hanging.now - began <= 9.5
    if words[0] in ("status", "cancel", "stats"):
        assert "gave no answer within" in answer.out + answer.err
    if words == ["stats", "11"]:
        assert "hpckit does not know what became of this job" in answer.out
        assert "has not had a node" not in answer.out
    if words[0] == "cancel":
        assert hanging.limits[-1][0] == "scancel"


def test_the_questions_of_a_submission_share_their_time(
    fake_slurm: Path, here: Path, clock: Clock, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(argv: list[str], **options: Any) -> shell.Completed:
        return (patiently if argv[0] == "sbatch" else clock.hang)(argv, **options)

    monkeypatch.setattr(client, "shell", SimpleNamespace(**vars(shell) | {"run": run}))
    answer = cli("submit", "serial", "/bin/true", "--site=vera", "--gpus=0", "--dry-run")
    assert answer.status == 0, answer
    assert "Slurm does not answer which one is your default" in answer.err
    assert clock.limits == [("sacctmgr", 6.0)]


@pytest.mark.parametrize("sbatch", ["hangs", "answers"])
@pytest.mark.parametrize(
    ("words", "asks"),
    [
        (("serial", "/bin/true"), ""),
        (("mpi", "/bin/true"), "Slurm does not say what srun takes"),
        (("serial", "/bin/true", "--exclude-bad"), "no Slurm says which cluster this is"),
    ],
    ids=["serial", "mpi", "exclude-bad"],
)
def test_a_dry_run_needs_no_slurm_also_where_its_programs_hang(
    fake_slurm: Path, clock: Clock, cli: Cli, monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...], asks: str, sbatch: str,
) -> None:  # fmt: skip
    hpckit.add_bad_node("c7", "slow", cluster="box")

    def run(argv: list[str], **options: Any) -> shell.Completed:
        well = argv[0] == "sbatch" and sbatch == "answers"
        return (patiently if well else clock.hang)(argv, **options)

    monkeypatch.setattr(client, "shell", SimpleNamespace(**vars(shell) | {"run": run}))
    answer = cli("submit", *words, "--gpus=0", "--dry-run")
    assert answer.status == 0, answer
    assert answer.out.startswith("#!/bin/bash\n")
    assert asks in answer.err
    assert ("could not be submitted now: 'sbatch' gave" in answer.err) == (sbatch == "hangs")
    assert hpckit.script(*words[:2], gpus=0).startswith("#!/bin/bash\n")
    submits = (asks, sbatch) == ("", "answers")
    assert cli("submit", *words, "--gpus=0").status == (0 if submits else 3)


def test_a_short_patience_ends_with_the_last_answer(
    fake_slurm: Path, here: Path, clock: Clock, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ending, "time", client.time)
    monkeypatch.setenv("HPCKIT_PATIENCE", "2")
    me = pwd.getpwuid(os.getuid()).pw_name
    answers(fake_slurm, squeue_out=squeue_row("77", "RUNNING", user=me))
    answer = cli("cancel", "77")
    assert answer.status == 1
    assert answer.out.startswith("77 RUNNING according to Slurm")
    assert "Asked Slurm to cancel 77; it still runs (RUNNING)." in answer.err
    assert sum(clock.slept) <= 2


@pytest.mark.parametrize("silent", [("squeue",), ("sacct",), ("squeue", "sacct")])
@pytest.mark.parametrize("handed_over", [False, True])
def test_a_cancel_that_slurm_does_not_confirm_says_so_within_ten_seconds(
    fake_slurm: Path,
    here: Path,
    clock: Clock,
    cli: Cli,
    monkeypatch: pytest.MonkeyPatch,
    silent: tuple[str, ...],
    handed_over: bool,
) -> None:
    def run(argv: list[str], **options: Any) -> shell.Completed:
        return (clock.hang if argv[0] in silent else patiently)(argv, **options)

    programs = SimpleNamespace(**vars(shell) | {"run": run})
    monkeypatch.setattr(client, "shell", programs)
    make_run(here / "runs")
    if handed_over:
        begin_submission(here / "runs")
    began = clock.now
    answer = cli("cancel", "11")
    assert answer.status == 3
    assert "Slurm has not answered; ask again: hpckit status 11" in answer.err
    assert '["scancel", "11"]' in (fake_slurm / "calls.jsonl").read_text()
    assert clock.now - began <= 10


def begin_submission(root: Path) -> None:
    """Leave what a submission leaves that was killed."""
    (root / "cut").mkdir(mode=0o700)
    begun = new_handover("cut", root, [{"run_id": "cut"}], array=False)
    begin(root / "cut", replace(begun, pid_started=1))
    remember("cut", root)


def test_waiting_ends_at_its_timeout(fake_slurm: Path, tmp_path: Path, clock: Clock) -> None:
    answers(fake_slurm, squeue_out=squeue_row("11", "RUNNING"))
    with pytest.raises(OutsideError, match="not over after 40 s"):
        wait([make_run(tmp_path)], timeout_s=40)
    assert sum(clock.slept) == pytest.approx(40)


def test_following_asks_no_oftener_than_waiting(
    fake_slurm: Path, tmp_path: Path, clock: Clock
) -> None:
    """A file of 100 MB is 1600 pieces, and an idle log is looked at three times a second."""
    answers(fake_slurm, squeue_out=squeue_row("11", "RUNNING"))
    over = over_by_and_by([make_run(tmp_path)])
    assert not any(over() for _ in range(1600))
    assert len(calls(fake_slurm)) == 1
    for _ in range(200):
        clock.sleep(0.3)
        assert not over()
    asked = len(calls(fake_slurm))
    assert asked < 20
    answers(fake_slurm, squeue_out=squeue_row("11", "FAILED"))
    clock.sleep(10)
    assert over()
    assert over()
    assert len(calls(fake_slurm)) == asked + 2  # squeue, and once scontrol for the exit code


def test_logs_follow_by_that(fake_slurm: Path, here: Path, cli: Cli) -> None:
    run = make_run(here / "runs")
    (run.dir / "logs" / "0.out").write_bytes(b"x" * (5 << 16))
    answers(fake_slurm, squeue_out=squeue_row("11", "COMPLETED"))
    assert len(cli("logs", "11", "-f").out) == 5 << 16
    assert len(calls(fake_slurm)) == 1


def test_showing_an_array_that_waits_asks_nothing_more(
    fake_slurm: Path, tmp_path: Path, hanging: Clock
) -> None:
    runs = [
        make_run(tmp_path, f"a_{n}", job_id=f"20_{n}", array={"job_id": "20", "index": n})
        for n in range(30)
    ]
    waiting = [RunStatus(run=run, state=JobState.PENDING, source="squeue") for run in runs]
    LiveView()(waiting)
    assert hanging.limits == []


def test_what_hangs_behind_a_wrapper_ends_too(tmp_path: Path) -> None:
    """Sites wrap Slurm's programs in scripts of their own."""
    argv = ["sh", "-c", f"sleep 300 & echo $! > {tmp_path}/pid; wait"]
    told = ""
    for limit_s in (0.5, 20.0):  # on a loaded machine it may not have begun in the first
        with pytest.raises(CommandError, match=f"no answer within {limit_s:g} s"):
            shell.run(argv, timeout_s=limit_s, own_group=True)
        told = (tmp_path / "pid").read_text() if (tmp_path / "pid").exists() else ""
        if told.endswith("\n"):
            break
    pid = int(told)
    state = ""
    for _ in range(1200):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return
        if state == "Z":  # nobody here waits for orphans
            return
        time.sleep(0.05)
    pytest.fail(f"it is still there: {state}")
