import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from hpckit.environments import (
    BARE,
    Environment,
    EnvironmentKind,
    ad_hoc_environment,
    not_here,
    why_none,
)
from hpckit.errors import RequestError
from hpckit.sites import Site
from tests.conftest import Answer, write_files

K = EnvironmentKind


@pytest.mark.parametrize(
    ("environment", "argv"),
    [
        (BARE, ("/hp/python",)),
        (Environment(name="p", kind=K.NONE, python="/opt/python"), ("/opt/python",)),
        (Environment(name="v", kind=K.VENV, path="/a b/venv"), ("/a b/venv/bin/python",)),
        (Environment(name="v", kind=K.VENV, path="/v", python="python3.9"), ("python3.9",)),
        (
            Environment(name="a", kind=K.APPTAINER, path="/i.sif", binds=("/x", "/y")),
            ("apptainer", "exec", "--nv", "--bind", "/x", "--bind", "/y", "/i.sif", "python"),
        ),
    ],
)
def test_each_kind_gives_its_python(environment: Environment, argv: tuple[str, ...]) -> None:
    assert environment.command("/hp/python") == argv


@pytest.mark.parametrize(
    ("word", "kind", "path"),
    [
        ("venv:env", K.VENV, "{here}/env"),
        ("conda:torch", K.CONDA, "torch"),
        ("apptainer:i.sif", K.APPTAINER, "{here}/i.sif"),
        ("module:A/1,B/2", K.MODULES, None),
        ("modules:A/1", K.MODULES, None),
        ("env", K.VENV, "{here}/env"),
    ],
)
def test_an_environment_can_be_spelt_out(word, kind, path, here: Path) -> None:
    write_files(here, {"env/bin/python": ""})
    found = ad_hoc_environment(word)
    assert found is not None
    assert found.kind is kind
    assert found.path == (path and path.format(here=here))


@pytest.mark.parametrize(
    ("word", "missing"),
    [
        ("venv:env", ""),
        ("venv:gone", "gone"),
        ("venv:empty", "empty"),
        ("conda:./env", ""),
        ("conda:./gone", "gone"),
        ("apptainer:i.sif", ""),
        ("apptainer:gone.sif", "gone.sif"),
        ("pyxis:./gone.sqsh", "gone.sqsh"),
        *((word, "") for word in ("conda:env", "spack:env", "pyxis:gone", "module:A")),
        ("apptainer:docker://python", ""),
    ],
)
def test_what_is_not_on_this_machine_is_found(word: str, missing: str, here: Path) -> None:
    write_files(here, {"env/bin/python": "", "i.sif": "", "empty/x": ""})
    found = ad_hoc_environment(word)
    assert found is not None
    assert not_here(found) == (missing and f"{here}/{missing}")


def test_submit_says_that_an_environment_is_not_on_this_machine(
    here: Path, cli: Callable[..., Answer]
) -> None:
    """It may be on the nodes, or misspelt: the job itself says so only after it has waited."""
    write_files(here, {"env/bin/python": "", "train.py": ""})
    said = "gone is not on this machine: it is looked for on the node"
    for word, expected in (("venv:env", False), ("venv:gone", True)):
        answer = cli("submit", "serial", "train.py", "--env", word, "--dry-run")
        assert answer.status == 0
        assert (said in answer.err) is expected


def test_modules_are_loaded_in_the_order_given() -> None:
    found = ad_hoc_environment("module:A/1,,B/2")
    assert found is not None
    assert found.load == ("A/1", "B/2")


def test_a_pythons_path_is_an_environment() -> None:
    found = ad_hoc_environment(sys.executable)
    assert found is not None
    assert found.command("x") == (sys.executable,)


@pytest.mark.parametrize("word", ["torch", "venv:", "docker:x", "/no/such/python", ""])
def test_other_words_are_no_environment(word: str, here: Path) -> None:
    assert ad_hoc_environment(word) is None


@pytest.mark.parametrize("kind", [K.MODULES, K.CONDA])
def test_a_module_or_conda_environment_brings_the_python_of_its_path(kind: K) -> None:
    assert Environment(name="m", kind=kind, path="p").command("/hp/python") == ("python",)


def test_a_link_to_a_python_that_is_gone_is_told_as_such(here: Path) -> None:
    (here / "env/bin").mkdir(parents=True)
    (here / "env/bin/python3").symlink_to(here / "gone/python3")
    (here / "env/bin/python").symlink_to("python3")
    for word in ("env", "./env/bin/python"):
        assert f"env/bin/python is a link to {here}/gone/python3, which is not" in why_none(word)
    (here / "gone").mkdir()
    (here / "gone/python3").touch()
    assert ad_hoc_environment("env") is not None


@pytest.mark.parametrize(
    ("name", "taken"),
    [
        ("python", True),
        ("python3.13t", True),
        ("Python-of-ours", True),
        ("pypy3.10", True),
        ("ls", False),
        ("train", False),
        ("python3-config", False),
        ("python_train.py", False),
    ],
)
def test_a_program_is_taken_for_a_python_by_its_name(
    tmp_path: Path, name: str, taken: bool
) -> None:
    path = tmp_path / name
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    assert (ad_hoc_environment(str(path)) is not None) is taken
    assert taken or "is a program, but not a Python by its name" in why_none(str(path))
    link = tmp_path / "link"
    link.symlink_to(path)
    assert (ad_hoc_environment(str(link)) is not None) is taken


MODULE_SIGNS = ("LMOD_CMD", "LMOD_VERSION", "LMOD_PKG", "MODULES_CMD", "MODULESHOME",
                "LOADEDMODULES", "SPACK_ROOT")  # fmt: skip


def test_a_folder_that_has_an_environment_beside_or_in_it_names_that(tmp_path: Path) -> None:
    for folder, near in (("env/bin", "env"), ("proj", "proj/.venv"), ("other", "other/venv")):
        python = tmp_path / near / "bin" / "python"
        python.parent.mkdir(parents=True)
        python.touch()
        assert why_none(str(tmp_path / folder)).endswith(f"({tmp_path / near} is one)")
    assert why_none(str(tmp_path / "proj" / ".venv" / "bin")).endswith("proj/.venv is one)")
    (tmp_path / "empty").mkdir()
    assert why_none(str(tmp_path / "empty")).endswith("it has no bin/python")


def test_no_name_of_an_environment_is_near_to_a_path() -> None:
    for word, said in (("/nope", "Known: none."), ("non", "Did you mean 'none'?")):
        with pytest.raises(RequestError, match=re.escape(said)):
            Site(name="lab", description="d").find_environment(word)


@pytest.mark.parametrize(
    ("environ", "sign", "loads"),
    [
        ({"LMOD_CMD": "/l", "MODULESHOME": "/m"}, "lmod, by $LMOD_CMD", "module load A/1 || {"),
        ({"MODULESHOME": "/m"}, "tmod, by $MODULESHOME", "module load A/1 || true"),
    ],
)
def test_without_a_site_file_this_shell_tells_the_module_system(
    cli: Callable[..., Answer],
    here: Path,
    monkeypatch: pytest.MonkeyPatch,
    environ: Mapping[str, str],
    sign: str,
    loads: str,
) -> None:
    for name in MODULE_SIGNS:
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    said = cli("submit", "serial", "python", "--env", "module:A/1,B", "--dry-run")
    assert said.status == 0
    assert f"note: modules: {sign} here (hpckit init writes a site's file)\n" in said.err
    script = said.out
    assert script.index("\nmodule purge\n") < script.index(f"\n{loads}") < script.index("load B ")
    plain = cli("submit", "serial", "python", "--dry-run")
    assert "# No modules." in plain.out
    assert "modules:" not in plain.err


def test_where_no_module_system_is_seen_init_is_named(
    cli: Callable[..., Answer], here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in MODULE_SIGNS:
        monkeypatch.delenv(name, raising=False)
    line = ("submit", "serial", "python", "--env", "module:A/1", "--dry-run")
    monkeypatch.setattr("hpckit.detect.login_node.module_systems", lambda *_: ())
    said = cli(*line)
    assert said.status == 2
    assert "site 'generic' says 'modules: none'" in said.err
    assert "hpckit init writes such a file" in said.err


def test_a_site_that_says_none_is_believed(
    cli: Callable[..., Answer], here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LMOD_CMD", "/l")
    write_files(here, {"templates/sites/own.yaml": "description: d\nmodules: none\n"})
    said = cli("submit", "serial", "python", "--env", "module:A", "--site", "own", "--dry-run")
    assert said.status == 2
    assert "site 'own' says 'modules: none'" in said.err
