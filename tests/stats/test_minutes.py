"""Lines of minutes read together say what each says alone."""

import json
from itertools import compress

import pytest

from hpckit.stats.samples.encoding import decode, encoder
from hpckit.stats.samples.minutes import decode_minutes
from hpckit.stats.samples.records import GPM, MEAN, SPOT, GpuSlow, Slow
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
        Slow(mono_us=at, epoch_us=at * 10**6, gpus=(*ROWS[:at], *ROWS[at:] * (at % 3)))
        for at in range(len(ROWS) + 1)
    ]
    texts = [*map(line, slow), WHOLE.encode()]
    read = decode_minutes(texts)
    assert read is not None
    assert read == [decode(text) for text in texts]
    assert read[:-1] == slow
    assert all(type(row) is GpuSlow for record in read for row in record.gpus)


def test_nodes_without_gpus() -> None:
    slow = [Slow(mono_us=at, epoch_us=at) for at in range(3)]
    assert decode_minutes([*map(line, slow)]) == slow


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


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_odd_lines_are_left_to_their_own_reader(odd: str) -> None:
    assert decode_minutes([WHOLE.encode(), odd.encode(), WHOLE.encode()]) is None


@pytest.mark.parametrize("more", [WHOLE, "5"])
def test_halves_of_lines_do_not_make_one(more: str) -> None:
    joined = [WHOLE.partition("[[")[0] + "[{}", WHOLE + "]}", f"{WHOLE},{more}"]
    assert len(json.loads(f"[{','.join(joined)}]")) == len(joined)
    assert decode_minutes([text.encode() for text in joined]) is None


def test_no_text_is_left_to_its_own_reader() -> None:
    assert decode_minutes([WHOLE.encode(), WHOLE.encode().replace(b"mean", b"\xff")]) is None


@pytest.mark.parametrize("flags", [b"", bytes(90), b"\1" * 90, b"\1\0" * 45, b"\0\1\1\0\0\0" * 15])
@pytest.mark.parametrize("wide", [1, 60])
def test_time_is_the_same_by_samples_and_by_runs(flags: bytes, wide: int) -> None:
    samples = bytes(flag for flag in flags for _ in range(wide))
    weights = [at * at % 1009 for at in range(len(samples))]
    clock = Clock(origin_us=0, width_us=1, weights=weights, bins=(), reach_us=1)
    assert weigh(samples, clock) == sum(compress(weights, samples))
