"""docs/frameworks.md as a program reads it: its scripts, and the lines that submit them.

The page is where the scripts are: tests and benchmarks/foreign.py take them from there, as a reader
does, so that none of the three can drift from the others.
"""

import re
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "frameworks.md"
_FENCE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_NAME = re.compile(r"# (\w+\.py)$", re.MULTILINE)
_SUBMIT = re.compile(r"^ {4}(hpckit submit \S+ (\w+\.py) .*)$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True, slots=True)
class Snippet:
    """One script of the page, and the command line that submits it."""

    name: str
    text: str
    submit: str


def read_page() -> dict[str, Snippet]:
    """Return the page's scripts by file name.

    Raises:
        ValueError: a block lacks the comment with its file's name, or a script is not submitted
            by exactly one line.
    """
    page = PAGE.read_text(encoding="utf-8")
    lines = [(match[2], match[1]) for match in _SUBMIT.finditer(page)]
    texts: dict[str, str] = {}
    for match in _FENCE.finditer(page):
        name = _NAME.match(match[1])
        if name is None or name[1] in texts:
            raise ValueError(f"{PAGE}: a block has no file name of its own: {match[1][:60]!r}")
        texts[name[1]] = match[1]
    if sorted(name for name, _ in lines) != sorted(texts):
        raise ValueError(f"{PAGE}: {sorted(texts)} are shown, {sorted(lines)} submitted")
    submits = dict(lines)
    return {
        name: Snippet(name=name, text=text, submit=submits[name]) for name, text in texts.items()
    }
