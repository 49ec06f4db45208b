"""What a run's own metrics say of its time, once it is warm: seconds per step, and their parts.

In the order of trust: `program`, the seconds per step that the program measured (`s_per_step` of
metrics.jsonl); `lines`, the moments of its lines there; `wall`, the whole run from its first
rank's start to its last rank's end. Never the wait in the queue. Lines are anybody's words: what is
no plausible number is passed over.
"""

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from hpckit.run_folders.metrics import split_attempts

# Seconds per step of rank zero, in lines that have s_per_step.
PARTS = ("compute_s", "communication_s", "input_s")
_MOST_S, _MOST_STEPS = 1e9, 1e15


class Source(StrEnum):
    """Where a time comes from."""

    PROGRAM = "program"
    LINES = "lines"
    WALL = "wall"


@dataclass(frozen=True, kw_only=True, slots=True)
class Timing:
    """What one run took.

    Attributes:
        seconds: by where they come from: per step, of `wall` of the whole run.
        steps: how many steps were timed, by the same.
        parts: seconds per step of `PARTS`, as far as the program measured them.
        total_steps: of the whole training, as the program says. epochs: likewise.
    """

    seconds: Mapping[Source, float] = field(default_factory=dict)
    steps: Mapping[Source, int] = field(default_factory=dict)
    parts: Mapping[str, float] = field(default_factory=dict)
    total_steps: int | None = None
    epochs: int | None = None


def timing_of(rows: Sequence[Mapping[str, Any]], wall_s: float | None) -> Timing:
    """Return what a run's metrics and its ranks' times say.

    Args:
        rows: of metrics.jsonl, in the file's order.
        wall_s: from the first rank's start to the last one's end; None: not known.
    """
    seconds: dict[Source, float] = {}
    steps: dict[Source, int] = {}
    parts: dict[str, float] = {}
    if own := _own_rows(rows):
        seconds[Source.PROGRAM] = _mean(own, "s_per_step")
        steps[Source.PROGRAM] = sum(count for count, _ in own)
        parts = {
            name: _mean(own, name)
            for name in PARTS
            if all(_number(row.get(name), zero=True) is not None for _, row in own)
        }
    if between := _between_lines(rows):
        seconds[Source.LINES], steps[Source.LINES] = between
    if wall_s is not None and wall_s > 0:
        seconds[Source.WALL] = wall_s
    return Timing(
        seconds=seconds,
        steps=steps,
        parts=parts,
        total_steps=_last_count(rows, "total_steps"),
        epochs=_last_count(rows, "epochs"),
    )


def _own_rows(rows: Sequence[Mapping[str, Any]]) -> list[tuple[int, Mapping[str, Any]]]:
    """Return lines with `s_per_step`, each with how many steps it speaks of.

    Of several the first is left out, and so is one of the first step: the start is in it.
    """
    found: list[tuple[int, Mapping[str, Any]]] = []
    before = 0
    for row in rows:
        step = _count(row.get("step"))
        if step is not None and step > before and _number(row.get("s_per_step")) is not None:
            found.append((step - before, row))
            before = step
    if len(found) > 1:
        return found[1:]
    return [row for row in found if row[0] > 1]


def _between_lines(rows: Sequence[Mapping[str, Any]]) -> tuple[float, int] | None:
    """Return the mean seconds per step between the first line and the last, and the steps.

    Of each attempt by itself: between two the job waits in the queue.
    """
    steps, seconds = 0, 0.0
    for part in split_attempts([dict(row) for row in rows]):
        timed = [
            (step, moment)
            for row in part
            if (step := _count(row.get("step"))) is not None
            and (moment := _number(row.get("time"), most=math.inf)) is not None
        ]
        if len(timed) > 1:
            steps += timed[-1][0] - timed[0][0]
            seconds += timed[-1][1] - timed[0][1]
    return (seconds / steps, steps) if steps > 0 and 0 < seconds < _MOST_S else None


def _mean(rows: Sequence[tuple[int, Mapping[str, Any]]], name: str) -> float:
    total = sum(count * row[name] for count, row in rows)
    return float(total / sum(count for count, _ in rows))


def _number(value: Any, *, zero: bool = False, most: float = _MOST_S) -> float | None:  # noqa: ANN401
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    # Compared first: a whole number in JSON may be too long for a float.
    good = 0 <= value < min(most, sys.float_info.max) and (value > 0 or zero)
    return float(value) if good else None


def _count(value: Any) -> int | None:  # noqa: ANN401
    good = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MOST_STEPS
    return value if good else None


def _last_count(rows: Sequence[Mapping[str, Any]], name: str) -> int | None:
    known = (_count(row.get(name)) for row in reversed(rows))
    return next((value for value in known if value), None)
