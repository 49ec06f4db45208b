"""What differs between a kept tree and the project's files now."""

import difflib
from collections.abc import Iterator
from pathlib import Path

from hpckit.code.files import Found, Seen
from hpckit.code.making import mode_of
from hpckit.code.tree import KeptFile, Tree, content_digest
from hpckit.files import DamagedFileError, read_bytes
from hpckit.frozen import frozen
from hpckit.text import in_line, listed

_MOST_BYTES = 2**20  # of a file of which a difference is shown, line by line
_MOST_LINES = 20_000


@frozen(kw_only=True)
class Difference:
    """Files of a project that are not as they were kept, by their paths in it."""

    changed: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Say whether there is any."""
        return bool(self.changed or self.added or self.removed)

    def lines(self, most: int = 10) -> list[str]:
        """Return a line for each kind, with the first names."""
        rows = (("changed", self.changed), ("added", self.added), ("removed", self.removed))
        return [f"{what}: {listed([*map(in_line, paths)], most)}" for what, paths in rows if paths]


def compare(tree: Tree, name: str, found: Found) -> Difference:
    """Compare the project called `name` in a tree with what a look at it found.

    Raises:
        OSError: a file cannot be read.
    """
    inside = f"{name}/"
    kept = {
        row.path[len(inside) :]: row for row in tree.manifest.files if row.path.startswith(inside)
    }
    links = {
        row.path[len(inside) :]: row.target
        for row in tree.manifest.links
        if row.path.startswith(inside)
    }
    now = {row.path: row for row in found.files}
    changed = [path for path, row in now.items() if path in kept and _differs(found, row, kept)]
    changed += [path for path, target in found.links.items() if links.get(path, target) != target]
    before, after = {*kept, *links}, {*now, *found.links}
    return Difference(
        changed=tuple(sorted(changed)),
        added=tuple(sorted(after - before)),
        removed=tuple(sorted(before - after)),
    )


def _differs(found: Found, row: Seen, kept: dict[str, KeptFile]) -> bool:
    before = kept[row.path]
    if row.size != before.size or (mode_of(row) & 0o100) != (before.mode & 0o100):
        return True
    try:
        return content_digest(found.project.root / row.path) != before.digest
    except DamagedFileError:  # it is no file any more
        return True


def unified(tree: Tree, name: str, root: Path, difference: Difference) -> Iterator[str]:
    """Yield a unified difference, line by line, of the kept files to those in `root`."""
    every = sorted({*difference.changed, *difference.added, *difference.removed})
    for path in every:
        before = None if path in difference.added else tree.path / name / path
        after = None if path in difference.removed else root / path
        yield from _of_file(path, before, after)


def _of_file(path: str, before: Path | None, after: Path | None) -> Iterator[str]:
    old, new, path = _lines(before), _lines(after), in_line(path)
    if old is None or new is None:
        what = "was added" if before is None else "was removed" if after is None else "differs"
        yield f"File {path} {what} (binary, a link, or large)"
        return
    if old == new:  # its mode alone
        yield f"File {path} differs in whether it may be started"
        return
    names = (f"kept/{path}" if before else "/dev/null", f"now/{path}" if after else "/dev/null")
    for line in difflib.unified_diff(old, new, *names, lineterm=""):
        yield line.removesuffix("\n")
        if line[:1] in " -+" and not line.endswith("\n") and line[:3] not in ("---", "+++"):
            yield "\\ No newline at end of file"


def _lines(path: Path | None) -> list[str] | None:
    """Return a text's lines; None: it is not one, or it is too long to be compared."""
    if path is None:
        return []
    try:
        content = b"\0" if path.is_symlink() else read_bytes(path, most=_MOST_BYTES)
        text = content.decode("utf-8")
    except (OSError, DamagedFileError, UnicodeDecodeError):
        return None
    lines = text.split("\n")
    rows = [f"{line}\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])
    return None if "\0" in text or len(rows) > _MOST_LINES else rows
