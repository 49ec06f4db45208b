"""From what the runs of a study took to its figures: time, speed-up, efficiency, laws. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

from hpckit.run_folders.logged_times import OddTimes
from hpckit.scaling.intervals import Estimate, mean_of, ratio_of
from hpckit.scaling.laws import Law, fit_amdahl, fit_gustafson
from hpckit.scaling.timing import PARTS, Source, Timing


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """What a run had: GPUs in all, or without any the ranks."""

    nodes: int
    gpus: int
    ranks: int

    @property
    def count(self) -> int:
        """GPUs in all nodes together; ranks where there is no GPU."""
        return self.gpus or self.ranks

    @property
    def label(self) -> str:
        """Such as `4`, or `2x4` of two nodes."""
        return f"{self.nodes}x{self.count // self.nodes}" if self.nodes > 1 else str(self.count)


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What became of one run of a study.

    Attributes:
        repeat: which round it was of, from 1.
        left_out: why it does not count; empty for one that does.
        on_cpu: whether its ranks had a CPU in place of the GPUs that were asked for.
        odd_times: lines of its metrics whose `time` cannot be of it.
    """

    run_id: str
    job_id: str
    shape: Shape
    repeat: int
    state: str
    left_out: str = ""
    on_cpu: bool = False
    timing: Timing = field(default_factory=Timing)
    odd_times: OddTimes | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class About:
    """What a study is of.

    Attributes:
        name: of its jobs. grow: names of the arguments that grow, of a weak study.
        sizes: how many were planned. repeats: of each.
        in_turn: whether one run began when the one before was over.
    """

    study: str
    name: str
    weak: bool
    grow: tuple[str, ...]
    sizes: int
    repeats: int
    in_turn: bool
    submitted_at: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    """What a reader wants to know.

    Attributes:
        efficiency: the lowest that is worth the devices, 0 to 1.
        steps, epochs: of the full training; None: those of the runs.
    """

    efficiency: float = 0.7
    steps: int | None = None
    epochs: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class SizeFigures:
    """One size. None is unknown.

    Attributes:
        runs: how many count, of how many there are.
        seconds: of each run that counts, in the order of the rounds.
        parts: seconds per step of compute, communication and input, by name.
        full_s: of the full training. device_hours: that times GPUs (or ranks).
    """

    shape: Shape
    runs: int
    of: int
    seconds: tuple[float, ...] = ()
    time_s: Estimate | None = None
    speed_up: Estimate | None = None
    efficiency: Estimate | None = None
    parts: Mapping[str, float | None] = field(default_factory=dict)
    full_s: Estimate | None = None
    device_hours: Estimate | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Scaling:
    """A study's figures.

    Attributes:
        source: where the times come from; None: no run counts.
        unit: GPUs or ranks.
        smallest: the size that others are compared with.
        steps: of the full training on the smallest size; None: the run as it was.
        largest: the largest size measured whose efficiency is as wanted.
    """

    about: About
    wanted: Wanted
    outcomes: tuple[Outcome, ...]
    sizes: tuple[SizeFigures, ...]
    source: Source | None
    unit: str
    smallest: Shape | None
    steps: int | None
    steps_from: str
    law: Law | None
    largest: SizeFigures | None
    notes: tuple[str, ...]

    @property
    def device(self) -> str:
        """One of the unit."""
        return self.unit.removesuffix("s")


def evaluate(about: About, outcomes: Sequence[Outcome], wanted: Wanted) -> Scaling:
    """Work a study out."""
    rows = sorted(outcomes, key=lambda row: (row.shape.count, row.shape.nodes, row.repeat))
    shapes = list(dict.fromkeys(row.shape for row in rows))
    good = [row for row in rows if not row.left_out]
    source = _common_source(good)
    times = {
        shape: [row.timing.seconds[source] for row in good if row.shape == shape] if source else []
        for shape in shapes
    }
    smallest = next((shape for shape in shapes if times[shape]), None)
    steps, steps_from = _full_steps(good, smallest, source, wanted)
    figures = tuple(
        _figures(shape, rows, times, smallest, source, about.weak, steps) for shape in shapes
    )
    enough = [
        row for row in figures if row.efficiency and row.efficiency.value >= wanted.efficiency
    ]
    return Scaling(
        about=about,
        wanted=wanted,
        outcomes=tuple(rows),
        sizes=figures,
        source=source,
        unit="GPUs" if any(shape.gpus for shape in shapes) else "ranks",
        smallest=smallest,
        steps=steps,
        steps_from=steps_from,
        law=_law(figures, smallest, weak=about.weak),
        largest=enough[-1] if enough else None,
        notes=tuple(_notes(about, rows, shapes, smallest, source, wanted, steps)),
    )


def _common_source(good: Sequence[Outcome]) -> Source | None:
    """Return the best source that every run has: times of two kinds are not compared."""
    return next(
        (one for one in Source if good and all(one in row.timing.seconds for row in good)), None
    )


def _figures(
    shape: Shape,
    rows: Sequence[Outcome],
    times: Mapping[Shape, Sequence[float]],
    smallest: Shape | None,
    source: Source | None,
    weak: bool,
    steps: int | None,
) -> SizeFigures:
    of = sum(row.shape == shape for row in rows)
    mine = times[shape]
    if not mine or smallest is None:
        return SizeFigures(shape=shape, runs=0, of=of)
    more = shape.count / smallest.count
    faster = Estimate(1.0) if shape == smallest else ratio_of(times[smallest], mine)
    time = mean_of(mine)
    # Of weak scaling each step does more of the work: fewer are needed.
    needed = None if steps is None else steps / (more if weak else 1)
    full = time if source is Source.WALL else needed and time.scaled(needed)
    counted = [row.timing for row in rows if row.shape == shape and not row.left_out]
    return SizeFigures(
        shape=shape,
        runs=len(mine),
        of=of,
        seconds=tuple(mine),
        time_s=time,
        speed_up=faster.scaled(more) if weak else faster,
        efficiency=faster if weak else faster.scaled(1 / more),
        parts={name: _part(counted, name, source) for name in PARTS},
        full_s=full or None,
        device_hours=full.scaled(shape.count / 3600) if full else None,
    )


def _part(timings: Sequence[Timing], name: str, source: Source | None) -> float | None:
    """Return the mean of a part over the runs of a size; None unless all have measured it."""
    if source is not Source.PROGRAM or not all(name in row.parts for row in timings):
        return None
    return fmean(row.parts[name] for row in timings)


def _full_steps(
    good: Sequence[Outcome], smallest: Shape | None, source: Source | None, wanted: Wanted
) -> tuple[int | None, str]:
    """Return how many steps the full training has on the smallest size, and who says so."""
    if source in (None, Source.WALL):
        return None, "the run as it was"
    if wanted.steps is not None:
        return wanted.steps, "--full-steps"
    known = next(
        (row.timing for row in good if row.shape == smallest and row.timing.total_steps), None
    )
    if known is None or known.total_steps is None:
        return None, "unknown"
    if wanted.epochs is not None:
        if not known.epochs:
            return None, "unknown"
        return round(known.total_steps / known.epochs * wanted.epochs), "--full-epochs"
    return known.total_steps, "the runs' own number of steps"


def _law(figures: Sequence[SizeFigures], smallest: Shape | None, *, weak: bool) -> Law | None:
    known = [row for row in figures if row.time_s and row.speed_up]
    if smallest is None:
        return None
    if weak:
        return fit_gustafson(
            [
                (row.shape.count / smallest.count, row.speed_up.value)
                for row in known
                if row.speed_up
            ]
        )
    return fit_amdahl([(row.shape.count, row.time_s.value) for row in known if row.time_s])


def _notes(
    about: About,
    rows: Sequence[Outcome],
    shapes: Sequence[Shape],
    smallest: Shape | None,
    source: Source | None,
    wanted: Wanted,
    steps: int | None,
) -> list[str]:
    """Return what a reader must know to believe the figures."""
    found = [
        f"job {row.job_id} ({row.shape.label}, round {row.repeat}) does not count: {row.left_out}"
        for row in rows
        if row.left_out
    ]
    if missing := about.sizes * about.repeats - len(rows):
        found.append(f"{missing} of {about.sizes * about.repeats} runs are not found")
    if smallest is not None and shapes[0] != smallest:
        found.append(
            f"size {shapes[0].label} has no run that counts: the others are compared with "
            f"{smallest.label}"
        )
    counted = [row for row in rows if not row.left_out]
    if len(counted) == len({row.shape for row in counted}) and counted:
        found.append("one run of each size: nothing tells how far chance moves it, so no intervals")
    if any(row.on_cpu for row in counted):
        found.append("the ranks had no GPU and ran on CPUs: this says nothing of GPUs")
    found += _odd_times(counted, source)
    if source is Source.WALL and (wanted.steps or wanted.epochs):
        found.append(
            "the runs do not say how many steps they took: the full training is unknown, and what "
            "is shown is the run as it was"
        )
    elif source not in (None, Source.WALL) and steps is None:
        found.append(
            "the runs do not say how many steps the full training has: give --full-steps N"
        )
    return found


def _odd_times(counted: Sequence[Outcome], source: Source | None) -> list[str]:
    """Say once of all runs that lines cannot be timed, where their times would have counted."""
    odd = [row.odd_times for row in counted if row.odd_times]
    if not odd or source is Source.PROGRAM:
        return []
    whole = replace(odd[0], count=sum(row.count for row in odd))
    runs = f"in {len(odd)} of {len(counted)} runs, " if len(counted) > 1 else ""
    return [f"{runs}{whole.text('timed')}"]
