"""docs/sampler.md lists the metrics that there are, and type checkers know their figures.

HPCKIT_UPDATE_GOLDEN=1 pytest tests/stats/test_docs.py
"""

import os
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

from hpckit.collections import builtin_folder
from hpckit.stats.metric import figures, job_figures
from hpckit.stats.metric_table import GPU, NODE
from hpckit.stats.summary import figures as values

PAGE = builtin_folder() / "docs" / "sampler.md"
STUB = Path(values.__file__).with_name("of_table.pyi")
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


# What type checkers are told of, the value that has it, and its fields by the table.
OF_TABLE = {
    "GpuOfTable": (values.GpuUse, [*figures(GPU)]),
    "NodeOfTable": (values.NodeUse, [*figures(NODE)]),
    "JobOfTable": (values.Summary, [*job_figures(GPU), *job_figures(NODE)]),
}


def stub() -> Iterator[str]:
    yield "# Written by tests/stats/test_docs.py, of the rows of hpckit.stats.metric_table."
    yield "from dataclasses import dataclass"
    for name, (value, table) in OF_TABLE.items():
        own = value.__mro__[1].__annotations__
        yield f"\n@dataclass(frozen=True, kw_only=True)\nclass {name}:"
        yield from (
            f"    {row}: {of.__name__} | None = ..." for row, of, _ in table if row not in own
        )


def test_type_checkers_are_told_of_the_figures_that_the_table_makes() -> None:
    expected = "\n".join(stub()) + "\n"
    if os.environ.get("HPCKIT_UPDATE_GOLDEN"):
        STUB.write_text(expected, encoding="utf-8")
    else:
        assert STUB.read_text(encoding="utf-8") == expected, "HPCKIT_UPDATE_GOLDEN=1 writes it anew"


@pytest.mark.parametrize("name", OF_TABLE)
def test_what_type_checkers_are_told_is_there(name: str) -> None:
    value, table = OF_TABLE[name]
    assert {row for row, _, _ in table} <= {field.name for field in fields(value)}
