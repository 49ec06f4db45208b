"""The lines of a samples file, also of a damaged one: what is whole is given, the rest counted.

After a crash a file may end in half a line, or hold NUL bytes where the file system had made room
and not written (NFS, Lustre).
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path

from hpckit.files import chunks
from hpckit.stats.samples.encoding import unseal

_CHUNK_BYTES = 1 << 18
# No record of ours is longer; more without a newline is damage, and must not fill the memory.
_LONGEST_LINE = 1 << 20


@dataclass(kw_only=True, slots=True)
class Damage:
    """What a reader had to leave out, counted while it reads.

    Attributes:
        bad_lines: whose checksum was wrong.
        holes: runs of NUL bytes.
        torn: files that end in half a line.
        unknown: records of a kind or shape that this version does not know.
        astray: samples before the one before them, or ten years from the header.
        headless: files without a readable header, so that nothing in them can be understood.
    """

    bad_lines: int = 0
    holes: int = 0
    torn: int = 0
    unknown: int = 0
    astray: int = 0
    headless: int = 0

    def add(self, other: "Damage") -> None:
        """Count another part's, too."""
        for row in fields(Damage):
            setattr(self, row.name, getattr(self, row.name) + getattr(other, row.name))


def lines_of(whole: bytes, damage: Damage) -> list[bytes]:
    """Return lines without newlines and NULs; count holes."""
    lines = whole.split(b"\n")
    if b"\0" in whole:
        return [part for line in lines for part in _whole(line, damage)]
    return list(filter(None, lines))


def whole_lines(path: Path, damage: Damage, part: tuple[int, int] | None = None) -> Iterator[bytes]:
    """Yield pieces of a file that end with a line; count a torn last line, or a hole there."""
    rest = b""
    for chunk in chunks(path, _CHUNK_BYTES, lambda _size: b"\0", part):
        end = chunk.rfind(b"\n") + 1
        if end:
            yield b"".join((rest, memoryview(chunk)[:end]))  # one copy
            rest = b""
        rest += chunk[end:]
        if len(rest) > _LONGEST_LINE:
            rest = _shortened(rest, damage)
    if rest.strip(b"\0"):
        # The last line has no newline: all of it may be there, though.
        if unseal(rest.strip(b"\0")) is None:
            damage.torn += 1
        else:
            yield rest + b"\n"
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
