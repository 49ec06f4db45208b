import errno
import os
import re
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from threading import Thread

import pytest

from hpckit import __version__
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
from hpckit.payload import children, rank, recorder, rendezvous, supervisor
from hpckit.payload.environment import IMPORTABLE, choose_device, rank_environment
from hpckit.payload.last_memory import sampled_out_of_memory
from hpckit.payload.spawn import task_environments
from hpckit.payload.task import Task, task_from_json
from hpckit.rank_variables import (
    HYDRA,
    LOCAL,
    OPEN_MPI,
    SRUN,
    TORCHRUN,
    RankPlacement,
    RankVariables,
    mpirun_variables,
)
from hpckit.run_folders.ranks import RankRecord, read_ranks, write_rank
from hpckit.slurm.states import JobState
from hpckit.stats.samples.encoding import encoder
from hpckit.stats.samples.records import Header, Sample, file_name
from hpckit.stop_marks import SENT, marks, marks_of

THIRD_OF_FOUR = RankPlacement(rank=3, world_size=4, local_rank=1, local_world_size=2, node_rank=1)


# --- whose child ---


@pytest.fixture(autouse=True)
def summaries(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The folders in which ranks of a test would have let a process write summary.json."""
    folders: list[Path] = []
    monkeypatch.setattr(rank, "write_summary", lambda folder, _ledgers: folders.append(folder))
    return folders


@pytest.mark.parametrize(
    ("parent", "own", "abandoned"),
    [
        (4000, True, False),
        (4001, False, True),  # a subreaper's
        (1, True, True),
        (1, False, False),  # a container's starter, under which it began
    ],
)
def test_who_began_under_a_slurmstepd_that_is_gone_knows(
    monkeypatch: pytest.MonkeyPatch, parent: int, own: bool, abandoned: bool
) -> None:
    monkeypatch.setattr(os, "getppid", lambda: parent)
    # Set, because this process may itself have begun under process 1.
    monkeypatch.setattr(children, "_BEGAN_UNDER", 1 if parent == 1 else 4000)
    monkeypatch.setenv("SLURM_TASK_PID", str(os.getpid() + (not own)))
    assert children.is_abandoned() is abandoned


def test_who_wants_to_die_with_a_parent_dies_after_one_that_is_dead() -> None:
    text = (
        "import os, signal, time\n"
        "from hpckit.payload import children\n"
        "children._BEGAN_UNDER += 1\n"
        "children.die_with_parent(signal.SIGTERM)\n"
        "time.sleep(600)\n"
    )
    done = subprocess.run([sys.executable, "-c", text], check=False, timeout=300)
    assert done.returncode == -signal.SIGTERM


# --- place ---


@pytest.mark.parametrize(
    ("words", "environ"),
    [
        (SRUN, {"SLURM_PROCID": "3", "SLURM_NTASKS": "4", "SLURM_LOCALID": "1"}),
        (
            LOCAL,
            {
                "SUBMITIT_LOCAL_GLOBALID": "3",
                "SUBMITIT_LOCAL_NTASKS": "4",
                "SUBMITIT_LOCAL_LOCALID": "1",
            },
        ),
        (
            TORCHRUN,
            {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"},
        ),
        (
            OPEN_MPI,
            {
                "OMPI_COMM_WORLD_RANK": "3",
                "OMPI_COMM_WORLD_SIZE": "4",
                "OMPI_COMM_WORLD_LOCAL_RANK": "1",
                "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
            },
        ),
        (
            HYDRA,
            {"PMI_RANK": "3", "PMI_SIZE": "4", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"},
        ),
    ],
)
def test_each_launcher_says_the_place_in_its_own_words(words: RankVariables, environ: dict) -> None:
    assert words.placement(environ, 2) == THIRD_OF_FOUR
    for name in list(environ)[:3]:
        less = {key: value for key, value in environ.items() if key != name}
        with pytest.raises(
            JobError, match=re.escape(f"launcher {words.launcher} did not set {name}")
        ):
            words.placement(less, 2)


def test_a_place_is_told_in_torchruns_words() -> None:
    assert THIRD_OF_FOUR.environment() == {
        "RANK": "3",
        "WORLD_SIZE": "4",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "2",
        "NODE_RANK": "1",
    }


def test_the_mpi_is_known_by_what_it_sets() -> None:
    assert mpirun_variables({"OMPI_COMM_WORLD_RANK": "0", "PMI_RANK": "0"}) is OPEN_MPI
    assert mpirun_variables({"PMI_RANK": "0"}) is HYDRA
    with pytest.raises(JobError, match="neither OMPI_COMM_WORLD_RANK nor PMI_RANK"):
        mpirun_variables({})


# --- rendezvous ---


def test_ports_lie_outside_the_range_the_kernel_hands_out() -> None:
    low, high = rendezvous.ephemeral_range()
    for job in range(40):
        for port in rendezvous.candidate_ports(f"{job}.0"):
            assert 1024 <= port <= 65535
            assert not low <= port <= high


def test_a_kernel_that_hands_out_every_port_leaves_the_low_ones(monkeypatch) -> None:
    monkeypatch.setattr(rendezvous, "ephemeral_range", lambda: (1024, 65535))
    assert all(1024 <= port < 10_000 for port in rendezvous.candidate_ports("1.0"))


def test_the_same_job_tries_the_same_ports_and_others_others() -> None:
    first = list(rendezvous.candidate_ports("1.0"))
    assert first == list(rendezvous.candidate_ports("1.0"))
    starts = {next(rendezvous.candidate_ports(f"{job}.{n}")) for job in range(50) for n in (0, 1)}
    assert len(starts) > 95  # of 100, over some 27,000 ports


def test_an_occupied_port_is_skipped(monkeypatch) -> None:
    with socket.socket() as other, socket.socket() as free:
        for found in (other, free):
            found.bind(("", 0))
        first, second = (found.getsockname()[1] for found in (other, free))
        monkeypatch.setattr(rendezvous, "candidate_ports", lambda _salt: [first, second])
        other.listen()
        free.close()
        assert rendezvous.free_port("7.0") == second
    assert rendezvous.free_port("7.0") == first


def test_no_free_port_is_said(monkeypatch) -> None:
    monkeypatch.setattr(rendezvous, "_is_free", lambda port: False)
    with pytest.raises(SystemExit, match="no free port: all 50 tried are in use"):
        rendezvous.free_port("7.0")


@pytest.mark.parametrize(
    ("environ", "salt"),
    [
        ({"SLURM_JOB_ID": "12"}, "12.0"),
        ({"SLURM_JOB_ID": "12", "SLURM_RESTART_COUNT": "2"}, "12.2"),
        ({"SUBMITIT_LOCAL_JOB_ID": "local-a_1", "HPCKIT_RESTART": "1"}, "local-a_1.1"),
    ],
)
def test_the_salt_differs_per_job_task_and_restart(environ: dict, salt: str) -> None:
    assert rendezvous.job_salt(environ) == salt


@pytest.mark.parametrize(
    ("environ", "host"),
    [({"SLURM_JOB_NODELIST": "n[07-09,12]"}, "n07"), ({"SLURM_JOB_NODELIST": "a,b"}, "a"),
     ({}, "127.0.0.1")],
)  # fmt: skip
def test_rank_zeros_host_is_the_first_of_the_job(environ: dict, host: str) -> None:
    assert rendezvous.master_host(environ) == host


def test_an_address_is_in_use_says_the_system() -> None:
    with socket.socket() as one, socket.socket() as two:
        one.bind(("", 0))
        one.listen()
        with pytest.raises(OSError) as error:
            two.bind(("", one.getsockname()[1]))
    assert error.value.errno == errno.EADDRINUSE


# --- device, spawn, task ---


def test_the_device_is_the_plans_or_what_the_node_has(tmp_path: Path) -> None:
    (tmp_path / "driver").touch()
    here, gone = str(tmp_path / "driver"), str(tmp_path / "gone")
    assert choose_device("cpu", (here,)) == ("cpu", "")
    assert choose_device(None, (gone, here)) == ("cuda", "")
    device, warning = choose_device(None, (gone,))
    assert device == "cpu"
    assert "no GPU driver" in warning


@pytest.mark.parametrize(
    ("gpus", "nodes", "tasks", "shares"),
    [
        ("0,1,2,3", 2, 2, ["0,1", "0,1", "2,3", "2,3"]),
        ("3,1", 2, 1, ["3", "1"]),
        ("GPU-a,GPU-b", 1, 2, ["GPU-a,GPU-b", "GPU-a,GPU-b"]),
        ("", 2, 1, [None, None]),
    ],
)
def test_each_simulated_node_gets_its_share_of_gpus(gpus, nodes, tasks, shares) -> None:
    made = task_environments(nodes, tasks, {"HPCKIT_NODE_GPUS": gpus, "KEPT": "x"})
    assert [env.get("CUDA_VISIBLE_DEVICES") for env in made] == shares
    assert {env["KEPT"] for env in made} == {"x"}


def test_the_users_mask_stays_where_no_gpus_are_shared_out() -> None:
    [made] = task_environments(1, 1, {"CUDA_VISIBLE_DEVICES": ""})
    assert made["CUDA_VISIBLE_DEVICES"] == ""


def test_each_process_is_told_its_place() -> None:
    made = task_environments(2, 2, {})
    places = [LOCAL.placement(env, 2) for env in made]
    assert [(row.rank, row.local_rank, row.node_rank) for row in places] == [
        (0, 0, 0),
        (1, 1, 0),
        (2, 0, 1),
        (3, 1, 1),
    ]


def test_a_task_survives_its_json() -> None:
    task = Task(run_dir="/r", run_id="r", executor="local", launcher="srun", nodes=1,
                tasks_per_node=2, command=("a b", "é\n"), python=("p",), device=None)  # fmt: skip
    assert task_from_json(task.to_json()) == task


# --- hpckit for a Python without it ---


def test_a_python_without_hpckit_imports_it_and_nothing_else_of_its_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As in a job that was submitted from inside another.
    once = IMPORTABLE
    monkeypatch.setenv("PYTHONPATH", f"/mine:{once}")
    task = Task(run_dir="/r", run_id="r", executor="slurm", launcher="srun", nodes=1,
                tasks_per_node=1, command=("x",), python=("p",), device=None)  # fmt: skip
    path = rank_environment(task, THIRD_OF_FOUR, "cpu")["PYTHONPATH"]
    assert path.split(os.pathsep)[1:] == ["/mine"]
    bare = [os.path.realpath(sys.executable), "-S", "-c"]
    script = "import hpckit, hpckit.text; print(hpckit.__version__)\nimport typer"
    done = subprocess.run(
        [*bare, script], env={"PYTHONPATH": path}, capture_output=True, text=True, check=False
    )
    assert done.stdout == f"{__version__}\n"
    assert done.stderr.endswith("ModuleNotFoundError: No module named 'typer'\n")


def test_a_process_that_was_to_use_two_gpus_has_two_replicas_on_the_cpu() -> None:
    task = Task(run_dir="/r", run_id="r", executor="local", launcher="srun", nodes=1, replicas=2,
                tasks_per_node=1, command=("x",), python=("p",), device=None)  # fmt: skip
    told = [rank_environment(task, THIRD_OF_FOUR, device) for device in ("cpu", "cuda")]
    assert [one["HPCKIT_CPU_REPLICAS"] for one in told] == ["2", "1"]


# --- tracebacks ---

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
