"""`hpckit collections list|add|update|sync|remove|verify|trust|diff|new`."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from hpckit.cli.arguments import JsonOption, say_left_out
from hpckit.cli.output import note, print_json, say, show_text, table
from hpckit.collections import LOCK, Collection, Unusable, survey
from hpckit.collections.lockfile import Entry, lock_files
from hpckit.collections.manage import (
    Change,
    add,
    default_lock,
    difference,
    entries_called,
    last_change,
    newest,
    remove,
    shadowed,
    sync,
    update,
    verify,
)
from hpckit.collections.scaffold import make_collection
from hpckit.collections.source import parse_source
from hpckit.collections.trust import set_trusted
from hpckit.errors import HpckitError, RequestError

commands = typer.Typer(help="Folders of templates, workloads and sites.", no_args_is_help=True)
NamesArgument = Annotated[
    list[str] | None, typer.Argument(metavar="[NAME...]", help="Collections that were added.")
]


def add_to(app: typer.Typer) -> None:
    """Add the command group."""
    app.add_typer(commands, name="collections")


@commands.command("list")
def list_collections(json: JsonOption = False) -> None:
    """List the collections, in the order they are searched, and those that cannot be used."""
    around = survey()
    if json:
        print_json([*map(_record, around.collections), *map(_unusable_record, around.unusable)])
        return
    rows = [
        (row.name, row.origin, _revision(row), str(row.path), row.description)
        for row in around.collections
    ]
    rows += [(row.name, row.origin, row.state, row.source, row.why) for row in around.unusable]
    say(table(("NAME", "ORIGIN", "REVISION", "PATH", "DESCRIPTION"), rows))


def _record(row: Collection) -> dict[str, object]:
    names = ("name", "origin", "description", "contact", "url")
    return {
        **{name: getattr(row, name) for name in names},
        "path": str(row.path),
        "source": row.source or None,
        "rev": row.rev or None,
        "revision": row.revision or None,
        "lock": str(row.lock) if row.lock else None,
        "state": "changed" if row.changed else "ok",
        "why": None,
    }


def _unusable_record(row: Unusable) -> dict[str, object]:
    return {
        "name": row.name,
        "origin": row.origin,
        **dict.fromkeys(("description", "contact", "url"), ""),
        **dict.fromkeys(("path", "rev", "revision")),
        "source": row.source or None,
        "lock": str(row.lock) if row.lock else None,
        "state": row.state,
        "why": row.why,
    }


def _revision(row: Collection) -> str:
    shown = row.revision if row.revision.startswith("sha256:") else row.revision[:12]
    return shown + (f" ({row.rev})" if row.rev else "") + (", changed" if row.changed else "")


@commands.command("add")
def add_collection(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE", help="A folder, git+https://…@REV, git+ssh://…@REV or file:///…@REV."
        ),
    ],
    trust: Annotated[
        bool, typer.Option("--trust", help="Use it although other users could change it.")
    ] = False,
    project: Annotated[
        bool, typer.Option("--project", help=f"Write ./{LOCK}, for all who use this folder.")
    ] = False,
    user: Annotated[
        bool, typer.Option("--user", help=f"Write ~/.config/hpckit/{LOCK}, for all your work.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Add a group's collection: a folder is used in place, a git repository pinned to a commit.

    It is written to ./hpckit.lock where there is one, else to the user's.
    """
    if project and user:
        raise RequestError(
            "--project and --user choose different lock files: give only one of them."
        )
    ours, theirs = lock_files()
    lock = ours if project else theirs if user else default_lock()
    change, found = add(source, lock, trust=trust)
    if json:
        print_json({**_record(found), "files": change.files})
        return
    say(f"{found.name}: {found.description}")
    entry = change.now
    rows = [
        ("source", entry.source),
        ("revision", f"{found.revision}" + (f" ({entry.rev})" if entry.rev else "")),
        ("contact", found.contact),
        ("owner", entry.owner),
        ("lock", change.lock),
    ]
    rows += [
        ("shadows", f"{name} of {row.label()}")
        for name, row in shadowed(found, _below(found, change.lock))
    ]
    for key, value in rows:
        if value:
            say(f"  {key:<9} {value}")
    say_left_out(survey().unusable)


def _below(found: Collection, lock: Path) -> tuple[Collection, ...]:
    """Return the collections that are searched after one."""
    rows = survey().collections
    places = [i for i, row in enumerate(rows) if row.path == found.path and row.lock == lock]
    return rows[places[0] + 1 :] if places else ()


@commands.command("update")
def update_collections(
    names: NamesArgument = None,
    to: Annotated[
        str | None, typer.Option("--to", metavar="REV", help="Pin to this tag, branch or commit.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Fetch, and show what would change.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Pin collections to what their sources hold now: all of them, or those named."""
    if to and len(names or []) != 1:
        raise RequestError("--to is for one collection: hpckit collections update NAME --to REV.")
    changes: list[Change] = []

    def one(lock: Path, entry: Entry) -> None:
        now = newest(entry, to) if dry_run else None
        change = Change(lock=lock, before=entry, now=now) if now else update(lock, entry, to)
        changes.append(change)
        if not json:
            _print_change(change, in_full=dry_run)

    _each(entries_called(names or []), one, quiet=not json)
    if json:
        print_json([_change_record(change) for change in changes])


def _each(
    rows: list[tuple[Path, Entry]], do: Callable[[Path, Entry], None], *, quiet: bool
) -> None:
    """Do something for each entry; one that fails does not keep the others from it."""
    failed: HpckitError | None = None
    if not rows and quiet:
        note("No collection was added. Add one: hpckit collections add SOURCE")
    for lock, entry in rows:
        try:
            do(lock, entry)
        except HpckitError as error:
            note(f"hpckit: error: {entry.name}: {error}")
            failed = failed or error
    if failed:
        raise typer.Exit(failed.exit_code)


def _print_change(change: Change, *, in_full: bool) -> None:
    before, now = change.before or change.now, change.now
    old, new = (before.commit or before.hash)[:23], (now.commit or now.hash)[:23]
    moved = f"{old} -> {new}" if old != new else f"{new}, unchanged"
    say(f"{now.name}: {moved}" + (f" ({now.rev})" if now.rev else ""))
    for line in change.files:
        say(f"  {line}")
    if in_full and before.commit and now.commit and before.commit != now.commit:
        show_text(difference(now, before.commit, now.commit))


def _change_record(change: Change) -> dict[str, Any]:
    before, now = change.before or change.now, change.now
    return {
        "name": now.name,
        "source": now.source,
        "rev": now.rev,
        "before": before.commit or before.hash,
        "revision": now.commit or now.hash,
        "lock": str(change.lock),
        "files": change.files,
    }


@commands.command("sync")
def sync_collections(names: NamesArgument = None) -> None:
    """Fetch what the lock files pin and is not on this machine; nothing moves."""

    def one(_: Path, entry: Entry) -> None:
        fetched = sync(entry)
        say(f"{entry.name}: {'fetched' if fetched else 'here'}, {entry.commit or entry.source}")

    _each(entries_called(names or []), one, quiet=True)


@commands.command("remove")
def remove_collection(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A collection.")],
) -> None:
    """Take a collection off the search path; jobs that wait keep its files."""
    lock, entry = remove(name)
    say(f"Removed {entry.name} ({entry.source}) from {lock}")


@commands.command("verify")
def verify_collections(names: NamesArgument = None, json: JsonOption = False) -> None:
    """Read every file of added collections, and compare with what was pinned. Status 1: differs."""
    rows = [(lock, entry, verify(lock, entry)) for lock, entry in entries_called(names or [])]
    if json:
        print_json(
            [
                {"name": entry.name, "lock": str(lock), "ok": not found, "differences": found}
                for lock, entry, found in rows
            ]
        )
    else:
        for _, entry, found in rows:
            say(f"{entry.name}: {'differs' if found else 'as pinned'}, {entry.source}")
            for line in found:
                say(f"  {line}")
    if any(found for _, _, found in rows):
        raise typer.Exit(1)


@commands.command("trust")
def trust_folder(
    folder: Annotated[Path, typer.Argument(help="A project, or one of $HPCKIT_COLLECTIONS.")],
    no: Annotated[bool, typer.Option("--no", help="Stop trusting it.")] = False,
) -> None:
    """Use a folder although others could change it; for what is added: add --trust."""
    source = parse_source(str(folder))
    if source.is_git or not Path(source.location).is_dir():
        raise RequestError(f"{str(folder)!r} is not a folder on this machine.")
    set_trusted(str(source), not no)
    say(f"{source} is {'no longer ' if no else ''}trusted")


@commands.command("diff")
def diff_collection(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A collection.")],
) -> None:
    """Show what the last update of a git collection changed."""
    ((_, entry),) = entries_called([name])
    show_text(last_change(entry))


@commands.command("new")
def new_collection(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="A folder that does not exist yet.")
    ],
) -> None:
    """Make a collection to start from: a template, a site, a workload, and a check for CI."""
    for path in make_collection(folder):
        say(str(path))
    note(f"Fill in {folder}/hpckit.yaml, then: cd {folder} && ./check")
