"""`hpckit free`: what is free on the cluster now."""

from collections.abc import Sequence

import typer

import hpckit
from hpckit.api.free import FreePart
from hpckit.cli.arguments import JsonOption
from hpckit.cli.output import note, print_json, show_table

HEADS = (
    "PARTITION",
    "GPU",
    "FREE",
    "CPUS FREE",
    "MEM FREE",
    "NODES OPEN",
    "ON ONE NODE NOW",
    "NOTE",
)


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command("free")(show_free)


def show_free(json: JsonOption = False) -> None:
    """Show free GPUs by type, cores and memory of each partition, and the most on one node.

    Nodes that are down, drained or in a reservation are not counted as free; `?` is unknown.
    """
    found = hpckit.free()
    if json:
        print_json(found.document())
        return
    if not found.parts:
        note("Slurm shows no partition that you may see.")
        return
    show_table(HEADS, [[cell or "-" for cell in cells(row)] for row in found.parts], _paint)
    if found.trouble:
        note(f"note: hpckit does not know which partitions you may use: {found.trouble}")


def cells(row: FreePart) -> Sequence[str]:
    """Return the cells of a part, in the order of HEADS."""
    return (
        row.partition + ("*" if row.default else ""),
        kind_of(row),
        gpus_of(row),
        f"{known(row.cpus_free)}/{known(row.cpus)}",
        f"{_gib(row.memory_free_mb)}/{_gib(row.memory_mb)} GiB",
        f"{row.open} of {row.nodes}",
        block_of(row),
        "; ".join(_notes(row)),
    )


def kind_of(row: FreePart) -> str:
    """Return what a part's GPUs are called; `-` for none."""
    return f"{row.gpu or 'gpu'}{' (MIG)' if row.mig else ''}" if row.gpus else "-"


def gpus_of(row: FreePart) -> str:
    """Return free GPUs of all."""
    return f"{known(row.gpus_free)}/{row.gpus}" if row.gpus else "-"


def block_of(row: FreePart) -> str:
    """Return the most that one job gets on one node."""
    if row.largest is None:
        return "-"
    cores = f"{known(row.largest.cpus)} CPUs"
    what = f"{row.largest.gpus} x {row.gpu or 'GPU'}, {cores}" if row.gpus else cores
    return what + (f" ({row.largest.nodes} nodes)" if row.largest.nodes > 1 else "")


def known(count: int | None) -> str:
    """Return a count; `?` where it is unknown."""
    return "?" if count is None else str(count)


def _gib(megabytes: int | None) -> str:
    return "?" if megabytes is None else f"{megabytes / 1024:.0f}"


def _notes(row: FreePart) -> list[str]:
    said = [] if row.state == "UP" else [f"the partition is {row.state}"]
    if row.may_use is False:
        said.append("not for your accounts or groups")
    counts = (
        (row.out, "down or drained"),
        (row.reserved, "in a reservation"),
        (row.planned, "kept for a waiting job"),
    )
    return said + [f"{count} {word}" for count, word in counts if count]


def _paint(head: str, cell: str) -> str | None:
    if head == "FREE" and not cell.startswith(("0/", "?", "-")):
        return "green"
    return "dim" if head == "NOTE" else None
