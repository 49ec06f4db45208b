"""Which times of `metrics.jsonl` are believed, and what is said of the others."""

import json
from pathlib import Path
from typing import Any

import pytest

from hpckit.live.model import JobNow, Line
from hpckit.live.texts import about
from hpckit.run_folders.logged_times import Lifetime, OddTimes, lifetime, without_odd_times
from hpckit.run_folders.metrics import read_progress
from hpckit.slurm.states import JobState

START = 1_790_000_000.0
LIFE = Lifetime(since=START, until=START + 600)
MUST = '"time" must be seconds since 1970-01-01, as time.time() gives.'


@pytest.mark.parametrize("given", [START, START + 600, START - 60, int(START), None])
def test_times_of_the_run_stay(given: object) -> None:
    rows = [{"step": 1, "time": given}, {"step": 2}]
    assert without_odd_times(rows, LIFE) == (rows, None)


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (12.5, "12.5"),
        (0, "0"),
        (-1.0, "-1.0"),
        (START * 1000, "1790000000000.0"),
        (START + 3600, "1790003600.0"),  # a local time that was taken for UTC
        (START - 3600, "1789996400.0"),
        (1e308, "1e+308"),
        (2**63, "9223372036854775808"),
        (10**400, "1" + 38 * "0" + "…"),
        (True, "true"),
        ("now. Or\x1b[31m", '"now. Or\\u001b[31m"'),
        ([START], "[1790000000.0]"),
        (float("nan"), "NaN"),
    ],
)
def test_others_are_counted_and_left_out(given: object, shown: str) -> None:
    rows: list[dict[str, Any]] = [{"step": 1, "time": given}, {"step": 2, "time": START}]
    found, odd = without_odd_times(rows, LIFE)
    assert found == [{"step": 1}, rows[1]]
    assert odd == OddTimes(count=1, first=shown)
    assert rows[0]["time"] is given
    assert odd.text("drawn") == (
        f'1 line of metrics.jsonl has a "time" that cannot be of the run ({shown}), so it is not '
        f"drawn. {MUST}"
    )


def test_the_life_of_a_run_is_that_of_its_ranks_as_far_as_they_tell() -> None:
    assert lifetime(START).since == START
    assert lifetime(START).until > 0
    two = [(0, START + 50, START + 60), (0, START + 51, START + 70), (1, START + 90, START + 99)]
    assert lifetime(START, two) == Lifetime(since=START + 50, until=START + 99)
    running = lifetime(START, [*two, (2, START + 120, None)])
    assert running.until > START + 120 or running.until == pytest.approx(lifetime(0).until, abs=60)
    # The first attempt's records are gone: it may have logged.
    assert lifetime(START, two[2:]) == Lifetime(since=START, until=START + 99)


@pytest.mark.parametrize("unit", [lambda at: float(at), lambda at: (START + at) * 1000])
def test_odd_times_give_no_rate_and_are_said_of_the_chosen_job(tmp_path: Path, unit: Any) -> None:
    rows = [{"step": at, "total_steps": 99, "loss": 0.5, "time": unit(at)} for at in range(10)]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = read_progress(tmp_path, LIFE)
    assert found is not None
    assert (found.step, found.steps_per_s, found.seconds_left) == (9, None, None)
    assert found.text() == "step 9/99 loss 0.5"
    job = JobNow(
        key="k", job_id="7", name="train", state=JobState.RUNNING, progress=found, folder="/runs/7"
    )
    head, progress, wrong, right, folder = about(Line(key="k", jobs=(job,)))
    assert (head, progress, folder) == ("7 train RUNNING", found.text(), "/runs/7")
    assert wrong == (
        '10 of the newest lines of metrics.jsonl have a "time" that cannot be of the run '
        f"(first {json.dumps(unit(0))}), so they are not timed."
    )
    assert right == MUST
