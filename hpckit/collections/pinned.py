"""From an entry of a lock file to a collection that can be used here, or to why it cannot.

Only the lock file, stat and what was hashed before are read: no git, no network.
"""

import os
import shlex
from dataclasses import replace
from pathlib import Path

from hpckit.collections.files import Rows, glance, hash_of, remembered_hashes, walk
from hpckit.collections.lockfile import Entry
from hpckit.collections.manifest import describe_shared
from hpckit.collections.model import Collection, Unusable
from hpckit.collections.places import cache_folder, checkout_folder
from hpckit.collections.source import Source
from hpckit.collections.trust import (
    faults,
    link_faults,
    owner_name,
    trusted,
    writer_faults,
)
from hpckit.errors import ConfigError, HpckitError


class RefusedError(ConfigError):
    """Somebody else could have changed the collection."""


def locate(entry: Entry, lock: Path, origin: str) -> Collection | Unusable:
    """Return the collection of an entry, or why it cannot be used now."""
    try:
        folder = folder_of(entry)
        if folder is None:
            return _unusable(entry, lock, origin, "missing", _missing(entry))
        return _collection(entry, folder, lock, origin)
    except RefusedError as error:
        return _unusable(entry, lock, origin, "refused", str(error))
    except HpckitError as error:
        return _unusable(entry, lock, origin, "broken", str(error))
    except OSError as error:
        why = f"{error.filename or entry.source}: cannot be read: {error.strerror}."
        return _unusable(entry, lock, origin, "broken", why)


def _collection(entry: Entry, folder: Path, lock: Path, origin: str) -> Collection:
    rows = walk(folder)
    refuse_faults(entry.place(), folder, rows, owner=entry.owner)
    content = hash_of(remembered_hashes(folder, rows, cache_folder()))
    return replace(
        describe_shared(folder, origin),
        name=entry.name,
        source=entry.source,
        lock=lock,
        rev=entry.rev or "",
        revision=entry.commit or content,
        changed=content != entry.hash,
    )


def folder_of(entry: Entry) -> Path | None:
    """Return the folder of an entry, None if it is not here (now)."""
    place = entry.place()
    folder = (
        checkout_folder(place, entry.commit, cache_folder())
        if entry.commit
        else Path(place.location)
    )
    return folder if folder.is_dir() else None


def refuse_faults(
    place: Source, folder: Path, rows: Rows, *, owner: str | None = None, trust: bool = False
) -> None:
    """Refuse a collection that somebody else could change, unless the user trusts its source.

    Of a git checkout, which lies in the user's own cache, only links can be wrong. `owner` is who
    a folder belonged to when it was added; None: whoever owns it.

    Raises:
        RefusedError: with the first reason and what to do.
    """
    if owner is not None:
        _refuse_new_owner(place, folder, owner)
    found = list(link_faults(folder, rows) if place.is_git else faults(folder, rows))
    if found and not trust and str(place) not in trusted():
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        mend = "" if place.is_git else "Its owner can mend that: chmod -R o-w. "
        raise RefusedError(
            f"{found[0]}{more}. {mend}If you trust it as it is: "
            f"hpckit collections add --trust {place}"
        )


def refused_place(folder: Path, origin: str) -> Unusable | None:
    """Return why a project or a folder of `$HPCKIT_COLLECTIONS` is not used, or None.

    A project's own links may lead anywhere: whoever works in it made them.
    """
    source = str(folder.absolute())
    if origin == "project":
        rows = glance(folder)
        found = list(writer_faults(folder, rows, as_project=True))
    else:
        rows = walk(folder)
        found = list(faults(folder, rows))
    if not found or source in trusted():
        return None
    return Unusable(
        name=origin if origin == "project" else folder.name,
        origin=origin,
        state="refused",
        why=(
            f"{found[0]}. Its owner can mend that: chmod -R o-w. If you trust it as it is: "
            f"hpckit collections trust {shlex.quote(source)}"
        ),
        source=source,
        provides=frozenset(name for name, _ in rows),
    )


def _refuse_new_owner(place: Source, folder: Path, owner: str) -> None:
    now = owner_name(folder)
    if now != owner and folder.stat().st_uid not in (0, os.geteuid()):
        raise RefusedError(
            f"{folder} belongs to {now}, and belonged to {owner} when it was added. "
            f"If that is right: hpckit collections add {place}"
        )


def _missing(entry: Entry) -> str:
    if entry.commit:
        return (
            f"commit {entry.commit[:12]} of {entry.source} is not on this machine. "
            "Fetch it: hpckit collections sync"
        )
    return (
        f"folder {entry.source} is not there. "
        f"When it is gone for good: hpckit collections remove {entry.name}"
    )


def _unusable(entry: Entry, lock: Path, origin: str, state: str, why: str) -> Unusable:
    return Unusable(
        name=entry.name,
        origin=origin,
        state=state,
        why=why,
        source=entry.source,
        lock=lock,
        provides=frozenset(entry.files),
    )
