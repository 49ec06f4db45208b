"""Records of a samples file to lines, and back: one JSON document, a space, its CRC32, a newline.

Pure. A sample's numbers are packed (`hpckit.stats.samples.packing`); everything else is plain JSON.
`python -m hpckit.stats.samples.reading FILE` prints a file with all numbers written out.
"""

import binascii
import functools
import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields
from typing import Annotated, Any, get_type_hints

from hpckit.files import DamagedFileError, parse_json
from hpckit.frozen import frozen
from hpckit.stats.samples.minutes import COLUMN_KINDS
from hpckit.stats.samples.packing import ALIGNMENT, Layout, PackedField, Packer, own_layout
from hpckit.stats.samples.records import (
    End,
    GpuInfo,
    GpuSlow,
    GpuState,
    Header,
    Note,
    Record,
    Sample,
    Slow,
    State,
)
from hpckit.values import Within, check, rebuild

SAMPLE_PREFIX, SAMPLE_SUFFIX = b'{"s":"', b'"}'
CRC_BYTES = 9  # a space and eight hexadecimal digits

_KINDS: dict[str, type[Record]] = {
    "header": Header,
    "slow": Slow,
    "state": State,
    "note": Note,
    "end": End,
}
_NAMES = {kind: name for name, kind in _KINDS.items()}
_STATE = [field.name for field in fields(GpuState)]
_SLOWS = len(GpuSlow._fields)


@frozen(kw_only=True)
class _PackedFields:
    """The layout in a header."""

    node: Mapping[str, PackedField]
    gpu: Mapping[str, PackedField]
    node_bytes: Annotated[int, Within(1, 1 << 20)]
    gpu_bytes: Annotated[int, Within(0, 1 << 20)]


@functools.lru_cache(maxsize=4096, typed=True)
def _slow_reading(*values: object) -> GpuSlow:
    """Check a row; a GPU has the same clocks and temperatures again and again."""
    row = GpuSlow(*values)  # type: ignore[arg-type]  # which the next lines check
    for value, kinds in zip(row, COLUMN_KINDS, strict=True):
        if type(value) not in kinds:
            raise DamagedFileError(f"{value!r:.60} is not a reading")
    return row


def _slow_row(values: Sequence[Any]) -> GpuSlow:
    return _slow_reading(*values[:_SLOWS])


def _state_row(values: Sequence[Any]) -> GpuState:
    return rebuild(GpuState, dict(zip(_STATE, values, strict=False)), newer=True)


_ROWS: dict[type[Record], Callable[[Sequence[Any]], GpuSlow | GpuState]] = {
    Slow: _slow_row,
    State: _state_row,
}


def encoder(gpus: int) -> Callable[[Record], bytes]:
    """Return what turns the records of a file with so many GPUs into lines."""
    packer = Packer(gpus)

    def encode(record: Record) -> bytes:
        if isinstance(record, Sample):
            text = binascii.b2a_base64(packer.pack(record), newline=False)
            return seal(SAMPLE_PREFIX + text + SAMPLE_SUFFIX)
        return seal(json.dumps(_document(record), separators=(",", ":")).encode())

    return encode


def seal(text: bytes) -> bytes:
    """Return a line: the text, its checksum, a newline."""
    return b"%b %08x\n" % (text, zlib.crc32(text))


def unseal(line: bytes) -> bytes | None:
    """Return the text of a line (without its newline); None if its checksum says it is damaged."""
    text = line[:-CRC_BYTES]
    return text if line[-CRC_BYTES:] == b" %08x" % zlib.crc32(text) else None


def decode(text: bytes) -> Record | None:
    """Read one record other than a sample; None if it is of a kind or shape not known here.

    Keys and trailing columns of newer versions are ignored.
    """
    try:
        document = parse_json(text)
        if not isinstance(document, dict):
            return None
        kind = _KINDS[document.pop("k")]
        if "g" in document:
            # Rows are checked here: a week of 8 GPUs has 80,000 of them.
            rows = tuple(map(_ROWS[kind], document.pop("g")))
            document.pop("gpus", None)
            value: Record = rebuild(kind, document, newer=True, checked={"gpus": rows})
        else:
            value = rebuild(kind, document, newer=True)
    except (DamagedFileError, KeyError, TypeError):
        # The checksum was right: a newer version wrote it. The reader counts it as unknown.
        return None
    return value


def decode_header(text: bytes) -> tuple[Header, Layout] | None:
    """Read a header, and where the samples' numbers are; None if either cannot be used."""
    try:
        document = parse_json(text)
        if not isinstance(document, dict) or document.pop("k") != _NAMES[Header]:
            return None
        said = document.pop("layout")
        gpus = _table(json.dumps(document.pop("gpus", [])))
        header = rebuild(Header, document, newer=True, checked={"gpus": gpus})
        layout = _layout(said, len(gpus))
    except (DamagedFileError, KeyError):
        return None  # written by a version with another way of packing
    return (header, layout) if layout else None


@functools.lru_cache(maxsize=64)
def _table(text: str) -> tuple[GpuInfo, ...]:
    """Read a node's GPUs: the same ones in the files of all its steps."""
    gpus: tuple[GpuInfo, ...] = check(
        get_type_hints(Header, include_extras=True)["gpus"], parse_json(text), "gpus"
    )
    return gpus


def _layout(said: object, gpus: int) -> Layout | None:
    """Read where the samples' numbers are; None if no array can be made of them."""
    if said == _own_places(gpus):
        return own_layout(gpus)
    places = rebuild(_PackedFields, said, newer=True)
    layout = Layout(
        node=places.node,
        gpu=places.gpu,
        node_bytes=places.node_bytes,
        gpu_bytes=places.gpu_bytes,
        gpus=gpus,
    )
    usable = layout.bytes > 0 and layout.bytes % ALIGNMENT == 0 and "mono_us" in layout.node
    return layout if usable and layout.fits() else None


def _document(record: Record) -> dict[str, Any]:
    document: dict[str, Any] = {"k": _NAMES[type(record)]}
    if isinstance(record, Header):
        document["layout"] = _own_places(len(record.gpus))
    document |= asdict(record)
    if isinstance(record, Slow | State):
        rows = document.pop("gpus")
        document["g"] = [list(row.values() if isinstance(row, dict) else row) for row in rows]
    return document


@functools.cache
def _own_places(gpus: int) -> dict[str, Any]:
    layout = own_layout(gpus)
    return {
        "node": {name: _place(place) for name, place in layout.node.items()},
        "gpu": {name: _place(place) for name, place in layout.gpu.items()},
        "node_bytes": layout.node_bytes,
        "gpu_bytes": layout.gpu_bytes,
    }


def _place(place: PackedField) -> dict[str, Any]:
    return {name: value for name, value in asdict(place).items() if value not in (None, "")}
