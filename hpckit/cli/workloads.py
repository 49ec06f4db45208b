"""`hpckit workloads list|show`."""

from typing import Annotated

import typer

from hpckit.api import workloads as api
from hpckit.api.workloads import Parameter, Workload
from hpckit.cli.arguments import JsonOption
from hpckit.cli.output import print_json, say, say_note, table

commands = typer.Typer(help="Programs hpckit can submit.", no_args_is_help=True)


def add_to(app: typer.Typer) -> None:
    """Add the command group."""
    app.add_typer(commands, name="workloads")


@commands.command("list")
def list_all(json: JsonOption = False) -> None:
    """List the workloads, where each comes from and what it shadows."""
    found = [(row, row.found) for row in api.workloads(tell=say_note) if row.found]
    if json:
        print_json(
            [
                {
                    "name": row.name,
                    "strategy": row.strategy,
                    "description": row.description,
                    "collection": place.collection.name,
                    "shadows": [below.name for below in place.shadows],
                    "path": str(place.path.parent),
                }
                for row, place in found
            ]
        )
        return
    rows = [
        (
            row.name,
            row.strategy,
            place.collection.label(),
            ", ".join(below.label() for below in place.shadows),
            row.description,
        )
        for row, place in found
    ]
    say(table(("WORKLOAD", "STRATEGY", "FROM", "SHADOWS", "DESCRIPTION"), rows))


@commands.command()
def show(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A workload.")],
    json: JsonOption = False,
) -> None:
    """Show a workload: its script and parameters, with types, defaults and help."""
    workload = api.workload(name, tell=say_note)
    if json:
        print_json(_record(workload))
    else:
        say(_page(workload))


def _record(workload: Workload) -> dict[str, object]:
    keys = ("type", "default", "help", "minimum", "maximum")
    return {
        "name": workload.name,
        "description": workload.description,
        "strategy": workload.strategy,
        "script": str(workload.script) if workload.script else None,
        "program": workload.started,
        "parameters": {
            row.name: {**{key: getattr(row, key) for key in keys}, "choices": list(row.choices)}
            for row in workload.parameters.values()
        },
    }


def _page(workload: Workload) -> str:
    head = [
        f"{workload.name}: {workload.description}",
        f"  strategy  {workload.strategy}",
        f"  {'script ' if workload.script else 'program'}   {workload.started}",
        f"  submit    {_line(workload)}",
        "",
    ]
    rows = [
        (row.name, row.type, _default(row), row.help + _range(row))
        for row in workload.parameters.values()
    ]
    return "\n".join(head) + table(("PARAMETER", "TYPE", "DEFAULT", "HELP"), rows)


def _line(workload: Workload) -> str:
    """Return a line that submits it, in a shape that its strategy takes."""
    nodes = " --nodes 2" if workload.multi_node else ""
    setting = " --set KEY=VALUE" if workload.parameters else ""
    return f"hpckit submit {workload.name}{nodes} --gpus 4{setting}"


def _default(row: Parameter) -> str:
    if isinstance(row.default, bool):
        return str(row.default).lower()
    return "-" if row.default is None else str(row.default)


def _range(row: Parameter) -> str:
    if row.choices:
        return f" ({', '.join(str(choice) for choice in row.choices)})"
    limits = [
        f"{word} {limit:g}"
        for word, limit in (("from", row.minimum), ("to", row.maximum))
        if limit is not None
    ]
    return f" ({' '.join(limits)})" if limits else ""
