"""Text on terminals, and that of others made safe.

Names, errors, files: users, Slurm and colleagues write them, and a terminal takes escape sequences
in them for orders; characters that turn the direction of text make it read as something else.
"""

import os
import re
from collections.abc import Mapping, Sequence
from typing import TextIO

# Of the 16 that each terminal's user has chosen for their background.
COLOURS = {"red": "31", "green": "32", "yellow": "33", "bold": "1", "dim": "2"}
# Of Slurm's states, those to look at first on top; CANCELLED is mostly what the user asked for.
_STATES = {
    "red": "FAILED TIMEOUT OUT_OF_MEMORY NODE_FAIL BOOT_FAIL DEADLINE PREEMPTED",
    "green": "RUNNING COMPLETING CONFIGURING POWER_UP_NODE EXPEDITING RESIZING SIGNALING STAGE_OUT "
    "UPDATE_DB",
    "yellow": "PENDING REQUEUED REQUEUE_FED REQUEUE_HOLD RESV_DEL_HOLD SPECIAL_EXIT LAUNCH_FAILED "
    "RECONFIG_FAIL GETENV_FAILED SUSPENDED STOPPED UNKNOWN",
    "dim": "COMPLETED CANCELLED REVOKED",
}
BLOCKS = "▁▂▃▄▅▆▇█"
_ODD = r"[^\x20-\x7e\n\t]+"


def spelt(text: str) -> str:
    """Return text whose control and format characters are spelt out, line breaks and tabs aside."""
    return re.sub(_ODD, _spell, text)


def in_line(text: str) -> str:
    """Return text as one line: line breaks and tabs are spelt out too."""
    return spelt(text).replace("\n", "\\n").replace("\t", "\\t")


def csv_cell(text: str) -> str:
    """Return a name as a cell of CSV: one line, which no spreadsheet takes for a formula.

    Control characters are spelt out, because a pipe ends in a terminal as well (`| less`). For
    formulas see OWASP, CSV injection.
    """
    shown = in_line(text)
    return f"'{shown}" if shown[:1] in ("=", "+", "-", "@") and shown != "-" else shown


def cells(text: str) -> int:
    """Return how many columns of a terminal a text takes: of wide letters two, of accents none."""
    if text.isascii():
        return len(text)
    from unicodedata import category, east_asian_width  # noqa: PLC0415  # few names need it

    return sum(
        0 if category(letter) in ("Mn", "Me", "Cf") else 1 + (east_asian_width(letter) in "WF")
        for letter in text
    )


def padded(text: str, width: int) -> str:
    """Return a text with blanks up to so many columns of a terminal."""
    return text + " " * (width - cells(text))


def _spell(match: re.Match[str]) -> str:
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode()
        for letter in match[0]
    )


def counted(number: int, noun: str) -> str:
    """Return '1 rank' or '8 ranks'."""
    return f"{number} {plural(noun, number)}"


def plural(noun: str, number: int) -> str:
    """Return 'rank' for one and 'ranks' for any other number."""
    return noun if number == 1 else f"{noun}s"


def listed(words: Sequence[str], most: int = 16) -> str:
    """Join words; of very many only the first ones, and how many more there are."""
    more = f" and {len(words) - most} more" if len(words) > most else ""
    return ", ".join(words[:most]) + more


def by_number(name: str) -> str:
    """Return the key by which names are in the order that people count them in: n2 before n10."""
    return re.sub(r"\d+", lambda found: found[0].zfill(20), name)


def as_python(value: object) -> str:
    """Return a value as Python writes it, in one line, as no array of numpy's is.

    Python itself refuses numbers of over 4300 digits.
    """
    try:
        return " ".join(line.strip() for line in repr(value).splitlines())
    except ValueError:
        return "a number of many digits"


def plain(value: object) -> str:
    """Return a value of Python's as it is typed in a shell."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def cut(text: str, width: int, mark: str = "…") -> str:
    """Return a text in so many columns of a terminal; the mark at its end says it was longer."""
    # No letter takes more than two columns, so most of a long text need not be looked at.
    if len(text) <= 2 * width and cells(text) <= width:
        return text
    kept = text[: max(width - 1, 0)]
    while cells(kept) > max(width - 1, 0):
        kept = kept[:-1]
    return kept + mark


def settings_text(values: Mapping[str, str], most: int | None = None) -> str:
    """Return parameters on one line, as `lr=0.1, seed=2`, in at most so many columns."""
    text = ", ".join(f"{key}={value}" for key, value in values.items())
    return cut(in_line(text), most) if most else in_line(text)


def simulated(gpus: int, device: str | None, words: str = "simulated on CPUs") -> str:
    """Return what to say behind a number of GPUs that a run asked for where there are too few.

    Its ranks then run on the CPU, each as if it had its GPU. `device` is that of the run's plan.
    """
    return f" ({words})" if gpus and device == "cpu" else ""


def state_colour(text: str) -> str | None:
    """Return the colour of a job's state, or of counts of several: of the one to look at first."""
    words = {*text.replace(",", " ").split()}
    return next((colour for colour, states in _STATES.items() if words & {*states.split()}), None)


def columns_of(stream: TextIO, environ: Mapping[str, str] = os.environ) -> int | None:
    """Return the columns there are; None: as many as it takes, for files and programs."""
    asked = environ.get("COLUMNS", "")
    if asked.isdecimal() and int(asked):
        return int(asked)
    if not stream.isatty():
        return None
    import shutil  # noqa: PLC0415  # it knows much of archives, too

    return shutil.get_terminal_size().columns


def shows_colours(stream: TextIO, environ: Mapping[str, str] = os.environ) -> bool:
    """Say whether a stream is a terminal that shows colours, and the user wants them (NO_COLOR)."""
    return stream.isatty() and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"


def shows_blocks(stream: TextIO) -> bool:
    """Say whether a stream's encoding has BLOCKS."""
    try:
        BLOCKS.encode(stream.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True
