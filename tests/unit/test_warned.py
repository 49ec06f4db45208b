"""What a job does when Slurm announces its end: while it may start again, and when it may not."""

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from hpckit.errors import JobError
from hpckit.job.script import signal_delay_s
from hpckit.payload import supervisor
from hpckit.payload.task import Task
from hpckit.schedulers.slurm import Slurm
from hpckit.submission.in_job import GoesOnError, Payload


class Script:
    """Stands for a script: Slurm warns it while it runs, and it ends well."""

    def __init__(self) -> None:
        self.heard: list[object] = []
        self.no_requeue = threading.Event()  # Slurm was told that it may not start the job again

    def run(self) -> int:
        os.kill(os.getpid(), signal.SIGUSR2)
        return 0

    def stop(self, signum: int, _frame: object = None) -> None:
        self.heard.append(("stop", signum))

    def forward(self, signum: int) -> None:
        self.heard.append(signal.Signals(signum).name)

    def wait_for_end(self, seconds: float) -> None:
        self.heard.append(seconds)


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Iterator[Script]:
    """Give a script in place of a real one, and the signals back to pytest."""
    one = Script()
    monkeypatch.setattr(supervisor, "supervised", lambda _task: one)
    monkeypatch.setattr(Slurm, "forbid_requeue", lambda _self: one.no_requeue.set())
    before = {number: signal.getsignal(number) for number in signal.valid_signals()}
    signal.signal(signal.SIGUSR2, lambda *_: one.heard.append("requeue"))
    yield one
    for number, handler in before.items():
        if handler is not None and number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, handler)


def payload(*, saves: bool, max_requeues: int = 2, chain: int = 0) -> Payload:
    task = Task(
        run_dir="/r",
        run_id="r",
        executor="slurm",
        launcher="srun",
        nodes=1,
        tasks_per_node=1,
        command=("true",),
        python=("python",),
        device="cpu",
        max_requeues=max_requeues,
        chain=chain,
        handles_stop_signal=saves,
        signal_delay_s=30,
    )
    return Payload(task.to_json())


@pytest.mark.parametrize("attempt", ["0", "1"])
def test_a_job_that_may_start_again_is_requeued(script: Script, monkeypatch, attempt: str) -> None:
    monkeypatch.setenv("SLURM_RESTART_COUNT", attempt)
    assert payload(saves=True)() == {"exit_code": 0}
    assert script.heard == ["SIGUSR2", 20.0, "requeue"]
    assert payload(saves=True).checkpoint() is not None
    assert not [row for row in threading.enumerate() if "requeue" in row.name]
    assert not script.no_requeue.is_set()


def test_in_its_last_attempt_a_job_has_all_of_its_time(script: Script, monkeypatch) -> None:
    monkeypatch.setenv("SLURM_RESTART_COUNT", "2")
    assert payload(saves=False)() == {"exit_code": 0}
    assert script.heard == []
    assert payload(saves=False).checkpoint() is None
    assert script.no_requeue.wait(60)


def test_a_script_that_saves_is_told_and_its_job_is_not_done(script: Script, monkeypatch) -> None:
    monkeypatch.setenv("SLURM_RESTART_COUNT", "2")
    with pytest.raises(JobError, match=r"all 2 requeues of --max-requeues.* got SIGUSR2"):
        payload(saves=True)()
    assert script.heard == ["SIGUSR2"]
    assert script.no_requeue.wait(60)


def test_a_job_of_a_chain_leaves_the_rest_to_the_next(script: Script, monkeypatch) -> None:
    chain = {"max_requeues": 0, "chain": 2}
    for attempt in ("0", "1"):
        monkeypatch.setenv("HPCKIT_RESTART", attempt)
        with pytest.raises(GoesOnError, match="the next job goes on"):
            payload(saves=True, **chain)()
        assert payload(saves=False, **chain)() == {"exit_code": 0}
        assert script.heard == ["SIGUSR2"]  # who does not save its state has all of its time
        script.heard.clear()
    monkeypatch.setenv("HPCKIT_RESTART", "2")
    with pytest.raises(JobError, match=r"used all 2 follow-up jobs of --chain\. The script got"):
        payload(saves=True, **chain)()
    assert not script.no_requeue.is_set()


@pytest.mark.parametrize(
    ("minutes", "seconds"), [(1, 15), (2, 30), (5, 75), (6, 90), (60, 90), (10_000, 90)]
)
def test_short_jobs_are_warned_later(minutes: int, seconds: int) -> None:
    assert signal_delay_s(minutes) == seconds
