"""hpckit itself: its Python and packages, the folders of runs and state, its collections."""

import os
import re
import shlex
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from importlib import metadata
from pathlib import Path

from hpckit.collections import survey
from hpckit.collections.lockfile import lock_files, read_lock
from hpckit.collections.manage import verify
from hpckit.collections.trust import owner_name
from hpckit.detect.login_node import folder_on, read_mounts
from hpckit.doctor import Check, bad, good, unknown
from hpckit.paths import is_folder
from hpckit.text import plural
from hpckit.version import DISTRIBUTION, __version__

_REQUIREMENT = re.compile(r"(?P<name>[A-Za-z0-9._-]+)\s*(?P<limits>[^;]*)(?:;.*)?")
_LIMIT = re.compile(r"(>=|<=|==|!=|<|>)\s*([\d.]+)")


def own_checks() -> Iterator[Check]:
    """Check Python, hpckit's packages, and whether nodes can see them."""
    version = ".".join(map(str, sys.version_info[:3]))
    yield good(f"hpckit {__version__}, Python {version} at {sys.executable}")
    yield _packages()
    yield from namesake_checks(_version("hpckit"))
    where = folder_on("python", sys.prefix, read_mounts())
    if where.shared:
        yield good(f"hpckit's Python is on a shared file system ({where.file_system})")
    else:
        yield unknown(
            f"whether nodes have {sys.prefix}",
            f"its file system is {where.kind}; jobs start hpckit's Python on the nodes, "
            "by the same path",
        )


def _packages() -> Check:
    try:
        wanted = metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        return unknown("the versions of hpckit's packages", "hpckit was not installed by pip")
    needed = [row for row in wanted if "extra ==" not in row]
    faults = {row: fault for row in needed if (fault := requirement_fault(row, _version))}
    if faults:
        argv = [sys.executable, "-m", "pip", "install", *faults]
        return bad("; ".join(faults.values()), shlex.join(argv))
    return good(f"{len(needed)} packages, all in versions that hpckit supports")


def namesake_checks(version: str | None) -> Iterator[Check]:
    """Find PyPI's `hpckit` here: another project, whose files take the place of ours.

    Args:
        version: of the installed package of that name; None if there is none.
    """
    if version is not None:
        python = shlex.quote(sys.executable)
        yield bad(
            f"the package hpckit {version} is installed in {sys.prefix}: another project of PyPI "
            "with the same import name and command",
            f"{python} -m pip uninstall hpckit, then install {DISTRIBUTION} again",
        )


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def requirement_fault(requirement: str, installed: Callable[[str], str | None]) -> str:
    """Say what is wrong with a package by a line of a wheel's Requires-Dist; nothing if it fits."""
    match = _REQUIREMENT.fullmatch(requirement.strip())
    if match is None:
        return f"requirement {requirement!r} cannot be read"
    version = installed(match["name"])
    if version is None:
        return f"{match['name']} is not installed"
    limits = _LIMIT.findall(match["limits"])
    if all(_fits(_numbers(version), sign, _numbers(limit)) for sign, limit in limits):
        return ""
    return f"{match['name']} is {version}, needs {match['limits'].strip()}"


def _fits(version: tuple[int, ...], sign: str, limit: tuple[int, ...]) -> bool:
    size = max(len(version), len(limit))
    one, two = (numbers + (0,) * (size - len(numbers)) for numbers in (version, limit))
    return {
        ">=": one >= two,
        "<=": one <= two,
        "==": one == two,
        "!=": one != two,
        "<": one < two,
        ">": one > two,
    }[sign]


def _numbers(text: str) -> tuple[int, ...]:
    """Read the release of a version: `1.5.4rc1` is 1, 5, 4."""
    match = re.match(r"\d+(?:\.\d+)*", text)
    return tuple(int(part) for part in match[0].split(".")) if match else ()


_LEAST_BYTES = 1 << 30
_LEAST_FILES = 1000
_CLOCK_S = 10.0
_TRIAL_BYTES = 4096
_ELSEWHERE = "choose another place: --runs DIR, HPCKIT_RUNS, or runs: in the site's file"


def folder_checks(root: Path, state: Path, *, on_cluster: bool) -> Iterator[Check]:
    """Check the runs folder, which may not be there yet, and the state folder."""
    there = _nearest(root)
    yield from _runs(root, there)
    if on_cluster:
        yield _shared(root)
    try:
        _write_in(_nearest(state))
    except OSError as error:
        todo = "hpckit then finds only runs in the runs folder: free some space in it, or set "
        yield bad(f"{state} cannot be written: {error.strerror}", f"{todo}XDG_STATE_HOME")
    else:
        yield good(f"state folder {state} can be written")


def ledger_checks(folders: Iterable[Path]) -> Iterator[Check]:
    """Check the ledgers that this user's jobs and reports use."""
    for folder in folders:
        what = f"ledger {folder}"
        if not is_folder(folder):
            todo = (
                "docs/report.md says how to make it; or correct 'ledger' in the file that names it"
            )
            yield bad(f"{what} is not there", todo)
        elif not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
            yield bad(
                f"{what} cannot be read and written by you",
                "your jobs leave no line there, and reports miss those of others: ask "
                f"{owner_name(folder)}, its owner, to let you into its group (docs/report.md)",
            )
        else:
            yield good(f"{what} can be read and written")


def _nearest(path: Path) -> Path:
    """Return the folder itself, or the nearest one above that is there."""
    return next(folder for folder in (path, *path.parents) if folder.exists())


def _write_in(folder: Path) -> float:
    """Write a file there and remove it; return when the file system says that was.

    An empty file would not do: a full disk or quota takes it.

    Raises:
        OSError: nothing can be written.
    """
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".hpckit-doctor-") as file:
        file.write(bytes(_TRIAL_BYTES))
        file.flush()
        os.fsync(file.fileno())  # a file server may say only then that it is full
        return os.fstat(file.fileno()).st_mtime


def _runs(root: Path, there: Path) -> Iterator[Check]:
    try:
        seconds = _write_in(there) - time.time()
        space = os.statvfs(there)
    except OSError as error:
        yield bad(f"runs folder {root} cannot be written: {error.strerror}", _ELSEWHERE)
        return
    yield good(f"runs folder {root} can be written")
    if abs(seconds) > _CLOCK_S:
        todo = "tell the cluster's support: the times of files will be wrong"
        yield bad(
            f"the file server's clock differs by {seconds:+.0f} s from this machine's clock", todo
        )
    yield from _space(there, space)
    yield from _writers(there)


def _space(there: Path, space: os.statvfs_result) -> Iterator[Check]:
    free = space.f_bavail * space.f_frsize
    if free < _LEAST_BYTES:
        yield bad(f"{there} has {free / 2**30:.1f} GiB left", f"free some space, or {_ELSEWHERE}")
    else:
        yield good(f"{free / 2**30:.0f} GiB left in the runs folder; your quota may be smaller")
    # Some file systems have no fixed number of files, and say 0 of 0.
    if space.f_files and space.f_favail < _LEAST_FILES:
        yield bad(
            f"{there} has room for only {space.f_favail} more files",
            f"free some space, or {_ELSEWHERE}",
        )


def _writers(there: Path) -> Iterator[Check]:
    mode = there.stat().st_mode
    if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
        yield bad(
            f"everybody can write to {there}",
            f"chmod o-w {shlex.quote(str(there))}, or {_ELSEWHERE}",
        )


def _shared(root: Path) -> Check:
    found = folder_on("runs", str(root), read_mounts())
    if found.shared:
        return good(f"runs folder is on a shared file system ({found.file_system})")
    if found.shared is None:
        return unknown("whether nodes see the runs folder", f"its file system is {found.kind}")
    return unknown(
        "whether nodes see the runs folder",
        f"it is on a local file system ({found.file_system}). Jobs on other nodes would "
        f"not see it. If so, {_ELSEWHERE}",
    )


def collection_checks() -> Iterator[Check]:
    """Check every collection that can be used, and say why others cannot."""
    around = survey()
    for row in around.unusable:
        yield bad(f"collection {row.name!r} is left out", row.why)
    broken = {row.name for row in around.unusable}
    for lock in dict.fromkeys(lock_files()):
        if not lock.exists() or lock.name in broken:
            continue
        for entry in read_lock(lock):
            faults = [] if entry.name in broken else verify(lock, entry)
            if faults:
                todo = f"hpckit collections verify {entry.name}"
                yield bad(f"collection {entry.name!r}: {faults[0]}", todo)
    names = ", ".join(row.name for row in around.collections)
    number = len(around.collections)
    yield good(f"{number} {plural('collection', number)}: {names}")
