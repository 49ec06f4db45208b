"""The picture of a study, by matplotlib: time, speed-up and efficiency over the sizes."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpckit.errors import RequestError
from hpckit.plotting import DIM, WIDTH_IN, Kind, line_style, name_axes, plain_ticks, write_picture
from hpckit.scaling.intervals import Estimate
from hpckit.scaling.study import Scaling, SizeFigures
from hpckit.scaling.timing import Source
from hpckit.scaling.writing import title

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_HEIGHT_IN = 2.7
_KINDS: dict[str, Kind] = {".png": "png", ".svg": "svg"}
# So many points a law's curve has between two sizes that are a factor of two apart.
_POINTS = 16


def write_study_picture(found: Scaling, path: Path) -> Path:
    """Draw a study; return the file's path.

    Raises:
        RequestError: the file's name ends in neither .png nor .svg. OutsideError: matplotlib is not
            installed, or the file cannot be written.
    """
    kind = _KINDS.get(path.suffix.lower())
    if kind is None:
        raise RequestError(f"The picture {str(path)!r} must end in .png or .svg.")

    def draw(figure: "Figure") -> None:
        time, speed, efficiency = figure.subplots(1, 3)
        _draw_time(time, found)
        _draw_speed(speed, found)
        _draw_efficiency(efficiency, found)
        for axes in (time, speed, efficiency):
            axes.set_xscale("log", base=2)
            plain_ticks(axes.xaxis, [row.shape.count for row in found.sizes])
        figure.suptitle(title(found), x=0.01, ha="left", fontsize=8, color=DIM)

    return write_picture(path, kind, draw, size=(WIDTH_IN, _HEIGHT_IN), title=title(found))


def law_points(found: Scaling) -> list[float]:
    """Return the sizes at which a law's curve is drawn, from the smallest to the largest."""
    counts = [row.shape.count for row in found.sizes if row.time_s]
    if found.law is None or len(counts) < 2:
        return []
    first, ratio = counts[0], counts[-1] / counts[0]
    number = math.ceil(math.log2(ratio)) * _POINTS
    return [first * ratio ** (at / number) for at in range(number + 1)]


def law_time(found: Scaling, count: float) -> float | None:
    """Return the seconds that the law gives for so many devices; None: not known."""
    first = next((row for row in found.sizes if row.time_s), None)
    law, smallest = found.law, found.smallest
    if law is None or smallest is None or first is None or first.time_s is None:
        return None
    if law.time_s is not None:
        return law.time_s * (law.serial_fraction + (1 - law.serial_fraction) / count)
    return first.time_s.value * (count / smallest.count) / law.speed_up(count, smallest.count)


def _measured(axes: "Axes", rows: list[tuple[SizeFigures, Estimate]], percent: float = 1) -> None:
    """Draw what was measured: points, and their intervals as bars."""
    counts = [row.shape.count for row, _ in rows]
    values = [estimate.value * percent for _, estimate in rows]
    edges = [
        (
            (estimate.value - estimate.low) * percent if estimate.low is not None else 0.0,
            (estimate.high - estimate.value) * percent if estimate.high is not None else 0.0,
        )
        for _, estimate in rows
    ]
    below, above = [edge[0] for edge in edges], [edge[1] for edge in edges]
    axes.errorbar(
        counts, values, yerr=[below, above], **line_style(0),
        marker="o", markersize=3.5, capsize=2.5, label="measured",
    )  # fmt: skip


def _draw_time(axes: "Axes", found: Scaling) -> None:
    rows = [(row, row.time_s) for row in found.sizes if row.time_s]
    _measured(axes, rows)
    counts = law_points(found)
    times = [law_time(found, count) for count in counts]
    if times and all(value is not None and value > 0 for value in times):
        axes.plot(counts, [value or 0.0 for value in times], **_law_style(), label=_law_name(found))
        axes.legend()
    axes.set_ylim(bottom=0)
    per = "run" if found.source is Source.WALL else "step"
    name_axes(axes, f"Time per {per}", x=found.unit, y="seconds")


def _draw_speed(axes: "Axes", found: Scaling) -> None:
    rows = [(row, row.speed_up) for row in found.sizes if row.speed_up]
    _measured(axes, rows)
    if found.smallest is not None and rows:
        first, last = found.smallest.count, rows[-1][0].shape.count
        axes.plot([first, last], [1, last / first], color=DIM, linestyle=":", label="ideal")
        if found.law is not None:
            counts = law_points(found)
            speeds = [found.law.speed_up(count, first) for count in counts]
            axes.plot(counts, speeds, **_law_style(), label=_law_name(found))
    axes.set_yscale("log", base=2)
    if rows:  # an interval may reach down to 0, which is infinitely far below
        axes.set_ylim(bottom=min(estimate.value for _, estimate in rows) / 1.5)
    plain_ticks(axes.yaxis, _ratios(found))
    axes.legend()
    name_axes(axes, "Speed-up", x=found.unit, y="times the smallest size")


def _ratios(found: Scaling) -> list[float]:
    smallest = found.smallest.count if found.smallest else 1
    return [row.shape.count / smallest for row in found.sizes]


def _draw_efficiency(axes: "Axes", found: Scaling) -> None:
    rows = [(row, row.efficiency) for row in found.sizes if row.efficiency]
    _measured(axes, rows, 100)
    axes.axhline(
        100 * found.wanted.efficiency, color=DIM, linestyle=":",
        label=f"{100 * found.wanted.efficiency:.0f} % wanted",
    )  # fmt: skip
    axes.set_ylim(bottom=0)
    axes.legend(loc="lower left")
    name_axes(axes, "Efficiency", x=found.unit, y="%")


def _law_style() -> dict[str, Any]:
    return {**line_style(1), "linestyle": "--", "linewidth": 1.0}


def _law_name(found: Scaling) -> str:
    return f"{found.law.name}'s law" if found.law else ""
