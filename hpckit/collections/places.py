"""Where hpckit keeps what belongs to the user: configuration, and what can be fetched again."""

import hashlib
import os
import re
from collections.abc import Mapping
from pathlib import Path

from hpckit.collections.source import Source


def config_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Return `~/.config/hpckit`, the user's own collection."""
    return Path(environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "hpckit"


def cache_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Return `~/.cache/hpckit`; jobs read workloads from there, so nodes must see it."""
    return Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hpckit"


def checkout_folder(source: Source, commit: str, cache: Path) -> Path:
    """Return where a commit's files are, or would be."""
    return cache / "collections" / _key(source) / commit


def repository(source: Source, cache: Path) -> Path:
    """Return where the clone of a source is, or would be."""
    return cache / "collections" / _key(source) / "repository.git"


def _key(source: Source) -> str:
    stem = re.sub(r"[^A-Za-z0-9.-]+", "-", source.location.rpartition("/")[2].removesuffix(".git"))
    return f"{stem.strip('.-')[:40]}-{hashlib.sha256(source.location.encode()).hexdigest()[:12]}"
