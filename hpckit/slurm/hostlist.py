"""Slurm's short form of a list of nodes: `c[1-2,05-07],gpu-a[1-2]b[3-4],login`."""

import re
from collections.abc import Iterator
from itertools import product

from hpckit.errors import RequestError

_NAME = r"(?:[^\s,\[\]]|\[[^\[\]]*\])+"
_PART = r"\[([^\[\]]*)\]|([^\[\]]+)"
_RANGE = r"(?a)(\d{1,18})(?:-(\d{1,18}))?"
# One node, in a list that is given to sbatch: a comma or a bracket would mean others.
_HOST = r"(?a)[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,126}[A-Za-z0-9])?"
_MOST = 65_536  # slurm.h, MAX_SLURM_NODES
_SHOWN = 200
_NO_NODES = frozenset({"", "(null)", "none", "none assigned", "n/a", "unknown", "(none)"})


def is_host(name: str) -> bool:
    """Say whether a text can be the name of one node."""
    return re.fullmatch(_HOST, name) is not None


def expand(text: str) -> tuple[str, ...]:
    """Name every node of a list, in the list's order and with its zero padding.

    Raises:
        RequestError: A bracket is open, nested or empty, a range runs backwards, or the list
            names more than 65,536 nodes.
    """
    names: list[str] = []
    for item in _items(text.strip()):
        names += _expand_item(item, text)
        _check_size(len(names), text)
    return tuple(names)


def nodes_or_none(text: str) -> tuple[str, ...] | None:
    """Name the nodes of a job as a Slurm program printed them.

    None when it has none yet, or when the list cannot be read: a record is worth more than an
    error about one of its columns.
    """
    if text.strip().lower() in _NO_NODES:
        return None
    try:
        return expand(text)
    except RequestError:
        return None


def _items(text: str) -> Iterator[str]:
    """Cut at the commas outside brackets."""
    place = 0
    while place < len(text):
        match = re.compile(_NAME).match(text, place)
        if match is None:
            raise _unreadable(text)
        yield match[0]
        place = match.end()
        if place < len(text) and (text[place] != "," or place + 1 == len(text)):
            raise _unreadable(text)
        place += 1


def _expand_item(item: str, text: str) -> list[str]:
    parts: list[list[str]] = []
    count = 1
    for inside, plain in re.findall(_PART, item):
        parts.append([plain] if plain else _numbers(inside, text))
        count *= len(parts[-1])
        _check_size(count, text)
    return ["".join(pieces) for pieces in product(*parts)]


def _numbers(inside: str, text: str) -> list[str]:
    numbers: list[str] = []
    for part in inside.split(","):
        match = re.fullmatch(_RANGE, part)
        if match is None:
            raise _unreadable(text)
        low, high = match[1], match[2] or match[1]
        if int(low) > int(high):
            raise _unreadable(text)
        _check_size(len(numbers) + int(high) - int(low) + 1, text)
        numbers += [str(number).zfill(len(low)) for number in range(int(low), int(high) + 1)]
    return numbers


def _check_size(count: int, text: str) -> None:
    if count > _MOST:
        raise RequestError(f"Node list '{_shown(text)}' names more than {_MOST} nodes. Shorten it.")


def _unreadable(text: str) -> RequestError:
    shown = _shown(text)
    return RequestError(f"Node list '{shown}' cannot be read. Write it like 'c[1-4,07],login'.")


def _shown(text: str) -> str:
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."
