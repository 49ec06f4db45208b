"""Putting a site's file in its place: never over what others wrote, or a user changed."""

import difflib
import hashlib
import re
from enum import StrEnum
from pathlib import Path

from hpckit.errors import OutsideError
from hpckit.files import DamagedFileError, read_bytes, reason, replace_file
from hpckit.frozen import frozen
from hpckit.paths import make_folder
from hpckit.sites import read_site

_UNKNOWN = "# NOT KNOWN: "


class Outcome(StrEnum):
    """What became of the file; `kept` means that it differs and was left alone."""

    WRITTEN = "written"
    UPDATED = "updated"
    SAME = "nothing to change"
    KEPT = "kept"


@frozen(kw_only=True)
class WriteResult:
    """What was done, why, and the difference between the file and what init would write."""

    outcome: Outcome
    path: Path
    why: str = ""
    diff: str = ""


def write_site_file(path: Path, page: str, *, force: bool = False) -> WriteResult:
    """Write a site's file where that takes nothing away; with `force` in any case.

    Raises:
        OutsideError: the file cannot be read or written.
    """
    old = _read(path)
    if old is None:
        _write(path, page)
        return WriteResult(outcome=Outcome.WRITTEN, path=path)
    if old == page or (written_hash(old) == written_hash(page) and not force):
        edited = "your own changes stay" if old != page else ""
        return WriteResult(outcome=Outcome.SAME, path=path, why=edited)
    diff = "".join(
        difflib.unified_diff(
            old.splitlines(keepends=True),
            page.splitlines(keepends=True),
            fromfile=str(path),
            tofile="what init found",
        )
    )
    why = _keep(old, page)
    if why and not force:
        return WriteResult(outcome=Outcome.KEPT, path=path, why=why, diff=diff)
    if why:  # somebody's own words: they are not lost
        _write(path.with_name(f"{path.name}.old"), old)
    _write(path, page)
    return WriteResult(outcome=Outcome.UPDATED, path=path, diff=diff)


def _keep(old: str, page: str) -> str:
    """Say why a file should stay as it is; nothing when it may be replaced."""
    if written_hash(old) is None:
        return "hpckit init did not write this file"
    if is_edited(old):
        return "the file was edited after hpckit init wrote it"
    missing = _unknown(page) - _unknown(old)
    if missing:
        return (
            f"{', '.join(sorted(missing))} did not answer this time, so the file would lose values"
        )
    return ""


def _unknown(page: str) -> set[str]:
    return {line.removeprefix(_UNKNOWN) for line in page.splitlines() if line.startswith(_UNKNOWN)}


def _read(path: Path) -> str | None:
    try:
        return read_bytes(path).decode(errors="replace")
    except FileNotFoundError:
        return None
    except (OSError, DamagedFileError) as error:
        raise OutsideError(f"{path}: cannot be read: {reason(error)}.") from error


def _write(path: Path, text: str) -> None:
    """Write a file whole or not at all, once hpckit itself can read it."""
    try:
        make_folder(path.parent)
        replace_file(path, text, check=read_site if path.suffix == ".yaml" else None)
    except OSError as error:
        raise OutsideError(
            f"{path}: cannot be written: {error.strerror}. To print what it would say: hpckit init "
            "--dry-run. Another place for your settings: XDG_CONFIG_HOME."
        ) from error


_MARK = re.compile(r"# hpckit init, sha256:([0-9a-f]{64})\n")


def marked(body: str) -> str:
    """Put a line with a hash of a text above it."""
    return f"# hpckit init, sha256:{_hash(body)}\n{body}"


def written_hash(page: str) -> str | None:
    """Return the hash that init wrote into a page; None when the page is not its."""
    mark = _MARK.match(page)
    return mark[1] if mark else None


def is_edited(page: str) -> bool:
    """Say whether a page of ours was changed since it was written."""
    return written_hash(page) != _hash(_MARK.sub("", page, count=1))


def _hash(body: str) -> str:
    return hashlib.sha256(body.encode()).hexdigest()
