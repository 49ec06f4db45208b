"""A kept tree as it stands: what it holds, and whether it is as it was made.

Its list has each file with the hash of its content, and the tree is called by the list's hash.
"""

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from hpckit.collections.collection import take_in
from hpckit.digests import sha256
from hpckit.files import DamagedFileError, open_regular, parse_json, read_text
from hpckit.frozen import frozen

VERSION = 1
MANIFEST = ".manifest.json"
# The time of change of all that is kept; whoever writes into a file gives it another.
WHEN_NS = 1_000_000_000 * 10**9
_DIGITS = 32  # of the hash: 128 bits
_MOST_BYTES = 64 * 2**20  # of a manifest


class KeptFile(NamedTuple):
    """A file of a tree: its path from the tree's top, its mode's bits, its content's SHA-256."""

    path: str
    mode: int
    digest: str
    size: int


class KeptLink(NamedTuple):
    """A link in a tree that leads to something in it."""

    path: str
    target: str


class KeptFolder(NamedTuple):
    """A folder of a tree."""

    path: str
    mode: int


@frozen(kw_only=True)
class Manifest:
    """All of a tree. `roots` are its projects: the name of their folder in it, and their place."""

    roots: tuple[tuple[str, str], ...]
    files: tuple[KeptFile, ...]
    links: tuple[KeptLink, ...]
    folders: tuple[KeptFolder, ...]

    @property
    def bytes(self) -> int:
        """The bytes of all files together."""
        return sum(row.size for row in self.files)

    def text(self) -> str:
        """Return it as it is written down, always the same for the same."""
        said = {
            "version": VERSION,
            "roots": sorted(self.roots),
            # One text each: a third of the time of numbers and lists.
            "files": sorted(f"{row[1]:o} {row[2]} {row[3]} {row[0]}" for row in self.files),
            "links": sorted(self.links),
            "folders": sorted(self.folders),
        }
        return json.dumps(said) + "\n"


@frozen(kw_only=True)
class Tree:
    """A kept tree: its folder, and what it holds. `made`: it was not there before.

    `copied`: the file system knows no hard links, so that it has its own space.
    """

    path: Path
    manifest: Manifest
    made: bool = False
    copied: bool = False

    @property
    def name(self) -> str:
        """What it is called."""
        return self.path.name

    def places(self) -> Iterator[tuple[str, str]]:
        """Yield its projects and the folders over each, with what stands for them in the tree."""
        for name, root in self.manifest.roots:
            place, folder = self.path / name, Path(root)
            while place != self.path:
                yield str(folder), str(place)
                place, folder = place.parent, folder.parent


def tree_name(text: str) -> str:
    """Return what the tree of a manifest's text is called."""
    return sha256(text.encode()).hexdigest()[:_DIGITS]


def _file(text: str) -> KeptFile:
    mode, digest, size, path = text.split(" ", 3)
    return KeptFile(path, int(mode, 8), digest, int(size))


def read_manifest(text: str, name: str) -> Manifest:
    """Read the manifest of the tree called `name`.

    Raises:
        DamagedFileError: it is another's, or not as hpckit writes it.
    """
    if tree_name(text) != name:
        raise DamagedFileError("it is not the list that its name stands for")
    found: Any = parse_json(text)
    try:
        if found["version"] != VERSION:
            raise DamagedFileError(f"it is of version {found['version']}, of a newer hpckit")
        made = Manifest(
            roots=tuple((str(name), str(path)) for name, path in found["roots"]),
            files=tuple(map(_file, found["files"])),
            links=tuple(KeptLink(str(path), str(target)) for path, target in found["links"]),
            folders=tuple(KeptFolder(str(path), int(mode)) for path, mode in found["folders"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DamagedFileError(f"it is not a list of a tree: {error}") from error
    every = (made.roots, made.files, made.links, made.folders)
    for path in (row[0] for rows in every for row in rows):
        parts = PurePosixPath(path).parts
        if parts[:1] == ("/",) or ".." in parts or "\0" in path:
            raise DamagedFileError("a path leads out of it")
    if any(row.mode & ~0o555 for rows in (made.files, made.folders) for row in rows):
        raise DamagedFileError("it is not read-only")
    return made


def read_tree(path: Path) -> Tree:
    """Return the tree in a folder.

    Raises:
        OSError: it cannot be read, or is gone. DamagedFileError: it is not as it was made.
    """
    manifest = read_manifest(read_text(path / MANIFEST, most=_MOST_BYTES), path.name)
    return Tree(path=path, manifest=manifest)


def verify(tree: Tree) -> None:
    """Compare each file of a tree with its hash.

    Raises:
        OSError: one cannot be read. DamagedFileError: one is not what was kept.
    """
    for row in tree.manifest.files:
        place = tree.path / row.path
        if place.is_symlink() or content_digest(place) != row.digest:
            raise DamagedFileError(f"{row.path} is not what was kept")
    for folder in tree.manifest.folders:
        if not stat.S_ISDIR((tree.path / folder.path).lstat().st_mode):
            raise DamagedFileError(f"{folder.path} is not what was kept")
    for link in tree.manifest.links:
        if os.readlink(tree.path / link.path) != link.target:  # noqa: PTH115
            raise DamagedFileError(f"{link.path} is not what was kept")


def is_intact(tree: Tree) -> bool:
    """Say whether a tree is as it was made, as far as sizes and times tell."""
    top = str(tree.path)
    try:
        if not stat.S_ISREG(os.lstat(f"{top}/{MANIFEST}").st_mode):
            return False
        for row in tree.manifest.files:
            status = os.lstat(f"{top}/{row.path}")
            same = status.st_size == row.size and status.st_mtime_ns == WHEN_NS
            if not same or not stat.S_ISREG(status.st_mode):
                return False
        for folder in tree.manifest.folders:
            status = os.lstat(f"{top}/{folder.path}")
            if status.st_mtime_ns != WHEN_NS or not stat.S_ISDIR(status.st_mode):
                return False
        return all(os.readlink(f"{top}/{row.path}") == row.target for row in tree.manifest.links)  # noqa: PTH115
    except OSError:
        return False


def content_digest(path: Path) -> str:
    """Return the hash of a file's content.

    Raises:
        OSError: it cannot be read. DamagedFileError: it is not a regular file.
    """
    with open_regular(path) as stream:
        take_in(digest := sha256(size=os.fstat(stream.fileno()).st_size), stream)
    return digest.hexdigest()
