"""Scripts to read: `HPCKIT_UPDATE_GOLDEN=1 pytest tests/unit/test_golden.py` writes them."""

import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hpckit import __version__
from hpckit.collections import builtin_folder
from hpckit.environ import own_python
from hpckit.environments import Environment, EnvironmentKind
from hpckit.job.place import RunPlace
from hpckit.job.resolve import resolve
from hpckit.job.script import make_script
from hpckit.job_spec.spec import JobSpec
from hpckit.lint import bash_errors, late_options, shellcheck
from hpckit.schedulers.base import Machine
from hpckit.sites import Site, find_site
from hpckit.workloads import load_workload
from tests.unit.made import BUILTIN

GOLDEN = Path(__file__).parents[1] / "golden"
KINDS = {
    "conda": Environment(
        name="conda", kind=EnvironmentKind.CONDA, path="torch", load=("Anaconda3/2024.02",)
    ),
    "venv": Environment(name="venv", kind=EnvironmentKind.VENV, path="/proj/a b/venv"),
    "apptainer": Environment(
        name="apptainer",
        kind=EnvironmentKind.APPTAINER,
        path="/proj/torch.sif",
        binds=("/proj", "/data"),
    ),
    "pyxis": Environment(
        name="pyxis",
        kind=EnvironmentKind.PYXIS,
        path="nvcr.io#it's/torch:24.01-py3",
        binds=("/proj/data", "/scratch:/mnt:ro"),
        options=("--container-mount-home",),
    ),
    "spack": Environment(name="spack", kind=EnvironmentKind.SPACK, path="/proj/a b/spack-env"),
}
BOX = Site(
    name="box",
    description="a site with everything",
    defaults={"account": "proj-1", "partition": "gpu", "qos": "normal"},
    gpu_request="gres",
    cpus_per_gpu=16,
    modules="tmod",
    environments=KINDS,
    mpi="pmix",
    env={"OMP_NUM_THREADS": "4", "NOTE": "two words"},
    setup=("umask 027",),
)
ALVIS = find_site("alvis", (BUILTIN,))
GENERIC = find_site("generic", (BUILTIN,))
CASES: dict[str, tuple[Site, dict[str, Any]]] = {
    "ddp": (GENERIC, {"nodes": 2, "gpus": 4}),
    "alvis": (ALVIS, {"nodes": 2, "gpus": 4, "gpu_type": "A100", "account": "NAISS2026-1-1"}),
    "array": (GENERIC, {"array": ("lr=0.1,0.01,0.001",), "parallel": 2, "max_requeues": 1}),
    "torchrun": (GENERIC, {"nodes": 2, "gpus": 4, "launcher": "torchrun", "cpus_per_task": 8}),
    "mpirun": (BOX, {"target": "mpi", "program": "+", "nodes": 2, "tasks_per_node": 8,
                     "launcher": "mpirun", "max_requeues": 2}),
    "conda": (replace(BOX, environment="conda"), {"gpus": 2, "mem_gb": 64}),
    "venv": (replace(BOX, environment="venv"), {"gpus": 2, "name": "it's $(odd)"}),
    "apptainer": (replace(BOX, environment="apptainer"), {"gpus": 2, "args": ("--note", "a\nb")}),
    "pyxis": (replace(BOX, environment="pyxis"), {"nodes": 2, "gpus": 2, "retry": ("fail",)}),
    "spack": (replace(BOX, environment="spack"), {"gpus": 2}),
    "local": (GENERIC, {"nodes": 2, "gpus": 4}),
}  # fmt: skip


def script(name: str) -> str:
    site, asked = CASES[name]
    if asked.get("program"):
        asked = {**asked, "program": str(builtin_folder() / "workloads" / "ddp" / "train.py")}
    spec = JobSpec(**{"target": "ddp", **asked})
    workload = load_workload("ddp", (BUILTIN,)) if spec.of_workload else None
    machine = Machine() if name == "local" else None
    job = resolve(spec, site, workload, python=own_python()[0], machine=machine)
    place = RunPlace(
        run_id="RUN", dir=Path("/proj/runs/RUN"), cwd="/proj/code", after=("afterok:9",)
    )
    return make_script(job, place, (BUILTIN,)).text


def normalised(text: str) -> str:
    """Leave out what differs between machines and days, and nothing that a reader would miss."""
    text = text.replace(" ".join(own_python()), "PYTHON -E -P -u").replace(sys.executable, "PYTHON")
    text = text.replace(str(builtin_folder()), "/hpckit").replace(__version__, "VERSION")
    return re.sub(r"sha256:[0-9a-f]{16}", "sha256:HASH", text)


@pytest.mark.parametrize("name", CASES)
def test_the_script_is_the_one_that_was_read_and_kept(name: str) -> None:
    path = GOLDEN / f"{name}.sh"
    text = normalised(script(name))
    if os.environ.get("HPCKIT_UPDATE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()


@pytest.mark.parametrize("name", CASES)
def test_bash_shellcheck_and_slurm_have_nothing_to_say(name: str) -> None:
    text = script(name)
    assert bash_errors(text) == []
    assert shellcheck(text) == []
    assert late_options(text) == []


def test_a_warning_during_the_set_up_reaches_what_takes_the_scripts_place() -> None:
    begins, ends = (row for row in script("mpirun").splitlines() if row.startswith("trap "))
    lines = [begins, "kill -USR2 $$", ends, "kill -USR2 $$", "exec env"]
    done = subprocess.run(["bash", "-c", "\n".join(lines)], capture_output=True, text=True)
    assert (done.returncode, "HPCKIT_WARNED=1\n" in done.stdout) == (0, True)


def test_no_golden_script_is_left_from_another_time() -> None:
    assert {path.stem for path in GOLDEN.glob("*.sh")} == set(CASES)
