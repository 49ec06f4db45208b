"""How values are written in a report's template, by the name of the file that it makes.

Names of jobs and users are other people's text: each kind of file has characters that it would take
for more than that.
"""

import html
import json
import re
import time
from collections.abc import Callable, Mapping
from pathlib import PurePosixPath
from typing import Any

from hpckit.collections import Found
from hpckit.errors import TemplateError
from hpckit.text import cells, csv_cell, cut, in_line, padded
from hpckit.units import format_bytes, format_seconds

Writer = Callable[[Any], str]
UNKNOWN = "-"
_WIDEST = 999
_MARKDOWN = r"\`*_{}[]<>()#|!~&$^"
# The characters that TeX takes for orders: lshort, "Special Characters".
_TEX = {letter: f"\\{letter}" for letter in "{}$&#_%"} | {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}",
    # After the end of a row, `\\`, these are its argument.
    "[": "{[}", "]": "{]}", "*": "{*}",
}  # fmt: skip


def markdown(text: str) -> str:
    """Return text that Markdown, and HTML in it, take as it is inside a line."""
    return "".join(f"\\{letter}" if letter in _MARKDOWN else letter for letter in text)


def _markdown_line(text: str) -> str:
    """Return the same of text that may begin a line: `- x`, `1. x` and `===` are no text there."""
    shown = markdown(in_line(text))
    return re.sub(r"^(\s*)(?=[-+](?:[\s-]|$)|=+$)|^(\s*\d+)(?=\.(?:\s|$))", r"\1\2\\", shown)


def tex(text: str) -> str:
    """Return text that TeX takes as it is."""
    return "".join(_TEX.get(letter, letter) for letter in text)


def _csv(text: str) -> str:
    doubled = csv_cell(text).replace('"', '""')
    return f'"{doubled}"'


def _plain(value: Any) -> str:  # noqa: ANN401
    """Return a value as text that no kind of file has escaped yet."""
    if value is None:
        return UNKNOWN
    if isinstance(value, list | tuple):
        return ", ".join(map(_plain, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str | int | float):
        return str(value)
    raise ValueError(f"a value of type {type(value).__name__} cannot be printed")


def _writer(escape: Callable[[str], str], unknown: str = UNKNOWN) -> Writer:
    """Return what writes numbers as they are, text escaped, and one word for what is not known."""

    def write(value: Any) -> str:  # noqa: ANN401
        if value is None:
            return unknown
        text = _plain(value)  # of a list as a whole: in CSV it is one cell
        return escape(text) if isinstance(value, str | list | tuple) else text

    return write


def _json(value: Any) -> str:  # noqa: ANN401
    return json.dumps(value, allow_nan=False)


_HTML = _writer(lambda text: html.escape(in_line(text)))
_TEXT = _writer(in_line)
# By the last part of the template's name before `.j2`.
WRITERS: Mapping[str, Writer] = {
    "": _TEXT,
    "txt": _TEXT,
    "md": _writer(_markdown_line, unknown="\N{EN DASH}"),  # `- GPUs` would be a list
    "html": _HTML,
    "xml": _HTML,
    "tex": _writer(lambda text: tex(in_line(text))),
    "csv": _writer(_csv, unknown=""),
    "json": _json,
}


def writer_of(found: Found) -> Writer:
    """Return what writes the values of a template: `report/mail.txt.j2` makes plain text.

    Raises:
        TemplateError: for such files there is none.
    """
    made = PurePosixPath(found.name.removesuffix(".j2"))
    suffix = made.suffix.removeprefix(".").lower()
    if suffix not in WRITERS:
        known = ", ".join(f".{word}" for word in WRITERS if word)
        raise TemplateError(
            f"makes a {made.suffix} file, and how names are written safely in one is not known "
            f"here. Known are {known}; rename it, as to {made.with_suffix('')}.txt.j2.",
            at=found.path,
        )
    return WRITERS[suffix]


def _of_known(write: Callable[..., str]) -> Callable[..., str | None]:
    """Let a filter pass over what is not known, which each kind of file writes in its own way."""

    def filtered(value: Any, *args: Any, **named: Any) -> str | None:  # noqa: ANN401
        return None if value is None else write(value, *args, **named)

    return filtered


def format_hours(value: float) -> str:
    """Write a number of hours for people: `1,234`, `12.3`, `0.0417`."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 1 else f"{value:.3g}"


def _number(value: float, digits: int = 0) -> str:
    return f"{value:,.{min(max(digits, 0), 9)}f}"


def _moment(value: float) -> str:
    try:
        return time.strftime("%Y-%m-%d %H:%M", time.localtime(value))
    except (OSError, OverflowError) as error:  # the C library's, whose years have an end
        raise ValueError(f"{value} is not a moment in epoch seconds") from error


def _left(value: Any, width: int) -> str:  # noqa: ANN401
    """Fill a column of text; a blank parts it from the next one, whatever the text's length."""
    wide = min(max(width, 2), _WIDEST)
    return padded(cut(_TEXT(value), wide - 1), wide)


def _right(value: Any, width: int) -> str:  # noqa: ANN401
    """Fill a column of numbers, none of which may lose a digit."""
    text = _TEXT(value)
    return " " * (min(width, _WIDEST) - cells(text)) + text


# What Jinja's own do not have: figures as hpckit's pages write them, and columns of plain text.
FILTERS: Mapping[str, Callable[..., Any]] = {
    "hours": _of_known(format_hours),
    "percent": _of_known(lambda value: f"{value:.0f} %"),
    "number": _of_known(_number),
    "duration": _of_known(format_seconds),
    "bytes": _of_known(format_bytes),
    "day": _of_known(lambda value: _moment(value)[:10]),
    "moment": _of_known(_moment),
    "left": _left,
    "right": _right,
}
