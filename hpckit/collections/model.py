"""What a collection is, a file found in one, and what a file's content is called."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

MANIFEST = "hpckit.yaml"


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
