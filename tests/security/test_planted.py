"""What others put where hpckit will read or write: links at its names, lock files of their own."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hpckit.collections import lockfile
from hpckit.collections.lockfile import changing, read_lock
from hpckit.collections.source import parse_source, repository
from hpckit.errors import OutsideError
from tests.conftest import Answer, write_files
from tests.unit.lab import commit, git, make_lab, make_repository, version

Cli = Callable[..., Answer]
COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def victims(here: Path) -> Callable[[Path], None]:
    """Give a function that plants a link to a file of the user's; none of them may change."""
    precious = here.parent / "home" / ".bashrc"
    precious.write_text("mine\n")
    made = []

    def plant(path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        for name, target in ((path.name, precious), (f".{path.name}.{os.getpid()}", precious)):
            path.with_name(name).symlink_to(target)
        made.append(path)

    yield plant
    assert made
    assert precious.read_text() == "mine\n"
    assert not precious.is_symlink()
    assert not precious.stat().st_mode & 0o111


def test_a_link_in_a_lock_files_place_is_not_written_through(here, cli, victims) -> None:
    lab = make_lab(here.parent / "shared")
    victims(here / "hpckit.lock")
    answer = cli("collections", "add", str(lab), "--project")
    assert (answer.status, "hpckit.lock: cannot be written: it is a link" in answer.err) == (
        3,
        True,
    )
    assert len(answer.err.splitlines()) == 1


def test_no_name_of_a_lock_file_on_its_way_can_be_guessed(here, cli, victims) -> None:
    lab = make_lab(here.parent / "shared")
    victims(here / "other")
    (here / f".hpckit.lock.{os.getpid()}").symlink_to(here.parent / "home" / ".bashrc")
    assert cli("collections", "add", str(lab), "--project").status == 0
    assert read_lock(here / "hpckit.lock")[0].name == "lab"


def test_a_link_to_nothing_makes_no_file_there(here: Path, cli: Cli) -> None:
    lab = make_lab(here.parent / "shared")
    (here / "hpckit.lock").symlink_to(here.parent / "home" / ".ssh-rc")
    assert cli("collections", "add", str(lab), "--project").status == 3
    assert not (here.parent / "home" / ".ssh-rc").exists()


def test_a_link_in_place_of_a_clones_lock_is_not_emptied(here, cli, victims) -> None:
    repo = make_repository(here.parent / "srv" / "lab")
    clone = repository(parse_source(f"file://{repo}"), here.parent / "home" / ".cache" / "hpckit")
    victims(clone.parent / "lock")
    answer = cli("collections", "add", f"file://{repo}")
    assert (answer.status, "it is a link" in answer.err) == (3, True)


def test_a_link_in_place_of_the_list_of_trusted_is_replaced(here, cli, victims) -> None:
    lab = make_lab(here.parent / "shared")
    lab.chmod(0o777)
    config = here.parent / "home" / ".config" / "hpckit"
    victims(config / "x")
    (config / f".trusted.json.{os.getpid()}").symlink_to(here.parent / "home" / ".bashrc")
    assert cli("collections", "add", str(lab), "--trust").status == 0
    assert json.loads((config / "trusted.json").read_text()) == {"trusted": [str(lab)]}


@pytest.mark.parametrize("name", ["hpckit.lock", "home/.config/hpckit/trusted.json"])
def test_a_pipe_in_place_of_a_file_holds_nothing_up(here: Path, cli: Cli, name: str) -> None:
    lab = make_lab(here.parent / "shared")
    lab.chmod(0o777)
    path = here / name if "/" not in name else here.parent / name
    path.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(path)
    answer = cli("collections", "add", str(lab), "--project", "--trust")
    assert (answer.status != 0, "not a regular file" in answer.err) == (True, True)
    assert len(answer.err.splitlines()) == 1
    assert cli("templates", "list").status in (0, 2)


def test_who_holds_the_lock_for_ever_holds_nobody_up(here: Path, monkeypatch) -> None:
    monkeypatch.setattr(lockfile, "_LOCKED_S", 0)
    lock = here / "hpckit.lock"
    with (
        changing(lock),
        pytest.raises(OutsideError, match="another command has locked it"),
        changing(lock),
    ):
        pass


GOOD: dict[str, Any] = {
    "name": "lab",
    "source": "git+https://h/x",
    "rev": "main",
    "commit": COMMIT,
    "hash": "sha256:0123456789abcdef",
    "files": {"templates/x.j2": "0123456789abcdef"},
}
BAD = {
    "a revision with lines": {"rev": "main\n#SBATCH --account=x\nrm -rf ~"},
    "a revision that is an option": {"rev": "--upload-pack=x"},
    "a revision that is a number": {"rev": 3},
    "a revision that is another commit": {"rev": COMMIT[::-1]},
    "a range": {"rev": "a..b"},
    "an owner with an escape": {"owner": "alice\x1b[2J"},
    "an owner that is an option": {"owner": "-u"},
    "an owner that is a list": {"owner": ["alice"]},
    "no hash": {"hash": ""},
    "a hash of another kind": {"hash": "md5:0123456789abcdef"},
    "a hash that is a number": {"hash": 7},
    "a file elsewhere": {"files": {"templates/../../.bashrc": "0123456789abcdef"}},
    "an absolute file": {"files": {"/etc/passwd": "0123456789abcdef"}},
    "a file that is no part": {"files": {".git/config": "0123456789abcdef"}},
    "a file with an escape": {"files": {"templates/\x1b[2J": "0123456789abcdef"}},
    "a file whose hash is none": {"files": {"templates/x": "no"}},
    "files that are a list": {"files": ["templates/x"]},
    "a file without a hash": {"files": {"templates/x": None}},
    "a commit that is a number": {"commit": 10**39},
    "a commit in capitals": {"commit": COMMIT.upper()},
    "a name that is a list": {"name": ["lab"]},
    "a source with a token": {"source": "git+https://ghp_secret@h/x"},
    "a source that is a mapping": {"source": {}},
}


@pytest.mark.parametrize("how", BAD)
def test_every_field_of_a_lock_is_what_hpckit_writes(here: Path, cli: Cli, how: str) -> None:
    write(here, GOOD)
    assert "commit 0123456789ab of git+https://h/x is not on" in cli("templates", "list").err
    write(here, {**GOOD, **BAD[how]})
    answer = cli("templates", "list")
    assert (answer.status, len(answer.err.splitlines())) == (0, 1)
    assert "is not an hpckit lock file: " in answer.err
    assert not {"\x1b", "secret"} & {*answer.err, *answer.err.split("_")}
    answer = cli("submit", "ddp", "--dry-run")
    assert (answer.status, answer.out) == (2, "")


def write(here: Path, entry: dict[str, Any]) -> None:
    write_files(here, {"hpckit.lock": json.dumps({"format": 1, "collections": [entry]})})


def test_a_branch_called_like_a_commit_is_not_that_commit(here: Path, cli: Cli) -> None:
    repo = make_repository(here.parent / "srv" / "lab")
    good = git(repo, "rev-parse", "HEAD")
    evil = commit(repo, version("evil"))
    for name in (good, good[:9]):
        git(repo, "update-ref", f"refs/heads/{name}", evil)
        git(repo, "update-ref", f"refs/tags/{name}", evil)
    assert cli("collections", "add", f"git+file://{repo}@{good}").status == 0
    (entry,) = read_lock(here.parent / "home" / ".config" / "hpckit" / "hpckit.lock")
    assert (entry.rev, entry.commit) == (good, good)
    for command in (("add", f"git+file://{repo}@{good[:9]}"), ("update", "lab", "--to", good[:9])):
        answer = cli("collections", *command)
        assert (answer.status, "Give the full name of the commit" in answer.err) == (2, True)
    # Where there is no such commit at all, a branch of that name is none either.
    git(repo, "update-ref", f"refs/heads/{COMMIT}", evil)
    answer = cli("collections", "add", f"git+file://{repo}@{COMMIT}")
    assert (answer.status, "no tag, branch or commit" in answer.err) == (2, True)
    assert cli("collections", "update", "lab", "--to", good[:12]).status == 0


def test_a_file_that_no_lock_could_name_is_refused_when_it_is_added(here: Path, cli: Cli) -> None:
    lab = make_lab(here.parent / "shared")
    (lab / "templates" / "a\nb").touch()
    answer = cli("collections", "add", str(lab))
    assert (answer.status, len(answer.err.splitlines())) == (2, 1)
    assert "has a sign that is not printable, or is not UTF-8. Rename the file" in answer.err
