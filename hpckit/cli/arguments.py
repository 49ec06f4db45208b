"""Options and look-ups that several commands share."""

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from hpckit import collections as places
from hpckit.cli.output import note
from hpckit.errors import DamagedRunError, HpckitError, OutsideError
from hpckit.find import any_handed_over, find_runs, refuse_doubtful
from hpckit.paths import is_there
from hpckit.runs import DamagedRun, Run, runs_root
from hpckit.sites import find_site
from hpckit.spec import OPTIONS

RunsOption = Annotated[
    Path | None,
    typer.Option(
        "--runs", metavar="DIR", help="Where runs live (else $HPCKIT_RUNS, site, ./runs)."
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Print the script; submit nothing.")]
CheckOption = Annotated[
    bool, typer.Option("--check", help="Ask Slurm whether and when it would start.")
]
WaitOption = Annotated[bool, typer.Option("--wait", help="Return when the job is over.")]
FollowOption = Annotated[bool, typer.Option("--follow", "-f", help="Watch it until it is over.")]


def declared(name: str) -> Any:  # noqa: ANN401
    """Return a field of `JobSpec` as an option of a command that asks for few of them."""
    row = OPTIONS[name]
    return typer.Option(*row.flags, metavar=row.metavar, help=row.help)


PartitionOption = Annotated[str | None, declared("partition")]
AccountOption = Annotated[str | None, declared("account")]
NodesOption = Annotated[int | None, declared("nodes")]
GpusOption = Annotated[str | None, declared("gpus")]
TimeOption = Annotated[str | None, declared("time_min")]
JobArgument = Annotated[
    str,
    typer.Argument(metavar="JOBID", help="Slurm's job id, a local run's id, a run id, or latest."),
]
JobsArgument = Annotated[
    list[str],
    typer.Argument(metavar="JOBID...", help="Job ids, run ids, or latest."),
]


def default_root(option: Path | None, site_name: str | None = None) -> Path:
    """Return the runs folder for commands that look at runs; reads a site only when it must."""
    if option is not None or os.environ.get("HPCKIT_RUNS"):
        return runs_root(option, None, os.environ)
    return runs_root(None, find_site(site_name, places.search_path()).runs, os.environ)


def settled_root(option: Path | None, words: tuple[str, ...] = ()) -> Path:
    """Return the runs folder, after submissions that were cut short have found their jobs."""
    root = default_root(option)
    say_settled(root, words)
    return root


def say_settled(root: Path, words: tuple[str, ...] = ()) -> None:
    """Ask Slurm for the jobs of submissions that were cut short, and say on stderr what it said."""
    if any_handed_over() or any(is_there(root / word / "handover.json") for word in words):
        # Seldom: what it takes is not loaded otherwise.
        from hpckit.submission.handover import settle  # noqa: PLC0415

        for line in settle(root, words):
            note(f"note: {line}")


def look_around() -> places.Survey:
    """Look at the search path, and say on stderr what should be on it and cannot be used."""
    around = places.survey()
    say_left_out(around.unusable)
    return around


def say_note(text: str) -> None:
    """Say on stderr what a user should know and did not ask for."""
    note(f"note: {text}")


def say_left_out(unusable: tuple[places.Unusable, ...]) -> None:
    """Say on stderr which collections cannot be used, and what to do."""
    for row in unusable:
        say_note(row.left_out())


def runs_called(
    words: list[str], option: Path | None, *, believed: bool = False
) -> tuple[list[Run], list[HpckitError]]:
    """Return the runs of several ids, each once, in the order given; and why others cannot be read.

    `believed` is for commands that act on what runs say: those that others can have made up are
    refused. Whose runs are not the user's own is said on stderr.

    Raises:
        NotFoundError: an id is none: nothing has been done yet. HpckitError: no run can be read.
    """
    root = settled_root(option, tuple(words))
    found: list[Run] = []
    errors: list[HpckitError] = []
    for word in words:
        damaged: list[DamagedRun] = []
        try:
            here = find_runs(word, root, damaged)
        except (DamagedRunError, OutsideError) as error:
            errors.append(error)
            continue
        errors += [row.error for row in damaged]
        for run in here if believed else ():
            refuse_doubtful(run, word)
        found += here
    if not found:
        raise_last(errors)
    unique = list({run.dir: run for run in found}.values())
    for run in unique:
        say_whose(run)
    return unique, errors


def say_whose(run: Run) -> None:
    """Say on stderr whose words a run's are, if they are not this user's own."""
    if run.doubt:
        note(f"note: another user may have written run {run.run_id}: {run.doubt}")
    elif not run.mine:
        note(f"note: run {run.run_id} and its contents belong to {run.owner}")


def raise_last(errors: list[HpckitError]) -> None:
    """Say what went wrong with some of several things, each on its line; raise the last."""
    for error in errors[:-1]:
        note(f"hpckit: error: {error}")
    for error in errors[-1:]:
        raise error
