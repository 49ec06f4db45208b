"""`hpckit collections list|add|update|sync|remove|verify|trust|diff|new`."""

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from hpckit.api import collections as api
from hpckit.api import searched
from hpckit.api.collections import LOCK, Added, Change, Collection, Unusable
from hpckit.cli.arguments import JsonOption, a_folder
from hpckit.cli.output import note, print_json, say, say_note, show_text, table
from hpckit.errors import HpckitError, OutsideError, RequestError
from hpckit.text import in_line

commands = typer.Typer(help="Folders of templates, workloads and sites.", no_args_is_help=True)
NamesArgument = Annotated[
    list[str] | None, typer.Argument(metavar="[NAME...]", help="Collections that were added.")
]


def add_to(app: typer.Typer) -> None:
    """Add the command group."""
    app.add_typer(commands, name="collections")


@commands.command("list")
def list_collections(json: JsonOption = False) -> None:
    """List the collections in the order they are searched. Also those that cannot be used."""
    around = api.survey()
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
    """Add a group's collection. A folder is used in place, a git repository pinned to a commit.

    It is written to ./hpckit.lock where there is one, else to the user's.
    """
    added = api.add_collection(source, trust=trust, project=project, user=user, tell=say_note)
    found, entry = added.collection, added.entry
    if json:
        print_json({**_record(found), "files": list(added.files)})
        return
    say(f"{found.name}: {found.description}")
    rows = [
        ("source", entry.source),
        ("revision", f"{found.revision}" + (f" ({entry.rev})" if entry.rev else "")),
        ("contact", found.contact),
        ("owner", entry.owner),
        ("lock", added.lock),
    ]
    rows += [("shadows", f"{name} of {row.label()}") for name, row in added.shadows()]
    for key, value in rows:
        if value:
            say(f"  {key:<9} {in_line(str(value))}")
    searched(say_note)


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
    """Pin collections to what their sources hold now. All of them, or those named."""
    if to and len(names or []) != 1:
        raise RequestError("--to is for one collection: hpckit collections update NAME --to REV.")
    changes: list[Change] = []

    def one(added: Added) -> None:
        change = added.update(to=to, dry_run=dry_run, tell=say_note)
        changes.append(change)
        if not json:
            _print_change(added.name, change, in_full=dry_run)

    _each(api.added_collections(*names or ()), one, quiet=not json)
    if json:
        print_json([_change_record(change) for change in changes])


def _each(rows: list[Added], do: Callable[[Added], None], *, quiet: bool) -> None:
    """Do something for each collection; one that fails does not keep the others from it."""
    failed: HpckitError | None = None
    if not rows and quiet:
        note("No collection was added. Add one: hpckit collections add SOURCE")
    for row in rows:
        try:
            do(row)
        except HpckitError as error:
            note(f"hpckit: error: {row.name}: {error}")
            failed = failed or error
    if failed:
        raise typer.Exit(failed.exit_code)


def _print_change(name: str, change: Change, *, in_full: bool) -> None:
    before, now = change.before or change.now, change.now
    old, new = (before.commit or before.hash)[:23], (now.commit or now.hash)[:23]
    moved = f"{old} -> {new}" if old != new else f"{new}, unchanged"
    say(f"{name}: {moved}" + (f" ({now.rev})" if now.rev else ""))
    if change.rewritten:
        moved = now.rev or "its branch"
        say(f"  {moved} was rewritten, or moved back: what was pinned is not in its history")
    for line in change.files:
        say(f"  {in_line(line)}")
    if in_full:
        try:
            show_text(change.diff())
        except OutsideError as error:  # the update is possible all the same
            note(f"{name}: {error}")


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
        "rewritten": change.rewritten,
    }


@commands.command("sync")
def sync_collections(names: NamesArgument = None) -> None:
    """Fetch what the lock files pin and this machine lacks. Nothing moves."""

    def one(added: Added) -> None:
        fetched = added.sync()
        pinned = added.entry.commit or added.source
        say(f"{added.name}: {'fetched' if fetched else 'here'}, {pinned}")
        if not added.entry.commit and added.verify():
            say(f"  It has changed since it was pinned: hpckit collections verify {added.name}")

    _each(api.added_collections(*names or ()), one, quiet=True)


@commands.command("remove")
def remove_collection(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A collection.")],
) -> None:
    """Take a collection off the search path. Jobs that wait keep its files."""
    added = api.added_collections(name)[0]
    added.remove()
    say(f"Removed {added.name} ({added.source}) from {added.lock}")


@commands.command("verify")
def verify_collections(names: NamesArgument = None, json: JsonOption = False) -> None:
    """Compare each file of added collections with what was pinned. Status 1: differs."""
    rows = [(added, added.verify()) for added in api.added_collections(*names or ())]
    if json:
        print_json(
            [
                {"name": added.name, "lock": str(added.lock), "ok": not found, "differences": found}
                for added, found in rows
            ]
        )
    else:
        for added, found in rows:
            say(f"{added.name}: {'differs' if found else 'as pinned'}, {added.source}")
            for line in found:
                say(f"  {in_line(line)}")
    if any(found for _, found in rows):
        raise typer.Exit(1)


@commands.command("trust")
def trust_folder(
    folder: Annotated[Path, typer.Argument(help="A project, or one of $HPCKIT_COLLECTIONS.")],
    no: Annotated[bool, typer.Option("--no", help="Stop trusting it.")] = False,
) -> None:
    """Use a folder although others could change it. For what is added: add --trust."""
    source = api.trust_folder(folder, trusted=not no)
    say(f"{source} is {'no longer ' if no else ''}trusted")


@commands.command("diff")
def diff_collection(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A collection.")],
) -> None:
    """Show what the last update of a git collection changed."""
    (added,) = api.added_collections(name)
    show_text(added.diff())


@commands.command("new")
def new_collection(
    folder: Annotated[
        Path,
        typer.Argument(metavar="DIR", callback=a_folder, help="A folder that does not exist yet."),
    ],
) -> None:
    """Make a collection to start from. With a template, a site, a workload and a check for CI."""
    for path in api.new_collection(folder):
        say(str(path))
    note(f"Fill in {folder}/hpckit.yaml, then: cd {shlex.quote(str(folder))} && ./check")
