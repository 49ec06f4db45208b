import errno
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from hpckit import __version__
from hpckit.errors import JobError
from hpckit.payload import children, rendezvous
from hpckit.payload.environment import IMPORTABLE, choose_device, rank_environment
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

THIRD_OF_FOUR = RankPlacement(rank=3, world_size=4, local_rank=1, local_world_size=2, node_rank=1)


# --- whose child ---


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


def test_the_last_look_at_a_child_knows_that_it_has_ended() -> None:
    """What looks at a zombie sees no handler, and would take it for a script without one."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as child:
        assert child.stdin
        seen = []
        for _ in children.until_ended(child, 0.01):
            seen.append(child.returncode)
            child.stdin.close()
    assert seen[0] is None
    assert seen[-1] == 0


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


def test_no_free_port_is_said(monkeypatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(rendezvous, "_is_free", lambda port: False)
    with pytest.raises(SystemExit, match="1"):
        rendezvous.free_port("7.0")
    assert "no free port: all 50 tried are in use.\n" in capsys.readouterr().err


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
