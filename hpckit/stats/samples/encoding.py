"""Records of a samples file to lines, and back: one JSON document, a space, its CRC32, a newline.

Pure. A sample's numbers are packed (`hpckit.stats.samples.packing`); everything else is plain JSON.
`python -m hpckit.stats.samples.reading FILE` prints a file with all numbers written out.
"""

import binascii
import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any, TypeVar

from hpckit.stats.samples.packing import ALIGNMENT, Layout, Packer, Place, own_layout
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

SAMPLE_PREFIX, SAMPLE_SUFFIX = b'{"s":"', b'"}'
CRC_BYTES = 9  # a space and eight hexadecimal digits

Value = TypeVar("Value")
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


def _slow_row(values: Sequence[Any]) -> GpuSlow:
    return GpuSlow(*values[:_SLOWS])


def _state_row(values: Sequence[Any]) -> GpuState:
    return GpuState(**dict(zip(_STATE, map(_frozen, values), strict=False)))


_KNOWN: dict[type, frozenset[str]] = {}
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
        document = json.loads(text)
        kind = _KINDS[document.pop("k")]
        if "g" in document:
            document["gpus"] = tuple(map(_ROWS[kind], document["g"]))
        elif kind is Header:
            document["gpus"] = tuple(_make(GpuInfo, gpu) for gpu in document.get("gpus", ()))
        return _make(kind, document)
    except (ValueError, KeyError, TypeError, AttributeError):
        # The checksum was right: a newer version wrote it. The reader counts it as unknown.
        return None


def header_layout(text: bytes, header: Header) -> Layout | None:
    """Return where the samples' numbers are, as a header's text says; None if it cannot be used."""
    try:
        said = json.loads(text)["layout"]
        layout = Layout(
            node={name: Place(**place) for name, place in said["node"].items()},
            gpu={name: Place(**place) for name, place in said["gpu"].items()},
            node_bytes=said["node_bytes"],
            gpu_bytes=said["gpu_bytes"],
            gpus=len(header.gpus),
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return None  # written by a version with another way of packing
    usable = layout.bytes > 0 and layout.bytes % ALIGNMENT == 0 and "mono_us" in layout.node
    return layout if usable and layout.fits() else None


def _document(record: Record) -> dict[str, Any]:
    document: dict[str, Any] = {"k": _NAMES[type(record)]}
    if isinstance(record, Header):
        layout = own_layout(len(record.gpus))
        document["layout"] = {
            "node": {name: _place(place) for name, place in layout.node.items()},
            "gpu": {name: _place(place) for name, place in layout.gpu.items()},
            "node_bytes": layout.node_bytes,
            "gpu_bytes": layout.gpu_bytes,
        }
    document |= asdict(record)
    if isinstance(record, Slow | State):
        rows = document.pop("gpus")
        document["g"] = [list(row.values() if isinstance(row, dict) else row) for row in rows]
    return document


def _place(place: Place) -> dict[str, Any]:
    return {name: value for name, value in asdict(place).items() if value not in (None, "")}


def _make(kind: type[Value], found: Mapping[str, Any]) -> Value:
    if kind not in _KNOWN:
        _KNOWN[kind] = frozenset(field.name for field in fields(kind))  # type: ignore[arg-type]
    known = _KNOWN[kind]
    return kind(**{name: value for name, value in found.items() if name in known})


def _frozen(value: Any) -> Any:  # noqa: ANN401
    return tuple(map(_frozen, value)) if isinstance(value, list) else value
