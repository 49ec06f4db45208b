"""Slurm's spellings of amounts: sizes, CPU times, and lists of trackable resources (TRES). Pure.

What is not a plain number is None: an amount that is not known must not become 0.
"""

import math
import re

# No amount has more than 20 digits; Python refuses to read thousands of them.
_SIZE = re.compile(r"(\d{1,20}(?:\.\d{1,20})?)([KMGTPE]?)(?:i?B)?", re.ASCII)
_COUNT = re.compile(r"\d{1,20}", re.ASCII)
_UNITS = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40, "P": 50, "E": 60}
_CLOCK = re.compile(
    r"(?:(\d{1,20})-)?(?:(\d{1,20}):)?(\d{1,20}):(\d{1,20}(?:\.\d{1,20})?)", re.ASCII
)
# NO_VAL64 and INFINITE64 of slurm.h, and what doubles or sums make of them: never an amount.
_NO_VALUE = 1 << 63
# NO_VAL of slurm.h, the first of its marks of 32 bits: never how many there are of something.
_NO_COUNT = (1 << 32) - 2


def parse_size(text: str, *, unit: str = "") -> int | None:
    """Read `123456K`, `1.5G`, `0` in bytes; `unit` is that of a number without a letter."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        return None
    # Rounded up: what is more than nothing is never 0.
    value = math.ceil(float(match[1]) * (1 << _UNITS[match[2] or unit]))
    return value if value < _NO_VALUE else None


def parse_count(text: str) -> int | None:
    """Read a whole number; Slurm's own marks for none are None."""
    match = _COUNT.fullmatch(text.strip())
    value = int(match[0]) if match else _NO_COUNT
    return value if value < _NO_COUNT else None


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
    """Return how many GPUs an allocation has: 0 if its list names none, None without a whole list.

    Each list has `cpu` or `node`: one that has only `billing`, say, was cut short.

    Slurm lists both `gres/gpu:a100=4` and `gres/gpu=4`: the plain one is the number, the typed
    ones only count where it is missing. Of how many GPUs its shards are, no list says.
    """
    if "gres/gpu" in tres:
        return parse_count(tres["gres/gpu"])
    if any(name.startswith(("gres/shard", "gres/mps")) for name in tres):
        return None
    typed = [parse_count(tres[name]) for name in tres if name.startswith("gres/gpu:")]
    known = [count for count in typed if count is not None]
    if typed:
        return sum(known) if len(known) == len(typed) else None
    return None if tres.keys().isdisjoint({"cpu", "node"}) else 0


def gpu_type(tres: dict[str, str]) -> str | None:
    """Return the type of an allocation's GPUs; None if it has none, or several."""
    types = [
        name.removeprefix("gres/gpu:")
        for name in tres
        if name.startswith("gres/gpu:") and parse_count(tres[name]) != 0
    ]
    return types[0] if len(types) == 1 else None
