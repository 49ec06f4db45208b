"""`hpckit.yaml`: what a collection says of itself, and the hpckit it needs."""

from pathlib import Path

from hpckit.collections.model import MANIFEST, Collection
from hpckit.documents import Fields, read_document
from hpckit.errors import ConfigError
from hpckit.version import __version__


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
