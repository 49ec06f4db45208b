"""Whether runs can be written, and seen by the nodes; and where hpckit remembers them."""

import os
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from hpckit.detect.mounts import place, read_mounts
from hpckit.doctor.model import Check, bad, good, unknown

_LEAST_BYTES = 1 << 30
_LEAST_FILES = 1000
_CLOCK_S = 10.0
_ELSEWHERE = "choose another place: --runs DIR, HPCKIT_RUNS, or runs: in the site's file"


def folder_checks(root: Path, state: Path, *, on_cluster: bool) -> Iterator[Check]:
    """Check the runs folder, which may not be there yet, and the state folder."""
    there = _nearest(root)
    yield from _runs(root, there)
    if on_cluster:
        yield _shared(root)
    if not os.access(_nearest(state), os.W_OK):
        todo = "hpckit then finds only runs in the runs folder: set XDG_STATE_HOME"
        yield bad(f"{state} cannot be written", todo)
    else:
        yield good(f"state folder {state} can be written")


def _nearest(path: Path) -> Path:
    """Return the folder itself, or the nearest one above that is there."""
    return next(folder for folder in (path, *path.parents) if folder.exists())


def _runs(root: Path, there: Path) -> Iterator[Check]:
    try:
        with tempfile.NamedTemporaryFile(dir=there, prefix=".hpckit-doctor-") as file:
            seconds = os.fstat(file.fileno()).st_mtime - time.time()
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
        yield bad(f"{there} has {free / 1e9:.1f} GB left", f"free some space, or {_ELSEWHERE}")
    else:
        yield good(f"{free / 1e9:.0f} GB left in the runs folder; your quota may be smaller")
    # Some file systems have no fixed number of files, and say 0 of 0.
    if space.f_files and space.f_favail < _LEAST_FILES:
        yield bad(
            f"{there} has room for only {space.f_favail} more files",
            f"free some space, or {_ELSEWHERE}",
        )


def _writers(there: Path) -> Iterator[Check]:
    mode = there.stat().st_mode
    if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
        yield bad(f"everybody can write to {there}", f"chmod o-w {there}, or {_ELSEWHERE}")


def _shared(root: Path) -> Check:
    found = place("runs", str(root), read_mounts())
    if found.shared:
        return good(f"runs folder is on a shared file system ({found.file_system})")
    if found.shared is None:
        return unknown("whether nodes see the runs folder", f"its file system is {found.kind}")
    return unknown(
        "whether nodes see the runs folder",
        f"it is on a local file system ({found.file_system}). Jobs on other nodes would "
        f"not see it. If so, {_ELSEWHERE}",
    )
