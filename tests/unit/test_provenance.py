"""The commit and the dirty flag, compared with git's own answers in many states of a checkout."""

import os
import shutil
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpckit.gitfiles import code_version
from hpckit.gitfiles.index import read_index, tree_of
from hpckit.gitfiles.repository import find_repository, id_bytes
from tests.unit.checkouts import STATES, commit, edit, git, make_checkout


@pytest.fixture(scope="module")
def clean(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Path]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GIT_DEFAULT_HASH", getattr(request, "param", "sha1"))
        yield make_checkout(tmp_path_factory.mktemp("git") / "clean")


HASHES = pytest.mark.parametrize("clean", ["sha1", "sha256"], indirect=True)


@pytest.fixture
def root(clean: Path, tmp_path: Path) -> Path:
    shutil.copytree(clean, tmp_path / "project", symlinks=True)
    git(tmp_path / "project", "status")  # so that the index knows the copies
    return tmp_path / "project"


def read(root: Path) -> dict:
    found = code_version(root / "train.py")
    assert found is not None
    return found


@HASHES
@pytest.mark.parametrize("state", STATES)
def test_a_checkout_reads_as_git_reads_it(root: Path, state: str) -> None:
    place = STATES[state](root) or root
    found = read(place)
    lines = git(place, "status", "--porcelain=v2", "--branch", "-uno").splitlines()
    heads = dict(line[2:].split(" ", 1) for line in lines if line.startswith("# branch."))
    oid = heads["branch.oid"]
    assert found == {
        "commit": None if oid == "(initial)" else oid,
        "branch": heads["branch.head"],
        "dirty": any(not line.startswith("#") for line in lines),
    }


def test_an_untracked_script_is_a_change_and_other_untracked_files_are_none(root: Path) -> None:
    """No commit has it, so none is what ran."""
    (root / "sub").mkdir()
    (root / "sub" / "new.py").touch()
    assert read(root)["dirty"] is False
    (root.parent / "link").symlink_to(root)
    for path in (root / "sub" / "new.py", root / "sub" / ".." / "sub" / "new.py",
                 root.parent / "link" / "sub" / "new.py"):  # fmt: skip
        assert (code_version(path) or {})["dirty"] is True
    for path in (root.parent / "link" / "train.py", root / "sub" / ".." / "train.py",
                 root / "gone.py", root):  # fmt: skip
        assert (code_version(path) or {"dirty": False})["dirty"] is False
    git(root, "add", "sub")
    git(root, "commit", "-qm", "new")
    assert (code_version(root / "sub" / "new.py") or {})["dirty"] is False


@HASHES
def test_the_tree_that_git_has_written_down_is_that_of_all_files(root: Path) -> None:
    repository = find_repository(root)
    assert repository
    width = id_bytes(repository)
    index = read_index(root / ".git" / "index", width)
    assert (
        index.tree == tree_of(index.entries, width) == git(root, "rev-parse", "HEAD^{tree}").strip()
    )
    edit(root)
    git(root, "add", "train.py")  # which takes it back
    index = read_index(root / ".git" / "index", width)
    assert index.tree is None
    assert tree_of(index.entries, width) == git(root, "write-tree").strip()


def test_an_edit_that_keeps_size_and_time_is_seen(root: Path) -> None:
    """git itself compares times to the second only, as most builds of it do."""
    was = (root / "train.py").stat()
    edit(root)
    os.utime(root / "train.py", ns=(was.st_atime_ns, was.st_mtime_ns))
    assert read(root)["dirty"] is True


@HASHES
def test_differences_in_packs_were_among_them(root: Path) -> None:
    STATES["differences in a pack"](root)
    [pack] = (root / ".git" / "objects" / "pack").glob("*.idx")
    rows = [line.split() for line in git(root, "verify-pack", "-v", str(pack)).splitlines()]
    assert any(len(row) == 7 and row[1] == "commit" for row in rows)


def test_outside_git_and_in_a_bare_repository_there_is_no_version(root: Path) -> None:
    assert code_version(root.parent / "train.py") is None
    git(root.parent, "clone", "--quiet", "--bare", str(root), "bare")
    assert code_version(root.parent / "bare" / "train.py") is None


# --- unknown, and why; never guessed ---


def _filtered(root: Path) -> None:
    edit(root, ".gitattributes", "*.PY filter=lfs\n")
    git(root, "-c", "filter.lfs.clean=tr 2 1", "add", "--all")
    commit(root)
    edit(root)


def _line_ends_of_another(root: Path) -> None:
    edit(root, "a/.gitattributes", "c.txt text\n")
    commit(root)
    (root / "a" / "b" / "c.txt").write_bytes(b"c\r\n")


def _other_hash(root: Path) -> None:
    git(root, "config", "extensions.objectFormat", "sha3")


def _reftable(root: Path) -> None:
    (root / ".git" / "HEAD").write_text("ref: refs/heads/.invalid\n")


def _no_commit(root: Path) -> None:
    shutil.rmtree(root / ".git" / "objects")


def _index(content: bytes):
    def make(root: Path) -> None:
        (root / ".git" / "index").write_bytes(content)

    return make


def _entry(path: bytes, version: int = 2) -> bytes:
    return struct.pack(">4sII10I20sH", b"DIRC", version, 1, *[0] * 10, b"", 0) + path + b"\0" * 8


def _large_commit(root: Path) -> None:
    name = git(root, "rev-parse", "HEAD").strip()
    path = root / ".git" / "objects" / name[:2] / name[2:]
    path.unlink()
    path.write_bytes(zlib.compress(b"commit 9\0" + bytes(2**25)))


def _pipe(name: str):
    def make(root: Path) -> None:
        (root / ".git" / name).unlink(missing_ok=True)
        os.mkfifo(root / ".git" / name)

    return make


def _sparse_with_files(root: Path) -> None:
    git(root, "sparse-checkout", "set", "--cone", "--sparse-index", "elsewhere")
    (root / "a" / "b").mkdir(parents=True)
    (root / "a" / "b" / "mine.txt").write_text("not as in the commit\n")


UNKNOWN = {
    "files in what is left out": (_sparse_with_files, "its sparse checkout leaves out 'a/'"),
    "a filter": (_filtered, "git converts 'train.py' by attributes or filters"),
    "line ends": (_line_ends_of_another, "git converts 'a/b/c.txt'"),
    "an index of a newer git": (
        _index(b"DIRC" + struct.pack(">II", 2, 0) + b"newx" + bytes(24)),
        "extension 'newx' of a",
    ),
    "a shared index that is missing": (
        _index(b"DIRC" + struct.pack(">II", 2, 0) + b"link\0\0\0\x14" + b"x" * 40),
        f"sharedindex.{'78' * 20} is missing",
    ),
    "garbage": (_index(b"garbage"), "it is cut off; `git status` says more"),
    "more garbage": (_index(b"garbage, and more of it"), "it does not begin with DIRC"),
    "another hash": (_other_hash, "its objects are of the kind 'sha3', which hpckit does not read"),
    "reftable": (_reftable, "its HEAD names no branch or commit"),
    "objects gone": (_no_commit, "is not among its objects"),
    "a huge commit": (_large_commit, "its commit has over"),
    "a huge index": (_index(b"DIRC" + struct.pack(">II", 2, 2**31)), "over the 50000 looked at"),
    "an index cut off": (_index(b"DIRC" + struct.pack(">II", 2, 5)), "not as git writes it"),
    "an empty index": (_index(b""), "not as git writes it"),
    "an index of the future": (_index(b"DIRC" + struct.pack(">II", 9, 5)), "of version 9"),
    "a path that leads out": (_index(_entry(b"a/../../x")), "leads out"),
    "a path of the root": (_index(_entry(b"/etc/passwd")), "leads out"),
    "a path cut too far": (_index(_entry(b"\x80\x80\x80x", 4)), "cut by more than it has"),
    "HEAD a pipe": (_pipe("HEAD"), "not a regular file"),
    "index a pipe": (_pipe("index"), "not a regular file"),
    "config a pipe": (_pipe("config"), "not a regular file"),
}


@pytest.mark.parametrize("state", UNKNOWN)
def test_what_cannot_be_known_is_none_and_says_why(root: Path, state: str) -> None:
    make, why = UNKNOWN[state]
    make(root)
    found = read(root)
    assert found["dirty"] is None
    assert why in found["unknown"]


def test_marks_that_hide_a_file_from_git_do_not_hide_its_content(root: Path) -> None:
    for mark in ("--assume-unchanged", "--skip-worktree"):
        git(root, "update-index", mark, "train.py")
        assert read(root)["dirty"] is False
        was = (root / "train.py").read_text()
        edit(root)
        assert git(root, "status", "--porcelain", "-uno") == ""
        assert read(root)["dirty"] is True
        (root / "train.py").unlink()
        # What a sparse checkout leaves out is not removed.
        assert read(root)["dirty"] is (mark == "--assume-unchanged")
        git(root, "update-index", mark.replace("--", "--no-"), "train.py")
        (root / "train.py").write_text(was)
        git(root, "status")


def test_a_file_changed_for_certain_counts_beside_one_that_is_unknown(root: Path) -> None:
    _filtered(root)
    (root / "run.sh").write_text("#!/bin/sh\nexit\n")
    assert read(root)["dirty"] is True


def test_a_filter_for_other_files_makes_nothing_unknown(root: Path) -> None:
    edit(root, ".gitattributes", "*.bin filter=lfs diff=lfs merge=lfs -text\n")
    commit(root)
    edit(root)
    assert read(root)["dirty"] is True
