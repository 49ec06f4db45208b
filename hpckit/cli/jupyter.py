"""`hpckit jupyter`: a notebook server as a job, and the way to it."""

import shlex
from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated, Any

import typer

from hpckit.api.jupyter import (
    Notebook,
    carry,
    find_notebook,
    notebook_when_up,
    open_browser,
    prepare_notebook,
)
from hpckit.api.login import login_node
from hpckit.api.prepare import Submission
from hpckit.api.sessions import NOT_FOR_SESSIONS
from hpckit.api.submit import send
from hpckit.cli.arguments import DryRunOption, JsonOption, RunsOption
from hpckit.cli.carry_out import carry_out, print_submitted
from hpckit.cli.left_running import BREAKS, say_left
from hpckit.cli.options import with_options
from hpckit.cli.output import note, print_json, say, say_note
from hpckit.cli.submit import say_job, show_script
from hpckit.cli.view import LiveView
from hpckit.errors import RequestError

WAYS = ("auto", "ssh", "srun")
RunArgument = Annotated[
    str | None,
    typer.Argument(metavar="[JOBID]", help="One that is there, or latest: show the way again."),
]
IdleOption = Annotated[
    str | None,
    typer.Option("--idle", metavar="TIME", help="End it after so long without use, as 30m."),
]
OpenOption = Annotated[
    bool,
    typer.Option(
        "--open", help="Bring its port to this machine and open a browser; stay until Ctrl-C."
    ),
]
PortOption = Annotated[
    int | None,
    typer.Option("--port", min=1, max=65535, metavar="N", help="The port here, with --open."),
]
ViaOption = Annotated[
    str,
    typer.Option("--via", metavar="WAY", help="With --open: ssh, srun, or auto (ssh, then srun)."),
]
LoginOption = Annotated[
    str | None,
    typer.Option(
        "--login",
        metavar="[USER@]HOST",
        help="How this login node is reached from outside (else the site's, its own name).",
    ),
]
DetachOption = Annotated[
    bool, typer.Option("--detach", help="Submit it and return: hpckit jupyter JOBID shows the way.")
]


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(with_options(jupyter, without=NOT_FOR_SESSIONS))


def jupyter(
    job_id: RunArgument = None,
    *,
    typed: Mapping[str, Any],
    idle: IdleOption = None,
    opened: OpenOption = False,
    port: PortOption = None,
    via: ViaOption = "auto",
    login: LoginOption = None,
    detach: DetachOption = False,
    runs: RunsOption = None,
    dry_run: DryRunOption = False,
    json: JsonOption = False,
) -> None:
    """Start a notebook server on a node, wait until it answers, and print the way to it.

    Ctrl-C leaves it running: come back with its JOBID, end it with `hpckit cancel`.
    """
    _refuse_unfit(opened=opened, port=port, via=via, json=json, detach=detach)
    login_node(login)  # what is wrong with it is said now, and not when the job runs
    asked = {word: value for word, value in typed.items() if value is not None}
    if job_id is not None:
        if asked or idle or dry_run or detach:
            raise RequestError(
                f"{job_id} is there already: options of a new notebook have no meaning for it."
            )
        run = find_notebook(job_id, runs)
    else:
        submission = prepare_notebook(asked, idle=idle, runs=runs, preview=dry_run, tell=say_note)
        if dry_run or detach:
            _only_submit(submission, dry_run=dry_run, json=json)
            return
        run = send(submission, tell=note)[0]
        say_job(submission)
        note(f"Submitted {run.job_id}. Waiting for its notebook server; Ctrl-C leaves it running.")
    try:
        found = notebook_when_up(run, login=login, look=LiveView())
        if json:
            print_json(found.document())
        elif opened:
            _stay(found, via, port)
        else:
            _say_way(found, login)
    except (*BREAKS, KeyboardInterrupt) as error:
        say_left(run, "jupyter", error)
        if json and job_id is None:  # as with --detach: a script learns of the job here alone
            with suppress(*BREAKS):
                print_submitted(submission, [run.status()], {})
        raise


def _refuse_unfit(*, opened: bool, port: int | None, via: str, json: bool, detach: bool) -> None:
    """Refuse options that contradict each other, or of which nothing would be seen."""
    if via not in WAYS:
        raise RequestError(f"--via {via!r} is none of {', '.join(WAYS)}.")
    if json and opened:
        raise RequestError("--json prints and returns, --open stays: leave one of them out.")
    if detach and opened:
        raise RequestError("--detach returns, --open stays: leave one of them out.")
    given = f"--port {port}" if port is not None else f"--via {via}" if via != "auto" else ""
    if given and not opened:
        raise RequestError(f"{given} says how --open comes to the server: add --open.")


def _only_submit(submission: Submission, *, dry_run: bool, json: bool) -> None:
    """Show the script, or submit it and return."""
    if dry_run:
        _ = submission.rendered
        say_job(submission)
        show_script(submission, json=json)
    else:
        (run,) = carry_out(submission, wait=False, follow=False, json=json)
        note(f"  way     hpckit jupyter {run.job_id}")


def say_if_unknown(login: str | None) -> None:
    """Say that this machine's own name means nothing elsewhere."""
    if login_node(login).host.partition(".")[0] == "localhost":
        note("note: this machine calls itself localhost: say with --login how others call it")


def _say_way(found: Notebook, login: str | None) -> None:
    """Print the address, and the commands that lead there."""
    say_if_unknown(login)
    job_id = found.run.job_id
    say(f"Jupyter is up on {found.connection.node}, job {job_id}.")
    say("\nOn your own computer, in a terminal that stays open:")
    say(f"  {shlex.join(found.tunnel)}")
    if not found.here:
        say("or, where the site does not let you ssh to nodes:")
        say(f"  {shlex.join(found.through_login)}")
    say("Then open there (or here):" if found.here else "Then open there:")
    say(f"  {found.url()}")
    _say_secret(found)
    note(f"See this again: hpckit jupyter {job_id}. End it: hpckit cancel {job_id}")


def _say_secret(found: Notebook) -> None:
    if found.connection.token:
        note("The address contains the server's secret: give it to nobody.")
    else:
        note("Your own Jupyter configuration has a password: the page asks for it.")


def _stay(found: Notebook, via: str, port: int | None) -> None:
    """Bring the server's port here, say so, and stay until it ends."""

    def ready(here: int, way: str) -> None:
        if port is None and here != found.connection.port:
            note(f"note: port {found.connection.port} of this machine is taken: {here} instead")
        say(f"Jupyter is at\n  {found.url(here)}")
        _say_secret(found)
        how = "" if way == "here" else f" (through {way}, to {found.connection.node})"
        note(f"It can be reached from this machine{how} until Ctrl-C; the job goes on.")
        if not open_browser(found, here):
            note("No browser was found here: open the address yourself.")

    carry(found, ready=ready, way=via, port=port)
    note(f"Job {found.run.job_id} is over: {found.run.status().state}.")
