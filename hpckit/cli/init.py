"""`hpckit init`: a site file for the cluster one is logged in to."""

import re
from typing import Annotated

import typer

from hpckit.cli.arguments import JsonOption, look_around
from hpckit.cli.output import note, print_json, say, show_text
from hpckit.detect import login_node
from hpckit.detect.answers import Detected, read_answers, version_text
from hpckit.detect.page import site_page
from hpckit.detect.site_file import Outcome, WriteResult, write_site_file
from hpckit.errors import OutsideError, RequestError
from hpckit.paths import config_folder
from hpckit.sites import GENERIC, detect_site, list_sites

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
TimeoutOption = Annotated[
    float, typer.Option("--timeout", min=0.1, metavar="S", help="Seconds each program may take.")
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
    found = detect(timeout_s)
    say_unknown(found)
    page = site_page(found)
    if dry_run:
        show_text(page)
        return
    path = config_folder() / "templates" / "sites" / f"{_site_name(name, found)}.yaml"
    placed = write_site_file(path, page, force=force)
    if json:
        print_json({"site": path.stem, "path": str(path), "outcome": placed.outcome.value,
                    "why": placed.why, "diff": placed.diff})  # fmt: skip
    else:
        _say(placed)
    if placed.outcome is Outcome.KEPT:
        raise typer.Exit(1)
    _say_next(path.stem)


def detect(timeout_s: float) -> Detected:
    """Ask this cluster's programs.

    Raises:
        OutsideError: none of them answers, so there is no Slurm here.
    """
    answers = login_node.ask_slurm(timeout_s)
    if all(row.text is None for row in answers.values()):
        raise OutsideError(
            f"No program of Slurm answers here. {answers['config'].why} Log in to the cluster; or "
            "copy templates/sites/generic.yaml and fill it in (docs/sites.md)."
        )
    return read_answers(answers, login_node.describe_machine())


def say_unknown(found: Detected) -> None:
    """Say on stderr what could not be found out."""
    for row in found.unknown:
        note(f"not known: {row.what}: {row.why}")
    for name in found.left_out:
        note(f"left out: {name}: it is not one printable word")


def _site_name(name: str | None, found: Detected) -> str:
    chosen = name or found.name
    if chosen is None:
        raise OutsideError("Slurm does not give the name of this cluster: give --name NAME.")
    if not _NAME.fullmatch(chosen) or chosen == GENERIC:
        raise RequestError(
            f"{chosen!r} is not a valid site name: give another name with --name "
            "(letters, digits, . _ -)"
        )
    return chosen


def _say(placed: WriteResult) -> None:
    if placed.diff:
        say(placed.diff.rstrip("\n"))
    if placed.outcome is Outcome.KEPT:
        note(f"{placed.path} was not changed: {placed.why}. --force overwrites it.")
    else:
        say(f"{placed.path}: {placed.outcome}" + (f"; {placed.why}" if placed.why else ""))


def _say_next(name: str) -> None:
    collections = look_around().collections
    place = list_sites(collections)[name]
    for row in place.shadows:
        note(f"note: this file takes precedence over site {name!r} of {row.label()}")
    used = detect_site(collections)
    if used != name:
        note(
            f"note: here `hpckit submit` uses site {used!r}: give --site {name}, or set "
            "HPCKIT_SITE."
        )
    note(f"next: hpckit sites show {name}; hpckit doctor")


def detected_record(found: Detected) -> dict[str, object]:
    """Return what was found out for `sites detect --json`."""
    return {
        "name": found.name,
        "slurm_version": version_text(found.version) if found.version else None,
        "partitions": None
        if found.partitions is None
        else [
            {
                "name": row.name, "default": row.default, "state": row.state,
                "hidden": row.hidden, "root_only": row.root_only,
                "max_time_min": row.max_time_min, "max_nodes": row.max_nodes,
                "nodes": len(row.nodes), "accounts": row.accounts,
                "gpus_per_node": row.gpus_per_node,
            }
            for row in found.partitions
        ],
        "hidden_partitions": list(found.hidden),
        "gpu_types": dict(found.gpu_types) if found.nodes_known else None,
        "gpu_request": found.gpu_request,
        "accounts": None if found.associations is None else list(found.accounts),
        "default_account": found.default_account,
        "qos": None if found.associations is None else list(found.qos),
        "accounting": found.accounting,
        "mpi": {
            "kinds": found.mpi.kinds and list(found.mpi.kinds),
            "default": found.mpi.default,
            "chosen": found.mpi.chosen,
        },
        "hostname": found.here.hostname,
        "modules": [
            {"name": row.name, "evidence": row.evidence, "active": row.active}
            for row in found.here.modules
        ],
        "places": [
            {"label": row.label, "path": row.path, "file_system": row.file_system,
             "shared": row.shared}
            for row in found.here.folders
        ],
        "unknown": [{"what": row.what, "why": row.why} for row in found.unknown],
        "left_out": list(found.left_out),
    }  # fmt: skip
