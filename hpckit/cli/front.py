"""The first page, `hpckit --help`: written without typer, which is half of a start."""

import os
from collections.abc import Mapping

HELP = "Submit multi-GPU work to Slurm with one line, and see what became of it."
VERSION_HELP = "Print the version."
OPTIONS = {
    "--version": VERSION_HELP,
    "--install-completion": "Install completion for the current shell.",
    "--show-completion": "Print completion for the current shell, to copy or change it.",
    "-h, --help": "Show this message and exit.",
}
# As typer's pages.
_WIDEST, _NARROWEST = 78, 50


def front_page(commands: Mapping[str, str]) -> str:
    """Return the page that names all commands, each with its line."""
    import textwrap  # noqa: PLC0415  # no other page has need of it

    width = min(max(_columns() - 2, _NARROWEST), _WIDEST)
    about = textwrap.fill(HELP, width, initial_indent="  ", subsequent_indent="  ")
    parts = [
        "Usage: hpckit [OPTIONS] COMMAND [ARGS]...",
        about,
        _rows("Options:", OPTIONS, width),
        _rows("Commands:", commands, width),
    ]
    return "\n\n".join(parts)


def _columns() -> int:
    """Return the terminal's width; `shutil` knows it too, and much of archives."""
    asked = os.environ.get("COLUMNS", "")
    if asked.isdecimal() and int(asked):
        return int(asked)
    try:
        return os.get_terminal_size().columns or 80
    except OSError:
        return 80


def _rows(head: str, rows: Mapping[str, str], width: int) -> str:
    import textwrap  # noqa: PLC0415  # as above

    column = max(map(len, rows)) + 4
    lines = [
        textwrap.fill(
            line,
            width,
            initial_indent=f"  {name}".ljust(column),
            subsequent_indent=" " * column,
        )
        for name, line in rows.items()
    ]
    return "\n".join([head, *lines])
