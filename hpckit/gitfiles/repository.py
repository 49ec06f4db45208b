"""Where a checkout's git folder is, how it is set up, and which commit its HEAD names."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hpckit.files import DamagedFileError, read_bytes, read_text

_MAX_REFS = 64 * 2**20
_MAX_SMALL = 2**20
_COMMIT = re.compile(r"[0-9a-f]{40}")
_NAME = re.compile(r"refs(?:/(?!\.)[^\0-\x20/\\]+)+")
_SETTING = re.compile(r"^\s*(?:\[[^]\n]*\])?\s*([a-z]+)\s*=\s*\"?([^\s\"]*)", re.MULTILINE)


@dataclass(frozen=True, kw_only=True, slots=True)
class Repository:
    """A checkout: its topmost folder, and where git keeps what it knows of it.

    `own` holds HEAD and the index of this working tree; `common` holds references, objects and
    configuration, which all working trees of a repository share.
    """

    root: Path
    own: Path
    common: Path


def find_repository(folder: Path) -> Repository | None:
    """Return the checkout that a folder is in, on the same file system; None outside any.

    Raises:
        OSError, DamagedFileError: it cannot be read.
    """
    here = folder.resolve()
    device = here.stat().st_dev
    for root in (here, *here.parents):
        if root.stat().st_dev != device:
            return None
        if found := repository_at(root):
            return found
    return None


def repository_at(root: Path) -> Repository | None:
    """Return the checkout whose topmost folder this is; a bare repository is none.

    Raises:
        OSError, DamagedFileError: it cannot be read.
    """
    place = root / ".git"
    if place.is_dir():
        own = place
        if not (own / "HEAD").exists():
            return None
    elif place.exists():  # a further working tree, or a submodule
        own = root / _path_in(place, "gitdir: ")
    else:
        return None
    shared = own / "commondir"
    return Repository(root=root, own=own, common=own / _path_in(shared) if shared.exists() else own)


def read_head(repository: Repository) -> tuple[str, str | None]:
    """Return branch and commit; the commit is None before a branch's first one.

    Raises:
        OSError, DamagedFileError: it cannot be read, or is kept in a way not read here.
    """
    known = read_settings(repository)
    if known.get("objectformat", "sha1") != "sha1" or known.get("refstorage", "files") != "files":
        raise DamagedFileError("its objects or references are of a kind hpckit does not read")
    text = read_text(repository.own / "HEAD", most=_MAX_SMALL).strip()
    if _COMMIT.fullmatch(text):
        return "(detached)", text
    name = _reference(text)
    return name.removeprefix("refs/heads/"), _follow(repository, name)


def read_settings(repository: Repository) -> dict[str, str]:
    """Return the repository's settings by their last word, in lower case; includes are not read.

    Raises:
        OSError, DamagedFileError: they cannot be read.
    """
    return settings_in(repository.common / "config", repository.own / "config.worktree")


def settings_in(*files: Path) -> dict[str, str]:
    """Return settings by their last word, of configuration files where there are any.

    Raises:
        OSError, DamagedFileError: one cannot be read.
    """
    return dict(pair for file in files if file.exists() for pair in _settings(file))


def _settings(file: Path) -> Iterator[tuple[str, str]]:
    text = read_bytes(file, most=_MAX_SMALL).decode("utf-8", "replace")
    yield from _SETTING.findall(text.lower())


def _path_in(file: Path, before: str = "") -> str:
    text = read_text(file, most=_MAX_SMALL).strip("\n")
    if not text.startswith(before) or "\0" in text:
        raise DamagedFileError(f"{file.name} names no folder")
    return text.removeprefix(before)


def _reference(text: str) -> str:
    name = text.removeprefix("ref: ")
    if name == text or not _NAME.fullmatch(name):
        raise DamagedFileError("its HEAD names no branch or commit")
    return name


def _follow(repository: Repository, name: str) -> str | None:
    for _ in range(5):  # as many names of names as git follows
        loose = repository.common / name
        if not loose.is_file():  # an empty folder may be left there
            return _packed(repository, name)
        text = read_text(loose, most=_MAX_SMALL).strip()
        if _COMMIT.fullmatch(text):
            return text
        name = _reference(text)
    raise DamagedFileError("its HEAD names a name of a name without end")


def _packed(repository: Repository, name: str) -> str | None:
    packed = repository.common / "packed-refs"
    if not packed.exists():
        return None
    line = re.compile(rb"^([0-9a-f]{40}) " + re.escape(name.encode()) + rb"$", re.MULTILINE)
    match = line.search(read_bytes(packed, most=_MAX_REFS))
    return match[1].decode() if match else None
