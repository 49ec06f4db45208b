"""Where a site's values were read: an address, the date of the text, and the day of reading."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from hpckit.documents import Fields, nearest
from hpckit.errors import ConfigError, MissingKeyError
from hpckit.frozen import frozen

_ADDRESS = re.compile(r"https?://[^\s/]+(/\S*)?", re.ASCII)
_DAY = re.compile(r"20\d\d-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])", re.ASCII)


@frozen(kw_only=True)
class Source:
    """One text that values of a site come from.

    Attributes:
        read: the day it was read, YYYY-MM-DD.
        edition: the day of the text that was read, where it is known: that of its last change.
        gives: keys of the site's file, as `gpus` or `partitions.gpu.max_time`; all below them, too.
    """

    name: str
    url: str
    read: str
    edition: str | None = None
    gives: tuple[str, ...] = ()

    def when(self) -> str:
        """Return both dates in words."""
        return f"text of {self.edition}, read {self.read}" if self.edition else f"read {self.read}"


def read_sources(fields: Fields) -> tuple[Source, ...]:
    """Read `sources:` of a site.

    Raises:
        ConfigError: a key is missing or unknown, or names a value that the file does not have.
    """
    known = frozenset(_keys(fields.values))
    rows = fields.mappings("sources", "source")
    return tuple(_read(name, entry, known) for name, entry in rows.items())


def _read(name: str, entry: Fields, known: frozenset[str]) -> Source:
    url = entry.required_text("url")
    if not _ADDRESS.fullmatch(url):
        raise ConfigError(f"'url' is {url!r}, must be an address: https://...", at=entry.at("url"))
    gives = entry.texts("gives")
    if not gives:
        raise MissingKeyError(f"{entry.what} needs 'gives:'.", at=entry.mark)
    for key in gives:
        if key not in known:
            raise ConfigError(
                f"'gives' names {key!r}, which this file does not have. {nearest(key, known)}",
                at=entry.at("gives"),
            )
    source = Source(
        name=name, url=url, gives=gives, read=_day(entry, "read"),
        edition=_day(entry, "edition") if entry.has("edition") else None,
    )  # fmt: skip
    entry.refuse_unknown()
    return source


def _day(entry: Fields, key: str) -> str:
    day = entry.required_text(key)
    if not _DAY.fullmatch(day):
        raise ConfigError(f"'{key}' is {day!r}, must be a day: YYYY-MM-DD.", at=entry.at(key))
    return day


def _keys(values: Mapping[str, Any], above: str = "") -> Iterator[str]:
    """Yield the keys of a document's values, nested ones with those above them."""
    for key, (value, _) in values.items():
        if not above and key == "sources":
            continue
        yield (path := f"{above}{key}")
        if isinstance(value, dict):
            yield from _keys(value, f"{path}.")


def sources_of(key: str, sources: tuple[Source, ...]) -> tuple[Source, ...]:
    """Return the sources of a value: those that name its key, else the nearest key above it."""
    while True:
        if found := tuple(row for row in sources if key in row.gives):
            return found
        above, dot, _ = key.rpartition(".")
        if not dot:
            return ()
        key = above
