"""Millions of samples in a few operations on bytes and long integers.

Which of them lie below a threshold is told by bytes of 0 and 1.
"""

import functools
import re
import sys
from array import array
from collections.abc import Sequence
from itertools import compress

from hpckit.stats.samples.packing import Column

_RUNS = re.compile(rb"\x01+")


def below(values: "array[int]", threshold: int) -> bytes:
    """Return 1 for each of 16-bit values below a threshold (1 to 65535), else 0.

    As two tables over bytes and two operations on long integers; an unknown value, all bits set,
    is never below.
    """
    if not values:
        return b""
    raw = values.tobytes()
    low, high = (raw[0::2], raw[1::2]) if sys.byteorder == "little" else (raw[1::2], raw[0::2])
    top, rest = divmod(threshold, 256)
    less = _number(high.translate(_less(top)))
    equal = _number(high.translate(_equal(top)))
    under = _number(low.translate(_less(rest)))
    return (less | equal & under).to_bytes(len(values), "big")


# A thousand files of a few samples each would spend their time on making tables.
@functools.cache
def _less(limit: int) -> bytes:
    return bytes(part < limit for part in range(256))


@functools.cache
def _equal(value: int) -> bytes:
    return bytes(part == value for part in range(256))


def add_all(values: "array[int]") -> int:
    """Return the sum of unsigned integers; of 16-bit ones as lanes of one long integer.

    First two lanes become one of 32 bits, which no sum of 65,536 values can leave; then the halves
    of the integer are added until one lane is left.
    """
    lanes = len(values)
    if values.typecode != "H" or not 64 <= lanes <= 65_536:
        return sum(values)
    number = int.from_bytes(values.tobytes(), sys.byteorder)
    size = 1 << (lanes - 1).bit_length()
    number = (number & _every_other(size)) + (number >> 16 & _every_other(size))
    bits = size * 16
    while bits > 32:
        bits //= 2
        number = (number >> bits) + (number & ((1 << bits) - 1))
    return number


@functools.cache
def _every_other(lanes: int) -> int:
    return int.from_bytes(b"\xff\xff\x00\x00" * (lanes // 2), "little")


def known_flags(columns: Sequence[Column], count: int) -> bytes | None:
    """Return 1 where any of some columns is known; None if that is so everywhere."""
    if not columns:
        return bytes(count)
    found = 0
    for column in columns:
        if column.known is None:
            return None
        found |= _number(column.known)
    return found.to_bytes(count, "big")


def both(one: bytes, other: bytes) -> bytes:
    """Return 1 where both are."""
    return (_number(one) & _number(other)).to_bytes(len(one), "big")


def minus(one: bytes, other: bytes) -> bytes:
    """Return 1 where the first is and the second is not."""
    return (_number(one) & ~_number(other)).to_bytes(len(one), "big")


def weigh(flags: bytes, weights: Sequence[int]) -> int:
    """Return the sum of the weights where the flag is 1."""
    if 1 not in flags:
        return 0
    return sum(compress(weights, flags))


def runs(flags: bytes) -> list[tuple[int, int]]:
    """Return the beginning and the end (exclusive) of each run of 1."""
    return [match.span() for match in _RUNS.finditer(flags)]


def longest_run(flags: bytes) -> tuple[int, int]:
    """Return the beginning and the end of the longest run of 1; (0, 0) if there is none."""
    longest = max(_RUNS.findall(flags), key=len, default=b"")
    first = flags.find(longest) if longest else 0
    return first, first + len(longest)


def _number(flags: bytes) -> int:
    return int.from_bytes(flags, "big")
