"""Split indexes of git, read as git itself reads them."""

import random
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from hpckit.files import DamagedFileError
from hpckit.gitfiles.index import read_index
from hpckit.gitfiles.split_index import read_link
from tests.unit.checkouts import commit, git


def listed(root: Path) -> list[str]:
    return git(root, "ls-files", "--stage", "-z").split("\0")[:-1]


def width(root: Path) -> int:
    return len(git(root, "rev-parse", "HEAD").strip()) // 2


def read(root: Path) -> list[str]:
    return [
        f"{row.mode:06o} {row.blob.hex()} {row.stage}\t{row.path.decode()}"
        for row in read_index(root / ".git" / "index", width(root)).entries
    ]


@pytest.fixture(params=["2 sha1", "4 sha1", "4 sha256"])
def root(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a checkout of 150 files, of which the index has a shared part."""
    version, kind = request.param.split()
    monkeypatch.setenv("GIT_DEFAULT_HASH", kind)
    root = tmp_path / "project"
    (root / "deep" / "er").mkdir(parents=True)
    git(root, "init", "-q")
    for name, value in (
        ("core.splitIndex", "true"),
        ("splitIndex.maxPercentChange", "100"),
        ("index.version", version),
    ):
        git(root, "config", name, value)
    for number in range(150):
        folder = ("", "deep", "deep/er")[number % 3]
        (root / folder / f"f{number}.py").write_text(f"{number}\n")
    commit(root)
    git(root, "update-index", "--split-index")
    assert [*(root / ".git").glob("sharedindex.*")]
    return root


def conflict(root: Path) -> None:
    git(root, "checkout", "-qb", "side")
    (root / "f0.py").write_text("side\n")
    commit(root)
    git(root, "checkout", "-q", "main")
    (root / "f0.py").write_text("main\n")
    commit(root)
    git(root, "merge", "side")
    assert sum("\tf0.py" in row for row in listed(root)) == 3


def settled(root: Path) -> None:
    conflict(root)
    git(root, "update-index", "--split-index")  # the stages are shared
    (root / "f0.py").write_text("both\n")
    git(root, "add", "f0.py")


def a_folder_in_a_files_place(root: Path) -> None:
    (root / "f0.py").unlink()
    (root / "f0.py").mkdir()
    (root / "f0.py" / "inner.py").write_text("")
    git(root, "add", "-A")


def many_gone(root: Path) -> None:
    """Delete 100 in a row: words of ones, which a bitmap writes as a number."""
    names = [row.partition("\t")[2] for row in listed(root)]
    git(root, "rm", "-q", "--cached", *names[10:149])


def others(root: Path) -> None:
    (root / "new").write_text("")
    git(root, "add", "-N", "new")
    git(root, "update-index", "--chmod=+x", "f0.py")
    git(root, "update-index", "--skip-worktree", "f3.py")
    git(root, "rm", "-q", "--cached", "f6.py")


STATES: dict[str, Callable[[Path], object]] = {
    "all is shared": lambda _root: None,
    "a merge": conflict,
    "a settled merge": settled,
    "a folder": a_folder_in_a_files_place,
    "many gone": many_gone,
    "all gone": lambda root: git(root, "rm", "-rq", "--cached", "."),
    "flags": others,
    "whole again": lambda root: git(root, "update-index", "--no-split-index"),
}


@pytest.mark.parametrize("state", STATES)
def test_a_split_index_has_the_files_that_git_lists(root: Path, state: str) -> None:
    STATES[state](root)
    assert read(root) == listed(root)
    if state == "flags":
        marked = {row.path: (row.skipped, row.intended) for row in read_index(
            root / ".git" / "index", width(root)).entries}  # fmt: skip
        assert (marked[b"new"], marked[b"f3.py"]) == ((False, True), (True, False))


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_so_it_is_after_any_changes(root: Path, seed: int) -> None:
    chance = random.Random(seed)
    for step in range(12):
        names = [row.partition("\t")[2] for row in listed(root)]
        some = chance.sample(names, min(len(names), chance.choice([1, 3, 40])))
        kind = chance.randrange(5)
        if kind == 0:
            git(root, "rm", "-q", "-f", *some)
        elif kind == 1:
            for name in some:
                (root / name).write_text(f"{step}\n")
            git(root, "add", "--", *some)
        elif kind == 2:
            (root / f"n{step}.py").write_text(f"{step}\n")
            git(root, "add", "--", f"n{step}.py")
        elif kind == 3:
            git(root, "mv", some[0], f"m{step}.py")
        else:
            git(root, "commit", "-qm", "x")
        found = read_index(root / ".git" / "index", width(root))
        assert read(root) == listed(root)
        assert found.tree in (None, git(root, "write-tree").strip())
        assert b"link" in (root / ".git" / "index").read_bytes()


def test_a_shared_part_that_is_missing_or_another_is_named(root: Path) -> None:
    shared = next((root / ".git").glob("sharedindex.*"))
    whole = shared.read_bytes()
    shared.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(DamagedFileError, match=rf"{shared.name} is another; `git status`"):
        read_index(root / ".git" / "index", width(root))
    shared.unlink()
    with pytest.raises(DamagedFileError, match=rf"{shared.name} is missing; `git status`"):
        read_index(root / ".git" / "index", width(root))


def bitmap(*words: int) -> bytes:
    return struct.pack(f">II{len(words)}QI", 0, len(words), *words, 0)


def test_bitmaps_are_read_to_their_last_bit_and_bounded() -> None:
    ones, one_word = (2 << 1) | 1, 1 << 33
    shared = b"x" * 20
    found = read_link(shared + bitmap(ones) + bitmap(one_word, 1 << 63 | 1), 1000, 20)
    assert (found.deleted, found.replaced) == (tuple(range(128)), (0, 63))
    assert read_link(bytes(20), 10, 20).shared is None
    endless = 1 | 0xFFFF_FFFF << 1
    with pytest.raises(ValueError, match="what this cannot have"):
        read_link(shared + bitmap(endless) + bitmap(), 1000, 20)
    with pytest.raises(struct.error):
        read_link(shared + struct.pack(">II", 64, 2**32 - 1), 1000, 20)
