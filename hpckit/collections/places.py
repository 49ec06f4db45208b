"""Where hpckit keeps what belongs to the user: configuration, and what can be fetched again."""

import hashlib
import os
import re
from collections.abc import Mapping
from pathlib import Path

from hpckit.collections.source import Source
from hpckit.errors import ConfigError
from hpckit.ownership import home_steps, strangers

CACHE, CONFIG = "XDG_CACHE_HOME", "XDG_CONFIG_HOME"


def config_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Return `~/.config/hpckit`, the user's own collection."""
    return Path(environ.get(CONFIG) or Path.home() / ".config") / "hpckit"


def cache_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Return `~/.cache/hpckit`; jobs read workloads from there, so nodes must see it."""
    return Path(environ.get(CACHE) or Path.home() / ".cache") / "hpckit"


def refuse_foreign(folder: Path, variable: str) -> None:
    """Refuse a folder of the cache or of the configuration that is not this user's alone.

    What lies there is believed: a checkout, a list of hashes, templates, whom the user trusts. Who
    could replace the user's home is not asked for: they have the user's `.bashrc` already.

    Raises:
        ConfigError: somebody else could have put it there; `variable` names another place.
    """
    try:
        why = strangers(folder, passed=home_steps())
    except OSError as error:
        why = f"{error.filename} cannot be read: {error.strerror}"
    if why:
        raise ConfigError(
            f"{why}: another user could have changed hpckit's files in {folder}. "
            f"Remove their write permission (chmod go-w), or set {variable} to a folder "
            "of your own."
        )


def checkout_folder(source: Source, commit: str, cache: Path) -> Path:
    """Return where a commit's files are, or would be."""
    return cache / "collections" / _key(source) / commit


def repository(source: Source, cache: Path) -> Path:
    """Return where the clone of a source is, or would be."""
    return cache / "collections" / _key(source) / "repository.git"


def _key(source: Source) -> str:
    stem = re.sub(r"[^A-Za-z0-9.-]+", "-", source.location.rpartition("/")[2].removesuffix(".git"))
    return f"{stem.strip('.-')[:40]}-{hashlib.sha256(source.location.encode()).hexdigest()[:12]}"
