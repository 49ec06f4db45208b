"""How the files of a project are kept: `hpckit.code`."""

import json
import multiprocessing
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pytest

from hpckit.code import making
from hpckit.code.difference import compare, unified
from hpckit.code.files import Found, find_files
from hpckit.code.ignore import patterns
from hpckit.code.project import project_of
from hpckit.code.store import Store
from hpckit.code.tree import Tree, is_intact, read_manifest, read_tree, tree_name, verify
from hpckit.collections.collection import CodeRules
from hpckit.errors import OutsideError
from hpckit.files import DamagedFileError
from tests.unit.checkouts import git
from tests.unit.projects import PATHS, found_in, names, work_tree, write


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return an empty work tree."""
    return work_tree(tmp_path)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    (tmp_path / "runs").mkdir()
    return Store(tmp_path / "runs")


def keep(store: Store, found: Found) -> Tree:
    with store.shared():
        return store.keep(found)


def test_links_are_kept_inside_and_never_followed_outside(
    root: Path, tmp_path: Path, store: Store
) -> None:
    write(root, "data/a.txt", "train.py")
    write(tmp_path, "elsewhere/big.bin", "secret.txt")
    (root / "inside").symlink_to("data/a.txt")
    (root / "data" / "whole").symlink_to(root / "train.py")
    (root / "out").symlink_to(tmp_path / "elsewhere")
    (root / "file").symlink_to("../secret.txt")
    os.mkfifo(root / "pipe")
    found = found_in(root)
    assert names(found) == {"data/a.txt", "train.py", "inside", "data/whole"}
    assert (found.outward, found.odd) == (["file", "out"], ["pipe"])
    top = keep(store, found).path / "project"
    assert os.readlink(top / "data" / "whole") == "../train.py"
    assert (top / "inside").resolve() == top / "data" / "a.txt"
    # What is left out is found where it lies, and is not copied.
    assert os.readlink(top / "out") == str(root / "out")
    assert (top / "file").read_text() == "text of secret.txt\n"


def test_the_same_files_are_the_same_tree_without_new_space(root: Path, store: Store) -> None:
    write(root, "train.py", "lib/a.py", "lib/b.py", "copy.py")
    (root / "copy.py").write_text("text of train.py\n")
    (root / "train.py").chmod(0o755)
    first = keep(store, found_in(root))
    assert first.made
    again = keep(store, found_in(root))
    assert (again.path, again.made) == (first.path, False)
    (root / "lib" / "a.py").write_text("another\n")
    other = keep(store, found_in(root))
    assert other.path != first.path
    assert (other.path / "project/lib/b.py").samefile(first.path / "project/lib/b.py")
    assert (first.path / "project/lib/a.py").read_text() == "text of lib/a.py\n"
    assert read_tree(first.path).manifest.text() == first.manifest.text()
    assert (first.manifest.bytes, len(first.manifest.files)) == (2 * 17 + 2 * 17, 4)


def test_nothing_in_a_tree_can_be_written_and_no_mode_is_wider(root: Path, store: Store) -> None:
    write(root, "train.py", "run.sh", "own.py", "closed/a.py")
    (root / "run.sh").chmod(0o755)
    (root / "own.py").chmod(0o600)
    (root / "closed").chmod(0o700)
    top = keep(store, found_in(root)).path
    modes = {
        str(path.relative_to(top)): stat.S_IMODE(path.lstat().st_mode) for path in top.rglob("*")
    }
    assert not any(mode & 0o222 for mode in [*modes.values(), stat.S_IMODE(top.lstat().st_mode)])
    closed = ("project/own.py", "project/closed", "project/closed/a.py")
    assert all(modes[name] & 0o077 == 0 for name in closed)
    assert modes["project/run.sh"] & 0o100
    everybody = all(folder.stat().st_mode & 0o001 for folder in root.parents)
    assert modes["project/train.py"] == (0o444 if everybody else 0o400)


def test_an_edit_that_keeps_size_and_time_is_seen(root: Path, store: Store) -> None:
    write(root, "train.py")
    past = time.time_ns() - 10**10
    os.utime(root / "train.py", ns=(past, past))
    first = keep(store, found_in(root))
    (root / "train.py").write_text("TEXT of train.py\n")
    os.utime(root / "train.py", ns=(past, past))
    assert keep(store, found_in(root)).path != first.path


def test_what_is_known_of_files_is_not_read_again(
    root: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(root, *PATHS)
    read: list[str] = []
    put = making.Maker._put

    def counted(self: making.Maker, path: str, mode: int) -> tuple[str, int, str]:
        read.append(path)
        return put(self, path, mode)

    monkeypatch.setattr(making.Maker, "_put", counted)
    monkeypatch.setattr(making, "_RACY_NS", 10**15)
    keep(store, found_in(root))
    keep(store, found_in(root))
    assert len(read) == 2 * len(PATHS)  # changed a moment ago: not believed
    monkeypatch.setattr(making, "_RACY_NS", -(10**15))
    keep(store, found_in(root))
    del read[:]
    keep(store, found_in(root))
    assert read == []
    shutil.rmtree(store.path / "objects")  # all that is kept but the trees
    (root / "a.py").write_text("new\n")
    tree = keep(store, found_in(root))
    verify(tree)


def test_a_tree_that_was_changed_is_made_anew(root: Path, store: Store) -> None:
    write(root, "train.py", "lib/a.py")
    tree = keep(store, found_in(root))
    place = tree.path / "project" / "lib" / "a.py"
    place.chmod(0o644)
    place.write_text("TEXT OF lib/a.py\n")  # also in the object
    with pytest.raises(DamagedFileError, match=r"lib/a\.py is not what was kept"):
        verify(tree)
    again = keep(store, found_in(root))
    assert (again.path, again.made) == (tree.path, True)
    verify(again)
    place.parent.chmod(0o755)
    (place.parent / "planted.py").write_text("")
    place.parent.chmod(0o555)
    assert keep(store, found_in(root)).made
    assert not (place.parent / "planted.py").exists()


_KEEPER = """\
import os, signal, sys
from pathlib import Path
from hpckit.code import making
from hpckit.code.files import find_files
from hpckit.code.project import project_of
from hpckit.code.store import Store
from hpckit.collections.collection import CodeRules
calls, last = 0, int(sys.argv[3])
def watch(frame, event, arg):
    global calls
    calls += event == "c_call" and getattr(arg, "__module__", "") == "posix"
    if calls == last:
        os.kill(os.getpid(), signal.SIGKILL)
root = Path(sys.argv[1])
store = Store(Path(sys.argv[2]))
found = find_files(project_of(root / "train.py", root), CodeRules())
sys.setprofile(watch)
with store.shared():
    tree = store.keep(found)
sys.setprofile(None)
print(tree.path)
"""


@pytest.mark.long
def test_a_kill_at_any_moment_leaves_no_torn_tree(root: Path, store: Store) -> None:
    write(root, "train.py", "lib/a.py", "lib/b.py")
    killed, at = 0, 1
    while True:
        argv = [sys.executable, "-c", _KEEPER, str(root), str(store.path.parent), str(at)]
        done = subprocess.run(argv, capture_output=True, text=True)
        for path in store.trees.iterdir() if store.trees.is_dir() else ():
            verify(read_tree(path))  # whatever has a tree's name is whole
        if done.returncode == 0:
            break
        assert done.returncode == -signal.SIGKILL, done.stderr
        killed, at = killed + 1, at + 1 + at // 6
    assert killed > 5
    tree = keep(store, found_in(root))
    verify(tree)
    assert store.remove(lambda: {tree.name}) == 0
    assert [*(store.path / "tmp").iterdir()] == []  # what kills left is swept


def _kept_by(root: Path, runs: Path, start: "multiprocessing.synchronize.Barrier") -> None:
    start.wait()
    tree = keep(Store(runs), found_in(root))
    verify(tree)


@pytest.mark.long
def test_two_at_once_share_one_tree(root: Path, store: Store) -> None:
    write(root, *(f"d{number % 7}/f{number}.py" for number in range(200)))
    several = multiprocessing.get_context("fork")
    start = several.Barrier(3)
    rows = [
        several.Process(target=_kept_by, args=(root, store.path.parent, start)) for _ in range(3)
    ]
    for row in rows:
        row.start()
    for row in rows:
        row.join()
    assert [row.exitcode for row in rows] == [0, 0, 0]
    assert len([*store.trees.iterdir()]) == 1
    assert [*(store.path / "tmp").iterdir()] == []


@pytest.mark.parametrize("gone", [("tmp",), ("objects", "seen", "bytecode", "tmp", "lock")])
def test_what_rm_has_begun_is_removed(root: Path, store: Store, gone: tuple[str, ...]) -> None:
    write(root, "train.py", "lib/a.py")
    keep(store, found_in(root))
    # `rm -r` of a folder of runs stops at the read-only trees, and removes all beside them.
    for name in gone:
        path = store.path / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert store.remove(set)
    assert not store.path.exists()


def test_a_full_disk_leaves_nothing(root: Path, store: Store, monkeypatch) -> None:
    write(root, "train.py", "lib/a.py")

    def full(_folder: Path, _paths: list[str]) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(making, "sync", full)
    with pytest.raises(OSError, match="No space"):
        keep(store, found_in(root))
    assert [*store.trees.iterdir()] == [*(store.path / "tmp").iterdir()] == []


def test_without_hard_links_files_are_copied(root: Path, store: Store, monkeypatch) -> None:
    write(root, "train.py", "lib/a.py")

    def refused(*_args: object, **_words: object) -> None:
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(making.os, "link", refused)
    tree = keep(store, found_in(root))
    assert (tree.made, tree.copied) == (True, True)
    verify(tree)
    assert not keep(store, found_in(root)).made


def test_an_unreadable_file_is_named(root: Path, store: Store, monkeypatch) -> None:
    write(root, "train.py")
    real = os.open

    def closed(path: object, *args: int, **words: int) -> int:
        if str(path).endswith("train.py"):
            raise PermissionError(13, "Permission denied", path)
        return real(path, *args, **words)

    monkeypatch.setattr(making.os, "open", closed)
    with pytest.raises(OutsideError, match=r"train\.py' is part of the code and cannot be read"):
        keep(store, found_in(root))


def vanishing(monkeypatch: pytest.MonkeyPatch, root: Path, *gone: str) -> None:
    """Let another program remove files and folders between the list of the root and the rest."""
    real = os.scandir

    def listed(path: str) -> AbstractContextManager[Iterator[os.DirEntry[str]]]:
        if path != f"{root}/":
            return real(path)
        with real(path) as found:
            entries = [*found]
        for name in gone:
            place = root / name
            shutil.rmtree(place) if place.is_dir() else place.unlink()
        return nullcontext(iter(entries))

    monkeypatch.setattr("hpckit.code.files.os.scandir", listed)


def test_what_others_remove_meanwhile_was_never_there(
    root: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(root, "train.py", "module.py", "part.tmp", "work/one.tmp", "later.tmp")
    git(root, "add", "train.py", "module.py")
    with monkeypatch.context() as patch:
        vanishing(patch, root, "part.tmp", "work")
        found = found_in(root)
    assert names(found) == {"train.py", "module.py", "later.tmp"}
    (root / "later.tmp").unlink()
    tree = keep(store, found)
    assert {row.path for row in tree.manifest.files} == {"project/train.py", "project/module.py"}


@pytest.mark.parametrize("needed", ["train.py", "module.py", "lib"])
def test_the_program_and_what_git_tracks_may_not_be_gone(
    root: Path, store: Store, monkeypatch: pytest.MonkeyPatch, needed: str
) -> None:
    write(root, "train.py", "module.py", "lib/a.py")
    git(root, "add", "module.py", "lib")
    found = found_in(root)
    vanishing(monkeypatch, root, needed)
    with pytest.raises(OutsideError, match="is part of the code and cannot be read"):
        found_in(root)
    with pytest.raises(OutsideError, match="is part of the code and cannot be read"):
        keep(store, found)


def test_what_no_run_needs_goes_and_the_rest_stays(root: Path, store: Store) -> None:
    write(root, "train.py", "same.py")
    (root / "big.bin").write_bytes(os.urandom(200_000))
    first = keep(store, found_in(root))
    (root / "big.bin").write_bytes(b"small")
    second = keep(store, found_in(root))
    found = store.unneeded(lambda: {second.name})
    assert found
    assert [*found.trees] == [first.path]
    assert 200_000 <= found.size < 250_000
    with store.shared():
        assert store.remove(lambda: {second.name}) is None  # somebody submits
    assert store.remove(lambda: {second.name}) == found.size
    verify(second)
    assert not first.path.exists()
    assert len([*(store.path / "objects").rglob("*.*")]) == 3
    assert store.remove(set)
    assert not store.path.exists()


def test_what_runs_need_is_asked_while_nobody_can_submit(
    root: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(root, "train.py")
    tree = keep(store, found_in(root))
    monkeypatch.setattr("hpckit.code.store._PATIENCE_S", 0.0)
    asked = []

    def needed() -> set[str]:
        with pytest.raises(OutsideError, match="hpckit clean has been at work"):
            keep(store, found_in(root))
        asked.append(tree.name)
        return {tree.name}

    found = store.unneeded(needed)
    assert found
    assert (found.trees, found.rest) == ((), False)
    assert store.remove(needed) == 0
    assert asked == [tree.name] * 2
    verify(tree)


def test_the_difference_is_told_by_names_and_by_lines(root: Path, store: Store) -> None:
    write(root, "a.py", "b.py", "gone.py", "same.py", "run.sh", "bin.dat")
    (root / "bin.dat").write_bytes(b"\0\1")
    tree = keep(store, found_in(root))
    assert not compare(tree, "project", found_in(root))
    (root / "a.py").write_text("other\ntext")
    (root / "gone.py").unlink()
    (root / "run.sh").chmod(0o755)
    (root / "bin.dat").write_bytes(b"\0\2")
    write(root, "new.py")
    found = compare(tree, "project", found_in(root))
    assert found.lines() == [
        "changed: a.py, bin.dat, run.sh", "added: new.py", "removed: gone.py",
    ]  # fmt: skip
    assert list(unified(tree, "project", root, found)) == [
        "--- kept/a.py", "+++ now/a.py", "@@ -1 +1,2 @@", "-text of a.py", "+other", "+text",
        "\\ No newline at end of file",
        "File bin.dat differs (binary, a link, or large)",
        "--- kept/gone.py", "+++ /dev/null", "@@ -1 +0,0 @@", "-text of gone.py",
        "--- /dev/null", "+++ now/new.py", "@@ -0,0 +1 @@", "+text of new.py",
        "File run.sh differs in whether it may be started",
    ]  # fmt: skip


def test_a_tree_of_another_folder_of_runs_is_believed_by_its_hashes(
    root: Path, store: Store, tmp_path: Path
) -> None:
    write(root, "train.py", "lib/a.py")
    tree = keep(store, found_in(root))
    (tmp_path / "others").mkdir()
    other = Store(tmp_path / "others")
    with other.shared():
        copy = other.adopt(tree)
    assert (copy.name, copy.path.parent) == (tree.name, other.trees)
    verify(copy)
    place = tree.path / "project" / "train.py"
    place.chmod(0o644)
    place.write_text("planted\n")
    with other.shared(), pytest.raises(DamagedFileError):
        other.adopt(tree)
    assert patterns(()) is None


def around(tmp_path: Path, store: Store) -> Tree:
    """Keep a program outside git, with what lies over it."""
    write(tmp_path, "p/tools/train.py", "p/data/a")
    project = project_of(tmp_path / "p/tools/train.py", tmp_path)
    assert project is not None
    return keep(store, find_files(project, CodeRules()))


def test_a_tree_of_another_brings_no_link_but_into_its_folders(
    tmp_path: Path, store: Store
) -> None:
    tree = around(tmp_path, store)
    tree.path.chmod(0o755)
    (tree.path / "planted").symlink_to("/etc")
    links = dict(making.added_links(tree))
    assert not [path for path in links if path.startswith("/")]  # that is no path in a tree
    (tmp_path / "others").mkdir()
    other = Store(tmp_path / "others")
    with other.shared():
        copy = other.adopt(tree)
    assert {*os.listdir(copy.path)} == {*os.listdir(tree.path)} - {"planted"}
    (over,) = copy.path.rglob("p")
    assert (over / "data").readlink() == tmp_path / "p/data"


def test_a_tree_made_anew_for_the_same_code_leads_to_what_is_not_kept(
    tmp_path: Path, store: Store
) -> None:
    """A job of root has written into its copy: times tell of a change, and hashes of none."""
    tree = around(tmp_path, store)
    (over,) = tree.path.rglob("p")
    (over / "tools").chmod(0o700)
    (over / "tools" / "out").mkdir()
    assert not is_intact(tree)
    with store.shared():
        again = store.adopt(tree)
    assert again.made
    assert is_intact(again)
    assert not (over / "tools" / "out").exists()
    assert (over / "data").readlink() == tmp_path / "p/data"


def test_a_tree_of_another_is_taken_where_a_folder_over_it_cannot_be_listed(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = around(tmp_path, store)
    (over,) = tree.path.rglob("p")
    real = os.scandir

    def scandir(path: Path) -> object:
        if path == over:
            raise PermissionError(13, "Permission denied")
        return real(path)

    monkeypatch.setattr(making.os, "scandir", scandir)
    (tmp_path / "others").mkdir()
    other = Store(tmp_path / "others")
    with other.shared():
        copy = other.adopt(tree)
    assert [path.name for path in copy.path.rglob("train.py")] == ["train.py"]


def test_a_tree_whose_folder_is_a_link_now_is_not_taken(tmp_path: Path, store: Store) -> None:
    tree = around(tmp_path, store)
    (over,) = tree.path.rglob("p")
    over.parent.chmod(0o700)
    over.rename(tmp_path / "moved")
    over.symlink_to(tmp_path / "moved")
    with pytest.raises(DamagedFileError, match="p is not what was kept"):
        verify(tree)


@pytest.mark.parametrize(
    ("old", "new"),
    [("file", "666 "), ("folder", 0o777), ("folder", 0o4755), ("root", "../../x"), ("root", "/")],
)
def test_a_list_of_a_tree_asks_for_nothing_that_hpckit_does_not(
    tmp_path: Path, store: Store, old: str, new: str | int
) -> None:
    said = json.loads(around(tmp_path, store).manifest.text())
    if old == "file":
        said["files"][0] = f"{new}{said['files'][0].partition(' ')[2]}"
    elif old == "folder":
        said["folders"][1][1] = new
    else:
        said["roots"][0][0] = new
    text = json.dumps(said)
    with pytest.raises(DamagedFileError, match=r"read-only|leads out"):
        read_manifest(text, tree_name(text))


def test_links_added_at_once_leave_each_folder_its_mode(tmp_path: Path, store: Store) -> None:
    tree = around(tmp_path, store)
    (over,) = tree.path.rglob("p")
    mode = stat.S_IMODE(over.stat().st_mode)
    over.chmod(0o700)  # another submission is adding its own at this moment
    (tmp_path / "p/later").touch()
    again = around(tmp_path, store)
    assert again.path == tree.path
    assert (over / "later").is_symlink()
    assert stat.S_IMODE(over.stat().st_mode) == mode
