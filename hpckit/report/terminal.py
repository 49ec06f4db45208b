"""How figures read on a terminal: bars, lines of blocks, sizes, colours."""

import os
import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import TextIO

from hpckit.frozen import frozen
from hpckit.text import BLOCKS, COLOURS, columns_of, in_line, shows_blocks, shows_colours
from hpckit.units import format_seconds

# The columns of a page. In fewer, figures would part from their heads.
WIDEST, _NARROWEST = 80, 60
_PLAIN_BLOCKS = "_.:-=+*#"
# A colour in a line being made has a mark that no name can hold: `readable` takes it out.
_MARK = f"\x1b{os.urandom(4).hex()}"
_PAINTED = re.compile(rf"{_MARK}(\[\d+m)")
# In a text to fold, a space that stays: textwrap breaks lines only at ASCII's white space.
_NO_BREAK = "\0"


@frozen(kw_only=True)
class Style:
    """What a terminal can show.

    Attributes:
        colour: whether escape sequences may be written.
        unicode: whether the stream's encoding has block elements.
        width: the columns of a page.
    """

    colour: bool = False
    unicode: bool = True
    width: int = WIDEST

    def paint(self, text: str, *names: str) -> str:
        """Return text in a colour, or as it is."""
        if not self.colour or not text:
            return text
        return "".join(f"{_MARK}[{COLOURS[name]}m" for name in names) + text + f"{_MARK}[0m"


def style_of(stream: TextIO, environ: Mapping[str, str] = os.environ) -> Style:
    """Return what a stream can show: no colour when piped, with NO_COLOR, or on a dumb terminal.

    A page is as wide as the stream, from 60 to 80 columns; 80 where nothing says how wide that is.
    """
    return Style(
        colour=shows_colours(stream, environ),
        unicode=shows_blocks(stream),
        width=min(max(columns_of(stream, environ) or WIDEST, _NARROWEST), WIDEST),
    )


def readable(line: str) -> str:
    """Return a line with control characters spelt out, all but the colours of `Style.paint`."""
    texts, colours = _PAINTED.split(line)[::2], [f"\x1b{code}" for code in _PAINTED.findall(line)]
    return "".join(map("".join, zip(map(in_line, texts), [*colours, ""], strict=True)))


def bar(percent: float | None, width: int, style: Style) -> str:
    """Return a bar in brackets; a question mark where nothing is known."""
    if percent is None:
        return f"[{'?':^{width}}]"
    filled = min(max(round(percent / 100 * width), 0), width)
    return f"[{('█' if style.unicode else '|') * filled}{' ' * (width - filled)}]"


def blocks(values: Sequence[float | None], width: int, style: Style) -> str:
    """Return percents as one line of blocks; `·` where nothing is known.

    Columns that hold several values show their mean; fewer values than columns are stretched.
    """
    if not values:
        return ""
    marks = BLOCKS if style.unicode else _PLAIN_BLOCKS
    unknown = "·" if style.unicode else "?"
    line = []
    for column in range(width):
        first = column * len(values) // width
        last = max((column + 1) * len(values) // width, first + 1)
        known = [value for value in values[first:last] if value is not None]
        if not known:
            line.append(unknown)
            continue
        mean = sum(known) / len(known)
        line.append(" " if mean < 1 else marks[min(int(mean / 100 * 8), 7)])
    return "".join(line)


def percent(value: float | None) -> str:
    """Return `63 %`, `0.4 %`, or `?`."""
    if value is None:
        return "?"
    return f"{value:.1f} %" if 0 < value < 1 else f"{value:.0f} %"


def size(value: float | None) -> str:
    """Return bytes in GiB, or MiB below one."""
    if value is None:
        return "?"
    gib = value / (1 << 30)
    if gib >= 100:
        return f"{gib:.0f} GiB"
    return f"{gib:.1f} GiB" if gib >= 1 else f"{value / (1 << 20):.0f} MiB"


def hours(value: float | None) -> str:
    """Return GPU-hours: more digits for less."""
    if value is None:
        return "?"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 1 else f"{value:.2g}"


def energy(joules: float | None) -> str:
    """Return joules in kWh, or Wh."""
    if joules is None:
        return "?"
    return _thousands(joules / 3.6e6, "kWh", "Wh")


def mass(kg: float) -> str:
    """Return kilograms in kg, or g."""
    return _thousands(kg, "kg", "g")


def _thousands(value: float, unit: str, smaller: str) -> str:
    """Return a value in its unit, or what is less than one in one a thousand times smaller."""
    return f"{value:,.1f} {unit}" if value >= 0.9995 else f"{value * 1000:.3g} {smaller}"


def duration(seconds: float | None) -> str:
    """Return a duration for people."""
    return "?" if seconds is None else format_seconds(seconds)


_UNITS = {"watts": "W", "joules": "J", "c": "°C", "s": "s", "mhz": "MHz"}


def with_unit(name: str, value: float) -> str:
    """Return a figure as its name's ending says: `71 °C`, `4.0 GiB`, `63 %`."""
    unit = name.rpartition("_")[2]
    if unit in ("percent", "bytes"):
        return percent(value) if unit == "percent" else size(value)
    return f"{value:.4g} {_UNITS.get(unit, '')}".rstrip()


def fold(text: str, width: int, first: str, rest: str) -> list[str]:
    """Break text into lines of at most `width`, with what they begin with.

    A command, between backticks, stays whole, so that it can be copied.
    """
    whole = re.sub("`[^`]*`", lambda found: found[0].replace(" ", _NO_BREAK), text)
    lines = textwrap.wrap(
        whole,
        width=width,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace(_NO_BREAK, " ") for line in lines]
