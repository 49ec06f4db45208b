"""Which of a job's GPUs run nothing, and for how long: by the samples, as they are written.

A GPU is idle while each reading of its utilization is 0. A reading that is missing is unknown, and
ends what is known; so does a time without samples, as when a job was suspended. Only what was not
there before is read: samples files of one attempt, each from where the last look ended.
"""

from pathlib import Path

from hpckit.frozen import frozen
from hpckit.sinks import ALL
from hpckit.stats.samples.packing import SampleBlock
from hpckit.stats.samples.records import SamplesPath, gpu_numbers, samples_files
from hpckit.stats.samples.tail import Follower
from hpckit.units import format_seconds

_CHUNK_BYTES = 1 << 20
# Samples further apart than this, or than so many of their intervals, leave a gap.
_PATIENCE_US, _INTERVALS = 60_000_000, 4


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


class _Clocks:
    """One file's GPUs. `since` when each is idle, and the newest sample, are on its own clock."""

    def __init__(self, file: SamplesPath) -> None:
        self.file = file
        self.samples = Follower(file.path, _CHUNK_BYTES)
        self.since: list[int | None] = []
        self.last = 0

    def look(self) -> None:
        blocks = self.samples.new()
        if self.samples.header and not self.since:
            self.since = [None] * len(self.samples.header.gpus)
        for block in blocks:
            self._move_on(block)
            for gpu, since in enumerate(self.since):
                column = block.gpu(gpu, "utilization_permille")
                value = column.to_list()[0] if column else None
                self.since[gpu] = (since or self.last) if value == 0 else None

    def _move_on(self, block: SampleBlock) -> None:
        header, clock = self.samples.header, block.node("mono_us")
        if header is None or clock is None:
            return
        patience_us = max(_PATIENCE_US, _INTERVALS * header.interval_us)
        if clock.values[0] - self.last > patience_us:
            self.since = [None] * len(self.since)
        self.last = clock.values[0]


class IdleGpus:
    """All samples files of one attempt: those that were not there when this was made."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._before = {file.path.name for file in samples_files(folder)}
        self._files: dict[str, _Clocks] = {}

    def look(self, least_s: float, which: str, nodes: int) -> Idle | None:
        """Return the GPUs that have been idle for so long; None: not so, or not known.

        Args:
            least_s: seconds.
            which: `all`: only where no GPU of the job does anything; `any`: one is enough.
            nodes: the job's: a node that has no samples is unknown.
        """
        for file in samples_files(self._folder):
            if file.path.name not in self._before:
                self._files.setdefault(file.path.name, _Clocks(file))
        rows: list[tuple[str, float | None]] = []
        for clocks in self._files.values():
            clocks.look()
            if (header := clocks.samples.header) is None:
                continue
            numbers = gpu_numbers([(header.host, gpu.index) for gpu in header.gpus])
            for number, since in zip(numbers, clocks.since, strict=True):
                seconds = None if since is None else (clocks.last - since) / 1e6
                rows.append((f"{header.host}:{number}", seconds))
        idle = [(name, s) for name, s in rows if s is not None and s >= least_s]
        hosts = {row.file.host for row in self._files.values()}
        complete = len(hosts) >= nodes and len(idle) == len(rows)
        if not idle or (which == ALL and not complete):
            return None
        shortest = min(seconds for _, seconds in idle)
        return Idle(gpus=tuple(name for name, _ in idle), of=len(rows), seconds=shortest)
