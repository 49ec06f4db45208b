import json
from pathlib import Path
from typing import Any

import pytest

from hpckit.run_folders import metrics
from hpckit.run_folders.logged_times import Lifetime
from hpckit.run_folders.metrics import Progress, counted_rows, rows_again, split_attempts, tail_rows

START = 1_790_000_000.0
LIFE = Lifetime(since=START, until=START + 3600)


def read_progress(run: Path) -> Progress | None:
    return metrics.read_progress(run, LIFE)


def write(tmp_path: Path, *rows: dict[str, Any], torn: str = "") -> Path:
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (tmp_path / "metrics.jsonl").write_text(lines + torn)
    return tmp_path


def test_progress_is_read_from_the_last_rows(tmp_path: Path) -> None:
    rows = [{"step": step, "time": START + step, "loss": 1 / step} for step in (1, 2, 10)]
    run = write(tmp_path, {"total_steps": 20, "epochs": 2}, *rows, {"epoch": 1}, torn='{"step": 11')
    found = read_progress(run)
    assert found is not None
    assert (found.step, found.total_steps, found.epoch, found.loss) == (10, 20, 1, 0.1)
    assert found.steps_per_s == 1.0
    assert found.seconds_left == 10.0


@pytest.mark.parametrize(
    "rows", [[], [{"loss": 1}], [{"step": "x"}], [{"step": None}]], ids=lambda rows: str(rows)
)
def test_without_steps_there_is_no_progress(tmp_path: Path, rows: list) -> None:
    assert read_progress(write(tmp_path, *rows)) is None
    assert read_progress(tmp_path / "gone") is None


def test_whole_numbers_may_be_written_as_fractions(tmp_path: Path) -> None:
    rows = [{"step": 4.0, "total_steps": 12.0, "epoch": 1.0, "epochs": 3.0}, {"step": 4.5}]
    found = read_progress(write(tmp_path, *rows, {"step": 1e308}, {"epochs": float("inf")}))
    assert found is not None
    assert found.text() == "step 4/12 epoch 1/3"


def test_what_cannot_be_told_is_none(tmp_path: Path) -> None:
    found = read_progress(write(tmp_path, {"step": 1}, {"step": 2, "time": START + 5}))
    assert found == Progress(step=2)
    assert found.seconds_left is None


def test_steps_that_went_back_after_a_restart_give_no_rate(tmp_path: Path) -> None:
    found = read_progress(
        write(tmp_path, {"step": 9, "time": START}, {"step": 2, "time": START + 5})
    )
    assert found is not None
    assert found.steps_per_s is None


def test_only_the_tail_of_a_long_file_is_read(tmp_path: Path) -> None:
    run = write(tmp_path, *({"step": step, "pad": "x" * 100} for step in range(5000)))
    rows = tail_rows(run / "metrics.jsonl")
    assert len(rows) < 500
    assert rows[-1]["step"] == 4999


def test_rows_that_are_no_objects_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "m").write_bytes(b'[1]\nnull\n\xff\n{"step": 3}\n')
    assert tail_rows(tmp_path / "m") == [{"step": 3}]


def test_progress_reads_as_one_line() -> None:
    found = Progress(
        step=5, total_steps=10, epoch=1, epochs=2, loss=0.12345, samples_per_s=1234.5, steps_per_s=1
    )
    text = "step 5/10 epoch 1/2 loss 0.1235 1,234 samples/s 5 s left"
    assert found.text() == text
    assert found.text(over=True) == text.removesuffix(" 5 s left")
    assert Progress(step=5, samples_per_s=0.25).text() == "step 5 0.25 samples/s"


def test_scripts_of_ones_own_are_told_by_a_step_that_goes_back(tmp_path: Path) -> None:
    rows = [
        {"step": step, "time": START + 10.0 * at} for at, step in enumerate((1, 2, 3, 4, 3, 4, 5))
    ]
    assert [len(part) for part in split_attempts(rows)] == [4, 3]
    again = [(row["step"], was) for row, was in rows_again(rows)]
    assert again == [
        (1, False),
        (2, False),
        (3, True),
        (4, True),
        (3, False),
        (4, False),
        (5, False),
    ]
    found = read_progress(write(tmp_path, *rows))
    assert found is not None
    assert found.steps_per_s == 0.1  # of its newest attempt
    assert counted_rows([{"note": 1}, *rows])[0] == {"note": 1}


def test_steps_that_are_counted_in_each_epoch_are_not_taken_again() -> None:
    """All epochs but the last were missing in `run.metrics()`."""

    def epoch(number: int, *steps: int) -> list[dict[str, int]]:
        return [{"epoch": number, "step": step} for step in steps]

    rows = [*epoch(1, 0, 1, 2), {"step": 2, "val": 1}, *epoch(2, 0, 1, 2), *epoch(3, 0, 1)]
    assert counted_rows(rows) == rows
    assert counted_rows([*rows, {"note": 1}]) == [*rows, {"note": 1}]
    # One that goes on from a checkpoint after the first epoch.
    again = epoch(2, 0, 1, 2)
    assert counted_rows([*rows, *again]) == [*rows[:4], *again]
    again = epoch(2, 2)
    assert counted_rows([*rows, *again]) == [*rows[:6], *again]
    # Steps of all the training, of which an epoch is the part that is done.
    rows = [{"epoch": step / 4, "step": step} for step in (1, 2, 3, 4, 3, 4, 5)]
    assert counted_rows(rows) == [*rows[:2], *rows[4:]]


@pytest.mark.parametrize(
    ("epoch", "text"),
    [
        (1 / 3, "0.33"), (2, "2"), (2.0, "2"), (2.5, "2.5"), (0, "0"), (0.999, "1"), (-0.001, "0"),
        (10, "10"), (1e308, "1e+308"),
    ],
)  # fmt: skip
def test_epochs_have_two_decimals_at_most(epoch: float, text: str) -> None:
    assert Progress(step=1, epoch=epoch, epochs=3).text() == f"step 1 epoch {text}/3"


def test_no_figure_fills_the_line() -> None:
    found = Progress(step=1, samples_per_s=1e308, test_accuracy=-1e308)
    assert found.text() == "step 1 held-out accuracy -1e+308 1e+308 samples/s"
