"""When a session is idle: the rules, pure. Times are seconds of CLOCK_BOOTTIME, the samples' clock.

Idle is what has been seen to be idle: a stretch without samples, or whose GPUs could not be read,
is unknown, and unknown never ends a session.
"""

import time
from enum import StrEnum

from hpckit.errors import RequestError
from hpckit.frozen import frozen
from hpckit.units import format_seconds, parse_seconds

# A warning comes so long before the end, or a quarter of the limit, if that is less.
_NOTICE_S = 300.0
# Samples further apart than this, or than so many of their intervals, leave a gap.
_PATIENCE_S, _INTERVALS = 60.0, 4


def now_s() -> float:
    """Return the time on the samples' clock."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def parse_idle(text: str | int | None, sample_interval_s: float) -> float | None:
    """Return the seconds of `--idle`; None where it was not given.

    Raises:
        RequestError: it is no duration, or nothing would be known of idleness.
    """
    if text is None:
        return None
    seconds = parse_seconds(str(text))
    if not seconds:
        raise RequestError(f"--idle {str(text)!r} is not a duration: write 30m, 1h30m or HH:MM:SS.")
    if not sample_interval_s:
        raise RequestError(
            f"--idle {text} needs the sampler's figures, and --sample-interval 0 switches the "
            "sampler off: leave one of the two out."
        )
    return float(seconds)


@frozen(kw_only=True)
class Reading:
    """What one sample says: whether the job did anything since the one before; None: unknown."""

    at_s: float
    busy: bool | None


class Stage(StrEnum):
    """What is to be done with a session."""

    USED = "used"  # or not idle for long
    WARNED = "warned"  # it ends soon, unless it is used
    OVER = "over"
    BLIND = "blind"  # there are no samples: nothing is known


class IdleJudge:
    """Says when a session has been idle for `limit_s` seconds, once that was said before.

    Attributes:
        notice_s: how long before its end it is warned.
    """

    def __init__(self, limit_s: float, *, began_s: float, interval_s: float) -> None:
        self.limit_s = limit_s
        self.notice_s = min(_NOTICE_S, limit_s / 4)
        self._patience_s = max(_PATIENCE_S, _INTERVALS * interval_s)
        self._since = self._last = began_s
        self._warned_at: float | None = None

    @property
    def idle_s(self) -> float:
        """For how long it has been seen to be idle."""
        return max(0.0, self._last - self._since)

    def used(self, at_s: float) -> None:
        """Take note that somebody used the session at this moment."""
        self._since = max(self._since, at_s)

    def sampled(self, reading: Reading) -> None:
        """Take note of a sample; they come in order."""
        gap = reading.at_s - self._last > self._patience_s
        if reading.busy is not False or gap:
            self._since = max(self._since, reading.at_s)
        self._last = max(self._last, reading.at_s)

    def stage(self, at_s: float) -> Stage:
        """Return what is to be done at this moment; a warning stands until the session is used."""
        if at_s - self._last > self._patience_s:
            self._warned_at = None
            return Stage.BLIND
        if self.idle_s < self.limit_s - self.notice_s:
            self._warned_at = None
            return Stage.USED
        if self._warned_at is None:
            self._warned_at = at_s
        told_in_time = at_s - self._warned_at >= self.notice_s
        return Stage.OVER if self.idle_s >= self.limit_s and told_in_time else Stage.WARNED


def warning(judge: IdleJudge) -> str:
    """Say that a session is about to end."""
    return (
        f"this session has been idle for {format_seconds(judge.idle_s)} (no key, no GPU or CPU in "
        f"use) and ends in about {format_seconds(judge.notice_s)} (--idle). Press any key, or run "
        "something, to keep it"
    )
