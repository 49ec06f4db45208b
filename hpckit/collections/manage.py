"""Collections that users add: adding, updating, syncing, removing and verifying them.

Adding, updating and syncing are the only things hpckit does over a network for collections.
"""

import os
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from hpckit.collections import git
from hpckit.collections.collection import (
    Collection,
    Unusable,
    describe_shared,
    is_file_name,
)
from hpckit.collections.contents import file_hashes, hash_of, is_open_folder, walk
from hpckit.collections.lockfile import (
    Entry,
    changing,
    lock_files,
    origin_of,
    read_lock,
    repair,
)
from hpckit.collections.pinned import (
    changed_checkout,
    folder_of,
    locate,
    missing,
    refuse_faults,
    refused_place,
)
from hpckit.collections.search import survey
from hpckit.collections.source import (
    Source,
    check_rev,
    checkout_folder,
    parse_source,
    repository,
)
from hpckit.collections.trust import (
    owner_name,
    repository_faults,
    set_trusted,
    trusted,
)
from hpckit.documents import nearest
from hpckit.errors import ConfigError, OutsideError, RequestError
from hpckit.paths import cache_folder, is_there


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """What became of one collection: its entry before (None: it is new) and now, and the lock file.

    `files` are lines of a mark and a path: `+` new, `-` gone, `~` changed.
    """

    lock: Path
    before: Entry | None
    now: Entry

    @property
    def files(self) -> list[str]:
        """What differs between the two."""
        return changed_files(self.before.files if self.before else {}, self.now.files)

    @property
    def rewritten(self) -> bool:
        """Whether the same branch or tag no longer builds on what was pinned: it was moved."""
        old, new = self.before, self.now
        if not old or not old.commit or not new.commit or old.rev != new.rev:
            return False
        source = new.parsed_source()
        return not git.is_in_history(source, old.commit, new.commit, cache_folder())

    def diff(self) -> str:
        """Return the unified diff between the commits before and now; "" where there are no two.

        Raises:
            OutsideError: the clone, or the commit before, is not here.
        """
        old, new = self.before and self.before.commit, self.now.commit
        return difference(self.now, old, new) if old and new and old != new else ""


def changed_files(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    """Return one line for each file that is new (`+`), gone (`-`) or changed (`~`)."""
    differing = [name for name in sorted({*old, *new}) if old.get(name) != new.get(name)]
    return [f"{'+' if n not in old else '-' if n not in new else '~'} {n}" for n in differing]


def add(word: str, lock: Path, *, trust: bool = False) -> tuple[Change, Collection]:
    """Add a collection to a lock file, or pin one that is there anew.

    Raises:
        RequestError: no such source, no collection there, or the name is taken by another source.
        UntrustedError: others could change it, and neither `trust` nor an earlier one was given.
        OutsideError: it cannot be fetched.
    """
    source = parse_source(word)
    with git.taken_back(source, cache_folder()):
        change = _pinned(source, lock, trust=trust)
    if trust:
        set_trusted(change.now.source, True)
    found = placed(change.now, lock)
    if not isinstance(found, Collection):
        raise OutsideError(found.why)
    return change, found


def placed(entry: Entry, lock: Path) -> Collection | Unusable:
    """Return the collection of an entry of a lock file, or why it cannot be used."""
    return locate(entry, lock, f"{origin_of(lock)} lock")


def _pinned(source: Source, lock: Path, *, trust: bool) -> Change:
    """Write a source's entry into a lock file."""
    entry = _look(source, source.rev, trust=trust)
    with changing(lock) as entries:
        before = entries.get(entry.name)
        if before and before.source != entry.source:
            raise RequestError(
                f"{lock} already has a collection {entry.name!r}, from {before.source}. "
                f"Remove it first: hpckit collections remove {entry.name}"
            )
        entries[entry.name] = _after(before, entry)
    return Change(lock=lock, before=before, now=entries[entry.name])


def _look(source: Source, rev: str | None, *, trust: bool) -> Entry:
    """Bring a source's collection here, and return what a lock file says of it."""
    folder, commit = _bring(source, rev, trust=trust)
    try:
        return _described(source, rev, folder, commit, trust=trust)
    except ConfigError as error:
        if commit is None:
            raise
        # What was fetched goes again: the place that its owner knows is the repository.
        raise type(error)(str(error).replace(str(folder), str(source))) from error


def _described(
    source: Source, rev: str | None, folder: Path, commit: str | None, *, trust: bool
) -> Entry:
    rows = walk(folder)
    refuse_faults(source, folder, rows, trust=trust)
    found = describe_shared(folder, "group")
    files = file_hashes(folder, rows)
    for name in files:
        if not is_file_name(name):
            raise ConfigError(
                f"{name!r} has a sign that is not printable, or is not UTF-8. Rename the file "
                f"in {source}."
            )
    return Entry(
        name=found.name,
        source=str(source),
        rev=rev,
        commit=commit,
        owner=None if commit else owner_name(folder),
        hash=hash_of(files),
        files=files,
    )


def _bring(source: Source, rev: str | None, *, trust: bool) -> tuple[Path, str | None]:
    if source.folder and not is_open_folder(source.folder):
        raise RequestError(
            f"Collection {str(source.folder)!r} is not a folder on this machine. A repository is "
            "written git+https://HOST/PATH.git@BRANCH."
        )
    if not source.is_git:
        return Path(source.location), None
    if source.folder:
        refuse_repository(source, trust=trust)
    commit = git.fetch_commit(source, rev, cache_folder())
    return git.make_checkout(source, commit, cache_folder()), commit


def refuse_repository(source: Source, *, trust: bool) -> None:
    """Refuse a repository on this machine that everybody can write.

    Raises:
        RequestError: with the first reason and what to do, or a part of it may not be read.
    """
    try:
        found = [] if source.folder is None else list(repository_faults(source.folder))
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}.", at=error.filename) from error
    if found and not trust and str(source) not in trusted():
        raise RequestError(
            f"{found[0]}. {found[0].mend}If you trust the collection as it is: "
            f"hpckit collections add --trust {shlex.quote(str(source))}"
        )


def _after(before: Entry | None, now: Entry) -> Entry:
    """Keep the commit before the last change, for `collections diff`.

    Raises:
        ConfigError: the commit is the same, and its files here are not.
    """
    if before is None or before.source != now.source:
        return now
    moved = before.commit != now.commit
    if now.commit and not moved and now.hash != before.hash:
        folder = checkout_folder(now.parsed_source(), now.commit, cache_folder())
        raise changed_checkout(before, folder, now.hash)
    return replace(now, previous=before.commit if moved else before.previous)


def entries_called(names: list[str]) -> list[tuple[Path, Entry]]:
    """Return the entries of the project's and the user's lock file; all, or those of some names.

    Raises:
        RequestError: no such collection was added. ConfigError: a lock file is damaged, or others
            could have written the project's.
    """
    locks = dict.fromkeys(lock_files())
    for lock in locks:
        if is_there(lock) and (refused := refused_place(lock.parent, origin_of(lock))):
            raise ConfigError(f"{refused.why}", at=lock)
    rows = [(lock, entry) for lock in locks for entry in read_lock(lock)]
    return [_called(name, rows) for name in dict.fromkeys(names)] if names else rows


def shown_name(lock: Path, entry: Entry) -> str:
    """Return the name by which `collections list` and all commands know an entry.

    Of two of one name, in the project's and the user's lock file, the second has a number.
    """
    rows = (row for path in dict.fromkeys(lock_files()) for row in read_lock(path))
    if sum(row.name == entry.name for row in rows) < 2:
        return entry.name
    found = (row for row in survey().collections if (row.lock, row.source) == (lock, entry.source))
    return next((row.name for row in found), entry.name)


def _called(name: str, rows: list[tuple[Path, Entry]]) -> tuple[Path, Entry]:
    """Return the entry of a name: a project's before the user's, whose name then has a number."""
    found = [row for row in rows if row[1].name == name]
    if not found:
        shown = {(row.lock, row.source) for row in survey().collections if row.name == name}
        found = [(lock, entry) for lock, entry in rows if (lock, entry.source) in shown]
    if not found:
        known = {entry.name for _, entry in rows}
        raise RequestError(f"There is no added collection {name!r}. {nearest(name, known)}")
    return found[0]


def newest(entry: Entry, rev: str | None) -> Entry:
    """Return what an entry would be after an update; it writes into the cache only.

    Raises:
        RequestError: a revision of a folder was asked for, or there is none of that name.
        OutsideError: it cannot be fetched.
    """
    source = entry.parsed_source()
    if rev is not None and not source.is_git:
        raise RequestError(
            f"{entry.source} is a folder used in place. It has no revisions, so --to does not "
            "apply."
        )
    wanted = entry.rev if rev is None else check_rev(rev)
    if not source.is_git and folder_of(entry) is None:
        raise RequestError(missing(entry))
    with git.taken_back(source, cache_folder()):
        # The owner may only change by `add`: who says `update` may not have looked.
        try:
            found = replace(_look(source, wanted, trust=False), name=entry.name)
        except git.UnknownRevisionError as error:
            if rev is not None:
                raise
            raise RequestError(  # what was pinned may have been deleted
                f"{error} To pin another: hpckit collections update NAME --to REV"
            ) from error
        if entry.owner and found.owner != entry.owner:
            raise RequestError(
                f"{entry.source} belongs to {found.owner}, but it belonged to {entry.owner} when "
                f"it was added. If this is right: "
                f"hpckit collections add {shlex.quote(entry.source)}"
            )
        return _after(entry, found)


def update(lock: Path, entry: Entry, rev: str | None = None) -> Change:
    """Pin one collection to what its source holds now, or to `rev`.

    Raises:
        RequestError, OutsideError: as `newest`; the lock file is then as it was.
    """
    now = newest(entry, rev)
    with changing(lock) as entries:
        if entry.name not in entries:
            raise _removed(lock, entry)
        entries[entry.name] = now
    return Change(lock=lock, before=entry, now=now)


def _removed(lock: Path, entry: Entry) -> RequestError:
    return RequestError(f"{lock} no longer has {entry.name!r}: it was removed meanwhile.")


def sync(lock: Path, entry: Entry) -> bool:
    """Fetch the commit an entry pins, if it is not here; say whether it had to be.

    Raises:
        OutsideError: it cannot be fetched, or is not what was pinned. ConfigError: it is here, and
            was changed.
    """
    here, source = folder_of(entry), entry.parsed_source()
    if entry.commit is None:
        if here is None:
            raise OutsideError(missing(entry))
        return False
    folder = here or git.make_checkout(source, entry.commit, cache_folder())
    content = hash_of(file_hashes(folder, walk(folder)))
    if content == entry.hash:
        return here is None
    if here:
        raise changed_checkout(entry, folder, content)
    raise OutsideError(
        f"Commit {entry.commit[:12]} of {entry.source} has content {content}, but {entry.hash} is "
        f"pinned: the lock file {lock} was changed. {repair(lock)}"
    )


def remove(lock: Path, entry: Entry) -> None:
    """Take a collection out of its lock file; what was fetched stays, as jobs may wait for it.

    Raises:
        RequestError: it is not there any more.
    """
    with changing(lock) as entries:
        if entries.pop(entry.name, None) is None:
            raise _removed(lock, entry)
    if all(other.source != entry.source for _, other in entries_called([])):
        set_trusted(entry.source, False)


def default_lock() -> Path:
    """Return the lock file that `add` writes: the project's where there is one, else the user's."""
    ours, theirs = lock_files(os.environ)
    return ours if ours.exists() else theirs


def verify(lock: Path, entry: Entry) -> list[str]:
    """Return what is wrong with a collection: missing, refused, or not what was pinned.

    Every file is read; nothing is taken from memory.
    """
    found = locate(entry, lock, "")
    if not isinstance(found, Collection):
        return [found.why]
    return changed_files(entry.files, file_hashes(found.path, walk(found.path)))


def last_change(entry: Entry) -> str:
    """Return the unified diff of the last update of a git collection.

    Raises:
        RequestError: it was never updated, or is a folder.
    """
    if not entry.commit or not entry.previous:
        why = "was not updated since it was added" if entry.commit else "is a folder used in place"
        raise RequestError(
            f"{entry.source} {why}. To see what differs now: hpckit collections verify NAME"
        )
    return difference(entry, entry.previous, entry.commit)


def difference(entry: Entry, old: str, new: str) -> str:
    """Return the unified diff between two commits of a collection's source.

    Raises:
        OutsideError: the clone is not here.
    """
    source = entry.parsed_source()
    if not repository(source, cache_folder()).is_dir():
        raise OutsideError(
            f"{entry.source} is not on this machine. Fetch it: hpckit collections sync"
        )
    return git.diff(source, old, new, cache_folder())


def shadowed(found: Collection, others: tuple[Collection, ...]) -> Iterator[tuple[str, Collection]]:
    """Yield files of a collection that stand before another's of the same name."""
    names = [name for name, _ in walk(found.path)]
    for name in names:
        if name.startswith("templates/") or name.endswith("/workload.yaml"):
            below = [row for row in others if row != found and (row.path / name).is_file()]
            yield from ((name, row) for row in below[:1])
