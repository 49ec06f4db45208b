"""Sites: one cluster each, as data in `templates/sites/NAME.yaml`; which of them this is.

`site` is the value, `reading` its file, checked; `site_sources` where each value was read;
`prometheus` and `node_rules` are its `prometheus:` and `bad_nodes:`.
"""

import fnmatch
import functools
import itertools
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from hpckit.collections import Collection, Found, find_all
from hpckit.documents import nearest, read_document
from hpckit.errors import ConfigError, RequestError
from hpckit.kept import kept, stamp
from hpckit.sites.reading import read_site
from hpckit.sites.site import AdviceOverride, Costs, PartitionLimits, Site

__all__ = [
    "GENERIC", "AdviceOverride", "Costs", "PartitionLimits", "Site", "detect_among", "detect_site",
    "find_site", "full_hostname", "list_sites", "read_site",
]  # fmt: skip
GENERIC = "generic"


def list_sites(collections: tuple[Collection, ...]) -> dict[str, Found]:
    """Return the site files on the search path by site name."""
    found = find_all("sites/*.yaml", "templates", collections)
    return {Path(name).stem: place for name, place in found.items()}


def detect_site(collections: tuple[Collection, ...]) -> str:
    """Return `$HPCKIT_SITE`, else the first site that `identify:` fits here, else generic."""
    return _detected(list_sites(collections), collections)


def detect_among(sites: Iterable[Site], collections: tuple[Collection, ...]) -> str:
    """Return the same of sites that have been read."""
    known = {row.name: row for row in sites}
    ordered = _in_order({name: row.found for name, row in known.items() if row.found}, collections)
    return os.environ.get("HPCKIT_SITE") or _first((name, known[name].identify) for name in ordered)


def _detected(known: Mapping[str, Found], collections: tuple[Collection, ...]) -> str:
    if os.environ.get("HPCKIT_SITE"):
        return os.environ["HPCKIT_SITE"]
    ordered = _in_order(known, collections)
    try:
        return _first(zip(ordered, _identifiers(ordered), strict=True))
    except ConfigError:  # one that is wrong matters where none before it fits
        return _first((name, _identify(row.path)) for name, row in ordered.items())


def _in_order(known: Mapping[str, Found], collections: tuple[Collection, ...]) -> dict[str, Found]:
    """Return sites as the search path has their collections: one's own is before hpckit's."""
    return dict(sorted(known.items(), key=lambda row: collections.index(row[1].collection)))


def _first(sites: Iterable[tuple[str, Mapping[str, str]]]) -> str:
    hostname = functools.cache(full_hostname)  # it may ask a name server: once
    for name, identify in sites:
        if _identifies(identify, hostname):
            return name
    return GENERIC


def _identifiers(known: Mapping[str, Found]) -> list[dict[str, str]]:
    """Return what identifies each site: of many files, few of which have changed since."""
    paths = [found.path for found in known.values()]

    def read() -> list[dict[str, str]]:
        return [_identify(path) for path in paths]

    try:
        looks = [path.stat() for path in paths]
    except OSError:  # reading says which, and why
        return read()
    marks = (f"{at.st_ino} {at.st_size} {at.st_mtime_ns} {at.st_ctime_ns}" for at in looks)
    found: list[dict[str, str]] = kept(read, stamp(__file__), *map(str, paths), *marks)
    return found


def _identify(path: Path) -> dict[str, str]:
    found = read_document(path, "a site").text_mapping("identify")
    return {str(key): str(value) for key, value in found.items()}


def full_hostname() -> str:
    """Return this machine's name with its domain, as `socket.getfqdn()`.

    That one's text goes through IDNA, whose tables take longer to load than most names to be found.
    """
    import _socket  # noqa: PLC0415  # of which `socket` makes enums: 2 ms of each command

    short = os.uname().nodename
    try:
        name, others, _ = _socket.gethostbyaddr(short.encode())  # type: ignore[arg-type]
    except OSError:
        return short
    return next((known for known in (name, *others) if "." in known), name)


def find_site(name: str | None, collections: tuple[Collection, ...]) -> Site:
    """Read the site asked for, else the one detected here: the first on the search path.

    Raises:
        RequestError: no such site. ConfigError: its file is wrong.
    """
    known = list_sites(collections)
    name = _detected(known, collections) if name is None else name
    if name not in known:
        raise RequestError(
            f"Unknown site {name!r}. {nearest(name, known)} See `hpckit sites list`."
        )
    return replace(read_site(known[name].path, collections), found=known[name])


def _identifies(identify: Mapping[str, str], hostname: Callable[[], str]) -> bool:
    checks = [
        _fits(hostname() if key == "hostname" else os.environ.get(key, ""), pattern)
        for key, pattern in identify.items()
    ]
    return bool(checks) and all(checks)


def _fits(text: str, pattern: str) -> bool:
    # Nearly all fail at their first letters, and need not be made a regular expression.
    first = "".join(itertools.takewhile(lambda letter: letter not in "*?[", pattern))
    return text.startswith(first) and fnmatch.fnmatch(text, pattern)
