"""What a run's script logged, over time: loss, throughput and the like, as pictures."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from hpckit.errors import DamagedRunError
from hpckit.metrics import METRICS, all_rows
from hpckit.runs import Run
from hpckit.stats.summary.curves import MOST_BINS, Chart, Curve

# What the workloads log, in the order of the pictures, with its unit.
_SERIES = {
    "loss": ("training loss", ""),
    "test_loss": ("test loss", ""),
    "test_accuracy": ("test accuracy", ""),
    "samples_per_s": ("throughput", "samples/s"),
}
_DIGITS = 6


def training(run: Run | None) -> tuple[tuple[float, ...], tuple[Chart, ...]]:
    """Return the moments of a run's rows, in epoch seconds, and a picture of each series.

    Of more rows than a picture has points for, each point is the mean of several, beside their
    lowest and highest.
    """
    if run is None:
        return (), ()
    try:
        rows = all_rows(run.dir / METRICS)
    except DamagedRunError:
        return (), ()
    timed = sorted((row for row in rows if _number(row, "time") is not None), key=_time)
    each = max(-(-len(timed) // MOST_BINS), 1)
    groups = [timed[at : at + each] for at in range(0, len(timed), each)]
    charts = (
        Chart(name=name, title=title, unit=unit, top=None, curves=(_curve(groups, name),))
        for name, (title, unit) in _SERIES.items()
        if any(_number(row, name) is not None for row in timed)
    )
    return tuple(round(_mean([_time(row) for row in group]), 1) for group in groups), tuple(charts)


def _time(row: Mapping[str, Any]) -> float:
    return float(row["time"])


def _number(row: Mapping[str, Any], name: str) -> float | None:
    """Return a number; None for what is none, or not finite: a loss may have become NaN."""
    value = row.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def _curve(groups: Sequence[Sequence[Mapping[str, Any]]], name: str) -> Curve:
    low: list[float | None] = []
    mean: list[float | None] = []
    high: list[float | None] = []
    for group in groups:
        known = [value for row in group if (value := _number(row, name)) is not None]
        low.append(_short(min(known)) if known else None)
        mean.append(_short(_mean(known)) if known else None)
        high.append(_short(max(known)) if known else None)
    return Curve(host="", gpu=None, index=None, low=tuple(low), mean=tuple(mean), high=tuple(high))


def _mean(values: Sequence[float]) -> float:
    return min(max(math.fsum(values) / len(values), min(values)), max(values))


def _short(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")
