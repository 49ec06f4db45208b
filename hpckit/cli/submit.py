"""`hpckit submit`: a workload, or one's own program under a strategy."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from hpckit.api.options import job_spec
from hpckit.api.prepare import Submission, preflight, prepare
from hpckit.cli.announce import say_job, say_which_script, show_script
from hpckit.cli.arguments import (
    CheckOption,
    DryRunOption,
    FollowOption,
    JsonOption,
    RunsOption,
    WaitOption,
    say_note,
)
from hpckit.cli.mistakes import OwnWordsCommand
from hpckit.cli.options import with_options
from hpckit.cli.output import note, say

# Few scripts have options of these names.
_HPCKITS = frozenset(
    (
        *("--nodes", "--gpus", "--partition", "--account"),
        *("--env", "--executor", "--dry-run", "--follow"),
    )
)


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(cls=OwnWordsCommand)(with_options(submit))


def submit(
    context: typer.Context,
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="A workload; or with PROGRAM a strategy.")
    ],
    program: Annotated[
        str | None,
        typer.Argument(
            metavar="[PROGRAM]",
            help="Your own program: a Python file, an executable, a .sh, .R or .jl file, or a word "
            "such as lmp that the environment provides. NAME is then serial, dp, ddp, mirrored or "
            "mpi. Its arguments go after `--`.",
        ),
    ] = None,
    *,
    typed: Mapping[str, Any],
    module: Annotated[
        str | None,
        typer.Option("--module", "-m", metavar="MODULE", help="A Python module, as PROGRAM."),
    ] = None,
    runs: RunsOption = None,
    dry_run: DryRunOption = False,
    check: CheckOption = False,
    wait: WaitOption = False,
    follow: FollowOption = False,
    json: JsonOption = False,
) -> None:
    """Submit a workload, or your own program, as one job or an array; return at once."""
    _say_swallowed(context.obj or ())
    words = {**typed, "args": context.obj or ()}
    spec = job_spec(name, words, program=program, module=module)
    submission = prepare(spec, runs, preview=dry_run, tell=say_note)
    if dry_run:
        _preview(submission, json=json)
    elif check:
        say(preflight(submission))
    else:
        # A dry run needs none of it, and would take a tenth longer.
        from hpckit.cli.carry_out import carry_out  # noqa: PLC0415

        carry_out(submission, wait=wait, follow=follow, json=json)


def _say_swallowed(own_words: tuple[str, ...]) -> None:
    """Say of options that are hpckit's by their names, and stand where the program gets them."""
    swallowed = [word for word in own_words if word.partition("=")[0] in _HPCKITS]
    if swallowed:
        note(
            f"note: {', '.join(swallowed)} stands after `--`: your script gets it. Options of "
            "hpckit go before `--`"
        )


def _preview(submission: Submission, *, json: bool) -> None:
    _ = submission.rendered  # what is wrong with it is said first, and alone
    say_job(submission)
    say_which_script(submission)
    show_script(submission, json=json)
