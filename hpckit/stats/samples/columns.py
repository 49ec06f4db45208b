"""What one samples file says, as arrays: a column of each value, and its other records.

A week at 1 s with 8 GPUs is 5 million GPU readings: 60 MB as arrays, and no Python object each.
"""

from array import array
from collections.abc import Iterator, Mapping
from dataclasses import field
from pathlib import Path

from hpckit.frozen import frozen
from hpckit.stats.samples.lines import Damage
from hpckit.stats.samples.minutes import Minutes
from hpckit.stats.samples.packing import Column
from hpckit.stats.samples.records import End, GpuInfo, Header, Note, State


@frozen(kw_only=True)
class SampleFile:
    """A samples file, and of which attempt it is.

    Attributes:
        since_us, until_us: of which part of it (`mono_us`), where a job that changed its size kept
            the node; see `pieces`.
    """

    path: Path
    restart: int
    since_us: int | None = None
    until_us: int | None = None


@frozen(kw_only=True)
class Columns:
    """One file: one node, one attempt.

    Attributes:
        restart: from the file's name.
        times: `mono_us` of each sample.
        node: columns of `Sample`; one of which nothing is known is not there.
        gpus: columns of `GpuSample`, in the header's order; `power_mw` only without a counter.
        drawn: the same of what is drawn over time and no figure is made of; if it was asked for.
        counters: columns of `Sample`, at `counter_times` only.
        energies: `energy_mj` of each GPU, at `counter_times` only.
        every_energy: `counter_times` are all of the samples.
        slow: what was read once a minute.
        states, notes, end: the other records.
        cut: later samples than the last were left out, as asked.
        since_us, until_us: as of `SampleFile`.
    """

    path: Path
    restart: int
    header: Header
    times: "array[int]"
    node: Mapping[str, Column]
    gpus: tuple[Mapping[str, Column], ...]
    counter_times: "array[int]"
    counters: Mapping[str, Column]
    energies: tuple[Column | None, ...]
    drawn: tuple[Mapping[str, Column], ...] = ()
    every_energy: bool = False
    slow: Minutes = field(default_factory=Minutes)
    states: tuple[State, ...] = ()
    notes: tuple[Note, ...] = ()
    end: End | None = None
    damage: Damage = field(default_factory=Damage)
    cut: bool = False
    since_us: int | None = None
    until_us: int | None = None

    def __len__(self) -> int:
        return len(self.times)

    @property
    def is_piece(self) -> bool:
        """Whether this is a part of its file."""
        return self.since_us is not None or self.until_us is not None

    @property
    def place(self) -> SampleFile:
        """Where all this is."""
        return SampleFile(
            path=self.path, restart=self.restart, since_us=self.since_us, until_us=self.until_us
        )

    @property
    def first_epoch(self) -> float:
        """When the sampler began, in epoch seconds."""
        return self.header.epoch_us / 1e6

    @property
    def last_epoch(self) -> float:
        """When the last sample was taken, in epoch seconds."""
        last = self.times[-1] if self.times else self.header.mono_us
        return self.header.epoch_at(last) / 1e6

    def units(self) -> Iterator[tuple[GpuInfo, Mapping[str, Column]]]:
        """Return each GPU with its columns."""
        return zip(self.header.gpus, self.gpus, strict=True)

    def drawn_units(self) -> Iterator[tuple[GpuInfo, Mapping[str, Column]]]:
        """Return each GPU with the columns of what is drawn."""
        more = self.drawn or ({},) * len(self.gpus)
        for (info, row), extra in zip(self.units(), more, strict=True):
            yield info, {**row, **extra}
