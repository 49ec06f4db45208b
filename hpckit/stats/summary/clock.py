"""How much time each sample stands for, and the bins of time in which sums are taken."""

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import mul, sub

from hpckit.stats.samples.columns import Columns
from hpckit.stats.samples.packing import Column
from hpckit.stats.summary.flags import add_all

# A sample stands for the time since the one before, but not for a hole: at most three periods, and
# never less than 15 s, which a busy node may make of a second.
_PERIODS, _AT_LEAST_US = 3, 15_000_000
# In a bin whose samples are this even, the plain mean stands for the weighted one: it could differ
# by as much only if a GPU's use followed the sampler's jitter; in fact it does by some millionths.
_EVEN = 0.01
# Each wide enough that a page or a picture has a few hundred.
_WIDTHS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 86400)
_MOST_BINS = 400


@dataclass(frozen=True, kw_only=True, slots=True)
class Bin:
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Clock:
    """The time of one file's samples.

    Attributes:
        weights: microseconds that each sample stands for; 0 for the first.
        bins: in order; none is empty.
        covered_us: the sum of all weights.
        reach_us: the longest time that a sample stands for.
    """

    weights: list[int]
    bins: tuple[Bin, ...]
    covered_us: int
    reach_us: int


def bin_width_s(elapsed_s: float) -> int:
    """Return a round width that cuts a job into at most 400 bins."""
    return next((width for width in _WIDTHS_S if elapsed_s / width <= _MOST_BINS), _WIDTHS_S[-1])


def make_clock(columns: Columns, start_epoch: float, width_s: float) -> Clock:
    """Weigh a file's samples, and cut it into bins counted from the attempt's start."""
    times = columns.times
    weights = [0, *map(sub, times[1:], times)] if times else []
    longest = max(_PERIODS * columns.header.interval_us, _AT_LEAST_US)
    if weights and max(weights) > longest:
        weights = [min(weight, longest) for weight in weights]
    origin = columns.header.mono_us + round((start_epoch - columns.first_epoch) * 1e6)
    return Clock(
        weights=weights,
        bins=tuple(_bins(times, weights, origin, round(width_s * 1e6))),
        covered_us=sum(weights),
        reach_us=longest,
    )


def _bins(times: "array[int]", weights: list[int], origin: int, width: int) -> Sequence[Bin]:
    if not times:
        return ()
    numbers = range((times[0] - origin) // width, (times[-1] - origin) // width + 1)
    edges = [bisect_left(times, origin + number * width) for number in (*numbers, numbers.stop)]
    found = []
    for number, (first, last) in zip(numbers, pairwise(edges), strict=True):
        if first == last:
            continue
        inside = weights[first:last]
        even = max(inside) - min(inside) <= _EVEN * max(inside)
        found.append(Bin(number=number, first=first, last=last, weight_us=sum(inside), even=even))
    return found


def weighted(clock: Clock, column: Column) -> list[tuple[int, float]]:
    """Return per bin the time in which a column is known, and the integral of it over that time."""
    gaps = column.has_gaps()
    return [_weigh(clock, column, part, gaps=gaps) for part in clock.bins]


def _weigh(clock: Clock, column: Column, part: Bin, *, gaps: bool) -> tuple[int, float]:
    values = column.values[part.first : part.last]
    if part.even and not gaps:
        return part.weight_us, add_all(values) * column.scale * part.weight_us / len(values)
    weights = clock.weights[part.first : part.last]
    if gaps:
        pairs = [
            (weight, value)
            for weight, value in zip(weights, values, strict=True)
            if value != column.missing
        ]
        return (
            sum(weight for weight, _ in pairs),
            float(sum(weight * value for weight, value in pairs) * column.scale),
        )
    return part.weight_us, float(sum(map(mul, values, weights)) * column.scale)


def total(parts: Sequence[tuple[int, float]]) -> tuple[int, float]:
    """Add up what `weighted` returned."""
    return sum(weight for weight, _ in parts), sum(amount for _, amount in parts)
