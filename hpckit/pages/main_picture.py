"""A job's main picture for papers and slides: what its page shows over time, below one another."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hpckit.pages.pictures import Picture, device_names, device_numbers, device_of, label
from hpckit.plotting import (
    BAND_ALPHA,
    BETWEEN,
    COLOURS,
    DIM,
    SEVERAL_LINES,
    WIDTH_IN,
    Kind,
    columns_of,
    line_style,
    name_axes,
    place_legend,
    render,
)
from hpckit.report.terminal import duration, fold
from hpckit.slurm.resized import by_attempt, row_word
from hpckit.stats.summary.curves import Curve
from hpckit.stats.summary.figures import Attempt, JobUse, attempt_words
from hpckit.text import counted

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Values = Sequence[float | None]
# Points over the width of a page; each has its band, so that nothing is lost between them.
POINTS: Mapping[Kind, int] = {"png": 1200, "svg": 500}
_HEAD_IN, _PANEL_IN, _LEGEND_IN, _LEGEND_ROW_IN = 0.8, 1.05, 0.1, 0.16
# As on the page: bands of more lines than these hide one another. Of more than those: their mean.
_FEW_BANDS, _MOST_LINES = 8, 16
_NOTE_LETTERS, _NOTE_ROW_IN = 110, 0.12
_PALE = 0.75  # a line of what was done again
_LETTER_PT, _TITLE_LETTER_PT = 3.4, 5.2  # of the sizes of attempts' names and of titles
# Up to how many seconds time is counted in a unit, the unit's length, and its name.
_UNITS = (
    (600.0, 1.0, "s"),
    (4 * 3600.0, 60.0, "min"),
    (4 * 86400.0, 3600.0, "h"),
    (math.inf, 86400.0, "days"),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Drawing:
    """What is drawn of a job.

    Attributes:
        shown: the pictures of its page, in their order.
        moments: what they are drawn over: `job` and `training`, as on the page.
        width_s: of a bin; 0: there are no samples.
        breaks: places in the moments of `training` at which an attempt's lines end.
        left_out: what was logged and is not drawn, in sentences.
    """

    job: JobUse
    shown: Sequence[Picture]
    moments: Mapping[str, Sequence[float]]
    width_s: int
    span: tuple[float, float]
    breaks: Sequence[int] = ()
    left_out: Sequence[str] = ()

    @property
    def hosts(self) -> int:
        """How many nodes have lines."""
        return len({curve.host for one in self.shown for curve in one.chart.curves if curve.host})

    @property
    def unit(self) -> tuple[float, str]:
        """What time is counted in: seconds of the unit, and its name."""
        elapsed = self.span[1] - self.span[0]
        return next((length, name) for most, length, name in _UNITS if elapsed <= most)

    def at(self, moment: float | None) -> float:
        """Return where a moment stands on the axis."""
        return math.nan if moment is None else (moment - self.span[0]) / self.unit[0]

    def groups(self) -> Iterator[list[int]]:
        """Yield the numbers of pictures that show the same devices, one after another."""
        found: dict[bool, list[int]] = {}
        for number, one in enumerate(self.shown):
            curves = one.chart.curves
            if one.moments == "job" and len(curves) > 1:
                found.setdefault(curves[0].gpu is not None, []).append(number)
        yield from found.values()


def main_picture(kind: Kind, drawing: Drawing) -> bytes:
    """Return the picture of a job as the bytes of a file.

    Raises:
        OutsideError: matplotlib is not installed.
    """
    rows = [_rows(_names(drawing, group)) for group in drawing.groups()]
    height = _HEAD_IN + _PANEL_IN * len(drawing.shown)
    height += sum(_LEGEND_IN + _LEGEND_ROW_IN * count for count in rows)
    note = _note(drawing)
    height += _NOTE_ROW_IN * note.count("\n")
    title = _title(drawing.job)

    def draw(figure: "Figure") -> None:
        grid = figure.subplots(len(drawing.shown), 1, sharex=True, squeeze=False)
        panels: list[Axes] = list(grid[:, 0])
        for axes, one in zip(panels, drawing.shown, strict=True):
            _panel(axes, one, drawing)
        for group in drawing.groups():
            _legend(panels[group[0]], drawing, group)
        _attempts(panels, drawing)
        panels[-1].set_xlabel(f"time since the job's start ({drawing.unit[1]})")
        panels[-1].set_xlim(0, drawing.at(drawing.span[1]))
        figure.suptitle(title, x=0.01, ha="left", fontsize=9)
        figure.supxlabel(note, x=0.01, ha="left", fontsize=6.5, color=DIM, gid=SEVERAL_LINES)

    return render(kind, draw, size=(WIDTH_IN, height), title=f"{title}, over time")


def _rows(names: Sequence[str]) -> int:
    return -(-len(names) // columns_of(names))


def _title(job: JobUse) -> str:
    count = counted(job.nodes, "node") if job.nodes else None
    models = ", ".join(sorted({gpu.name for gpu in job.per_gpu if gpu.name}))
    gpus = counted(job.gpus, "GPU") if job.gpus else None
    so_far = " so far" if job.running else ""
    so_far += f" in {attempt_words(job)}" if len(job.attempts) > 1 else ""
    words = (
        f"Job {job.job_id}" + (f" {job.name}" if job.name else ""),
        job.state,
        None if job.elapsed_s is None else f"{duration(job.elapsed_s)}{so_far}",
        count,
        f"{gpus} ({models})" if gpus and models else gpus,
    )
    return " · ".join(word for word in words if word)


def _note(drawing: Drawing) -> str:
    words = ["Lines: what the script logged."]
    if drawing.width_s:
        width = duration(drawing.width_s)
        words = [f"Lines: means over {width}. Pale bands: lowest to highest sample."]
    if len(by_attempt(drawing.job.attempts)) > 1:
        words.append("Grey: no nodes.")
    if any(curve.replaced for one in drawing.shown for curve in one.chart.curves):
        words.append("Dotted: repeated later.")
    return "\n".join([" ".join(words), *fold(" ".join(drawing.left_out), _NOTE_LETTERS, "", "")])


def _panel(axes: "Axes", one: Picture, drawing: Drawing) -> None:
    """Draw one chart: a line and a band of each device, or what many devices have in common."""
    chart = one.chart
    name_axes(axes, one.title, y=chart.unit)
    times = [drawing.at(moment) for moment in drawing.moments[one.moments]]
    numbers = device_numbers(drawing.shown)
    if len(chart.curves) > _MOST_LINES:
        _many(axes, times, chart.curves)
    else:
        if len(chart.curves) > _FEW_BANDS:
            _band(axes, times, *_edges(chart.curves), COLOURS[-1])
        for curve in chart.curves:
            style = line_style(numbers.get(_device(curve), 0))
            if len(chart.curves) <= _FEW_BANDS:
                _band(axes, times, curve.low, curve.high, style["color"])
            if curve.replaced:
                style |= {"alpha": _PALE, "linestyle": ":"}
            breaks = None if one.moments == "job" else drawing.breaks
            _line(axes, times, curve.mean, style, breaks)
    lows = [value for curve in chart.curves for value in curve.low if value is not None]
    axes.set_ylim(bottom=min(*lows, 0) if lows else 0, top=chart.top)


def _device(curve: Curve) -> str:
    return device_of(curve.host, curve.gpu)


def _many(axes: "Axes", times: Sequence[float], curves: Sequence[Curve]) -> None:
    """Draw many devices: each of them thin, the band of all, and their mean."""
    _band(axes, times, *_edges(curves), COLOURS[0])
    for curve in curves:
        _line(axes, times, curve.mean, {"color": DIM, "linewidth": 0.3, "alpha": 0.25})
    means = [_mean(row) for row in zip(*(curve.mean for curve in curves), strict=True)]
    _line(axes, times, means, line_style(0) | {"linewidth": 1.6})


def _edges(curves: Sequence[Curve]) -> tuple[Values, Values]:
    """Return the lowest and the highest sample of any device, at each moment."""
    lows = zip(*(curve.low for curve in curves), strict=True)
    highs = zip(*(curve.high for curve in curves), strict=True)
    return (
        [min(known, default=None) for known in map(_known, lows)],
        [max(known, default=None) for known in map(_known, highs)],
    )


def _known(row: Values) -> list[float]:
    return [value for value in row if value is not None]


def _mean(row: Values) -> float | None:
    known = _known(row)
    return sum(known) / len(known) if known else None


def _band(axes: "Axes", times: Sequence[float], low: Values, high: Values, colour: str) -> None:
    if low != high:
        edges = (_floats(low), _floats(high))
        axes.fill_between(times, *edges, color=colour, alpha=BAND_ALPHA, linewidth=0)


def _line(
    axes: "Axes",
    times: Sequence[float],
    values: Values,
    style: Mapping[str, Any],
    breaks: Sequence[int] | None = None,
) -> None:
    """Draw a line; a value between two gaps, by which no line would be seen, is a point.

    `breaks` are the only gaps of a line with values at some moments only; None: each is one.
    """
    pairs = [(moment, value) for moment, value in zip(times, values, strict=True)]
    if breaks is not None:  # a script logs some figures at some steps only
        pairs = [pair for at, pair in enumerate(pairs) if pair[1] is not None or at in breaks]
    known = [None, *(value for _, value in pairs), None]
    alone = [
        at
        for at, value in enumerate(known[1:-1])
        if value is not None and known[at] is None and known[at + 2] is None
    ]
    where, what = [moment for moment, _ in pairs], _floats([value for _, value in pairs])
    # Above the axes: a line at 0 is one.
    axes.plot(
        where, what, marker=".", markersize=4, markevery=alone, zorder=3, clip_on=False, **style
    )


def _floats(values: Values) -> list[float]:
    return [math.nan if value is None else value for value in values]


def _names(drawing: Drawing, group: Sequence[int]) -> list[str]:
    curves = _of_group(drawing, group)
    if len(curves) > _MOST_LINES:
        kind = "GPUs" if curves[0].gpu else "nodes"
        return [f"mean of {len(curves)} {kind}", "each of them"]
    names = device_names(drawing.job)
    return [label(curve, drawing.hosts, names) for curve in curves]


def _of_group(drawing: Drawing, group: Sequence[int]) -> list[Curve]:
    """Return a line of each device that any chart of a group has."""
    every = [curve for number in group for curve in drawing.shown[number].chart.curves]
    return list({_device(curve): curve for curve in reversed(every)}.values())[::-1]


def _legend(axes: "Axes", drawing: Drawing, group: Sequence[int]) -> None:
    """Name the devices of a group of charts, once."""
    from matplotlib.lines import Line2D

    curves, numbers = _of_group(drawing, group), device_numbers(drawing.shown)
    if len(curves) > _MOST_LINES:
        styles = [line_style(0) | {"linewidth": 1.6}, {"color": DIM, "linewidth": 0.4}]
    else:
        styles = [line_style(numbers[_device(curve)]) for curve in curves]
    lines = [Line2D([], [], **style) for style in styles]
    place_legend(axes, lines, _names(drawing, group))


def _attempts(panels: Sequence["Axes"], drawing: Drawing) -> None:
    """Mark where attempts began, and the time between them."""
    known = [row for row in drawing.job.attempts if row.start is not None]
    if len(known) < 2:
        return
    starts = [drawing.at(row.start) for row in known]
    for before, start in zip(known, starts[1:], strict=False):
        for axes in panels:
            if before.end is not None:
                axes.axvspan(drawing.at(before.end), start, color=BETWEEN, alpha=0.16, linewidth=0)
            axes.axvline(start, color=DIM, linewidth=0.8, linestyle=(0, (4, 3)))
    word = row_word(drawing.job.attempts)
    wide_pt = 0.86 * WIDTH_IN * 72 / drawing.at(drawing.span[1])
    for row, start, end in zip(
        known, starts, [*starts[1:], drawing.at(drawing.span[1])], strict=True
    ):
        right = 3 if row is not known[0] else _TITLE_LETTER_PT * len(drawing.shown[0].title)
        panels[0].annotate(
            _name_of(row, word, (end - start) * wide_pt - right),
            (start, 1),
            xytext=(right, 1),
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            va="bottom",
            fontsize=6.5,
            color=DIM,
        )


def _name_of(attempt: Attempt, word: str, room_pt: float) -> str:
    """Return an attempt's number and how it ended, as far as there is room for it."""
    words = f"{word} {attempt.restart}", str(attempt.restart)
    known = (f"{words[0]}: {attempt.state}", *words) if attempt.state else words
    return next((word for word in known if (len(word) + 2) * _LETTER_PT <= room_pt), "")
