"""The lines that a sampler writes once a minute, many read at a time.

A day of 8 GPUs has 1,440 with 11,520 rows: one by one they took as long as all its samples.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from itertools import chain, compress, repeat
from math import inf
from operator import itemgetter
from types import NoneType
from typing import Any

from hpckit.files import parse_together
from hpckit.frozen import frozen
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


@frozen(kw_only=True)
class Minutes:
    """Many of these lines, GPU by GPU: figures are made of a field's readings, not of a minute's.

    Attributes:
        times: `mono_us` of each line.
        gpus: of each GPU, in the header's order, the readings of each field of `GpuSlow`, as many
            as there are times; None where a line has none.
    """

    times: list[int] = field(default_factory=list)
    gpus: tuple[Mapping[str, list[Any]], ...] = ()

    def of(self, position: int) -> Mapping[str, list[Any]]:
        """Return a GPU's readings by field."""
        return self.gpus[position] if position < len(self.gpus) else {}

    def until(self, until_us: int | None) -> "Minutes":
        """Return those lines that are not after a time; None: all."""
        return self.between(None, until_us)

    def between(self, since_us: int | None, until_us: int | None) -> "Minutes":
        """Return those lines that are after a time and not after another; None: no end."""
        begin, end = -1 if since_us is None else since_us, inf if until_us is None else until_us
        if not self.times or (min(self.times) > begin and max(self.times) <= end):
            return self
        kept = [begin < time <= end for time in self.times]
        return Minutes(
            times=list(compress(self.times, kept)),
            gpus=tuple(
                {name: list(compress(values, kept)) for name, values in gpu.items()}
                for gpu in self.gpus
            ),
        )


def joined(parts: Iterable[Minutes | Slow], gpus: int) -> Minutes:
    """Return the lines of a file with so many GPUs, read together or alone, in their order."""
    found = Minutes(gpus=tuple({name: [] for name in GpuSlow._fields} for _ in range(gpus)))
    for part in parts:
        if isinstance(part, Slow):
            found.times.append(part.mono_us)
            for known, row in zip(found.gpus, (*part.gpus, *repeat(GpuSlow(), gpus)), strict=False):
                for name, values in known.items():
                    values.append(getattr(row, name))
        else:
            found.times.extend(part.times)
            for known, more in zip(found.gpus, part.gpus, strict=True):
                for name, values in known.items():
                    values.extend(more[name])
    return found


def decode_minutes(texts: Sequence[bytes], gpus: int) -> Minutes | None:
    """Return what lines with that prefix say; None if one is not as this version writes them.

    Then each is to be decoded alone, by `encoding.decode`, which says the same of all others. So it
    is if one has not the rows of so many GPUs.
    """
    documents = parse_together(texts)
    # Half an object, and another half, would be one with an object in its rows: see `_columns`.
    if not documents or set(map(type, documents)) != {dict}:
        return None
    if any(document.keys() != _KEYS for document in documents):
        return None
    times, epochs, tables = zip(*map(_FIELDS, documents), strict=True)
    if not _are_moments(times, MOST) or not _are_moments(epochs, _MOST_EPOCH_US):
        return None
    columns = _columns(tables, gpus)
    if columns is None:
        return None
    each = [
        {name: list(values[at::gpus]) for name, values in columns.items()} for at in range(gpus)
    ]
    return Minutes(times=list(times), gpus=tuple(each))


def _are_moments(values: Sequence[Any], most: int) -> bool:
    return set(map(type, values)) == {int} and min(values) >= 0 and max(values) <= most


def _columns(tables: Sequence[Any], gpus: int) -> dict[str, tuple[Any, ...]] | None:
    """Return each field of all rows, line by line; None if a value is of another kind."""
    if set(map(type, tables)) != {list} or set(map(len, tables)) != {gpus}:
        return None
    rows = list(chain.from_iterable(tables))
    if not rows:
        return {}
    if set(map(type, rows)) != {list} or set(map(len, rows)) != {len(COLUMN_KINDS)}:
        return None
    columns = list(zip(*rows, strict=True))
    for kinds, column in zip(COLUMN_KINDS, columns, strict=True):
        if not kinds.issuperset(map(type, column)):
            return None
    return dict(zip(GpuSlow._fields, columns, strict=True))
