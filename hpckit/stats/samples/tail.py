"""Samples as they are written, of which only what is new is read; and how busy GPUs are by them."""

import binascii
from collections import deque
from pathlib import Path
from typing import IO

from hpckit.files import DamagedFileError, open_regular
from hpckit.stats.samples.encoding import (
    CRC_BYTES,
    SAMPLE_PREFIX,
    SAMPLE_SUFFIX,
    decode_header,
    unseal,
)
from hpckit.stats.samples.packing import Layout, SampleBlock
from hpckit.stats.samples.records import Header, samples_files

# So much of a file is read at a time: of 8 GPUs some 300 samples. What is before that in a long
# one is passed over: who looks wants to know of now.
_MOST_BYTES = 1 << 17
KEPT = 24
_NAME = "utilization_permille"


class Follower:
    """One samples file, read from where the last look ended, `most` bytes at a time.

    Attributes:
        header: None: there is none so far, and no sample can be read.
        newest: what is before the last `most` bytes is passed over.
    """

    def __init__(self, path: Path, most: int, *, newest: bool = False) -> None:
        self.path = path
        self.header: Header | None = None
        self.newest = newest
        self._most = most
        self._at = 0
        self._layout: Layout | None = None

    def new(self) -> list[SampleBlock]:
        """Return each sample that is new; of a file that cannot be read, none is."""
        try:
            with open_regular(self.path) as stream:
                if self.newest and self.header is None:
                    for line in stream.read(self._most).split(b"\n")[:-1]:
                        self._take_header(line)
                lines = self._new_lines(stream)
        except (OSError, DamagedFileError):
            return []
        return [block for line in lines if (block := self._read(line))]

    def _new_lines(self, stream: IO[bytes]) -> list[bytes]:
        start = max(self._at, stream.seek(0, 2) - self._most) if self.newest else self._at
        stream.seek(start)
        content = stream.read(self._most)
        whole = content.rfind(b"\n") + 1
        if not whole and len(content) == self._most:  # no line of ours
            whole = len(content)
        self._at = start + whole
        return [line.strip(b"\0") for line in content[:whole].split(b"\n")]

    def _take_header(self, line: bytes) -> None:
        """Read the first header that is whole: a sampler writes it again each hour."""
        if self.header is None and b'"header"' in line[:20]:
            text = unseal(line)
            if text and (found := decode_header(text)):
                self.header, self._layout = found

    def _read(self, line: bytes) -> SampleBlock | None:
        if not line.startswith(SAMPLE_PREFIX):
            self._take_header(line)
            return None
        if self._layout is None or unseal(line) is None:
            return None
        try:
            text = line[len(SAMPLE_PREFIX) : -len(SAMPLE_SUFFIX) - CRC_BYTES]
            packed = binascii.a2b_base64(text)
        except binascii.Error:
            return None
        return SampleBlock(self._layout, packed) if len(packed) == self._layout.bytes else None


class _FileTail:
    """One file: the last means over its GPUs, in percent."""

    def __init__(self, path: Path) -> None:
        self.means: deque[float | None] = deque(maxlen=KEPT)
        self._file = Follower(path, _MOST_BYTES, newest=True)

    @property
    def gpus(self) -> int:
        """How many GPUs its node has; 0: that is not known yet."""
        return len(self._file.header.gpus) if self._file.header else 0

    def look(self) -> None:
        """Read what is new."""
        for block in self._file.new():
            columns = (block.gpu(position, _NAME) for position in range(self.gpus))
            values = [value for column in columns if column for value in column.to_list()]
            known = [value / 10 for value in values if value is not None]
            self.means.append(sum(known) / len(known) if known else None)


class Busy:
    """The GPUs of one run's newest attempt, on all its nodes."""

    def __init__(self, run_dir: Path) -> None:
        self._folder = run_dir / "samples"
        self._files: dict[Path, _FileTail] = {}

    def look(self) -> tuple[float | None, ...]:
        """Return the last means over all GPUs in percent, oldest first, None where unknown.

        It reads what was written since it was called before.
        """
        try:
            found = samples_files(self._folder)
        except OSError:
            return ()
        newest = max((row.restart for row in found), default=0)
        paths = [row.path for row in found if row.restart == newest]
        self._files = {path: self._files.get(path) or _FileTail(path) for path in paths}
        for tail in self._files.values():
            tail.look()
        return _together([tail for tail in self._files.values() if tail.gpus])


def _together(tails: list[_FileTail]) -> tuple[float | None, ...]:
    """Return the mean over files, each weighed by its GPUs, from the newest sample backwards."""
    longest = max((len(tail.means) for tail in tails), default=0)
    rows = []
    for back in range(longest, 0, -1):
        here = [
            (tail.gpus, mean)
            for tail in tails
            if len(tail.means) >= back and (mean := tail.means[-back]) is not None
        ]
        gpus = sum(count for count, _ in here)
        rows.append(sum(count * mean for count, mean in here) / gpus if gpus else None)
    return tuple(rows)
