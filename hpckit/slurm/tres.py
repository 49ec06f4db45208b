"""Slurm's spellings of amounts: sizes, CPU times, and lists of trackable resources (TRES). Pure.

What is not a plain number is None: an amount that is not known must not become 0.
"""

import re

_SIZE = re.compile(r"(\d+(?:\.\d+)?)([KMGTPE]?)(?:i?B)?", re.ASCII)
_UNITS = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40, "P": 50, "E": 60}
_CLOCK = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+(?:\.\d+)?)", re.ASCII)
# NO_VAL64 and INFINITE64 of slurm.h, and what doubles make of them: never an amount.
_NO_VALUE = 1 << 63


def parse_size(text: str, *, unit: str = "") -> int | None:
    """Read `123456K`, `1.5G`, `0` in bytes; `unit` is that of a number without a letter."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        return None
    value = round(float(match[1]) * (1 << _UNITS[match[2] or unit]))
    return value if value < _NO_VALUE else None


def parse_count(text: str) -> int | None:
    """Read a whole number; Slurm's own marks for none are None."""
    word = text.strip()
    if not (word.isascii() and word.isdecimal()):
        return None
    value = int(word)
    return value if value < _NO_VALUE else None


def parse_cpu_s(text: str) -> float | None:
    """Read a CPU time, `D-HH:MM:SS`, `HH:MM:SS` or `MM:SS.mmm`, in seconds."""
    match = _CLOCK.fullmatch(text.strip())
    if match is None:
        return None
    days, hours, minutes, seconds = match.groups()
    value = int(days or 0) * 86400 + int(hours or 0) * 3600 + int(minutes) * 60 + float(seconds)
    return value if value < _NO_VALUE else None


def parse_tres(text: str) -> dict[str, str]:
    """Read `cpu=8,gres/gpu:a100=2,mem=64G`; what has no `=` is left out."""
    pairs = (part.partition("=") for part in text.strip().split(","))
    return {name.strip(): value.strip() for name, sign, value in pairs if sign and name.strip()}


def count_gpus(tres: dict[str, str]) -> int | None:
    """Return how many GPUs an allocation has: 0 if its list names none, None without a list.

    Slurm lists both `gres/gpu:a100=4` and `gres/gpu=4`: the plain one is the number, the typed
    ones only count where it is missing.
    """
    if "gres/gpu" in tres:
        return parse_count(tres["gres/gpu"])
    typed = [parse_count(tres[name]) for name in tres if name.startswith("gres/gpu:")]
    known = [count for count in typed if count is not None]
    if typed:
        return sum(known) if len(known) == len(typed) else None
    return 0 if tres else None


def gpu_type(tres: dict[str, str]) -> str | None:
    """Return the type of an allocation's GPUs; None if it has none, or several."""
    types = [name.removeprefix("gres/gpu:") for name in tres if name.startswith("gres/gpu:")]
    return types[0] if len(types) == 1 else None
