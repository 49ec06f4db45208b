import sys
from typing import Any

import pytest

from hpckit.errors import RequestError
from hpckit.job.job import Job
from hpckit.job.resolve import resolve
from hpckit.launchers import LAUNCHERS, find_launcher
from hpckit.launchers.mpirun import mpirun_argv
from hpckit.launchers.srun import srun_wait_s
from hpckit.payload.task import Task
from hpckit.sites import Site
from hpckit.spec import JobSpec
from hpckit.strategies import STRATEGIES, find_strategy


def job(site: Site | None = None, **asked: Any) -> Job:
    spec = JobSpec(**{"target": "ddp", "program": __file__, "nodes": 2, "gpus": 4, **asked})
    return resolve(spec, site or Site(name="x", description=""), None, python=sys.executable)


def task(executor: str) -> Task:
    return Task(run_dir="/r", run_id="r", executor=executor, launcher="mpirun", nodes=2,
                tasks_per_node=4, command=("x",), python=("p",), device=None)  # fmt: skip


OPEN_MPI = "mpirun (Open MPI) 4.1.4"
HYDRA = "HYDRA build details:\n    Version: 4.0.2"


def test_srun_starts_one_task_per_rank() -> None:
    assert LAUNCHERS["srun"].slurm_argv(job()) == (
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
    assert LAUNCHERS["srun"].slurm_argv(asked)[-3:] == ("--cpus-per-task=8", "--mpi=pmix", "-v")


def test_torchrun_gets_one_agent_per_node_with_all_of_its_cpus() -> None:
    argv = LAUNCHERS["torchrun"].slurm_argv(job(cpus_per_task=8))
    assert "--ntasks=2" in argv
    assert "--ntasks-per-node=1" in argv
    assert "--cpus-per-task=32" in argv


def test_mpirun_is_started_by_the_supervisor_alone() -> None:
    assert LAUNCHERS["mpirun"].slurm_argv(job()) == ()


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
