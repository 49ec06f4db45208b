"""Options and look-ups that several commands share."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hpckit.cli.output import note, say_note, say_whose
from hpckit.errors import HpckitError

if TYPE_CHECKING:
    from hpckit import RunList

# So many damaged runs are named.
_DAMAGED = 10


def a_folder(path: Path | None) -> Path | None:
    """Return a folder as it is; refuse `-`, by which other options mean standard output."""
    if path == Path("-"):
        raise typer.BadParameter("standard output cannot take a folder. Give a folder's name.")
    return path


RunsOption = Annotated[
    Path | None,
    typer.Option(
        "--runs",
        metavar="DIR",
        callback=a_folder,
        help="Where runs live (else $HPCKIT_RUNS, site, ./runs).",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Print the script; submit nothing.")]
CheckOption = Annotated[
    bool, typer.Option("--check", help="Ask Slurm whether and when it would start.")
]
WaitOption = Annotated[bool, typer.Option("--wait", help="Return when the job is over.")]
TasksOption = Annotated[bool, typer.Option("--tasks", help="A line for each array task.")]
FollowOption = Annotated[
    bool, typer.Option("--follow", "-f", help="Show its state and progress until it is over.")
]


JobArgument = Annotated[
    str,
    typer.Argument(metavar="JOBID", help="Slurm's job id, a local run's id, a run id, or latest."),
]
JobsArgument = Annotated[
    list[str],
    typer.Argument(metavar="JOBID...", help="Job ids, run ids, or latest."),
]


def finite(value: float | None) -> float | None:
    """Return a number as it is; refuse `nan`, which passes every limit, and `inf`."""
    if value is not None and not math.isfinite(value):
        raise typer.BadParameter(f"{value} is not a finite number.")
    return value


def settled_root(option: Path | None, words: tuple[str, ...] = ()) -> Path:
    """Return the runs folder, after submissions that were cut short have found their jobs."""
    from hpckit.api.lookup import settled_folder  # noqa: PLC0415  # a dry run needs none of it

    return settled_folder(option, words, say_note)


def runs_called(
    words: list[str], option: Path | None, *, believed: bool = False
) -> "tuple[RunList, list[HpckitError]]":
    """Return the runs of several ids, each once, in the order given; and what is wrong with others.

    `believed` is for commands that act on what runs say: those that others can have made up are
    refused, and an id that means none. Whose runs are not the user's own is said on stderr.

    Raises:
        NotFoundError: an id means none, and `believed`: nothing has been done yet. HpckitError:
            there is no run that can be read.
    """
    from hpckit.api import lookup  # noqa: PLC0415  # as above

    root = settled_root(option, tuple(words))
    found, errors = lookup.runs_called(words, root, believed=believed, here_only=option is not None)
    if not found:
        raise_last(errors)
    for run in found:
        say_whose(run)
    return found, errors


def raise_last(errors: list[HpckitError]) -> None:
    """Say what went wrong with some of several things, each on its line; raise the last."""
    for error in errors[:-1]:
        note(f"hpckit: error: {error}")
    for error in errors[-1:]:
        raise error


def say_damaged(lines: list[str]) -> None:
    """Name what cannot be read, as far as it does not hide what can."""
    for line in lines[:_DAMAGED]:
        note(f"damaged: {line}")
    if len(lines) > _DAMAGED:
        note(f"damaged: {len(lines) - _DAMAGED} more")
