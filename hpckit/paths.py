"""Paths as users type them: `~` is a home, and what cannot be a path is simply not there."""

import difflib
import os
from pathlib import Path


def typed_path(text: str | Path) -> Path:
    """Return an absolute path; `~` of a user who does not exist stays as it is.

    Links stay too: a venv's bin/python is one, and its place is what makes it a venv's.
    """
    return Path(os.path.expanduser(text)).absolute()  # noqa: PTH111  # Path's own raises RuntimeError


def is_file(path: Path) -> bool:
    """Say whether there is such a file; not so where it may not be looked at, or is too long."""
    return os.path.isfile(path)  # noqa: PTH113  # Path's own raises PermissionError and the like


def is_program(path: Path) -> bool:
    """Say whether there is a file that may be started, by the same rule."""
    return is_file(path) and os.access(path, os.X_OK)


def is_folder(path: Path) -> bool:
    """Say whether there is such a folder, by the same rule."""
    return os.path.isdir(path)  # noqa: PTH112


def nearest_name(path: Path) -> str | None:
    """Return the name in the same folder that looks most like a path's, whatever its capitals.

    `train` is `train.py` where there is that.
    """
    try:
        names = {name.casefold(): name for name in sorted(os.listdir(path.parent))[:10_000]}  # noqa: PTH208
    except OSError:
        return None
    close = difflib.get_close_matches(path.name.casefold(), names, n=1, cutoff=0.75)
    close = [name for name in (f"{path.name.casefold()}.py",) if name in names] or close
    near = names[close[0]] if close else path.name
    return None if near == path.name else near


def is_there(path: Path) -> bool:
    """Say whether there is anything, by the same rule."""
    return os.path.exists(path)  # noqa: PTH110
