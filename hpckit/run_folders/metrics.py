"""What a script logged in `metrics.jsonl`: its progress, and the rows of all its attempts.

Rows are only ever added. An attempt that goes on from a checkpoint takes steps again that an
earlier one had logged, and says so first, in a row with `resumed`; scripts of one's own are told by
a step that goes back.
"""

import math
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, get_type_hints

from hpckit.errors import DamagedRunError
from hpckit.files import DamagedFileError, parse_json, read_tail
from hpckit.frozen import frozen
from hpckit.run_folders.logged_times import Lifetime, OddTimes, lifetime, without_odd_times
from hpckit.units import format_seconds
from hpckit.values import Count, Moment, check

METRICS = "metrics.jsonl"
# Which attempt wrote a row, and of a row without figures: that training goes on after its step.
RESTART, RESUMED = "restart", "resumed"
Row = dict[str, Any]
_Place = tuple[float, int]
_LONG = 1e12  # a number of so many digits is written with its power of ten
_FEW = 10.0  # below it, a speed has decimals
_TAIL_BYTES, _ALL_BYTES = 32_000, 64 * 2**20


@frozen(kw_only=True)
class Progress:
    """How far a script is. Rates come from the times in the file; None is what it does not say.

    `odd_times`: which of the newest lines have a `time` that cannot be of the run; None: none has.
    """

    step: Count
    total_steps: Count | None = None
    epoch: float | None = None
    epochs: Count | None = None
    loss: float | None = None
    samples_per_s: float | None = None
    steps_per_s: float | None = None
    test_accuracy: float | None = None
    odd_times: OddTimes | None = None

    @property
    def seconds_left(self) -> float | None:
        """Time left at the recent rate."""
        if not self.steps_per_s or self.total_steps is None:
            return None
        return max(self.total_steps - self.step, 0) / self.steps_per_s

    def text(self, *, over: bool = False) -> str:
        """Return it in words: `step 120/460 loss 0.31 1234 samples/s 12 s left`."""
        total = f"/{self.total_steps}" if self.total_steps else ""
        parts = [f"step {self.step}{total}"]
        if self.epoch is not None and self.epochs:
            parts.append(f"epoch {_short(self.epoch)}/{self.epochs}")
        if self.loss is not None:
            parts.append(f"loss {self.loss:.4g}")
        if self.test_accuracy is not None:
            parts.append(f"held-out accuracy {_fixed(self.test_accuracy, 3)}")
        if self.samples_per_s:
            few = self.samples_per_s < _FEW  # whole numbers would say 0
            parts.append(f"{_fixed(self.samples_per_s, 2 if few else 0)} samples/s")
        if self.seconds_left is not None and not over:
            parts.append(f"{format_seconds(self.seconds_left)} left")
        return " ".join(parts)


def _fixed(value: float, digits: int) -> str:
    """Write a number with so many decimals; one that would fill the line with its power of ten."""
    return f"{value:,.{digits}f}" if abs(value) < _LONG else f"{value:.4g}"


def _short(value: float) -> str:
    """Write a number with two decimals at most, and a whole one as such: 0.33, 2."""
    if abs(value) >= _LONG:
        return f"{value:.4g}"
    return f"{round(value, 2) + 0.0:.2f}".rstrip("0").rstrip(".")


_COUNTS = ("step", "total_steps", "epochs")
# What a row says of these is taken from the newest row that says it, in its own type.
_NEWEST = ("total_steps", "epoch", "epochs", "loss", "samples_per_s", "test_accuracy")


@cache
def _hints() -> dict[str, Any]:
    return get_type_hints(Progress, include_extras=True) | {"time": Moment}


def read_progress(run_dir: Path, life: Lifetime | None = None) -> Progress | None:
    """Return the progress of a run; None when nothing has been logged.

    `life`: when its lines can have been written; None: at any time until now.

    Raises:
        DamagedFileError: the file is no regular file.
    """
    rows, odd = without_odd_times(tail_rows(run_dir / METRICS), life or lifetime(0.0))
    steps = [row for row in rows if _is(row, "step")]
    if not steps:
        return None
    counted = [row for row, again in rows_again(rows) if not again]
    known = {name: _last(counted, name) for name in _NEWEST}
    newest = [row for row in split_attempts(steps)[-1] if not row.get(RESUMED)]
    return Progress(step=steps[-1]["step"], steps_per_s=_rate(newest), odd_times=odd, **known)


def progress_of(run_dir: Path, submitted_at: float) -> Progress | None:
    """Return the same of a run at hand.

    Raises:
        DamagedRunError: the file is not one.
    """
    try:
        return read_progress(run_dir, lifetime(submitted_at))
    except DamagedFileError as error:
        raise DamagedRunError(f"{METRICS}: {error}") from error


def split_attempts(rows: Sequence[Row]) -> list[list[Row]]:
    """Return the rows of each attempt, in the file's order."""
    found: list[list[Row]] = []
    last: Row = {}
    for row in rows:
        has_step = _is(row, "step")
        back = has_step and bool(last) and row["step"] < last["step"]
        if not found or (has_step and _begins(row, last, back=back)):
            found.append([])
        found[-1].append(row)
        last = row if has_step else last
    return found


def _begins(row: Row, last: Row, *, back: bool) -> bool:
    """Say whether an attempt begins with a row that has a step; `last` is the one before it.

    `back`: whether its step is one before that of `last`.
    """
    if not last:
        return False
    numbers = row.get(RESTART), last.get(RESTART)
    other = None not in numbers and numbers[0] != numbers[1]
    return bool(row.get(RESUMED)) or other or back


def rows_again(rows: Sequence[Row], *, once: bool = False) -> list[tuple[Row, bool]]:
    """Return all rows, each with whether a later attempt has taken its step again.

    `once`: all are of one attempt, which repeats none, wherever its steps go back.
    """
    if once:
        return [(row, False) for row in rows]
    found: list[tuple[Row, bool]] = []
    least = (math.inf, math.inf)  # from this step on, later attempts have said it
    steps = [(row, place) for row, place in zip(rows, _places(rows), strict=True)]
    last: list[tuple[Row, _Place | None]] = [({}, None)]
    for row, place in steps:
        last.append((row, place) if place else last[-1])
    for (row, place), (before, place_before) in zip(reversed(steps), last[-2::-1], strict=True):
        found.append((row, place is not None and place >= least))
        back = bool(place and place_before and place < place_before)
        if place and _begins(row, before, back=back):
            least = min(least, (place[0], place[1] + bool(row.get(RESUMED))))
    return found[::-1]


def _places(rows: Sequence[Row]) -> list[_Place | None]:
    """Return each row's place in the training, by its epoch and step; None: it has no step.

    The epoch is 0 for all, unless the script counts its steps anew in each epoch: then a step that
    goes back is none that was taken again.
    """
    epoch: float = 0
    found: list[_Place | None] = []
    for row in rows:
        epoch = row["epoch"] if "epoch" in row and _is(row, "epoch") else epoch
        found.append((epoch, row["step"]) if _is(row, "step") else None)
    steps = filter(None, found)
    if any(row[0] > last[0] and row[1] < last[1] for last, row in pairwise(steps)):
        return found
    return [place and (0, place[1]) for place in found]


def counted_rows(rows: Sequence[Row], *, once: bool = False) -> list[Row]:
    """Return the rows that count, each step once: of steps that were repeated, the last time.

    `once` is as in `rows_again`.
    """
    return [row for row, again in rows_again(rows, once=once) if not again and not row.get(RESUMED)]


def all_rows(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a JSON-lines file, of a very long one the last; torn lines are left out.

    Raises:
        DamagedRunError: it is no regular file.
    """
    try:
        return tail_rows(path, most=_ALL_BYTES)
    except DamagedFileError as error:
        raise DamagedRunError(f"{path} cannot be read: {error}.") from error


def tail_rows(path: Path, *, most: int = _TAIL_BYTES) -> list[dict[str, Any]]:
    """Return the last rows of a JSON-lines file; a torn line is left out.

    Raises:
        DamagedFileError: it is no regular file.
    """
    try:
        lines = read_tail(path, most).splitlines()
    except OSError:
        return []
    rows = []
    for line in lines:
        try:
            row = parse_json(line, nan=True)
        except DamagedFileError:
            continue
        if isinstance(row, dict):
            row.update(_counts_of(row))
            rows.append(row)
    return rows


def _counts_of(row: Row) -> Row:
    """Return the counts of a row as whole numbers: some programs log `"epochs": 3.0`."""
    found = {name: row[name] for name in _COUNTS if isinstance(row.get(name), float)}
    return {name: int(value) for name, value in found.items() if value.is_integer()}


def _is(row: dict[str, Any], name: str) -> bool:
    """Say whether a row has a value of that name, and of its type: scripts write what they like."""
    value = row.get(name)
    if name == "loss" and isinstance(value, float):  # also one that has become NaN
        return True
    try:
        return check(_hints()[name], value, name) is not None
    except DamagedFileError:
        return False


def _last(rows: list[dict[str, Any]], name: str) -> Any:  # noqa: ANN401
    return next((row[name] for row in reversed(rows) if _is(row, name)), None)


def _rate(steps: list[dict[str, Any]]) -> float | None:
    timed = [row for row in steps if _is(row, "time")]
    if len(timed) < 2:
        return None
    seconds = timed[-1]["time"] - timed[0]["time"]
    count = timed[-1]["step"] - timed[0]["step"]
    return count / seconds if seconds > 0 and count > 0 else None
