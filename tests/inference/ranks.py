"""Starts Python on MPI ranks, as users do."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.workloads import nursery
from tests.workloads.nursery import Forked

WORKLOAD = Path(__file__).parents[2] / "workloads" / "mpi_vi" / "train.py"
_UNWANTED = ("RANK", "WORLD_SIZE", "LOCAL_", "SLURM", "HPCKIT_RUN", "OMP_", "PMI", "OMPI_", "PMIX")
# The dev environment's mpi4py loads the system's Open MPI, which Debian's mpirun is of.
OPEN_MPI = ("mpirun", "--oversubscribe", "--bind-to", "none", "-n")


def environment(**changes: str) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(_UNWANTED)}
    # As in a container: Open MPI wants root to say that it knows what it does.
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    # Ranks that wait leave the cores to those that do not: there may be more of them than cores.
    root["OMPI_MCA_mpi_yield_when_idle"] = "1"
    return clean | root | {"OMP_NUM_THREADS": "1", "HPCKIT_DEVICE": "cpu"} | changes


def mpich() -> Path:
    """Return the environment with PyPI's MPICH, which `make test` makes."""
    folder = Path(os.environ.get("HPCKIT_MPICH_VENV", "/nowhere"))
    if not (folder / "bin" / "mpirun").exists():
        pytest.skip("NO MPICH: HPCKIT_MPICH_VENV names no environment; `make test` makes it.")
    return folder / "bin"


def open_mpi() -> None:
    if shutil.which("mpirun") is None:
        pytest.skip("NO OPEN MPI: there is no mpirun.")


def start(
    ranks: int,
    *words: object,
    launcher=OPEN_MPI,
    python=sys.executable,
    fresh: bool = False,
    **changes: str,
):
    """Start ranks of a script; `fresh`: each has an interpreter of its own, as users' have.

    Another MPI than the system's is that of another Python, which is always a fresh one.
    """
    open_mpi()
    stands_in = not fresh and launcher == OPEN_MPI and python == sys.executable
    before = (nursery.__file__, "stand-in", nursery.address()) if stands_in else ("-W", "error")
    argv = [*map(str, launcher), str(ranks), str(python), *before, *map(str, words)]
    return subprocess.Popen(
        argv,
        env=environment(**changes),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def alone(*words: object) -> Forked:
    """Start the workload as one process, without an interpreter of its own."""
    return Forked(WORKLOAD, [*map(str, words)], environment())


def ended(process: subprocess.Popen[str] | Forked) -> tuple[int, str, str]:
    """Wait; return exit status and what was said on stdout and stderr."""
    try:
        out, err = process.communicate(timeout=280)
    finally:
        process.kill()
    return process.returncode, out, err
