"""Reading a samples file into columns: of each sample what figures or pictures need.

Of counters that only grow the ends of each block of samples are kept, if nothing broke them.
"""

import functools
import gc
from array import array
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from hpckit.beside import beside
from hpckit.frozen import frozen
from hpckit.stats.metric_table import NODE
from hpckit.stats.samples.columns import Columns
from hpckit.stats.samples.lines import Damage
from hpckit.stats.samples.minutes import Minutes, joined
from hpckit.stats.samples.packing import Column, Layout, PackedField, SampleBlock, column_of
from hpckit.stats.samples.reading import halves, read_blocks
from hpckit.stats.samples.records import GPU_SAMPLED, End, Header, Note, Record, Slow, State

# What is drawn over time; the figures need some of it, too.
_DRAWN = tuple(row.name for row in GPU_SAMPLED if row.drawn)
_DRAWN_NODE = tuple(row.name for row in NODE if row.drawn)
# Every value of these is used; of what only grows both ends of each block. Beside what becomes a
# figure as its row says, there is what code of its own makes figures of.
_FIGURES = tuple(row for row in NODE if row.figure)
_NODE = ("mono_us", "cpu_us", "memory_bytes", *(row.name for row in _FIGURES if not row.grows))
_NODE_COUNTERS = ("own_cpu_us", *(row.name for row in _FIGURES if row.grows))
_GPU = (
    "utilization_permille",
    "memory_bytes",
    *(row.name for row in GPU_SAMPLED if row.figure),
)
_ENERGY, _POWER = "energy_mj", "power_mw"
_KEPT_BYTES = 16 << 20
# So many blocks are appended at once: sixty columns that grow in turn are copied again and again.
_TOGETHER = 32
# After one of these notes a counter may have fallen, or be unknown, between the ends of a block.
_BROKEN = ("counter_reset", "gpu_lost", "gpu_hang", "gpu_error")


def read_columns(
    path: Path,
    restart: int,
    until_us: int | None = None,
    *,
    every_energy: bool = False,
    drawn: bool = False,
    figures: bool = True,
) -> Columns | None:
    """Read one file whole, or what is not after `until_us`; None if it has no readable header.

    `every_energy` keeps all values of the energy counters, not only the ends of each block.
    `drawn` reads what is drawn over time, too; without `figures` nothing else.

    Raises:
        OSError: the file cannot be read. DamagedFileError: it is no regular file.
    """
    _keep_memory()
    with uncollected():
        wanted = _Wanted(every_energy=every_energy, drawn=drawn, figures=figures)
        found = _read(path, restart, until_us, wanted)
        if not found or not figures or every_energy:
            return found
        if any(note.code in _BROKEN for note in found.notes):
            return _read(path, restart, until_us, replace(wanted, every_energy=True))
        return found


@frozen(kw_only=True)
class _Wanted:
    """What is read of a file; see `read_columns`."""

    every_energy: bool
    drawn: bool
    figures: bool


@functools.cache
def _keep_memory() -> None:
    """Let glibc keep the memory of one block of samples for the next one, and not return it.

    Once a piece of this size was freed, smaller ones come from its heap, which is kept up to twice
    the size (mallopt(3), M_MMAP_THRESHOLD): a fifth of a day's page faults are saved. The piece is
    never written to, so it takes no memory; a second one would come from the heap, and be cleared.
    """
    bytes(_KEPT_BYTES)


@contextmanager
def uncollected() -> Iterator[None]:
    """Keep Python from looking for garbage: in the same ten thousand records, again and again."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def _read(path: Path, restart: int, until_us: int | None, wanted: _Wanted) -> Columns | None:
    found = None if until_us is not None else _in_halves(path, wanted)
    found = found or _collect(path, wanted, until_us)
    return found.columns(path, restart, until_us) if found else None


def _in_halves(path: Path, wanted: _Wanted) -> "_Collected | None":
    """Read a long file by two processes; None if it is none, or not such as samplers write."""
    parts = halves(path)
    if parts is None:
        return None
    # What is taken of a sample is less than its text.
    room = path.stat().st_size - parts[1][0]
    with beside(lambda: _collect(path, wanted, part=parts[1]), room=room) as second:
        found = _collect(path, wanted, part=parts[0])
        later = second()
    return found if found and later and found.go_on(later) else None


def _collect(
    path: Path,
    wanted: _Wanted,
    until_us: int | None = None,
    part: tuple[int, int] | None = None,
) -> "_Collected | None":
    damage = Damage()
    found: _Collected | None = None
    for record in read_blocks(path, damage, until_us=until_us, part=part):
        if isinstance(record, Header):
            found = _Collected(record, wanted, damage)
        elif found is None:
            continue
        elif isinstance(record, SampleBlock):
            found.add(record)
        elif isinstance(record, Minutes):
            found.others.append(record.until(until_us))
        elif until_us is None or isinstance(record, End) or record.mono_us <= until_us:
            found.others.append(record)
    if found:
        found.append()
    return found


_Taken = tuple[Column, PackedField, int]


class _Collected:
    """Columns, and other records, while a file is read."""

    def __init__(self, header: Header, wanted: _Wanted, damage: Damage) -> None:
        self.header = header
        self.damage = damage
        self.others: list[Record | Minutes] = []
        self.node = {"mono_us": _empty()}
        self.counters = {"mono_us": _empty()}
        self.gpus: list[dict[str, Column]] = [{} for _ in header.gpus]
        self.drawn: list[dict[str, Column]] = [{} for _ in header.gpus]
        self.energies: list[dict[str, Column]] = [{} for _ in header.gpus]
        self._wanted = wanted
        # What is taken of each block, and of its ends: to which column, from where.
        self._taken: list[_Taken] = []
        self._ends: list[_Taken] = []
        # What was taken of the last blocks, column by column, and their ends.
        self._parts: list[list[array[int]]] = []
        self._last: list[SampleBlock] = []

    def add(self, block: SampleBlock) -> None:
        """Take what is wanted of a block; `append` has to follow the last one."""
        ends = block if self._wanted.every_energy else _ends(block)
        if not self._taken:
            self._begin(block.layout, ends)
        for parts, (_, place, start) in zip(self._parts, self._taken, strict=True):
            parts.append(block.values(place, start))
        if ends is not block:
            self._last.append(ends)
        if len(self._parts[0]) == _TOGETHER:
            self.append()

    def append(self) -> None:
        """Append what was taken of the last blocks to the columns."""
        for parts, (column, _, _) in zip(self._parts, self._taken, strict=True):
            column.values.frombytes(b"".join(parts))
            parts.clear()
        if self._last:
            layout = self._last[0].layout
            ends = SampleBlock(layout, b"".join(block.packed for block in self._last))
            for column, place, start in self._ends:
                column.values.extend(ends.values(place, start))
            self._last.clear()

    def _begin(self, layout: Layout, ends: SampleBlock) -> None:
        """Say what is taken of all blocks; the first one tells whether a GPU counts its energy."""
        figures, drawn = self._wanted.figures, self._wanted.drawn
        at_ends = self._taken if self._wanted.every_energy else self._ends
        node = (*(_NODE if figures else ("mono_us",)), *(_DRAWN_NODE if drawn else ()))
        self._taken += _taken(self.node, dict.fromkeys(node), layout.node, 0)
        at_ends += _taken(self.counters, ("mono_us", *_NODE_COUNTERS), layout.node, 0)
        for position, columns in enumerate(self.gpus):
            start, energy = layout.start(position), ends.gpu(position, _ENERGY)
            names = _GPU if figures else _DRAWN
            if figures and (energy is None or energy.is_unknown()):
                names = (*names, _POWER)
            more = [name for name in _DRAWN if name not in names] if drawn and figures else ()
            self._taken += _taken(columns, names, layout.gpu, start)
            self._taken += _taken(self.drawn[position], more, layout.gpu, start)
            at_ends += _taken(self.energies[position], (_ENERGY,), layout.gpu, start)
        self._parts = [[] for _ in self._taken]

    def go_on(self, later: "_Collected") -> bool:
        """Append what was read of the rest of the file; say whether it goes on as this ended."""
        mine, its = self._columns(), later._columns()
        times, more = self.node["mono_us"].values, later.node["mono_us"].values
        if not times or not more or times[-1] > more[0]:
            return False
        if [part.keys() for part in mine] != [part.keys() for part in its]:
            return False
        for part, rest in zip(mine, its, strict=True):
            for name, column in rest.items():
                part[name].values.frombytes(memoryview(column.values).cast("B"))
        self.others += later.others
        self.damage.add(later.damage)
        return True

    def _columns(self) -> list[dict[str, Column]]:
        return [self.node, self.counters, *self.gpus, *self.drawn, *self.energies]

    def columns(self, path: Path, restart: int, until_us: int | None) -> Columns:
        others = self.others
        return Columns(
            path=path,
            restart=restart,
            header=self.header,
            times=self.node.pop("mono_us").values,
            node=_known(self.node),
            gpus=tuple(map(_known, self.gpus)),
            drawn=tuple(map(_known, self.drawn)),
            counter_times=self.counters.pop("mono_us").values,
            counters=_known(self.counters),
            every_energy=self._wanted.every_energy,
            energies=tuple(_known(gpu).get(_ENERGY) for gpu in self.energies),
            slow=joined((row for row in others if isinstance(row, Slow | Minutes)), len(self.gpus)),
            states=tuple(record for record in others if isinstance(record, State)),
            notes=tuple(record for record in others if isinstance(record, Note)),
            end=next((record for record in reversed(others) if isinstance(record, End)), None),
            damage=self.damage,
            cut=until_us is not None,
        )


def _ends(block: SampleBlock) -> SampleBlock:
    """Return the first and the last sample, and those with each counter's first and last value.

    So what a counter grew by does not depend on where a block ends.
    """
    edges = dict.fromkeys((0, len(block) - 1))  # a single sample is no growth
    ends, picked, layout = block.only(edges), set(edges), block.layout
    counters = [(layout.node.get(name), 0) for name in _NODE_COUNTERS]
    counters += [(layout.gpu.get(_ENERGY), layout.start(at)) for at in range(layout.gpus)]
    for place, start in counters:
        if place and place.missing in ends.values(place, start):
            flags = column_of(place, block.values(place, start)).known or b""
            picked |= {flags.find(1), flags.rfind(1)} - {-1}
    return ends if picked == edges.keys() else block.only(sorted(picked))


def _empty() -> Column:
    return Column(values=array("Q"), missing=(1 << 64) - 1, scale=1)


def _taken(
    columns: dict[str, Column], names: Iterable[str], places: Mapping[str, PackedField], start: int
) -> Iterator[_Taken]:
    """Yield where the values of columns are; those that a file lacks are not there."""
    for name in names:
        if name in places:
            columns[name] = column_of(places[name])  # of the file's kind, which times have, too
            yield columns[name], places[name], start


def _known(columns: Mapping[str, Column]) -> dict[str, Column]:
    return {name: column for name, column in columns.items() if not column.is_unknown()}
