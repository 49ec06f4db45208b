"""From an entry of a lock file to a collection that can be used here, or to why it cannot.

Only the lock file, stat and what was hashed before are read: no git, no network.
"""

import os
import shlex
import stat
from dataclasses import replace
from pathlib import Path

from hpckit.collections.collection import Collection, Unusable, describe_shared
from hpckit.collections.contents import (
    Rows,
    glance,
    hash_of,
    is_open_folder,
    remembered_hashes,
    walk,
)
from hpckit.collections.lockfile import Entry
from hpckit.collections.source import Source, checkout_folder
from hpckit.collections.trust import (
    Fault,
    faults,
    inner_faults,
    link_faults,
    owner_name,
    trusted,
    writer_faults,
)
from hpckit.errors import ConfigError, HpckitError
from hpckit.paths import CACHE, CONFIG, cache_folder, refuse_foreign


class UntrustedError(ConfigError):
    """Somebody else could have changed the collection."""


def locate(entry: Entry, lock: Path, origin: str) -> Collection | Unusable:
    """Return the collection of an entry, or why it cannot be used now."""
    try:
        folder = folder_of(entry)
        if folder is None:
            return _unusable(entry, lock, origin, "missing", missing(entry))
        return _collection(entry, folder, lock, origin)
    except UntrustedError as error:
        return _unusable(entry, lock, origin, "refused", str(error))
    except HpckitError as error:
        return _unusable(entry, lock, origin, "broken", str(error))
    except OSError as error:
        why = f"{error.filename or entry.source}: cannot be read: {error.strerror}."
        return _unusable(entry, lock, origin, "broken", why)


def _collection(entry: Entry, folder: Path, lock: Path, origin: str) -> Collection:
    rows = walk(folder)
    refuse_faults(entry.parsed_source(), folder, rows, owner=entry.owner)
    content = hash_of(remembered_hashes(folder, rows, cache_folder()))
    if entry.commit and content != entry.hash:
        raise changed_checkout(entry, folder, content)
    return replace(
        describe_shared(folder, origin),
        name=entry.name,
        source=entry.source,
        lock=lock,
        rev=entry.rev or "",
        revision=entry.commit or content,
        changed=content != entry.hash,
    )


def changed_checkout(entry: Entry, folder: Path, content: str) -> ConfigError:
    """Return the error of a commit's files that are not what was pinned."""
    return ConfigError(
        f"{folder} has content {content}, but {entry.hash} is pinned: a file in the folder or the "
        "lock file was changed. Remove the folder, then run: hpckit collections sync"
    )


def folder_of(entry: Entry) -> Path | None:
    """Return the folder of an entry, None if it is not here (now).

    Raises:
        ConfigError: it is in a cache that others can write, or this user may not look.
    """
    place = entry.parsed_source()
    folder = Path(place.location)
    if entry.commit:
        folder = checkout_folder(place, entry.commit, cache_folder())
        refuse_foreign(folder, CACHE)
    return folder if is_open_folder(folder) else None


def refuse_faults(
    place: Source, folder: Path, rows: Rows, *, owner: str | None = None, trust: bool = False
) -> None:
    """Refuse a collection that somebody else could change, unless the user trusts its source.

    Of a git checkout, which lies in the user's own cache, only links can be wrong. `owner` is who
    a folder belonged to when it was added; None: whoever owns it.

    Raises:
        UntrustedError: with the first reason and what to do.
    """
    if owner is not None:
        _refuse_new_owner(place, folder, owner)
    found = list(link_faults(folder, rows) if place.is_git else faults(folder, rows))
    if found and not trust and str(place) not in trusted():
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        raise UntrustedError(
            f"{found[0]}{more}. {found[0].mend}If you trust the collection as it is: "
            f"hpckit collections add --trust {shlex.quote(str(place))}"
        )


def refused_place(folder: Path, origin: str) -> Unusable | None:
    """Return why a project, the user's folder or one of `$HPCKIT_COLLECTIONS` is not used, or None.

    Links of the first two may lead anywhere: whoever works there made them.
    """
    source = str(folder.absolute())
    if origin == "user":
        return _refused_user(folder)
    rows: Rows | None
    if origin == "project":
        rows, found = _project_faults(folder)
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
            f"{found[0]}. {found[0].mend}If you trust the folder as it is: "
            f"hpckit collections trust {shlex.quote(source)}"
        ),
        source=source,
        provides=_provides(rows),
    )


def _project_faults(folder: Path) -> tuple[Rows | None, list[Fault]]:
    try:
        rows = glance(folder)
    except ConfigError as error:  # nobody has looked at all of it
        return None, [Fault(str(error), folder)]
    return rows, list(writer_faults(folder, rows, as_project=True))


def _refused_user(folder: Path) -> Unusable | None:
    """Return why the user's own folder is not used: nobody else's word can make it so."""
    rows: Rows | None = None
    try:
        rows = glance(folder)
        refuse_foreign(folder, CONFIG)
        why = next(inner_faults(folder, rows), "")
    except ConfigError as error:
        why = str(error)
    if not why:
        return None
    return Unusable(
        name="user", origin="user", state="refused", why=why, source=str(folder),
        provides=_provides(rows),
    )  # fmt: skip


def _provides(rows: Rows | None) -> frozenset[str] | None:
    """Return what a refused folder would have brought; nobody knows what is behind its links."""
    if rows is None or any(stat.S_ISLNK(status.st_mode) for _, status in rows):
        return None
    return frozenset(name for name, _ in rows)


def _refuse_new_owner(place: Source, folder: Path, owner: str) -> None:
    now = owner_name(folder)
    if now != owner and folder.stat().st_uid not in (0, os.geteuid()):
        raise UntrustedError(
            f"{folder} belongs to {now}, but it belonged to {owner} when it was added. "
            f"If this is right: hpckit collections add {shlex.quote(str(place))}"
        )


def missing(entry: Entry) -> str:
    """Say that a collection is not here, and what to do."""
    if entry.commit:
        return (
            f"commit {entry.commit[:12]} of {entry.source} is not on this machine. "
            "Fetch it: hpckit collections sync"
        )
    return (
        f"folder {entry.source} does not exist. "
        f"If it will not come back: hpckit collections remove {entry.name}"
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
