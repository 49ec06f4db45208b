"""`hpckit top`: the user's jobs on a live screen, or one frame of it as text."""

import os
import shutil
import sys
from typing import Annotated

import typer

from hpckit.api.top import View, Watch, frame, lines
from hpckit.cli.arguments import RunsOption, TasksOption, finite, settled_root
from hpckit.cli.output import say, say_note
from hpckit.errors import OutsideError, RequestError
from hpckit.text import shows_blocks
from hpckit.version import to_install

OnceOption = Annotated[
    bool, typer.Option("--once", help="Print one frame as plain text; it needs no Textual.")
]
IntervalOption = Annotated[
    float,
    typer.Option(
        "--interval",
        "-i",
        min=1.0,
        max=3600.0,
        callback=finite,
        metavar="S",
        help="Ask Slurm every S seconds.",
    ),
]
FilterOption = Annotated[
    str, typer.Option("--filter", metavar="TEXT", help="Only jobs with it in id, name or state.")
]


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command()(top)


def top(
    once: OnceOption = False,
    interval: IntervalOption = 5.0,
    text: FilterOption = "",
    tasks: TasksOption = False,
    runs: RunsOption = None,
) -> None:
    """Watch your jobs: state, progress, GPUs, and what is free. Press ? for the keys."""
    view = View(text=text, folded=not tasks)
    at_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    dumb = at_terminal and os.environ.get("TERM") == "dumb"
    if dumb and not once:
        say_note("this terminal cannot draw a screen (TERM=dumb): here is one frame, as --once")
    if once or dumb:
        watch = Watch(settled_root(runs), in_one=True, here_only=runs is not None)
        watch.refresh()
        watch.refresh_free()
        _print_frame(watch, view)
        return
    if not at_terminal:
        raise RequestError("hpckit top needs a terminal. In scripts: hpckit top --once")
    try:
        from hpckit.cli.top_screen import Top  # noqa: PLC0415  # an extra, and slow
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("textual", "rich"):
            raise
        raise OutsideError(
            "The screen is drawn by Textual, which is not installed beside hpckit. "
            f"{to_install('textual>=8')}. Without it: hpckit top --once"
        ) from error
    Top(Watch(settled_root(runs), here_only=runs is not None), view, interval).watch_jobs()


def _print_frame(watch: Watch, view: View) -> None:
    columns = shutil.get_terminal_size((120, 24)).columns
    found = lines(watch.jobs, view)
    unicode = shows_blocks(sys.stdout)
    say(frame(found, watch.jobs, watch.said(), watch.side(), columns, unicode=unicode))
