"""`hpckit submit`: a workload, or one's own program under a strategy."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from hpckit.api.options import job_spec
from hpckit.api.prepare import (
    Submission,
    beside_own_job,
    chosen_otherwise,
    load_jinja,
    preflight,
    prepare,
)
from hpckit.cli.arguments import (
    CheckOption,
    DryRunOption,
    FollowOption,
    JsonOption,
    RunsOption,
    WaitOption,
)
from hpckit.cli.mistakes import OwnWordsCommand
from hpckit.cli.options import with_options
from hpckit.cli.output import by, note, print_json, say, say_note, show_text
from hpckit.stand_ins import stand_ins
from hpckit.text import counted, in_line, simulated
from hpckit.units import format_minutes

# What Jinja imports to make code of templates, and to keep it in a way of its own: hpckit has
# `kept`, and most often nothing is made.
_JINJAS = (
    *("hashlib", "jinja2.bccache", "jinja2.compiler", "jinja2.lexer", "jinja2.parser"),
    *("random",),
)
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
    with stand_ins(*_JINJAS):
        load_jinja()
    submission = prepare(spec, runs, preview=dry_run, tell=say_note)
    if dry_run:
        _preview(submission, json=json)
    elif check:
        answer = preflight(submission)
        say_job_notes(submission)
        say_check(submission.place.run_id, answer, json=json)
    else:
        # A dry run needs none of it, and would take a tenth longer.
        from hpckit.cli.carry_out import carry_out  # noqa: PLC0415

        carry_out(submission, wait=wait, follow=follow, json=json)


def _say_swallowed(own_words: tuple[str, ...]) -> None:
    """Say of options that are hpckit's by their names, and stand where the program gets them."""
    swallowed = [word for word in own_words if word.partition("=")[0] in _HPCKITS]
    if swallowed:
        stands, them = ("stands", "it") if len(swallowed) == 1 else ("stand", "them")
        note(
            f"note: {', '.join(swallowed)} {stands} after `--`: your script gets {them}. Options "
            "of hpckit go before `--`"
        )


def _preview(submission: Submission, *, json: bool) -> None:
    _ = submission.rendered  # what is wrong with it is said first, and alone
    say_job(submission)
    show_script(submission, json=json)


def say_job(submission: Submission) -> None:
    """Say on stderr what a submission comes to."""
    job = submission.job
    count = f"{len(job.tasks)} x " if job.is_array else ""
    if job.chain:
        count = f"a chain of {job.chain + 1} jobs, each "
    nodes, gpus = counted(job.nodes, "node"), counted(job.gpus_per_node, "GPU")
    total = f" = {job.total_gpus} GPUs" if job.nodes > 1 else ""
    shape = f"{nodes} x {gpus}{total}" if job.gpus_per_node else f"{nodes}, no GPU"
    shape += simulated(job.gpus_per_node, job.device)
    note(
        f"{job.name}: {count}{shape}, {counted(job.ranks, 'rank')}{by(submission.launched_by)}, "
        f"limit {format_minutes(job.time_min)}, on {job.scheduler.where(job)}"
    )
    found = job.workload.found if job.workload else None
    if found and found.collection.origin != "built-in":
        at = found.collection.revision and f" at {found.collection.revision}"
        note(f"workload {found.path.parent} of collection {found.collection.label()}{at}")
    for row in submission.collections:
        if row.changed:
            note(f"note: {row.name} has changed since it was pinned: hpckit collections verify")
    say_job_notes(submission)


def say_job_notes(submission: Submission) -> None:
    """Say on stderr what was found out while a job was worked out."""
    beside = beside_own_job(submission)
    for line in (*submission.job.notes, *((beside,) if beside else ())):
        note(f"note: {in_line(line)}")


def say_check(run_id: str, answer: str, *, json: bool) -> None:
    """Print what Slurm says of a job that it would take."""
    if json:
        print_json({"run_id": run_id, "accepted": True, "answer": answer})
    else:
        say(answer)


def show_script(
    submission: Submission, *, json: bool, more: Mapping[str, Any] | None = None
) -> None:
    """Print the script of a dry run, and say whose it is; `more` is for its document."""
    if otherwise := chosen_otherwise(submission):
        note(f"note: {in_line(otherwise)}")
    if json:
        script = submission.rendered.text
        print_json({"run_id": submission.place.run_id, "script": script, **(more or {})})
    else:
        show_text(submission.rendered.text)
