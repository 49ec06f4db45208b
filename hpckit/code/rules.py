"""What is kept of a project: by what git knows and ignores, its own rules, and names of secrets."""

import os
from pathlib import Path
from typing import NamedTuple

from hpckit.code.ignore import GITIGNORE, Patterns, outer_patterns, patterns, patterns_of
from hpckit.code.project import Project
from hpckit.code.secrets import looks_secret
from hpckit.collections.collection import MANIFEST, CodeRules
from hpckit.errors import OutsideError
from hpckit.files import DamagedFileError, reason
from hpckit.gitfiles.index import FOLDER, read_index
from hpckit.gitfiles.repository import id_bytes, repository_at
from hpckit.owners import user_name
from hpckit.paths import config_folder


class Place(NamedTuple):
    """A folder on the way: what holds in it."""

    path: str  # from the root, with a slash at its end; "" is the root
    open: bool
    ignored: bool  # by git, or a rule: only what is tracked or included is kept
    included: bool
    base: str  # the work tree's that it is in: of a submodule its own
    ignores: tuple[tuple[str, Patterns], ...]  # the innermost first
    tracked: frozenset[str]  # files, from the root
    above: frozenset[str]  # folders of these


class Kept:
    """Which files and folders of a project are kept.

    Attributes:
        secrets: paths that were left out because they look like secrets.
    """

    def __init__(self, project: Project, rules: CodeRules) -> None:
        self.secrets: list[str] = []
        self._git = project.git
        self._root = str(project.root)
        self._include, self._exclude = patterns(rules.include), patterns(rules.exclude)
        self._ahead = _folders_ahead(rules.include)
        self._program = _and_above(project)

    def entered(self, place: Place, names: set[str]) -> Place:
        """Read what a folder with such names says itself of what is in it."""
        if not self._git:
            return place
        if place.path == "" or ".git" in names:
            place = self._work_tree(place)
        if GITIGNORE not in names:
            return place
        try:
            own = patterns_of(f"{self._root}/{place.path}{GITIGNORE}")
        except (OSError, DamagedFileError) as error:
            raise unreadable(f"{self._root}/{place.path}{GITIGNORE}", error) from error
        return place._replace(ignores=((place.path, own), *place.ignores)) if own else place

    def _work_tree(self, place: Place) -> Place:
        """Return a place as the topmost folder of a work tree: the project's, or a submodule's."""
        folder = Path(self._root, place.path)
        try:
            repository = repository_at(folder)
            if repository is None:
                return place
            ignores = tuple((place.path, row) for row in reversed(outer_patterns(repository)))
            entries = read_index(repository.own / "index", id_bytes(repository)).entries
        except (OSError, DamagedFileError) as error:
            raise OutsideError(
                f"Which files of {str(folder)!r} git knows cannot be read: {reason(error)}. "
                "--no-code submits without a copy of the code."
            ) from error
        # Of a folder that a sparse checkout leaves out the index names no file.
        named = (row.path for row in entries if row.mode != FOLDER)
        tracked = frozenset(place.path + os.fsdecode(path).rstrip("/") for path in named)
        return place._replace(
            base=place.path, ignores=ignores, tracked=tracked, above=_folders_over(tracked)
        )

    def is_needed(self, place: Place, path: str) -> bool:
        """Say whether the code is not whole without something: git tracks it, or it is run."""
        return path in self._program or path in place.tracked or path in place.above

    def inner(self, place: Place, name: str) -> Place | None:
        """Return a folder in another; None: it is left out with all that is in it."""
        path = place.path + name
        included = place.included or bool(self._include and self._include.match(path + "/"))
        if not included and looks_secret(name, folder=True):
            self.secrets.append(path)
            return None
        ignored = not included and (place.ignored or self._is_left(place, path + "/"))
        known = path in place.above or path in place.tracked  # the latter is a submodule
        if ignored and not (known and not self._excluded(path + "/")) and path not in self._ahead:
            return None
        ignored = ignored and path not in place.tracked
        return place._replace(path=path + "/", ignored=ignored, included=included)

    def file(self, place: Place, name: str) -> bool:
        """Say whether a file is kept."""
        path = place.path + name
        if place.included or (self._include and self._include.match(path)):
            return not (place.included and looks_secret(name) and not self._named(path))
        if looks_secret(name):
            self.secrets.append(path)
            return False
        if self._excluded(path):
            return False
        if path in place.tracked:
            return True
        return not (place.ignored or self._is_left(place, path))

    def _named(self, path: str) -> bool:
        if self._include and self._include.match(path):
            return True
        self.secrets.append(path)
        return False

    def _excluded(self, path: str) -> bool:
        return bool(self._exclude and self._exclude.match(path))

    def _is_left(self, place: Place, path: str) -> bool:
        """Say whether a rule or git leaves a path out."""
        if self._excluded(path):
            return True
        for base, rows in place.ignores:
            verdict = rows.match(path[len(base) :])
            if verdict is not None:
                return verdict
        return False


def _and_above(project: Project) -> frozenset[str]:
    """Return a project's program and the folders it is in, from the root, which is ""."""
    file = project.file
    if file is None or not file.is_relative_to(project.root):
        return frozenset({""})
    path = str(file.relative_to(project.root))
    return _folders_over(frozenset({path})) | {path, ""}


def _folders_over(paths: frozenset[str]) -> frozenset[str]:
    found: set[str] = set()
    for path in paths:
        folder = path.rpartition("/")[0]
        while folder and folder not in found:
            found.add(folder)
            folder = folder.rpartition("/")[0]
    return frozenset(found)


def _folders_ahead(include: tuple[str, ...]) -> frozenset[str]:
    """Return the folders in which something that is to be included may lie, as far as named."""
    found: set[str] = set()
    for text in include:
        parts = text.strip("/").split("/")
        whole = "/" in text.strip("/") or text.startswith("/")
        for count in range(1, len(parts)) if whole else ():
            if any(sign in parts[count - 1] for sign in "*?["):
                break
            found.add("/".join(parts[:count]))
    return frozenset(found)


def unreadable(path: str | Path, error: OSError | DamagedFileError) -> OutsideError:
    """Return the error of a file of the code that cannot be read."""
    what = f"{str(path)!r} is part of the code and cannot be read: {reason(error)}"
    try:
        owner = os.stat(path).st_uid  # noqa: PTH116  # a text
    except OSError:  # nor looked at
        owner = os.getuid()
    if owner == os.getuid():
        todo, place = "Let it be read (chmod u+r)", "the project's hpckit.yaml"
    else:
        todo, place = f"Ask {user_name(owner)}, whose it is", str(config_folder() / MANIFEST)
    return OutsideError(
        f"{what}. {todo}, leave it out (`code: {{exclude: [...]}}` in {place}), or "
        "submit without a copy of the code: --no-code."
    )
