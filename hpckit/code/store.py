"""Kept code under a folder of runs: each content once, and trees of hard links to these.

    RUNS/.code/objects/ab/cd….444     a file's content, under its hash and its mode
              /trees/NAME/PROJECT/…   a tree; NAME is the hash of its list, .manifest.json in it
              /seen/…                 what each file of a project was when it was hashed last
              /bytecode/…             of Python's modules, under their hashes; jobs write it
              /tmp/…                  what is being made; only a rename makes a tree of it
              /lock                   shared by who submits, exclusive for who cleans

All is read-only, and has one time of change: who changes something all the same is seen.
"""

import os
import shlex
import shutil
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path

from hpckit.code.files import Found
from hpckit.code.making import Maker, add_links, added_links, manifest_of
from hpckit.code.tree import Manifest, Tree, is_intact, tree_name, verify
from hpckit.errors import OutsideError
from hpckit.file_locks import locked
from hpckit.frozen import frozen
from hpckit.owners import is_mine_alone

FOLDER = ".code"
_PATIENCE_S = 60.0
# Where the file system knows no locks, what is as young may be in the making.
_YOUNG_S = 86_400.0
_PARTS = (
    ("objects", 0o700), ("trees", 0o755), ("seen", 0o700), ("bytecode", 0o700), ("tmp", 0o700),
)  # fmt: skip


@frozen(kw_only=True)
class Unneeded:
    """What no run needs: trees, and the bytes on the disk that go with them.

    `rest`: there is something else to remove, what a kill left half-made or a store without trees.
    """

    trees: tuple[Path, ...]
    size: int
    rest: bool


class Store:
    """The kept code of one folder of runs, of this user."""

    def __init__(self, runs: Path) -> None:
        self.path = runs / FOLDER
        with suppress(OSError):
            if self.path.lstat().st_uid != os.getuid():  # many share this folder of runs
                self.path = runs / f"{FOLDER}.{os.getuid()}"

    @property
    def trees(self) -> Path:
        """The folder of all trees."""
        return self.path / "trees"

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Keep `hpckit clean` out, until a run says which tree it needs.

        Raises:
            OutsideError: others may write there, or hpckit clean has been at work for a minute.
            OSError: nothing can be written.
        """
        self._make()
        with ExitStack() as stack:
            try:
                held = stack.enter_context(self._locked(shared=True))
            except FileNotFoundError:  # hpckit clean has removed all in this moment
                self._make()
                held = stack.enter_context(self._locked(shared=True))
            if held is False:
                raise OutsideError(
                    f"hpckit clean has been at work in {self.path} for a minute. Try again later."
                )
            self._make()  # it may have removed all
            yield

    def _locked(self, *, shared: bool) -> AbstractContextManager[bool | None]:
        return locked(self.path / "lock", shared=shared, patience_s=_PATIENCE_S if shared else 0)

    def _make(self) -> None:
        self.path.mkdir(mode=0o755, exist_ok=True)
        status = self.path.lstat()
        if not stat.S_ISDIR(status.st_mode) or not is_mine_alone(self.path, status):
            raise OutsideError(
                f"{self.path} is not a folder that you alone can write: others could put another "
                f"code in place of yours. Say chmod go-w {shlex.quote(str(self.path))}, or submit "
                "without a copy of the code: --no-code."
            )
        for name, mode in _PARTS:
            (self.path / name).mkdir(mode=mode, exist_ok=True)

    @contextmanager
    def _work(self) -> Iterator[Path]:
        work = self.path / "tmp" / f"{os.getpid()}-{os.urandom(6).hex()}"
        work.mkdir(mode=0o700)
        try:
            yield work
        finally:
            remove_all(work)

    def keep(self, found: Found) -> Tree:
        """Keep the files of a project; the same files as before are the same tree.

        Raises:
            OSError: something cannot be written. OutsideError: a file cannot be read.
        """
        name, root = found.project.name, found.project.root
        with self._work() as work:
            maker = Maker(self.path / "objects", self.path / "seen", work)
            rows = maker.hashed(found)
            maker.put_in_place()
            source = {f"{name}/{row.path}": f"{root}/{row.path}" for row in found.files}
            tree = self._whole(maker, manifest_of(found, rows), source)
        add_links(tree, [(f"{name}/{path}", root / path) for path in found.lasting()])
        for folder, over, names in found.beside(self.path.parent):
            add_links(tree, [(f"{over}/{each}", folder / each) for each in names])
        return tree

    def adopt(self, other: Tree) -> Tree:
        """Keep a tree of another store, or of this one, once each file is what the list says.

        Raises:
            OSError: it cannot be read, or not be written here. DamagedFileError: it was changed.
        """
        verify(other)
        links = [*added_links(other)]  # before it may be made anew in its own place
        with self._work() as work:
            maker = Maker(self.path / "objects", self.path / "seen", work)
            source = {row.path: f"{other.path}/{row.path}" for row in other.manifest.files}
            tree = self._whole(maker, other.manifest, source)
        if tree.made or tree.path != other.path:
            add_links(tree, links)
        return tree

    def _whole(self, maker: Maker, manifest: Manifest, source: dict[str, str]) -> Tree:
        text = manifest.text()
        tree = Tree(path=self.trees / tree_name(text), manifest=manifest)
        return tree if is_intact(tree) else maker.built(tree, text, source)

    def unneeded(self, needed: Callable[[], set[str]]) -> Unneeded | None:
        """Return what no run needs; `needed` says which trees runs do, asked while none is added.

        None: somebody submits at this moment.

        Raises:
            OSError: something cannot be read.
        """
        with self._locked(shared=False) as held:
            return None if held is False else self._unneeded(needed(), lockable=held is not None)

    def remove(self, needed: Callable[[], set[str]]) -> int | None:
        """Remove trees that no run needs, and contents that are in no tree; return bytes.

        None: somebody submits at this moment, and nothing is removed.

        Raises:
            OSError: something cannot be removed.
        """
        with self._locked(shared=False) as held:
            if held is False:
                return None
            found = self._unneeded(needed(), lockable=held is not None)
            if found.trees:
                # `rm -r` removes this folder, and stops at the read-only trees.
                (self.path / "tmp").mkdir(mode=0o700, exist_ok=True)
            for path in found.trees:
                beside = self.path / "tmp" / f"removed-{os.urandom(6).hex()}"
                path.chmod(0o700)
                os.rename(path, beside)  # noqa: PTH104  # from now on it is no tree
                remove_all(beside)
            if held:
                self._sweep()
            return found.size

    def _unneeded(self, needed: set[str], *, lockable: bool) -> Unneeded:
        every = _entries(self.trees)
        trees = [path for path in every if path.name not in needed]
        if not lockable:
            trees = [path for path in trees if time.time() - path.lstat().st_ctime > _YOUNG_S]
        return Unneeded(
            trees=tuple(trees),
            size=_freed(trees, self.path / "objects"),
            rest=not every or bool(_entries(self.path / "tmp")),
        )

    def _sweep(self) -> None:
        """Remove contents of no tree and what kills left; of a store without a tree all of it."""
        for path in _entries(self.path / "tmp"):
            remove_all(path)
        for folder in _entries(self.path / "objects"):
            for path in _entries(folder):
                if path.lstat().st_nlink == 1:
                    path.unlink()
            with suppress(OSError):
                folder.rmdir()
        objects = (path for folder in _entries(self.path / "objects") for path in _entries(folder))
        known = {f"{path.parent.name}{path.stem}" for path in objects}
        for path in _entries(self.path / "bytecode"):
            if path.name.partition(".")[0] not in known:
                path.unlink()
        if not _entries(self.trees):
            remove_all(self.path)


def remove_all(path: Path) -> None:
    """Remove a folder of this user's with all in it, read-only or not.

    Raises:
        OSError: something cannot be removed.
    """
    os.chmod(path, 0o700)  # noqa: PTH101
    for folder, inner, _ in os.walk(path):
        for name in inner:
            place = f"{folder}/{name}"
            if not os.path.islink(place):  # noqa: PTH114
                os.chmod(place, 0o700)  # noqa: PTH101
    shutil.rmtree(path)


def _freed(trees: Sequence[Path], objects: Path) -> int:
    """Return the bytes on the disk that go with trees: of contents that nothing else links to."""
    links: dict[int, list[int]] = {}
    size = 0
    for tree in trees:
        for folder, _, names in os.walk(tree):
            size += os.lstat(folder).st_blocks * 512
            for name in names:
                status = os.lstat(f"{folder}/{name}")
                row = links.setdefault(status.st_ino, [status.st_nlink, 0, status.st_blocks * 512])
                row[1] += 1
    inside = 1 if objects.is_dir() else 0  # the object itself
    return size + sum(blocks for count, mine, blocks in links.values() if count - mine <= inside)


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
