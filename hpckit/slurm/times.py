"""Slurm's spellings of durations and moments, as numbers with a unit."""

import re
import time

_DURATION = re.compile(r"(?:(?P<days>\d{1,9})-)?(?P<clock>\d{1,12}(?::\d{1,12}){0,2})(?:\.\d+)?")
_NO_VAL = (1 << 32) - 2
_SECONDS_OF = {  # keyed by (days given, number of parts), as in sbatch(1), --time
    (False, 1): (60,),
    (False, 2): (60, 1),
    (False, 3): (3600, 60, 1),
    (True, 1): (3600,),
    (True, 2): (3600, 60),
    (True, 3): (3600, 60, 1),
}


def parse_duration_s(text: str) -> int | None:
    """Read `MM`, `MM:SS`, `HH:MM:SS`, `D-HH`, `D-HH:MM` or `D-HH:MM:SS`, in seconds.

    None for a word: UNLIMITED, INFINITE, NOT_SET, INVALID, Partition_Limit, NONE.
    """
    match = _DURATION.fullmatch(text.strip())
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
