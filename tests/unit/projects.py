"""Projects whose files are looked through."""

from pathlib import Path

from hpckit.code.files import Found, find_files
from hpckit.code.project import project_of
from hpckit.collections.collection import CodeRules
from tests.unit.checkouts import git

PATHS = [
    "a.py", "b.py", "keep.o", "t.o", "foo.py", "foo.txt", "#odd", "x y", "x/y.py", "x/z.py",
    "build/out.py", "build/keep.o", "a/b/c.py", "a/c.py", "a/deep/d.log", "deep/e.log", "m.log",
    "a/build/n.py", "x/y/z.o", "foodir/inner/f.py",
]  # fmt: skip


def work_tree(tmp_path: Path) -> Path:
    """Return an empty work tree of git."""
    root = tmp_path / "project"
    root.mkdir()
    git(root, "init", "-q")
    return root


def write(root: Path, *paths: str) -> None:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(f"text of {path}\n")


def found_in(root: Path, rules: CodeRules | None = None, runs: Path | None = None) -> Found:
    project = project_of(root / "train.py", root)
    assert project is not None
    return find_files(project, rules or CodeRules(), runs)


def names(found: Found) -> set[str]:
    return {row.path for row in found.files} | {*found.links}
