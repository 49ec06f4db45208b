"""docs/frameworks.md as a program reads it: its scripts, and the lines that submit them.

The page is where the scripts are: tests and benchmarks/foreign.py take them from there, as a reader
does, so that none of the three can drift from the others.
"""

import re
from dataclasses import dataclass

from tests.pages import blocks

PAGE = "docs/frameworks.md"
_NAME = re.compile(r"# (\w+\.py)\n")


@dataclass(frozen=True, kw_only=True, slots=True)
class Snippet:
    """One script of the page, and the command line that submits it."""

    name: str
    text: str
    submit: str


def read_page() -> dict[str, Snippet]:
    """Return the page's scripts by file name; the block after each is the line that submits it.

    Raises:
        ValueError: a script lacks the comment with its file's name, or the line.
    """
    found = list(blocks(PAGE))
    snippets: dict[str, Snippet] = {}
    for block, after in zip(found, [*found[1:], None], strict=True):
        if block.language != "python":
            continue
        name = _NAME.match(block.text)
        line = after.text.strip() if after and after.language == "sh" else ""
        if name is None or f" {name[1]} " not in line or name[1] in snippets or "\n" in line:
            raise ValueError(f"{PAGE}:{block.line}: no name of its own, or no line that submits it")
        snippets[name[1]] = Snippet(name=name[1], text=block.text, submit=line)
    return snippets
