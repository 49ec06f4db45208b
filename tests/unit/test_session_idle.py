"""When a session is idle: what has been seen to be so, and was said before."""

import pytest

from hpckit.errors import RequestError
from hpckit.session.idle import IdleJudge, Reading, Stage, parse_idle


def judged(limit_s: float = 1800.0) -> IdleJudge:
    return IdleJudge(limit_s, began_s=1000.0, interval_s=10.0)


def see(judge: IdleJudge, first: float, last: float, busy: bool | None = False) -> Stage:
    """Take samples every 10 s, from `first` to `last`, and return the stage of each moment."""
    at_s, stage = first, Stage.USED
    while at_s <= last:
        judge.sampled(Reading(at_s=at_s, busy=busy))
        stage = judge.stage(at_s)
        at_s += 10.0
    return stage


def test_an_idle_session_is_warned_then_over() -> None:
    judge = judged()
    assert see(judge, 1010, 1000 + 1490) is Stage.USED
    assert see(judge, 2500, 2500) is Stage.WARNED
    assert see(judge, 2510, 2790) is Stage.WARNED
    assert see(judge, 2800, 2800) is Stage.OVER
    assert judge.idle_s == 1800


@pytest.mark.parametrize("use", ["key", "busy"])
def test_use_withdraws_a_warning_and_begins_anew(use: str) -> None:
    judge = judged()
    assert see(judge, 1010, 2600) is Stage.WARNED
    if use == "key":
        judge.used(2605)
    else:
        judge.sampled(Reading(at_s=2605, busy=True))
    assert judge.stage(2606) is Stage.USED
    assert see(judge, 2610, 4100) is Stage.USED
    assert see(judge, 4110, 4400) is Stage.WARNED
    assert see(judge, 4410, 4410) is Stage.OVER


def test_unknown_is_no_idleness() -> None:
    judge = judged()
    assert see(judge, 1010, 9000, busy=None) is Stage.USED
    assert judge.idle_s == 0


def test_a_gap_in_the_samples_begins_anew() -> None:
    judge = judged()
    assert see(judge, 1010, 2400) is Stage.USED
    assert see(judge, 2500, 2500) is Stage.USED  # nobody knows what was between
    assert judge.idle_s == 0


def test_without_samples_nothing_ends() -> None:
    judge = judged()
    assert see(judge, 1010, 2790) is Stage.WARNED
    assert judge.stage(2790 + 61) is Stage.BLIND
    assert judge.stage(9999) is Stage.BLIND
    # The sampler is there again: it was idle, as far as is known, from here on.
    assert see(judge, 10000, 10000) is Stage.USED


def test_the_notice_is_given_whole_also_where_samples_come_late() -> None:
    judge = judged()
    for at_s in range(1010, 2801, 10):
        judge.sampled(Reading(at_s=at_s, busy=False))
    assert judge.stage(2801) is Stage.WARNED
    assert see(judge, 2810, 3100) is Stage.WARNED
    assert judge.stage(3101) is Stage.OVER


def test_a_short_limit_is_warned_by_a_quarter() -> None:
    assert judged(8.0).notice_s == 2.0
    assert judged(7200.0).notice_s == 300.0


@pytest.mark.parametrize(
    ("text", "seconds"), [("30m", 1800), ("1h30m", 5400), ("90s", 90), (5, 300)]
)
def test_idle_is_a_duration(text, seconds) -> None:
    assert parse_idle(text, 10.0) == seconds
    assert parse_idle(None, 0.0) is None


@pytest.mark.parametrize("text", ["", "0", "soon", "1.5h", "-3"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(RequestError, match="--idle"):
        parse_idle(text, 10.0)


def test_idle_needs_the_sampler() -> None:
    with pytest.raises(RequestError, match="--sample-interval 0"):
        parse_idle("30m", 0.0)
