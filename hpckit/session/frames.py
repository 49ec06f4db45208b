"""What travels between a session's host and its client: a letter, a length, and so many bytes."""

import json
import struct
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any

from hpckit.files import DamagedFileError, parse_json

_HEAD = struct.Struct(">cI")
# Above what either side sends at once; a stranger's length is not believed.
MOST = 1 << 20


class Kind(Enum):
    """What a frame means."""

    HELLO = b"H"  # client: its size
    INPUT = b"I"  # client: keys
    SIZE = b"S"  # client: its new size
    OUTPUT = b"O"  # host: for the terminal
    END = b"E"  # host: the session is over for this client, and why


def frame(kind: Kind, content: bytes = b"") -> bytes:
    """Return a frame's bytes."""
    return _HEAD.pack(kind.value, len(content)) + content


def message(kind: Kind, value: Mapping[str, Any]) -> bytes:
    """Return a frame that holds a mapping."""
    return frame(kind, json.dumps(dict(value)).encode())


def mapping(content: bytes) -> dict[str, Any]:
    """Return the mapping that a frame holds.

    Raises:
        DamagedFileError: it holds none.
    """
    value = parse_json(content)
    if not isinstance(value, dict):
        raise DamagedFileError("a frame holds no mapping")
    return value


class Frames:
    """Bytes as they arrive, taken apart."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def feed(self, chunk: bytes) -> Iterator[tuple[Kind, bytes]]:
        """Yield each frame that is whole now.

        Raises:
            DamagedFileError: these are no frames.
        """
        self._bytes += chunk
        while len(self._bytes) >= _HEAD.size:
            letter, length = _HEAD.unpack_from(self._bytes)
            if length > MOST or letter not in {row.value for row in Kind}:
                raise DamagedFileError("what was received is not of hpckit's sessions")
            if len(self._bytes) < _HEAD.size + length:
                return
            content = bytes(self._bytes[_HEAD.size : _HEAD.size + length])
            del self._bytes[: _HEAD.size + length]
            yield Kind(letter), content
