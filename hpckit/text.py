"""Text of others made safe for a terminal; durations as users and Slurm write them.

Names, errors, files: users, Slurm and colleagues write them, and a terminal takes escape sequences
in them for orders; characters that turn the direction of text make it read as something else.
"""

import re

from hpckit.errors import RequestError

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


_LETTERS = re.compile(
    r"(?:(\d{1,9})d)?(?:(\d{1,9})h)?(?:(\d{1,9})m(?:in)?)?(?:(\d{1,9})s)?", re.IGNORECASE
)
_SLURM = re.compile(r"(?:(?P<days>\d{1,9})-)?(?P<clock>\d{1,9}(?::\d{1,9}){0,2})")


def parse_minutes(text: str | int) -> int:
    """Return whole minutes, rounded up, of `90`, `1h30m`, `HH:MM:SS`, `MM:SS`, `D-HH[:MM[:SS]]`.

    The colon forms mean what Slurm's sbatch manual says: two parts are minutes and seconds, after
    `D-` the first part is hours. A bare number is minutes. Integer minutes because submitit's
    time-out handler cannot compare a string (facts/launching.md 4.5).

    Raises:
        RequestError: the text is no duration, or is zero.
    """
    word = str(text).strip()
    seconds = _seconds(word)
    if not seconds:
        raise RequestError(
            f"Time {word!r} is not a duration: write minutes (90), 1h30m, HH:MM:SS or D-HH:MM:SS."
        )
    return -(-seconds // 60)


def _seconds(word: str) -> int | None:
    if match := _SLURM.fullmatch(word):
        parts = [int(part) for part in match["clock"].split(":")]
        if match["days"] is not None:
            hours, minutes, seconds = [*parts, 0, 0][:3]
            return ((int(match["days"]) * 24 + hours) * 60 + minutes) * 60 + seconds
        if len(parts) == 1:
            return parts[0] * 60
        hours, minutes, seconds = parts if len(parts) == 3 else [0, *parts]
        return (hours * 60 + minutes) * 60 + seconds
    if word and (match := _LETTERS.fullmatch(word)):
        days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
        return ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    return None


def format_minutes(minutes: int) -> str:
    """Write minutes as Slurm does: `HH:MM:SS`, or `D-HH:MM:SS` from one day on."""
    days, rest = divmod(minutes, 24 * 60)
    clock = f"{rest // 60:02d}:{rest % 60:02d}:00"
    return f"{days}-{clock}" if days else clock


def format_seconds(seconds: float) -> str:
    """Write a duration for people: `42 s`, `3 min 05 s`, `2 h 07 min`, `3 d 04 h`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 86400} d {whole % 86400 // 3600:02d} h"
