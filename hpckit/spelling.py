"""Text of others, so that a terminal shows it and does not obey it: the one way of spelling it out.

Names, errors, files: users, Slurm and colleagues write them, and a terminal takes escape sequences
in them for orders; characters that turn the direction of text make it read as something else.
"""

import re

_ODD = re.compile(r"[^\x20-\x7e\n\t]+")


def spelt(text: str) -> str:
    """Return text whose control and format characters are spelt out, line breaks and tabs aside."""
    return _ODD.sub(_spell, text)


def in_line(text: str) -> str:
    """Return text as one line: line breaks and tabs are spelt out too."""
    return spelt(text).replace("\n", "\\n").replace("\t", "\\t")


def _spell(match: re.Match[str]) -> str:
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode()
        for letter in match[0]
    )
