"""The system's git, asked for nothing but objects: a collection's repository runs no code here.

Fetching uses the user's own git configuration (credentials, proxies, ssh), since the user wrote it.
All else uses none: no hooks, no filters (so no LFS), no submodules, no fsmonitor, no system-wide
file. Of transports only https, ssh and file are open, also behind redirects and `insteadOf`.
Upload-pack, which a file:// fetch starts in another user's repository, is made for repositories
that are not trusted (git(1), "SECURITY"); git's owner check on it is met by hpckit's own.
"""

import contextlib
import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from hpckit import shell
from hpckit.collections.source import Source, checkout_folder, is_commit, repository
from hpckit.errors import CommandError, OutsideError, RequestError, refused_by_disk
from hpckit.file_locks import open_to_lock
from hpckit.files import DamagedFileError
from hpckit.paths import CACHE, home, is_folder, make_folder, refuse_foreign

_QUIET = {
    "core.hooksPath": "/dev/null",
    "core.fsmonitor": "false",
    "core.attributesFile": "/dev/null",
    "protocol.ext.allow": "never",
    "submodule.recurse": "false",
    "fetch.recurseSubmodules": "false",
    "gc.auto": "0",
    "maintenance.auto": "false",
}
# How the user reaches servers; every other GIT_ variable could turn a command into another one.
_KEPT = ("GIT_SSH", "GIT_SSH_COMMAND", "GIT_SSH_VARIANT", "GIT_ASKPASS", "GIT_TERMINAL_PROMPT",
         "GIT_SSL_CAINFO", "GIT_SSL_CAPATH", "GIT_CONFIG_GLOBAL")  # fmt: skip
_FETCH_S = 600
# It is there while a clone is used: who finds it was preceded by one that was killed.
_BEGUN, _LOCK = "begun", "lock"
_SHORT = re.compile(r"[0-9a-fA-F]{7,63}")


class UnknownRevisionError(RequestError):
    """A source has no tag, branch or commit of a name."""


def fetch_commit(source: Source, rev: str | None, cache: Path) -> str:
    """Bring a source's branches and tags here; return the commit that `rev` names there now.

    Raises:
        OutsideError: the repository cannot be reached. RequestError: it has no such revision.
    """
    with _alone(source, cache) as clone:
        _fetch(clone, source, "+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*")
        return _default_commit(clone, source) if rev is None else _resolve(clone, source, rev)


def make_checkout(source: Source, commit: str, cache: Path) -> Path:
    """Write a commit's files into the cache, unless they are there; ask the network only if so.

    Raises:
        OutsideError: the repository cannot be reached, or no longer has that commit.
    """
    target = checkout_folder(source, commit, cache)
    if is_folder(target):
        refuse_foreign(target, CACHE)
        return target
    with _alone(source, cache) as clone:
        if not _has(clone, commit):
            _fetch(clone, source, "+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*")
        if not _has(clone, commit):
            _fetch_lost(clone, source, commit)
        if not is_folder(target):
            _write_files(clone, commit, target)
    return target


def diff(source: Source, old: str, new: str, cache: Path) -> str:
    """Return what differs between two commits, as a unified diff.

    Raises:
        OutsideError: one of them is not here.
    """
    refuse_foreign(repository(source, cache).parent, CACHE)
    for commit in (old, new):
        if not _has(repository(source, cache), commit):  # history was rewritten, the cache removed
            raise OutsideError(
                f"Commit {commit[:12]} of {source} is not on this machine, and no branch or tag "
                "leads to it any more: nothing can be compared with it."
            )
    words = ("diff", "--no-ext-diff", "--no-textconv", "--no-color", "--no-renames", "--patch")
    return _git(repository(source, cache), *words, old, new, "--")


def is_in_history(source: Source, old: str, new: str, cache: Path) -> bool:
    """Say whether a commit is `new` or one that it builds on; False also where `old` is gone."""
    refuse_foreign(repository(source, cache).parent, CACHE)
    clone = repository(source, cache)
    return _has(clone, old) and not _git(clone, "rev-list", "--max-count=1", f"{new}..{old}")


@contextlib.contextmanager
def taken_back(source: Source, cache: Path) -> Iterator[None]:
    """Remove what was fetched of a source meanwhile, if it is refused: nobody will use it."""
    place = repository(source, cache).parent
    try:
        before = {path.name for path in _inside(place)}
    except OSError as error:
        raise refused_by_disk(error) from error
    try:
        yield
    except BaseException:
        if source.is_git and is_folder(place):
            with contextlib.suppress(OutsideError):  # what refused it refuses this, too
                _take_back(source, cache, before | {_LOCK, _BEGUN})
        raise


def _take_back(source: Source, cache: Path, stays: set[str]) -> None:
    with _alone(source, cache) as clone:  # what somebody else began meanwhile is whole by now
        for path in _inside(clone.parent):
            if path.name not in stays:
                _discard(path)


def _make(clone: Path, *words: str) -> None:
    _git(None, "init", "--quiet", "--bare", "--template=", *words, str(clone))


def _inside(folder: Path) -> list[Path]:
    return list(folder.iterdir()) if is_folder(folder) else []


@contextlib.contextmanager
def _alone(source: Source, cache: Path) -> Iterator[Path]:
    """Give the clone of a source, made if need be, to one process at a time.

    Raises:
        OutsideError: a file of it cannot be read or written, here or by whom it was given to.
    """
    clone = repository(source, cache)
    refuse_foreign(clone.parent, CACHE)  # before anything is made there
    try:
        for folder in (cache, cache / "collections", clone.parent):
            make_folder(folder, mode=0o700)
        refuse_foreign(clone.parent, CACHE)  # and what somebody else may have made meanwhile
        with open_to_lock(clone.parent / _LOCK) as lock:
            with contextlib.suppress(OSError):  # a file system without locks keeps nobody out
                fcntl.flock(lock, fcntl.LOCK_EX)
            with _begun(clone):
                yield clone
    except OSError as error:
        raise refused_by_disk(error, str(clone.parent)) from error
    except DamagedFileError as error:
        raise OutsideError(f"{clone.parent / 'lock'}: {error}.") from error


@contextlib.contextmanager
def _begun(clone: Path) -> Iterator[None]:
    begun = clone.parent / _BEGUN
    if begun.exists():
        _discard(clone)
    begun.touch()
    try:
        if not (clone / "HEAD").is_file():
            _make(clone)
        yield
    finally:
        with contextlib.suppress(OSError):  # then the next command fetches all of it anew
            begun.unlink()


def _discard(folder: Path) -> None:
    """Remove what a git wrote: of one that may have been killed, locks would stop every later one.

    That git may still be at it, so the folder first gets another name.
    """
    with contextlib.suppress(OSError):
        aside = Path(tempfile.mkdtemp(prefix=".new-", dir=folder.parent))
        folder.rename(aside / "gone")
    for rest in folder.parent.glob(".new-*"):
        shutil.rmtree(rest, ignore_errors=True)


def _resolve(clone: Path, source: Source, rev: str) -> str:
    """Return the commit that a tag, a branch or a commit's name means.

    A branch may be called like a commit, or like the beginning of one: whoever can push one would
    choose what a pin means.
    """
    if is_commit(rev):
        found = [rev.lower()] if _has(clone, rev.lower()) else []
    else:
        named = [_found(clone, f"refs/{kind}/{rev}") for kind in ("tags", "heads")]
        short = _objects(clone, rev) if _SHORT.fullmatch(rev) else []
        found = list(dict.fromkeys([*filter(None, named), *short]))
        if short and len(found) > 1:
            raise RequestError(
                f"{rev!r} is ambiguous: {source} has several commits, tags or branches "
                "that it could mean. Give the full name of the commit."
            )
    if found:
        return found[0]
    # Beside the source's own, the clone has names for what was asked for by its number.
    words = ("for-each-ref", "--format=%(refname:lstrip=2)", "--count=20")
    known = dict.fromkeys(_git(clone, *words, "refs/heads", "refs/tags").split())
    raise UnknownRevisionError(
        f"{source} has no tag, branch or commit {rev!r}. It has: {', '.join(known) or 'none'}."
    )


def _found(clone: Path, name: str) -> str | None:
    with contextlib.suppress(CommandError):
        return _commit(clone, name)
    return None


def _objects(clone: Path, short: str) -> list[str]:
    """Return the commits whose names begin with some digits, whatever branches are called."""
    with contextlib.suppress(CommandError):
        rows = _git(clone, "rev-parse", f"--disambiguate={short.lower()}").split()
        return [found for row in rows if (found := _found(clone, row)) == row]
    return []


def _default_commit(clone: Path, source: Source) -> str:
    """Return the commit of the branch the repository calls its default, or of its only one."""
    with contextlib.suppress(OutsideError):  # HEAD may name a branch that nobody has pushed
        _fetch(clone, source, "+HEAD:refs/hpckit/head")
        return _commit(clone, "refs/hpckit/head")
    branches = _git(clone, "for-each-ref", "--format=%(refname)", "refs/heads").split()
    if len(branches) == 1:
        return _commit(clone, branches[0])
    if not branches:
        raise RequestError(f"{source} has no branch: nothing was committed, or pushed, there yet.")
    names = ", ".join(name.removeprefix("refs/heads/") for name in branches)
    raise RequestError(f"{source} has no default branch: add @BRANCH. Branches: {names}.")


def _commit(clone: Path, name: str) -> str:
    words = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
    return _git(clone, *words).strip()


def _has(clone: Path, commit: str) -> bool:
    return _found(clone, commit) == commit


def _fetch_lost(clone: Path, source: Source, commit: str) -> None:
    """Ask for a commit that no branch or tag holds any more; some servers still give it."""
    with contextlib.suppress(OutsideError):
        _fetch(clone, source, f"{commit}:refs/hpckit/{commit}")
        if _has(clone, commit):
            return
    raise OutsideError(
        f"{source} no longer has commit {commit[:12]}. Ask the collection's contact, or "
        "pin another commit: hpckit collections update NAME --to REV."
    )


def _fetch(clone: Path, source: Source, *refs: str) -> None:
    try:
        try:
            _fetch_into(clone, source, *refs)
        except CommandError as error:
            if "server sha256" not in error.stderr:  # of "mismatched algorithms"
                raise
            _discard(clone)
            _make(clone, "--object-format=sha256")
            _fetch_into(clone, source, *refs)
    except CommandError as error:
        raise _unreachable(source, error) from error


def _fetch_into(clone: Path, source: Source, *refs: str) -> None:
    with _own_config(source) as config:
        words = ("fetch", "--quiet", "--force", "--prune", "--no-tags",
                 "--no-recurse-submodules", "--", source.location, *refs)  # fmt: skip
        _git(clone, *words, env={"GIT_CONFIG_GLOBAL": config}, timeout_s=_FETCH_S)


def _unreachable(source: Source, error: CommandError) -> OutsideError:
    if error.returncode is None:  # no git here, or no answer in time
        return error
    if "dubious ownership" in error.stderr:
        return OutsideError(
            f"git does not read {source}: it belongs to another user. If you trust its owner: "
            f"git config --global --add safe.directory '{source.folder}'"
        )
    said = error.stderr
    if "Could not read from remote repository" in said:  # ssh has said why, on the line before
        said = said.partition("fatal: Could not read")[0].strip() or said
    why = shell.first_meaningful_line(said).removeprefix("fatal: ").rstrip(".")
    return OutsideError(f"{source} cannot be fetched: {why or 'git gave no reason'}.")


@contextlib.contextmanager
def _own_config(source: Source) -> Iterator[str]:
    """Write a git configuration: the user's own, and that a file:// repository may be read.

    Only a file can say so: git clears the environment of the upload-pack it starts there.
    """
    own = home()
    theirs = os.environ.get("GIT_CONFIG_GLOBAL")
    xdg = Path(os.environ.get("XDG_CONFIG_HOME") or own / ".config")
    files = [theirs] if theirs else [str(xdg / "git" / "config"), str(own / ".gitconfig")]
    lines = [f"[include]\n\tpath = {_quoted(file)}" for file in files]
    if source.folder:
        real = source.folder.resolve()
        places = {str(source.folder), str(real), str(real / ".git"), f"{real}.git"}
        lines += [f"[safe]\n\tdirectory = {_quoted(place)}" for place in sorted(places)]
    try:
        with tempfile.NamedTemporaryFile("w", prefix="hpckit-git-", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
            file.flush()
            yield file.name
    except OSError as error:
        raise refused_by_disk(error, tempfile.gettempdir()) from error


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _write_files(clone: Path, commit: str, target: Path) -> None:
    """Write a commit's files beside their place, then move them there."""
    with tempfile.TemporaryDirectory(
        prefix=".new-", dir=target.parent, ignore_cleanup_errors=True
    ) as folder:
        tree = Path(folder) / "tree"
        tree.mkdir(mode=0o700)
        index = {"GIT_INDEX_FILE": str(Path(folder) / "index")}
        where = (f"--work-tree={tree}",)
        _git(clone, *where, "read-tree", commit, env=index)
        _git(clone, *where, "checkout-index", "--all", "--force", "--quiet", env=index)
        tree.rename(target)


def _git(
    clone: Path | None, *words: str, env: Mapping[str, str] | None = None, timeout_s: float = 60
) -> str:
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("GIT_") or name in _KEPT
    }
    settings = [word for key, value in _QUIET.items() for word in ("-c", f"{key}={value}")]
    where = [f"--git-dir={clone}"] if clone else []
    environ = {
        **kept,
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_ALLOW_PROTOCOL": "https:ssh:file",
        "GIT_LFS_SKIP_SMUDGE": "1",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_NO_REPLACE_OBJECTS": "1",
        **(env or {}),
    }
    return shell.run(["git", *settings, *where, *words], env=environ, timeout_s=timeout_s).stdout
