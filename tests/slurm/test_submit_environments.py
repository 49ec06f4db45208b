"""Modules and virtual environments in a real job."""

import subprocess
import sys
import venv
from pathlib import Path

import pytest

from tests.slurm.conftest import SCRIPTS, Desk, add_site, rank_files
from tests.slurmbox.fixture import MODULES

pytestmark = pytest.mark.slurm
SEEN = SCRIPTS / "seen.py"
LMOD = Path("/usr/share/lmod/lmod/init/bash")
UV = Path(sys.executable).with_name("uv")
needs_lmod = pytest.mark.skipif(not LMOD.exists(), reason="lmod is not installed")


def lmod_site(desk: Desk, load: str) -> None:
    add_site(
        desk,
        f"""modules: lmod
environments:
  demo:
    use: [{MODULES}]
    load: [{load}]
    python: {sys.executable}
""",
    )


@needs_lmod
def test_a_real_module_is_loaded_in_order_and_listed(desk: Desk) -> None:
    lmod_site(desk, "hpckit-demo/1.0, needs-demo/1.0")
    status = desk.done("serial", SEEN, "--site", "box", "--env", "demo", "--gpus", "0")
    (seen,) = rank_files(status["run_dir"]).values()
    assert seen["env"]["HPCKIT_DEMO_MODULE"] == "1.0"
    assert seen["env"]["HPCKIT_NEEDS_DEMO_MODULE"] == "1.0"
    log = Path(status["run_dir"], "job.out").read_text()
    assert "Currently Loaded Modules" in log
    assert log.index("hpckit-demo/1.0") < log.index("needs-demo/1.0")


@needs_lmod
@pytest.mark.parametrize("load", ["no-such-thing/9.9", "needs-demo/1.0, hpckit-demo/1.0"])
def test_a_module_that_does_not_load_ends_the_job_and_is_named(desk: Desk, load: str) -> None:
    lmod_site(desk, load)
    job = desk.submit("serial", SEEN, "--site", "box", "--env", "demo", "--gpus", "0")
    status = desk.over(job["job_id"])
    assert status["state"] == "FAILED"
    assert status["exit_code"] == 1
    assert status["ranks"] == []
    name = load.split(",", maxsplit=1)[0]
    errors = desk.call("logs", job["job_id"], "--errors").out
    assert f"hpckit: module {name} could not be loaded on c1" in errors
    assert f"module spider {name}" in errors


def test_a_virtual_environment_runs_the_script(desk: Desk) -> None:
    place = desk.work / "my env"
    venv.create(place, with_pip=False)
    status = desk.done("serial", SEEN, "--env", place, "--gpus", "0")
    (seen,) = rank_files(status["run_dir"]).values()
    assert seen["prefix"] == str(place)
    assert seen["env"]["VIRTUAL_ENV"] == str(place)
    assert seen["env"]["PATH"].startswith(f"{place}/bin:")


@pytest.mark.skipif(not UV.exists(), reason="uv is not installed")
def test_the_environment_of_a_uv_project_runs_the_script(desk: Desk) -> None:
    project = desk.work / "proj"
    project.mkdir()
    (project / "pyproject.toml").write_text(
        '[project]\nname = "proj"\nversion = "0"\nrequires-python = ">=3.9"\n'
    )
    sync = (UV, "sync", "--offline", "--python", sys.executable, "--project", project)
    alone = {**desk.env, "TMPDIR": str(desk.home)}  # uv leaves its lock there
    subprocess.run(sync, env=alone, check=True, capture_output=True)
    status = desk.done("serial", SEEN, "--env", "uv:proj", "--gpus", "0")
    (seen,) = rank_files(status["run_dir"]).values()
    assert seen["prefix"] == str(project / ".venv")
    assert seen["env"]["VIRTUAL_ENV"] == seen["prefix"]


def test_a_virtual_environment_that_is_gone_is_named(desk: Desk) -> None:
    add_site(desk, "environments: {mine: {kind: venv, path: /nowhere/venv}}\n")
    job = desk.submit("serial", SEEN, "--site", "box", "--env", "mine", "--gpus", "0")
    assert desk.over(job["job_id"])["state"] == "FAILED"
    assert "no virtual environment at /nowhere/venv on c1" in (
        desk.call("logs", job["job_id"], "--errors").out
    )
