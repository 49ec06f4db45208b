"""Who could change a collection: its owner, its group and root may; anybody else is refused.

Scripts and templates of a collection run as whoever submits them. POSIX modes and owners are
looked at, and links; access lists (ACLs) are not.
"""

import errno
import functools
import json
import os
import pwd
import stat
from collections.abc import Iterator
from pathlib import Path

from hpckit.collections.contents import Rows, below
from hpckit.errors import ConfigError, OutsideError
from hpckit.files import DamagedFileError, read_json, replace_file
from hpckit.frozen import frozen
from hpckit.owners import group_name, steps, user_name
from hpckit.paths import CONFIG, config_folder, home_steps, make_folder, refuse_foreign
from hpckit.values import rebuild

_ROOT = 0


class Fault(str):
    """Why somebody else could change what a collection does, as half a sentence.

    Attributes:
        path: what it is about.
        mend: what its owner can do, as a sentence with a blank behind it; "" where that is open.
    """

    __slots__ = ("mend", "path")
    mend: str
    path: Path

    def __new__(cls, text: str, path: Path, chmod: str = "") -> "Fault":
        """`chmod`: its words that would help."""
        fault = super().__new__(cls, text)
        fault.path = path
        fault.mend = f"Its owner can fix this: chmod {chmod}. " if chmod else ""
        return fault


@frozen(kw_only=True)
class _Trusted:
    """The list of sources that this user has taken as they are."""

    trusted: tuple[str, ...]


def owner_name(path: Path) -> str:
    """Return the login of a file's owner, or the uid as text where it has none."""
    return _user(path.stat().st_uid)


_user, _group = functools.cache(user_name), functools.cache(group_name)


@functools.cache
def _is_member(uid: int, gid: int) -> bool:
    try:
        user = pwd.getpwuid(uid)
    except KeyError:
        return False
    return gid in os.getgrouplist(user.pw_name, user.pw_gid)


def faults(folder: Path, rows: Rows) -> Iterator[Fault]:
    """Yield why somebody other than owner, group and root could change what a collection does."""
    yield from writer_faults(folder, rows)
    yield from link_faults(folder, rows)


def writer_faults(folder: Path, rows: Rows, *, as_project: bool = False) -> Iterator[Fault]:
    """Yield files and folders that somebody other than owner, group and root could change.

    A project may be a folder where everybody can add files and nobody can replace them, as /tmp:
    what strangers add there is told by its owner.
    """
    top = folder.stat()
    yield from _of_parents(folder, top)
    if not (as_project and top.st_mode & stat.S_ISVTX):
        yield from _of_mode(folder, top, top)
    yield from inner_faults(folder, rows)


def inner_faults(folder: Path, rows: Rows) -> Iterator[Fault]:
    """Yield the same of what is in a folder. A link is its maker's, whatever it leads to."""
    top = folder.stat()
    for name, status in rows:
        path = folder / name
        if not stat.S_ISLNK(status.st_mode):
            yield from _of_mode(path, status, top)
        if not _is_known(status.st_uid, top):
            yield _of_stranger(path, status, top)


def link_faults(folder: Path, rows: Rows) -> Iterator[Fault]:
    """Yield links that lead out of the collection, and what is neither file nor folder."""
    real = folder.resolve()
    for name, status in rows:
        path, mode = folder / name, status.st_mode
        if not stat.S_ISLNK(mode):
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                yield Fault(f"{path} is neither a file nor a folder", path)
            continue
        target = Path(os.path.realpath(path))
        if _is_circle(path):
            yield Fault(f"{path} is a broken link", path)
        elif not target.is_relative_to(real):
            yield Fault(f"{path} is a link to {target}, outside the collection", path)


def _is_circle(path: Path) -> bool:
    """Ask the kernel: Path.resolve() raises for a circle of links only until Python 3.12."""
    try:
        path.stat()
    except OSError as error:
        return error.errno == errno.ELOOP
    return False


def repository_faults(folder: Path) -> Iterator[Fault]:
    """Yield what everybody can write of a git repository: they could move its branches."""
    inner = folder / ".git" if (folder / ".git").is_dir() else folder
    top = folder.stat()
    yield from _of_parents(folder, top)
    for path, status in ((folder, top), *below(inner)):
        if not _is_known(status.st_uid, top):
            yield _of_stranger(path, status, top)
        if not stat.S_ISLNK(status.st_mode):
            yield from _of_mode(path, status, top)


def _is_known(uid: int, top: os.stat_result) -> bool:
    """Accept root, this user, the collection's owner and its group.

    In a sticky folder the group's members may add and not replace, as everybody else in /tmp: there
    they are strangers to one another.
    """
    if uid in (_ROOT, os.geteuid(), top.st_uid):
        return True
    return not top.st_mode & stat.S_ISVTX and _is_member(uid, top.st_gid)


def _of_stranger(path: Path, status: os.stat_result, top: os.stat_result) -> Fault:
    return Fault(
        f"{path} belongs to {_user(status.st_uid)}, who is not the collection's owner and "
        f"not in its group {_group(top.st_gid)}",
        path,
    )


def _of_mode(path: Path, status: os.stat_result, top: os.stat_result) -> Iterator[Fault]:
    if status.st_mode & stat.S_IWOTH:
        yield Fault(f"everybody can write to {path}", path, "-R o-w")
    elif status.st_mode & stat.S_IWGRP and not _group_is_known(status, top):
        yield Fault(
            f"group {_group(status.st_gid)} can write to {path}, but it is not the "
            "collection's group",
            path,
            "-R g-w",
        )


def _of_parents(folder: Path, top: os.stat_result) -> Iterator[Fault]:
    """Yield what is on the way to a folder by which somebody else could put another in its place.

    A link in a folder like /tmp is its maker's, who can lead it elsewhere at any time; the kernel
    refuses to follow it only where fs.protected_symlinks is set. The group counts only where it may
    write the collection itself. Whoever owns what is above the user's home has it anyway.
    """
    real, home = folder.resolve(), home_steps()
    for step in steps(folder.absolute()):
        if step == real:
            continue
        status = step.lstat()
        known = _is_known(status.st_uid, top) and (
            status.st_uid in (_ROOT, os.geteuid(), top.st_uid) or top.st_mode & stat.S_IWGRP
        )
        if not known and step not in home:
            kind = "a link on the way" if stat.S_ISLNK(status.st_mode) else "above it"
            yield Fault(
                f"{step}, {kind}, belongs to {_user(status.st_uid)}, who could replace it with "
                "another folder",
                step,
            )
        if stat.S_ISDIR(status.st_mode):
            yield from _of_parents_mode(step, status, top)


def _of_parents_mode(parent: Path, status: os.stat_result, top: os.stat_result) -> Iterator[Fault]:
    if status.st_mode & stat.S_ISVTX:  # in /tmp only a file's owner may move it
        return
    if status.st_mode & stat.S_IWOTH:
        text = f"everybody can write to {parent}, and could replace the folder"
        yield Fault(text, parent, "o-w")
    elif status.st_mode & stat.S_IWGRP and not (
        status.st_uid == _ROOT or _group_is_known(status, top)
    ):
        text = f"group {_group(status.st_gid)} can write to {parent} above it"
        yield Fault(text, parent, "g-w")


def _group_is_known(status: os.stat_result, top: os.stat_result) -> bool:
    """Accept the collection's own group, root's, and a user's private one of the same name."""
    return status.st_gid in (top.st_gid, _ROOT) or _group(status.st_gid) == _user(status.st_uid)


def trusted(config: Path | None = None) -> frozenset[str]:
    """Return the sources this user has taken with `--trust`.

    It is the user's own decision, so it is in no lock file, which others could have written.

    Raises:
        ConfigError: the list is damaged.
    """
    path = _list(config)
    try:
        refuse_foreign(path, CONFIG)
    except ConfigError:
        return frozenset()  # others could have written it: it is not this user's decision
    try:
        return frozenset(rebuild(_Trusted, read_json(path)).trusted)
    except FileNotFoundError:
        return frozenset()
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}.", at=path) from error
    except DamagedFileError as error:
        raise ConfigError(f"is damaged ({error}). Remove it.", at=path) from error


def set_trusted(source: str, yes: bool) -> None:
    """Write down, or forget, that this user trusts a source.

    Raises:
        OutsideError: the list cannot be written. ConfigError: others can write it, too.
    """
    path = _list(None)
    refuse_foreign(path, CONFIG)
    known = trusted()
    wanted = known | {source} if yes else known - {source}
    if wanted == known:
        return
    try:
        make_folder(path.parent)
        replace_file(path, json.dumps({"trusted": sorted(wanted)}, indent=2) + "\n")
    except OSError as error:
        raise OutsideError(f"{path}: cannot be written: {error.strerror}.") from error


def _list(config: Path | None) -> Path:
    return (config or config_folder()) / "trusted.json"
