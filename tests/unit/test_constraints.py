"""constraints.txt: each package hpckit itself needs, in one version, with its files' hashes."""

import re
import tomllib
from importlib import metadata

from hpckit.collections import builtin_folder
from hpckit.doctor.installation import requirement_fault

ROOT = builtin_folder()
_ROW = re.compile(r"([a-z0-9-]+)==([0-9.]+)((?: \\\n    --hash=sha256:[0-9a-f]{64})+)\n")


def pinned() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines(keepends=True)
    text = "".join(line for line in lines if not line.startswith("#"))
    rows = _ROW.findall(text)
    assert "".join(f"{name}=={version}{hashes}\n" for name, version, hashes in rows) == text
    assert len({name for name, _, _ in rows}) == len(rows)
    return {name: version for name, version, _ in rows}


def plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def needed(lines: list[str], seen: dict[str, list[str]]) -> dict[str, list[str]]:
    """Return what the lines of Requires-Dist need, and all that needs, on this system."""
    for line in lines:
        requirement, _, marker = line.partition(";")
        name = plain(re.match(r"[\w.-]+", requirement)[0])
        if "extra" in marker or "win32" in marker or "Windows" in marker:
            continue
        known = name in seen
        seen.setdefault(name, []).append(requirement.strip())
        if not known:
            needed(metadata.requires(name) or [], seen)
    return seen


def test_every_dependency_is_pinned_with_hashes_within_its_bounds() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pins = pinned()
    asked = needed(project["dependencies"], {})
    assert asked.keys() <= pins.keys()
    for line in project["dependencies"]:
        assert requirement_fault(line, lambda name: pins[plain(name)]) == ""


def test_it_is_in_the_source_distribution() -> None:
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    assert "/constraints.txt" in build["targets"]["sdist"]["include"]
