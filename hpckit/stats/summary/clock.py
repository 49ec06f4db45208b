"""How much time each sample stands for, the bins of time in which sums are taken, and flags.

Millions of samples are weighed in a few operations on bytes and long integers: which of them lie
below a threshold is told by bytes of 0 and 1.
"""

import functools
import math
import re
import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import accumulate, compress, pairwise
from operator import itemgetter, mul, or_, sub
from typing import NamedTuple

from hpckit.frozen import frozen
from hpckit.stats.samples.columns import Columns
from hpckit.stats.samples.packing import Column
from hpckit.stats.summary.coverage import Interval

if sys.version_info >= (3, 12):
    from math import sumprod  # of integers exact, in half the time
else:

    def sumprod(one: Iterable[int], other: Iterable[int], /) -> int:
        """Return the sum of products."""
        return sum(map(mul, one, other))


# A sample stands for the time since the one before, but not for a hole: at most three periods, and
# never less than 15 s, which a busy node may make of a second.
_PERIODS, _AT_LEAST_US = 3, 15_000_000
# In a bin whose samples are this even, the plain mean stands for the weighted one: it could differ
# by as much only if a GPU's use followed the sampler's jitter; in fact it does by some millionths.
_EVEN = 0.01
# Each wide enough that a page or a picture has a few hundred.
_WIDTHS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 86400)
_MOST_BINS = 400
# To find a run of samples takes as long as to add up so many of them.
_RUN_COST = 20
# So many values are added up faster as one long integer than one by one.
_WIDE = 64


class Bin(NamedTuple):
    """Consecutive samples: `times[first:last]`.

    Attributes:
        number: of the bin, counted from the attempt's start.
        weight_us: the time its samples stand for.
        even: all stand for as much.
    """

    number: int
    first: int
    last: int
    weight_us: int
    even: bool


@frozen(kw_only=True, slots=False)
class Clock:
    """The time of one file's samples.

    Attributes:
        origin_us: the attempt's start on the file's clock.
        width_us: of a bin.
        weights: microseconds that each sample stands for; 0 for the first.
        bins: in order; none is empty.
        reach_us: the longest time that a sample stands for.
        holes: samples that stand for less than the time since the one before.
        times: of the samples, if each stands for all of the time since the one before.
    """

    origin_us: int
    width_us: int
    weights: list[int]
    bins: tuple[Bin, ...]
    reach_us: int
    holes: tuple[int, ...] = ()
    times: "array[int] | None" = None

    @functools.cached_property
    def until(self) -> "array[int]":
        """A clock that goes on by the time of each sample: where it is before each, and at the end.

        Where it begins says nothing.
        """
        if self.times is not None:
            return self.times[:1] + self.times  # the first sample stands for no time
        return array("q", accumulate(self.weights, initial=0))

    @functools.cached_property
    def _known_us(self) -> dict[bytes, list[int]]:
        return {}

    def known_us(self, known: bytes) -> list[int]:
        """Return the time of each bin in which values are known: metrics are missed together."""
        if known not in self._known_us:
            self._known_us[known] = [
                sum(compress(self.weights[first:last], known[first:last]))
                for _, first, last, _, _ in self.bins
            ]
        return self._known_us[known]


def bin_width_s(elapsed_s: float, most: int = _MOST_BINS) -> int:
    """Return a round width that cuts a job into at most so many bins."""
    days = math.ceil(elapsed_s / most / _WIDTHS_S[-1])
    return next((width for width in _WIDTHS_S if elapsed_s / width <= most), days * _WIDTHS_S[-1])


def make_clock(columns: Columns, origin_us: int, width_s: float) -> Clock:
    """Weigh a file's samples, and cut it into bins; the attempt began at `origin_us`."""
    times = columns.times
    weights = [0, *map(sub, times[1:], times)] if times else []
    longest = max(_PERIODS * columns.header.interval_us, _AT_LEAST_US)
    holes: tuple[int, ...] = ()
    if weights and max(weights) > longest:
        holes = tuple(at for at, weight in enumerate(weights) if weight > longest)
        weights = [min(weight, longest) for weight in weights]
    width_us = round(width_s * 1e6)
    return Clock(
        origin_us=origin_us,
        width_us=width_us,
        weights=weights,
        bins=tuple(_bins(times, weights, origin_us, width_us)),
        reach_us=longest,
        holes=holes,
        times=None if holes else times,
    )


def read_time(clock: Clock, times: "array[int]", known: bytes | None = None) -> list[Interval]:
    """Return the time that samples stand for, from the attempt's start; `known`: of some only."""
    found: list[Interval] = []
    parts = [(0, len(times))] if known is None else runs(known)
    if not clock.holes:
        weights, origin = clock.weights, clock.origin_us
        return [
            (times[first] - weights[first] - origin, times[last - 1] - origin)
            for first, last in parts
        ]
    for first, last in parts:
        inside = (hole for hole in clock.holes if first < hole < last)
        for begin, end in pairwise([first, *inside, last]):
            start = times[begin] - clock.weights[begin]
            found.append((start - clock.origin_us, times[end - 1] - clock.origin_us))
    return found


def file_times(columns: Columns, clock: Clock) -> tuple[int, int, int]:
    """Return a file's first and last sample, from the attempt's start, and the time between."""
    first, last = columns.times[0], columns.times[-1]
    return first - clock.origin_us, last - clock.origin_us, last - first


def without(clock: Clock, times: "array[int]", taken: Sequence[Interval]) -> Clock:
    """Return a clock by which no sample stands for time that another file's have spoken for.

    `taken` does not touch, and is in order.
    """
    first, last = times[0] - clock.origin_us, times[-1] - clock.origin_us
    near = taken[
        bisect_right(taken, first, key=itemgetter(1)) : bisect_left(taken, last, key=itemgetter(0))
    ]
    if not near:
        return clock
    weights, at = [], 0
    for time, weight in zip(times, clock.weights, strict=True):
        end = time - clock.origin_us
        while at < len(near) and near[at][1] <= end - weight:
            at += 1
        left, part = weight, at
        while part < len(near) and near[part][0] < end:
            left -= max(0, min(end, near[part][1]) - max(end - weight, near[part][0]))
            part += 1
        weights.append(left)
    bins = tuple(_bins(times, weights, clock.origin_us, clock.width_us))
    return replace(clock, weights=weights, bins=bins, times=None)


def _bins(times: "array[int]", weights: list[int], origin: int, width: int) -> Sequence[Bin]:
    found = []
    first = 0
    while first < len(times):  # from one bin with samples to the next: a hole may be of any length
        number = (times[first] - origin) // width
        last = bisect_left(times, origin + (number + 1) * width, first + 1)
        inside = weights[first:last]
        longest = max(inside)
        even = longest - min(inside) <= _EVEN * longest
        found.append(Bin(number=number, first=first, last=last, weight_us=sum(inside), even=even))
        first = last
    return found


def weighted(clock: Clock, column: Column) -> list[tuple[int, float]]:
    """Return per bin the time in which a column is known, and the integral of it over that time."""
    values, scale = column.values, column.scale
    known_us = None if column.known is None else clock.known_us(column.known)
    add = add_all if len(values) > _WIDE * len(clock.bins) else sum
    found = []
    for at, (_, first, last, time, even) in enumerate(clock.bins):
        some = values[first:last]
        if even and known_us is None:
            found.append((time, add(some) * scale * time / (last - first)))
            continue
        amount, known = sumprod(some, clock.weights[first:last]), time
        if known_us is not None:  # the unknown ones are all the same number
            known = known_us[at]
            amount -= column.missing * (time - known)
        found.append((known, float(amount * scale)))
    return found


def median(values: Iterable[float]) -> float:
    """Return the median of some values, as `statistics`, which takes longer to import than this."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def total(parts: Sequence[tuple[int, float]]) -> tuple[int, float]:
    """Add up what `weighted` returned."""
    return sum(weight for weight, _ in parts), sum(amount for _, amount in parts)


# The first 1 stands alone, so that `re` looks for it as for any text, ten times faster.
_RUNS = re.compile(rb"\x01\x01*")


def below(values: "array[int]", threshold: int) -> bytes:
    """Return 1 for each of 16-bit values below a threshold (1 to 65535), else 0.

    As two tables over bytes and two operations on long integers; an unknown value, all bits set,
    is never below.
    """
    if len(values) < _WIDE:
        return bytes(map(threshold.__gt__, values))
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
    if values.typecode != "H" or not _WIDE <= lanes <= 65_536:
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
    found: set[bytes] = set()
    for column in columns:
        if column.known is None:
            return None
        found.add(column.known)
    if len(found) == 1:  # a GPU is mostly missed as a whole
        return found.pop()
    return functools.reduce(or_, map(_number, found)).to_bytes(count, "big")


def each_known(column: Column) -> bytes:
    """Return 1 for each value that is known, else 0."""
    return b"\1" * len(column.values) if column.known is None else column.known


def in_both(one: bytes, other: bytes) -> bytes:
    """Return 1 where both are."""
    return (_number(one) & _number(other)).to_bytes(len(one), "big")


def minus(one: bytes, other: bytes) -> bytes:
    """Return 1 where the first is and the second is not."""
    return (_number(one) & ~_number(other)).to_bytes(len(one), "big")


def weigh(flags: bytes, clock: Clock) -> int:
    """Return the time that the samples stand for whose flag is 1."""
    if 1 not in flags:
        return 0
    if flags.count(b"\0\1") * _RUN_COST > len(flags):
        return sum(compress(clock.weights, flags))
    until = clock.until
    return sum(until[end] - until[begin] for begin, end in runs(flags))


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
