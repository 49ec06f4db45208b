import pytest

from hpckit.units import parse_duration_s, parse_limit_min, parse_moment


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0:02", 2),
        ("12:34", 754),
        ("1:00:00", 3600),
        ("1-02:03:04", 93784),
        ("2-00", 172800),
        ("2-01:30", 178200),
        ("30", 1800),
        ("00:00:01.500", 1),
        ("UNLIMITED", None),
        ("Partition_Limit", None),
        ("NOT_SET", None),
        ("INVALID", None),
        ("", None),
    ],
)
def test_durations_are_seconds(text: str, seconds: int | None) -> None:
    assert parse_duration_s(text) == seconds


def test_a_limit_is_in_minutes_rounded_up() -> None:
    assert parse_limit_min("02:30:30") == 151
    assert parse_limit_min("UNLIMITED") is None


@pytest.mark.parametrize("text", ["Unknown", "None", "N/A", "", "0", "2026-13-45T99:00:00"])
def test_a_moment_not_known_is_none(text: str) -> None:
    assert parse_moment(text) is None


def test_a_moment_is_epoch_seconds_in_both_of_slurms_forms(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert parse_moment("1795232854") == 1795232854.0
    local = parse_moment("2026-11-21T03:47:34")
    assert local is not None
    assert abs(local - 1795232854) <= 14 * 3600
