"""A git checkout read without git: which commit it is at, and whether its files were changed.

git itself runs what a checkout's configuration and attributes name (filters, fsmonitor, hooks,
upload-pack of a partial clone), and takes a folder that only looks like a repository for one. A
checkout may be a colleague's, or have come by mail; so here its files are read and nothing is run.
`repository` (HEAD, configuration, trees), `index` with `split_index`, `changes` since the commit.
Formats: git's Documentation/gitformat-index, gitformat-pack, gitrepository-layout.
"""

from pathlib import Path
from typing import Any

from hpckit.files import DamagedFileError
from hpckit.gitfiles.changes import is_changed
from hpckit.gitfiles.repository import Repository, find_repository, read_head

__all__ = ["Repository", "find_repository", "is_changed", "read_head"]


def code_version(script: Path) -> dict[str, Any] | None:
    """Return commit, branch and dirty flag of the checkout a script lies in; None outside git.

    The checkout may be anybody's: it is read, and no program of it is run. What cannot be known
    without is None, and `unknown` says why. An untracked script counts as a change; other untracked
    files are not looked for: listing them can take minutes on a shared file system.
    """
    known: dict[str, Any] = {"commit": None, "branch": None, "dirty": None}
    try:
        repository = find_repository(script.parent)
        if repository is None:
            return None
        known["branch"], known["commit"] = read_head(repository)
        known["dirty"] = is_changed(repository, known["commit"], script=script)
    except OSError as error:
        known["unknown"] = f"{error.filename or 'it'} cannot be read: {error.strerror}"
    except DamagedFileError as error:
        known["unknown"] = str(error)
    return known
