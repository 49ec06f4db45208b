"""What an index says of its larger part, which lies in a file of its own: a split index.

git's gitformat-index(5), "Split index", and Documentation/technical/bitmap-format for EWAH.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

_WORD = 64


class Link(NamedTuple):
    """What is taken of the shared part, whose name ends in `shared`; None: there is none.

    `deleted` and `replaced` are positions in it, in order. What replaces is first in the index.
    """

    shared: str | None
    deleted: tuple[int, ...]
    replaced: tuple[int, ...]


def read_link(data: bytes, most: int, id_bytes: int) -> Link:
    """Read the extension `link` of an index; `most` is how many files a shared part may have.

    Raises:
        ValueError, struct.error: it is not as git writes it.
    """
    name = data[:id_bytes]
    shared = name.hex() if any(name) else None
    if len(data) == len(name):  # as where all is shared
        return Link(shared, (), ())
    deleted, at = _positions(data, id_bytes, most)
    replaced, _ = _positions(data, at, most)
    return Link(shared, deleted, replaced)


def _positions(data: bytes, at: int, most: int) -> tuple[tuple[int, ...], int]:
    """Return which bits of a bitmap are set, and where it ends."""
    _bits, count = struct.unpack_from(">II", data, at)
    words = struct.unpack_from(f">{count}Q", data, at + 8)
    found: list[int] = []
    for position in _set_bits(words):
        if position >= most:
            raise ValueError("it takes of its shared part what this cannot have")
        found.append(position)
    return tuple(found), at + 8 + 8 * count + 4


def _set_bits(words: tuple[int, ...]) -> Iterator[int]:
    """Yield the set bits: words that say what repeats, and how many words follow as they are."""
    start, at = 0, 0
    while at < len(words):
        word, at = words[at], at + 1
        run, plain = (word >> 1 & 0xFFFF_FFFF) * _WORD, word >> 33
        if word & 1:
            yield from range(start, start + run)
        start += run
        for literal in words[at : at + plain]:
            yield from (start + bit for bit in range(_WORD) if literal >> bit & 1)
            start += _WORD
        at += plain
