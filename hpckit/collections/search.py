"""The search path: which collections there are here, and which of them has a file.

project (`./`) → user (`~/.config/hpckit`) → `$HPCKIT_COLLECTIONS` (colon-separated folders) →
`/etc/hpckit` → built-in. The first folder that has a file wins; later ones are shadowed.
"""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from hpckit.collections.manifest import describe
from hpckit.collections.model import MANIFEST, Collection, Found
from hpckit.errors import ConfigError

_PARTS = ("templates", "workloads", MANIFEST)


def builtin_folder() -> Path:
    """Return the built-in collection: inside an installed wheel, else the checkout's root."""
    package = Path(__file__).resolve().parents[1]
    shipped = package / "builtin"
    return shipped if shipped.is_dir() else package.parent


def search_path(environ: Mapping[str, str] = os.environ) -> tuple[Collection, ...]:
    """Return the collections in the order they are searched.

    Folders of `$HPCKIT_COLLECTIONS` must exist and hold a collection, since somebody named them;
    the other places count only when something is there.

    Raises:
        ConfigError: a named folder is missing or holds neither templates/ nor workloads/.
    """
    config = Path(environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    places = [(Path.cwd(), "project"), (config / "hpckit", "user")]
    places += [(folder, "group") for folder in _named_folders(environ)]
    places += [(Path("/etc/hpckit"), "site-wide"), (builtin_folder(), "built-in")]
    found: dict[Path, Collection] = {}
    for folder, origin in places:
        # The checkout's root is both the project and the built-in collection: it is built-in.
        if _holds_collection(folder) and (origin == "built-in" or folder != builtin_folder()):
            found.setdefault(folder.resolve(), describe(folder.resolve(), origin))
    return _distinct(tuple(found.values()))


def _distinct(collections: tuple[Collection, ...]) -> tuple[Collection, ...]:
    """Number collections of the same name: `extends "NAME:…"` must mean one of them."""
    seen: dict[str, int] = {}
    named = []
    for row in collections:
        seen[row.name] = seen.get(row.name, 0) + 1
        count = seen[row.name]
        named.append(replace(row, name=f"{row.name}-{count}") if count > 1 else row)
    return tuple(named)


def _named_folders(environ: Mapping[str, str]) -> list[Path]:
    folders = [
        Path(part).expanduser() for part in environ.get("HPCKIT_COLLECTIONS", "").split(":") if part
    ]
    for folder in folders:
        if not _holds_collection(folder):
            raise ConfigError(
                f"Collection {str(folder)!r} of HPCKIT_COLLECTIONS is not a folder with templates/ "
                "or workloads/. Correct the variable or make the folder."
            )
    return folders


def _holds_collection(folder: Path) -> bool:
    try:
        return any((folder / part).exists() for part in _PARTS)
    except OSError:  # a parent that may not be entered: nothing of ours is there
        return False


def find_all(pattern: str, root: str, collections: tuple[Collection, ...]) -> dict[str, Found]:
    """Find every file `root/pattern` of the collections, by its path relative to `root`.

    The first collection on the path wins; `shadows` names the others that hold the same path.
    """
    holders: dict[str, list[tuple[Path, Collection]]] = {}
    for collection in collections:
        base = collection.path / root
        for path in sorted(base.glob(pattern)):
            if path.is_file():
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
