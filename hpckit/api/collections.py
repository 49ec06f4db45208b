"""Collections of others: adding them to the search path, updating and checking them.

Adding, updating and syncing are the only things hpckit does over a network for collections.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hpckit.api import Tell, log, searched
from hpckit.collections import LOCK, Collection, Unusable, manage, survey
from hpckit.collections.contents import is_open_folder
from hpckit.collections.lockfile import Entry, lock_files
from hpckit.collections.manage import Change
from hpckit.collections.scaffold import SCAFFOLDED, make_collection
from hpckit.collections.source import parse_source
from hpckit.collections.trust import set_trusted
from hpckit.errors import HpckitError, RequestError
from hpckit.job_spec.arguments import FUNCTION, PATH, checked
from hpckit.text import counted, in_line

__all__ = [
    "LOCK", "Added", "Change", "Collection", "Entry", "Unusable", "add_collection",
    "added_collections", "collections", "new_collection", "survey", "trust_folder",
]  # fmt: skip
# So many faults of a collection are told of one by one.
_TOLD = 5
# Reading one template takes some hundredths of a second: add and update would take minutes.
_MOST_READ = 100


@checked(tell=FUNCTION)
def collections(*, tell: Tell = log) -> list[Collection]:
    """Return the collections that can be used, in the order they are searched.

    Raises:
        ConfigError: a folder of `$HPCKIT_COLLECTIONS` or a manifest is wrong.
    """
    return list(searched(tell))


@dataclass(frozen=True, kw_only=True, slots=True)
class Added:
    """A collection that was added, and the lock file that pins it."""

    lock: Path
    entry: Entry

    @property
    def name(self) -> str:
        """Its name, as `hpckit collections list` shows it."""
        return manage.shown_name(self.lock, self.entry)

    @property
    def source(self) -> str:
        """Where it comes from: a folder, or an address of git."""
        return self.entry.source

    @property
    def revision(self) -> str:
        """The commit that is pinned, or the hash of a folder that is used in place."""
        return self.entry.commit or self.entry.hash

    @checked(to=str | None, dry_run=bool, tell=FUNCTION)
    def update(self, *, to: str | None = None, dry_run: bool = False, tell: Tell = log) -> Change:
        """Pin it to what its source holds now, or to a tag, branch or commit.

        `dry_run` fetches, and changes nothing. `tell` hears which files in it cannot be used.

        Raises:
            RequestError: there is no such revision. OutsideError: it cannot be fetched; the lock
                file is then as it was.
        """
        if dry_run:
            change = Change(lock=self.lock, before=self.entry, now=manage.newest(self.entry, to))
        else:
            change = manage.update(self.lock, self.entry, to)
        found = manage.placed(change.now, self.lock)
        if isinstance(found, Collection):
            _tell_of_faults(found, tell)
        return change

    def sync(self) -> bool:
        """Fetch the commit that is pinned, if it is not here; return whether it was fetched.

        Raises:
            OutsideError: it cannot be fetched, or is not what was pinned. ConfigError: it is here,
                and was changed.
        """
        return manage.sync(self.lock, self.entry)

    def verify(self) -> list[str]:
        """Read every file; return what differs from what was pinned, a line each."""
        return manage.verify(self.lock, self.entry)

    def diff(self) -> str:
        """Return what its last update changed.

        Raises:
            RequestError: it was never updated, or is a folder.
        """
        return manage.last_change(self.entry)

    def remove(self) -> None:
        """Take it off the search path; jobs that wait keep its files."""
        manage.remove(self.lock, self.entry)


@dataclass(frozen=True, kw_only=True, slots=True)
class JustAdded(Added):
    """The same, just after it was added: what it is, and its files that are new or changed."""

    collection: Collection
    files: tuple[str, ...]

    def shadows(self) -> Iterator[tuple[str, Collection]]:
        """Yield its files that take the place of another collection's, with that collection."""
        rows = survey().collections
        mine = [
            at
            for at, row in enumerate(rows)
            if row.path == self.collection.path and row.lock == self.lock
        ]
        if mine:
            yield from manage.shadowed(self.collection, rows[mine[0] + 1 :])


@checked(names=str)
def added_collections(*names: str) -> list[Added]:
    """Return the collections of the project's and the user's lock file; all, or those named.

    Raises:
        RequestError: no such collection was added. ConfigError: a lock file is damaged, or others
            could have written the project's.
    """
    return [Added(lock=lock, entry=entry) for lock, entry in manage.entries_called(list(names))]


def _tell_of_faults(collection: Collection, tell: Tell) -> None:
    """Tell of files of a collection that cannot be used: its other files can, so it is taken."""
    from hpckit.lint import unreadable  # noqa: PLC0415  # half of hpckit
    from hpckit.render import list_templates  # noqa: PLC0415  # as above

    if (many := len(list_templates((collection,)))) > _MOST_READ:
        tell(f"{collection.name}: its {many} templates are not read now: hpckit templates lint")
        return
    others = [row for row in survey(broken=[]).collections if row.name != collection.name]
    try:
        found = list(map(str, unreadable(collection, (collection, *others))))
    except HpckitError as error:
        found = [str(error)]
    lines = list(dict.fromkeys(row.replace(f"{collection.path}/", "") for row in found))
    for line in lines[:_TOLD]:
        tell(in_line(f"{collection.name}: {line}"))
    if more := lines[_TOLD:]:
        tell(f"{collection.name}: {counted(len(more), 'more fault')}: hpckit templates lint")


@checked(source=str, trust=bool, project=bool, user=bool, tell=FUNCTION)
def add_collection(
    source: str,
    *,
    trust: bool = False,
    project: bool = False,
    user: bool = False,
    tell: Tell = log,
) -> JustAdded:
    """Add a group's collection: a folder is used in place, a git repository pinned to a commit.

    Args:
        source: a folder, git+https://…@REV, git+ssh://…@REV or file:///…@REV.
        trust: use it although other users could change it.
        project: write ./hpckit.lock, for all who use this folder.
        user: write the user's lock file; without both, the project's where there is one.
        tell: hears which files in it cannot be used.

    Raises:
        RequestError: there is no such source, no collection in it, or its name is taken.
        OutsideError: it cannot be fetched.
    """
    if project and user:
        raise RequestError(
            "project and user (--project, --user) choose different lock files: give one of them."
        )
    ours, theirs = lock_files()
    lock = ours if project else theirs if user else manage.default_lock()
    change, found = manage.add(source, lock, trust=trust)
    _tell_of_faults(found, tell)
    return JustAdded(
        lock=change.lock, entry=change.now, collection=found, files=tuple(change.files)
    )


@checked(folder=PATH)
def new_collection(folder: Path | str) -> list[Path]:
    """Make a collection to start from: a template, a site, a workload, and a check for CI.

    Its files name their JSON Schemas, which lie beside them, for editors.

    Raises:
        RequestError: the folder is there. OutsideError: it cannot be written.
    """
    from hpckit.api.templates import write_schemas  # noqa: PLC0415  # for this alone

    return [*make_collection(Path(folder)), *write_schemas(folder, SCAFFOLDED)]


@checked(folder=PATH, trusted=bool)
def trust_folder(folder: Path | str, *, trusted: bool = True) -> str:
    """Use a folder although others could change it: a project, or one of $HPCKIT_COLLECTIONS.

    Returns the folder as it is remembered.

    Raises:
        RequestError: it is not a folder on this machine, or this user may not look.
    """
    source = parse_source(str(folder))
    if source.is_git or not is_open_folder(Path(source.location)):
        raise RequestError(f"{str(folder)!r} is not a folder on this machine.")
    set_trusted(str(source), trusted)
    return str(source)
