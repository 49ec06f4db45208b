"""What nvidia-smi says, as numbers: `--query-gpu` and `dmon`. Parsers are pure."""

import re
import statistics
from collections.abc import Sequence

# What it writes where a board has no such reading.
_NONE = ("[N/A]", "N/A", "-", "[Not Supported]", "Not Supported", "[Unknown Error]", "")


def number_of(word: str) -> float | None:
    """Return a cell's number, without its unit; None where there is none."""
    text = word.strip()
    if text in _NONE or text.startswith("["):
        return None
    try:
        return float(text.split()[0])
    except ValueError:
        return None


def unknown_field(text: str) -> str | None:
    """Return the field of `--query-gpu` that this nvidia-smi does not know, if it says so."""
    found = re.search(r'Field "([\w.]+)" is not a valid field to query', text)
    return found[1] if found else None


def read_query(text: str, names: Sequence[str]) -> list[dict[str, float | None]]:
    """Read the lines of `--format=csv,noheader,nounits`, each with the names that were asked for.

    A torn line, as the last one of a program that was ended, is left out.
    """
    rows = [line.split(",") for line in text.splitlines() if line.strip()]
    return [
        {name: number_of(cell) for name, cell in zip(names, row, strict=True)}
        for row in rows
        if len(row) == len(names)
    ]


def read_dmon(text: str, gpu: int) -> list[dict[str, float | None]]:
    """Read the lines of one GPU, each with the names that the table's first line has."""
    names: list[str] = []
    found = []
    for line in text.splitlines():
        words = line.split()
        if words[:2] == ["#", "gpu"]:
            names = words[1:]
        elif names and len(words) == len(names) and words[0] == str(gpu):
            found.append({name: number_of(word) for name, word in zip(names, words, strict=True)})
    return found


def mean_of(rows: Sequence[dict[str, float | None]], name: str) -> float | None:
    """Return the mean of a column; None where no line knows it."""
    known = [value for row in rows if (value := row.get(name)) is not None]
    return statistics.fmean(known) if known else None
