"""Printing: results to stdout, everything else to stderr. Nothing outside cli/ prints."""

import json
import sys
from collections.abc import Sequence


def print_json(value: object) -> None:
    """Print one JSON document."""
    print(json.dumps(value, indent=2))


def note(text: str) -> None:
    """Say something to the person, not to the pipe."""
    print(text, file=sys.stderr)


def table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return aligned columns; absent values show as `-`."""
    cells = [
        list(heads),
        *([("-" if cell in (None, "") else str(cell)) for cell in row] for row in rows),
    ]
    widths = [max(len(row[column]) for row in cells) for column in range(len(heads))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        for row in cells
    ]
    return "\n".join(line.rstrip() for line in lines)
