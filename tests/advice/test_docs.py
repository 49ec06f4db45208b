"""docs/advice.md tells what there is: its lists are compared with the program, or written anew.

HPCKIT_UPDATE_GOLDEN=1 pytest tests/advice/test_docs.py
"""

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from hpckit.collections import Collection, builtin_folder
from hpckit.stats.advice.engine import advise
from hpckit.stats.advice.functions import FUNCTIONS
from hpckit.stats.advice.loading import load_rules
from hpckit.stats.advice.namespace import names_for
from tests.advice.made import RULES, gpu, job
from tests.conftest import write_files

PAGE = builtin_folder() / "docs" / "advice.md"


def rules_table() -> Iterator[str]:
    yield "| rule | | for each | severities | thresholds |"
    yield "|---|---|---|---|---|"
    for rule in RULES:
        levels = ", ".join(rule.levels)
        values = ", ".join(f"{name} {text(value)}" for name, value in rule.variables.items())
        yield f"| `{rule.id}` | {rule.title} | {rule.for_each} | {levels} | {values} |"


def text(value: object) -> str:
    return f"[{', '.join(map(str, value))}]" if isinstance(value, tuple) else str(value)


def functions_table() -> Iterator[str]:
    yield "| function | gives |"
    yield "|---|---|"
    for name, function in FUNCTIONS.items():
        arguments = ["x", "y"][: len(function.takes)] + ["…"] * function.repeats
        yield f"| `{name}({', '.join(arguments)})` | {function.says} |"


def names_list() -> Iterator[str]:
    for name, row in names_for("gpu").items():
        yield f"- **{name}**: {', '.join(flat(row))}"


def flat(row: Mapping[str, object], before: str = "") -> Iterator[str]:
    for name, kind in row.items():
        if isinstance(kind, Mapping):
            yield from flat(kind, f"{before}{name}.")
        else:
            yield f"`{before}{name}`" + ("" if kind == "number" else f" ({kind})")


@pytest.mark.parametrize(
    ("part", "lines"),
    [("rules", rules_table), ("functions", functions_table), ("names", names_list)],
)
def test_the_page_lists_what_there_is(part: str, lines) -> None:
    page = PAGE.read_text(encoding="utf-8")
    begin = re.search(rf"<!-- {part}: .* -->\n", page)
    assert begin
    end = page.index("<!-- end -->", begin.end())
    expected = "\n".join(lines()) + "\n"
    if os.environ.get("HPCKIT_UPDATE_GOLDEN"):
        PAGE.write_text(page[: begin.end()] + expected + page[end:], encoding="utf-8")
    else:
        assert page[begin.end() : end] == expected, "HPCKIT_UPDATE_GOLDEN=1 writes it anew"


@pytest.mark.long
def test_the_rule_of_the_page_is_one(tmp_path: Path) -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    rule = next(block for block in blocks if block.startswith("title:"))
    rule = rule.replace("silences: [low-gpu-utilization]", "silences: []")
    write_files(tmp_path, {"templates/advice/throttling.yaml": rule})
    rules = load_rules((Collection(name="lab", path=tmp_path, origin="group"),))
    account = job(gpus=(gpu(throttled_percent=60.0, temperature_peak_c=95),))
    (item,) = advise(account, rules)
    assert item.severity == "red"
    assert item.evidence == "Highest temperature: 95 °C."
    assert item.lost_gpu_hours == pytest.approx(0.2)
