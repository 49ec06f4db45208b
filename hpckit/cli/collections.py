"""`hpckit collections list`: the search path."""

import typer

from hpckit.cli.arguments import JsonOption
from hpckit.cli.output import print_json, table
from hpckit.collections import search_path

commands = typer.Typer(help="Folders of templates, workloads and sites.", no_args_is_help=True)


def add_to(app: typer.Typer) -> None:
    """Add the command group."""
    app.add_typer(commands, name="collections")


@commands.command("list")
def list_collections(json: JsonOption = False) -> None:
    """List the collections, in the order they are searched."""
    found = search_path()
    if json:
        names = ("name", "origin", "description", "contact", "url")
        print_json(
            [
                {**{name: getattr(row, name) for name in names}, "path": str(row.path)}
                for row in found
            ]
        )
        return
    rows = [(row.name, row.origin, row.path, row.description) for row in found]
    print(table(("NAME", "ORIGIN", "PATH", "DESCRIPTION"), rows))
