"""What a metric is: one row says it all, from the sampler to the page.

The rows are in `metric_table`. From them follow the columns of samples and how they are packed, the
fields of the figures and so the JSON, its schema and the names that rules of advice may use, rows
of the page, and the table in docs/sampler.md.
"""

from collections.abc import Callable, Iterable
from dataclasses import field, make_dataclass
from enum import StrEnum
from typing import Any, TypeVar

from hpckit.frozen import frozen

Kind = TypeVar("Kind")


class Over(StrEnum):
    """How many values become one: over time, and over GPUs or nodes."""

    MEAN = "mean"  # weighted by time
    HIGHEST = "highest"
    GROWTH = "growth"  # of a counter, from its first known value to its last; attempts add up
    SUM = "sum"  # over time: the last value of a count that begins at 0; attempts add up


@frozen(kw_only=True)
class Drawn:
    """How a metric is drawn over time on the page of `hpckit stats --html`.

    Attributes:
        unit: of the drawn value, as the picture's axis says it.
        factor: from the reading's unit to this one.
        digits: after the point; more would be noise.
        title: in words, where the metric's own title does not fit a picture.
        rate: a counter, of which the growth per microsecond is drawn.
        top: the axis ends here; None: with the highest value.
    """

    unit: str
    factor: float = 1
    digits: int = 0
    title: str = ""
    rate: bool = False
    top: float | None = None


@frozen(kw_only=True)
class Metric:
    """One reading of a GPU or node, and the figure it becomes.

    A metric without a `figure` is in the samples only, or code of its own makes several figures of
    it (utilization, memory, power and energy of GPUs; CPU time and memory of nodes).

    Attributes:
        name: its column in the samples; the ending is the unit.
        title: in words: in notes and on the page.
        says: what it is, for the docs and the JSON's schema.
        source: where the kernel or NVML has it, for the docs.
        read: the reader: of a GPU `(Nvml, Unit) -> int`, of a node `(JobFiles) -> int`. None: a
            part of the sampler that keeps a state makes it of several readings.
        gpm: number of a GPM metric of a GPU (nvml.h, nvmlGpmMetricId_t), in place of a reader.
        bits: 16, 32, 48 or 64 of each sample; 0: it is read once a minute.
        worth: what one packed unit is worth (1024: KiB).
        grows: whether it only grows or stays: then a part of its values is enough.
        figure: its name in `per_gpu` or `per_node` of the JSON, and in rules of advice.
        over_time: how its samples become the figure.
        factor: from the reading's unit to the figure's.
        in_summary: the figure's name for the whole job, if it has one; `over_all` makes it.
        on_page: whether the job's figure has a line on the page.
        column: head of a column in the page's table of GPUs, if it has one.
        drawn: how it is drawn over time, of those with a value in each sample.
    """

    name: str
    title: str
    says: str
    source: str
    read: Callable[..., int | None] | None = None
    gpm: int | None = None
    bits: int = 0
    worth: int = 1
    grows: bool = False
    figure: str | None = None
    over_time: Over = Over.MEAN
    factor: float = 1
    in_summary: str | None = None
    over_all: Over = Over.MEAN
    on_page: bool = False
    column: str | None = None
    drawn: Drawn | None = None

    def number(self, value: float | None) -> float | None:
        """Return a value in the figure's unit; whole where nothing makes it a fraction."""
        if value is None:
            return None
        return value * self.factor if self.kind is float else round(value) * int(self.factor)

    @property
    def kind(self) -> type:
        """What the figure is: int or float."""
        whole = isinstance(self.factor, int) and self.over_time is not Over.MEAN
        return int if whole else float


_MADE = {
    Over.MEAN: "mean over time",
    Over.HIGHEST: "highest value",
    Over.GROWTH: "in all",
    Over.SUM: "in all",
}
Fields = Iterable[tuple[str, type, str]]


def readings(metrics: Iterable[Metric]) -> Fields:
    """Return the fields of one reading of each metric: name, type and meaning."""
    return [(metric.name, int, metric.says) for metric in metrics]


def figures(metrics: Iterable[Metric]) -> Fields:
    """Return the fields of the figures of one GPU or node."""
    return [
        (row.figure, row.kind, f"{row.says}: {_MADE[row.over_time]}.")
        for row in metrics
        if row.figure
    ]


def job_figures(metrics: Iterable[Metric]) -> Fields:
    """Return the fields of the figures of a whole job."""
    return [
        (
            row.in_summary,
            float if row.over_all is Over.MEAN else row.kind,
            f"{row.says}: {_MADE[row.over_time]}; {row.over_all} of all.",
        )
        for row in metrics
        if row.in_summary
    ]


def with_fields(*groups: Fields) -> Callable[[type[Kind]], type[Kind]]:
    """Add fields to a dataclass, None by default; those it declares itself stay as they are."""

    def extend(kind: type[Kind]) -> type[Kind]:
        more = [
            (name, of | None, field(default=None, metadata={"says": says}))
            for group in groups
            for name, of, says in group
            if name not in kind.__annotations__
        ]
        # A kind made by `hpckit.frozen` has methods that know all fields.
        own = bool(kind.__dataclass_params__.frozen)  # type: ignore[attr-defined]
        about = {"__doc__": kind.__doc__, "__module__": kind.__module__}
        made: type[Any] = make_dataclass(
            kind.__name__,
            more,
            bases=(kind,),
            namespace=about,
            frozen=own,
            init=own,
            repr=own,
            eq=own,
            kw_only=True,
            slots=True,
        )
        return made

    return extend
