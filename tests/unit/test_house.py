"""No function grows past a screen or ten parameters; `make house` prints the other measures."""

import re
from collections import Counter
from pathlib import Path

import pytest

from tests.house import length, measures, parameters, read_house
from tests.pages import ROOT

# What is over a limit today. These may only get fewer.
LONGER: set[str] = set()
# Commands of the command line: a parameter for each option.
WIDER = {"jobs", "jupyter", "report", "resubmit", "scale", "stats", "submit"}
SMALL = """\
def add(a, /, b, *, c):
    'Add.'
    return a


class X:
    async def go(self): ...
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("measure", "most", "known"), [(length, 60, LONGER), (parameters, 10, WIDER)]
)
def test_no_function_is_past_its_limit(measure, most, known) -> None:
    found = {
        f"{path}::{each.name}" for path, each in read_house().functions if measure(each) > most
    }
    names = {row.rpartition("::")[2] for row in found}
    assert names <= known, sorted(found)
    assert known <= names, f"keeps the limit now: take {sorted(known - names)} off the list"


def test_measures_are_those_of_the_files(tmp_path: Path) -> None:
    package = tmp_path / "small"
    (package / "sub").mkdir(parents=True)
    (package / "one.py").write_text('"""Says\n\nmuch."""\n\n# why\nONE = 1\n')
    (package / "sub" / "one.py").write_text(SMALL)
    house = read_house(package)
    assert [(file.lines, file.code_lines) for file in house.files] == [(6, 1), (7, 4)]
    found = [(each.name, length(each), parameters(each)) for _, each in house.functions]
    assert found == [("add", 3, 3), ("go", 1, 1)]
    assert list(house.doubled_names()) == ["one.py"]
    assert "code lines      5" in list(measures(house))


def test_the_changelog_says_nothing_twice() -> None:
    """Whoever joins what several people added keeps both, also what one of them had moved."""
    text = (ROOT / "CHANGELOG.md").read_text()
    twice = [entry for entry, count in Counter(re.split(r"\n(?=- |\n)", text)).items() if count > 1]
    assert [entry for entry in twice if entry.startswith("- ")] == []


def test_what_contributing_says_to_make_can_be_made() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    told = set(re.findall(r"(?:^    |[`(])make (?:-s )?([a-z-]+)", text, re.M))
    made = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    assert {"fast", "test", "house", "slurm-up"} <= told <= made
