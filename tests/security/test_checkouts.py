"""A checkout somebody else made starts no program on the login node, whatever it asks git for."""

import shutil
from dataclasses import asdict
from pathlib import Path

import pytest

from hpckit.gitfiles import code_version
from hpckit.job_spec.spec import JobSpec
from tests.conftest import add_program
from tests.unit.checkouts import commit, edit, git, make_checkout
from tests.unit.made import make_run


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkout(tmp_path_factory.mktemp("git") / "clean")


@pytest.fixture
def trap(here: Path, clean: Path) -> Path:
    """Put a program beside a checkout that leaves a mark when it is run."""
    add_program(here / "trap", f"#!/bin/sh\ntouch {here}/ran\ncat\n")
    shutil.copytree(clean, here / "project", symlinks=True)
    git(here / "project", "status")
    return here / "trap"


def _config(root: Path, **settings: str) -> None:
    for name, value in settings.items():
        git(root, "config", name.replace("__", "."), value)


def _filter(root: Path, trap: Path, kind: str) -> None:
    edit(root, ".gitattributes", "*.py filter=x\n")
    commit(root)
    _config(root, **{f"filter__x__{kind}": str(trap)})
    edit(root)


def clean_filter(root: Path, trap: Path) -> None:
    _filter(root, trap, "clean")


def process_filter(root: Path, trap: Path) -> None:
    _filter(root, trap, "process")


def attributes_of_the_repository(root: Path, trap: Path) -> None:
    (root / ".git" / "info").mkdir(exist_ok=True)
    (root / ".git" / "info" / "attributes").write_text("* filter=x\n")
    _config(root, filter__x__clean=str(trap))
    edit(root)


def included_settings(root: Path, trap: Path) -> None:
    edit(root, ".gitattributes", "*.py filter=x\n")
    edit(root, "more", f'[filter "x"]\n\tclean = {trap}\n')
    commit(root)
    _config(root, include__path="../more")
    edit(root)


def fsmonitor(root: Path, trap: Path) -> None:
    _config(root, core__fsmonitor=str(trap))


def hook(root: Path, trap: Path) -> None:
    (root / ".git" / "hooks").mkdir(exist_ok=True)
    for name in ("post-index-change", "reference-transaction", "query-watchman"):
        (root / ".git" / "hooks" / name).symlink_to(trap)
    edit(root, text="print(1)\n")


def partial_clone(root: Path, trap: Path) -> None:
    """Lack the commit's tree, so that git would fetch it from the promised place."""
    _config(root, core__repositoryFormatVersion="1", extensions__partialClone="origin",
            remote__origin__url=f"{root.parent}/gone", remote__origin__promisor="true",
            remote__origin__uploadpack=str(trap))  # fmt: skip
    tree = git(root, "rev-parse", "HEAD^{tree}").strip()
    (root / ".git" / "objects" / tree[:2] / tree[2:]).unlink()
    edit(root, "new.py")
    git(root, "update-index", "--add", "new.py")


def partial_clone_over_ssh(root: Path, trap: Path) -> None:
    partial_clone(root, trap)
    _config(root, remote__origin__url="somebody@nowhere:x", core__sshCommand=str(trap))


def bare_repository_beside(root: Path, trap: Path) -> None:
    """Be a repository's inside, as a plain clone may bring it along."""
    _filter(root, trap, "clean")
    for name in ("HEAD", "config", "index", "objects", "refs"):
        shutil.move(root / ".git" / name, root / name)
    shutil.rmtree(root / ".git")
    with (root / "config").open("a") as file:
        file.write(f"[core]\n\tbare = false\n\tworktree = {root}\n")


def submodule(root: Path, trap: Path) -> None:
    inner = make_checkout(root.parent / "inner")
    git(root, "submodule", "--quiet", "add", str(inner), "sub")
    commit(root)
    _filter(root / "sub", trap, "clean")
    _config(root / "sub", core__fsmonitor=str(trap))


def file_that_points_elsewhere(root: Path, trap: Path) -> None:
    _filter(root, trap, "clean")
    (root / ".git").rename(root / "a" / "inside")
    (root / ".git").write_text("gitdir: a/inside\n")


def settings_of_a_working_tree(root: Path, trap: Path) -> None:
    _config(root, extensions__worktreeConfig="true")
    edit(root, ".gitattributes", "*.py filter=x\n")
    commit(root)
    edit(root, ".git/config.worktree", f'[filter "x"]\n\tclean = {trap}\n')
    edit(root)


def programs_of_diff(root: Path, trap: Path) -> None:
    edit(root, ".gitattributes", "*.py diff=x\n")
    commit(root)
    _config(root, diff__external=str(trap), diff__x__textconv=str(trap),
            diff__x__command=str(trap), core__pager=str(trap), core__editor=str(trap),
            alias__status=f"!{trap}", credential__helper=f"!{trap}")  # fmt: skip
    edit(root)


ATTACKS = [
    clean_filter, process_filter, attributes_of_the_repository, included_settings, fsmonitor, hook,
    partial_clone, partial_clone_over_ssh, bare_repository_beside, submodule,
    file_that_points_elsewhere, settings_of_a_working_tree, programs_of_diff,
]  # fmt: skip


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_no_program_runs(cli, here, trap, attack, monkeypatch) -> None:
    root = here / "project"
    attack(root, trap)
    (here / "ran").unlink(missing_ok=True)  # git itself made the attack ready
    code_version(root / "train.py")
    assert not (here / "ran").exists()
    spec = JobSpec(target="serial", program=str(root / "train.py"), executor="local")
    make_run(here / "runs", job_id="local-1", executor="local", cwd=str(root),
             spec=asdict(spec), code={"commit": "a" * 40, "dirty": False})  # fmt: skip
    monkeypatch.chdir(root)
    submit = ("submit", "serial", f"{root}/train.py", "--dry-run", "--executor=local")
    for words in (submit, ("resubmit", "ddp-1", f"--runs={here}/runs", "--dry-run")):
        said = cli(*words)
        assert said.status == 0, said.err
        assert not (here / "ran").exists()
    assert "code: " in said.err


def test_git_is_not_run_at_all(here, trap) -> None:
    shutil.copy(trap, here.parent / "bin" / "git")
    assert code_version(here / "project" / "train.py")["dirty"] is False
    assert not (here / "ran").exists()
