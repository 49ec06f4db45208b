"""The search path: which collections there are here, and which of them has a file.

project (`./`) → those of `./hpckit.lock` → user (`~/.config/hpckit`) → those of its hpckit.lock →
`$HPCKIT_COLLECTIONS` (colon-separated folders) → `/etc/hpckit` → built-in. The first folder that
has a file wins; later ones are shadowed.
"""

import itertools
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from hpckit.collections.collection import PARTS, Collection, Found, Unusable, describe
from hpckit.collections.contents import files_like
from hpckit.collections.lockfile import lock_files, read_lock
from hpckit.collections.pinned import locate, refused_place
from hpckit.errors import ConfigError
from hpckit.frozen import frozen
from hpckit.paths import config_folder, here, is_there, typed_path


@frozen(kw_only=True)
class Survey:
    """What the search path holds, in order, and what should be on it and cannot be used."""

    collections: tuple[Collection, ...]
    unusable: tuple[Unusable, ...] = ()


def builtin_folder() -> Path:
    """Return the built-in collection: inside an installed wheel, else the checkout's root."""
    package = Path(__file__).resolve().parents[1]
    shipped = package / "builtin"
    return shipped if shipped.is_dir() else package.parent


def search_path() -> tuple[Collection, ...]:
    """Return the collections that can be used, in the order they are searched.

    Raises:
        ConfigError: as `survey`.
    """
    return survey().collections


def survey(broken: list[ConfigError] | None = None) -> Survey:
    """Look at every place of the search path.

    Folders of `$HPCKIT_COLLECTIONS` must exist and hold a collection, since somebody named them;
    the other places count only when something is there. A collection that was added and cannot be
    used stands in nobody's way: it comes back as unusable. With `broken`, for lint, errors of
    manifests are put there, and a project that others can write is looked at all the same.

    Raises:
        ConfigError: a named folder is missing or holds neither templates/ nor workloads/, or the
            manifest of a collection that was not added is wrong.
    """
    found: dict[Path, Collection] = {}
    unusable = []
    for row in _rows(broken):
        if isinstance(row, Unusable):
            unusable.append(row)
        else:
            found.setdefault(row.path.resolve(), row)
    return Survey(collections=_distinct(tuple(found.values())), unusable=tuple(unusable))


def _rows(broken: list[ConfigError] | None) -> Iterator[Collection | Unusable]:
    ours, theirs = lock_files()
    yield from _at(here(), "project", broken)
    yield from _locked(ours, "project lock")
    yield from _at(config_folder(), "user", broken)
    if theirs != ours:
        yield from _locked(theirs, "user lock")
    for folder in _named_folders():
        yield from _at(folder, "group", broken)
    yield from _site_wide(Path("/etc/hpckit"), broken)
    yield describe(builtin_folder().resolve(), "built-in")


def _at(
    folder: Path, origin: str, broken: list[ConfigError] | None
) -> Iterator[Collection | Unusable]:
    # The checkout's root is both the project and the built-in collection: it is built-in.
    if _holds_collection(folder) and folder != builtin_folder():
        checked = origin in ("project", "user", "group") and broken is None
        if checked and (refused := refused_place(folder, origin)):
            yield refused
            return
        try:
            yield describe(folder.resolve(), origin)
        except ConfigError as error:
            if broken is None:
                raise
            broken.append(error)
            name = folder.name if origin == "group" else origin
            yield Collection(name=name, path=folder.resolve(), origin=origin)


def _site_wide(folder: Path, broken: list[ConfigError] | None) -> Iterator[Collection | Unusable]:
    """Yield the collection for all users, or why not: a user can neither mend it nor leave it."""
    name = "site-wide"
    try:
        for part in ("", "templates", "templates/sites", "workloads"):
            if is_there(folder / part) and not os.access(folder / part, os.R_OK | os.X_OK):
                raise ConfigError(  # as root's umask of 077 makes it
                    f"cannot be read. Root can let all users read it: chmod -R a+rX {folder}.",
                    at=folder / part,
                )
        yield from _at(folder, name, broken)
    except ConfigError as error:
        yield Unusable(name=name, origin=name, state="broken", why=str(error), source=str(folder))


def _locked(lock: Path, origin: str) -> Iterator[Collection | Unusable]:
    if is_there(lock) and (row := refused_place(lock.parent, origin.removesuffix(" lock"))):
        yield replace(row, name=lock.name, origin=origin, lock=lock, provides=None)
        return
    try:
        entries = read_lock(lock)
    except ConfigError as error:
        yield Unusable(name=lock.name, origin=origin, state="broken", why=str(error), lock=lock)
        return
    for entry in entries:
        yield locate(entry, lock, origin)


def _distinct(collections: tuple[Collection, ...]) -> tuple[Collection, ...]:
    """Number collections of the same name: `extends "NAME:…"` must mean one of them."""
    own = {row.name for row in collections}
    taken: set[str] = set()
    named = []
    for row in collections:
        numbered = (f"{row.name}-{count}" for count in itertools.count(2))
        free = (name for name in numbered if name not in own | taken)
        name = row.name if row.name not in taken else next(free)
        taken.add(name)
        named.append(replace(row, name=name))
    return tuple(named)


def _named_folders() -> list[Path]:
    folders = [
        typed_path(part) for part in os.environ.get("HPCKIT_COLLECTIONS", "").split(":") if part
    ]
    for folder in folders:
        if not _holds_collection(folder):
            raise ConfigError(
                f"Collection {str(folder)!r} of HPCKIT_COLLECTIONS is not a folder with templates/ "
                "or workloads/ that you may read. Correct the variable, or make or open the folder."
            )
    return folders


def _holds_collection(folder: Path) -> bool:
    try:
        return any((folder / part).exists() for part in PARTS)
    except OSError:  # a parent that may not be entered: nothing of ours is there
        return False


def find_all(pattern: str, root: str, collections: tuple[Collection, ...]) -> dict[str, Found]:
    """Find every file `root/pattern` of the collections, by its path relative to `root`.

    The first collection on the path wins; `shadows` names the others that hold the same path.
    """
    holders: dict[str, list[tuple[Path, Collection]]] = {}
    for collection in collections:
        base = collection.path / root
        for path in files_like(base, pattern):
            holders.setdefault(path.relative_to(base).as_posix(), []).append((path, collection))
    return {
        name: Found(
            name=name,
            path=places[0][0],
            collection=places[0][1],
            shadows=tuple(collection for _, collection in places[1:]),
        )
        for name, places in sorted(holders.items())
    }
