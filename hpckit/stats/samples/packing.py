"""How the numbers of one sample are packed: integers of fixed width at fixed places, in base64.

A fixed place lets a reader take one column of ten thousand samples in one slice (a week at 1 s is
5 million GPU readings), and 24 bytes per GPU keep 8 GPUs at 10 s below 4 MB a day. The header names
every field's place, so readers need no knowledge of ours, and newer fields disturb no one.

All bits of a field set means unknown.
"""

import struct
import sys
from array import array
from collections.abc import Iterable, Mapping
from functools import cached_property
from itertools import accumulate
from typing import Annotated, Any

from hpckit.frozen import frozen
from hpckit.stats.metric import Metric
from hpckit.stats.metric_table import NODE
from hpckit.stats.samples.records import GPU_SAMPLED, GpuSample, Sample
from hpckit.values import Count, Within


@frozen(kw_only=True, slots=False)
class PackedField:
    """Where a field is, in bytes from the start of the node's or the GPU's part.

    Attributes:
        kind: `Q`, `I` or `H`: 64, 32 or 16 bits, unsigned, little endian.
        high: where 16 more upper bits are, if any.
        scale: what one unit is worth (1024: the field counts KiB).
    """

    kind: str
    at: Count
    high: Count | None = None
    scale: Annotated[int, Within(1, 1 << 40)] = 1

    @cached_property
    def missing(self) -> int:
        """The packed value that means unknown."""
        bits = struct.calcsize(f"<{self.kind}") * 8 + (16 if self.high is not None else 0)
        return (1 << bits) - 1

    def spans(self) -> list[tuple[int, int]]:
        """Return where its parts start and how long they are, in bytes."""
        low = (self.at, struct.calcsize(f"<{self.kind}"))
        return [low] if self.high is None else [low, (self.high, 2)]


# Bytes of the parts of so many bits: 16 more than 32 are an upper half of their own.
_WIDTHS = {64: (8,), 48: (4, 2), 32: (4,), 16: (2,)}
_KINDS = {8: "Q", 4: "I", 2: "H"}
_CLOCK = Metric(name="mono_us", title="time", says="CLOCK_BOOTTIME", source="the kernel", bits=64)


def _packed(metrics: Iterable[Metric]) -> dict[str, PackedField]:
    """Give each metric its place: the widest first, so that each is at a multiple of its size."""
    rows = tuple(metrics)
    parts = [(width, row, at) for row in rows for at, width in enumerate(_WIDTHS[row.bits])]
    parts.sort(key=lambda part: -part[0])
    starts = accumulate((width for width, _, _ in parts), initial=0)
    places = {(row.name, at): start for (_, row, at), start in zip(parts, starts, strict=False)}
    return {
        row.name: PackedField(
            kind=_KINDS[_WIDTHS[row.bits][0]],
            at=places[row.name, 0],
            high=places.get((row.name, 1)),
            scale=row.worth,
        )
        for row in rows
    }


NODE_PLACES, GPU_PLACES = _packed((_CLOCK, *NODE)), _packed(GPU_SAMPLED)
# Samples' lengths are multiples of 24: of 3, so that base64 texts can be joined, and of 8, so that
# arrays fit.
ALIGNMENT = 24


def _end(places: Mapping[str, PackedField]) -> int:
    """Return where the next part can begin: at a multiple of 8."""
    last = max((at + width for place in places.values() for at, width in place.spans()), default=0)
    return -(-last // 8) * 8


GPU_BYTES = _end(GPU_PLACES)


def _node_bytes(gpus: int) -> int:
    """Return the length of the node's part: with it the whole sample's is as ALIGNMENT wants."""
    least = _end(NODE_PLACES)
    return least + -(least + gpus * GPU_BYTES) % ALIGNMENT


@frozen(kw_only=True)
class Layout:
    """Where everything is in one packed sample."""

    node: Mapping[str, PackedField]
    gpu: Mapping[str, PackedField]
    node_bytes: int
    gpu_bytes: int
    gpus: int

    @property
    def bytes(self) -> int:
        """The length of one packed sample."""
        return self.node_bytes + self.gpus * self.gpu_bytes

    def start(self, position: int) -> int:
        """Return where the part of a GPU begins."""
        return self.node_bytes + position * self.gpu_bytes

    def fits(self) -> bool:
        """Tell whether every field lies inside its part, at a multiple of its size, in 8 bytes."""
        both = (*self.node.values(), *self.gpu.values())
        kinds = [place.kind if place.high is None else f"{place.kind}+H" for place in both]
        known = {*_BITS, "I+H", "H+H"}.issuperset(kinds)
        inside = (
            0 <= at <= size - width and (start + at) % width == 0 == size % width
            for places, size, start in (
                (self.node, self.node_bytes, 0),
                (self.gpu, self.gpu_bytes, self.node_bytes),
            )
            for place in places.values()
            for at, width in place.spans()
        )
        return known and all(place.scale > 0 for place in both) and all(inside)


def own_layout(gpus: int) -> Layout:
    """Return the layout this version writes."""
    return Layout(
        node=NODE_PLACES,
        gpu=GPU_PLACES,
        node_bytes=_node_bytes(gpus),
        gpu_bytes=GPU_BYTES,
        gpus=gpus,
    )


# So many numbers are joined faster as they lie in memory.
_MANY = 32
_IS_ALL_SET = bytes(255) + b"\1"


@frozen(kw_only=True, slots=False)
class Column:
    """One field over consecutive samples, as packed: compare with `missing`, then scale.

    Once `known` was asked for, `values` must stay as they are.

    Attributes:
        values: unsigned integers; `missing` is unknown.
        scale: multiply by it.
    """

    values: "array[int]"
    missing: int
    scale: int

    def __init__(self, *, values: "array[int]", missing: int, scale: int) -> None:
        # A job of a thousand steps has 90,000 columns.
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "missing", missing)
        object.__setattr__(self, "scale", scale)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:  # noqa: ANN401  # as object's
        """Let the numbers travel beside the rest, where pickle can: of a week they are 45 MB."""
        import pickle  # noqa: PLC0415  # which asks for this

        content = pickle.PickleBuffer(self.values) if protocol > 4 else self.values.tobytes()
        return _sent, (content, self.values.typecode, self.missing, self.scale)

    def to_list(self) -> list[int | None]:
        """Return the values in the field's own unit, None where unknown."""
        missing, scale = self.missing, self.scale
        return [None if value == missing else value * scale for value in self.values]

    @cached_property
    def known(self) -> bytes | None:
        """1 where the value is known, else 0; None if it is so everywhere.

        First in a fast scan; then in one over each byte of all values.
        """
        width, raw = self.missing.bit_length() // 8, self.values.tobytes()
        if b"\xff" * width not in raw or self.missing not in self.values:
            return None
        size, count = self.values.itemsize, len(self.values)
        first = 0 if sys.byteorder == "little" else size - width
        unknown = int.from_bytes(b"\1" * count, "big")
        everywhere = unknown
        for at in range(first, first + width):
            unknown &= int.from_bytes(raw[at::size].translate(_IS_ALL_SET), "big")
        return (everywhere ^ unknown).to_bytes(count, "big")

    def has_gaps(self) -> bool:
        """Tell whether any value is unknown."""
        return self.known is not None

    def is_unknown(self) -> bool:
        """Tell whether nothing is known."""
        values, missing = self.values, self.missing
        if values and not values[0] == missing == values[-1]:
            return False
        return missing * len(values) == sum(values)


def _sent(content: bytes | memoryview, kind: str, missing: int, scale: int) -> Column:
    """Make a column again; the numbers of a second process stay where both have them."""
    values: Any = memoryview(content).cast(kind)  # type: ignore[call-overload]  # an array's
    if not isinstance(content, memoryview):
        values = array(kind, content)
    return Column(values=values, missing=missing, scale=scale)


def column_of(place: PackedField, values: "array[int] | None" = None) -> Column:
    """Return a field's column; without values an empty one, to which they can be added."""
    if values is None:
        values = array(place.kind if place.high is None else "Q")
    return Column(values=values, missing=place.missing, scale=place.scale)


class SampleBlock:
    """Consecutive samples of one file, read column by column."""

    def __init__(self, layout: Layout, packed: bytes) -> None:
        self.layout = layout
        self.packed = packed
        self._arrays: dict[str, array[int]] = {}

    def __len__(self) -> int:
        return len(self.packed) // self.layout.bytes

    def node(self, name: str) -> Column | None:
        """Return a column of `Sample`, by its attribute's name; None if the file lacks it."""
        place = self.layout.node.get(name)
        return None if place is None else column_of(place, self.values(place, 0))

    def gpu(self, position: int, name: str) -> Column | None:
        """Return a column of `GpuSample` of one GPU (its position in the header's table)."""
        place, start = self.layout.gpu.get(name), self.layout.start(position)
        return None if place is None else column_of(place, self.values(place, start))

    def values(self, place: PackedField, start: int) -> "array[int]":
        """Return the values of a field, as packed, of the part that begins at `start`."""
        low = self._slice(place.kind, start + place.at)
        if place.high is None:
            return low
        return _joined(low, self._slice("H", start + place.high))

    def only(self, places: Iterable[int]) -> "SampleBlock":
        """Return some of the samples."""
        size = self.layout.bytes
        return SampleBlock(
            self.layout, b"".join(self.packed[at * size : (at + 1) * size] for at in places)
        )

    def samples(self) -> Iterable[Sample]:
        """Return the samples one by one: easy, and a hundred times slower than columns."""
        node = {name: self._list(self.node(name)) for name in NODE_PLACES}
        gpus = [
            {name: self._list(self.gpu(position, name)) for name in GPU_PLACES}
            for position in range(self.layout.gpus)
        ]
        for at in range(len(self)):
            values = {name: column[at] for name, column in node.items()}
            each = (GpuSample(**{name: col[at] for name, col in gpu.items()}) for gpu in gpus)
            mono_us = values.pop("mono_us")
            yield Sample(mono_us=mono_us or 0, **values, gpus=tuple(each))

    def _list(self, column: Column | None) -> list[int | None]:
        return [None] * len(self) if column is None else column.to_list()

    def _slice(self, kind: str, at: int) -> "array[int]":
        if kind not in self._arrays:
            self._arrays[kind] = array(kind, self.packed)
            if sys.byteorder == "big":
                self._arrays[kind].byteswap()
        whole = self._arrays[kind]
        return whole[at // whole.itemsize :: self.layout.bytes // whole.itemsize]


def _joined(low: "array[int]", high: "array[int]") -> "array[int]":
    """Join lower and upper halves, many as they lie in memory, which makes no number of each."""
    width = low.itemsize // 2  # in parts of 16 bits, of which a whole one has four
    if sys.byteorder == "big" or len(low) < _MANY:
        shift = width * 16
        return array("Q", [part | upper << shift for part, upper in zip(low, high, strict=True)])
    halves, whole = array("H", low.tobytes()), array("H", bytes(8 * len(low)))
    for at in range(width):
        whole[at::4] = halves[at::width]
    whole[width::4] = high
    return array("Q", whole.tobytes())


class Packer:
    """Packs samples with a fixed number of GPUs."""

    def __init__(self, gpus: int) -> None:
        layout = own_layout(gpus)
        node, gpu = _format(NODE_PLACES, layout.node_bytes), _format(GPU_PLACES, GPU_BYTES)
        self._struct = struct.Struct("<" + node + gpu * gpus)
        self._gpus = gpus

    def pack(self, sample: Sample) -> bytes:
        """Return the bytes of one sample; a value that does not fit its field is unknown."""
        numbers = _numbers(sample, NODE_PLACES)
        for gpu in sample.gpus[: self._gpus]:
            numbers += _numbers(gpu, GPU_PLACES)
        return self._struct.pack(*numbers)


def _format(places: Mapping[str, PackedField], length: int) -> str:
    """Return what `struct` calls the places, and the rest."""
    spans = sorted(span for place in places.values() for span in place.spans())
    return "".join(_KINDS[width] for _, width in spans) + f"{length - sum(spans[-1])}x"


def _numbers(value: Sample | GpuSample, places: Mapping[str, PackedField]) -> list[int]:
    found: list[tuple[int, int]] = []
    for name, place in places.items():
        given: int | None = getattr(value, name)
        packed = place.missing if given is None else given // place.scale
        packed = packed if 0 <= packed < place.missing else place.missing
        width = _BITS[place.kind]
        found.append((place.at, packed & ((1 << width) - 1)))
        if place.high is not None:
            found.append((place.high, packed >> width))
    return [number for _, number in sorted(found)]


_BITS = {"Q": 64, "I": 32, "H": 16}
