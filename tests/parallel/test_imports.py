"""Every import of hpckit that pages, examples, workloads and benchmarks show works."""

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pages import PAGES, ROOT

pytestmark = pytest.mark.torch
_WRITTEN = re.compile(r"(?:from (hpckit[\w.]*) import ([^`#|\n]+)|\bimport (hpckit[\w.]*))")
_DOTTED = re.compile(r"(?<![\w./-])hpckit\.(?:parallel|inference)(?:\.\w+)*")
_TEXTS = (*PAGES, *(f"{path.relative_to(ROOT)}" for path in (ROOT / "examples").rglob("*.md")))


def written(page: str) -> Iterator[tuple[str, str]]:
    """Yield the module and name of each import in a page; no name where only a module is there."""
    text = (ROOT / page).read_text(encoding="utf-8")
    for module, names, alone in _WRITTEN.findall(text):
        if alone:
            yield alone, ""
        for name in names.strip(" ()").split(",") if names else ():
            yield module, name.split(" as ")[0].strip()
    for dotted in _DOTTED.findall(text):
        yield dotted, ""


def imported(script: Path) -> Iterator[tuple[str, str]]:
    for node in ast.walk(ast.parse(script.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "hpckit":
            yield from ((node.module or "", alias.name) for alias in node.names)


def found(module: str, name: str) -> bool:
    """Return whether a module has a name, or a dotted name means something."""
    try:
        owner = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("hpckit"):
            raise
        above, _, last = module.rpartition(".")
        return not name and bool(above) and found(above, last)
    if not name or hasattr(owner, name):
        return True
    try:
        importlib.import_module(f"{module}.{name}")
    except ModuleNotFoundError:
        return False
    return True


def test_imports_that_pages_show() -> None:
    shown = {(page, *one) for page in _TEXTS for one in written(page)}
    assert ("docs/mirrored.md", "hpckit.parallel.mirrored", "MirroredStrategy") in shown
    assert ("docs/mpi_vi.md", "hpckit.inference.sir.SIR", "") in shown
    assert [one for one in sorted(shown) if not found(*one[1:])] == []


def test_modules_that_the_page_on_workloads_lists() -> None:
    page = (ROOT / "docs" / "workloads.md").read_text(encoding="utf-8")
    _, _, table = page.partition("\n| module | |\n|---|---|\n")
    rows = [row.split("|")[1] for row in table.partition("\n\n")[0].splitlines()]
    modules = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert "mirrored" in modules
    assert [name for name in modules if not found(f"hpckit.parallel.{name}", "")] == []


def test_imports_of_scripts() -> None:
    scripts = [
        path
        for folder in ("examples", "workloads", "benchmarks", "docs")
        for path in (ROOT / folder).rglob("*.py")
    ]
    shown = {(path.name, *one) for path in scripts for one in imported(path)}
    assert ("own_simulator.py", "hpckit.inference.vi", "VI") in shown
    assert [one for one in sorted(shown) if not found(*one[1:])] == []


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("hpckit.parallel", "MirroredStrategy"),
        ("hpckit.parallel", "…"),
        ("hpckit.parallel.strategy", "MirroredStrategy"),
        ("hpckit.nothing.at.all", ""),
    ],
)
def test_what_is_not_there_is_seen(module: str, name: str) -> None:
    assert not found(module, name)


# In workloads of 0.1, of which groups have copies.
@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("hpckit.parallel.ranks", "Place"),
        ("hpckit.parallel.ranks", "find_place"),
        ("hpckit.parallel.rank_device", "choose_device"),
        ("hpckit.inference.losses", "L2Loss"),
    ],
)
def test_what_older_workloads_import_is_there(module: str, name: str) -> None:
    assert found(module, name)
