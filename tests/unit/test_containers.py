"""Images and the containers that Pyxis starts: what is written into a job, and what a rank gets."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from hpckit.environments import Environment, EnvironmentKind, ad_hoc_environment
from hpckit.errors import ConfigError, HpckitError, JobError, PlanError, RequestError
from hpckit.job.container import container_argv, mounts
from hpckit.job.place import RunPlace
from hpckit.job.resolve import resolve
from hpckit.job_spec.spec import JobSpec
from hpckit.payload.container import Container, find_container
from hpckit.schedulers.base import Machine
from hpckit.sites import Site
from hpckit.submission.container_step import STEP_VARIABLE, step_ended_at_the_end
from tests.conftest import write_files

K = EnvironmentKind


@pytest.mark.parametrize(
    ("word", "kind", "path"),
    [
        ("pyxis:nvcr.io#nvidia/pytorch:24.01-py3", K.PYXIS, "nvcr.io#nvidia/pytorch:24.01-py3"),
        ("pyxis:me@nvcr.io#nvidia/pytorch:24.01", K.PYXIS, "me@nvcr.io#nvidia/pytorch:24.01"),
        ("pyxis:ubuntu:22.04@sha256:0f", K.PYXIS, "ubuntu:22.04@sha256:0f"),
        ("pyxis:localhost:5000/a/b", K.PYXIS, "localhost:5000/a/b"),
        ("pyxis:docker://ubuntu", K.PYXIS, "docker://ubuntu"),
        ("pyxis:./i.sqsh", K.PYXIS, "{here}/i.sqsh"),
        ("pyxis:here.sqsh", K.PYXIS, "{here}/here.sqsh"),
        ("apptainer:docker://a/b:1", K.APPTAINER, "docker://a/b:1"),
        ("apptainer:my image.sif", K.APPTAINER, "{here}/my image.sif"),
        ("mamba:torch", K.CONDA, "torch"),
        ("micromamba:./env", K.CONDA, "{here}/env"),
        ("spack:lab", K.SPACK, "lab"),
        ("spack:envs/lab", K.SPACK, "{here}/envs/lab"),
        ("uv:proj", K.VENV, "{here}/proj/.venv"),
    ],
)
def test_an_image_or_environment_can_be_spelt_out(
    word: str, kind: K, path: str, here: Path
) -> None:
    write_files(here, {"here.sqsh": "", "proj/.venv/bin/python": ""})
    found = ad_hoc_environment(word)
    assert found is not None
    assert (found.kind, found.path) == (kind, path.format(here=here))


@pytest.mark.parametrize(
    "word",
    [
        "pyxis:me:hunter2@nvcr.io#a/b:1",
        "pyxis:docker://me:hunter2@nvcr.io/a/b",
        "apptainer:docker://me:hunter2@ghcr.io/a/b:1",
        "apptainer:oras://:hunter2@ghcr.io/a",
    ],
)
def test_a_password_in_an_address_is_refused_and_not_shown(word: str, here: Path) -> None:
    with pytest.raises(ConfigError, match="holds a password") as refused:
        ad_hoc_environment(word)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("pyxis:a b", "holds a blank"),
        ("pyxis:a\nb", "holds a blank or a control"),
        ("pyxis:-x", "begins with a dash"),
        ("uv:proj", r"uv sync --project "),
        ("spack:-x", "begins with a dash"),
    ],
)
def test_what_cannot_be_an_environment_is_refused(word: str, said: str, here: Path) -> None:
    with pytest.raises(HpckitError, match=said):
        ad_hoc_environment(word)


@pytest.mark.parametrize(
    "option", ["--container-image=x", "--container-mounts=/:/", "--overlap", "--container-env=a;b"]
)
def test_only_pyxis_own_options_can_be_given(option: str) -> None:
    with pytest.raises(ConfigError, match="is not an option of Pyxis"):
        Environment(name="b", kind=K.PYXIS, path="a", options=(option,))


BOX = Site(
    name="s",
    description="",
    environments={
        "box": Environment(name="box", kind=K.PYXIS, path="a#b", binds=("/data", "/x:/y:ro"))
    },
)


def job(program: Path, machine: Machine | None = None, **asked: object) -> object:
    spec = JobSpec(target="ddp", program=str(program), env="box", gpus=2, **asked)  # type: ignore[arg-type]
    return resolve(spec, BOX, None, python=sys.executable, machine=machine)


def test_a_container_shows_what_a_run_needs_each_folder_once(here: Path) -> None:
    write_files(here, {"p/sub/train.py": ""})
    place = RunPlace(run_id="r", dir=here / "runs/r", cwd=str(here / "p/sub"), project=here / "p")
    found = mounts(job(here / "p/sub/train.py"), place)  # type: ignore[arg-type]
    package = str(Path(find_container.__code__.co_filename).parents[1])
    assert found == (
        f"{here}/runs:{here}/runs",
        f"{here}/p:{here}/p",
        f"{package}:{package}:ro",
        "/data:/data",
        "/x:/y:ro",
    )
    odd = replace(place, cwd=str(here / "a:b"))
    with pytest.raises(PlanError, match="ends it in --container-mounts"):
        mounts(job(here / "p/sub/train.py"), odd)  # type: ignore[arg-type]


def test_containers_of_pyxis_are_for_slurm_and_ranks_are_started_by_srun(here: Path) -> None:
    write_files(here, {"train.py": ""})
    place = RunPlace(run_id="r", dir=here / "runs/r", cwd=str(here))
    with pytest.raises(PlanError, match=r"Use apptainer:IMAGE here"):
        container_argv(job(here / "train.py", Machine()), place)  # type: ignore[arg-type]
    with pytest.raises((PlanError, RequestError), match="Use --launcher srun"):
        job(here / "train.py", launcher="torchrun")


def test_a_rank_has_the_images_variables_and_its_own() -> None:
    inside = {"PATH": "/opt/bin", "HOME": "/root", "LANG": "C", "SLURM_STEP_ID": "0",
              "CUDA_VISIBLE_DEVICES": "0", "PYTHONPATH": "/image"}  # fmt: skip
    box = Container(pid=1, image="a", environ=inside)
    outside = {"PATH": "/usr/bin", "SLURM_STEP_ID": "1", "CUDA_VISIBLE_DEVICES": "0,1",
               "PMIX_RANK": "3", "PYTHONPATH": "/mine", "EDITOR": "vi"}  # fmt: skip
    asked = outside | {"RANK": "3", "LANG": "C.UTF-8", "PYTHONPATH": "/hpckit:/mine"}
    assert box.environment(asked, outside) == {
        "PATH": "/opt/bin", "HOME": "/root", "LANG": "C.UTF-8", "SLURM_STEP_ID": "1",
        "CUDA_VISIBLE_DEVICES": "0,1", "PMIX_RANK": "3", "PMIX_MCA_gds": "hash", "RANK": "3",
        "PYTHONPATH": "/hpckit:/image", "EDITOR": "vi",
    }  # fmt: skip


def test_the_container_of_a_node_is_found_by_what_the_script_says() -> None:
    own = os.getpid()
    said = {"HPCKIT_CONTAINERS": f"c1 {own},c2 1"}
    assert find_container("a#b", "c1", said).pid == own
    for node, text, why in [
        ("c3", f"c1 {own},c2 {own}", "names no container of a#b on c3"),
        ("c1", "", "names no container"),
        ("c1", "c1 99999999", "its step has ended"),
    ]:
        with pytest.raises(JobError, match=why):
            find_container("a#b", node, {"HPCKIT_CONTAINERS": text})


def test_the_step_ends_with_the_process_that_took_the_scripts_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    theirs, own = os.pipe()
    keeper = subprocess.Popen(["cat"], stdin=theirs, stdout=subprocess.DEVNULL)
    os.close(theirs)
    os.set_inheritable(own, True)
    monkeypatch.setenv(STEP_VARIABLE, f"{keeper.pid} {own}")
    with step_ended_at_the_end():
        assert STEP_VARIABLE not in os.environ
        assert not os.get_inheritable(own)
        assert keeper.poll() is None
    with pytest.raises(ChildProcessError):
        os.waitpid(keeper.pid, 0)  # it has ended, and was waited for
    keeper.wait()
