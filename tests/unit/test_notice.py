"""A script gets Slurm's warning once, and only when it handles the signal."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hpckit.payload.handlers import handlers_of, handles, parent_of
from hpckit.payload.notice import Notice, kill_wait_s, tells_all
from hpckit.stop_marks import DEAF, SENT, WARNED, marks

# Handles SIGUSR2 when it is told to, on stdin; says each one; then ends. A signal may come while
# "ready" is still being printed: `print` in the handler would be an error then (reentrant call).
CATCHES = """\
import os, signal, sys
def heard(*_):
    os.write(1, b"heard\\n")
input()
signal.signal(signal.SIGUSR2, heard)
print("ready", flush=True)
input()
"""
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start programs as scripts are, with SIGUSR2 ignored; they end with the test."""
    begun: list[subprocess.Popen[str]] = []

    def one(*argv: str) -> "subprocess.Popen[str]":
        begun.append(
            subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                preexec_fn=lambda: signal.signal(signal.SIGUSR2, signal.SIG_IGN),
            )
        )
        return begun[-1]

    yield one
    for child in begun:
        child.kill()
        child.communicate()


def say(child: "subprocess.Popen[str]", line: str = "") -> None:
    assert child.stdin
    child.stdin.write(line + "\n")
    child.stdin.flush()


def line_of(child: "subprocess.Popen[str]") -> str:
    assert child.stdout
    return child.stdout.readline().strip()


def delivered(notice: Notice, pid: int, path: Path) -> None:
    """Look as a supervisor does, until it has been sent."""
    until = time.monotonic() + 60
    while SENT not in marks(path, 0):
        assert time.monotonic() < until
        notice.deliver(pid)
        time.sleep(0.01)


def test_a_warning_waits_for_the_handler_and_comes_once(start: Start, tmp_path: Path) -> None:
    child, path = start(sys.executable, "-c", CATCHES), tmp_path / "signals" / "3"
    notice = Notice(path, 0, by_slurm=False)
    notice.deliver(child.pid)
    assert marks(path, 0) == set()  # nothing was told
    notice.tell(child.pid)
    notice.deliver(child.pid)
    assert (marks(path, 0), handlers_of(child.pid)) == ({WARNED, DEAF}, [])
    say(child)
    assert line_of(child) == "ready"
    assert handles(child.pid, signal.SIGUSR2)
    delivered(notice, child.pid, path)
    assert line_of(child) == "heard"
    notice.tell(child.pid)  # Slurm may say it twice
    notice.deliver(child.pid)
    say(child)
    assert line_of(child) == ""  # its end, and no second one
    assert (marks(path, 0), marks(path, 1)) == ({WARNED, DEAF, SENT}, set())
    assert handlers_of(child.pid) == []


def test_what_a_shell_script_started_gets_it(start: Start, tmp_path: Path) -> None:
    """The nearest to the script that handles the signal, and nothing that this one has started."""
    inner = f"import signal, subprocess, sys\n{CATCHES}".replace(
        "input()\nsignal", "subprocess.Popen([sys.executable, '-c', sys.argv[1]]).wait\nsignal", 1
    )
    child = start("bash", "-c", '"$@"; true', "bash", sys.executable, "-c", inner, "input()")
    assert line_of(child) == "ready"
    found = handlers_of(child.pid)
    assert [parent_of(pid) for pid in found] == [child.pid]
    assert not handles(child.pid, signal.SIGUSR2)
    notice = Notice(tmp_path / "0", 0, by_slurm=False)
    notice.tell(child.pid)
    delivered(notice, child.pid, tmp_path / "0")
    assert line_of(child) == "heard"


def test_a_trap_of_a_shells_end_hides_no_handler_below(start: Start, tmp_path: Path) -> None:
    """For its EXIT trap bash shows handlers of all that ends it, and would die of the signal."""
    inner = CATCHES.replace("SIGUSR2", "SIGTERM")
    child = start("bash", "-c", 'trap true EXIT; "$@"; true', "bash", sys.executable, "-c", inner)
    say(child)
    assert line_of(child) == "ready"
    assert handles(child.pid, signal.SIGTERM)
    found = handlers_of(child.pid, signal.SIGTERM)
    assert [parent_of(pid) for pid in found] == [child.pid]
    notice = Notice(tmp_path / "0", 0, by_slurm=False)
    notice.tell(child.pid, by_term=True)
    delivered(notice, child.pid, tmp_path / "0")
    assert line_of(child) == "heard"
    alone = start("bash", "-c", "trap true EXIT; echo ready; read x; true")
    assert line_of(alone) == "ready"
    assert handlers_of(alone.pid, signal.SIGTERM) == [alone.pid]  # it may have a trap of this one


WORKER = """\
import os, signal, sys
if not os.fork():
    for name in sys.argv[1:]:
        signal.signal(getattr(signal, name), lambda *_: os._exit(0))
    os.write(1, b"ready\\n")
input()
"""
OF_TORCH = ("SIGTERM", "SIGBUS", "SIGSEGV", "SIGFPE")


@pytest.mark.parametrize(("handled", "found"), [(OF_TORCH, 0), (("SIGTERM",), 1)])
def test_a_worker_of_a_data_loader_saves_nothing(
    start: Start, handled: tuple[str, ...], found: int
) -> None:
    """It handles SIGTERM, only to end quietly, and its Python fails when it does."""
    child = start(sys.executable, "-c", WORKER, *handled)
    assert line_of(child) == "ready"
    assert len(handlers_of(child.pid, signal.SIGTERM)) == found


def test_where_slurm_signals_all_processes_hpckit_does_not(start: Start, tmp_path: Path) -> None:
    child, path = start(sys.executable, "-c", CATCHES), tmp_path / "0"
    say(child)
    assert line_of(child) == "ready"
    for known in (True, False):  # whether its handler was seen before
        path.unlink(missing_ok=True)
        notice = Notice(path, 0, by_slurm=True)
        if known:
            notice.deliver(child.pid)
        notice.tell(child.pid)
        notice.deliver(child.pid)
        assert marks(path, 0) == {WARNED, SENT}
    say(child)
    assert line_of(child) == ""


def test_one_that_had_no_handler_yet_has_missed_slurms(start: Start, tmp_path: Path) -> None:
    child, path = start(sys.executable, "-c", CATCHES), tmp_path / "0"
    notice = Notice(path, 0, by_slurm=True)
    notice.tell(child.pid)
    assert marks(path, 0) == {WARNED}
    say(child)
    assert line_of(child) == "ready"
    delivered(notice, child.pid, path)
    assert line_of(child) == "heard"


@pytest.mark.parametrize(
    ("declared", "looked", "deaf", "sent"),
    [
        (False, False, False, True),  # it answered the signal before the first look at it
        (False, True, False, False),  # it was seen without a handler
        (True, True, False, True),
        (False, False, True, False),
        (True, False, True, True),  # it ignores the signal while it saves its state
    ],
)
def test_a_script_that_ended_before_a_look_at_it(
    start: Start, tmp_path: Path, declared: bool, looked: bool, deaf: bool, sent: bool
) -> None:
    """Where Slurm signals the script itself."""
    child = start(sys.executable, "-c", "input()")
    # Its supervisor may get the signal after the script has ended, or after it knows that; that a
    # script is deaf is seen after the signal.
    for when in ("before",) if deaf else ("before", "between", "after"):
        path = tmp_path / when
        notice = Notice(path, 0, by_slurm=True, declared=declared)
        if looked:
            notice.deliver(child.pid)
        if when == "before":
            notice.tell(child.pid)
        if deaf:
            notice.deliver(child.pid)
        if when == "between":
            notice.tell(None, ended=True)
        notice.ended()
        if when == "after":
            notice.tell(None, ended=True)
        assert (SENT in marks(path, 0)) is sent, when


def test_one_that_works_on_without_a_handler_was_complete_at_its_end(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though its workload says that it handles the signal."""
    monkeypatch.setattr("hpckit.payload.notice._AT_ONCE_S", 0.0)
    notice = Notice(tmp_path / "0", 0, by_slurm=True, declared=True)
    child = start(sys.executable, "-c", "input()")
    notice.tell(child.pid)
    notice.deliver(child.pid)
    notice.ended()
    assert marks(tmp_path / "0", 0) == {WARNED, DEAF}


@pytest.mark.parametrize("by_slurm", [False, True])
def test_one_that_could_not_get_the_signal_was_not_sent_it(tmp_path: Path, by_slurm: bool) -> None:
    """Slurm sent it before the script began, or only to supervisors."""
    notice = Notice(tmp_path / "0", 0, by_slurm=by_slurm, declared=True)
    notice.tell(None if by_slurm else os.getpid())
    notice.ended()
    assert marks(tmp_path / "0", 0) == {WARNED}


def test_what_is_gone_is_nobody() -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    assert (handlers_of(gone.pid), parent_of(gone.pid)) == ([], None)
    assert parent_of(os.getpid()) == os.getppid()


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("ClusterName=x\nProctrackType=proctrack/linuxproc\n", True),
        (" proctracktype = PROCTRACK/linuxproc # all\n", True),
        ("#ProctrackType=proctrack/linuxproc\nProctrackType=proctrack/cgroup\n", False),
        ("", False),
    ],
)
def test_a_configuration_says_whom_slurm_signals(tmp_path: Path, text: str, answer: bool) -> None:
    conf = tmp_path / "slurm.conf"
    conf.write_text(text)
    assert tells_all(str(conf)) is answer
    assert not tells_all(str(tmp_path / "none"))


# Handles SIGTERM alone, and says it.
SAVES = CATCHES.replace("SIGUSR2", "SIGTERM")


@pytest.mark.parametrize("all_signalled", [False, True])
def test_a_script_that_handles_sigterm_alone_gets_that(
    start: Start, tmp_path: Path, all_signalled: bool
) -> None:
    """Unless Slurm has sent it to the script already."""
    path = tmp_path / "0"
    script = start(sys.executable, "-c", SAVES)
    notice = Notice(path, 0, by_slurm=all_signalled)
    say(script)
    assert line_of(script) == "ready"
    notice.deliver(script.pid)
    notice.tell(script.pid, by_term=True)
    delivered(notice, script.pid, path)
    assert DEAF not in marks(path, 0)
    if not all_signalled:
        assert line_of(script) == "heard"
    say(script)
    assert line_of(script) == ""  # it is sent once


# Ignores SIGTERM while it saves, as many do.
IGNORES = f"""{SAVES}
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("saves", flush=True)
input()
"""


def test_who_ignores_sigterm_while_it_saves_has_got_slurms(start: Start, tmp_path: Path) -> None:
    """It was looked at before, and once more while it saved; then it ended with 0."""
    path = tmp_path / "0"
    script = start(sys.executable, "-c", IGNORES)
    notice = Notice(path, 0, by_slurm=True)
    say(script)
    assert line_of(script) == "ready"
    notice.deliver(script.pid)
    say(script)
    assert line_of(script) == "saves"
    notice.deliver(script.pid)
    notice.ended()
    notice.tell(None, ended=True, by_term=True)
    assert marks(path, 0) == {WARNED, SENT}


def test_sigterm_goes_to_no_script_that_would_die_of_it(start: Start, tmp_path: Path) -> None:
    script = start("sleep", "600")
    notice = Notice(tmp_path / "0", 0, by_slurm=False)
    notice.tell(script.pid, by_term=True)
    notice.deliver(script.pid)
    assert marks(tmp_path / "0", 0) == {WARNED, DEAF}
    assert script.poll() is None


def test_killwait_is_read_from_slurm_conf(tmp_path: Path) -> None:
    conf = tmp_path / "slurm.conf"
    conf.write_text("KillWait=5\n#KillWait=6\n KILLWAIT = 40 # seconds\nKillWaits=9\n")
    assert kill_wait_s(str(conf)) == 40
    assert kill_wait_s(str(tmp_path / "none")) == 30
