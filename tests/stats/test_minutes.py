"""Lines of minutes read together say what each says alone."""

import json
from array import array
from dataclasses import replace
from itertools import accumulate, compress
from typing import TypeGuard

import pytest

from hpckit.stats.samples.encoding import decode, encoder
from hpckit.stats.samples.minutes import Minutes, decode_minutes, joined
from hpckit.stats.samples.records import GPM, MEAN, SPOT, GpuSlow, Record, Slow
from hpckit.stats.summary.clock import Clock, weigh

ROWS = (
    GpuSlow(),
    GpuSlow(1980, 2619, 0, 55, None, MEAN),
    GpuSlow(0, 0, 1 << 40, -3, 10**20, SPOT),
    GpuSlow(utilization_source=GPM),
)
WHOLE = '{"k":"slow","mono_us":5,"epoch_us":7,"g":[[1,2,3,4,5,"mean"]]}'


def line(record: Slow) -> bytes:
    return encoder(8)(record)[:-10]


def test_lines_are_read_together_as_alone() -> None:
    slow = [
        Slow(mono_us=at, epoch_us=at * 10**6, gpus=(*ROWS[at:], *ROWS[:at]))
        for at in range(len(ROWS) + 1)
    ]
    texts = [*map(line, slow), *map(line, slow[:2])]
    alone = [decode(text) for text in texts]
    assert alone == [*slow, *slow[:2]]
    read = decode_minutes(texts, len(ROWS))
    assert read is not None
    assert read == joined(filter(is_slow, alone), len(ROWS))
    assert read.times == [0, 1, 2, 3, 4, 0, 1]
    assert read.of(1)["temperature_c"] == [55, -3, None, None, 55, 55, -3]
    assert read.of(4) == {}
    for until_us in (0, 2, 4):
        before = [row for row in alone if is_slow(row) and row.mono_us <= until_us]
        assert read.until(until_us) == joined(before, len(ROWS))
    assert joined([read, *slow, read], 4) == joined(filter(is_slow, [*alone, *slow, *alone]), 4)


def is_slow(record: Record | None) -> TypeGuard[Slow]:
    return isinstance(record, Slow)


def test_a_line_with_fewer_rows_or_more_is_of_the_gpus_that_are_there() -> None:
    slow = [Slow(mono_us=at, epoch_us=at, gpus=ROWS[1 : at + 1]) for at in range(3)]
    assert decode_minutes([*map(line, slow)], 1) is None
    read = joined(slow, 1)
    assert (read.times, len(read.gpus)) == ([0, 1, 2], 1)
    assert read.of(0)["sm_mhz"] == [None, 1980, 1980]


def test_nodes_without_gpus() -> None:
    slow = [Slow(mono_us=at, epoch_us=at) for at in range(3)]
    assert decode_minutes([*map(line, slow)], 0) == joined(slow, 0) == Minutes(times=[0, 1, 2])


ODD = {
    "truth": WHOLE.replace("[[1,", "[[true,"),
    "fraction": WHOLE.replace("[[1,", "[[1.0,"),
    "text": WHOLE.replace("[[1,", '[["1",'),
    "list": WHOLE.replace("[[1,", "[[[1],"),
    "long": WHOLE.replace("[[1,", f"[[{'1' * 41},"),
    "number": WHOLE.replace('"mean"', "3"),
    "short": WHOLE.replace(',5,"mean"', ""),
    "more": WHOLE.replace('"mean"', '"mean",6'),
    "key": WHOLE.replace('"g":', '"h":1,"g":'),
    "none": WHOLE.replace(',"epoch_us":7', ""),
    "early": WHOLE.replace(":5,", ":-5,"),
    "late": WHOLE.replace(":7,", ":300000000000000000,"),
    "no time": WHOLE.replace(":7,", ":7.5,"),
    "true": WHOLE.replace(":5,", ":true,"),
    "no rows": WHOLE.replace('[[1,2,3,4,5,"mean"]]', "null"),
    "no row": WHOLE.replace('[1,2,3,4,5,"mean"]', "null"),
    "two": f"{WHOLE},{WHOLE}",
    "half": WHOLE.partition("3,4")[0],
    "deep": WHOLE.replace("[[1,", "[[" + "[" * 60 + "]" * 60 + ","),
}


def test_a_whole_line_is_not_odd() -> None:
    assert decode_minutes([WHOLE.encode()] * 2, 1) is not None


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_odd_lines_are_left_to_their_own_reader(odd: str) -> None:
    assert decode_minutes([WHOLE.encode(), odd.encode(), WHOLE.encode()], 1) is None


@pytest.mark.parametrize("more", [WHOLE, "5"])
def test_halves_of_lines_do_not_make_one(more: str) -> None:
    parts = [WHOLE.partition("[[")[0] + "[{}", WHOLE + "]}", f"{WHOLE},{more}"]
    assert len(json.loads(f"[{','.join(parts)}]")) == len(parts)
    assert decode_minutes([text.encode() for text in parts], 1) is None


def test_no_text_is_left_to_its_own_reader() -> None:
    assert decode_minutes([WHOLE.encode(), WHOLE.encode().replace(b"mean", b"\xff")], 1) is None


@pytest.mark.parametrize("flags", [b"", bytes(90), b"\1" * 90, b"\1\0" * 45, b"\0\1\1\0\0\0" * 15])
@pytest.mark.parametrize("wide", [1, 60])
def test_time_is_the_same_by_samples_and_by_runs(flags: bytes, wide: int) -> None:
    samples = bytes(flag for flag in flags for _ in range(wide))
    weights = [at * at % 1009 for at in range(len(samples))]
    clock = Clock(origin_us=0, width_us=1, weights=weights, bins=(), reach_us=1)
    assert weigh(samples, clock) == sum(compress(weights, samples))
    # Where there is no hole, the times tell: the first sample stands for none.
    times = array("Q", accumulate(weights[1:], initial=5) if weights else ())
    clock = replace(clock, weights=[0, *weights[1:]], times=times)
    assert weigh(samples, clock) == sum(compress(clock.weights, samples))
