"""What pages show of the files that people write is taken by the strict readers."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.pages import PAGES, Block, blocks
from tests.unit.test_schemas import read_text

# Of each page, what its blocks are parts of. None: a comment, another program's file, or a part of
# a rule (tests/advice/test_docs.py reads the whole one).
KINDS: dict[str, tuple[str | None, ...]] = {
    "docs/advice.md": ("site", None, None),
    "docs/bad-nodes.md": ("config", "site"),
    "docs/code.md": ("collection",),
    "docs/collections.md": (None, None, "workload"),
    "docs/environments.md": ("site", "site"),
    "docs/new-cluster.md": ("site",),
    "docs/notify.md": ("config",),
    "docs/programs.md": ("workload",),
    "docs/report.md": ("site", "site"),
    "docs/sites.md": ("site", "site"),
    "docs/sources.md": ("site", "site"),
}
# The keys that such a file must have, and what `sources:` of docs/sites.md speaks of.
REST: dict[str, dict[str, Any]] = {
    "site": {"description": "d", "gpus": {"per_node": 4}, "partitions": {"gpu": {}}},
    "collection": {"name": "lab", "description": "d", "contact": "c", "url": "u"},
}


def shown(page: str) -> list[Block]:
    return [block for block in blocks(page) if block.language == "yaml"]


def test_all_of_them_are_read() -> None:
    assert {page: len(shown(page)) for page in PAGES if shown(page)} == {
        page: len(kinds) for page, kinds in KINDS.items()
    }


@pytest.mark.parametrize("page", KINDS)
def test_a_block_is_part_of_a_file_that_hpckit_reads(page: str, tmp_path: Path) -> None:
    for kind, block in zip(KINDS[page], shown(page), strict=True):
        if kind is None:
            continue
        text = block.text.replace("/…", "/x")  # a place for a secret
        given = yaml.safe_load(text)
        rest = {key: value for key, value in REST.get(kind, {}).items() if key not in given}
        for name in ("program", "script"):
            (tmp_path / given.get(name, "s.py")).write_text("")
        read_text(kind, f"{yaml.safe_dump(rest) if rest else ''}{text}", tmp_path)
