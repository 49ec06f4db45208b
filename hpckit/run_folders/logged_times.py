"""The moments in `metrics.jsonl`: which of them can be of the run.

Scripts of one's own write seconds since their start, milliseconds, or a local time taken for UTC.
Drawn or counted, such a `time` would spoil all others.
"""

import json
from collections.abc import Iterable, Sequence
from time import time
from typing import Any

from hpckit.files import DamagedFileError
from hpckit.frozen import frozen
from hpckit.run_folders.ranks import AttemptTimes
from hpckit.text import counted, cut
from hpckit.values import Moment, check

TIME = "time"
# Clocks of nodes differ by less, and time zones by more.
_MARGIN_S = 1800.0
_SHOWN = 40


@frozen(kw_only=True)
class Lifetime:
    """When a run's lines can have been written, in epoch seconds; clocks may differ a little."""

    since: float
    until: float

    def has(self, moment: float) -> bool:
        """Say whether a line can be of this moment."""
        return self.since - _MARGIN_S <= moment <= self.until + _MARGIN_S


@frozen(kw_only=True)
class OddTimes:
    """Lines whose `time` cannot be of their run: how many, and the first one's as JSON."""

    count: int
    first: str

    def text(self, consequence: str, *, newest: bool = False) -> str:
        """Say so, in one piece; the words are those of `sentences`."""
        return " ".join(self.sentences(consequence, newest=newest))

    def sentences(self, consequence: str, *, newest: bool = False) -> tuple[str, str]:
        """Say so, and what is right.

        `consequence` is what the lines are not: `drawn`. `newest`: no others were read.
        """
        one = self.count == 1
        lines = f"{self.count} of the newest lines" if newest else counted(self.count, "line")
        return (
            f'{lines} of metrics.jsonl {"has" if one else "have"} a "{TIME}" '
            f"that cannot be of the run ({'' if one else 'first '}{self.first}), so "
            f"{'it is' if one else 'they are'} not {consequence}.",
            f'"{TIME}" must be seconds since 1970-01-01, as time.time() gives.',
        )


def lifetime(submitted_at: float, attempts: Iterable[AttemptTimes] = ()) -> Lifetime:
    """Return a run's, from its submission until now where nothing more is known.

    Args:
        submitted_at: epoch seconds.
        attempts: number, start and end of each, by the ranks' records; also several of one attempt.
            An end of None is not known.
    """
    rows = list(attempts)
    newest = max((number for number, *_ in rows), default=0)
    ends = [end for number, _, end in rows if number == newest]
    known = [end for end in ends if end is not None]
    over = bool(known) and len(known) == len(ends)
    # Where the first attempt's records are gone, it may have logged nevertheless.
    whole = any(number == 0 for number, *_ in rows)
    return Lifetime(
        since=min(start for _, start, _ in rows) if whole else submitted_at,
        until=max(known) if over else time(),
    )


def without_odd_times(
    rows: Sequence[dict[str, Any]], life: Lifetime
) -> tuple[list[dict[str, Any]], OddTimes | None]:
    """Return the rows, those whose `time` cannot be of the run without it; and what they had."""
    found, odd = list(rows), []
    for at, row in enumerate(found):
        given = row.get(TIME)
        if given is None or _is_of(given, life):
            continue
        odd.append(given)
        found[at] = {name: value for name, value in row.items() if name != TIME}
    if not odd:
        return found, None
    return found, OddTimes(count=len(odd), first=cut(json.dumps(odd[0]), _SHOWN))


def _is_of(given: object, life: Lifetime) -> bool:
    try:
        moment: float = check(Moment, given, TIME)
    except DamagedFileError:
        return False
    return life.has(moment)
