"""SHA sums: of little by Python's own code, of much by OpenSSL's, which is six times as fast.

To load OpenSSL takes 2 ms, as long as half a megabyte does, and most commands hash less.
"""

import contextlib
import importlib
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import hashlib

_LITTLE = 2**19  # bytes
_OWN = {"sha1": "_sha1", "sha256": "_sha2" if sys.version_info >= (3, 12) else "_sha256"}


def sha1(content: bytes = b"", size: int = 0) -> "hashlib._Hash":
    """Return the sum of some bytes, to which more can be added: `size` is what all will come to."""
    return _sum("sha1", content, size)


def sha256(content: bytes = b"", size: int = 0) -> "hashlib._Hash":
    """Return the sum of some bytes, to which more can be added: `size` is what all will come to."""
    return _sum("sha256", content, size)


def _sum(name: str, content: bytes, size: int) -> "hashlib._Hash":
    if max(size, len(content)) <= _LITTLE and "_hashlib" not in sys.modules:
        with contextlib.suppress(ImportError):  # a Python may be built without
            return getattr(importlib.import_module(_OWN[name]), name)(content)  # type: ignore[no-any-return]
    import hashlib  # noqa: PLC0415  # it loads OpenSSL

    return hashlib.new(name, content, usedforsecurity=False)
