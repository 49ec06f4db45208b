"""The house's measures, as `make house` prints them: signs, not aims.

A line of code is one that is neither blank, nor a comment, nor part of a docstring.
"""

import ast
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "hpckit"
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class File:
    path: Path
    lines: int
    code_lines: int
    functions: tuple[Function, ...]


@dataclass
class House:
    files: list[File] = field(default_factory=list)

    @property
    def functions(self) -> Iterator[tuple[Path, Function]]:
        return ((file.path, each) for file in self.files for each in file.functions)

    def doubled_names(self) -> dict[str, list[Path]]:
        """Return the names that several files have, but `__init__.py` and `__main__.py`."""
        paths = defaultdict(list)
        for file in self.files:
            if not file.path.name.startswith("__"):
                paths[file.path.name].append(file.path)
        return {name: found for name, found in paths.items() if len(found) > 1}


def length(function: Function) -> int:
    """Return a function's lines, from its `def` to its last."""
    return (function.end_lineno or function.lineno) - function.lineno + 1


def parameters(function: Function) -> int:
    given = function.args
    return len(given.posonlyargs) + len(given.args) + len(given.kwonlyargs)


@cache
def read_house(package: Path = PACKAGE) -> House:
    """Measure every module of a package."""
    return House([_read(path, package.parent) for path in sorted(package.rglob("*.py"))])


def _read(path: Path, root: Path) -> File:
    lines = path.read_text(encoding="utf-8").splitlines()
    nodes = list(ast.walk(ast.parse("\n".join(lines))))
    said = {number for node in nodes for number in _docstring(node)}
    code = [
        number
        for number, line in enumerate(lines, 1)
        if line.strip() and not line.lstrip().startswith("#") and number not in said
    ]
    functions = tuple(node for node in nodes if isinstance(node, Function))
    return File(path.relative_to(root), len(lines), len(code), functions)


def _docstring(node: ast.AST) -> range:
    if (
        isinstance(node, ast.Module | ast.ClassDef | Function)
        and ast.get_docstring(node) is not None
    ):
        return range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1)
    return range(0)


def measures(house: House, most: int = 8) -> Iterator[str]:
    """Yield lines that say how the house stands."""
    sizes = [file.lines for file in house.files]
    yield f"files           {len(sizes)}"
    yield f"code lines      {sum(file.code_lines for file in house.files)}"
    yield f"lines of a file {statistics.median(sizes):g} in the median, {max(sizes)} at most"
    yield f"below 60 lines  {sum(size < 60 for size in sizes)} files"
    for what, measure in (("lines", length), ("parameters", parameters)):
        rows = sorted(house.functions, key=lambda row: -measure(row[1]))
        yield f"functions with most {what}:"
        yield from (f"  {measure(each):4d}  {path}  {each.name}" for path, each in rows[:most])
    doubled = house.doubled_names()
    yield f"names of several files: {len(doubled)}"
    yield from (f"  {name}  {', '.join(map(str, paths))}" for name, paths in doubled.items())


if __name__ == "__main__":
    print("\n".join(measures(read_house(Path(sys.argv[1]).resolve() if sys.argv[1:] else PACKAGE))))
