"""`hpckit.yaml`: what a collection says of itself, and the hpckit it needs."""

from pathlib import Path

from hpckit.collections.lockfile import RESERVED, is_name
from hpckit.collections.model import MANIFEST, Collection
from hpckit.documents import Fields, read_document
from hpckit.errors import ConfigError
from hpckit.version import __version__

# Of those who take a collection from others, nobody should have to ask whose it is.
SHARED = ("name", "description", "contact", "url")


def describe(folder: Path, origin: str) -> Collection:
    """Return a folder as a collection, with what its manifest says.

    Raises:
        ConfigError: the manifest is wrong, or wants a newer hpckit.
    """
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
    _refuse_reserved(fields, collection)
    _refuse_newer(fields)
    fields.done()
    return collection


def describe_shared(folder: Path, origin: str) -> Collection:
    """Return the same of a collection that was taken from others, which must say whose it is.

    Raises:
        ConfigError: also when there is no manifest, or it leaves something out.
    """
    manifest = folder / MANIFEST
    if not manifest.is_file():
        raise ConfigError(
            f"{folder} has no {MANIFEST}. A shared collection needs this file with "
            f"{', '.join(SHARED)}: see `hpckit collections new`."
        )
    collection = describe(folder, origin)
    fields = read_document(manifest, "a shared collection")
    for key in SHARED:
        fields.required_text(key)
    if not is_name(collection.name):
        raise ConfigError(
            f"{fields.at('name')}: {collection.name!r} is not a valid name for a "
            "collection: use only letters, digits and ._-"
        )
    return collection


def _refuse_reserved(fields: Fields, collection: Collection) -> None:
    if collection.name in RESERVED and collection.name != collection.origin:
        raise ConfigError(
            f"{fields.at('name')}: the name {collection.name!r} is reserved for hpckit. "
            "Choose another name."
        )


def _refuse_newer(fields: Fields) -> None:
    needed = fields.text("hpckit")
    if needed and _version(needed.removeprefix(">=").strip()) > _version(__version__):
        raise ConfigError(
            f"{fields.at('hpckit')}: this collection needs hpckit {needed}, "
            f"this one is {__version__}. Upgrade: pip install -U hpckit."
        )


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".") if part.isdigit())
