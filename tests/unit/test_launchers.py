import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hpckit.errors import RequestError
from hpckit.job import Job
from hpckit.job.resolve import resolve
from hpckit.job_spec.spec import JobSpec
from hpckit.launchers import (
    LAUNCHERS,
    UNSIGNALLED,
    UNWARNED,
    Launcher,
    default_launcher,
    find_launcher,
    register,
)
from hpckit.launchers.mpirun import mpirun_argv
from hpckit.launchers.srun import srun_wait_s
from hpckit.payload.supervisor import LauncherProcess
from hpckit.payload.task import Task
from hpckit.registry import installed
from hpckit.run_folders.ranks import write_rank
from hpckit.schedulers.base import Machine
from hpckit.sites import Site
from hpckit.strategies import STRATEGIES, find_strategy
from tests.unit.made import rank


def job(site: Site | None = None, machine: Machine | None = None, **asked: Any) -> Job:
    spec = JobSpec(**{"target": "ddp", "program": __file__, "nodes": 2, "gpus": 4, **asked})
    site = site or Site(name="x", description="")
    return resolve(spec, site, None, python=sys.executable, machine=machine)


def task(executor: str) -> Task:
    return Task(run_dir="/r", run_id="r", executor=executor, launcher="mpirun", nodes=2,
                tasks_per_node=4, command=("x",), python=("p",), device=None)  # fmt: skip


OPEN_MPI = "mpirun (Open MPI) 4.1.4"
HYDRA = "HYDRA build details:\n    Version: 4.0.2"


def test_srun_starts_one_task_per_rank() -> None:
    assert find_launcher("srun").slurm_argv(job()) == (
        "srun",
        "--nodes=2",
        "--ntasks=8",
        "--ntasks-per-node=4",
        "--distribution=block",
        "--kill-on-bad-exit=1",
        "--wait=0",
        "--unbuffered",
    )


def test_srun_is_told_cpus_mpi_and_the_sites_own_arguments() -> None:
    site = Site(name="x", description="", mpi="pmix", srun_args=("-v",))
    asked = job(site, target="mpi", nodes=1, gpus=None, tasks_per_node=2, cpus_per_task=8)
    assert find_launcher("srun").slurm_argv(asked)[-3:] == ("--cpus-per-task=8", "--mpi=pmix", "-v")


def test_torchrun_gets_one_agent_per_node_with_all_of_its_cpus() -> None:
    argv = find_launcher("torchrun").slurm_argv(job(cpus_per_task=8))
    assert "--ntasks=2" in argv
    assert "--ntasks-per-node=1" in argv
    assert "--cpus-per-task=32" in argv


@pytest.mark.parametrize(
    ("ahead", "names", "status"),
    [
        (UNWARNED, "USR2", 0),
        (UNWARNED, "TERM", -signal.SIGTERM),  # mpirun ends ranks by it
        (UNSIGNALLED, "USR2 TERM", 0),
    ],
)
def test_a_python_that_still_starts_outlives_slurms_signals(
    ahead: tuple[str, ...], names: str, status: int
) -> None:
    kills = [f"os.kill(os.getpid(), signal.SIG{name})" for name in names.split()]
    code = "; ".join(["import os, signal", *kills])
    done = subprocess.run([*ahead, sys.executable, "-S", "-c", code], capture_output=True)
    assert (done.returncode, done.stderr) == (status, b"")


def test_mpirun_is_started_by_the_supervisor_alone() -> None:
    assert find_launcher("mpirun").slurm_argv(job()) == ()


@pytest.mark.parametrize(
    ("name", "supervisors"), [("srun", (2, 4)), ("torchrun", (2, 1)), ("mpirun", (1, 1))]
)
def test_each_launcher_has_its_supervisors(name: str, supervisors: tuple[int, int]) -> None:
    assert find_launcher(name).supervisors(job()) == supervisors


@pytest.mark.parametrize(
    ("version", "oversubscribe", "argv"),
    [
        (OPEN_MPI, False, "mpirun -np 8 --map-by ppr:4:node --bind-to none"),
        (OPEN_MPI, True, "mpirun -np 8 --bind-to none --oversubscribe"),
        ("mpirun (OpenRTE) 2.1", False, "mpirun -np 8 --map-by ppr:4:node --bind-to none"),
        (HYDRA, False, "mpirun -n 8 -ppn 4"),
        (HYDRA, True, "mpirun -n 8"),
    ],
)
def test_mpirun_speaks_the_words_of_its_mpi(version: str, oversubscribe: bool, argv: str) -> None:
    found = mpirun_argv(["mpirun"], version, task("local" if oversubscribe else "slurm"))
    assert " ".join(found) == argv


def test_the_sites_mpirun_keeps_its_arguments_in_front() -> None:
    argv = mpirun_argv(["mpiexec", "-v"], HYDRA, task("slurm"))
    assert argv[:4] == ("mpiexec", "-v", "-n", "8")


@pytest.mark.parametrize(
    ("name", "rank_per_gpu", "multi_node"),
    [
        ("serial", False, False),
        ("dp", False, False),
        ("ddp", True, True),
        ("mirrored", False, False),
        ("mpi", True, True),
    ],
)
def test_each_strategy_shares_work_in_its_way(
    name: str, rank_per_gpu: bool, multi_node: bool
) -> None:
    row = STRATEGIES[name]
    assert (row.rank_per_gpu, row.multi_node, row.mpi) == (rank_per_gpu, multi_node, name == "mpi")


def test_unknown_names_are_refused() -> None:
    with pytest.raises(RequestError, match=r"Unknown launcher 'srn'. Did you mean 'srun'"):
        find_launcher("srn")
    with pytest.raises(RequestError, match=r"Unknown strategy 'zero'. Known: ddp, dp,"):
        find_strategy("zero")


@pytest.mark.parametrize(
    ("words", "seconds"),
    [
        ((), 300), (("--wait=0",), 0), (("--wait", "7", "-x"), 7), (("-W", "8"), 8), (("-W9",), 9),
        (("--wait=1", "-W2"), 2), (("--waitall",), 300), (("-w", "5"), 300),
    ],
)  # fmt: skip
def test_how_long_srun_would_wait(words: tuple[str, ...], seconds: float) -> None:
    assert srun_wait_s(words, 300) == seconds


class Named(Launcher):
    name = "named"


def points(**values: str) -> Callable[..., list[metadata.EntryPoint]]:
    rows = [metadata.EntryPoint(name, text, "hpckit.launchers") for name, text in values.items()]
    return lambda group: [row for row in rows if row.group == group]


@pytest.fixture
def table() -> Iterator[None]:
    """Let what is registered, or installed, be forgotten afterwards."""
    installed.cache_clear()
    yield
    installed.cache_clear()
    LAUNCHERS.forget("named")


@pytest.mark.usefixtures("table")
def test_a_launcher_registers_itself() -> None:
    register(Named())
    assert isinstance(find_launcher("named"), Named)
    assert job(launcher="named").launcher is find_launcher("named")


@pytest.mark.usefixtures("table")
def test_installed_packages_are_asked_for_unknown_names_alone(monkeypatch) -> None:
    monkeypatch.setattr(metadata, "entry_points", None)
    assert find_launcher("srun").name == "srun"
    here = f"{__name__}:Named"
    monkeypatch.setattr(metadata, "entry_points", points(named=here, broken="no_such_module:X"))
    assert isinstance(find_launcher("named"), Named)
    with pytest.raises(RequestError, match=r"Unknown launcher 'brokn'. Did you mean 'broken'"):
        find_launcher("brokn")
    said = r"Launcher 'broken' \(no_such_module:X\) cannot be loaded: ModuleNotFoundError"
    with pytest.raises(RequestError, match=said):
        find_launcher("broken")


@pytest.mark.parametrize(
    ("asked", "machine", "name"),
    [
        ({}, None, "srun"),
        ({"target": "mpi"}, None, "srun"),
        ({}, Machine(), "srun"),
        ({"target": "mpi", "nodes": 1, "gpus": 1}, Machine(), "srun"),
        ({"target": "mpi"}, Machine(), "mpirun"),  # nothing stands in for srun there
    ],
)
def test_the_first_of_the_table_that_can_is_taken(
    asked: dict[str, Any], machine: Machine | None, name: str
) -> None:
    made = job(machine=machine, **asked)
    assert made.launcher.name == name
    assert default_launcher(made) is made.launcher


@pytest.mark.parametrize(
    ("name", "to_child", "to_scripts"),
    [
        ("mpirun", [signal.SIGUSR1, signal.SIGUSR2], []),
        ("torchrun", [], [signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2]),
    ],
)
def test_signals_reach_scripts_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, to_child: list, to_scripts: list
) -> None:
    """mpirun hands on two by itself; torchrun would die: the scripts of this node are told.

    None that the launcher has not started: it has the number of a rank that is gone.
    """
    started = [subprocess.Popen(["sleep", "600"]) for _ in range(2)]
    scripts = [child.pid for child in started]
    heard: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda pid, signum: heard.append((pid, signum)))
    monkeypatch.setenv("SLURM_PROCID", "1")
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "none"))  # this machine's may name linuxproc
    for number, pid in enumerate([101, 102, 103, 104, *scripts, 1, os.getpid() + 1]):
        write_rank(tmp_path, rank(number, pid=pid, ended=11.0 if number == 7 else None))
    process = LauncherProcess(replace(task("slurm"), launcher=name, run_dir=str(tmp_path)), ("x",))
    child = SimpleNamespace(
        pid=os.getpid(), poll=lambda: None, send_signal=lambda signum: heard.append((0, signum))
    )
    monkeypatch.setattr(process, "_child", child)
    for signum in (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        process.forward(signum)
    monkeypatch.undo()  # kill() is the real one again
    for script in started:
        script.kill()
        script.wait()
    assert [signum for pid, signum in heard if pid == 0] == to_child
    assert [signum for pid, signum in heard if pid == scripts[0]] == to_scripts
    assert {pid for pid, _ in heard if pid} == (set(scripts) if to_scripts else set())


@pytest.mark.torch
def test_torchruns_agent_ends_at_two_signals_alone(tmp_path: Path) -> None:
    """By itself it also ends at SIGHUP and SIGQUIT, which a script may have a use for."""
    program = (
        "from torch.distributed import run; import sys; "
        "print(run.config_from_args(run.parse_args(['x.py']))[0].signals_to_handle)"
    )
    environ = find_launcher("torchrun").environment({**os.environ, "TMPDIR": str(tmp_path)})
    done = subprocess.run(
        [sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=True
    )
    assert done.stdout == "SIGTERM,SIGINT\n"


def test_a_supervisor_loads_no_more_than_its_launcher() -> None:
    program = (
        "import sys; import hpckit.submission.in_job, hpckit.launchers as them; "
        "[them.find_launcher(name) for name in them.LAUNCHERS]; print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    loaded = set(done.stdout.split())
    assert "hpckit.launchers.torchrun" in loaded, done.stderr
    needless = {"jinja2", "yaml", "typer", "submitit", "importlib.metadata", "torch", "numpy"}
    assert loaded & {*needless, "hpckit.collections", "hpckit.sites", "hpckit.documents"} == set()
