"""Which folder a program's project is, and what its hpckit.yaml says of its code.

It is the git work tree that the program is in, else the folder it lies in; of a module in a package
the folder that Python imports it from.
"""

import os
import pwd
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from hpckit.collections.collection import MANIFEST, CodeRules, code_rules
from hpckit.documents import read_document
from hpckit.frozen import frozen
from hpckit.owners import is_mine
from hpckit.paths import config_folder, is_file, is_there

MAX_MB = 200

# Of an installed package, or program, the files are kept by whoever installed it.
_INSTALLED = ("site-packages", "dist-packages")
_MOST_ABOVE = 3  # of scripts that look for their project's top, few go further
_OF_THE_SYSTEM = ("usr", "bin", "sbin", "lib", "lib64", "opt", "nix", "snap")  # hier(7)


@frozen(kw_only=True)
class Project:
    """A folder whose files are kept.

    Attributes:
        root: its real path, without links.
        git: whether it is a git work tree.
        file: the program's. alone: nothing else of the folder is kept, which is no project's own.
        package: what is kept if `root` is too large: the outermost package of a module, in it.
        above: folders over `root`, the topmost first. The copy lies as deep, so that `..` leads to
            what is there when the job runs; nothing of it is kept.
    """

    root: Path
    git: bool
    file: Path | None = None
    alone: bool = False
    package: Path | None = None
    above: tuple[Path, ...] = ()

    @property
    def name(self) -> str:
        """Its path in a kept tree; the topmost folder of it is not a hidden one."""
        top, *inner = (*self.above, self.root)
        return "/".join((top.name.lstrip(".") or "code", *(folder.name for folder in inner)))

    def over(self) -> Iterator[tuple[Path, str]]:
        """Yield the folders over it, the nearest first, each with its path in a kept tree."""
        path = self.name
        for folder in reversed(self.above):
            path = path.rpartition("/")[0]
            yield folder, path


class Source(NamedTuple):
    """A file of code, and the folder that Python imports it from, if it is a module's.

    A folder in place of the file means the work tree that it is in.
    """

    file: Path
    top: Path | None = None


def project_of(file: Path, here: Path, top: Path | None = None) -> Project | None:
    """Return the project of a file: the work tree that `here` is in, if the file is in it, too.

    `top` is the folder that Python imports it from: the other modules of its package, and those
    beside the package, are as much of the program as those beside a script.
    None: it is installed, or its place has a name that cannot be written on a line.
    """
    real = Path(os.path.realpath(file))
    folder = real.parent
    if not str(real).isprintable() or {*real.parts} & {*_INSTALLED}:
        return None
    if _is_below(folder, "pyvenv.cfg"):
        return None
    stood = work_tree(Path(os.path.realpath(here)))
    if stood and real.is_relative_to(stood):
        return Project(root=stood, git=True, file=real)
    if root := work_tree(folder):
        return Project(root=root, git=True, file=real)
    if real.parts[1] in _OF_THE_SYSTEM or _is_below(folder, "conda-meta"):
        return None
    wide, first = _wide_places(folder), Path(os.path.realpath(top or folder))
    if first == folder or not real.is_relative_to(first):
        alone = str(folder) in wide
        return Project(root=folder, git=False, file=real, alone=alone, above=_above(folder))
    package = first / real.relative_to(first).parts[0]
    if str(first) in wide:
        return Project(root=package, git=False, file=real, above=_above(package))
    return Project(root=first, git=False, file=real, package=package, above=_above(first))


def part_of(project: Project, root: Path, *, alone: bool = False) -> Project:
    """Return a folder in a project outside git, or the program's file in it, as the project.

    What stood over the project still does, so each path in the copy stays what it was.
    """
    way = [folder for folder in reversed(root.parents) if folder.is_relative_to(project.root)]
    return replace(project, root=root, package=None, alone=alone, above=(*project.above, *way))


def _above(folder: Path) -> tuple[Path, ...]:
    """Return the folders over one, the topmost first: its parent, and some more of the user's."""
    wide = _wide_places(folder)
    if str(folder) in wide:
        return ()
    above = [folder.parent]
    while len(above) < _MOST_ABOVE:
        place = above[0].parent
        if str(place) in wide or str(above[0]) in wide or not is_mine(place):
            break
        above.insert(0, place)
    return tuple(above)


def project_at(folder: Path) -> Project | None:
    """Return the work tree that a folder is in; None outside git."""
    root = work_tree(Path(os.path.realpath(folder)))
    return Project(root=root, git=True) if root and str(root).isprintable() else None


def work_tree(folder: Path) -> Path | None:
    """Return the topmost folder of the work tree a folder is in, on the same file system.

    Homes, `/` and folders for all are not taken for projects, whatever they hold.
    """
    try:
        device, wide = folder.stat().st_dev, _wide_places(folder)
        for root in (folder, *folder.parents):
            if root.stat().st_dev != device or str(root) in wide:
                return None
            if _has_git(root):
                return root
    except OSError:
        return None
    return None


def _has_git(root: Path) -> bool:
    place = root / ".git"
    try:
        mode = place.stat().st_mode
    except OSError:
        return False
    return is_there(place / "HEAD") if stat.S_ISDIR(mode) else stat.S_ISREG(mode)


def _wide_places(folder: Path) -> set[str]:
    """Return the folders that are places for all kinds of things, and never one project's.

    Homes are: the user's own, and of the others those that `folder` can be in.
    """
    wide = {"/", "/home", "/tmp", "/var/tmp", "/scratch", "/dev/shm"}  # noqa: S108
    # As tempfile has it, which tries each by writing a file.
    named = {os.environ[name] for name in ("TMPDIR", "TEMP", "TMP") if os.environ.get(name)}
    places = wide | named | {os.path.expanduser("~"), *_homes(folder)}  # noqa: PTH111
    return {*places, *map(os.path.realpath, places)}


def _homes(folder: Path) -> Iterator[str]:
    """Yield the homes that the machine lists for who owns a folder or one over it; not root's."""
    owners = set()
    for at in (folder, *folder.parents):
        with suppress(OSError):  # a module's folder in an archive
            owners.add(at.stat().st_uid)
    for uid in owners - {0}:
        with suppress(KeyError):  # a user who is not listed, as in a container
            yield pwd.getpwuid(uid).pw_dir or "/"


def _is_below(folder: Path, mark: str) -> bool:
    return any(is_there(at / mark) for at in (folder, *folder.parents))


def read_rules(root: Path) -> CodeRules:
    """Return what a project says of its code, and for what it does not say, the user.

    Raises:
        ConfigError: a file is wrong.
    """
    own, project = _said(config_folder()), _said(root)
    return replace(
        project,
        keep=own.keep if project.keep is None else project.keep,
        exclude=(*own.exclude, *project.exclude),
        max_mb=project.max_mb or own.max_mb,
    )


def _said(folder: Path) -> CodeRules:
    manifest = folder / MANIFEST
    return code_rules(read_document(manifest, "a project")) if is_file(manifest) else CodeRules()
