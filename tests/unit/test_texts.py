"""Help, errors and docs do not use phrases that readers had to read twice: see CONTRIBUTING.md.

"X is not a Y", never "X is no Y"; "there is no X" and "no longer" are plain English.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pages import PAGES, ROOT

_HARD = re.compile(
    r"(?<!there )\b(?:is|are|was|were) no (?!longer\b|more\b)"
    r"|\bnone of (?:this|it)\b|\bnothing to tell\b|\bis needed for nothing\b",
    re.IGNORECASE,
)


def hard(text: str) -> list[str]:
    """Return the hard places of a text, each with the words around it."""
    flat = " ".join(text.split())
    return [flat[max(0, one.start() - 30) : one.end() + 30] for one in _HARD.finditer(flat)]


def strings(source: str) -> Iterator[str]:
    """Yield what a module may print: its strings, but no docstrings.

    Most modules have no such words at all, and reading a module as Python takes long.
    """
    if not hard(re.sub(r'"\s*f?r?"', "", source)):
        return
    tree = ast.parse(source)
    alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(
                str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values
            )
        elif (
            isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in alone
        ):
            yield node.value


def test_hard_sentences_are_seen() -> None:
    for bad in ("'x' is no workload", "None of this has run", "'1e99' is no\nmoment"):
        assert hard(bad), bad
    for good in (
        "There is no run",
        "the GPU is no longer read",
        "none of them",
        "is not a Y",
    ):
        assert not hard(good), good
    assert "X is no C" in strings('"""A is no B."""\nsay(f"{a} is "\n"no C")\n')


@pytest.mark.long
def test_what_is_printed_has_no_hard_sentences() -> None:
    sources = [path for top in ("hpckit", "workloads") for path in (ROOT / top).rglob("*.py")]
    found = {
        str(path.relative_to(ROOT)): places
        for path in sources
        if (places := [one for text in strings(path.read_text()) for one in hard(text)])
    }
    assert not found


def test_pages_and_data_have_no_hard_sentences() -> None:
    data = [str(path) for path in sorted(ROOT.glob("workloads/*/workload.yaml"))]
    found = {
        name: places for name in (*PAGES, *data) if (places := hard(Path(ROOT, name).read_text()))
    }
    assert not found
