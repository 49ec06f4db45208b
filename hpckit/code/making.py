"""Making kept trees: files hashed, contents written once, trees made beside and then renamed."""

import errno
import json
import os
import stat
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from hpckit.code.files import Found, Seen, stamp
from hpckit.code.rules import unreadable
from hpckit.code.tree import (
    MANIFEST,
    WHEN_NS,
    KeptFile,
    KeptFolder,
    KeptLink,
    Manifest,
    Tree,
    is_intact,
)
from hpckit.code.writing import (
    READ,
    WRITE,
    copy_kept,
    finish_folder,
    pieces_of,
    seal,
    status_of,
    sync,
    write_kept,
)
from hpckit.digests import sha256
from hpckit.errors import OutsideError
from hpckit.files import DamagedFileError, read_json, replace_file

_MOST_BYTES = 64 * 2**20  # of what was seen
# A file that changed so short a time before it was read may change again within its clock's tick.
_RACY_NS = 2 * 10**9
# What a file system says that knows no hard links, or takes no more to one file.
_NO_LINKS = (errno.EPERM, errno.EMLINK, errno.EXDEV, errno.ENOTSUP, errno.ENOSYS)


class Maker:
    """Makes one tree; `work` is a folder of its own for what is not whole yet."""

    def __init__(self, objects: Path, seen: Path, work: Path) -> None:
        self._objects, self._seen, self._work = objects, seen, work
        self._new: dict[str, str] = {}  # objects by their names, and where they lie until then
        self._count = self._bytes = 0  # of what was read

    def hashed(self, found: Found) -> list[KeptFile]:
        """Return the files of a project, which has its own folder in the tree.

        What has not changed since it was hashed last is not read again.

        Raises:
            OSError: no room for their contents. OutsideError: one cannot be read.
        """
        name, root = found.project.name, str(found.project.root)
        record = self._seen / f"{sha256(os.fsencode(root)).hexdigest()[:32]}.json"
        before, after = _read_seen(record), {}
        digits = len(sha256().hexdigest())
        rows, now = [], time.time_ns()
        for row in found.files:
            known, mode = before.get(row.path, ""), mode_of(row)
            if known[:-digits] == row.stamp:
                digest, size, lasting = known[-digits:], row.size, True
            else:
                try:
                    digest, size, same = self._put(f"{root}/{row.path}", mode)
                except OutsideError as error:
                    if row.needed or not isinstance(error.__cause__, FileNotFoundError):
                        raise
                    continue  # what another program had there for a moment
                lasting = same == row.stamp and row.changed_ns < now - _RACY_NS
            if lasting:
                after[row.path] = row.stamp + digest
            rows.append(KeptFile(f"{name}/{row.path}", mode, digest, size))
        if after != before:
            with suppress(OSError):  # it is hashed again then
                replace_file(record, json.dumps(after), mode=0o600)
        return rows

    def put_in_place(self) -> None:
        """Give new objects their names, once their contents are on the disk."""
        if not self._new:
            return
        sync(self._work, [*self._new.values()])
        rows = [*self._new.items()]
        self._new.clear()  # from here on only what has its name counts
        for name, place in rows:
            target = self._objects / name
            target.parent.mkdir(mode=0o700, exist_ok=True)
            if not self._has_name(name):  # another submission's has come meanwhile
                os.rename(place, target)  # noqa: PTH104  # thousands of them

    def built(self, tree: Tree, text: str, source: Mapping[str, str]) -> Tree:
        """Put a tree together and give it its name; `source` is where each file came from.

        Raises:
            OSError: there is no room, or no permission. OutsideError: a file is gone by now.
        """
        base, manifest, copied = self._work / "tree", tree.manifest, False
        folders = sorted(manifest.folders)
        for folder in folders:
            (base / folder.path).mkdir(mode=0o700)
        for row in manifest.files:
            copied = self._linked(row, f"{base}/{row.path}", source) or copied
        for link in manifest.links:
            (base / link.path).symlink_to(link.target)
        write_kept(base / MANIFEST, text.encode(), folders[0].mode & 0o444)
        for folder in reversed(folders):
            finish_folder(base / folder.path, folder.mode)
        base.chmod(0o700)  # a folder that is read-only cannot be moved
        sync(base, [f"{base}/{MANIFEST}", str(base)])
        for _ in range(3):
            try:
                os.rename(base, tree.path)  # noqa: PTH104
                break
            except OSError as error:
                if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                    raise
            if is_intact(tree):  # another submission's, made at the same time
                return tree
            with suppress(FileNotFoundError):  # damaged: whoever uses it gets the whole one
                aside = self._work / f"damaged-{os.urandom(4).hex()}"
                os.rename(tree.path, aside)  # noqa: PTH104
        finish_folder(tree.path, folders[0].mode)
        return Tree(path=tree.path, manifest=manifest, made=True, copied=copied)

    def _linked(self, row: KeptFile, target: str, source: Mapping[str, str]) -> bool:
        """Link an object into the tree; say whether it had to be copied."""
        place = f"{self._objects}/{object_name(row.digest, row.mode)}"
        if not self._has(row.digest, row.mode):  # known from its last look, and cleaned away
            digest, _, _ = self._put(source[row.path], row.mode)
            self.put_in_place()
            if digest != row.digest:
                raise OutsideError(
                    f"{source[row.path]!r} was changed while it was copied. Submit again."
                )
        for last in (False, False, False, False, True):
            try:
                os.link(place, target, follow_symlinks=False)
            except OSError as error:
                # Another submission has put the same content in its place in this moment: link(2)
                # says ENOENT of a file that has lost its only name.
                if error.errno == errno.ENOENT and not last:
                    continue
                if error.errno not in _NO_LINKS:
                    raise
                copy_kept(place, target, row.mode)
                return error.errno != errno.EMLINK
            return False
        return False

    def _put(self, path: str, mode: int) -> tuple[str, int, str]:
        """Read a file once: hash it, and keep its content if it is new.

        Return hash and bytes, and what the file was before and after; "" if it changed meanwhile.
        """
        self._count += 1
        beside = f"{self._work}/{self._count}"
        try:
            opened = os.open(path, READ)
        except OSError as error:
            raise unreadable(path, error) from error
        try:
            before = status_of(opened, path)
            if not stat.S_ISREG(before.st_mode):
                raise unreadable(path, DamagedFileError("it is not a regular file any more"))
            digest, size = self._taken(opened, path, beside, mode, before.st_size)
            after = status_of(opened, path)
        finally:
            os.close(opened)
        return digest, size, stamp(after) if stamp(before) == stamp(after) else ""

    def _taken(self, opened: int, path: str, beside: str, mode: int, size: int) -> tuple[str, int]:
        """Copy an open file beside, hash it on the way, and remember it as an object."""
        pieces = pieces_of(opened, path)
        first = next(pieces, b"")
        self._bytes += len(first)
        if size <= len(first):  # most: what is there already is not written again
            digest = sha256(first, self._bytes).hexdigest()
            if not self._has(digest, mode):
                write_kept(beside, first, mode)
                self._new[object_name(digest, mode)] = beside
            return digest, len(first)
        hashing, count = sha256(first, size), len(first)
        descriptor = os.open(beside, WRITE, 0o600)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(first)
            for piece in pieces:
                hashing.update(piece)
                stream.write(piece)
                count += len(piece)
            stream.flush()
            seal(descriptor, mode)
        digest = hashing.hexdigest()
        if self._has(digest, mode):
            os.unlink(beside)  # noqa: PTH108
        else:
            self._new[object_name(digest, mode)] = beside
        return digest, count

    def _has(self, digest: str, mode: int) -> bool:
        name = object_name(digest, mode)
        return name in self._new or self._has_name(name)

    def _has_name(self, name: str) -> bool:
        """Say whether an object has its place, as it was made."""
        try:
            status = os.lstat(f"{self._objects}/{name}")
        except OSError:
            return False
        return status.st_mtime_ns == WHEN_NS


def object_name(digest: str, mode: int) -> str:
    """Return the path of an object in the folder of all: its mode is its own, for all links."""
    return f"{digest[:2]}/{digest[2:]}.{mode:o}"


def mode_of(row: Seen) -> int:
    """Return the bits of a kept file: for all to read only what all could read where it lies."""
    mode = 0o444 if row.open else 0o400
    return mode | (mode >> 2 if row.executable else 0)


def folder_mode(*, is_open: bool) -> int:
    """Return the bits of a folder of a tree."""
    return 0o555 if is_open else 0o500


def _mode_over(folder: Path, *, is_open: bool) -> int:
    """Return the bits of what stands for a folder over a project: it shows names of what is in."""
    listed = folder.stat().st_mode & stat.S_IROTH
    return folder_mode(is_open=is_open) & ~(0 if listed else 0o044)


def add_links(tree: Tree, targets: Iterable[tuple[str, Path]]) -> None:
    """Let names that are not kept lead to where they lie in the project, as they are then.

    Code looks for its data beside itself. What stands in the tree already stays.
    """
    rows: dict[str, dict[str, Path]] = {}
    for path, target in targets:
        folder, _, name = path.rpartition("/")
        rows.setdefault(folder, {})[name] = target
    modes = {row.path: row.mode for row in tree.manifest.folders}
    for folder, names in rows.items():
        place = tree.path / folder
        if new := names.keys() - os.listdir(place):  # noqa: PTH208
            for name in sorted(new):
                _add_link(place / name, names[name])
            finish_folder(place, modes[folder])


def _add_link(place: Path, target: Path) -> None:
    for _ in range(3):  # another submission may close the folder at this moment
        with suppress(FileExistsError, PermissionError):
            place.symlink_to(target)
        if os.path.lexists(place):
            break
        place.parent.chmod(0o700)


def added_links(tree: Tree) -> Iterator[tuple[str, Path]]:
    """Yield the links that `add_links` has made in a tree, and where they lead.

    Of another's tree these are known only where everybody may list the folder.
    """
    known = {row.path for row in tree.manifest.links}
    for folder in filter(None, (row.path for row in tree.manifest.folders)):  # none at the top
        links = []
        with suppress(PermissionError), os.scandir(tree.path / folder) as entries:
            links = [entry for entry in entries if entry.is_symlink()]
        for entry in links:
            path = f"{folder}/{entry.name}"
            if path not in known:
                yield path, Path(os.readlink(entry.path))  # noqa: PTH115


def _read_seen(record: Path) -> dict[str, str]:
    try:
        found = read_json(record, most=_MOST_BYTES)
    except (OSError, DamagedFileError):
        return {}
    mine = isinstance(found, dict) and all(type(text) is str for text in found.values())
    return found if mine else {}


def manifest_of(found: Found, rows: Iterable[KeptFile]) -> Manifest:
    """Return what a project's tree holds; `rows` are its files."""
    name = found.project.name
    folders = {name: any(row.open for row in found.files)}
    folders |= {f"{name}/{path}": is_open for path, is_open in found.folders.items()}
    shown = any(folders.values())
    top = KeptFolder("", folder_mode(is_open=shown))
    over = [KeptFolder(path, _mode_over(row, is_open=shown)) for row, path in found.project.over()]
    inner = [KeptFolder(path, folder_mode(is_open=folders[path])) for path in sorted(folders)]
    return Manifest(
        roots=((name, str(found.project.root)),),
        files=tuple(rows),
        links=tuple(KeptLink(f"{name}/{path}", target) for path, target in found.links.items()),
        folders=(top, *over, *inner),
    )
