"""Who could change a collection, and what a hostile one may not do: refused, nothing executed."""

import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Answer, write_files
from tests.unit.lab import FILES, commit, git, make_lab, make_repository

Cli = Callable[..., Answer]
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="changing owners needs root")


@pytest.fixture
def lab(here: Path) -> Path:
    return make_lab(here.parent / "shared" / "lab")


def open_file(lab: Path) -> None:
    (lab / "workloads" / "lab-hello" / "hello.py").chmod(0o646)


def open_folder(lab: Path) -> None:
    (lab / "templates" / "slurm").chmod(0o777)


def sticky_folder(lab: Path) -> None:
    (lab / "templates" / "slurm").chmod(0o1777)  # no one may replace a file, anyone may add one


def open_parent(lab: Path) -> None:
    lab.parent.chmod(0o777)


def link_out(lab: Path) -> None:
    (lab / "templates" / "slurm" / "x.sh.j2").symlink_to("/etc/passwd")


def link_up(lab: Path) -> None:
    (lab / "workloads" / "other").symlink_to("../../..")


def circle(lab: Path) -> None:
    (lab / "templates" / "a").symlink_to("b")
    (lab / "templates" / "b").symlink_to("a")


def pipe(lab: Path) -> None:
    os.mkfifo(lab / "templates" / "x.j2")


@pytest.mark.parametrize(
    ("breaking", "way_out"),
    [
        (open_file, "hello.py. Its owner can fix this: chmod -R o-w. If you trust"),
        (open_parent, "replace the folder. Its owner can fix this: chmod o-w. If you trust"),
        (link_out, "outside the collection. If you trust"),
        (circle, "is a broken link (and 1 more). If you trust"),
        (pipe, "is neither a file nor a folder. If you trust"),
    ],
)
def test_what_the_owner_is_told_to_do_would_help(
    lab: Path, cli: Cli, breaking: Callable[[Path], None], way_out: str
) -> None:
    breaking(lab)
    assert way_out in cli("collections", "add", str(lab)).err


BREAK = [
    (open_file, "everybody can write"),
    (open_folder, "everybody can write"),
    (sticky_folder, "everybody can write"),
    (open_parent, "could replace the folder"),
    (link_out, "is a link to /etc/passwd, outside the collection"),
    (link_up, "outside the collection"),
    (circle, "is a broken link"),
    (pipe, "neither a file nor a folder"),
]


@pytest.mark.parametrize(("spoil", "why"), BREAK, ids=[row[0].__name__ for row in BREAK])
def test_what_others_could_change_is_not_added(
    here: Path, lab: Path, cli: Cli, spoil: Callable[[Path], None], why: str
) -> None:
    spoil(lab)
    answer = cli("collections", "add", str(lab))
    assert (answer.status, answer.out, len(answer.err.splitlines())) == (2, "", 1)
    assert why in answer.err
    assert "add --trust" in answer.err
    assert "lab" not in cli("workloads", "list").out


@pytest.mark.parametrize(("spoil", "why"), BREAK, ids=[row[0].__name__ for row in BREAK])
def test_what_became_open_since_is_left_out_and_breaks_nothing_else(
    here: Path, lab: Path, cli: Cli, spoil: Callable[[Path], None], why: str
) -> None:
    cli("collections", "add", str(lab))
    spoil(lab)
    answer = cli("templates", "list")
    assert answer.status == 0
    assert why in answer.err
    assert "lab (user lock)" not in answer.out
    answer = cli("submit", "lab-hello", "--dry-run")
    assert (answer.status, answer.out) == (2, "")
    assert cli("collections", "verify").status == 1


def test_trust_is_the_users_own_and_of_one_source(here: Path, lab: Path, cli: Cli) -> None:
    open_file(lab)
    assert cli("collections", "add", str(lab), "--trust", "--project").status == 0
    assert cli("submit", "lab-hello", "--dry-run").status == 0
    config = here.parent / "home" / ".config" / "hpckit"
    assert json.loads((config / "trusted.json").read_text()) == {"trusted": [str(lab)]}
    lock = json.loads((here / "hpckit.lock").read_text())
    assert lock["collections"][0].keys() == {"name", "source", "owner", "hash", "files"}
    (config / "trusted.json").rename(config / "elsewhere")  # a colleague with the same lock file
    assert cli("submit", "lab-hello", "--dry-run").status == 2
    (config / "elsewhere").rename(config / "trusted.json")
    cli("collections", "remove", "lab")
    assert json.loads((config / "trusted.json").read_text()) == {"trusted": []}
    assert cli("collections", "add", str(lab)).status == 2


def test_what_an_error_says_to_type_is_typed_with_blanks_in_the_path(
    here: Path, lab: Path, cli: Cli
) -> None:
    odd = Path(shutil.copytree(lab, here.parent / "our lab's $x" / "lab"))
    repo = make_repository(here.parent / "srv of ours" / "lab")
    open_file(odd)
    (repo / ".git" / "refs" / "heads").chmod(0o777)
    for source in (str(odd), f"git+file://{repo}"):
        refused = cli("collections", "add", source)
        assert refused.status == 2
        line = refused.err.rstrip("\n").rpartition("as it is: hpckit ")[2]
        assert cli(*shlex.split(line)).status == 0, line
        assert cli("collections", "remove", "lab").status == 0
    told = cli("collections", "new", str(here / "new one"))
    assert f"then: cd '{here / 'new one'}' && ./check" in told.err


def test_an_update_of_a_folder_that_is_gone_says_how_to_forget_it(
    here: Path, lab: Path, cli: Cli
) -> None:
    assert cli("collections", "add", str(lab)).status == 0
    lab.rename(lab.with_name("gone"))
    said = cli("collections", "update")
    assert (said.status, f"lab: folder {lab} does not exist. If it will not" in said.err) == (
        2,
        True,
    )
    assert said.err.endswith(": hpckit collections remove lab\n")


@as_root
def test_a_new_owner_is_refused_until_it_is_added_again(here: Path, lab: Path, cli: Cli) -> None:
    for path in (lab, *lab.rglob("*")):
        os.chown(path, 12345, 12345)
    assert "owner     12345" in cli("collections", "add", str(lab)).out
    for path in (lab, *lab.rglob("*")):
        os.chown(path, 12346, 12346)
    answer = cli("submit", "lab-hello", "--dry-run")
    assert answer.status == 2
    assert f"{lab} belongs to 12346, but it belonged to 12345 when it was added" in answer.err
    assert cli("collections", "update", "lab").status == 2
    assert cli("collections", "add", str(lab)).status == 0
    assert cli("submit", "lab-hello", "--dry-run").status == 0


@as_root
def test_a_strangers_file_in_it_is_refused(here: Path, lab: Path, cli: Cli) -> None:
    os.chown(lab / "workloads" / "lab-hello" / "hello.py", 12345, -1)
    assert "hello.py belongs to 12345" in cli("collections", "add", str(lab)).err


@as_root
def test_the_collections_group_may_write_and_no_other(here: Path, lab: Path, cli: Cli) -> None:
    for path in (lab, *lab.rglob("*")):
        os.chown(path, 12345, 23456)
        path.chmod(0o2775 if path.is_dir() else 0o664)
    assert cli("collections", "add", str(lab)).status == 0
    os.chown(lab / "hpckit.yaml", 12345, 23457)
    assert "group 23457 can write to" in cli("collections", "add", str(lab)).err


def test_folders_named_by_the_environment_are_checked_too(
    here: Path, lab: Path, cli: Cli, monkeypatch
) -> None:
    monkeypatch.setenv("HPCKIT_COLLECTIONS", str(lab))
    assert cli("submit", "lab-hello", "--dry-run").status == 0
    open_file(lab)
    answer = cli("submit", "lab-hello", "--dry-run")
    assert (answer.status, "everybody can write" in answer.err) == (2, True)
    assert cli("collections", "trust", str(lab)).status == 0
    assert cli("submit", "lab-hello", "--dry-run").status == 0
    cli("collections", "trust", str(lab), "--no")
    assert cli("submit", "lab-hello", "--dry-run").status == 2


@as_root
def test_in_tmp_a_strangers_templates_and_lock_file_are_not_ours(here: Path, cli: Cli) -> None:
    here.chmod(0o1777)  # as /tmp: everybody may add, nobody replace
    make_lab(here)
    (here / "hpckit.yaml").unlink()
    assert cli("submit", "lab-hello", "--dry-run").status == 0
    for path in here.rglob("*"):
        os.chown(path, 12345, 12345)
    answer = cli("submit", "ddp", "--dry-run")
    assert (answer.status, "belongs to 12345" in answer.err) == (2, True)
    assert cli("templates", "list").status == 0
    shutil.rmtree(here / "templates")
    shutil.rmtree(here / "workloads")
    write_files(here, {"hpckit.lock": '{"format": 1, "collections": []}'})
    os.chown(here / "hpckit.lock", 12345, 12345)
    answer = cli("submit", "ddp", "--dry-run")
    assert (answer.status, "hpckit.lock belongs to 12345" in answer.err) == (2, True)


def evil(mark: Path) -> str:
    return f"touch {mark}"


@pytest.mark.long
def test_a_repository_runs_nothing_here(here: Path, cli: Cli, monkeypatch) -> None:
    """Hooks, fsmonitor, filters, submodules, pagers and diff drivers of somebody else's making."""
    mark = here.parent / "ran"
    repo = make_repository(here.parent / "srv" / "lab")
    first = commit(
        repo,
        {
            ".gitattributes": "* filter=evil diff=evil\n*.bin filter=lfs\n",
            ".gitmodules": f"[submodule \"x\"]\n\tpath = x\n\turl = ext::{evil(mark)}\n"
            f"\tupdate = !{evil(mark)}\n",
            "templates/big.bin": "version https://git-lfs.github.com/spec/v1\n",
        },
    )  # fmt: skip
    second = commit(repo, {"templates/x.j2": "1\n"})
    main = repo / ".git" / "refs" / "heads" / "main"
    main.write_text(f"{first}\n")
    for hook in ("post-checkout", "post-merge", "pre-receive", "reference-transaction",
                 "post-index-change", "pre-auto-gc", "post-upload-pack", "fsmonitor"):  # fmt: skip
        path = repo / ".git" / "hooks" / hook
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{evil(mark)}\n")
        path.chmod(0o755)
    for key in ("core.fsmonitor", "core.pager", "core.editor", "core.sshCommand", "core.gitProxy",
                "filter.evil.smudge", "filter.evil.clean", "filter.evil.process",
                "filter.lfs.smudge", "filter.lfs.process", "diff.evil.command",
                "diff.evil.textconv", "diff.external", "uploadpack.packObjectsHook",
                "core.alternateRefsCommand", "credential.helper"):  # fmt: skip
        git(repo, "config", key, evil(mark))
    git(repo, "config", "core.hooksPath", str(repo / ".git" / "hooks"))
    # An environment from which a calling program, say a hook of the user's own, runs hpckit.
    monkeypatch.setenv("GIT_DIR", str(repo / ".git"))
    monkeypatch.setenv("GIT_EXTERNAL_DIFF", evil(mark))
    monkeypatch.setenv("GIT_TEMPLATE_DIR", str(repo / ".git"))
    monkeypatch.setenv("GIT_ALLOW_PROTOCOL", "ext")
    assert cli("collections", "add", f"git+file://{repo}@main").status == 0
    assert not mark.exists()
    main.write_text(f"{second}\n")
    for words in (
        "collections update --dry-run", "collections update", "collections diff lab",
        "collections verify", "collections sync", "templates list", "submit lab-hello --dry-run",
    ):  # fmt: skip
        assert cli(*words.split()).status == 0, words
        assert not mark.exists(), words
    row = json.loads(cli("collections", "list", "--json").out)[0]
    checkout = row["path"]
    assert row["revision"] == second
    assert (Path(checkout) / "templates" / "big.bin").read_text().startswith("version https")
    monkeypatch.delenv("GIT_DIR")
    subprocess.run(["git", "-C", repo, "status"], capture_output=True, check=False)
    assert mark.exists()  # whoever is not careful runs it


@pytest.mark.long
def test_a_link_in_a_repository_that_leads_out_is_refused(here: Path, cli: Cli) -> None:
    repo = make_repository(here.parent / "srv" / "lab")
    (repo / "templates" / "slurm" / "x.sh.j2").symlink_to("/etc/passwd")
    commit(repo)
    answer = cli("collections", "add", f"git+file://{repo}")
    assert (answer.status, "outside the collection" in answer.err) == (2, True)
    assert cli("collections", "add", f"git+file://{repo}@v1").status == 0
    answer = cli("collections", "update", "lab", "--to", "main")
    assert (answer.status, "outside the collection" in answer.err) == (2, True)
    assert cli("submit", "lab-hello", "--dry-run").status == 0


def test_a_repository_everybody_can_write_is_refused(here: Path, cli: Cli) -> None:
    repo = make_repository(here.parent / "srv" / "lab")
    (repo / ".git" / "refs" / "heads").chmod(0o777)
    answer = cli("collections", "add", f"git+file://{repo}")
    assert (answer.status, "refs/heads" in answer.err) == (2, True)
    assert cli("collections", "add", f"git+file://{repo}", "--trust").status == 0


def test_nobody_takes_the_name_of_the_built_in(
    here: Path, lab: Path, cli: Cli, monkeypatch
) -> None:
    text = FILES["hpckit.yaml"].replace("lab", "built-in", 1)
    make_lab(lab, **{"hpckit.yaml": text})
    monkeypatch.setenv("HPCKIT_COLLECTIONS", str(lab))
    answer = cli("templates", "list")
    assert (answer.status, "'built-in' is reserved for hpckit" in answer.err) == (2, True)
