"""Whether the collections of the search path are sound, and still what was pinned."""

from collections.abc import Iterator

from hpckit.collections import survey
from hpckit.collections.lockfile import lock_files, read_lock
from hpckit.collections.review import verify
from hpckit.doctor.model import Check, bad, good


def collection_checks() -> Iterator[Check]:
    """Check every collection that can be used, and say why others cannot."""
    around = survey()
    for row in around.unusable:
        yield bad(f"collection {row.name!r} is left out", row.why)
    broken = {row.name for row in around.unusable}
    for lock in dict.fromkeys(lock_files()):
        if not lock.exists() or lock.name in broken:
            continue
        for entry in read_lock(lock):
            faults = [] if entry.name in broken else verify(lock, entry)
            if faults:
                todo = f"hpckit collections verify {entry.name}"
                yield bad(f"collection {entry.name!r}: {faults[0]}", todo)
    names = ", ".join(row.name for row in around.collections)
    yield good(f"{len(around.collections)} collections: {names}")
