"""hpckit's own Python and packages."""

import re
import sys
from collections.abc import Callable, Iterator
from importlib import metadata

from hpckit.detect.mounts import place, read_mounts
from hpckit.doctor.model import Check, bad, good, unknown
from hpckit.version import __version__

_REQUIREMENT = re.compile(r"(?P<name>[A-Za-z0-9._-]+)\s*(?P<limits>[^;]*)(?:;.*)?")
_LIMIT = re.compile(r"(>=|<=|==|!=|<|>)\s*([\d.]+)")


def own_checks() -> Iterator[Check]:
    """Check Python, hpckit's packages, and whether nodes can see them."""
    version = ".".join(map(str, sys.version_info[:3]))
    yield good(f"hpckit {__version__}, Python {version} at {sys.executable}")
    yield _packages()
    where = place("python", sys.prefix, read_mounts())
    if where.shared:
        yield good(f"hpckit's Python is on a shared file system ({where.file_system})")
    else:
        yield unknown(
            f"whether nodes have {sys.prefix}",
            f"its file system is {where.kind}; jobs start hpckit's Python on the nodes, "
            "by the same path",
        )


def _packages() -> Check:
    try:
        wanted = metadata.requires("hpckit") or []
    except metadata.PackageNotFoundError:
        return unknown("the versions of hpckit's packages", "hpckit was not installed by pip")
    needed = [row for row in wanted if "extra ==" not in row]
    faults = [fault for row in needed if (fault := requirement_fault(row, _version))]
    if faults:
        return bad("; ".join(faults), f"{sys.executable} -m pip install --upgrade hpckit")
    return good(f"{len(needed)} packages, all in versions that hpckit supports")


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def requirement_fault(requirement: str, installed: Callable[[str], str | None]) -> str:
    """Say what is wrong with a package by a line of a wheel's Requires-Dist; nothing if it fits."""
    match = _REQUIREMENT.fullmatch(requirement.strip())
    if match is None:
        return f"requirement {requirement!r} cannot be read"
    version = installed(match["name"])
    if version is None:
        return f"{match['name']} is not installed"
    limits = _LIMIT.findall(match["limits"])
    if all(_fits(_numbers(version), sign, _numbers(limit)) for sign, limit in limits):
        return ""
    return f"{match['name']} is {version}, needs {match['limits'].strip()}"


def _fits(version: tuple[int, ...], sign: str, limit: tuple[int, ...]) -> bool:
    size = max(len(version), len(limit))
    one, two = (numbers + (0,) * (size - len(numbers)) for numbers in (version, limit))
    return {
        ">=": one >= two,
        "<=": one <= two,
        "==": one == two,
        "!=": one != two,
        "<": one < two,
        ">": one > two,
    }[sign]


def _numbers(text: str) -> tuple[int, ...]:
    """Read the release of a version: `1.5.4rc1` is 1, 5, 4."""
    match = re.match(r"\d+(?:\.\d+)*", text)
    return tuple(int(part) for part in match[0].split(".")) if match else ()
