"""Reads samples files, also damaged ones: what is whole is used, what is not is counted.

After a crash a file may end in half a line, or hold NUL bytes where the file system had made room
and not written (NFS, Lustre). A line counts only if its checksum is right.
"""

import binascii
import json
import sys
import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from hpckit.stats.samples.encoding import (
    CRC_BYTES,
    SAMPLE_PREFIX,
    SAMPLE_SUFFIX,
    decode,
    header_layout,
    unseal,
)
from hpckit.stats.samples.packing import Block, Layout
from hpckit.stats.samples.records import Header, Record

_CHUNK_BYTES = 1 << 20
# No record of ours is longer; more without a newline is damage, and must not fill the memory.
_LONGEST_LINE = 1 << 20
_BEFORE, _AFTER = len(SAMPLE_PREFIX), len(SAMPLE_SUFFIX) + CRC_BYTES


@dataclass(kw_only=True, slots=True)
class Damage:
    """What a reader had to leave out, counted while it reads.

    Attributes:
        bad_lines: whose checksum was wrong.
        holes: runs of NUL bytes.
        torn: files that end in half a line.
        unknown: records of a kind or shape that this version does not know.
        headless: files without a readable header, so that nothing in them can be understood.
    """

    bad_lines: int = 0
    holes: int = 0
    torn: int = 0
    unknown: int = 0
    headless: int = 0


def read_header(path: Path) -> Header | None:
    """Return a file's first readable header.

    Raises:
        OSError: the file cannot be read.
    """
    found = _find_header(path)
    return found[0] if found else None


def read_blocks(
    path: Path, damage: Damage, samples: int = 4096, *, in_order: bool = False
) -> Iterator[Header | Block | Record]:
    """Yield a file's header, then its records, with the samples in blocks of columns.

    The order is the file's within each kind of record; between kinds their `mono_us` tells, unless
    `in_order` ends a block at every other record. Memory use does not grow with the file.

    Raises:
        OSError: the file cannot be read.
    """
    found = _find_header(path)
    if found is None:
        damage.headless += 1
        return
    header, layout = found
    yield header
    length = _BEFORE + layout.bytes * 4 // 3 + _AFTER
    packed: list[bytes] = []
    for line in _lines(path, damage):
        if len(line) == length and line.startswith(SAMPLE_PREFIX):
            if line[-CRC_BYTES:] == b" %08x" % zlib.crc32(line[:-CRC_BYTES]):
                packed.append(line[_BEFORE:-_AFTER])
                if len(packed) == samples:
                    yield _block(layout, packed)
                    packed = []
            else:
                damage.bad_lines += 1
        elif (record := _other(line, damage)) and not isinstance(record, Header):
            if packed and in_order:
                yield _block(layout, packed)
                packed = []
            yield record
    if packed:
        yield _block(layout, packed)


def read_records(path: Path, damage: Damage) -> Iterator[Record]:
    """Yield a file's records in order, samples as `Sample`; for files of some ten thousand.

    Raises:
        OSError: the file cannot be read.
    """
    for record in read_blocks(path, damage, in_order=True):
        if isinstance(record, Block):
            yield from record.samples()
        else:
            yield record


def _find_header(path: Path) -> tuple[Header, Layout] | None:
    for line in _lines(path, Damage()):
        if b'"header"' not in line[:20] or (text := unseal(line)) is None:
            continue
        header = decode(text)
        if isinstance(header, Header) and (layout := header_layout(text, header)):
            return header, layout
    return None


def _other(line: bytes, damage: Damage) -> Record | None:
    text = unseal(line)
    if text is None:
        damage.bad_lines += 1
        return None
    record = decode(text)
    damage.unknown += record is None
    return record


def _block(layout: Layout, packed: list[bytes]) -> Block:
    return Block(layout, binascii.a2b_base64(b"".join(packed)))


def _lines(path: Path, damage: Damage) -> Iterator[bytes]:
    """Yield lines without newlines and NULs; count holes, and a torn last line."""
    rest = b""
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            first, *others = chunk.split(b"\n")
            rest += first
            if others:
                yield from _whole(rest, damage)
                rest = others.pop()
                if b"\0" in chunk:
                    for line in others:
                        yield from _whole(line, damage)
                else:
                    yield from filter(None, others)
            if len(rest) > _LONGEST_LINE:
                rest = _shortened(rest, damage)
    if rest.strip(b"\0"):
        # The last line has no newline: all of it may be there, though.
        if unseal(rest.strip(b"\0")) is None:
            damage.torn += 1
        else:
            yield from _whole(rest, damage)
    elif rest:
        damage.holes += 1


def _whole(line: bytes, damage: Damage) -> Iterator[bytes]:
    if b"\0" in line:
        damage.holes += 1
        line = line.strip(b"\0")
    if line:
        yield line


def _shortened(line: bytes, damage: Damage) -> bytes:
    kept = line.lstrip(b"\0")[:_LONGEST_LINE]
    damage.bad_lines += len(kept) == _LONGEST_LINE
    return b"\0" + (kept if len(kept) < _LONGEST_LINE else b"")


def main() -> None:
    """Print a samples file as JSON lines with every number written out, and what was damaged."""
    damage = Damage()
    for record in read_records(Path(sys.argv[1]), damage):
        print(json.dumps({"record": type(record).__name__} | asdict(record)))  # noqa: T201
    print(json.dumps({"damage": asdict(damage)}), file=sys.stderr)  # noqa: T201


if __name__ == "__main__":
    main()
