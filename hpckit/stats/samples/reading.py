"""Reads samples files, also damaged ones: what is whole is used, what is not is counted.

A line counts only if its checksum is right.
"""

import binascii
import functools
import json
import struct
import sys
import zlib
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import asdict
from itertools import chain, repeat
from pathlib import Path

from hpckit.files import open_regular
from hpckit.stats.samples.encoding import (
    CRC_BYTES,
    SAMPLE_PREFIX,
    SAMPLE_SUFFIX,
    decode,
    decode_header,
    unseal,
)
from hpckit.stats.samples.lines import Damage, lines_of, whole_lines
from hpckit.stats.samples.minutes import MINUTE_PREFIX, Minutes, decode_minutes
from hpckit.stats.samples.packing import Layout, SampleBlock
from hpckit.stats.samples.records import Header, Record, Slow

# The end of a file: some minutes of 8 GPUs at 1 s.
_TAIL_BYTES = 1 << 16
# A file that is read by two processes takes as long as half of it, and some 20 ms.
HALVED_BYTES = 8 << 20
# Ten years: no job is longer, and no node is up for so long.
_LONGEST_US = 10 * 366 * 86_400 * 1_000_000
_BEFORE, _AFTER = len(SAMPLE_PREFIX), len(SAMPLE_SUFFIX) + CRC_BYTES
_PREFIX_SUM = zlib.crc32(SAMPLE_PREFIX)
# So many ends of lines are looked at together: between other records there are seldom more samples.
_ROWS = 128


def read_header(path: Path) -> Header | None:
    """Return a file's first readable header.

    Raises:
        OSError: the file cannot be read. DamagedFileError: it is no regular file.
    """
    found = _find_header(path)
    return found[1] if found else None


def read_blocks(
    path: Path,
    damage: Damage,
    samples: int = 2048,
    *,
    in_order: bool = False,
    until_us: int | None = None,
    part: tuple[int, int] | None = None,
) -> Iterator[Header | SampleBlock | Minutes | Record]:
    """Yield a file's header, then its records, with samples, and minutes, in blocks of columns.

    The order is the file's within each kind of record; between kinds their `mono_us` tells, unless
    `in_order` ends a block at every other record: then samples are given as they stand, else those
    whose time cannot be, or is after `until_us`, are left out. Of the header's file `part` is read,
    from one byte to before another; both begin a line. Memory use does not grow with the file.

    Raises:
        OSError: the file cannot be read. DamagedFileError: it is no regular file.
    """
    found = _find_header(path)
    if found is None:
        damage.headless += 1
        return
    known, header, layout = found
    yield header
    length = _BEFORE + layout.bytes * 4 // 3 + _AFTER
    packed: list[bytes] = []
    order = _Order(layout, header, damage, until_us)
    for whole in whole_lines(path, damage, part):
        groups = (b"%b\n" % line for line in lines_of(whole, damage)) if in_order else (whole,)
        for group in groups:
            texts, others = _parted(group, length, damage)
            packed += texts
            records = list(_others(others, known, damage, layout.gpus))
            if records and in_order and packed:
                yield _block(layout, packed)
                packed = []
            yield from records
            while len(packed) >= samples:
                yield from order.blocks(packed[:samples])
                del packed[:samples]
    if packed and in_order:
        yield _block(layout, packed)
    else:
        yield from order.blocks(packed)


def read_records(path: Path, damage: Damage) -> Iterator[Record]:
    """Yield a file's records in order, samples as `Sample`; for files of some ten thousand.

    Raises:
        OSError: the file cannot be read. DamagedFileError: it is no regular file.
    """
    for record in read_blocks(path, damage, in_order=True):
        if isinstance(record, SampleBlock):
            yield from record.samples()
        elif not isinstance(record, Minutes):  # which several lines at once would be
            yield record


def newest_samples(path: Path) -> tuple[Header, SampleBlock] | None:
    """Return a file's header and the samples at its end, however long it is; None: there are none.

    Raises:
        OSError: the file cannot be read. DamagedFileError: it is no regular file.
    """
    found = _find_header(path)
    if found is None:
        return None
    _, header, layout = found
    with open_regular(path) as stream:
        stream.seek(max(stream.seek(0, 2) - _TAIL_BYTES, 0))
        lines = stream.read(_TAIL_BYTES).split(b"\n")
    texts, _ = _one_by_one(lines, _BEFORE + layout.bytes * 4 // 3 + _AFTER, Damage())
    return (header, _block(layout, texts)) if texts else None


def halves(path: Path) -> tuple[tuple[int, int], tuple[int, int]] | None:
    """Return two parts of a long file that share no damage, of which the second takes less time.

    None if it is not long, or there are no sound samples around where the first one ends.

    Raises:
        OSError: the file cannot be read. DamagedFileError: it is no regular file.
    """
    with open_regular(path) as stream:
        size = stream.seek(0, 2)
        if size < HALVED_BYTES:
            return None
        about = size * 21 // 40  # the second process also has to send what it read
        stream.seek(about)
        lines = stream.read(_TAIL_BYTES).split(b"\n")
    before, after = lines[1:3] if len(lines) > 3 else (b"", b"")
    if not all(line.startswith(SAMPLE_PREFIX) and unseal(line) for line in (before, after)):
        return None
    middle = about + len(lines[0]) + len(before) + 2
    return (0, middle), (middle, sys.maxsize)


def _find_header(path: Path) -> tuple[bytes, Header, Layout] | None:
    """Return the first line that is a readable header, and what it says."""
    for line in _lines(path, Damage()):
        text = unseal(line) if b'"header"' in line[:20] else None
        if text and (found := decode_header(text)):
            return line, *found
    return None


def _parted(whole: bytes, length: int, damage: Damage) -> tuple[list[bytes], list[bytes]]:
    """Part sound samples, as what stands between prefix and checksum, from other records."""
    found = None if b"\0" in whole else _in_rows(whole, length)
    return found or _one_by_one(lines_of(whole, damage), length, damage)


def _in_rows(whole: bytes, length: int) -> tuple[list[bytes], list[bytes]] | None:
    """Do so with lines without damage: between other records, samples stand in rows of one length.

    A week at 1 s is 600,000 lines: so a row is cut at once, without a look for each end. None if
    a checksum is wrong, which it is of whatever is no sample: it begins with the prefix's.
    """
    step, at = length + 1, 0
    pairs: list[bytes] = []  # a text and its sum in turns
    others: list[bytes] = []
    view = memoryview(whole)
    while at < len(whole):
        if whole.startswith(SAMPLE_PREFIX, at):
            ends = whole[at + length : at + step * _ROWS : step]
            stop = at + step * (len(ends) - len(ends.lstrip(b"\n")))
            if stop == at:
                return None
            pairs += chain.from_iterable(_row(length).iter_unpack(view[at:stop]))
        else:
            stop = whole.index(b"\n", at) + 1
            if stop > at + 1:
                others.append(whole[at : stop - 1])
        at = stop
    texts = pairs[::2]
    return (texts, others) if _are_sound(texts, pairs[1::2]) else None


@functools.cache
def _row(length: int) -> struct.Struct:
    """Return how a sample's line is cut: into what its prefix's sum goes on with, and its sum."""
    digits = CRC_BYTES - 1
    return struct.Struct(f"{_BEFORE}x{length - _BEFORE - CRC_BYTES}sx{digits}sx")


def _are_sound(texts: list[bytes], sums: list[bytes]) -> bool:
    try:
        wanted = array("I", binascii.unhexlify(b"".join(sums)))
    except ValueError:  # damage where hexadecimal digits should be
        return False
    if sys.byteorder == "little":
        wanted.byteswap()
    return array("I", map(zlib.crc32, texts, repeat(_PREFIX_SUM))) == wanted


def _one_by_one(lines: list[bytes], length: int, damage: Damage) -> tuple[list[bytes], list[bytes]]:
    """Do so with any lines, and count those that are damaged."""
    ours = [line for line in lines if len(line) == length and line.startswith(SAMPLE_PREFIX)]
    others = [line for line in lines if len(line) != length or not line.startswith(SAMPLE_PREFIX)]
    sound = [line[_BEFORE:-CRC_BYTES] for line in ours if unseal(line) is not None]
    damage.bad_lines += len(ours) - len(sound)
    return sound, others


def _others(
    lines: list[bytes], known: bytes, damage: Damage, gpus: int
) -> Iterator[Record | Minutes]:
    """Read the lines that are not samples, those of minutes first; the header's is known already.

    Those of minutes together, unless one of them is odd.
    """
    texts = list(_sound(lines, known, damage))
    minutes = [text for text in texts if text.startswith(MINUTE_PREFIX)]
    read = decode_minutes(minutes, gpus) if len(minutes) > 1 else None
    if read is not None:
        yield read
        texts = [text for text in texts if not text.startswith(MINUTE_PREFIX)]
    for text in texts:
        record = decode(text)
        damage.unknown += record is None
        if record and not isinstance(record, Header):
            yield record


def _sound(lines: list[bytes], known: bytes, damage: Damage) -> Iterator[bytes]:
    for line in lines:
        text = unseal(line)
        if text is None:
            damage.bad_lines += 1
        elif line != known:
            yield text


def _block(layout: Layout, packed: list[bytes]) -> SampleBlock:
    # The suffix of each is no letter of base64, and passed over.
    return SampleBlock(layout, binascii.a2b_base64(b"".join(packed)))


class _Order:
    """Makes blocks of samples whose times go on from one to the next, and end.

    The clock of one boot never goes back: what does was written by no sampler of ours, and sums
    over time would be anything.
    """

    def __init__(
        self, layout: Layout, header: Header, damage: Damage, until_us: int | None
    ) -> None:
        self._layout = layout
        self._damage = damage
        self._until = until_us
        self._last = header.mono_us - _LONGEST_US
        self._end = header.mono_us + _LONGEST_US

    def blocks(self, packed: list[bytes]) -> Iterator[SampleBlock]:
        if not packed:
            return
        block = _block(self._layout, packed)
        times = self._times(block)
        if times[0] < self._last or times[-1] > self._end or not _never_fall(times):
            packed = self._in_order(packed, times)
            block = _block(self._layout, packed)
            times = self._times(block)
        if packed:
            self._last = times[-1]
        if self._until is not None and times and times[-1] > self._until:
            packed = packed[: bisect_right(times, self._until)]
            block = _block(self._layout, packed)
        if packed:
            yield block

    def _in_order(self, packed: list[bytes], times: "array[int]") -> list[bytes]:
        kept, last = [], self._last
        for text, time in zip(packed, times, strict=True):
            if last <= time <= self._end:
                kept.append(text)
                last = time
        self._damage.astray += len(packed) - len(kept)
        return kept

    def _times(self, block: SampleBlock) -> "array[int]":
        column = block.node("mono_us")
        return column.values if column else array("Q")


def _never_fall(times: "array[int]") -> bool:
    """Say whether each is at least the one before: to sort what is in order is fast."""
    numbers = times.tolist()
    return numbers == sorted(numbers)


def _lines(path: Path, damage: Damage) -> Iterator[bytes]:
    return (line for whole in whole_lines(path, damage) for line in lines_of(whole, damage))


def main() -> None:
    """Print a samples file as JSON lines with every number written out, and what was damaged."""
    damage = Damage()
    for record in read_records(Path(sys.argv[1]), damage):
        fields = asdict(record)
        if isinstance(record, Slow):
            fields["gpus"] = [gpu._asdict() for gpu in record.gpus]
        print(json.dumps({"record": type(record).__name__} | fields))  # noqa: T201
    print(json.dumps({"damage": asdict(damage)}), file=sys.stderr)  # noqa: T201


if __name__ == "__main__":
    main()
