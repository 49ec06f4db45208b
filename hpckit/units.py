"""Durations, moments, sizes and numbers as people and Slurm write them: read, and written."""

import contextlib
import re
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from hpckit.errors import RequestError

if TYPE_CHECKING:
    from datetime import date, timedelta

_LETTERS = r"(?ai)(?:(\d{1,9})d)?(?:(\d{1,9})h)?(?:(\d{1,9})m(?:in)?)?(?:(\d{1,9})s)?"
_WEEKS = r"(?ai)(\d{1,6})w"
_MONTH = r"(?a)\d{4}-\d\d"
# What users type has at most nine digits.
_LONG = r"(?a)\d{10}"
_DURATION = r"(?a)(?:(?P<days>\d{1,9})-)?(?P<clock>\d{1,12}(?::\d{1,12}){0,2})(?:\.\d+)?"
_SIZE = r"(?ai)(\d{1,12}(?:\.\d{1,6})?) ?([KMGT]?)(?:i?B)?"
_DIGITS = r"0*([0-9]{1,19})"
# Slurm and Linux count in 63 bits at most.
_MOST = 2**63 - 1
# The end of the year 9999, the last that calendars write.
_LAST_S = 253402300799
_NO_VAL = (1 << 32) - 2
_SHORT_S = 2 * 86400
_SECONDS_OF = {  # keyed by (days given, number of parts), as in sbatch(1), --time
    (False, 1): (60,),
    (False, 2): (60, 1),
    (False, 3): (3600, 60, 1),
    (True, 1): (3600,),
    (True, 2): (3600, 60),
    (True, 3): (3600, 60, 1),
}


def parse_minutes(text: str | int) -> int:
    """Return whole minutes, rounded up, of `90`, `1h30m`, `HH:MM:SS`, `MM:SS`, `D-HH[:MM[:SS]]`.

    The colon forms mean what Slurm's sbatch manual says: two parts are minutes and seconds, after
    `D-` the first part is hours. A bare number is minutes. Integer minutes because submitit's
    time-out handler cannot compare a string.

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


def parse_past(text: "str | float | date | timedelta", now: float, option: str = "since") -> float:
    """Read an age (`12h`, `30d`, `4w`, any duration) or a day (`2026-11-01`) as epoch seconds.

    A day begins at midnight of this machine's time; `2026-11-01T08:30`, also with seconds, is a
    time of it, as Slurm writes them, and so is a datetime without a time zone. A timedelta is an
    age, a date is a day. A number is epoch seconds already. `option` is what an error calls it.

    Raises:
        RequestError: the text is neither, or the timedelta is negative.
    """
    if not isinstance(text, str | int | float):
        return _of_python(text, now, option)
    if isinstance(text, int | float) and not isinstance(text, bool) and abs(text) <= _LAST_S:
        return float(text)
    word = text.strip() if isinstance(text, str) and text.isascii() else ""
    if match := re.fullmatch(_WEEKS, word):
        return max(now - int(match[1]) * 7 * 86400, 0.0)
    # A bare number may mean days as well as minutes, and `2026-11` a month as well as 2026 days.
    if not re.fullmatch(_MONTH, word) and not word.isdecimal() and (seconds := _seconds(word)):
        return max(now - seconds, 0.0)
    for format_ in ("%Y-%m-%d", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S"):
        with contextlib.suppress(ValueError, OverflowError):
            return time.mktime(time.strptime(word, format_))
    raise _not_past(text, option)


def _of_python(value: "date | timedelta", now: float, option: str) -> float:
    from datetime import date, datetime, timedelta  # noqa: PLC0415  # no command is given one

    if isinstance(value, timedelta) and value >= timedelta():
        return max(now - value.total_seconds(), 0.0)
    with contextlib.suppress(ValueError, OverflowError, OSError):  # near the years 1 and 9999
        if isinstance(value, datetime):
            return value.timestamp()
        if isinstance(value, date):
            return time.mktime(value.timetuple())
    raise _not_past(value, option)


def _not_past(value: object, option: str) -> RequestError:
    # Python itself refuses to write numbers of over 4300 digits.
    long = isinstance(value, int) and abs(value) > _MOST
    said = "of many digits" if long else repr(value)
    return RequestError(
        f"{option} {said} is neither an age (12h, 30d, 4w) nor a day (2026-11-01, "
        "2026-11-01T08:30)."
    )


def parse_seconds(text: str) -> int | None:
    """Read any duration that users write, in seconds; a bare number is minutes. Else None."""
    return _seconds(text.strip())


def _seconds(word: str) -> int | None:
    if re.search(_LONG, word):
        return None
    if word and (match := re.fullmatch(_LETTERS, word)):
        days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
        return ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    return None if "." in word else parse_duration_s(word)


def parse_duration_s(text: str) -> int | None:
    """Read `MM`, `MM:SS`, `HH:MM:SS`, `D-HH`, `D-HH:MM` or `D-HH:MM:SS`, in seconds.

    None for a word: UNLIMITED, INFINITE, NOT_SET, INVALID, Partition_Limit, NONE.
    """
    match = re.fullmatch(_DURATION, text.strip())
    if match is None:
        return None
    parts = [int(part) for part in match["clock"].split(":")]
    units = _SECONDS_OF[match["days"] is not None, len(parts)]
    return int(match["days"] or 0) * 86400 + sum(
        part * unit for part, unit in zip(parts, units, strict=True)
    )


def parse_limit_min(text: str) -> int | None:
    """Read a time limit in minutes, rounded up as Slurm does; None for no limit or an unknown."""
    seconds = parse_duration_s(text)
    return None if seconds is None else -(-seconds // 60)


def parse_moment(text: str) -> float | None:
    """Read a moment as epoch seconds; None for N/A, Unknown, None or a moment not known yet.

    Besides epoch seconds it reads Slurm's standard form, `2026-11-21T03:40:12`, which is in the
    cluster's local time and is taken as this machine's.
    """
    word = text.strip()
    if word.isdecimal():
        # From NO_VAL of slurm.h on (the year 2106) they are Slurm's marks for none, or damage.
        return float(word) or None if len(word) <= 10 and int(word) < _NO_VAL else None
    try:
        return time.mktime(time.strptime(word, "%Y-%m-%dT%H:%M:%S"))
    except (ValueError, OverflowError):
        return None


def parse_bytes(text: str | int) -> int:
    """Read a size as bytes: `500M`, `10GB`, `1.5 TiB`; as Slurm does, in steps of 1024.

    Raises:
        RequestError: it is none.
    """
    match = re.fullmatch(_SIZE, str(text).strip())
    if match is None:
        raise RequestError(f"Size {str(text)!r} is not one: write 500M, 10G or 1.5T.")
    return int(float(match[1]) * 1024 ** " KMGT".index(match[2].upper() or " "))


def format_bytes(size: float) -> str:
    """Write a size for people: `512 B`, `4.0 KiB`, `12 GiB`; in steps of 1024."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1000:
            return f"{size:.1f} {unit}" if size < 10 and unit != "B" else f"{size:.0f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def format_minutes(minutes: int) -> str:
    """Write minutes as Slurm does: `HH:MM:SS`, or `D-HH:MM:SS` from one day on."""
    days, rest = divmod(minutes, 24 * 60)
    clock = f"{rest // 60:02d}:{rest % 60:02d}:00"
    return f"{days}-{clock}" if days else clock


def format_period(since: float, until: float) -> str:
    """Write a time between two moments (epoch seconds): its days, of a short one the hours too."""
    form = "%Y-%m-%d %H:%M" if until - since < _SHORT_S else "%Y-%m-%d"
    begin, end = (time.strftime(form, time.localtime(at)) for at in (since, until))
    return f"{begin} to {end}"


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


def number_ranges(text: str, most: int) -> Iterator[int]:
    """Yield the numbers that Slurm wrote as `0-2,5`; what is neither number nor range is left out.

    Of a range no more than `most` after its first, whatever it says.
    """
    for word in text.split(","):
        first, _, last = word.partition("-")
        if first.isdecimal() and (last or first).isdecimal():
            yield from range(int(first), min(int(last or first), int(first) + most) + 1)


def is_ascii_number(text: str) -> bool:
    """Say whether Python reads a number as people do: no `1_0`, and no other alphabet's digits.

    Whether it is a number is for int() or float() to say.
    """
    return text.isascii() and "_" not in text


def whole_number(text: str, most: int = _MOST) -> int | None:
    """Read a text of nothing but digits; None for one that is not, or is above `most`.

    Python's int() takes signs, spaces, `_` and every alphabet's digits, and raises over 4,300.
    """
    match = re.fullmatch(_DIGITS, text)
    number = int(match[1]) if match else most + 1
    return number if number <= most else None
