"""What is counted by 1024 is written KiB, MiB, GiB; kB, MB and GB are counted by 1000."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.pages import ROOT

_BY_1000 = re.compile(r"\b[kKMGT]B\b")
# Files of code and pages are counted by 1000, as file managers do.
THEIRS = {
    "hpckit/cli/report.py": {" MB"},
    "hpckit/cli/show_stats.py": {" MB). Open it in a browser.", " kB)."},
    "hpckit/submission/kept_code.py": {" MB of files", " MB, ", " MB and "},
}


def _said(path: Path) -> Iterator[str]:
    """Yield the texts of a module that are no docstrings."""
    for node in ast.walk(ast.parse(path.read_text())):
        for child in ast.iter_child_nodes(node):
            is_text = isinstance(child, ast.Constant) and isinstance(child.value, str)
            if is_text and not isinstance(node, ast.Expr):
                yield child.value


@pytest.mark.long
def test_texts_of_the_code_name_what_they_count_in() -> None:
    found = {
        str(path.relative_to(ROOT)): texts
        for path in sorted((ROOT / "hpckit").rglob("*.py"))
        if "parallel" not in path.parts
        and (texts := {text for text in _said(path) if _BY_1000.search(text)})
    }
    assert found == THEIRS


def test_texts_of_advice_name_what_they_count_in() -> None:
    for path in sorted((ROOT / "templates" / "advice").glob("*.yaml")):
        rule = yaml.safe_load(path.read_text())
        said = " ".join(str(value) for key, value in rule.items() if key != "sources")
        assert not _BY_1000.search(said), path.name
