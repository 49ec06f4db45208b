"""Printing: results to stdout, everything else to stderr. Nothing outside cli/ prints."""

import json
import sys
from collections.abc import Sequence


def print_json(value: object) -> None:
    """Print one JSON document."""
    print(json.dumps(value, indent=2))


def note(text: str) -> None:
    """Say something to the person, not to the pipe."""
    print(spelt(text), file=sys.stderr)


def say(text: str) -> None:
    """Print a result for people."""
    print(spelt(text), flush=True)


def show_text(text: str) -> None:
    """Print a file's own text: as it is into a pipe, spelt out for a terminal."""
    print(spelt(text) if sys.stdout.isatty() else text, end="")


def spelt(text: str) -> str:
    """Return text whose control characters are spelt out, line breaks and tabs aside.

    Names and errors are what users, Slurm and other people's files say: a terminal would obey
    escape sequences in them.
    """
    if text.isprintable():
        return text
    return "".join(
        letter
        if letter.isprintable() or letter in "\n\t"
        else letter.encode("unicode_escape").decode()
        for letter in text
    )


def table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return aligned columns; absent values show as `-`."""
    cells = [
        list(heads),
        *([("-" if cell in (None, "") else _in_line(str(cell))) for cell in row] for row in rows),
    ]
    widths = [max(len(row[column]) for row in cells) for column in range(len(heads))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        for row in cells
    ]
    return "\n".join(line.rstrip() for line in lines)


def _in_line(text: str) -> str:
    return spelt(text).replace("\n", "\\n").replace("\t", "\\t")
