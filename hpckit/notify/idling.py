"""Which of a job's GPUs run nothing, and for how long: by the samples, as they are written.

A GPU is idle while each reading of its utilization is 0. A reading that is missing is unknown, and
ends what is known. Only what was not there before is read: samples files of one attempt, each from
where the last look ended.
"""

import binascii
from dataclasses import dataclass, field
from pathlib import Path

from hpckit.files import DamagedFileError, open_regular
from hpckit.frozen import frozen
from hpckit.sinks import ALL
from hpckit.stats.samples.encoding import (
    CRC_BYTES,
    SAMPLE_PREFIX,
    SAMPLE_SUFFIX,
    decode_header,
    unseal,
)
from hpckit.stats.samples.packing import Layout, SampleBlock
from hpckit.stats.samples.records import Header, SamplesPath, samples_files
from hpckit.text import format_seconds

_CHUNK_BYTES = 1 << 20


@frozen(kw_only=True)
class Idle:
    """GPUs that run nothing: their names, of how many, and since when at least, in seconds."""

    gpus: tuple[str, ...]
    of: int
    seconds: float

    def __str__(self) -> str:
        what = "all" if len(self.gpus) == self.of else f"{len(self.gpus)} of {self.of}"
        names = ", ".join(self.gpus[:8]) + (", ..." if len(self.gpus) > 8 else "")
        return f"{what} GPUs ran nothing for {format_seconds(self.seconds)} ({names})"


@dataclass
class _Follower:
    """One file, read from where it was left. `since` of each GPU is on the file's own clock."""

    file: SamplesPath
    at: int = 0
    header: Header | None = None
    layout: Layout | None = None
    since: list[int | None] = field(default_factory=list)
    last: int = 0

    def look(self) -> None:
        try:
            with open_regular(self.file.path) as stream:
                stream.seek(self.at)
                content = stream.read(_CHUNK_BYTES)
        except (OSError, DamagedFileError):
            return
        whole = content.rfind(b"\n") + 1
        if not whole and len(content) == _CHUNK_BYTES:  # no line of ours
            whole = len(content)
        self.at += whole
        for line in content[:whole].split(b"\n"):
            self._read(line.strip(b"\0"))

    def _read(self, line: bytes) -> None:
        if line.startswith(SAMPLE_PREFIX):
            self._sample(line)
        elif self.header is None and b'"header"' in line[:20]:
            text = unseal(line)
            if text and (found := decode_header(text)):
                self.header, self.layout = found
                self.since = [None] * len(self.header.gpus)

    def _sample(self, line: bytes) -> None:
        if self.layout is None or unseal(line) is None:
            return
        text = line[len(SAMPLE_PREFIX) : -len(SAMPLE_SUFFIX) - CRC_BYTES]
        try:
            packed = binascii.a2b_base64(text)
        except binascii.Error:
            return
        if len(packed) != self.layout.bytes:
            return
        block = SampleBlock(self.layout, packed)
        clock = block.node("mono_us")
        self.last = clock.values[0] if clock else self.last
        for gpu, since in enumerate(self.since):
            column = block.gpu(gpu, "utilization_permille")
            value = column.to_list()[0] if column else None
            self.since[gpu] = (since or self.last) if value == 0 else None


class IdleGpus:
    """All samples files of one attempt: those that were not there when this was made."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._before = {file.path.name for file in samples_files(folder)}
        self._files: dict[str, _Follower] = {}

    def look(self, least_s: float, which: str, nodes: int) -> Idle | None:
        """Return the GPUs that have been idle for so long; None: not so, or not known.

        Args:
            least_s: seconds.
            which: `all`: only where no GPU of the job does anything; `any`: one is enough.
            nodes: the job's: a node that has no samples is unknown.
        """
        for file in samples_files(self._folder):
            if file.path.name not in self._before:
                self._files.setdefault(file.path.name, _Follower(file))
        rows: list[tuple[str, float | None]] = []
        for follower in self._files.values():
            follower.look()
            host = follower.header.host if follower.header else follower.file.host
            for gpu, since in enumerate(follower.since):
                seconds = None if since is None else (follower.last - since) / 1e6
                index = follower.header.gpus[gpu].index if follower.header else gpu
                rows.append((f"{host}:{index}", seconds))
        idle = [(name, s) for name, s in rows if s is not None and s >= least_s]
        hosts = {row.file.host for row in self._files.values()}
        complete = len(hosts) >= nodes and len(idle) == len(rows)
        if not idle or (which == ALL and not complete):
            return None
        shortest = min(seconds for _, seconds in idle)
        return Idle(gpus=tuple(name for name, _ in idle), of=len(rows), seconds=shortest)
