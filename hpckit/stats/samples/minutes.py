"""The lines that a sampler writes once a minute, many read at a time.

A day of 8 GPUs has 1,440 with 11,520 rows: one by one they took as long as all its samples.
"""

from collections.abc import Sequence
from functools import partial
from itertools import chain, islice
from operator import itemgetter
from types import NoneType
from typing import Any

from hpckit.files import parse_together
from hpckit.stats.samples.records import GpuSlow, Slow
from hpckit.values import LAST_MOMENT, MOST

# What each line begins with, as every version has written it.
MINUTE_PREFIX = b'{"k":"slow","mono_us":'
NUMBERS, TEXTS = frozenset({int, NoneType}), frozenset({str, NoneType})
# What each column of a row may be.
COLUMN_KINDS = [TEXTS if name == "utilization_source" else NUMBERS for name in GpuSlow._fields]
_KEYS = {"k", "mono_us", "epoch_us", "g"}
_FIELDS = itemgetter("mono_us", "epoch_us", "g")
_MOST_EPOCH_US = int(LAST_MOMENT * 990_000)
# GpuSlow._make without its look at the length, which was taken of all rows together.
_row = partial(tuple.__new__, GpuSlow)


def decode_minutes(texts: Sequence[bytes]) -> list[Slow] | None:
    """Return what lines with that prefix say; None if one is not as this version writes them.

    Then each is to be decoded alone, by `encoding.decode`, which says the same of all others.
    """
    documents = parse_together(texts)
    # Half an object, and another half, would be one with an object in its rows: see `_rows`.
    if not documents or set(map(type, documents)) != {dict}:
        return None
    if any(document.keys() != _KEYS for document in documents):
        return None
    times, epochs, tables = zip(*map(_FIELDS, documents), strict=True)
    if not _are_moments(times, MOST) or not _are_moments(epochs, _MOST_EPOCH_US):
        return None
    gpus = _rows(tables)
    if gpus is None:
        return None
    return [
        Slow(mono_us=time, epoch_us=epoch, gpus=tuple(islice(gpus, len(table))))
        for time, epoch, table in zip(times, epochs, tables, strict=True)
    ]


def _are_moments(values: Sequence[Any], most: int) -> bool:
    return set(map(type, values)) == {int} and min(values) >= 0 and max(values) <= most


def _rows(tables: Sequence[Any]) -> "map[GpuSlow] | None":
    """Return the rows of all lines, one after the other; None if a value is of another kind."""
    if set(map(type, tables)) != {list}:
        return None
    rows = list(chain.from_iterable(tables))
    if not rows:
        return map(_row, rows)
    if set(map(type, rows)) != {list} or set(map(len, rows)) != {len(COLUMN_KINDS)}:
        return None
    for kinds, column in zip(COLUMN_KINDS, zip(*rows, strict=True), strict=True):
        if not kinds.issuperset(map(type, column)):
            return None
    return map(_row, rows)
