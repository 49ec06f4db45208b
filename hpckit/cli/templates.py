"""`hpckit templates list|show|vars|lint|diff`."""

import difflib
from pathlib import Path
from typing import Annotated

import typer

from hpckit.cli.arguments import JsonOption, look_around
from hpckit.cli.output import note, print_json, table
from hpckit.collections import content_hash
from hpckit.errors import RequestError, TemplateError
from hpckit.lint import lint_template
from hpckit.render import find_template, list_templates, read_template
from hpckit.script import VARIABLES
from hpckit.stats.advice.check import check_rules
from hpckit.stats.advice.loading import list_rules

commands = typer.Typer(help="Job script templates.", no_args_is_help=True)
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="As `templates list` shows it.")]


def add_to(app: typer.Typer) -> None:
    """Add the command group."""
    app.add_typer(commands, name="templates")


@commands.command("list")
def list_all(json: JsonOption = False) -> None:
    """List the templates, where each comes from and what it shadows."""
    found = list_templates(look_around().collections)
    if json:
        print_json(
            [
                {
                    "name": name,
                    "collection": place.collection.name,
                    "shadows": [row.name for row in place.shadows],
                    "path": str(place.path),
                    "hash": content_hash(place.path),
                }
                for name, place in found.items()
            ]
        )
        return
    rows = [
        (name, place.collection.label(), ", ".join(row.label() for row in place.shadows))
        for name, place in found.items()
    ]
    print(table(("TEMPLATE", "FROM", "SHADOWS"), rows))


@commands.command()
def show(
    name: NameArgument,
    origin: Annotated[bool, typer.Option("--origin", help="Only where it comes from.")] = False,
) -> None:
    """Print a template's source."""
    found = find_template(name, look_around().collections)
    if origin:
        print(f"{found.name}\n  from     {found.collection.label()}\n  file     {found.path}")
        print(f"  hash     {content_hash(found.path)}")
        for row in found.shadows:
            print(f"  shadows  {row.label()}: {row.path}/templates/{found.name}")
    else:
        print(read_template(found), end="")


@commands.command("vars")
def variables(json: JsonOption = False) -> None:
    """List the variables a template may use."""
    if json:
        print_json(VARIABLES)
    else:
        print(table(("VARIABLE", "WHAT IT HOLDS"), list(VARIABLES.items())))


@commands.command()
def lint(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME...]")] = None,
) -> None:
    """Render script templates for a matrix of plans; run bash -n, shellcheck and Slurm's own rule.

    Without names, every script template on the search path, and the rules of advice. Exit status 1
    when something is wrong.
    """
    collections = look_around().collections
    known = [name for name in list_templates(collections) if name.startswith("slurm/")]
    bad = 0
    for name in names or known:
        found = find_template(name, collections)
        count, findings = lint_template(found.name, collections)
        bad += len(findings)
        for finding in findings:
            print(finding)
        print(f"{found.name} ({found.collection.label()}): {count} plans, {len(findings)} findings")
    if not names:
        problems = check_rules(collections)
        bad += len(problems)
        for problem in problems:
            print(problem)
        print(f"advice: {len(list_rules(collections))} rules, {len(problems)} findings")
    if bad:
        raise typer.Exit(1)


@commands.command()
def diff(name: NameArgument) -> None:
    """Show how a template differs from the one it shadows."""
    found = find_template(name, look_around().collections)
    if not found.shadows:
        raise RequestError(f"{found.name} of {found.collection.label()} shadows no other template.")
    below = found.shadows[0].path / "templates" / found.name
    lines = difflib.unified_diff(
        _lines(below), _lines(found.path), fromfile=str(below), tofile=str(found.path)
    )
    text = "".join(lines)
    print(text, end="")
    if not text:
        note("They are the same.")


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines(keepends=True)
    except OSError as error:
        raise TemplateError(f"{path}: cannot be read: {error.strerror}.") from error
