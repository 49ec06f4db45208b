"""Blocks of the documentation, for the tests that type them."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")))
MARK = re.compile(r"<!-- not run: (.*) -->")


@dataclass(frozen=True)
class Block:
    """A fenced block: its page, first line, language, text; `not_run` is the page's own reason."""

    page: str
    line: int
    language: str
    text: str
    not_run: str


def blocks(page: str) -> Iterator[Block]:
    """Yield a page's fenced blocks in order."""
    lines = (ROOT / page).read_text(encoding="utf-8").splitlines()
    opened: int | None = None
    for number, line in enumerate(lines):
        if not line.startswith("```"):
            continue
        if opened is None:
            opened = number
            continue
        mark = MARK.fullmatch(lines[opened - 1])
        yield Block(
            page=page,
            line=opened + 2,
            language=lines[opened].removeprefix("```"),
            text="\n".join(lines[opened + 1 : number]) + "\n",
            not_run=mark[1] if mark else "",
        )
        opened = None
    assert opened is None, f"{page}:{(opened or 0) + 1}: a block that does not end"


def to_type(page: str) -> list[Block]:
    """Return a page's blocks for a shell, in order."""
    return [block for block in blocks(page) if block.language == "sh"]


def indented(page: str) -> Iterator[tuple[int, str]]:
    """Yield the lines of blocks that are only indented: Markdown gives them no language."""
    lines = (ROOT / page).read_text(encoding="utf-8").splitlines()
    fenced = False
    for number, line in enumerate(lines, 1):
        fenced ^= line.startswith("```")
        if not fenced and line.startswith("    "):
            yield number, line.strip()
