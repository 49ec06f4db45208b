"""What a shell's completion is told."""

import importlib.util
from pathlib import Path

import pytest

from hpckit.api.names import offers
from hpckit.cli.completing import FILES, answer, complete, split_line
from hpckit.group_report.totals import KINDS
from hpckit.run_folders.index import add_to_index
from hpckit.run_folders.ranks import write_rank
from hpckit.schedulers.base import AUTO
from tests.conftest import write_files
from tests.unit.made import make_run, rank

WORKLOAD = """\
description: d
strategy: serial
script: w.py
parameters:
  size: {type: int, default: 1, help: "How large;\\nor how small"}
  kind: {type: str, default: a, choices: [a, "b c", "$(touch x)", "d;e"], help: h}
"""


def words(*typed: str) -> list[str] | None:
    found = complete(typed)
    return None if found is None else [word for word, _ in found]


def test_the_words_are_those_of_the_commands() -> None:
    place = Path(__file__).parents[2] / "docs" / "make_words.py"
    spec = importlib.util.spec_from_file_location("make_words", place)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.PAGE.read_text() == module.words(), "run: make docs"


def test_words_that_are_written_twice_are_the_same() -> None:
    """Those of `report --by` are not loaded for a Tab key: that would take as long again."""
    assert [word for word, _ in offers("by")] == list(KINDS)
    assert [word for word, _ in offers("executor")] == ["auto", *AUTO]


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        (("sta",), ["status", "stats"]),
        (("workloads", ""), ["list", "show"]),
        (("sites", "show", "peri"), []),
        (("sites", "show", "perl"), ["perlmutter"]),
        (("submit", "dd"), ["ddp"]),
        (("submit", "ddp", "--launcher", ""), ["srun", "torchrun", "mpirun"]),
        (("submit", "ddp", "--launcher=to"), ["--launcher=torchrun"]),
        (("submit", "--site", "alv"), ["alvis"]),
        (("submit", "ddp", "--nod"), ["--nodes"]),
        (("submit", "ddp", "--nodes", ""), []),
        (("submit", "ddp", "--set", "ep"), ["epochs="]),
        (("submit", "--gpus", "4", "ddp", "--set", "ep"), ["epochs="]),
        (("submit", "ddp", ""), None),  # a program: files
        (("submit", "ddp", "t.py", "--", "--lr"), None),
        (("stats", "1", "--html", ""), None),
        (("nonsense", ""), []),
        (("submit", "serial", "--set", ""), []),
    ],
)
def test_a_place_on_the_line_has_its_words(
    here: Path, typed: tuple[str, ...], found: list[str] | None
) -> None:
    got = words(*typed)
    assert (got and sorted(got)) == (found and sorted(found))


def test_only_words_that_need_no_quotes_are_offered(here: Path) -> None:
    write_files(here, {"workloads/w/workload.yaml": WORKLOAD, "workloads/w/w.py": ""})
    assert words("submit", "w", "--set", "") == ["size=", "kind=", "kind=a"]
    notes = dict(complete(("submit", "w", "--set", "size")) or [])
    assert notes == {"size=": "How large; or how small (default 1)"}


def test_runs_come_newest_first_with_what_their_folders_know(here: Path) -> None:
    planned = make_run(here, "one-1").record["plan"]["ranks"]
    for number, end in enumerate(
        ({"ended": 12.0, "exit_code": 0}, {"ended": 12.0, "exit_code": 1})
    ):
        run = make_run(here / "more", f"more-{number}", job_id=f"{20 + number}")
        for index in range(planned):
            write_rank(run.dir, rank(index, **end))
        add_to_index([run])
    add_to_index([make_run(here / "last", "last-1", job_id="30")])
    found = dict(complete(("status", "")) or [])
    assert list(found) == ["30", "21", "20", "latest"]
    assert found["30"].startswith("last-1 not over, ")
    assert found["21"].startswith("more-1 FAILED, ")
    assert found["20"].startswith("more-0 COMPLETED, ")


def test_the_tasks_of_a_long_array_leave_other_jobs_their_places(here: Path) -> None:
    add_to_index([make_run(here, "old-1", job_id="7"), make_run(here, "old-2", job_id="8")])
    tasks = [
        make_run(here, f"sweep-1_{n}", job_id=f"9_{n}", array={"job_id": "9", "index": n})
        for n in range(60)
    ]
    add_to_index(tasks)
    found = dict(complete(("status", "")) or [])
    assert list(found)[:2] == ["9", "9_59"]
    assert list(found)[-3:] == ["8", "7", "latest"]
    assert len(found) == 1 + 40 + 3
    assert found["9"] == "sweep-1, an array"


def test_a_wrong_file_offers_nothing(here: Path) -> None:
    write_files(here, {"workloads/w/workload.yaml": "{", "workloads/w/w.py": ""})
    assert words("submit", "w", "--set", "") == []


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("hpckit submit ", ["submit", ""]),
        ("hpckit submit 'a b", ["submit", "a b"]),
        ('hpckit submit "a b" --x', ["submit", "a b", "--x"]),
        ("hpckit", []),
    ],
)
def test_a_line_is_split_as_a_shell_would(line: str, found: list[str]) -> None:
    assert split_line(line) == found


def test_each_shell_gets_its_lines(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert answer("bash", ["hpckit submit --site=alv", "alv"]) == 0
    assert capfd.readouterr().out == "alvis\n"
    assert answer("bash", ["hpckit submit --site=", "="]) == 0
    assert "alvis\n" in capfd.readouterr().out
    assert answer("zsh", ["workloads", "li"]) == 0
    assert capfd.readouterr().out.startswith("list:")
    assert answer("fish", ["workloads", "li"]) == 0
    assert capfd.readouterr().out.startswith("list\t")
    assert answer("fish", ["submit", "ddp", "t"]) == FILES
