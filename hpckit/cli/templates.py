"""`hpckit templates list|show|vars|lint|diff`."""

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from hpckit.cli.arguments import JsonOption, look_around
from hpckit.cli.output import note, print_json, say, show_text, table
from hpckit.collections import content_hash, survey
from hpckit.errors import RequestError, TemplateError
from hpckit.files import DamagedFileError, read_text, reason
from hpckit.job.script import VARIABLES
from hpckit.lint import Finding, lint_collection, lint_template
from hpckit.render import find_template, list_templates, read_template
from hpckit.stats.advice.loading import check_rules, list_rules

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
                    "revision": place.collection.revision or None,
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
    say(table(("TEMPLATE", "FROM", "SHADOWS"), rows))


@commands.command()
def show(
    name: NameArgument,
    origin: Annotated[
        bool, typer.Option("--origin", help="Show only where it comes from.")
    ] = False,
) -> None:
    """Print a template's source."""
    found = find_template(name, look_around().collections)
    if origin:
        say(f"{found.name}\n  from     {found.collection.label()}\n  file     {found.path}")
        if found.collection.source:
            say(f"  source   {found.collection.source}")
            say(f"  revision {found.collection.revision} {found.collection.rev}".rstrip())
        say(f"  hash     {content_hash(found.path)}")
        for row in found.shadows:
            say(f"  shadows  {row.label()}: {row.path}/templates/{found.name}")
    else:
        show_text(read_template(found))


@commands.command("vars")
def variables(json: JsonOption = False) -> None:
    """List the variables a template may use."""
    if json:
        print_json(VARIABLES)
    else:
        say(table(("VARIABLE", "MEANING"), list(VARIABLES.items())))


@commands.command()
def lint(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME...]")] = None,
) -> None:
    """Render script templates for a matrix of plans; run bash -n, shellcheck and Slurm's own rule.

    Without names, every script template on the search path, and all else that collections hold:
    manifests, other templates, sites, workloads, rules of advice, and who can write them. Each
    finding has a file and a line. Exit status 1 when something is wrong.
    """
    # A manifest at fault is one more finding, and no reason to stop.
    collections = survey(broken=[]).collections
    known = [name for name in list_templates(collections) if name.startswith("slurm/")]
    found: list[Finding] = []
    if not names:
        for collection in collections:
            found += lint_collection(collection, collections)
    bad = _print_new(found, ())
    for name in names or known:
        place = find_template(name, collections)
        count, findings = lint_template(place.name, collections)
        new = _print_new(findings, found)
        bad += new
        say(f"{place.name} ({place.collection.label()}): {count} plans, {new} findings")
    if not names:
        known_faults = [row.message for row in found]
        problems = [
            text
            for text in check_rules(collections)
            if not any(fault in text for fault in known_faults)
        ]
        bad += len(problems)
        for problem in problems:
            say(problem)
        say(f"advice: {len(list_rules(collections))} rules, {len(problems)} findings")
    if bad:
        raise typer.Exit(1)


def _print_new(findings: Sequence[Finding], before: Sequence[Finding]) -> int:
    """Print findings, each place once: what was found by reading shows again in each plan."""
    places = {(row.path, row.line) for row in before} | {(row.path, row.message) for row in before}
    files = {row.path for row in before}
    new = [
        row
        for row in findings
        if not places & {(row.path, row.line), (row.path, row.message)}
        and not (row.line == 0 and row.path in files)
    ]
    for row in new:
        say(str(row))
    return len(new)


@commands.command()
def diff(name: NameArgument) -> None:
    """Show how a template differs from the one it shadows."""
    found = find_template(name, look_around().collections)
    if not found.shadows:
        raise RequestError(
            f"{found.name} of {found.collection.label()} does not shadow another template."
        )
    below = found.shadows[0].path / "templates" / found.name
    lines = difflib.unified_diff(
        _lines(below), _lines(found.path), fromfile=str(below), tofile=str(found.path)
    )
    text = "".join(lines)
    show_text(text)
    if not text:
        note("They are the same.")


def _lines(path: Path) -> list[str]:
    try:
        return read_text(path).splitlines(keepends=True)
    except (OSError, DamagedFileError) as error:
        raise TemplateError(f"cannot be read: {reason(error)}.", at=path) from error
