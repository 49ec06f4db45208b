"""What a session's samples say of its use: of this node's file, as it is written."""

import os
from pathlib import Path

from hpckit.session.idle import Reading
from hpckit.stats.samples.packing import SampleBlock
from hpckit.stats.samples.records import sampled_host, samples_files
from hpckit.stats.samples.tail import Follower

_CHUNK_BYTES = 1 << 20
# A desktop, or a driver's own work, may show as a few percent. In thousandths.
_GPU_BUSY = 30
# A shell, an editor and a notebook server that wait need less. In parts of one core.
_CPU_BUSY = 0.05


class Activity:
    """The samples of one attempt on this node.

    `restart` is the attempt's number; `gpus` is how many the samples must tell of, else what they
    do is unknown.
    """

    def __init__(self, folder: Path, restart: int, gpus: int = 0) -> None:
        self._folder = folder
        self._least = gpus
        self._restart = restart
        self._file: Follower | None = None
        self._last: tuple[float, float | None] | None = None

    def new(self) -> list[Reading]:
        """Return what is new since the last call; the first sample has nothing to compare with."""
        if self._file is None:
            self._file = self._find()
        blocks = self._file.new() if self._file else []
        return [row for block in blocks if (row := self._read(block))]

    def _find(self) -> Follower | None:
        try:
            found = samples_files(self._folder)
        except OSError:
            return None
        host = sampled_host(os.environ)
        new = [row for row in found if row.restart == self._restart and row.host == host]
        return Follower(new[-1].path, _CHUNK_BYTES) if new else None

    def _read(self, block: SampleBlock) -> Reading | None:
        at_s = _first_s(block, "mono_us")
        if at_s is None:
            return None
        cpu_s = _first_s(block, "cpu_us")
        own_s = _first_s(block, "own_cpu_us") or 0.0
        # The sampler itself is no use of the session.
        before, self._last = self._last, (at_s, None if cpu_s is None else cpu_s - own_s)
        if before is None or at_s <= before[0]:
            return None
        used_s, was_s = self._last[1], before[1]
        cores = None if used_s is None or was_s is None else (used_s - was_s) / (at_s - before[0])
        return Reading(at_s=at_s, busy=_busy(cores, self._gpus(block)))

    def _gpus(self, block: SampleBlock) -> list[int | None]:
        count = len(self._file.header.gpus) if self._file and self._file.header else 0
        columns = (block.gpu(position, "utilization_permille") for position in range(count))
        known = [column.to_list()[0] if column else None for column in columns]
        return [*known, *[None] * (self._least - count)]


def _first_s(block: SampleBlock, name: str) -> float | None:
    column = block.node(name)
    value = column.to_list()[0] if column else None
    return None if value is None else value * 1e-6


def _busy(cores: float | None, gpus: list[int | None]) -> bool | None:
    """Say whether cores or GPUs did anything; None: some is unknown, and the rest is idle."""
    if (cores or 0.0) > _CPU_BUSY or any((value or 0) > _GPU_BUSY for value in gpus):
        return True
    return None if cores is None or None in gpus else False
