"""How a rank's script ends, and what its log and its record say of it."""

import errno
import os
import signal
import socket
import sys
import time
from dataclasses import replace
from pathlib import Path
from threading import Thread

import pytest

from hpckit.errors import JobError
from hpckit.job_ends.causes import Evidence, Kind, find_cause
from hpckit.job_ends.hints import hints
from hpckit.job_ends.joblog import JobFacts
from hpckit.job_ends.tracebacks import (
    HANGS_AT_END,
    OUT_OF_MEMORY,
    OUT_OF_MEMORY_SAMPLED,
    error_line,
    last_error,
    signal_error,
)
from hpckit.payload import rank, recorder, supervisor
from hpckit.payload.handlers import handlers_of, handles
from hpckit.payload.last_memory import sampled_out_of_memory
from hpckit.payload.task import Task
from hpckit.rank_variables import (
    RankPlacement,
)
from hpckit.run_folders.ranks import RankRecord, read_ranks, write_rank
from hpckit.slurm.states import JobState
from hpckit.stats.samples.encoding import encoder
from hpckit.stats.samples.records import Header, Sample, file_name
from hpckit.stop_marks import SENT, TERMINATED, marks, marks_of


@pytest.fixture(autouse=True)
def summaries(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The folders in which ranks of a test would have let a process write summary.json."""
    folders: list[Path] = []
    monkeypatch.setattr(rank, "write_summary", lambda folder, _ledgers: folders.append(folder))
    return folders


ONE = 'Traceback (most recent call last):\n  File "a.py", line 1\n    x\nValueError: one\n'
CHAIN = ONE + (
    "\nThe above exception was the direct cause of the following exception:\n\n"
    'Traceback (most recent call last):\n  File "b.py", line 2\n    y\nRuntimeError: two\n'
)
UNREAD = '  File "/x/a b.py", line 1\n    def f(:\n          ^\nSyntaxError: invalid syntax\n'
THROWN = "terminate called after throwing an instance of 'std::X'\n  what():  no\nframe #0: f\n"
# R breaks long lines; what follows its error differs.
HALTED = "Warning: w\nError in f(x) : \n  no such data\nCalls: g -> f\nExecution halted\n"


def prefixed(text: str) -> str:
    return "".join(f"[rank0]: {line}\n" for line in text.splitlines())


@pytest.mark.parametrize(
    ("log", "error", "line"),
    [
        (ONE, ONE, "ValueError: one"),
        ("noise\n" + ONE, ONE, "ValueError: one"),
        (ONE + "W torch: process group not destroyed\n", None, "ValueError: one"),
        (CHAIN, CHAIN, "RuntimeError: two"),
        (ONE + "later\n" + ONE.replace("one", "new"), ONE.replace("one", "new"), "ValueError: new"),
        (prefixed(ONE), prefixed(ONE), "ValueError: one"),
        (prefixed(CHAIN), prefixed(CHAIN), "RuntimeError: two"),
        ("a\nsegfault\n\n", "segfault", "segfault"),
        (f"a warning\n{UNREAD}", UNREAD, "SyntaxError: invalid syntax (a b.py, line 1)"),
        ("SyntaxError: my own words\n", None, "SyntaxError: my own words"),
        (THROWN, None, "terminate called after throwing an instance of 'std::X' what():  no"),
        (HALTED, None, "Error in f(x) : no such data"),
        ("Execution halted\n", None, "Execution halted"),
        ("train.py: error: no such option\n", None, "train.py: error: no such option"),
        ("", None, None),
        ("\n\n", None, None),
    ],
)
def test_the_last_error_of_a_log_is_found(tmp_path: Path, log: str, error, line) -> None:
    path = tmp_path / "0.err"
    path.write_text(log)
    found = last_error(path)
    if line is None:
        assert found is None
        return
    assert found is not None
    assert error is None or found == error.rstrip()
    assert error_line(found) == line


def test_a_rank_that_a_signal_ended_says_which(tmp_path: Path) -> None:
    """Open MPI's frames end with a line that says nothing."""
    path = tmp_path / "0.err"
    crash = "[c2:01463] *** Process received signal ***\n[c2:01463] [ 0] /lib/libc.so.6(+0x3c050)\n"
    path.write_text(f"a warning\n{crash}[c2:01463] *** End of error message ***\n-----\n")
    assert last_error(path) == "a warning"
    # UCX 1.18 of Debian 13, and the form in which it names functions and lines.
    path.write_text(
        "a warning\n[c2:13222:0:13222] Caught signal 11 (Segmentation fault: tkill(2) at 0x33a6)\n"
        "==== backtrace (tid:  13222) ====\n"
        " 0  /lib/x86_64-linux-gnu/libucs.so.0(ucs_handle_error+0x2bc) [0x7f13f4d0764c]\n"
        " 1 0x0000000000012c20 .annobin_sigaction.c()  sigaction.c:0\n"
        "=================================\n"
    )
    assert last_error(path) == "a warning"
    path.write_text("12 0x1 of it\n7 /data/a is missing\n")
    assert last_error(path) == "7 /data/a is missing"
    assert signal_error(139, "a warning") == "killed by SIGSEGV; the last it wrote: a warning"
    path.write_text(crash)
    assert last_error(path) is None
    assert signal_error(137, None) == "killed by SIGKILL"
    assert signal_error(137, ONE) == ONE
    assert signal_error(255, "exit -1") == "exit -1"
    assert signal_error(3, "words") == "words"


def one_rank(folder: Path, *command: str, ranks: int = 1) -> rank.RankProcess:
    place = RankPlacement(
        rank=0, world_size=ranks, local_rank=0, local_world_size=ranks, node_rank=0
    )
    task = Task(run_dir=str(folder), run_id="r", executor="slurm", launcher="srun", nodes=1,
                tasks_per_node=1, command=command, python=("p",), device="cpu",
                sample_interval_s=0)  # fmt: skip
    return rank.RankProcess(task, place)


@pytest.mark.parametrize(
    ("command", "code", "error"),
    [
        (("/nowhere/python", "a.py"), 127, "hpckit: Program '/nowhere/python' was not found"),
        (("/etc/passwd", "a.py"), 127, "hpckit: '/etc/passwd' cannot be started"),
        (("sh", "-c", "exit 137"), 137, "it ended by itself, with the status of SIGKILL"),
        (("sh", "-c", "echo no >&2; exit 143"), 143, "it ended by itself, with the status of"),
        (("sh", "-c", "kill -9 $$"), 137, "killed by SIGKILL"),
    ],
)
def test_why_a_rank_did_not_start_or_was_not_killed_is_on_record(
    tmp_path: Path, command: tuple[str, ...], code: int, error: str
) -> None:
    process = one_rank(tmp_path, *command)
    assert process.run() == code
    (record,) = read_ranks(tmp_path)
    assert record.error is not None
    assert record.error.startswith(error)


def test_a_signal_that_comes_before_the_script_ends_it(tmp_path: Path) -> None:
    process = one_rank(tmp_path, "sleep", "600")
    process.stop(signal.SIGTERM)
    assert process.run() == 1
    (record,) = read_ranks(tmp_path)
    assert (record.exit_code, record.consequence) == (143, True)


SAVES = (
    "import pathlib, signal, sys, time\n"
    "def save(*_):\n"
    "    time.sleep(0.5)\n"
    "    pathlib.Path(sys.argv[1], 'saved').touch()\n"
    "    sys.exit()\n"
    "signal.signal(signal.SIGTERM, save)\n"
    "pathlib.Path(sys.argv[1], 'ready').touch()\n"
    "time.sleep(600)\n"
)


@pytest.mark.parametrize(
    ("around", "code"),
    [("exec {}", 0), ("{}; true", 143), ("trap 'touch cleaned' EXIT; {}; true", 143)],
)
def test_who_saves_on_sigterm_has_its_time_also_below_a_shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, around: str, code: int
) -> None:
    """The shell dies of the signal at once, and what it leaves would be killed."""
    monkeypatch.chdir(tmp_path)
    script = around.format(f'{sys.executable} -c "$0" {tmp_path}')
    process = one_rank(tmp_path, "bash", "-c", script, SAVES)
    told: list[bool] = []

    def look(_code: int | None) -> None:
        if not told and (tmp_path / "ready").exists():
            told.append(True)
            process.stop(signal.SIGTERM)

    assert process.run(look) == (code and 1)
    assert (tmp_path / "saved").exists()
    assert (tmp_path / "cleaned").exists() == ("EXIT" in around)
    (record,) = read_ranks(tmp_path)
    assert record.exit_code == code
    assert TERMINATED in marks(marks_of(tmp_path, 0), 0)


def test_who_saves_on_a_sigterm_of_slurms_own_is_seen_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By proctrack/linuxproc; it may ignore the second one, or have ended by then."""
    monkeypatch.setattr(rank, "slurm_tells_all", lambda _task: True)
    process = one_rank(tmp_path, sys.executable, "-c", SAVES, str(tmp_path))
    told: list[int] = []

    def look(code: int | None) -> None:
        child = process._child
        if child and not told and process._savers.before:
            told.append(child.pid)
            os.kill(child.pid, signal.SIGTERM)
        if code is not None:
            process.stop(signal.SIGTERM)

    process.run(look)
    assert TERMINATED in marks(marks_of(tmp_path, 0), 0)


def test_what_is_stopped_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It gets no signal, and a preempted job would keep its nodes until Slurm kills it."""
    process = one_rank(tmp_path, "bash", "-c", f'{sys.executable} -c "$0" {tmp_path}; true', SAVES)
    monkeypatch.setattr(rank, "_POLL_S", 0.01)
    told: list[int] = []

    def look(_code: int | None) -> None:
        if not told and (tmp_path / "ready").exists():
            assert process._child
            told.extend(handlers_of(process._child.pid, signal.SIGTERM))
            os.kill(told[0], signal.SIGSTOP)
            process.stop(signal.SIGTERM)
            process._stop_at = time.monotonic() + 60

    began = time.monotonic()
    assert process.run(look) == 1
    assert time.monotonic() - began < 50
    assert not (tmp_path / "saved").exists()


@pytest.mark.parametrize("around", ["{}; true", "trap true EXIT; {}; true"])
def test_a_sigterm_of_slurms_own_that_ends_a_shell_leaves_its_python_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, around: str
) -> None:
    """By proctrack/linuxproc both get it, and the shell has ended before hpckit looks."""
    monkeypatch.setattr(rank, "slurm_tells_all", lambda _task: True)
    monkeypatch.setattr("hpckit.payload.handlers._LOOK_S", 0)
    script = around.format(f'{sys.executable} -c "$0" {tmp_path}')
    process = one_rank(tmp_path, "bash", "-c", script, SAVES)
    told: list[bool] = []

    def look(_code: int | None) -> None:
        child, ready = process._child, (tmp_path / "ready").exists()
        if child and ready and not told and process._savers.before not in ([], [child.pid]):
            told.append(True)
            process._recorder.stopped(signal.SIGTERM)  # as `Ending` notes it, before it decides
            os.killpg(child.pid, signal.SIGTERM)

    process.run(look)
    assert (tmp_path / "saved").exists()


def test_who_ignores_a_second_sigterm_while_it_saves_has_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It shows no handler any more, and the shell with a trap of EXIT looks like the one to ask."""
    monkeypatch.setattr(rank, "slurm_tells_all", lambda _task: True)
    monkeypatch.setattr("hpckit.payload.handlers._LOOK_S", 0)
    body = "    signal.signal(signal.SIGTERM, signal.SIG_IGN)\n    time.sleep(1)\n"
    saves = SAVES.replace("    time.sleep(0.5)\n", body)
    script = f'trap true EXIT; {sys.executable} -c "$0" {tmp_path}; true'
    process = one_rank(tmp_path, "bash", "-c", script, saves)
    told: list[bool] = []

    def look(_code: int | None) -> None:
        child, ready = process._child, (tmp_path / "ready").exists()
        if child and ready and not told and process._savers.before not in ([], [child.pid]):
            told.append(True)
            (able,) = process._savers.before
            os.kill(able, signal.SIGTERM)
            until = time.monotonic() + 60
            while handles(able, signal.SIGTERM) and time.monotonic() < until:
                time.sleep(0.01)
            process.stop(signal.SIGTERM)

    process.run(look)
    assert (tmp_path / "saved").exists()


def test_a_script_that_removes_the_records_has_its_end_on_record(tmp_path: Path) -> None:
    process = one_rank(tmp_path, "sh", "-c", f"rm -r {tmp_path}/ranks; exit 3")
    assert process.run() == 3
    assert [row.exit_code for row in read_ranks(tmp_path)] == [3]


def test_a_script_that_slurm_ended_before_its_supervisor_heard_of_it_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = one_rank(tmp_path, "sh", "-c", "kill -TERM $$")
    pause = time.sleep

    def sleep(seconds: float) -> None:
        child = process._child
        if child and child.returncode is not None:
            process.stop(signal.SIGTERM)  # the signal comes while this process waits for it
        pause(seconds)

    monkeypatch.setattr(rank.time, "sleep", sleep)
    assert process.run() == 1
    (record,) = read_ranks(tmp_path)
    assert (record.exit_code, record.consequence) == (143, True)


@pytest.mark.parametrize(
    ("script", "code", "error"),
    [
        ("import os; os.kill(os.getpid(), 9)", 137, f"killed by SIGKILL\n{OUT_OF_MEMORY}"),
        ("raise SystemExit('a worker died')", 1, f"a worker died\n{OUT_OF_MEMORY}"),
        ("pass", 0, None),
    ],
)
def test_a_kill_for_want_of_memory_is_on_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, code: int, error: str | None
) -> None:
    kills = iter([2, 3])
    monkeypatch.setattr(recorder, "oom_kills", lambda: next(kills))
    process = one_rank(tmp_path, sys.executable, "-c", script)
    assert process.run() == code
    (record,) = read_ranks(tmp_path)
    assert (record.exit_code, record.error) == (code, error)


@pytest.mark.parametrize(
    ("use", "before_s", "counted", "told"),
    [
        (0.96, 2, False, True),
        (1.4, 2, False, True),
        (0.94, 2, False, False),  # somebody, or something else, has killed it
        (0.99, 300, False, False),  # it was so full long before
        (0.99, 2, True, False),  # the kernel counts kills, and there was none
    ],
)
def test_the_samples_tell_a_kill_for_want_of_memory_that_nothing_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, use: float, before_s: float,
    counted: bool, told: bool,
) -> None:  # fmt: skip
    now_us = time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000
    # Two intervals count: in these two minutes also a loaded machine starts and ends a rank.
    at = {"epoch_us": 1, "mono_us": now_us - 400_000_000, "interval_us": 60_000_000, "pid": 7}
    header = Header(host=socket.gethostname(), boot_id="b", memory_limit_bytes=4 << 30, **at)
    uses = [(380, 0.2), (before_s, use), (-0.0, 0.1)]  # the last one: after its end
    samples = [
        Sample(
            mono_us=now_us - round(ago * 1e6),
            memory_bytes=round(part * (4 << 30)),
            oom_kills=0 if counted else None,
        )
        for ago, part in uses
    ]
    (tmp_path / "samples").mkdir()
    path = tmp_path / "samples" / file_name(header.host, 0, 7)
    path.write_bytes(b"".join(map(encoder(0), (header, *samples))) + b'{"torn')
    monkeypatch.setattr(recorder, "oom_kills", lambda: None)
    one_rank(tmp_path, sys.executable, "-c", "import os; os.kill(os.getpid(), 9)").run()
    (row,) = read_ranks(tmp_path)
    words = (
        f"\n{OUT_OF_MEMORY_SAMPLED}: {4 * use:.1f} of 4.0 GiB were in use on this node just before"
    )
    assert row.error == "killed by SIGKILL" + (words if told else "")
    known = Evidence(ranks=(row,), planned=1, state=JobState.FAILED, facts=JobFacts())
    found = find_cause(known)
    assert found is not None
    assert (found.kind is Kind.OUT_OF_MEMORY) == told


def test_samples_of_a_node_are_found_by_slurms_name_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the sampler calls it; its own name may be `n1.cluster.example.org`."""
    monkeypatch.setenv("SLURMD_NODENAME", "gpu-7")
    now_us = time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000
    header = Header(
        host="gpu-7", boot_id="b", pid=7, epoch_us=1, mono_us=now_us, interval_us=10**7,
        memory_limit_bytes=4 << 30,
    )  # fmt: skip
    sample = Sample(mono_us=now_us, memory_bytes=(4 << 30) - 1)
    (tmp_path / "samples").mkdir()
    path = tmp_path / "samples" / file_name("gpu-7", 0, 7)
    path.write_bytes(encoder(0)(header) + encoder(0)(sample))
    assert "4.0 of 4.0 GiB" in (sampled_out_of_memory(tmp_path, 0) or "")


HANGS = """\
import threading, time
threading.Thread(target=time.sleep, args=(600,)).start()
raise ValueError("boom")
"""


@pytest.mark.parametrize(("quiet_s", "known"), [(0.0, True), (3600.0, False)])
def test_what_a_rank_raised_before_it_hung_is_on_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quiet_s: float, known: bool
) -> None:
    """Its traceback just before the signal may be the signal's doing: that is not believed."""
    monkeypatch.setattr(recorder, "_QUIET_S", quiet_s)
    process = one_rank(tmp_path, sys.executable, "-c", HANGS)

    def end() -> None:
        while "boom" not in (last_error(tmp_path / "logs" / "0.err") or ""):
            time.sleep(0.02)
        process.stop(signal.SIGTERM)

    Thread(target=end).start()
    process.run()
    (record,) = read_ranks(tmp_path)
    error = str(record.error)
    assert error.startswith("ended by SIGTERM")
    assert (error_line(error) == "ValueError: boom") is known
    assert record.consequence


HANGS_AT_THE_END = """
import time
class Group:
    def __del__(self, wait=time.sleep):
        wait(600)
group = Group()
"""


def test_a_script_that_is_done_and_does_not_end_is_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rank, "_ENDS_WITHIN_S", 0.1)
    script = tmp_path / "hang.py"
    script.write_text(HANGS_AT_THE_END)
    process = one_rank(tmp_path, sys.executable, str(script), ranks=2)

    def end() -> None:
        log = tmp_path / "logs" / "0.err"
        while not log.exists() or HANGS_AT_END not in log.read_text():
            time.sleep(0.02)
        process.stop(signal.SIGTERM)

    Thread(target=end).start()
    process.run()
    (record,) = read_ranks(tmp_path)
    assert str(record.error).splitlines() == ["ended by SIGTERM", HANGS_AT_END]
    (advice,) = hints(str(record.error), {"job_id": "7"})
    assert "destroy_process_group" in advice


def test_an_end_that_cannot_be_written_is_no_good_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk must not make a record, or an exit status, of 0."""

    def write(folder: Path, record: RankRecord, *earlier: list[RankRecord]) -> list[RankRecord]:
        if record.ended is not None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write_rank(folder, record, *earlier)

    monkeypatch.setattr(recorder, "write_rank", write)
    place = RankPlacement(rank=0, world_size=1, local_rank=0, local_world_size=1, node_rank=0)
    task = Task(run_dir=str(tmp_path), run_id="r", executor="slurm", launcher="srun", nodes=1,
                tasks_per_node=1, command=(sys.executable, "-c", ""), python=("p",),
                device="cpu", sample_interval_s=0)  # fmt: skip
    with pytest.raises(JobError, match=r"cannot write to .+: No space left on device"):
        rank.RankProcess(task, place).run()
    (record,) = read_ranks(tmp_path)
    assert (record.ended, record.exit_code) == (None, None)


@pytest.mark.parametrize("number", [0, 1])
def test_the_summary_is_written_once_also_without_samples(
    tmp_path: Path, summaries: list[Path], number: int
) -> None:
    one = one_rank(tmp_path, "true", ranks=2)
    assert (one.task.sample_interval_s, one.task.ledgers) == (0, ())
    one = rank.RankProcess(one.task, replace(one.place, rank=number))
    assert one.run() == 0
    assert summaries == ([tmp_path] if number == 0 else [])


def test_a_line_without_end_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "0.err"
    path.write_text("x" * 64_000)
    found = last_error(path)
    assert found is not None
    assert len(found) < 2_100
    assert len(error_line("y" * 64_000)) == 203
    assert error_line(f"{ONE}{'z' * 500}") == "ValueError: one"


def test_only_this_attempts_part_of_a_log_counts(tmp_path: Path) -> None:
    path = tmp_path / "0.err"
    path.write_text(ONE)
    assert last_error(path, start=len(ONE)) is None
    assert last_error(tmp_path / "gone") is None


def test_a_huge_log_is_read_from_its_end(tmp_path: Path) -> None:
    path = tmp_path / "0.err"
    path.write_text("x" * 10**6 + "\n" + ONE)
    assert last_error(path) == ONE.rstrip()


def test_a_launcher_that_goes_on_after_a_ranks_failure_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "_PATIENCE_S", 0.2)
    one_rank(tmp_path, "sh", "-c", "exit 3").run()
    task = one_rank(tmp_path, "true").task
    assert supervisor.LauncherProcess(task, ("sleep", "50")).run() == 3


@pytest.mark.parametrize(
    ("kind", "python", "begins_with"),
    [
        ("cgroup", ("python",), "SIG_DFL"),  # Lightning takes an ignored one for a handler
        ("linuxproc", ("python",), "SIG_IGN"),  # Slurm sends it to the script, too
        ("cgroup", ("apptainer", "exec", "a.sif", "python"), "SIG_IGN"),  # its starter may
    ],
)
def test_a_script_begins_with_the_warning_ignored_where_it_could_die_of_it(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    python: tuple[str, ...],
    begins_with: str,
) -> None:
    conf = tmp_path / "slurm.conf"
    conf.write_text(f"ProctrackType=proctrack/{kind}\n")
    monkeypatch.setenv("SLURM_CONF", str(conf))
    says = f"import signal; assert signal.getsignal(signal.SIGUSR2) == signal.{begins_with}"
    place = RankPlacement(rank=0, world_size=1, local_rank=0, local_world_size=1, node_rank=0)
    task = Task(run_dir=str(tmp_path), run_id="r", executor="slurm", launcher="srun", nodes=1,
                tasks_per_node=1, command=(sys.executable, "-c", says), python=python,
                device="cpu", sample_interval_s=0, max_requeues=1)  # fmt: skip
    assert rank.RankProcess(task, place).run() == 0


@pytest.mark.parametrize(("program", "answered"), [("true", True), ("/no/such/program", False)])
@pytest.mark.parametrize("when", ["ending", "ended"])
def test_a_script_that_ended_before_its_supervisor_got_the_warning_had_answered_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, answered: bool, when: str
) -> None:
    """Where Slurm signals the script, too, perhaps first; if there was one."""
    conf = tmp_path / "slurm.conf"
    conf.write_text("ProctrackType=proctrack/linuxproc\n")
    monkeypatch.setenv("SLURM_CONF", str(conf))
    place = RankPlacement(rank=0, world_size=1, local_rank=0, local_world_size=1, node_rank=0)
    task = Task(run_dir=str(tmp_path), run_id="r", executor="slurm", launcher="srun", nodes=1,
                tasks_per_node=1, command=(program,), python=("python",), device="cpu",
                sample_interval_s=0, max_requeues=1, handles_stop_signal=True,
                by_python=False)  # fmt: skip
    one = rank.RankProcess(task, place)
    if when == "ending":  # while the sampler is stopped
        monkeypatch.setattr(rank, "stop_sampler", lambda _sampler: one.warn())
    one.run()
    one.warn()
    assert (SENT in marks(marks_of(tmp_path, 0), 0)) is answered
