"""`hpckit bad-nodes`: nodes that looked bad, which `--exclude-bad` leaves out."""

import time
from typing import Annotated

import typer

from hpckit.api.bad_nodes import BadNodes, add_bad_node, forget_bad_node
from hpckit.api.bad_nodes import bad_nodes as known_nodes
from hpckit.cli.arguments import JsonOption
from hpckit.cli.output import note, print_json, say, say_note, table
from hpckit.errors import RequestError
from hpckit.units import format_seconds

_HEADS = ("NODE", "CLUSTER", "JOB", "AGO", "UNTIL", "WHAT")


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(name="bad-nodes")(bad_nodes)


def bad_nodes(
    add: Annotated[
        list[str] | None,
        typer.Option(metavar="HOST", help="Remember a node by hand; needs --why; repeatable."),
    ] = None,
    why: Annotated[str | None, typer.Option(metavar="TEXT", help="The reason, for --add.")] = None,
    forget: Annotated[
        list[str] | None,
        typer.Option(metavar="HOST", help="Forget what is known of a node; repeatable."),
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Slurm's name of the cluster (else this one)."),
    ] = None,
    site: Annotated[str | None, typer.Option(help="Site file (else detected).")] = None,
    json: JsonOption = False,
) -> None:
    """List nodes on which jobs met a fault of the hardware; add or forget one.

    `submit --exclude-bad` leaves these nodes out.
    """
    if bool(add) != (why is not None):
        raise RequestError("--add HOST and --why TEXT go together.")
    if add and why is not None:
        add_bad_node(add, why, cluster=cluster)
    if forget:
        forget_bad_node(forget, cluster=cluster)
    found = known_nodes(cluster, site=site)
    if found.trouble:
        say_note(found.trouble)
    if json:
        print_json(found.document())
    else:
        _show(found)


def _show(found: BadNodes) -> None:
    where = f"of cluster {found.cluster}" if found.cluster else "of any cluster"
    if not found:
        if not found.trouble:
            note(f"No bad node {where} is known.")
        return
    now, rows = time.time(), []
    for row in found:
        newest = row.events[0]
        aged = row.until is not None
        rows.append(
            (
                row.host,
                row.cluster,
                newest.job_id,
                format_seconds(max(now - newest.when, 0.0)) if aged else None,
                time.strftime("%Y-%m-%d", time.localtime(row.until)) if aged else None,
                row.what,
            )
        )
    say(table(_HEADS, rows))
