import contextlib
import math
import time
from datetime import UTC, date, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpckit.errors import RequestError
from hpckit.units import format_minutes, format_seconds, parse_minutes, parse_past


@pytest.mark.parametrize(
    ("text", "minutes"),
    [
        ("90", 90),
        (90, 90),
        ("1h30m", 90),
        ("1H30M", 90),
        ("2d", 2880),
        ("1d2h3m4s", 1564),
        ("45min", 45),
        ("30s", 1),
        ("61s", 2),
        ("00:30:00", 30),
        ("12:00:00", 720),
        ("90:00", 90),
        ("0:30", 1),
        ("1-00", 1440),
        ("1-12:30", 2190),
        ("7-00:00:00", 10080),
        (" 15 ", 15),
    ],
)
def test_durations_mean_what_slurm_says_they_mean(text: str | int, minutes: int) -> None:
    assert parse_minutes(text) == minutes


@pytest.mark.parametrize(
    "text",
    ["", " ", "0", "00:00:00", "0s", "-5", "1.5", "1:2:3:4", "soon", "h", "1-", "-1:00", "1h 30m"],
)
def test_what_is_no_duration_is_refused_by_name(text: str) -> None:
    with pytest.raises(RequestError, match=r"is not a duration: write minutes \(90\)"):
        parse_minutes(text)


@given(st.integers(min_value=1, max_value=10**6))
def test_minutes_written_as_slurm_does_read_back_the_same(minutes: int) -> None:
    assert parse_minutes(format_minutes(minutes)) == minutes


@given(st.text(max_size=12))
def test_any_text_is_a_duration_or_an_error_of_ours(text: str) -> None:
    with contextlib.suppress(RequestError):
        assert parse_minutes(text) >= 1


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.4, "0 s"),
        (59.4, "59 s"),
        (59.6, "1 min 00 s"),
        (185, "3 min 05 s"),
        (7620, "2 h 07 min"),
        (273600, "3 d 04 h"),
    ],
)
def test_durations_are_written_for_people(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


@pytest.mark.parametrize(
    ("text", "ago_s"),
    [("12h", 43200), ("30d", 2592000), ("4w", 2419200), ("1h30m", 5400), ("2-00:00:00", 172800)],
)
def test_an_age_is_a_moment_in_the_past(text: str, ago_s: int) -> None:
    assert parse_past(text, 1e9) == 1e9 - ago_s
    assert parse_past(f" {text} ", 60) == 0


def test_pythons_own_times_are_ages_and_moments(monkeypatch: pytest.MonkeyPatch) -> None:
    assert parse_past(timedelta(days=7), 1e9) == parse_past("7d", 1e9)
    assert parse_past(timedelta(seconds=0.5), 1e9) == 1e9 - 0.5
    assert parse_past(timedelta.max, 1e9) == parse_past(timedelta(9**6), 1e9) == 0
    assert parse_past(datetime(2026, 11, 1, tzinfo=UTC), 0) == 1793491200
    noon = datetime(2026, 11, 1, 12)  # without a zone, as users write them
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert parse_past(noon, 0) == parse_past("2026-11-01T12:00", 0) == 1793502000
    finally:
        monkeypatch.undo()
        time.tzset()
    far = datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=12)))
    for wrong in (timedelta(seconds=-1), None, [noon]):
        with pytest.raises(RequestError, match=r"since .* is neither an age"):
            parse_past(wrong, 1e9)  # type: ignore[arg-type]
    assert parse_past(far, 1e9) < 0
    assert parse_past(date(2026, 11, 1), 0) == parse_past("2026-11-01", 0)


def test_a_day_begins_at_midnight_here() -> None:
    assert parse_past("2026-11-01", 0) == time.mktime((2026, 11, 1, 0, 0, 0, 0, 0, -1))
    assert parse_past("2026-11-01T08:30", 0) == time.mktime((2026, 11, 1, 8, 30, 0, 0, 0, -1))
    assert parse_past("2026-11-01T08:30:59", 0) == time.mktime((2026, 11, 1, 8, 30, 59, 0, 0, -1))
    for word in (
        "",
        "soon",
        "2026-11-01T8",
        "0d",
        "2026-11",
        "-3d",
        "30",
        "2026-02-30",
        "9" * 20 + "w",
        10**400,
        1e12,  # milliseconds, surely
        math.nan,
        True,
    ):
        with pytest.raises(RequestError, match=r"--since .* is neither an age"):
            parse_past(word, 1e9, "--since")
