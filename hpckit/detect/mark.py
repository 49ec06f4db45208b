"""A file's first line that tells what init wrote from what others did to it."""

import hashlib
import re

_MARK = re.compile(r"# hpckit init, sha256:([0-9a-f]{64})\n")


def marked(body: str) -> str:
    """Put a line with a hash of a text above it."""
    return f"# hpckit init, sha256:{_hash(body)}\n{body}"


def written_hash(page: str) -> str | None:
    """Return the hash that init wrote into a page; None when the page is not its."""
    mark = _MARK.match(page)
    return mark[1] if mark else None


def is_edited(page: str) -> bool:
    """Say whether a page of ours was changed since it was written."""
    return written_hash(page) != _hash(_MARK.sub("", page, count=1))


def _hash(body: str) -> str:
    return hashlib.sha256(body.encode()).hexdigest()
