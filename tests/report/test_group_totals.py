"""Sums over attempts for `hpckit report`: what counts where, and once."""

import time
from dataclasses import replace

import pytest

from hpckit.group_report.result import wasteful_job
from hpckit.group_report.totals import grouped, most_wasteful, total
from hpckit.slurm.states import JobState
from tests.report.groups import HOUR, use


@pytest.mark.parametrize("kind", ["day", "week", "month"])
def test_a_job_over_midnight_counts_on_both_sides(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setenv("TZ", "Europe/Stockholm")
    time.tzset()
    try:
        # From a Friday noon to a Monday noon, over the night in which clocks go back an hour.
        begin = time.mktime((2026, 10, 23, 12, 0, 0, 0, 0, -1))
        end = time.mktime((2026, 10, 26, 12, 0, 0, 0, 0, -1))
        found = grouped([use(begin, end, 50)], kind)
    finally:
        monkeypatch.undo()
        time.tzset()
    hours = {name: one.gpu_hours for name, one in found.items()}
    if kind == "day":
        assert hours == {
            "2026-10-23": 12, "2026-10-24": 24, "2026-10-25": 25, "2026-10-26": 12,
        }  # fmt: skip
    elif kind == "week":
        assert hours == {"2026-W43": 12 + 24 + 25, "2026-W44": 12}
    else:
        assert hours == {"2026-10": 73}
    assert [one.wait_median_s for one in found.values()][1:] == [None] * (len(found) - 1)
    assert sum(one.energy_kwh or 0 for one in found.values()) == pytest.approx(1)


DAY = 24 * HOUR
# Of a day, wherever this runs: days of a report are local ones.
MIDNIGHT = time.mktime((2026, 1, 11, 0, 0, 0, 0, 0, -1))


def test_a_job_over_the_end_of_a_month_counts_in_both() -> None:
    begin = time.mktime((2026, 2, 28, 22, 0, 0, 0, 0, -1))
    found = grouped([use(begin, begin + 3 * HOUR)], "month")
    assert {name: one.gpu_hours for name, one in found.items()} == {"2026-02": 2, "2026-03": 1}


def test_suspended_time_is_spread_evenly_over_days() -> None:
    one = use(MIDNIGHT + 0.5 * DAY, MIDNIGHT + 2 * DAY, suspended_s=0.5 * DAY)
    found = grouped([one], "day").values()
    assert [one.gpu_hours for one in found] == [pytest.approx(8), pytest.approx(16)]


def test_what_was_asked_for_counts_once_where_an_attempt_ended() -> None:
    over_midnight = use(MIDNIGHT + 0.5 * DAY, MIDNIGHT + 2.5 * DAY, limit_s=3 * DAY)
    one_day = use(MIDNIGHT + 1.25 * DAY, MIDNIGHT + 1.5 * DAY, limit_s=DAY)
    ended_later = use(MIDNIGHT + DAY, MIDNIGHT + 1.5 * DAY, limit_s=DAY)
    ended_later = replace(ended_later, row=replace(ended_later.row, end=MIDNIGHT + 10 * DAY))
    uses = [over_midnight, one_day, ended_later]
    of_days = grouped(uses, "day").values()
    assert [(one.gpu_hours_asked, one.gpu_hours_ended) for one in of_days] == [
        (0, 0), (24, 6), (72, 48),
    ]  # fmt: skip
    whole = total(uses)
    assert (whole.gpu_hours_asked, whole.gpu_hours_ended) == (96, 54)


def test_attempts_of_a_job_are_one_job_whose_last_end_counts() -> None:
    first = use(0, HOUR, None, state=JobState.NODE_FAIL)
    second = use(2 * HOUR, 4 * HOUR, 75.0)
    whole = total([second, first])
    assert (whole.jobs, whole.failed_jobs, whole.gpu_hours) == (1, 0, 3)
    assert (whole.gpu_hours_failed, whole.gpu_hours_unused) == (1, 0.5)
    ((last, all_of_it, wasted),) = most_wasteful([second, first], 5)
    assert (last, all_of_it, wasted) == (second, whole, 1.5)


@pytest.mark.parametrize(
    ("before", "used"),
    [
        (20.0, 35.0),  # 6 h at 20 %, 2 h at 80 %
        (None, None),  # of a quarter of the hours
    ],
)
def test_a_wasteful_jobs_utilization_is_that_of_the_hours_beside_it(
    before: float | None, used: float | None
) -> None:
    attempts = [use(0, 6 * HOUR, before, state=JobState.NODE_FAIL), use(7 * HOUR, 9 * HOUR, 80.0)]
    job = wasteful_job(*most_wasteful(attempts, 1)[0])
    assert (job.state, job.gpu_hours, job.gpu_hours_wasted) == ("COMPLETED", 8, 6.4)
    assert job.utilization_percent == (None if used is None else pytest.approx(used))


def test_an_attempt_of_which_little_is_unknown_leaves_the_job_known() -> None:
    attempts = [use(0, HOUR, None, state=JobState.NODE_FAIL), use(2 * HOUR, 8 * HOUR, 75.0)]
    assert wasteful_job(*most_wasteful(attempts, 1)[0]).utilization_percent == 75
