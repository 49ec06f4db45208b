"""`run.state` in a loop over many runs: Slurm is asked once for all, not once for each.

The first run that is asked for is asked for alone. When another of the same list follows at once, a
program is going through the list: then those that come after it are asked for, too, and each gets
its answer when it is read, if that is soon. Each answer serves one reading, so who waits for a
change by reading again and again always sees a new one.
"""

import time
from itertools import islice
from typing import TYPE_CHECKING

from hpckit.api.run import Run, status_of

if TYPE_CHECKING:
    from hpckit.submission.states import RunStatus

# How old an answer may be, and for how many runs one question is.
FRESH_S, MOST = 2.0, 500


def status_in_turn(run: Run) -> "RunStatus":
    """Return what became of a run: Slurm's word of this moment, or of at most 2 s ago."""
    if run._ended is not None:
        return run._ended
    answer, run._answer = run._answer, None
    if answer and time.monotonic() - answer[0] < FRESH_S:
        return answer[1]
    asked = [run, *_following(run)]
    found = status_of(asked)
    moment = time.monotonic()
    for row, status in zip(asked[1:], found[1:], strict=True):
        row._answer = (moment, status)
    if run._beside is not None:
        run._beside.read = (moment, run)
    return found[0]


def _following(run: Run) -> list[Run]:
    """Return the runs that are going to be asked for, if a program is going through a list."""
    beside = run._beside
    if beside is None or beside.read is None:
        return []
    moment, before = beside.read
    if before is run or time.monotonic() - moment > FRESH_S:
        return []
    rows = iter(beside)
    if not any(row is run for row in rows):
        return []
    return list(islice((row for row in rows if row._ended is None), MOST))
