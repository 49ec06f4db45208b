"""What a collection is, a file found in one, and a collection that cannot be used."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import IO

MANIFEST = "hpckit.yaml"
LOCK = "hpckit.lock"
# Only these of a folder are a collection, and only these are hashed.
PARTS = ("templates", "workloads", MANIFEST)


@dataclass(frozen=True, kw_only=True, slots=True)
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

    def label(self) -> str:
        """Name the collection for a listing: `lab (group)`, or `built-in` once."""
        return self.name if self.name == self.origin else f"{self.name} ({self.origin})"

    def at(self) -> str:
        """Name the collection with its revision, for a script's comment: `lab at 3f2a… (main)`."""
        if not self.revision:
            return self.name
        return f"{self.name} at {self.revision}" + (f" ({self.rev})" if self.rev else "")


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """A file or folder of a collection, and the collections whose same-named one it shadows."""

    name: str
    path: Path
    collection: Collection
    shadows: tuple[Collection, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
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


def is_file_name(name: str) -> bool:
    """Say whether a text can be a file's path in a collection: printable, and below its parts."""
    words = name.split("/")
    return name.isprintable() and words[0] in PARTS and not {"", ".", ".."} & {*words}


def take_in(digest: "hashlib._Hash", stream: IO[bytes]) -> None:
    """Add a file's bytes to a digest, never all at once: nobody knows how many there are."""
    while chunk := stream.read(1 << 20):
        digest.update(chunk)
