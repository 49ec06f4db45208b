"""`hpckit templates list|show|vars|lint|schema|diff`."""

from pathlib import Path
from typing import Annotated

import typer

from hpckit.api import templates as api
from hpckit.cli.arguments import JsonOption, a_folder
from hpckit.cli.output import note, print_json, say, say_note, show_text, table
from hpckit.text import plural

commands = typer.Typer(help="Job script templates.", no_args_is_help=True)
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="As `templates list` shows it.")]


def add_to(app: typer.Typer) -> None:
    """Add the command group."""
    app.add_typer(commands, name="templates")


@commands.command("list")
def list_all(json: JsonOption = False) -> None:
    """List the templates, where each comes from and what it shadows."""
    found = api.templates(tell=say_note)
    if json:
        print_json(
            [
                {
                    "name": row.name,
                    "collection": row.collection.name,
                    "revision": row.collection.revision or None,
                    "shadows": [below.name for below in row.shadows],
                    "path": str(row.path),
                    "hash": row.hash(),
                }
                for row in found
            ]
        )
        return
    rows = [
        (row.name, row.collection.label(), ", ".join(below.label() for below in row.shadows))
        for row in found
    ]
    say(table(("TEMPLATE", "FROM", "SHADOWS"), rows))


@commands.command()
def show(
    name: NameArgument,
    origin: Annotated[
        bool, typer.Option("--origin", help="Show only where it comes from.")
    ] = False,
) -> None:
    """Print a template's source."""
    found = api.template(name, tell=say_note)
    if origin:
        say(f"{found.name}\n  from     {found.collection.label()}\n  file     {found.path}")
        if found.collection.source:
            say(f"  source   {found.collection.source}")
            say(f"  revision {found.collection.revision} {found.collection.rev}".rstrip())
        say(f"  hash     {found.hash()}")
        for row in found.shadows:
            say(f"  shadows  {row.label()}: {row.path}/templates/{found.name}")
    else:
        show_text(found.text())


@commands.command("vars")
def variables(json: JsonOption = False) -> None:
    """List the variables a template may use."""
    found = api.template_variables()
    if json:
        print_json(found)
    else:
        say(table(("VARIABLE", "MEANING"), list(found.items())))


@commands.command()
def lint(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME...]")] = None,
) -> None:
    """Render script templates for a matrix of plans, and check them.

    By bash -n, shellcheck and Slurm's own rule; report templates with all figures and with none.
    Without names, every script and report template on the search path, and all else that
    collections hold: manifests, other templates, sites, workloads, rules of advice, and who can
    write them. Each finding has a file and a line. Exit status 1 when something is wrong.
    """
    bad = 0
    for row in api.lint(*(names or ())):
        for finding in row.findings:
            say(finding)
        bad += len(row.findings)
        if row.subject != "collections":
            number = len(row.findings)
            say(f"{row.subject}: {row.tried}, {number} {plural('finding', number)}")
    if bad:
        raise typer.Exit(1)


@commands.command()
def schema(
    kind: Annotated[
        str | None, typer.Argument(metavar="[KIND]", help="One of those that it lists.")
    ] = None,
    write: Annotated[
        Path | None,
        typer.Option("--write", metavar="DIR", callback=a_folder, help="Write into DIR/.hpckit/."),
    ] = None,
) -> None:
    """Print the JSON Schema of a kind of file, for editors. Without KIND, list the kinds.

    With --write, all kinds or the one: files of a collection name them in a comment.
    """
    if write is not None:
        for path in api.write_schemas(write, [kind] if kind else ()):
            say(str(path))
    elif kind is None:
        say(table(("KIND", "FILES"), list(api.schema_kinds().items())))
    else:
        print_json(api.file_schema(kind))


@commands.command()
def diff(name: NameArgument) -> None:
    """Show how a template differs from the one it shadows."""
    found = api.template(name, tell=say_note)
    text = found.diff()
    show_text(text)
    if not text:
        note("They are the same.")
