"""What a collection is: a folder, what its `hpckit.yaml` says, the files found in it."""

import re
from pathlib import Path
from typing import IO, TYPE_CHECKING

from hpckit.documents import Fields, read_document
from hpckit.errors import ConfigError
from hpckit.frozen import frozen
from hpckit.version import __version__

if TYPE_CHECKING:
    import hashlib

MANIFEST = "hpckit.yaml"
LOCK = "hpckit.lock"
# Only these of a folder are a collection, and only these are hashed.
PARTS = ("templates", "workloads", MANIFEST)
# `extends "built-in:…"` must mean the built-in one.
RESERVED = ("built-in", "project", "user", "site-wide")
_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]*"
# A pattern that hpckit.schemas has, too.
NEEDED = r"(>= *)?[0-9]+(\.[0-9]+)*"


@frozen(kw_only=True)
class Collection:
    """One folder on the search path.

    `name` is what users read in listings and write in `extends "NAME:slurm/base.sh.j2"`; `origin`
    says how the folder came onto the path: project, project lock, user, user lock, group,
    site-wide or built-in. The rest is for collections that were added: where from, by which lock
    file, the tag or branch asked for, and the revision: a git commit, or the hash of a folder that
    is used in place. `changed` says that such a folder is no longer what the lock file recorded.
    """

    name: str
    path: Path
    origin: str
    description: str = ""
    contact: str = ""
    url: str = ""
    source: str = ""
    lock: Path | None = None
    rev: str = ""
    revision: str = ""
    changed: bool = False
    ledger: str | None = None

    def label(self) -> str:
        """Name the collection for a listing: `lab (group)`, or `built-in` once."""
        return self.name if self.name == self.origin else f"{self.name} ({self.origin})"

    def at(self) -> str:
        """Name the collection with its revision, for a script's comment: `lab at 3f2a… (main)`."""
        if not self.revision:
            return self.name
        return f"{self.name} at {self.revision}" + (f" ({self.rev})" if self.rev else "")


@frozen(kw_only=True)
class CodeRules:
    """What of a project's files is kept with a run; None: it does not say.

    Attributes:
        keep: whether anything is. max_mb: megabytes that are kept at most.
        include: patterns of files that are kept although they would be left out; exclude: that
            are left out.
    """

    keep: bool | None = None
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    max_mb: int | None = None


@frozen(kw_only=True)
class Found:
    """A file or folder of a collection, and the collections whose same-named one it shadows."""

    name: str
    path: Path
    collection: Collection
    shadows: tuple[Collection, ...] = ()


@frozen(kw_only=True)
class Unusable:
    """A place on the search path that cannot be used: missing, refused or broken.

    `why` is a sentence with what to do; `provides` the files it would have brought, by their
    paths in the collection; None: nobody knows.
    """

    name: str
    origin: str
    state: str
    why: str
    source: str = ""
    lock: Path | None = None
    provides: frozenset[str] | None = None

    def left_out(self) -> str:
        """Say that it is left out, and why."""
        return f"collection {self.name!r} is left out: {self.why}"

    def has(self, names: frozenset[str]) -> bool:
        """Say whether one of these files could have come from here."""
        return self.provides is None or bool(self.provides & names)


def is_name(text: str) -> bool:
    """Say whether a text can name a collection, also in `extends "NAME:…"`."""
    return bool(re.fullmatch(_NAME, text)) and text not in RESERVED


def is_file_name(name: str) -> bool:
    """Say whether a text can be a file's path in a collection: printable, and below its parts."""
    words = name.split("/")
    return name.isprintable() and words[0] in PARTS and not {"", ".", ".."} & {*words}


def sha256(content: bytes = b"") -> "hashlib._Hash":
    """Return the digest of some bytes, to which more can be added."""
    import hashlib  # noqa: PLC0415  # it loads OpenSSL, and most commands hash nothing

    return hashlib.sha256(content)


def take_in(digest: "hashlib._Hash", stream: IO[bytes]) -> None:
    """Add a file's bytes to a digest, never all at once: nobody knows how many there are."""
    while chunk := stream.read(1 << 20):
        digest.update(chunk)


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
        ledger=ledger_folder(fields),
    )
    _refuse_reserved(fields, collection)
    _refuse_newer(fields)
    code_rules(fields)  # a project's: read where a project's code is kept
    fields.refuse_unknown()
    return collection


def code_rules(fields: Fields) -> CodeRules:
    """Return what a manifest says under `code:`.

    Raises:
        ConfigError: it is wrong.
    """
    rules = fields.mapping("code", "code")
    keep = rules.flag("keep") if rules.scalar("keep") is not None else None
    found = CodeRules(
        keep=keep,
        include=rules.texts("include"),
        exclude=rules.texts("exclude"),
        max_mb=rules.integer("max_mb", minimum=1),
    )
    for key in ("include", "exclude"):
        for text in getattr(found, key):
            if not text.strip() or not text.isprintable() or text.startswith("!"):
                raise ConfigError(
                    f"'{key}' holds {text!r}, must be patterns as in .gitignore, without '!'.",
                    at=rules.at(key),
                )
    rules.refuse_unknown()
    return found


def ledger_folder(fields: Fields) -> str | None:
    """Return what a site or a collection says under `ledger:`, a folder's path.

    Raises:
        ConfigError: it is relative: to what, nobody knows.
    """
    found = fields.text("ledger")
    if found is not None and found[:1] not in ("/", "$", "~"):
        raise ConfigError(
            f"'ledger' is {found!r}, must be a folder's whole path: /proj/lab/ledger.",
            at=fields.at("ledger"),
        )
    return found


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
            f"{collection.name!r} is not a valid name for a "
            "collection: use only letters, digits and ._-",
            at=fields.at("name"),
        )
    return collection


def _refuse_reserved(fields: Fields, collection: Collection) -> None:
    if collection.name in RESERVED and collection.name != collection.origin:
        raise ConfigError(
            f"the name {collection.name!r} is reserved for hpckit. Choose another name.",
            at=fields.at("name"),
        )


def _refuse_newer(fields: Fields) -> None:
    needed = fields.text("hpckit")
    if needed is not None and not re.fullmatch(NEEDED, needed):
        raise ConfigError(
            f"'hpckit' is {needed!r}, must be the oldest version that will do: '>={__version__}'.",
            at=fields.at("hpckit"),
        )
    if needed and _version(needed.removeprefix(">=").strip()) > _version(__version__):
        raise ConfigError(
            f"this collection needs hpckit {needed}, "
            f"this one is {__version__}. Install a newer one: README.md, Install.",
            at=fields.at("hpckit"),
        )


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".") if part.isdigit())
