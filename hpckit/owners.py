"""Who owns a file or folder, and who else may write to it or put another in its place.

Owners, modes and the kernel's access lists are looked at; those of NFSv4 show nowhere and are not.
"""

import grp
import os
import pwd
import stat
from collections.abc import Iterator
from pathlib import Path

_ROOT = 0
_MOST_LINKS = 40  # as the kernel has it: path_resolution(7)


def login(uid: int | None = None) -> str | None:
    """Return this user's login, or another's; None where there is no row of passwd."""
    try:
        return pwd.getpwuid(os.getuid() if uid is None else uid).pw_name
    except KeyError:
        return None


def user_name(uid: int | None = None) -> str:
    """Return the same as Slurm and `ls` have it: the number where there is no name."""
    return login(uid) or str(os.getuid() if uid is None else uid)


def group_name(gid: int) -> str:
    """Return a group's name as `ls` has it: the number where there is none."""
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


def way_in(path: Path | str, error: Exception) -> str:
    """Return a sentence on how a file or folder may be read that may not be; "" for other errors.

    It begins with a blank: it follows the sentence that says so.
    """
    if not isinstance(error, PermissionError):
        return ""
    try:
        owner = os.stat(path).st_uid  # noqa: PTH116  # often a text
    except OSError:  # a folder over it is closed
        whose = ""
    else:
        if owner == os.getuid():
            return " Let it be read (chmod u+r)."
        whose = f", {user_name(owner)},"
    return (
        f" Its owner{whose} can let you in: chmod -R g+rX (for all a+rX), and for the folders "
        "above it chmod g+x (a+x)."
    )


def is_mine(path: Path) -> bool:
    """Say whether what is there is this user's own; not so where it cannot be looked at."""
    try:
        return path.stat().st_uid == os.getuid()
    except OSError:
        return False


def is_mine_alone(path: Path | int, status: os.stat_result) -> bool:
    """Say whether a file is this user's own, and nobody else may write to it.

    `path` may be an open descriptor.
    """
    return status.st_uid == os.getuid() and not writers(path, status)


def strangers(path: Path, *, passed: frozenset[Path] = frozenset()) -> str:
    """Say who could put another folder in a path's place, or "" if nobody but root and this user.

    A sticky folder, as /tmp, may be written by all: there only its owner moves what is theirs. What
    of the path is not there yet is not looked at, neither is what has `passed`.

    Raises:
        OSError: the path cannot be followed.
    """
    for step in steps(path.absolute()):
        if step in passed:
            continue
        try:
            status = step.lstat()
        except FileNotFoundError:
            return ""
        if status.st_uid not in (_ROOT, os.getuid()):
            return f"{step} belongs to {login(status.st_uid) or f'user {status.st_uid}'}"
        sticky = status.st_mode & stat.S_ISVTX
        if stat.S_ISDIR(status.st_mode) and not sticky and (who := writers(step, status)):
            return f"{who} may write {step}"
    return ""


def steps(path: Path) -> Iterator[Path]:
    """Yield each folder and link on the way to a path, from / on."""
    here, ahead, links = Path("/"), list(reversed(path.parts[1:])), 0
    yield here
    while ahead:
        part = ahead.pop()
        if part == "..":
            here = here.parent
            continue
        here = here / part
        yield here
        if here.is_symlink() and (links := links + 1) <= _MOST_LINKS:
            target = here.readlink()
            ahead += reversed([part for part in target.parts if part != "/"])
            here = Path("/") if target.is_absolute() else here.parent


def writers(path: Path | int, status: os.stat_result) -> str:
    """Name who else than its owner may write to a file or folder: "" if nobody."""
    if status.st_mode & stat.S_IWOTH:
        return "everybody"
    if not status.st_mode & stat.S_IWGRP:
        return ""
    # With an access list the group's bits are only the most that any of it grants.
    listed = _has_access_list(path)
    if not listed and _is_nobody_else(status.st_gid):
        return ""
    return "who is on its access list" if listed else f"group {group_name(status.st_gid)}"


def _has_access_list(path: Path | int) -> bool:
    try:
        return "system.posix_acl_access" in os.listxattr(path)
    except OSError:  # a file system that has none
        return False


def _is_nobody_else(gid: int) -> bool:
    """Say whether a group is root's, or this user's private one: named alike, without members."""
    if gid == _ROOT:
        return True
    try:
        group, user = grp.getgrgid(gid), pwd.getpwuid(os.getuid())
    except KeyError:
        return False
    private = (group.gr_name, gid) == (user.pw_name, user.pw_gid)
    return private and set(group.gr_mem) <= {user.pw_name}
