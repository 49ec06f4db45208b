"""A sampler's life: starts at once, ends with its job, never disturbs it; and `hpckit sample`."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import hpckit
from hpckit.stats.sampler import start as starting
from hpckit.stats.sampler.schedule import job_ids, parse, period_s
from hpckit.stats.sampler.start import start_sampler, stop_sampler, write_summary
from hpckit.stats.samples.lines import Damage
from hpckit.stats.samples.reading import read_records
from hpckit.stats.samples.records import End, Header, Sample, samples_files
from tests.patience import LONG_S
from tests.stats.conftest import Start, read_folder
from tests.stats.stub.script import SAMPLER, Stub, busy
from tests.unit.made import make_run

pytestmark = pytest.mark.long


def gone(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return True
    return state == "Z"


def until(true: object) -> bool:
    deadline = time.monotonic() + LONG_S
    while time.monotonic() < deadline:
        if true():  # type: ignore[operator]
            return True
        time.sleep(0.02)
    return False


def test_periods() -> None:
    assert [period_s(at, 10) for at in (0, 59, 61, 299, 300, 9999)] == [1, 1, 5, 5, 10, 10]
    assert [period_s(at, 2) for at in (0, 61, 400)] == [1, 2, 2]
    assert [period_s(at, 0.1) for at in (0, 61, 400)] == [0.1, 0.1, 0.1]
    assert [period_s(at, 60) for at in (0, 61, 400)] == [1, 5, 60]


def test_ids() -> None:
    environ = {"SLURM_JOB_ID": "5", "SLURM_ARRAY_TASK_ID": "2", "SLURM_RESTART_COUNT": "1"}
    assert job_ids({"run_id": "x"}, environ) == {
        "restart": "1",
        "job_id": "5",
        "array_task_id": "2",
        "run_id": "x",
    }
    assert job_ids({"job_id": "6"}, environ)["job_id"] == "6"
    assert job_ids({}, {}) == {"restart": "0"}


def test_ends_at_once_when_told(start: Start) -> None:
    running = start([busy(0)], interval=100)
    running.wait_for_samples()
    played = running.stop()  # waits for ten seconds at most
    assert played.end is not None
    assert played.end.reason == "signal"
    assert len(played.samples) >= 2
    assert played.samples[-1].own_cpu_us
    assert played.samples[-1].own_rss_bytes


def test_goes_on_after_it_was_suspended(start: Start) -> None:
    """A job is, by `scontrol suspend` or a preemption that suspends: for longer than any wait."""
    running = start([busy(0)], interval=0.1)
    for suspended in range(1, 4):
        running.wait_for_samples(2 * suspended)
        running.process.send_signal(signal.SIGSTOP)
        os.waitpid(running.process.pid, os.WUNTRACED)
        before = len(read_folder(running.folder, running.stub).samples)
        time.sleep(0.3)
        running.process.send_signal(signal.SIGCONT)
        running.wait_for_samples(before + 2)
    played = running.stop()
    assert [end.reason for end in played.of(End)] == ["signal"]


def test_two_with_one_number_write_two_files(start: Start, tmp_path: Path) -> None:
    """As in containers with process numbers of their own."""
    (tmp_path / "sitecustomize.py").write_text("import os\nos.getpid = lambda: 7\n")
    alike = {"PYTHONPATH": f"{tmp_path}:{Path.cwd()}"}
    both = [start([busy(0)], env=alike) for _ in range(2)]

    def kinds() -> list[list[type]]:
        found = [read_records(file.path, Damage()) for file in samples_files(both[0].folder)]
        return [[type(record) for record in records] for records in found]

    # Each by itself: the other's Python may still be starting, which a signal would end.
    both[0].wait_for(lambda: [row.count(Sample) > 2 for row in kinds()] == [True, True])
    for running in both:
        running.stop()
    assert [(row.count(Header), row.count(End)) for row in kinds()] == [(1, 1), (1, 1)]


# What its start would be twice as long with.
UNUSED = {"argparse", "ipaddress", "shutil", "socket", "subprocess", "tempfile", "traceback"}


@pytest.mark.parametrize("driver", [True, False])
def test_imports_little(stub: Stub, tmp_path: Path, *, driver: bool) -> None:
    nobody = ["--parent-pid", "1"]  # it ends after its first sample
    words = ["--dir", str(tmp_path / "samples"), "--interval", "1", *nobody]
    environ = stub.environment([busy(0)])
    if not driver:
        environ["LD_LIBRARY_PATH"] = ""
    told = subprocess.run(
        [SAMPLER[0], "-X", "importtime", *SAMPLER[1:], *words],
        env=environ, check=True, stderr=subprocess.PIPE, text=True,
    ).stderr  # fmt: skip
    imported = {line.rpartition("|")[2].strip() for line in told.splitlines()}
    assert imported.isdisjoint(UNUSED)
    assert ("ctypes.util" in imported) == driver  # pynvml's
    played = read_folder(tmp_path / "samples", stub)
    assert played.end is not None
    assert played.end.reason == "parent"
    assert len(played.header.gpus) == driver


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--interval", "1"], "KeyError('--dir')"),
        (["--dir", "x", "--interval", "often"], "'often'"),
        (["--dir", "x", "--interval"], "'--dir x --interval'"),
        (["--dir", "x", "--interval", "1", "--every", "2"], "has no option '--every'"),
    ],
)
def test_refuses_a_line_of_another_version(words: list[str], says: str) -> None:
    with pytest.raises(SystemExit, match=re.escape(says)):
        parse(words)


def test_slurms_warning_signals_do_not_end_it(start: Start) -> None:
    running = start([busy(0)])
    running.wait_for_samples()
    for signum in (signal.SIGUSR1, signal.SIGUSR2):
        running.process.send_signal(signum)
    running.wait_for_samples(4)
    assert running.stop().end is not None


PARENT = """
import sys, time
from pathlib import Path
from hpckit.stats.sampler.start import start_sampler
process = start_sampler(Path(sys.argv[1]), 0.2, {"run_id": "r1", "host": "node7", "restart": "3"})
print(process.pid, flush=True)
time.sleep(600)
"""
# A sampler whose Python cannot begin until somebody writes into a pipe.
HELD = """
import sys
if "hpckit.stats.sampler" in sys.orig_argv:
    open({!r}).readline()
"""


def test_its_caller_does_not_wait_for_it(stub: Stub, tmp_path: Path) -> None:
    folder, gate = tmp_path / "samples", tmp_path / "gate"
    os.mkfifo(gate)
    (tmp_path / "sitecustomize.py").write_text(HELD.format(str(gate)))
    home = Path(hpckit.__file__).parents[1]
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, folder],
        env=stub.environment([busy(0)]) | {"PYTHONPATH": f"{tmp_path}:{home}"},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout
    pid = int(parent.stdout.readline())  # it has returned
    assert not list(folder.glob("*"))
    gate.write_text("\n")  # which waits for a reader: the sampler stood there all the time
    assert until(lambda: len(read_folder(folder, stub).samples) > 2)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    assert until(lambda: gone(pid))


def test_is_gone_when_its_parent_is_killed(stub: Stub, tmp_path: Path) -> None:
    folder = tmp_path / "a folder 'of' runs" / "samples"
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, folder],
        env=stub.environment([busy(0)]),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout
    pid = parent.stdout.readline()
    assert until(lambda: len(read_folder(folder, stub).samples) > 2)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    assert until(lambda: gone(int(pid)))
    played = read_folder(folder, stub)
    assert played.end is not None
    assert played.end.reason == "parent"
    assert played.header.host == "node7"
    assert played.header.ids == {"run_id": "r1", "restart": "3"}
    assert [(file.host, file.restart) for file in samples_files(folder)] == [("node7", 3)]


def test_starting_never_fails_its_caller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert start_sampler(tmp_path, 0, {}) is None
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    assert start_sampler(tmp_path, 1, {}) is None
    stop_sampler(None)


def test_stopping_waits_for_the_last_sample(stub: Stub, tmp_path: Path, monkeypatch) -> None:
    for name, value in stub.environment([busy(0)]).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(starting, "_STOP_S", LONG_S)  # it is nice: on a busy machine it is last
    process = start_sampler(tmp_path, 10, {})
    assert process is not None
    assert until(lambda: read_folder(tmp_path, stub).samples)
    stop_sampler(process)
    assert process.returncode == 0
    assert read_folder(tmp_path, stub).end is not None
    stop_sampler(process)


@pytest.fixture
def gate(stub: Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """What holds each sampler's Python until a line is written into it."""
    path = tmp_path / "gate"
    os.mkfifo(path)
    (tmp_path / "sitecustomize.py").write_text(HELD.format(str(path)))
    home = Path(hpckit.__file__).parents[1]
    for name, value in stub.environment([busy(0)]).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{home}")
    number = os.open(path, os.O_RDWR)  # so nobody waits for the other end
    yield number
    os.close(number)


@pytest.mark.parametrize("threads", [0, 1])
def test_what_comes_before_its_python_begins_waits_for_the_first_sample(
    gate: int, stub: Stub, tmp_path: Path, threads: int
) -> None:
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    ends = threading.Event()
    for _ in range(threads):
        threading.Thread(target=ends.wait, daemon=True).start()
    process = start_sampler(tmp_path / "samples", 100, {})
    ends.set()
    assert process is not None
    for signum in starting._FORWARDED:  # also Slurm's warnings, which go to all of a step
        process.send_signal(signum)
    os.write(gate, b"\n")
    assert process.wait(LONG_S) == 0
    played = read_folder(tmp_path / "samples", stub)
    assert len(played.samples) == 2  # the first one, and the last
    assert played.end is not None
    assert played.end.reason == "signal"
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == mask


def test_stopping_waits_for_one_that_is_still_starting(
    gate: int, stub: Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(starting, "_STOP_S", 0.0)
    monkeypatch.setattr(starting, "_START_S", LONG_S)
    sleep, opened = time.sleep, []

    def waits(seconds: float) -> None:
        if not opened:
            opened.append(os.write(gate, b"\n"))
        sleep(seconds)

    monkeypatch.setattr(starting.time, "sleep", waits)
    process = start_sampler(tmp_path / "samples", 100, {})
    assert process is not None
    stop_sampler(process)
    assert opened  # it was held until somebody waited for it
    assert process.returncode == 0
    assert len(read_folder(tmp_path / "samples", stub).samples) == 2


def test_one_that_never_begins_is_killed(
    gate: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert gate
    monkeypatch.setattr(starting, "_STOP_S", 0.0)
    monkeypatch.setattr(starting, "_START_S", 0.0)
    process = start_sampler(tmp_path / "samples", 100, {})
    assert process is not None
    stop_sampler(process)
    assert process.wait(LONG_S) == -signal.SIGKILL
    assert not (tmp_path / "samples").exists()


def test_a_sampler_that_hangs_is_killed(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(starting, "_START_S", 0.0)
    deaf = "import signal; signal.signal(15, signal.SIG_IGN); print(flush=True); signal.pause()"
    process = subprocess.Popen([sys.executable, "-c", deaf], stdout=subprocess.PIPE)
    assert process.stdout
    process.stdout.readline()
    stop_sampler(process)
    assert process.wait(LONG_S) == -signal.SIGKILL
    process.stdout.close()
    assert "did not end" in caplog.text


def test_a_bug_of_ours_is_told_in_the_file(start: Start, tmp_path: Path) -> None:
    crash = tmp_path / "crash"
    crash.mkdir()
    code = (
        "from hpckit.stats.sampler import node\n"
        "def broken(self): raise ZeroDivisionError('our bug')\n"
        "node.NodeReader.pids = broken\n"
    )
    (crash / "sitecustomize.py").write_text(code)
    env = {"PYTHONPATH": f"{crash}:{Path.cwd()}"}
    running = start([busy(0)], env=env)
    assert running.process.wait(LONG_S) == 1
    played = read_folder(running.folder, running.stub)
    assert played.end is not None
    assert played.end.reason == "error"
    assert "our bug" in next(note.text for note in played.notes if note.code == "crash")


SAMPLE = (
    "from hpckit.cli.sample import sample; import hpckit.cli as cli; cli.COMMANDS['sample'] = ''; "
    f"from hpckit.stats.sampler import start; start._STOP_S = {LONG_S}; "
    f"from hpckit.api import sample as api; api._ANSWER_S = {LONG_S}; "
)
SAMPLE += "cli._TAKE_REST = ('submit', 'sample'); cli.main()"


def test_sample_of_a_command_that_ends_before_the_sampler_begins(stub: Stub) -> None:
    assert sample(stub, "--dir", "here", "--", "true").wait(LONG_S) == 0
    played = read_folder(stub.folder / "here", stub)
    assert len(played.samples) >= 2
    assert played.end is not None


# A command that goes on until there is a header and a sample, however late the sampler begins.
SAMPLED = "while [ $(cat {}/*.jsonl 2>/dev/null | wc -l) -lt 2 ]; do sleep 0.05; done; "


def sample(stub: Stub, *words: str, env: dict[str, str] | None = None, **options: object):
    environment = {**stub.environment([busy(0)]), **(env or {})}
    argv = [sys.executable, "-c", SAMPLE, "sample", *words]
    return subprocess.Popen(argv, env=environment, cwd=stub.folder, **options)


def test_sample_is_as_if_it_were_not_there(stub: Stub) -> None:
    waits = SAMPLED.format("hpckit-samples/99")
    shell = ["sh", "-c", f"read x; echo got $x; echo err >&2; {waits}exit 7"]
    process = sample(
        stub,
        "--interval",
        "0.1",
        "--",
        *shell,
        env={"SLURM_JOB_ID": "99"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    out, err = process.communicate(b"words\n", timeout=LONG_S)
    assert (process.returncode, out, err) == (7, b"got words\n", b"err\n")
    played = read_folder(stub.folder / "hpckit-samples" / "99", stub)
    assert played.header.ids["job_id"] == "99"
    assert len(played.samples) >= 2
    assert played.end is not None


def test_sample_in_a_run_of_hpckit(stub: Stub, tmp_path: Path) -> None:
    env = {"HPCKIT_RUN_DIR": str(tmp_path / "run")}
    shell = ["sh", "-c", SAMPLED.format("run/samples")]
    assert sample(stub, "--", *shell, env=env).wait(LONG_S) == 0
    assert len(samples_files(tmp_path / "run" / "samples")) == 1


@pytest.mark.parametrize("words", [["--interval", "0"], []])
def test_sample_only_once_a_node_and_not_when_off(stub: Stub, words: list[str]) -> None:
    env = {} if words else {"SLURM_LOCALID": "1"}
    assert sample(stub, *words, "--dir", "here", "--", "true", env=env).wait(LONG_S) == 0
    assert not (stub.folder / "here").exists()


def test_sample_of_a_program_that_is_not_there(stub: Stub) -> None:
    process = sample(stub, "--", "no-such-program", stderr=subprocess.PIPE, text=True)
    _, err = process.communicate(timeout=LONG_S)
    assert process.returncode == 127
    assert "'no-such-program' was not found" in err


def test_sample_without_a_command(stub: Stub) -> None:
    process = sample(stub, stderr=subprocess.PIPE, text=True)
    _, err = process.communicate(timeout=LONG_S)
    assert process.returncode == 2
    assert "after `--`" in err


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2])
def test_sample_forwards_signals(stub: Stub, signum: signal.Signals) -> None:
    name = signum.name.removeprefix("SIG")
    script = f"trap 'echo {name}; exit 3' {name}; echo ready; while :; do sleep 0.05; done"
    process = sample(stub, "--", "sh", "-c", script, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signum)
    assert process.stdout.read() == f"{name}\n"
    process.stdout.close()
    assert process.wait(LONG_S) == 3


def test_sample_of_a_killed_command(stub: Stub) -> None:
    assert sample(stub, "--", "sh", "-c", "kill -9 $$").wait(LONG_S) == 137


def test_sample_in_a_thread(stub: Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in stub.environment([busy(0)]).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(starting, "_STOP_S", LONG_S)
    before = [signal.getsignal(signum) for signum in starting._FORWARDED]
    command = ["sh", "-c", SAMPLED.format(tmp_path / "samples") + "exit 7"]
    with ThreadPoolExecutor() as pool:
        status = pool.submit(hpckit.sample, command, interval=0.1, folder=tmp_path / "samples")
        assert status.result(LONG_S) == 7
    assert [signal.getsignal(signum) for signum in starting._FORWARDED] == before
    played = read_folder(tmp_path / "samples", stub)
    assert len(played.samples) >= 2
    assert played.end is not None


# Ends with a thread in the middle of a command: by itself, or by a signal it does not handle.
THREAD = """
import hpckit, sys, threading
folder, pipe = sys.argv[1:]
words = {"args": [["cat", f"/dev/fd/{pipe}"]], "kwargs": {"folder": folder}}
threading.Thread(target=hpckit.sample, daemon=True, **words).start()
sys.stdin.readline()
"""


@pytest.mark.parametrize("end", ["exit", signal.SIGTERM, signal.SIGKILL])
def test_a_sampler_of_a_thread_ends_with_its_process(
    stub: Stub, tmp_path: Path, end: str | signal.Signals
) -> None:
    folder = tmp_path / "samples"
    reads, writes = os.pipe()
    parent = subprocess.Popen(
        [sys.executable, "-c", THREAD, folder, str(reads)],
        env=stub.environment([busy(0)]),
        stdin=subprocess.PIPE,
        pass_fds=[reads],
        text=True,
    )
    os.close(reads)
    with os.fdopen(writes):  # the command outlives all of them, until this is closed
        assert until(lambda: len(read_folder(folder, stub).samples) > 1)
        [file] = samples_files(folder)
        assert not gone(file.pid)
        if isinstance(end, signal.Signals):
            parent.send_signal(end)
        parent.communicate("\n", timeout=LONG_S)
        assert until(lambda: gone(file.pid))


def test_it_is_nice(start: Start) -> None:
    running = start([busy(0)])
    running.wait_for_samples()
    assert os.getpriority(os.PRIO_PROCESS, running.process.pid) == 10


def test_what_ends_the_job_does_not_end_the_writing_of_its_summary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(tmp_path)
    signalled = 'kill -TERM $$; kill -USR2 $$; exec "$@"'  # as Slurm does it, to all of a step
    argv = ("bash", "-c", signalled, "python", sys.executable)
    monkeypatch.setattr(starting, "own_python", lambda: argv)
    monkeypatch.setattr(starting, "_SUMMARY_S", LONG_S)
    write_summary(run.dir)
    assert (run.dir / "summary.json").exists()
