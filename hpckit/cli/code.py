"""`hpckit code JOBID`: what of the code changed since a run was submitted; or all as it was."""

from pathlib import Path
from typing import Annotated

import typer

from hpckit.api.lookup import believed
from hpckit.cli.arguments import JobArgument, JsonOption, RunsOption, a_folder, settled_root
from hpckit.cli.output import note, print_json, say
from hpckit.text import counted
from hpckit.units import format_bytes


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(code)


def code(
    job_id: JobArgument,
    restore: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            callback=a_folder,
            help="Write the code as it was submitted into a new folder.",
        ),
    ] = None,
    runs: RunsOption = None,
    json: JsonOption = False,
) -> None:
    """Show how the code that a run has differs from the project's files now."""
    root = settled_root(runs, (job_id,))
    found = believed(job_id, root, here_only=runs is not None).code
    said = {
        "root": str(found.root),
        "copy": str(found.path),
        "files": found.files,
        "bytes": found.bytes,
        "copy_changed": found.changed,
    }
    size = f"{counted(found.files, 'file')} ({format_bytes(found.bytes)})"
    if restore is not None:
        target = found.restore(restore)
        if json:
            print_json({**said, "restored": str(target)})
        else:
            note(f"{size} written to {target}")
        return
    difference = found.difference()
    lines = found.diff(difference).split("\n")[:-1]
    if json:
        names = ("changed", "added", "removed")
        lists = {name: list(getattr(difference, name)) for name in names}
        print_json({**said, **lists, "diff": lines})
        return
    note(f"{size} of {found.root}, kept in {found.path}")
    if found.changed:
        note("Somebody has changed files of this copy since: the run may have run other code.")
    if not difference:
        note("The project's files are as they were submitted.")
    for line in lines:
        say(line)
