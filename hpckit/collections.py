"""Collections: folders of templates, workloads and sites, searched in order.

project (`./`) → user (`~/.config/hpckit`) → `$HPCKIT_COLLECTIONS` (colon-separated folders) →
`/etc/hpckit` → built-in. The first folder that has a file wins; later ones are shadowed.
"""

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from hpckit import __version__
from hpckit.documents import Fields, read_document
from hpckit.errors import ConfigError

MANIFEST = "hpckit.yaml"
_PARTS = ("templates", "workloads", MANIFEST)


@dataclass(frozen=True, kw_only=True, slots=True)
class Collection:
    """One folder on the search path.

    `name` is what users read in listings and write in `extends "NAME:slurm/base.sh.j2"`; `origin`
    says how the folder came onto the path: project, user, group, site-wide or built-in.
    """

    name: str
    path: Path
    origin: str
    description: str = ""
    contact: str = ""
    url: str = ""

    def label(self) -> str:
        """Name the collection for a listing: `lab (group)`, or `built-in` once."""
        return self.name if self.name == self.origin else f"{self.name} ({self.origin})"


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """A file or folder of a collection, and the collections whose same-named one it shadows."""

    name: str
    path: Path
    collection: Collection
    shadows: tuple[Collection, ...] = ()


def builtin_folder() -> Path:
    """Return the built-in collection: inside an installed wheel, else the checkout's root."""
    package = Path(__file__).resolve().parent
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
            found.setdefault(folder.resolve(), _collection(folder.resolve(), origin))
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


def _collection(folder: Path, origin: str) -> Collection:
    default = folder.name if origin == "group" else origin
    manifest = folder / MANIFEST
    if not manifest.is_file():
        return Collection(name=default, path=folder, origin=origin)
    fields = read_document(manifest, "a collection")
    collection = Collection(
        name=fields.text("name", default) or default,
        path=folder,
        origin=origin,
        description=fields.text("description") or "",
        contact=fields.text("contact") or "",
        url=fields.text("url") or "",
    )
    _refuse_newer(fields)
    fields.done()
    return collection


def _refuse_newer(fields: Fields) -> None:
    needed = fields.text("hpckit")
    if needed and _version(needed.removeprefix(">=").strip()) > _version(__version__):
        raise ConfigError(
            f"{fields.at('hpckit')}: this collection needs hpckit {needed}, "
            f"this is {__version__}. Upgrade: pip install -U hpckit."
        )


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".") if part.isdigit())


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


def content_hash(*paths: Path) -> str:
    """Return `sha256:` and 16 hex digits over the bytes of files, or of all files of a folder."""
    digest = hashlib.sha256()
    for path in paths:
        files = (
            sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
        )
        for file in files:
            if "__pycache__" in file.parts:
                continue
            digest.update(file.relative_to(path.parent).as_posix().encode() + b"\0")
            digest.update(file.read_bytes())
    return f"sha256:{digest.hexdigest()[:16]}"
