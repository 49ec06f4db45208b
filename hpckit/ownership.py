"""Who else may change a folder: where another user could put one of their own in its place.

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
            return f"{step} belongs to {_user(status.st_uid)}"
        sticky = status.st_mode & stat.S_ISVTX
        if stat.S_ISDIR(status.st_mode) and not sticky and (who := writers(step, status)):
            return f"{who} may write {step}"
    return ""


def home_steps() -> frozenset[Path]:
    """Return the folders and links on the way to this user's home; none where there is no home."""
    try:
        return frozenset(steps(Path.home().absolute()))
    except RuntimeError:  # neither $HOME nor a row of passwd
        return frozenset()


def make_folder(path: Path, *, mode: int = 0o755) -> None:
    """Make a folder and those above it that are not there, none writable for others.

    A umask of 002 or 0 would have them so: `mode` is the folder's own, those above get 755.

    Raises:
        OSError: one cannot be made, or something else is in its place.
    """
    for step in reversed(path.absolute().parents):
        if not step.is_dir():
            step.mkdir(mode=0o755, exist_ok=True)
    path.mkdir(mode=mode, exist_ok=True)


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
    return "who is on its access list" if listed else f"group {_group_name(status.st_gid)}"


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


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def _group_name(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)
