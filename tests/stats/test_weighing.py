"""Columns of few samples and of many, with gaps and without, are weighed as number by number."""

import random
from array import array
from itertools import pairwise

import pytest

from hpckit.stats.samples.packing import Column, PackedField, SampleBlock, own_layout
from hpckit.stats.summary.clock import Bin, Clock, below, known_flags, weighted
from hpckit.stats.summary.over_time import highest

MISSING = 0xFFFF
# Fewer than lanes of a long integer are worth it, and more than are looked at together.
COUNTS = (1, 5, 70, 9000)


def column(count: int, gaps: int, most: int) -> Column:
    """Make one of which every `gaps`th value is unknown; 0: none."""
    noise = random.Random(count * most)
    values = [noise.randrange(most) for _ in range(count)]
    if gaps:
        values[gaps - 1 :: gaps] = [MISSING] * len(values[gaps - 1 :: gaps])
    return Column(values=array("H", values), missing=MISSING, scale=3)


COLUMNS = [
    column(count, gaps, most)
    for count in COUNTS
    for gaps in (0, 1, 2, 3, 64, count)
    for most in (1, 1001, MISSING)
]


@pytest.mark.parametrize("one", COLUMNS)
def test_the_highest_is_that_of_each_known_value(one: Column) -> None:
    known = [value for value in one.to_list() if value is not None]
    assert highest(one) == max(known, default=None)
    assert below(one.values, 500) == bytes(value < 500 for value in one.values)


@pytest.mark.parametrize("one", COLUMNS)
def test_a_bin_of_uneven_samples_has_the_sum_of_each(one: Column) -> None:
    count = len(one.values)
    weights = [at * at % 1009 for at in range(count)]
    edges = sorted({0, count // 3, count})
    bins = [
        Bin(number, first, last, sum(weights[first:last]), even=False)
        for number, (first, last) in enumerate(pairwise(edges))
    ]
    clock = Clock(origin_us=0, width_us=1, weights=weights, bins=tuple(bins), reach_us=1)
    rows = list(zip(one.to_list(), weights, strict=True))
    for _ in range(2):  # the second time, what is known is known already
        assert weighted(clock, one) == [
            (
                sum(weight for value, weight in rows[part.first : part.last] if value is not None),
                float(sum((value or 0) * weight for value, weight in rows[part.first : part.last])),
            )
            for part in bins
        ]


def test_any_known_value_of_several_columns_counts() -> None:
    third, half, whole = column(12, 3, 9), column(12, 2, 9), column(12, 0, 9)
    assert known_flags([third, third], 12) == bytes([1, 1, 0] * 4)
    assert known_flags([third, half], 12) == bytes([1, 1, 1, 1, 1, 0] * 2)
    assert known_flags([third, whole], 12) is None
    assert known_flags([], 3) == bytes(3)


@pytest.mark.parametrize("count", [1, 31, 32, 200])
def test_upper_halves_are_joined_with_lower_ones(count: int) -> None:
    layout = own_layout(1)
    place = PackedField(kind="I", at=0, high=6)
    packed = bytes(at * 7 % 256 for at in range(count * layout.bytes))
    found = SampleBlock(layout, packed).values(place, 0)
    rows = [packed[at * layout.bytes :][:8] for at in range(count)]
    assert list(found) == [int.from_bytes(row[:4] + row[6:], "little") for row in rows]
