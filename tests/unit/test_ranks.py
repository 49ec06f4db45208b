from pathlib import Path

import pytest

from hpckit.ranks import first_failure, read_attempts, read_ranks, write_rank
from tests.unit.made import rank


def folder(tmp_path: Path) -> Path:
    (tmp_path / "ranks").mkdir()
    return tmp_path


def test_a_ranks_file_holds_one_entry_per_restart(tmp_path: Path) -> None:
    run = folder(tmp_path)
    write_rank(run, rank(0))
    write_rank(run, rank(0, exit_code=1, ended=11.0))
    write_rank(run, rank(0, restart=1))
    attempts = read_attempts(run / "ranks" / "0.json")
    assert [(row.restart, row.exit_code) for row in attempts] == [(0, 1), (1, None)]
    assert not [path for path in (run / "ranks").iterdir() if path.name.startswith(".")]


def test_the_newest_attempt_counts_and_ranks_come_in_order(tmp_path: Path) -> None:
    run = folder(tmp_path)
    for number in (10, 9, 2):
        write_rank(run, rank(number))
    assert [row.rank for row in read_ranks(run)] == [2, 9, 10]
    write_rank(run, rank(9, restart=1))
    assert [(row.rank, row.restart) for row in read_ranks(run)] == [(9, 1)]


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "{}", '{"attempts": 5}', '{"attempts": [5, null]}', '{"attempts": [{}]}',
     '{"attempts": [{"rank": 0, "colour": "red"}]}'],
)  # fmt: skip
def test_a_damaged_file_is_a_rank_that_says_nothing(tmp_path: Path, text: str) -> None:
    run = folder(tmp_path)
    (run / "ranks" / "0.json").write_text(text)
    write_rank(run, rank(1))
    assert [row.rank for row in read_ranks(run)] == [1]
    write_rank(run, rank(0))
    assert [row.rank for row in read_ranks(run)] == [0, 1]


def test_a_run_that_has_not_begun_has_no_ranks(tmp_path: Path) -> None:
    assert read_ranks(tmp_path) == []


def test_the_first_failure_is_the_earliest_own_one() -> None:
    late = rank(0, exit_code=1, ended=30.0)
    early = rank(3, exit_code=2, ended=20.0)
    stopped = rank(1, exit_code=143, ended=15.0, consequence=True)
    good = rank(2, exit_code=0, ended=5.0)
    running = rank(4)
    assert first_failure([late, stopped, early, good, running]) is early
    assert first_failure([stopped, good]) is stopped
    assert first_failure([good, running]) is None
