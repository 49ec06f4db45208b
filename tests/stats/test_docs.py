"""docs/sampler.md lists the metrics that there are.

HPCKIT_UPDATE_GOLDEN=1 pytest tests/stats/test_docs.py
"""

import os
from collections.abc import Iterator

from hpckit.collections import builtin_folder
from hpckit.stats.metric_table import GPU, NODE

PAGE = builtin_folder() / "docs" / "sampler.md"
BEGIN, END = "<!-- metrics: written by tests/stats/test_docs.py -->\n", "<!-- end -->"


def metrics_table() -> Iterator[str]:
    yield "| of | field | read | | source | figure |"
    yield "|---|---|---|---|---|---|"
    for of, rows in (("GPU", GPU), ("node", NODE)):
        for row in rows:
            often = "each sample" if row.bits else "each minute"
            figure = f"`{row.figure}`: {row.over_time}" if row.figure else ""
            yield f"| {of} | `{row.name}` | {often} | {row.says} | {row.source} | {figure} |"


def test_the_page_lists_the_metrics() -> None:
    page = PAGE.read_text(encoding="utf-8")
    begin = page.index(BEGIN) + len(BEGIN)
    end = page.index(END, begin)
    expected = "\n".join(metrics_table()) + "\n"
    if os.environ.get("HPCKIT_UPDATE_GOLDEN"):
        PAGE.write_text(page[:begin] + expected + page[end:], encoding="utf-8")
    else:
        assert page[begin:end] == expected, "HPCKIT_UPDATE_GOLDEN=1 writes it anew"
