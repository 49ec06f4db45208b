"""What an added collection is now against what was pinned, before its last update, or below it."""

from collections.abc import Iterator
from pathlib import Path

from hpckit.collections import git
from hpckit.collections.added import changed_files
from hpckit.collections.files import file_hashes, walk
from hpckit.collections.lockfile import Entry
from hpckit.collections.model import Collection
from hpckit.collections.pinned import locate
from hpckit.collections.places import cache_folder, repository
from hpckit.errors import OutsideError, RequestError


def verify(lock: Path, entry: Entry) -> list[str]:
    """Return what is wrong with a collection: missing, refused, or not what was pinned.

    Every file is read; nothing is taken from memory.
    """
    found = locate(entry, lock, "")
    if not isinstance(found, Collection):
        return [found.why]
    return changed_files(entry.files, file_hashes(found.path, walk(found.path)))


def last_change(entry: Entry) -> str:
    """Return the unified diff of the last update of a git collection.

    Raises:
        RequestError: it was never updated, or is a folder.
    """
    if not entry.commit or not entry.previous:
        why = "was not updated since it was added" if entry.commit else "is a folder used in place"
        raise RequestError(
            f"{entry.name} {why}. To see what differs now: hpckit collections verify {entry.name}"
        )
    return difference(entry, entry.previous, entry.commit)


def difference(entry: Entry, old: str, new: str) -> str:
    """Return the unified diff between two commits of a collection's source.

    Raises:
        OutsideError: the clone is not here.
    """
    source = entry.place()
    if not repository(source, cache_folder()).is_dir():
        raise OutsideError(
            f"{entry.source} is not on this machine. Fetch it: hpckit collections sync"
        )
    return git.diff(source, old, new, cache_folder())


def shadowed(found: Collection, others: tuple[Collection, ...]) -> Iterator[tuple[str, Collection]]:
    """Yield files of a collection that stand before another's of the same name."""
    names = [name for name, _ in walk(found.path)]
    for name in names:
        if name.startswith("templates/") or name.endswith("/workload.yaml"):
            below = [row for row in others if row != found and (row.path / name).is_file()]
            yield from ((name, row) for row in below[:1])
