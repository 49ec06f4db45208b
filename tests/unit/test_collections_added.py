"""`hpckit collections`: what users add, pin, update, verify and remove."""

import importlib
import json
import multiprocessing
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import hpckit
from hpckit.collections import manage
from hpckit.collections.lockfile import changing, read_lock
from hpckit.collections.manage import add
from tests.conftest import Answer, add_program, write_files
from tests.unit.lab import FILES, commit, git, make_lab, make_repository, version

Cli = Callable[..., Answer]


@pytest.fixture
def repo(here: Path) -> Path:
    return make_repository(here.parent / "srv" / "lab")


@pytest.fixture
def lab(here: Path) -> Path:
    return make_lab(here.parent / "shared")


def user_lock(here: Path) -> Path:
    return here.parent / "home" / ".config" / "hpckit" / "hpckit.lock"


def names(cli: Cli) -> list[tuple[str, str, str]]:
    rows = json.loads(cli("collections", "list", "--json").out)
    return [(row["name"], row["origin"], row["state"]) for row in rows]


def script(cli: Cli, *words: str) -> str:
    answer = cli("submit", "lab-hello", "--dry-run", *words)
    assert answer.status == 0, answer.err
    return answer.out


def no_git(here: Path) -> Path:
    """Put a git on PATH that leaves a mark: whoever calls it is caught."""
    mark = here.parent / "git-was-called"
    add_program(here.parent / "bin" / "git", f"#!/bin/sh\ntouch {mark}\nexit 1\n")
    return mark


@pytest.mark.long
def test_a_pin_holds_until_update_and_the_script_names_it(here: Path, repo: Path, cli: Cli) -> None:
    first = git(repo, "rev-parse", "HEAD")
    answer = cli("collections", "add", f"git+file://{repo}@main")
    assert (answer.status, answer.err) == (0, "")
    assert f"revision  {first} (main)" in answer.out
    assert "shadows   templates/slurm/base.sh.j2 of built-in" in answer.out
    second = commit(repo, {**version("two"), "templates/new.j2": "x\n"})
    text = script(cli)
    assert "export LAB=one" in text
    for kind in ("workload lab-hello", "template slurm/base.sh.j2"):
        assert f"# {kind} of lab at {first} (main), sha256:" in text
    look = cli("collections", "update", "lab", "--dry-run").out
    assert "-export LAB=one" in look
    assert "+export LAB=two" in look
    assert "LAB=one" in script(cli)
    moved = cli("collections", "update").out
    assert moved.splitlines() == [
        f"lab: {first[:23]} -> {second[:23]} (main)",
        "  + templates/new.j2",
        "  ~ templates/slurm/base.sh.j2",
    ]
    assert "export LAB=two" in script(cli)
    assert "+export LAB=two" in cli("collections", "diff", "lab").out
    cli("collections", "update", "lab", "--to", "v1")
    assert f"at {first} (v1)" in script(cli)


def test_nothing_but_add_update_and_sync_calls_git(here: Path, repo: Path, cli: Cli) -> None:
    cli("collections", "add", f"file://{repo}")
    shutil.rmtree(repo)  # the source has vanished, and nobody cares
    mark = no_git(here)
    for words in (
        "collections list", "collections verify", "templates list", "templates show base",
        "templates show base --origin", "templates diff base", "workloads list", "sites list",
        "workloads show lab-hello", "submit lab-hello --dry-run",
    ):  # fmt: skip
        answer = cli(*words.split())
        assert (answer.status, "left out" in answer.err) == (0, False), (words, answer)
    assert not mark.exists()
    assert cli("collections", "update").status == 2  # no such folder on this machine any more
    assert "LAB=one" in script(cli)


def test_a_folder_is_used_in_place_and_a_change_shows(here: Path, lab: Path, cli: Cli) -> None:
    answer = cli("collections", "add", str(lab))
    assert "owner     root" in answer.out or os.geteuid() != 0
    assert f"template slurm/base.sh.j2 of lab at {read_lock(user_lock(here))[0].hash}" in script(
        cli
    )
    assert cli("collections", "verify").out == f"lab: as pinned, {lab}\n"
    write_files(lab, version("two") | {"workloads/lab-hello/more.py": ""})
    answer = cli("submit", "lab-hello", "--dry-run")
    assert "export LAB=two" in answer.out
    assert "lab has changed since it was pinned" in answer.err
    answer = cli("collections", "verify", "lab")
    assert answer.status == 1
    assert answer.out.splitlines()[1:] == [
        "  ~ templates/slurm/base.sh.j2",
        "  + workloads/lab-hello/more.py",
    ]
    assert ("lab", "user lock", "changed") in names(cli)
    assert cli("collections", "update", "lab").out.splitlines()[1:] == answer.out.splitlines()[1:]
    assert "has changed" not in cli("submit", "lab-hello", "--dry-run").err


def test_added_ones_stand_after_the_place_of_their_lock(here: Path, cli: Cli, monkeypatch) -> None:
    outer = here.parent
    for name in ("mine", "ours", "group"):
        manifest = FILES["hpckit.yaml"].replace("lab", name, 1)
        make_lab(outer / name, **{"hpckit.yaml": manifest})
    write_files(here, {"templates/x.j2": ""})
    write_files(outer, {"home/.config/hpckit/templates/x.j2": ""})
    monkeypatch.setenv("HPCKIT_COLLECTIONS", str(outer / "group"))
    cli("collections", "add", str(outer / "mine"))
    cli("collections", "add", str(outer / "ours"), "--project")
    assert names(cli) == [
        ("project", "project", "ok"),
        ("ours", "project lock", "ok"),
        ("user", "user", "ok"),
        ("mine", "user lock", "ok"),
        ("group", "group", "ok"),
        ("built-in", "built-in", "ok"),
    ]
    base = next(row for row in cli("templates", "list").out.splitlines() if "slurm/base" in row)
    assert base.split(None, 1)[1].startswith("ours (project lock)")
    # Where a project has a lock file, the next one goes into it.
    manifest = FILES["hpckit.yaml"].replace("lab", "more", 1)
    make_lab(outer / "more", **{"hpckit.yaml": manifest})
    cli("collections", "add", str(outer / "more"))
    assert ("more", "project lock", "ok") in names(cli)


def test_a_colleagues_checkout_says_what_to_fetch(
    here: Path, repo: Path, cli: Cli, monkeypatch
) -> None:
    cli("collections", "add", f"git+file://{repo}@v1", "--project")
    monkeypatch.setenv("XDG_CACHE_HOME", str(here.parent / "other-cache"))  # a colleague's own
    answer = cli("submit", "lab-hello", "--dry-run")
    assert answer.status == 2
    assert len(answer.err.splitlines()) == 1
    assert answer.err.startswith(
        "hpckit: error: Collection 'lab', from which templates/slurm/base.sh.j2, "
        "workloads/lab-hello/workload.yaml may come, cannot be used: commit "
    )
    assert "Fetch it: hpckit collections sync" in answer.err
    # A built-in workload would have had the lab's template: that is no other command's business.
    answer = cli("submit", "ddp", "--dry-run")
    assert answer.status == 2
    assert "templates/slurm/base.sh.j2" in answer.err
    answer = cli("submit", "ddp", "--dry-run", "--skip-check", "collections")
    assert answer.status == 0
    answer = cli("templates", "list")
    assert answer.status == 0
    assert "note: collection 'lab' is left out" in answer.err
    assert ("lab", "project lock", "missing") in names(cli)
    commit(repo, version("two"))
    assert cli("collections", "sync").out.startswith("lab: fetched, ")
    assert "export LAB=one" in script(cli)
    assert cli("collections", "sync").out.startswith("lab: here, ")


def test_a_vanished_folder_breaks_nothing_else(here: Path, lab: Path, cli: Cli) -> None:
    write_files(lab, {"templates/slurm/only.sh.j2": '{% extends "slurm/base.sh.j2" %}\n'})
    (lab / "templates" / "slurm" / "base.sh.j2").unlink()
    cli("collections", "add", str(lab))
    shutil.rmtree(lab)
    for words in ("collections list", "templates list", "submit ddp --dry-run", "workloads list"):
        assert cli(*words.split()).status == 0, words
    for word in ("only", "slurm/only", "slurm/only.sh.j2"):
        answer = cli("submit", "ddp", "--template", word, "--dry-run")
        assert (answer.status, "templates/slurm/only.sh.j2 may come" in answer.err) == (2, True)
    assert cli("collections", "remove", "lab").status == 0
    assert names(cli) == [("built-in", "built-in", "ok")]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("<<<<<<< HEAD\n", "hpckit.lock:1: has a merge conflict"),
        ('{"format": 9, "collections": []}', "has format 9"),
        ('{"format": 1, "collections": [{"name": "built-in", "source": "/x"}]}', "built-in"),
        ('{"format": 1, "collections": [{"name": "x", "source": "ext::sh"}]}', "must be a folder"),
        ('{"format": 1, "collections": [{"name": "x", "source": "git+https://h/x", '
         '"commit": "--output=/tmp/x"}]}', "is not a commit"),
        ('{"format": 1, "collections": [{"name": "x", "source": "git+https://h/x"}]}', "not pinne"),
        ('{"format": 1, "collections": 3}', "is not an hpckit lock file"),
    ],
)  # fmt: skip
def test_a_damaged_lock_is_one_line_and_stops_only_what_could_need_it(
    here: Path, cli: Cli, text: str, why: str
) -> None:
    write_files(here, {"hpckit.lock": text})
    answer = cli("templates", "list")
    assert (answer.status, len(answer.err.splitlines())) == (0, 1)
    assert why in answer.err
    assert cli("submit", "ddp", "--dry-run").status == 2
    answer = cli("collections", "verify")
    assert (answer.status, len(answer.err.splitlines())) == (2, 1)


def test_a_lock_that_lies_about_its_content_is_found_out(
    here: Path, repo: Path, cli: Cli, monkeypatch
) -> None:
    cli("collections", "add", f"git+file://{repo}", "--project")
    lock = here / "hpckit.lock"
    lock.write_text(lock.read_text().replace(read_lock(lock)[0].hash, "sha256:0000000000000000"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(here.parent / "other-cache"))
    answer = cli("collections", "sync")
    assert answer.status == 3
    assert f"the lock file {lock} was changed. Correct the file; or remove it" in answer.err


@pytest.mark.parametrize(
    ("word", "status", "why"),
    [
        ("nowhere", 2, "is not a folder on this machine"),
        ("file:///nowhere/lab.git", 2, "is not a folder on this machine"),
        ("x" * 300, 2, "is not a folder on this machine"),
        ("empty", 2, "has no hpckit.yaml"),
        ("file://{here}/empty", 3, "cannot be fetched"),
        ("git+ssh://git@nohost.invalid/lab", 3, "Could not resolve hostname"),
        ("file://{repo}@nope", 2, "no tag, branch or commit 'nope'. It has: main, v1."),
        ("nameless", 2, "hpckit.yaml:1: a shared collection needs 'url:'"),
        ("odd", 2, "'built-in' is reserved for hpckit"),
    ],
)
def test_what_cannot_be_added_is_one_line(
    here: Path, repo: Path, cli: Cli, word: str, status: int, why: str
) -> None:
    short = FILES["hpckit.yaml"].replace("url", "# url")
    odd = FILES["hpckit.yaml"].replace("lab", "built-in", 1)
    ssh = "#!/bin/sh\necho 'ssh: Could not resolve hostname nohost.invalid' >&2\nexit 255\n"
    add_program(here.parent / "bin" / "ssh", ssh)
    write_files(here, {"empty": None, "nameless/hpckit.yaml": short, "odd/hpckit.yaml": odd})
    git(repo, "branch", "v1")  # as the tag: it is named once
    answer = cli("collections", "add", word.format(here=here, repo=repo))
    assert (answer.status, answer.out) == (status, "")
    assert len(answer.err.splitlines()) == 1
    assert why in answer.err
    assert names(cli) == [("built-in", "built-in", "ok")]


def test_one_name_has_one_source(here: Path, lab: Path, repo: Path, cli: Cli) -> None:
    cli("collections", "add", str(lab))
    answer = cli("collections", "add", f"file://{repo}")
    assert answer.status == 2
    assert f"already has a collection 'lab', from {lab}" in answer.err


@pytest.mark.long
def test_a_pin_that_its_repository_lost_says_how_to_pin_another(
    here: Path, repo: Path, cli: Cli
) -> None:
    """A branch that was force-pushed, and a home without the cache."""
    assert cli("collections", "add", f"git+file://{repo}@main").status == 0
    git(repo, "tag", "--delete", "v1")
    git(repo, "commit", "--quiet", "--amend", "-m", "rewritten")
    git(repo, "reflog", "expire", "--expire=now", "--all")
    git(repo, "gc", "--quiet", "--prune=now")
    shutil.rmtree(here.parent / "home" / ".cache" / "hpckit" / "collections")
    answer = cli("collections", "sync")
    assert answer.status == 3
    assert "pin another commit: hpckit collections update NAME --to REV." in answer.err
    assert cli("collections", "update", "lab", "--to", "main").status == 0


@pytest.mark.long
def test_update_of_a_branch_that_was_deleted_says_what_there_is(
    here: Path, repo: Path, cli: Cli
) -> None:
    """The source's own branches and tags, not the names that the cache has for pins."""
    git(repo, "branch", "next")
    assert cli("collections", "add", f"git+file://{repo}").status == 0
    assert cli("collections", "update", "lab", "--to", "next").status == 0
    git(repo, "branch", "-D", "next")
    shutil.rmtree(here.parent / "home" / ".cache")
    assert cli("collections", "sync").status == 0
    answer = cli("collections", "update")
    assert answer.status == 2
    assert answer.err.endswith(
        "has no tag, branch or commit 'next'. It has: main, v1. To pin another: hpckit "
        "collections update NAME --to REV\n"
    )


@pytest.mark.long
def test_update_says_that_history_was_rewritten(here: Path, repo: Path, cli: Cli) -> None:
    """A branch that was force-pushed, a tag that was moved; neither an update nor another --to."""
    said = "was rewritten, or moved back: what"
    assert cli("collections", "add", f"git+file://{repo}@main").status == 0
    commit(repo, version("two"))
    assert said not in cli("collections", "update").out
    git(repo, "commit", "--quiet", "--amend", "-m", "rewritten")
    look = cli("collections", "update", "--dry-run").out
    assert f"  main {said} was pinned is not in its history" in look
    (record,) = json.loads(cli("collections", "update", "--json").out)
    assert record["rewritten"] is True
    assert said not in cli("collections", "update", "lab", "--to", "v1").out
    assert json.loads(cli("collections", "update", "--json").out)[0]["rewritten"] is False
    commit(repo, version("three"))
    git(repo, "tag", "--force", "v1")
    assert said not in cli("collections", "update").out  # it moved on
    git(repo, "tag", "--force", "v1", "HEAD~1")
    assert f"  v1 {said} was pinned" in cli("collections", "update").out


def two_labs(here: Path, lab: Path, cli: Cli) -> tuple[Path, Path]:
    """Pin a collection for a project, and another one of the same name for the user."""
    other = make_lab(here.parent / "other")
    assert cli("collections", "add", str(lab), "--project").status == 0
    assert cli("collections", "add", str(other), "--user").status == 0
    return lab, other


@pytest.mark.long
def test_what_is_wrong_in_a_repository_is_named_by_its_place_there(
    here: Path, repo: Path, cli: Cli
) -> None:
    commit(repo, {"hpckit.yaml": "name: lab\nname: two\n"})
    said = cli("collections", "add", f"git+file://{repo}@main").err
    assert f"error: git+file://{repo}/hpckit.yaml:2: key 'name' is given twice." in said
    (repo / "templates" / "out").symlink_to("/etc/passwd")
    commit(repo, {"hpckit.yaml": FILES["hpckit.yaml"]})
    said = cli("collections", "add", f"git+file://{repo}@main").err
    assert f"error: git+file://{repo}/templates/out is a link to /etc/passwd, outside" in said


def test_a_commit_may_be_written_in_capitals(here: Path, repo: Path, cli: Cli) -> None:
    commit_ = git(repo, "rev-parse", "HEAD")
    assert cli("collections", "add", f"git+file://{repo}@{commit_.upper()}").status == 0
    assert read_lock(user_lock(here))[0].commit == commit_
    assert cli("collections", "update").status == 0


def test_a_repository_of_sha256_is_one_like_others(here: Path, cli: Cli) -> None:
    repo = make_lab(here.parent / "srv" / "sums")
    git(repo, "init", "--quiet", "--initial-branch=main", "--object-format=sha256")
    first = commit(repo)
    assert len(first) == 64
    assert cli("collections", "add", f"git+file://{repo}@main").status == 0
    second = commit(repo, version("two"))
    assert cli("collections", "update").status == 0
    assert "+export LAB=two" in cli("collections", "diff", "lab").out
    entry = read_lock(user_lock(here))[0]
    assert (entry.previous, entry.commit) == (first, second)
    assert "as pinned" in cli("collections", "verify").out


def test_what_cannot_be_compared_any_more_is_told(here: Path, repo: Path, cli: Cli) -> None:
    cli("collections", "add", f"git+file://{repo}@main")
    git(repo, "commit", "--quiet", "--amend", "--message=anew")
    git(repo, "tag", "--delete", "v1")
    git(repo, "reflog", "expire", "--expire=now", "--all")
    git(repo, "gc", "--quiet", "--prune=now")
    shutil.rmtree(here.parent / "home" / ".cache" / "hpckit" / "collections")
    answer = cli("collections", "update", "--dry-run")
    assert (answer.status, "what was pinned is not in its history" in answer.out) == (0, True)
    assert "nothing can be compared with it." in answer.err
    assert cli("collections", "update").status == 0
    answer = cli("collections", "diff", "lab")
    assert answer.status == 3
    assert "is not on this machine, and no branch or tag leads to it any more" in answer.err


def test_a_merge_conflict_of_the_lock_is_called_so(here: Path, repo: Path, cli: Cli) -> None:
    git(here, "init", "--quiet", "--initial-branch=main")
    cli("collections", "add", "--project", f"git+file://{repo}@main")
    commit(here)
    git(here, "branch", "theirs")
    for branch, word in (("theirs", "two"), ("main", "three")):
        git(here, "checkout", "--quiet", branch)
        commit(repo, version(word))
        cli("collections", "update")
        commit(here)
    with pytest.raises(subprocess.CalledProcessError):
        git(here, "merge", "theirs")
    for words in (["update"], ["sync"], ["verify"]):
        answer = cli("collections", *words)
        assert answer.status == 2
        assert "hpckit.lock:8: has a merge conflict of git's." in answer.err
    git(here, "checkout", "--ours", "hpckit.lock")
    assert cli("collections", "update").status == 0


def test_the_number_that_list_shows_means_that_one(here: Path, lab: Path, cli: Cli) -> None:
    _, other = two_labs(here, lab, cli)
    assert [name for name, _, _ in names(cli)][:2] == ["lab", "lab-2"]
    write_files(other, {"README.md": "# more\n", "templates/new.j2": "x\n"})
    assert cli("collections", "verify", "lab").status == 0
    assert f"lab-2: differs, {other}" in cli("collections", "verify", "lab-2").out
    said = cli("collections", "verify").out.splitlines()
    assert [line for line in said if line[0] != " "] == [
        f"lab: as pinned, {lab}", f"lab-2: differs, {other}",
    ]  # fmt: skip
    assert cli("collections", "update", "lab-2").out.startswith("lab-2: sha256:")
    gone = cli("collections", "remove", "lab-2").out
    assert gone == f"Removed lab ({other}) from {user_lock(here)}\n"
    assert names(cli)[0] == ("lab", "project lock", "ok")
    assert "no added collection 'lab-2'" in cli("collections", "remove", "lab-2").err


def test_remove_takes_the_one_that_is_held_out_of_its_own_lock(
    here: Path, lab: Path, cli: Cli
) -> None:
    two_labs(here, lab, cli)
    _, users = hpckit.added_collections()
    users.remove()
    assert [row.lock for row in hpckit.added_collections()] == [here / "hpckit.lock"]
    with pytest.raises(hpckit.RequestError, match="no longer has 'lab'"):
        users.remove()


def test_a_numbered_name_is_nobody_elses(here: Path, lab: Path, cli: Cli) -> None:
    two_labs(here, lab, cli)
    third = make_lab(here.parent / "third")
    text = (third / "hpckit.yaml").read_text().replace("name: lab", "name: lab-2")
    (third / "hpckit.yaml").write_text(text)
    assert cli("collections", "add", str(third), "--user").status == 0
    assert [name for name, _, _ in names(cli)][:3] == ["lab", "lab-3", "lab-2"]
    assert f"as pinned, {third}" in cli("collections", "verify", "lab-2").out


def _add(folder: str, lock: str) -> None:
    add(folder, Path(lock))


def test_adding_at_the_same_time_loses_none(here: Path) -> None:
    lock = here / "hpckit.lock"
    folders = []
    for number in range(8):
        text = FILES["hpckit.yaml"].replace("lab", f"lab{number}", 1)
        folders.append(make_lab(here.parent / f"l{number}", **{"hpckit.yaml": text}))
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_add, args=(str(f), str(lock))) for f in folders]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0] * 8
    assert sorted(entry.name for entry in read_lock(lock)) == [f"lab{n}" for n in range(8)]


@pytest.mark.long
def test_what_a_killed_git_left_stops_no_later_one(here: Path, repo: Path, cli: Cli) -> None:
    assert cli("collections", "add", f"git+file://{repo}@main").status == 0
    cache = here.parent / "home" / ".cache" / "hpckit" / "collections"
    (head,) = cache.glob("*/*/HEAD")
    clone = head.parent
    for number, (name, text) in enumerate(
        {"refs/heads/main.lock": "", "packed-refs.lock": "", "config": "[co", "HEAD": ""}.items()
    ):
        commit(repo, version(f"v{number}"))
        (clone / name).write_text(text)
        (clone.parent / "begun").touch()
        (clone.parent / ".new-old").mkdir()
        said = cli("collections", "update")
        assert said.status == 0, said.err
        assert f"export LAB=v{number}" in script(cli)
        # Beside them are folders named by commits, whose first letter may be any.
        names = [path.name for path in clone.parent.iterdir()]
        assert [name for name in names if name == "begun" or name[0] == "."] == []


@pytest.mark.long
def test_adding_one_repository_at_the_same_time_fetches_it_in_turn(here: Path, repo: Path) -> None:
    locks = [here / str(number) / "hpckit.lock" for number in range(4)]
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_add, args=(f"file://{repo}", str(lock))) for lock in locks]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0] * 4
    assert {read_lock(lock)[0].commit for lock in locks} == {git(repo, "rev-parse", "HEAD")}
    left = here.parent / "home" / ".cache" / "hpckit" / "collections"
    assert [path.name for path in left.glob("*/.new-*")] == []


def test_a_writer_that_fails_leaves_the_lock_as_it_was(here: Path, lab: Path) -> None:
    lock = here / "hpckit.lock"
    add(str(lab), lock)
    before = lock.read_text()

    def fail() -> None:
        with changing(lock) as entries:
            entries.clear()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert lock.read_text() == before
    assert [path.name for path in here.iterdir()] == ["hpckit.lock"]


@pytest.mark.long
def test_resubmit_says_that_a_collection_moved(
    here: Path, repo: Path, cli: Cli, fake_slurm: Path
) -> None:
    (fake_slurm / "sbatch.out").write_text("41\n")
    first = git(repo, "rev-parse", "HEAD")
    cli("collections", "add", f"git+file://{repo}@main")
    run = json.loads(cli("submit", "lab-hello", "--json").out)
    record = json.loads(Path(run["run_dir"], "run.json").read_text())
    assert record["workload"]["revision"] == first
    assert {row["revision"] for row in record["templates"]} == {first, ""}
    assert record["collections"][0]["source"] == f"git+file://{repo}"
    second = commit(repo, {**version("two"), "workloads/lab-hello/hello.py": "print(2)\n"})
    cli("collections", "update")
    said = cli("resubmit", run["job_id"], "--dry-run").err
    assert f"collection lab: {first} -> {second}" in said
    assert "template slurm/base.sh.j2 of lab has changed" in said
    assert "workload lab-hello has changed" in said


@pytest.mark.long
def test_a_line_break_in_a_files_name_breaks_no_line(here: Path, lab: Path, cli: Cli) -> None:
    cli("collections", "add", str(lab))
    (lab / "templates" / "odd\nname.j2").write_text("{{")
    for words in (["collections", "verify"], ["templates", "lint"], ["doctor"]):
        lines = cli(*words).out.splitlines()
        assert [line for line in lines if "odd\\nname.j2" in line]
        assert not [line for line in lines if line.startswith("name.j2")]


def test_a_head_that_names_no_branch_is_no_branch_asked_for(
    here: Path, repo: Path, cli: Cli
) -> None:
    """As `git init --bare` leaves it where the first push is of another branch."""
    bare = here.parent / "srv" / "bare.git"
    git(here, "init", "--quiet", "--bare", "--initial-branch=master", str(bare))
    answer = cli("collections", "add", f"git+file://{bare}")
    assert (answer.status, "has no branch: nothing was committed" in answer.err) == (2, True)
    git(repo, "push", "--quiet", str(bare), "main")
    assert cli("collections", "add", f"git+file://{bare}").status == 0
    git(repo, "push", "--quiet", str(bare), "main:other")
    cli("collections", "remove", "lab")
    answer = cli("collections", "add", f"git+file://{bare}")
    assert answer.status == 2
    assert "no default branch: add @BRANCH. Branches: main, other." in answer.err


@pytest.mark.parametrize("name", [b"h\xe9.py", b"a\nb.py"])
def test_a_name_that_no_lock_file_can_contain_is_one_error(
    here: Path, lab: Path, repo: Path, cli: Cli, name: bytes
) -> None:
    for folder in (lab, repo):
        (folder / "workloads" / "lab-hello" / os.fsdecode(name)).write_text("")
    git(repo, "add", ".")
    git(repo, "commit", "--quiet", "-m", "odd")
    for source in (str(lab), f"git+file://{repo}"):
        answer = cli("collections", "add", source)
        assert answer.status == 2
        assert len(answer.err.splitlines()) == 1
        assert f"Rename the file in {source}." in answer.err


def test_a_name_of_another_encoding_stops_nothing(
    here: Path, lab: Path, cli: Cli, monkeypatch
) -> None:
    assert cli("collections", "add", str(lab)).status == 0
    odd = os.fsdecode(b"h\xe9")
    (lab / "workloads" / "lab-hello" / f"{odd}.py").write_text("")
    write_files(here, {f"templates/sites/{odd}.yaml": "description: d\n"})
    assert cli("submit", "lab-hello", "--dry-run", "--site", odd).status == 0
    assert "+ workloads/lab-hello/h\\udce9.py" in cli("collections", "verify").out
    shutil.copytree(lab, here / odd)
    monkeypatch.chdir(odd)
    answer = cli("collections", "add", ".")
    assert (answer.status, "Rename the folder." in answer.err) == (2, True)


@pytest.mark.parametrize(("before", "after"), [(0o664, 0o664), (0o640, 0o640), (0o666, 0o664)])
def test_a_lock_stays_as_open_as_it_was(
    here: Path, lab: Path, cli: Cli, before: int, after: int
) -> None:
    cli("collections", "add", "--project", str(lab))
    (here / "hpckit.lock").chmod(before)
    umask = os.umask(0o077)
    try:
        write_files(lab, version("two"))
        lab.joinpath("templates/slurm/base.sh.j2").chmod(0o644)
        assert manage.update(here / "hpckit.lock", read_lock(here / "hpckit.lock")[0]).files
    finally:
        os.umask(umask)
    assert (here / "hpckit.lock").stat().st_mode & 0o777 == after


def test_what_add_says_of_its_lock_is_what_list_says(here: Path, lab: Path, cli: Cli) -> None:
    added = json.loads(cli("collections", "add", str(lab), "--json").out)
    [row] = [row for row in json.loads(cli("collections", "list", "--json").out)
             if row["name"] == added["name"]]  # fmt: skip
    assert added["origin"] == row["origin"] == "user lock"


def test_sync_says_what_is_not_as_pinned(here: Path, repo: Path, lab: Path, cli: Cli) -> None:
    cli("collections", "add", f"file://{repo}@main")
    commit_ = read_lock(user_lock(here))[0].commit
    assert cli("collections", "sync").out == f"lab: here, {commit_}\n"
    [file] = here.parent.glob("home/.cache/hpckit/collections/*/*/templates/slurm/base.sh.j2")
    file.write_text("changed by hand\n")
    for words in (["sync"], ["update"], ["add", f"file://{repo}@main"]):
        answer = cli("collections", *words)
        assert (answer.status, answer.out) == (2, "")
        assert f"{file.parents[2]} has content sha256:" in answer.err
        assert "Remove the folder, then run: hpckit collections sync" in answer.err
    shutil.rmtree(file.parents[2])
    assert cli("collections", "sync").out == f"lab: fetched, {commit_}\n"


def test_sync_tells_of_a_folder_that_has_changed_or_gone(here: Path, lab: Path, cli: Cli) -> None:
    cli("collections", "add", str(lab))
    write_files(lab, version("two"))
    answer = cli("collections", "sync")
    assert answer.out.splitlines() == [
        f"lab: here, {lab}",
        "  It has changed since it was pinned: hpckit collections verify lab",
    ]
    shutil.rmtree(lab)
    answer = cli("collections", "sync")
    assert (answer.status, answer.out) == (3, "")
    assert f"folder {lab} does not exist" in answer.err


def test_what_a_refused_add_or_update_fetched_goes(here: Path, repo: Path, cli: Cli) -> None:
    def cached() -> list[str]:
        found = here.parent.glob("home/.cache/hpckit/collections/*/*")
        return sorted(path.name for path in found if path.is_dir())

    for word in (f"file://{repo}@nope", f"file://{here}"):
        assert cli("collections", "add", word).status != 0
        assert cached() == []
    broken = git(repo, "rev-parse", "HEAD")
    cli("collections", "add", f"file://{repo}@main")
    assert cached() == [broken, "repository.git"]
    commit(repo, {"hpckit.yaml": "name: [\n"})
    assert cli("collections", "update").status == 2
    assert cached() == [broken, "repository.git"]


@pytest.mark.parametrize("text", ['{"format": 1,', '{"format": 1, "collections": 3}'])
def test_a_damaged_lock_says_what_can_restore_it(here: Path, cli: Cli, text: str) -> None:
    write_files(user_lock(here).parent, {"hpckit.lock": text})
    said = cli("collections", "verify").err
    assert "remove it, and add its collections again: hpckit collections add SOURCE." in said
    user_lock(here).unlink()
    write_files(here, {"hpckit.lock": text})
    git(here, "init", "-q")
    assert "Restore the file from git, or correct it by hand." in cli("collections", "verify").err


def test_what_cannot_be_used_of_a_collection_is_said_when_it_is_taken(
    here: Path, repo: Path, cli: Cli
) -> None:
    """`update` took a revision whose workload nobody could submit without a word; so did `add`."""
    assert cli("collections", "add", f"git+file://{repo}@main").err == ""
    wrong = {
        "workloads/lab-hello/workload.yaml": "description: [x\n",
        "templates/slurm/base.sh.j2": "{% if %}\n",
        "templates/sites/odd.yaml": "foo: 1\n",
    }
    commit(repo, wrong)
    lines = [
        "note: lab: templates/slurm/base.sh.j2:1: Expected an expression, got 'end of statement "
        "block'.",
        "note: lab: templates/sites/odd.yaml:1: a site needs 'description:'.",
        "note: lab: workloads/lab-hello/workload.yaml:2: is not valid YAML: expected ',' or ']', "
        "but got '<stream end>'.",
    ]
    for words in (["--dry-run"], [], []):
        moved = cli("collections", "update", "lab", *words)
        assert (moved.status, moved.err.splitlines()) == (0, lines)
    cli("collections", "remove", "lab")
    added = cli("collections", "add", f"git+file://{repo}@main", "--json")
    assert (added.status, added.err.splitlines()) == (0, lines)
    commit(repo, {f"templates/slurm/{at}.sh.j2": "{% if %}\n" for at in range(4)})
    told: list[str] = []
    (lab,) = hpckit.added_collections("lab")
    lab.update(tell=told.append)
    assert (len(told), told[-1]) == (6, "lab: 2 more faults: hpckit templates lint")
    commit(repo, {"hpckit.yaml": "name: [x\n"})
    refused = cli("collections", "update", "lab")
    assert (refused.status, "hpckit.yaml:2: is not valid YAML" in refused.err) == (2, True)


def test_a_folder_in_place_is_looked_at_too(here: Path, lab: Path, cli: Cli) -> None:
    write_files(lab, {"workloads/lab-hello/workload.yaml": "description: [x\n"})
    said = "note: lab: workloads/lab-hello/workload.yaml:2: is not valid YAML"
    assert said in cli("collections", "add", str(lab)).err
    assert said in cli("collections", "update").err


def test_thousands_of_templates_are_not_read_when_they_are_taken(
    here: Path, lab: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`add` of a collection of 2,000 templates took minutes."""
    read: list[object] = []
    module = importlib.import_module("hpckit.lint")  # the package has a function of this name
    monkeypatch.setattr(module, "read_faults", lambda place, *_: read.append(place) or ())
    write_files(lab, {f"templates/slurm/{at}.sh.j2": "{% if %}\n" for at in range(101)})
    said = "note: lab: its 102 templates are not read now: hpckit templates lint\n"
    assert cli("collections", "add", str(lab)).err == said
    assert cli("collections", "update").err == said
    assert read == []
    (lab / "templates/slurm/0.sh.j2").unlink()
    (lab / "templates/slurm/1.sh.j2").unlink()
    assert cli("collections", "update").err == ""
    assert len(read) == 100
