"""An older Python or torch in a job is refused in a line, and what it may be is written down."""

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import hpckit
from hpckit.oldest import LEAST, is_older, refuse_older
from hpckit.payload.environment import IMPORTABLE

PACKAGE = Path(hpckit.__file__).parent
ROOT = PACKAGE.parent
# What an older Python reads before it is refused.
BEFORE = ("__init__.py", "oldest.py", "version.py", "parallel/__init__.py")
# What scripts of jobs load.
LOADED = (
    *(PACKAGE / "parallel").rglob("*.py"),
    *(PACKAGE / "inference").rglob("*.py"),
    *(ROOT / "workloads").rglob("*.py"),
    *(PACKAGE / f"{name}.py" for name in ("errors", "frozen", "rank_variables", "stop_marks")),
)
# Names that Python 3.11 and later versions brought.
NEWER = {
    "typing": {"Self", "Never", "assert_never", "reveal_type", "LiteralString", "Unpack",
               "TypeVarTuple", "Required", "NotRequired", "dataclass_transform", "override"},
    "enum": {"StrEnum", "ReprEnum", "member", "nonmember", "verify", "EnumCheck"},
    "datetime": {"UTC"},
    "contextlib": {"chdir"},
    "itertools": {"batched"},
    "hashlib": {"file_digest"},
    "asyncio": {"TaskGroup", "timeout", "Runner"},
}  # fmt: skip


@pytest.mark.parametrize(
    ("what", "version", "older"),
    [
        ("Python", "3.9.18", True),
        ("Python", "3.10.0", False),
        ("Python", "3.14.0rc1", False),
        ("torch", "1.13.1+cu117", True),
        ("torch", "2.0.1", True),
        ("torch", "2.1.0a0+32f93b1", False),
        ("torch", "2.13.0+cpu", False),
        ("torch", "10.0", False),
        ("torch", "git", False),
        ("torch", "", False),
        ("torch", "2", False),
        ("torch", "main.1", False),
    ],
)
def test_versions_are_compared_by_their_first_two_numbers(
    what: str, version: str, older: bool
) -> None:
    assert is_older(what, version) is older


def test_the_line_says_what_is_too_old_and_what_to_do() -> None:
    with pytest.raises(ImportError) as error:
        refuse_older("torch", "2.0.1+cu117")
    assert str(error.value) == (
        "torch 2.0.1+cu117 is older than 2.1, which hpckit.parallel needs: load a newer module, "
        "or choose another environment (hpckit submit --env ...)"
    )
    refuse_older("torch", "2.1.2")


def run_script(text: str, *path: Path) -> subprocess.CompletedProcess[str]:
    """Run a script as a job does, with hpckit from `importable` alone."""
    names = os.pathsep.join(map(str, (IMPORTABLE, *path)))
    return subprocess.run(
        [sys.executable, "-c", text],
        env={**os.environ, "PYTHONPATH": names},
        cwd=path[0] if path else None,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("wanted", ["parallel", "parallel.mirrored", "inference.vi"])
def test_an_older_python_gets_the_line(wanted: str) -> None:
    done = run_script(f"import sys; sys.version = '3.9.18 (main)'; import hpckit.{wanted}")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("ImportError: Python 3.9.18 is older than 3.10")


@pytest.mark.parametrize("used", ["hpckit.find('1')", "from hpckit import submit"])
def test_an_older_python_is_told_that_a_job_is_not_where_hpckit_is_installed(used: str) -> None:
    old = "import sys; sys.version, sys.hexversion = '3.10.12 (main)', 0x30A0CF0"
    done = run_script(f"{old}; import hpckit; print(hpckit.__version__); {used}")
    assert (done.returncode, done.stdout) == (1, f"{hpckit.__version__}\n")
    told = done.stderr.splitlines()[-1]
    name = "find" if "find" in used else "submit"
    assert told.startswith(
        f"ImportError: hpckit.{name} needs Python 3.11 or newer, and this is 3.10.12"
    )


# Its like has all that is imported before the check.
OLD_TORCH = '__version__ = "1.13.1+cu117"\nTensor = device = nn = None\n'


@pytest.fixture
def old_torch(tmp_path: Path) -> Path:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text(OLD_TORCH)
    (tmp_path / "torch" / "distributed.py").write_text("")
    return tmp_path


@pytest.mark.parametrize(
    "wanted",
    ["devices", "ranks", "models", "mirrored", "microbatch", "dp", "journal", "inference.vi"],
)
def test_an_older_torch_gets_the_line(old_torch: Path, wanted: str) -> None:
    wanted = wanted if "." in wanted else f"parallel.{wanted}"
    done = run_script(f"import hpckit.{wanted}", old_torch)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(
        "ImportError: torch 1.13.1+cu117 is older than 2.1, which hpckit.parallel needs: "
    )


def test_should_stop_works_with_any_torch(old_torch: Path) -> None:
    done = run_script(
        "import torch; from hpckit.parallel import should_stop; print(should_stop())", old_torch
    )
    assert (done.stdout, done.stderr) == ("False\n", "")


@pytest.mark.parametrize("name", BEFORE)
def test_any_python_reads_what_comes_before_the_line(name: str) -> None:
    tree = ast.parse((PACKAGE / name).read_text(encoding="utf-8"), feature_version=(3, 6))
    assert not {row for node in ast.walk(tree) for row in newer_than_3_8(node)}


def newer_than_3_8(node: ast.AST) -> Iterator[str]:
    """Yield `|`, `|=` and `list[...]`, which fail in older Pythons when they are reached."""
    if isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, ast.BitOr):
        yield f"| in line {node.lineno}"
    match node:
        case ast.Subscript(value=ast.Name(id="list" | "dict" | "tuple" | "set" | "type" as name)):
            yield f"{name}[] in line {node.lineno}"


@pytest.mark.long
def test_scripts_load_nothing_that_the_oldest_python_lacks() -> None:
    assert LEAST["Python"] == (3, 10)
    found = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in LOADED
        for name in newer_names(ast.parse(path.read_bytes(), feature_version=(3, 10)))
    }
    assert found == set()


def newer_names(node: ast.AST) -> Iterator[str]:
    """Yield names that Python 3.10 lacks; not of code for type checkers or newer Pythons."""
    if isinstance(node, ast.If) and "TYPE_CHECKING" in (test := ast.unparse(node.test)):
        assert test == "TYPE_CHECKING"
        return
    if isinstance(node, ast.If) and "sys.version_info" in ast.unparse(node.test):
        return
    if isinstance(node, ast.ImportFrom):
        new = NEWER.get(node.module or "", set())
        yield from (alias.name for alias in node.names if alias.name in new)
        yield from ["tomllib"] if node.module == "tomllib" else []
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names if alias.name == "tomllib")
    if isinstance(node, ast.Attribute) and node.attr in {"add_note", "StrEnum", "UTC"}:
        yield node.attr
    # Python 3.11 gave their byte order a default.
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        least = {"from_bytes": 2, "to_bytes": 2}.get(node.func.attr, 0)
        if len(node.args) + len(node.keywords) < least:
            yield f"{node.func.attr} without a byte order"
    for child in ast.iter_child_nodes(node):
        yield from newer_names(child)


@pytest.mark.parametrize(
    "text",
    [
        "from enum import StrEnum",
        "import tomllib",
        "from typing import Any, Self",
        "e.add_note(1)",
        "int.from_bytes(b)",
    ],
)
def test_newer_names_are_found(text: str) -> None:
    assert list(newer_names(ast.parse(text)))
