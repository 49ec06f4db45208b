"""`hpckit init`: a site file for the cluster one is logged in to."""

from typing import Annotated

import typer

from hpckit.api import sites as api
from hpckit.api.sites import Detected, Outcome, WriteResult, detect_cluster, site_page
from hpckit.cli.arguments import JsonOption, finite
from hpckit.cli.output import note, print_json, say, say_note, show_text

TimeoutOption = Annotated[
    float,
    typer.Option(
        "--timeout",
        min=0.1,
        callback=finite,
        metavar="S",
        help="Seconds each program may take.",
    ),
]


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(init)


def init(
    name: Annotated[
        str | None, typer.Option("--name", help="The site's name (else Slurm's ClusterName).")
    ] = None,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Overwrite a file that was edited or that init did not write."
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the YAML; write nothing.")
    ] = False,
    timeout_s: TimeoutOption = 10.0,
    json: JsonOption = False,
) -> None:
    """Find out what this cluster is, and write a commented site file; submits nothing.

    It goes to ~/.config/hpckit/templates/sites/. Run again it changes nothing, unless the cluster
    has changed and the file has not been edited. Exit status 1 when it was left alone though it
    differs.
    """
    found = detect_cluster(timeout=timeout_s)
    say_unknown(found)
    if dry_run:
        _show(name, found, json)
        return
    placed = api.init(name, force=force, found=found)
    if json:
        print_json({"site": placed.path.stem, "path": str(placed.path),
                    "outcome": placed.outcome.value, "why": placed.why,
                    "diff": placed.diff})  # fmt: skip
    else:
        _say(placed)
    if placed.outcome is Outcome.KEPT:
        raise typer.Exit(1)
    _say_next(placed.path.stem)


def _show(name: str | None, found: Detected, json: bool) -> None:
    path, page = api.site_file(name, found), site_page(found)
    if json:
        print_json({"site": path.stem, "path": str(path), "page": page})
    else:
        show_text(page)


def say_unknown(found: Detected) -> None:
    """Say on stderr what could not be found out."""
    for row in found.unknown:
        note(f"not known: {row.what}: {row.why}")
    for name in found.left_out:
        note(f"left out: {name}: it is not one printable word")


def _say(placed: WriteResult) -> None:
    if placed.diff:
        say(placed.diff.rstrip("\n"))
    if placed.outcome is Outcome.KEPT:
        note(f"{placed.path} was not changed: {placed.why}. --force overwrites it.")
    else:
        say(f"{placed.path}: {placed.outcome}" + (f"; {placed.why}" if placed.why else ""))


def _say_next(name: str) -> None:
    place, used = api.site_in_use(name, say_note)
    for row in place.shadows:
        note(f"note: this file takes precedence over site {name!r} of {row.label()}")
    if used != name:
        note(
            f"note: here `hpckit submit` uses site {used!r}: give --site {name}, or set "
            "HPCKIT_SITE."
        )
    note(f"next: hpckit sites show {name}; hpckit doctor")
