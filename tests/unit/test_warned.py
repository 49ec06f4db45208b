"""What a job does when Slurm announces its end: while it may start again, and when it may not."""

import contextlib
import itertools
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from hpckit.errors import CommandError, JobError
from hpckit.job.header import signal_delay_s
from hpckit.payload import ending, supervisor
from hpckit.payload.rank import Look
from hpckit.payload.task import Task, task_from_json
from hpckit.run_folders.ranks import RankRecord, has_ended, write_rank
from hpckit.schedulers.slurm import Slurm
from hpckit.stop_marks import (
    DEAF,
    HEARD,
    LEFT,
    NEXT,
    NO_CHECKPOINT,
    OVER,
    PREEMPTED,
    REQUEUED,
    SENT,
    STOPPED,
    TERMINATED,
    UNDONE,
    add_mark,
    claim_to_decide,
    mark_failed,
    marks,
    marks_of,
)
from hpckit.submission import no_requeue, warned
from hpckit.submission.payload import GoesOnError, Payload, ScriptFailedError

# What the script's side says when it is sent the signal, and stops because of it, or does not.
OWN_HANDLER, STOPS, WORKS_ON = (SENT,), (SENT, HEARD, STOPPED), (SENT, HEARD)
NO_HANDLER, NO_ANSWER = (DEAF,), ()
# It read of the warning before the signal was sent, and has no handler any more at its end.
ENDS = (HEARD, STOPPED, DEAF)


class Script:
    """Stands for a script: Slurm warns it while it runs, and it ends well.

    Attributes:
        says: what it and its supervisor write down at the warning.
        code: its exit status; None: it works on, and is looked at once more.
        saves: what it does before it ends, or is looked at.
        stops: what it does after that.
    """

    def __init__(self, folder: Path) -> None:
        self.heard: list[object] = []
        self.no_requeue = threading.Event()  # Slurm was told that it may not start the job again
        self.says: tuple[str, ...] = ()
        self.code: int | None = 0
        self.warned = True
        self.terminated = False
        self.listens: bool | None = None
        self.saves: Callable[[], object] = lambda: None
        self.stops: Callable[[], object] = lambda: None
        self.answers: Iterator[BaseException] = itertools.repeat(SystemExit(255))
        self.fates: Iterator[str] = itertools.repeat(OVER)
        self._folder = folder

    def run(self, look: Look) -> int:
        if self.warned:
            os.kill(os.getpid(), signal.SIGUSR2)
        self.saves()
        if self.code is None:
            look(None)
            self.stops()
            self.code = 0
        ended = record(int(os.environ["SLURM_RESTART_COUNT"]), self.code)
        write_rank(self._folder, replace(ended, consequence=self.terminated))
        look(self.code)
        return self.code

    def requeue(self, _signum: int, _frame: object) -> None:
        """Stand for submitit's handler, which ends the process."""
        self.heard.append("requeue")
        raise next(self.answers)

    def stop(self, signum: int, _frame: object = None) -> None:
        self.heard.append(signal.Signals(signum).name)

    def noted(self, signum: int) -> None:
        self.terminated = True

    def heeds(self) -> bool | None:
        return self.listens

    def warn(self) -> None:
        self.heard.append("warning")
        for word in self.says:
            add_mark(marks_of(self._folder, 0), int(os.environ["SLURM_RESTART_COUNT"]), word)


def record(attempt: int, code: int) -> RankRecord:
    return RankRecord(
        rank=0, restart=attempt, host="c1", device="cpu", pid=1, started=1.0, ended=2.0,
        exit_code=code,
    )  # fmt: skip


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Script]:
    """Give a script in place of a real one, and the signals back to pytest."""
    one = Script(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SLURM_RESTART_COUNT", "0")
    monkeypatch.setattr(supervisor, "supervised", lambda _task: one)
    monkeypatch.setattr(Slurm, "forbid_requeue", lambda _self: one.no_requeue.set())
    monkeypatch.setattr(Slurm, "fate", lambda _self: next(one.fates))
    before = {number: signal.getsignal(number) for number in signal.valid_signals()}
    yield one
    for number, handler in before.items():
        if handler is not None and number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, handler)


def payload(script: Script, *, saves: bool = False, tasks: int = 1, **changes: object) -> Payload:
    values: dict[str, object] = {
        "launcher": "srun",
        "max_requeues": 2,
        "signal_delay_s": 30,
    } | changes
    task = Task(
        run_dir=str(script._folder),
        run_id="r",
        executor="slurm",
        nodes=1,
        tasks_per_node=tasks,
        command=("true",),
        python=("python",),
        device="cpu",
        handles_stop_signal=saves,
        **values,  # type: ignore[arg-type]
    )
    signal.signal(signal.SIGUSR2, script.requeue)
    return Payload(task.to_json())


def requeued(script: Script, *, saves: bool = False, **changes: object) -> bool:
    """Run the job; say whether it asked to be requeued, or else ended well."""
    try:
        assert payload(script, saves=saves, **changes)() == {"exit_code": 0}
    except SystemExit:
        assert script.heard[-1] == "requeue"
        return True
    assert "requeue" not in script.heard
    return False


@pytest.mark.parametrize("attempt", ["0", "1"])
@pytest.mark.parametrize("says", [OWN_HANDLER, STOPS])
def test_a_job_that_may_start_again_is_requeued(
    script: Script, monkeypatch, attempt: str, says: tuple[str, ...]
) -> None:
    monkeypatch.setenv("SLURM_RESTART_COUNT", attempt)
    script.says = says
    assert requeued(script, saves=True)
    assert script.heard == ["warning", "requeue"]
    assert payload(script, saves=True).checkpoint() is not None
    assert not [row for row in threading.enumerate() if "requeue" in row.name]
    assert not script.no_requeue.is_set()


def test_a_script_that_does_not_handle_the_signal_is_requeued_at_once(script: Script) -> None:
    script.says, script.code = NO_HANDLER, None
    assert requeued(script)
    assert script.code is None


@pytest.mark.parametrize("says", [OWN_HANDLER, NO_ANSWER, ENDS])
def test_one_that_handles_it_has_time_to_save(script: Script, says: tuple[str, ...]) -> None:
    """Also while it is not known yet whether it does: its supervisor may be on another node."""
    script.says, script.code = says, None
    script.stops = lambda: add_mark(marks_of(script._folder, 0), 0, STOPPED)
    assert requeued(script)
    assert (script.code, script.heard) == (0, ["warning", "requeue"])  # at its end, not before


@pytest.mark.parametrize("left_s", [25, 45, None])
def test_a_warning_from_before_hpckit_ran_is_noticed(script: Script, monkeypatch, left_s) -> None:
    """By the time limit that is near, which Slurm has told nobody of; or by the job script."""
    script.says, script.code = NO_HANDLER, None
    if left_s is None:
        monkeypatch.setenv("HPCKIT_WARNED", "1")
    else:
        monkeypatch.setenv("SLURM_JOB_END_TIME", str(int(time.time()) + left_s))
    script.warned = False
    assert requeued(script) == (left_s != 45)
    assert ("warning" in script.heard) == (left_s != 45)
    assert "HPCKIT_WARNED" not in os.environ


def test_a_warning_waits_until_hpckit_can_act_on_it(script: Script) -> None:
    """Not submitit, whose handler would have the job requeued before its script has begun."""
    script.says, script.code, script.warned = NO_HANDLER, None, False
    job = payload(script)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})  # as `job_process.main` does
    signal.pthread_kill(threading.get_ident(), signal.SIGUSR2)  # pytest-xdist has other threads
    assert script.heard == []
    with pytest.raises(SystemExit):
        job()
    assert script.heard == ["warning", "requeue"]
    assert signal.SIGUSR2 not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


@pytest.mark.parametrize(
    ("fate", "failed", "heard"),
    [
        (PREEMPTED, False, ["warning", "requeue"]),
        (OVER, False, ["SIGTERM"]),
        (
            PREEMPTED,
            True,
            ["SIGTERM"],
        ),  # it came while it was ignored, or before there was a process
    ],
)
def test_a_sigterm_from_before_hpckit_ran_is_acted_on(
    script: Script, fate: str, failed: bool, heard: list[str]
) -> None:
    """It begins a preemption, or the job ends: by scancel, or because another rank has failed."""
    script.says, script.warned, script.fates = OWN_HANDLER, False, itertools.repeat(fate)
    job = payload(script)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # as `UNSIGNALLED` does
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # as `job_process.main` does
    if failed:
        mark_failed(script._folder, 0, 1, by_peer=False)
    else:
        signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
    with pytest.raises(SystemExit) if heard[-1] == "requeue" else contextlib.nullcontext():
        job()
    assert script.heard == heard
    assert signal.SIGTERM not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_one_that_does_not_end_in_time_is_requeued_nevertheless(script: Script) -> None:
    script.says, script.code = OWN_HANDLER, None
    assert requeued(script, signal_delay_s=0)
    assert script.code is None


@pytest.mark.parametrize("says", [(), WORKS_ON])
def test_a_job_that_is_complete_is_not_requeued(script: Script, says: tuple[str, ...]) -> None:
    """It ended while the warning was on its way, or said that it would tell if it stopped."""
    script.says = says
    assert not requeued(script, saves=True)


def test_a_script_may_stop_by_itself(script: Script) -> None:
    script.warned = False
    script.saves = lambda: add_mark(marks_of(script._folder, 0), 0, STOPPED)
    assert requeued(script)


def test_a_failure_that_is_none_of_the_warnings_is_a_failure(script: Script) -> None:
    script.code = 3
    with pytest.raises(ScriptFailedError):
        payload(script)()
    for says in (OWN_HANDLER, STOPS, WORKS_ON):  # how it ends after the signal is its own affair
        script.heard.clear()
        script.says = says
        shutil.rmtree(script._folder / "signals")
        assert requeued(script)


def test_a_job_that_was_cancelled_is_not_requeued(script: Script) -> None:
    script.says = STOPS
    script.saves = lambda: os.kill(os.getpid(), signal.SIGTERM)
    assert not requeued(script)
    assert script.heard == ["warning", "SIGTERM"]


def test_a_job_cancelled_while_its_script_saves_is_not_requeued(script: Script) -> None:
    """Slurm would take back to the queue what a user has cancelled."""
    script.warned = False
    script.fates = iter([PREEMPTED, OVER])
    script.says = STOPS
    script.saves = lambda: os.kill(os.getpid(), signal.SIGTERM)
    assert not requeued(script)
    assert script.heard == ["warning"]


@pytest.mark.parametrize(
    ("says", "code", "goes_on"),
    [
        (STOPS, 0, True),
        (STOPS, 3, True),
        (OWN_HANDLER, 0, True),
        (OWN_HANDLER, 7, True),
        (NO_HANDLER, 143, True),  # it died of the signal
        (NO_HANDLER, 0, False),  # it was complete by then
        (WORKS_ON, 0, False),
    ],
)
def test_a_preemption_that_sends_sigterm_alone_is_a_warning(
    script: Script, says: tuple[str, ...], code: int, goes_on: bool
) -> None:
    script.warned = False
    script.fates = itertools.repeat(PREEMPTED)
    script.says, script.code = says, code
    script.saves = lambda: os.kill(os.getpid(), signal.SIGTERM)
    assert requeued(script) == goes_on
    assert script.heard[0] == "warning"
    assert "SIGTERM" not in script.heard
    assert (REQUEUED in marks(marks_of(script._folder, 0), 0)) == goes_on
    # Slurm takes the end of a complete job for the preemption's, too.
    assert script.no_requeue.is_set() != goes_on


@pytest.mark.parametrize("earlier", [PREEMPTED, "limit"])
@pytest.mark.parametrize("code", [0, 3])
def test_slurm_may_not_take_an_end_for_a_preemption_that_is_over(
    script: Script, monkeypatch: pytest.MonkeyPatch, earlier: str, code: int
) -> None:
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    add_mark(marks_of(script._folder, 0), 0, earlier)
    script.warned, script.code = False, code
    if code:
        with pytest.raises(ScriptFailedError):
            payload(script)()
    else:
        assert not requeued(script)
    assert script.no_requeue.is_set() == (earlier == PREEMPTED)


@pytest.mark.parametrize("fate", [OVER, REQUEUED])
def test_a_job_that_slurm_ends_may_start_again_as_before(
    script: Script, monkeypatch: pytest.MonkeyPatch, fate: str
) -> None:
    """By a second preemption, for one, after which Slurm itself requeues it."""
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    add_mark(marks_of(script._folder, 0), 0, PREEMPTED)
    script.warned, script.code, script.fates = False, 143, itertools.repeat(fate)
    script.saves = lambda: os.kill(os.getpid(), signal.SIGTERM)
    with pytest.raises((ScriptFailedError, SystemExit)):
        payload(script)()
    assert not script.no_requeue.is_set()


def test_while_other_ranks_work_slurm_may_start_the_job_again(
    script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    def other_ends() -> None:
        assert not script.no_requeue.is_set()
        write_rank(script._folder, replace(record(1, 0), rank=1))

    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    add_mark(marks_of(script._folder, 0), 0, PREEMPTED)
    write_rank(script._folder, record(1, 0))
    write_rank(script._folder, replace(record(0, 0), rank=1))  # of the attempt before
    clock = SimpleNamespace(monotonic=time.monotonic, sleep=lambda _: other_ends())
    task = task_from_json(payload(script, tasks=2).text)
    with monkeypatch.context() as patched:
        patched.setattr(no_requeue, "time", clock)
        no_requeue._wait_for_others(task, ending.Ending(task, script, asks=False))
    assert has_ended(script._folder, 1, 1)


@pytest.mark.parametrize("works", [True, False])
def test_slurm_may_start_a_job_again_as_long_as_one_of_its_ranks_works(
    script: Script, monkeypatch: pytest.MonkeyPatch, works: bool
) -> None:
    """Rank 0's process gave up after a minute: a time limit's requeue was refused hours later."""
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    add_mark(marks_of(script._folder, 0), 0, PREEMPTED)
    write_rank(script._folder, record(1, 0))
    other = replace(record(1, 0), rank=1)
    if works:
        write_rank(script._folder, replace(other, ended=None, exit_code=None))
    hours: list[float] = []

    def another_hour(pause_s: float) -> None:
        hours.append(pause_s)
        if works and len(hours) == 4:
            write_rank(script._folder, other)

    clock = SimpleNamespace(monotonic=lambda: 3600.0 * len(hours), sleep=another_hour)
    task = task_from_json(payload(script, tasks=2).text)
    monkeypatch.setattr(no_requeue, "time", clock)
    no_requeue._wait_for_others(task, ending.Ending(task, script, asks=False))
    assert has_ended(script._folder, 1, 1) == works


def test_a_job_that_slurm_has_requeued_by_itself_is_not_requeued_again(
    script: Script, capsys: pytest.CaptureFixture[str]
) -> None:
    script.warned = False
    script.fates = itertools.repeat(REQUEUED)
    script.says = STOPS
    script.saves = lambda: os.kill(os.getpid(), signal.SIGTERM)
    with pytest.raises(SystemExit):
        payload(script)()
    assert script.heard == ["warning"]
    assert "in the queue again already" in capsys.readouterr().err


def test_a_failing_mpirun_may_be_a_preemptions_doing(script: Script) -> None:
    """Slurm has signalled its daemons, and not the batch script."""
    script.warned = False
    script.code = 77
    script.fates = itertools.repeat(PREEMPTED)
    with pytest.raises(ScriptFailedError):
        payload(script)()
    shutil.rmtree(script._folder / "signals")
    assert requeued(script, launcher="mpirun")
    script.fates = itertools.repeat(OVER)
    shutil.rmtree(script._folder / "signals")
    with pytest.raises(ScriptFailedError):
        payload(script, launcher="mpirun")()


@pytest.mark.parametrize("launcher", ["srun", "mpirun"])
@pytest.mark.parametrize(
    ("fate", "words"), [(PREEMPTED, {PREEMPTED}), (OVER, {OVER}), (REQUEUED, {REQUEUED})]
)
def test_of_a_job_that_never_goes_on_it_is_written_down_what_ended_it(
    script: Script, launcher: str, fate: str, words: set[str]
) -> None:
    """Of mpirun's, which gets no signal, only that a preemption did."""
    script.warned, script.code, script.fates = False, 143, iter([fate])
    script.terminated = True
    if launcher == "srun":
        script.saves = lambda: os.kill(os.getpid(), signal.SIGTERM)
    with pytest.raises(ScriptFailedError):
        payload(script, max_requeues=0, launcher=launcher)()
    assert script.heard == (["SIGTERM"] if launcher == "srun" else [])
    said = marks(marks_of(script._folder, 0), 0)
    assert said == (words - {OVER} if launcher == "mpirun" else words)


@pytest.mark.parametrize(
    ("fate", "words", "fails"),
    [
        (PREEMPTED, (TERMINATED,), True),
        (PREEMPTED, (), False),  # it has no handler, so it was complete before the signal
        (OVER, (TERMINATED,), False),  # Slurm itself says CANCELLED or TIMEOUT
    ],
)
def test_who_saves_on_sigterm_and_may_not_go_on_is_not_complete(
    script: Script, fate: str, words: tuple[str, ...], fails: bool
) -> None:
    """It ends with 0, and Slurm would start what waits for it by afterok."""
    script.warned, script.fates = False, iter([fate])

    def saves() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        for word in words:
            add_mark(marks_of(script._folder, 0), 0, word)
        late = replace(record(0, 0), rank=1)
        threading.Timer(0.5, write_rank, [script._folder, late]).start()

    script.saves = saves
    job = payload(script, max_requeues=0, tasks=2)
    with pytest.raises(JobError, match="preempted the job") if fails else contextlib.nullcontext():
        assert job() == {"exit_code": 0}
    # srun would end the other rank, which saves for longer.
    assert not fails or has_ended(script._folder, 1, 0)
    assert script.heard == ["SIGTERM"]


@pytest.mark.parametrize("first_ended", [True, False])
def test_where_rank_0_has_done_its_part_another_rank_asks_why_it_was_ended(
    script: Script, monkeypatch: pytest.MonkeyPatch, first_ended: bool
) -> None:
    """Otherwise nobody would know of the preemption, and half the work would be COMPLETED."""
    script.warned, script.fates = False, iter([PREEMPTED])
    monkeypatch.setenv("SLURM_PROCID", "1")
    monkeypatch.setattr(script, "run", lambda look: saved(script, look))
    if first_ended:
        write_rank(script._folder, record(0, 0))
    job = payload(script, max_requeues=0, tasks=2)
    undone = pytest.raises(JobError, match="preempted the job")
    with undone if first_ended else contextlib.nullcontext():
        job()
    assert (PREEMPTED in marks(marks_of(script._folder, 0), 0)) == first_ended


def saved(script: Script, look: Look) -> int:
    """Be rank 1, which is told to end, saves, and ends with 0."""
    os.kill(os.getpid(), signal.SIGTERM)
    add_mark(marks_of(script._folder, 1), 0, TERMINATED)
    write_rank(script._folder, replace(record(0, 0), rank=1, consequence=True))
    look(0)
    return 0


def test_a_busy_controller_makes_no_half_done_work_complete(
    script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    script.warned = False
    asked: list[float] = []

    def fate(_self: Slurm) -> str:
        asked.append(time.monotonic())
        if asked[-1] - asked[0] < 3:
            raise CommandError("squeue does not answer", argv=("squeue",))
        return PREEMPTED

    def saves() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        add_mark(marks_of(script._folder, 0), 0, TERMINATED)

    monkeypatch.setattr(Slurm, "fate", fate)
    script.saves = saves
    with pytest.raises(JobError, match="preempted the job"):
        payload(script, max_requeues=0)()


def test_a_supervisor_that_lost_its_slurmstepd_waits_for_no_other(
    script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slurm does not end it, and has killed the others, which recorded no end."""
    script.warned, script.fates = False, iter([PREEMPTED])
    monkeypatch.setattr(warned, "is_abandoned", lambda: True)

    def saves() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        add_mark(marks_of(script._folder, 0), 0, TERMINATED)

    script.saves = saves
    with pytest.raises(JobError, match="preempted the job"):
        payload(script, max_requeues=0, tasks=2)()


def test_who_fails_by_itself_asks_nobody(script: Script) -> None:
    script.warned, script.code, script.fates = False, 3, iter(())
    for launcher in ("srun", "mpirun"):
        mark_failed(script._folder, 0, 3, by_peer=False)
        with pytest.raises(ScriptFailedError):
            payload(script, max_requeues=0, launcher=launcher)()


def test_without_an_answer_of_slurms_the_script_ends(
    script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(_self: Slurm) -> str:
        asked.append(1)
        raise CommandError("no answer")

    asked: list[int] = []
    now = itertools.count(1000.0, ending._ANSWER_S / 5)  # a clock that goes with each look at it
    clock = SimpleNamespace(monotonic=lambda: next(now), sleep=time.sleep)
    monkeypatch.setattr(ending, "time", clock)
    monkeypatch.setattr(Slurm, "fate", silent)
    script.warned, script.code = False, 143
    script.saves = lambda: os.kill(os.getpid(), signal.SIGTERM)
    with pytest.raises(ScriptFailedError):
        payload(script)()
    assert script.heard == ["SIGTERM"]
    assert len(asked) > 1


def test_a_controller_that_does_not_answer_is_asked_again(
    script: Script, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script.answers = iter([OSError("no answer"), OSError("no answer"), SystemExit(255)])
    monkeypatch.setattr(warned, "_AGAIN_S", 0.0)
    script.says = STOPS
    assert requeued(script)
    assert script.heard == ["warning", "requeue", "requeue", "requeue"]
    assert capsys.readouterr().err.count("the job is not requeued yet") == 2


def test_a_controller_that_never_answers_is_told_of_in_a_line(
    script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    script.answers = itertools.repeat(OSError("no answer"))
    monkeypatch.setattr(warned.Warned, "_deadline", lambda _self: 0.0)
    script.says = STOPS
    with pytest.raises(JobError, match=r"cannot be requeued: no answer\. What it saved stays"):
        requeued(script)


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("saved/*.pt", "saved/7.pt"),  # from the folder that the job runs in, and the run's
        ("*/epoch=*/", "logs/epoch=3/weights"),
        ("**/last.ckpt", "a/b/last.ckpt"),
        ("nothing", "checkpoints/last.pt"),
        ("{here}/far/[0-9]", "far/5"),
    ],
)
def test_with_checkpoint_a_requeue_needs_a_newer_one(
    script: Script, tmp_path: Path, pattern: str, path: str
) -> None:
    old = tmp_path / path
    old.parent.mkdir(parents=True)
    old.write_text("old")
    pattern = pattern.format(here=tmp_path)
    script.says = STOPS
    with pytest.raises(JobError, match=r"is not requeued: nothing that --checkpoint .* names"):
        payload(script, checkpoint=pattern)()
    assert NO_CHECKPOINT in marks(marks_of(tmp_path, 0), 0)
    script.saves = lambda: old.write_text("newer")
    assert requeued(script, checkpoint=pattern)


@pytest.mark.parametrize(("left_s", "waits"), [(50, True), (5000, False), (-9, False)])
def test_the_time_that_slurm_leaves_is_used(
    script: Script, monkeypatch: pytest.MonkeyPatch, left_s: float, waits: bool
) -> None:
    """A preemption comes long before the time limit, and says nothing of its own."""
    monkeypatch.setenv("SLURM_JOB_END_TIME", str(int(time.time() + left_s)))
    script.says, script.code = OWN_HANDLER, None
    assert requeued(script, signal_delay_s=0)
    assert (script.code == 0) == waits


def test_without_a_checkpoint_a_script_works_on_to_its_limit(
    script: Script, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script.says, script.code = NO_HANDLER, None
    assert not requeued(script, checkpoint="*.pt", signal_delay_s=0)
    assert "is not requeued: nothing that --checkpoint *.pt names" in capsys.readouterr().err
    script.saves, script.code = (tmp_path / "1.pt").touch, None
    assert requeued(script, checkpoint="*.pt")


def test_without_the_option_a_missing_checkpoint_is_said(
    script: Script, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script.says = STOPS
    assert requeued(script)
    assert "nothing in the run's checkpoints/ is newer" in capsys.readouterr().err
    (tmp_path / "checkpoints").mkdir()
    script.saves = (tmp_path / "checkpoints" / "last.pt").touch
    assert requeued(script)
    assert capsys.readouterr().err == ""


def test_in_its_last_attempt_a_job_has_all_of_its_time(script: Script, monkeypatch) -> None:
    monkeypatch.setenv("SLURM_RESTART_COUNT", "2")
    script.code = None
    assert not requeued(script)
    assert payload(script).checkpoint() is None
    assert script.no_requeue.wait(60)


@pytest.mark.parametrize("silent", [2, 9])
def test_a_controller_that_does_not_answer_is_asked_again_for_no_other_start(
    script: Script, monkeypatch, capsys, silent: int
) -> None:
    asked: list[Slurm] = []

    def forbid(self: Slurm) -> None:
        asked.append(self)
        if len(asked) <= silent:
            raise CommandError("scontrol was ended by a signal")

    monkeypatch.setattr(Slurm, "forbid_requeue", forbid)
    monkeypatch.setattr(no_requeue, "_ASK_AGAIN_S", (0.0, 0.0))
    no_requeue.forbid_requeue(task_from_json(payload(script).text))
    assert len(asked) == 3
    assert ("may start the job again: scontrol was" in capsys.readouterr().err) == (silent > 2)


@pytest.mark.parametrize("says", [OWN_HANDLER, STOPS])
def test_a_script_that_saves_is_told_and_its_job_is_not_done(
    script: Script, monkeypatch, says: tuple[str, ...]
) -> None:
    monkeypatch.setenv("SLURM_RESTART_COUNT", "2")
    script.says = says
    with pytest.raises(
        JobError, match=r"--max-requeues 2 allows no other attempt\. .* told to save"
    ):
        payload(script, saves=True)()
    assert script.heard == ["warning"]
    assert script.no_requeue.wait(60)


@pytest.mark.parametrize("says", [OWN_HANDLER, STOPS])
def test_a_job_of_a_chain_leaves_the_rest_to_the_next(
    script: Script, monkeypatch: pytest.MonkeyPatch, says: tuple[str, ...]
) -> None:
    chain = {"max_requeues": 0, "chain": 2}
    for attempt in ("0", "1"):
        monkeypatch.setenv("SLURM_RESTART_COUNT", attempt)
        script.says = says
        with pytest.raises(GoesOnError, match="the next job goes on"):
            payload(script, **chain)()
        assert script.heard == ["warning"]
        script.heard.clear()
        assert NEXT in marks(marks_of(script._folder, 0), int(attempt))
    monkeypatch.setenv("SLURM_RESTART_COUNT", "2")
    with pytest.raises(JobError, match=r"--chain 2 has no other job\. The script was told"):
        payload(script, **chain)()
    assert not script.no_requeue.is_set()


@pytest.mark.parametrize("says", [NO_HANDLER, WORKS_ON])
def test_in_a_chain_who_does_not_stop_has_all_of_its_time(
    script: Script, says: tuple[str, ...]
) -> None:
    script.says, script.code = says, None
    assert not requeued(script, max_requeues=0, chain=2)


@pytest.mark.parametrize(
    ("attempt", "fate", "error"),
    [("0", PREEMPTED, GoesOnError), ("0", OVER, ScriptFailedError),
     ("2", PREEMPTED, ScriptFailedError)],
)  # fmt: skip
def test_in_a_chain_who_does_not_listen_is_ended_by_a_preemption_and_the_next_job_goes_on(
    script: Script, monkeypatch: pytest.MonkeyPatch, attempt: str, fate: str, error: type[JobError]
) -> None:
    monkeypatch.setenv("SLURM_RESTART_COUNT", attempt)
    script.warned, script.listens, script.fates = False, False, itertools.repeat(fate)
    script.says, script.code = NO_HANDLER, 143
    script.saves = lambda: os.kill(os.getpid(), signal.SIGTERM)
    with pytest.raises(error):
        payload(script, max_requeues=0, chain=2)()
    assert script.heard[-1] == "SIGTERM"


def test_a_script_that_stops_where_no_requeue_was_allowed_is_not_done(script: Script) -> None:
    script.warned = False  # a user's own `scancel --signal=USR2`
    script.saves = lambda: add_mark(marks_of(script._folder, 0), 0, STOPPED)
    with pytest.raises(JobError, match=r"was done, and the job may not .* --max-requeues N it may"):
        payload(script, max_requeues=0)()


def be_rank_1(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the script that of rank 1, which may be warned while it works."""

    def run(look: Look) -> int:
        mine = marks_of(script._folder, 1)
        if script.warned:
            os.kill(os.getpid(), signal.SIGUSR2)
        for word in script.says:
            add_mark(mine, 0, word)
        script.saves()
        if script.code is None:
            look(None)
            return 0
        write_rank(script._folder, replace(record(0, script.code), rank=1))
        look(script.code)
        return script.code

    monkeypatch.setenv("SLURM_PROCID", "1")
    monkeypatch.setattr(script, "run", run)
    monkeypatch.setattr(script, "warn", lambda: script.heard.append("warning"))
    answers = script.requeue

    def requeue(signum: int, frame: object) -> None:
        if os.environ["SLURM_PROCID"] == "0":  # submitit does nothing in any other task
            answers(signum, frame)

    monkeypatch.setattr(script, "requeue", requeue)


@pytest.mark.parametrize(
    ("says", "code", "goes_on"),
    [
        (OWN_HANDLER, 0, True),
        (OWN_HANDLER, 7, True),
        (STOPS, 0, True),
        (NO_HANDLER, None, True),  # it works on
        (NO_HANDLER, 0, False),  # it was complete
        (WORKS_ON, 0, False),
    ],
)
def test_where_rank_0_has_left_another_rank_decides(
    script: Script, monkeypatch, says: tuple[str, ...], code: int | None, goes_on: bool
) -> None:
    """Nobody requeued such a job, and it was COMPLETED, though only rank 0 had done its part."""
    be_rank_1(script, monkeypatch)
    write_rank(script._folder, record(0, 0))
    add_mark(marks_of(script._folder, 0), 0, LEFT)
    script.says, script.code = says, code
    assert requeued(script, tasks=2) == goes_on
    assert os.environ["SLURM_PROCID"] == "1"


def test_while_rank_0_works_it_decides(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    be_rank_1(script, monkeypatch)
    script.says = STOPS
    assert not requeued(script, tasks=2)
    assert UNDONE in marks(marks_of(script._folder, 0), 0)


def test_one_rank_alone_decides_in_its_place(script: Script, monkeypatch) -> None:
    be_rank_1(script, monkeypatch)
    add_mark(marks_of(script._folder, 0), 0, LEFT)
    assert claim_to_decide(script._folder, 0)
    assert not claim_to_decide(script._folder, 0)
    script.says = STOPS
    assert not requeued(script, tasks=2)


def test_who_decides_in_its_place_and_leaves_lets_yet_another_decide(
    script: Script, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Rank 1 is complete when its time is over, and no checkpoint is new; rank 2 saves one then."""
    be_rank_1(script, monkeypatch)
    write_rank(script._folder, record(0, 0))
    add_mark(marks_of(script._folder, 0), 0, LEFT)

    def run(look: Look) -> int:
        os.kill(os.getpid(), signal.SIGUSR2)
        add_mark(marks_of(script._folder, 1), 0, HEARD)
        look(None)
        assert not claim_to_decide(script._folder, 0)  # it does
        write_rank(script._folder, replace(record(0, 0), rank=1))
        look(0)
        return 0

    with monkeypatch.context() as now:
        now.setattr(script, "run", run)
        now.setattr(warned.Warned, "_deadline", lambda _self: 0.0)
        assert not requeued(script, tasks=3, checkpoint="*.pt")
    monkeypatch.setenv("SLURM_PROCID", "2")
    add_mark(marks_of(script._folder, 2), 0, SENT)
    script.warned, script.saves = False, (tmp_path / "new.pt").touch
    script.code, script.says = 0, ()
    write_rank(script._folder, replace(record(0, 0), rank=2))
    assert requeued(script, tasks=3, checkpoint="*.pt")


def test_many_ranks_that_stop_write_one_line(script: Script, monkeypatch) -> None:
    """Of a file that grew with their number, what comes after 64 KiB would not be read."""
    be_rank_1(script, monkeypatch)
    script.warned, script.says = False, (STOPPED,)
    for number in range(1, 4):
        monkeypatch.setenv("SLURM_PROCID", str(number))
        add_mark(marks_of(script._folder, number), 0, STOPPED)
        assert not requeued(script, tasks=4)
    assert marks_of(script._folder, 0).read_text() == "0 undone\n"


def test_in_a_chain_another_rank_leaves_the_rest_to_the_next_job(
    script: Script, monkeypatch
) -> None:
    be_rank_1(script, monkeypatch)
    write_rank(script._folder, record(0, 0))
    add_mark(marks_of(script._folder, 0), 0, LEFT)
    script.says = OWN_HANDLER
    with pytest.raises(GoesOnError):
        payload(script, max_requeues=0, chain=1, tasks=2)()
    assert NEXT in marks(marks_of(script._folder, 0), 0)


def test_a_preemption_that_ends_another_rank_is_followed_where_rank_0_has_left(
    script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slurm sends its SIGTERM to the script, too (proctrack/linuxproc), which dies of it."""
    be_rank_1(script, monkeypatch)
    write_rank(script._folder, record(0, 0))
    add_mark(marks_of(script._folder, 0), 0, LEFT)
    script.warned, script.code, script.fates = False, 143, itertools.repeat(PREEMPTED)
    script.saves = lambda: os.kill(os.getpid(), signal.SIGTERM)
    assert requeued(script, tasks=2)


@pytest.mark.parametrize("undone", [True, False])
@pytest.mark.parametrize("warned", [True, False])
def test_a_complete_rank_0_leaves_the_job_to_ranks_that_are_not(
    script: Script, undone: bool, warned: bool
) -> None:
    """If the end is near it waits for them; else one has stopped, or they go on without it."""
    says = [UNDONE] if undone else []

    def other_ends() -> None:
        for word in says:
            add_mark(marks_of(script._folder, 0), 0, word)
        write_rank(script._folder, replace(record(0, 0), rank=1))

    script.warned = warned
    script.saves = threading.Timer(0.5, other_ends).start if warned else other_ends
    assert requeued(script, tasks=2) == undone
    assert has_ended(script._folder, 1, 0)
    assert undone or LEFT in marks(marks_of(script._folder, 0), 0)


def test_who_decides_in_rank_0s_place_knows_what_checkpoints_were_there(
    script: Script, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "old.pt").touch()
    script.warned = False
    assert not requeued(script, tasks=2, checkpoint="*.pt")  # rank 0 is complete
    script.warned, script.says, script.code = True, OWN_HANDLER, 0
    be_rank_1(script, monkeypatch)
    with pytest.raises(JobError, match="nothing that --checkpoint"):
        payload(script, tasks=2, checkpoint="*.pt")()
    (tmp_path / "signals" / "decides-0").unlink()
    script.saves = (tmp_path / "new.pt").touch
    assert requeued(script, tasks=2, checkpoint="*.pt")


def test_of_ranks_that_stop_where_no_requeue_was_allowed_none_is_done(
    script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    be_rank_1(script, monkeypatch)
    write_rank(script._folder, record(0, 0))
    script.warned, script.says = False, (STOPPED,)
    with pytest.raises(JobError, match="stopped before its work was done"):
        payload(script, max_requeues=0, tasks=2)()


@pytest.mark.parametrize(
    ("minutes", "seconds"), [(1, 15), (2, 30), (5, 75), (6, 90), (60, 90), (10_000, 90)]
)
def test_short_jobs_are_warned_later(minutes: int, seconds: int) -> None:
    assert signal_delay_s(minutes) == seconds
