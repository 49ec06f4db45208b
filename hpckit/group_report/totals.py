"""Adds up what attempts held and used, by user, account, week and so on. Pure.

Hours are GPU-hours inside the time of the report; an attempt that reaches out of it counts with
the part inside. What was used is hours x utilization, and known only where it was measured.
"""

import time
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

from hpckit.group_report.allocations import Allocation
from hpckit.group_report.measured import Measured
from hpckit.slurm.states import JobState

# Ends at which all that an attempt has done may be lost. TIMEOUT among them: without a checkpoint.
FAILED = frozenset({
    JobState.FAILED, JobState.TIMEOUT, JobState.NODE_FAIL, JobState.OUT_OF_MEMORY,
    JobState.BOOT_FAIL, JobState.DEADLINE,
})  # fmt: skip
# Upper ends of the classes of utilization, in percent; the last class holds 100 as well.
CLASSES = (10, 25, 50, 75, 100)
# Upper ends of the classes of waits but the last, in seconds.
WAITS_S = (60, 600, 3600, 6 * 3600, 86400)


@dataclass(frozen=True, kw_only=True, slots=True)
class Use:
    """One attempt with what was measured of it, inside the time of the report."""

    row: Allocation
    measured: Measured
    begin: float
    end: float

    @property
    def held_s(self) -> float:
        """For how long it held its nodes; the time it was suspended is spread over its run."""
        return (self.end - self.begin) * self.row.share_held

    @property
    def hours(self) -> float:
        """GPU-hours held; 0 where the number of GPUs is not known."""
        return (self.row.gpus or 0) * self.held_s / 3600

    @property
    def used(self) -> float | None:
        """GPU-hours used: hours x utilization; None if it was not measured."""
        percent = self.measured.utilization_percent
        return None if percent is None else self.hours * percent / 100

    @property
    def wasted(self) -> float:
        """GPU-hours that came to nothing: all of a failed attempt's, else what stood idle."""
        if self.row.state in FAILED:
            return self.hours
        return 0.0 if self.used is None else self.hours - self.used

    @property
    def energy_joules(self) -> float | None:
        """Energy of its GPUs, of the part inside."""
        joules, row = self.measured.energy_joules, self.row
        whole = (self.end if row.end is None else row.end) - row.start
        return None if joules is None or whole <= 0 else joules * (self.end - self.begin) / whole


@dataclass(frozen=True, kw_only=True, slots=True)
class Totals:
    """What some attempts held and used. Figures that are not known are None.

    Attributes:
        jobs: how many there are; attempts of one job are one.
        failed_jobs: those whose last attempt failed.
        gpu_hours: held.
        gpu_hours_measured: those of which the utilization is known.
        gpu_hours_used: hours x utilization, of the measured ones; null where some were held and
            none is measured.
        gpu_hours_unused: the rest of the measured ones; null likewise.
        gpu_hours_failed: held by attempts that ended as FAILED, TIMEOUT, OUT_OF_MEMORY, NODE_FAIL,
            BOOT_FAIL or DEADLINE.
        gpu_hours_asked: what attempts that ended in this time would have held up to their time
            limits, whole, also where they began earlier.
        gpu_hours_ended: what those attempts held, whole as well.
        node_hours: held, of all jobs.
        utilization_percent: used, of measured.
        utilization_hours: measured GPU-hours at 0-10, 10-25, 25-50, 50-75 and 75-100 %.
        wait_median_s, wait_p90_s: from when an attempt could start until it did.
        wait_attempts: how many waited less than 1 min, 10 min, 1 h, 6 h, 1 day; and longer.
        energy_kwh: of GPUs.
        energy_gpu_hours: the GPU-hours of which the energy is known.
    """

    jobs: int = 0
    failed_jobs: int = 0
    gpu_hours: float = 0.0
    gpu_hours_measured: float = 0.0
    gpu_hours_used: float | None = 0.0
    gpu_hours_unused: float | None = 0.0
    gpu_hours_failed: float = 0.0
    gpu_hours_asked: float = 0.0
    gpu_hours_ended: float = 0.0
    node_hours: float = 0.0
    utilization_percent: float | None = None
    utilization_hours: tuple[float, ...] = (0.0,) * len(CLASSES)
    wait_median_s: float | None = None
    wait_p90_s: float | None = None
    wait_attempts: tuple[int, ...] = (0,) * (len(WAITS_S) + 1)
    energy_kwh: float | None = None
    energy_gpu_hours: float = 0.0


@dataclass
class _Sum:
    """What is added up on the way to `Totals`."""

    last: dict[str, tuple[float, JobState]] = field(default_factory=dict)
    hours: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    classes: list[float] = field(default_factory=lambda: [0.0] * len(CLASSES))
    waits: list[float] = field(default_factory=list)

    def add(self, use: Use) -> None:
        row, hours, add = use.row, use.hours, self.hours
        self.last[row.job_id] = max(
            (row.start, row.state), self.last.get(row.job_id, (0.0, row.state))
        )
        add["held"] += hours
        add["nodes"] += (row.nodes or 0) * use.held_s / 3600
        if row.state in FAILED:
            add["failed"] += hours
        # Whole, and only where it ended: so the sums of days and weeks are those of the report.
        if use.end == row.end and row.limit_s is not None:
            add["asked"] += (row.gpus or 0) * row.limit_s / 3600
            add["ended"] += (row.gpus or 0) * row.held_s / 3600
        if row.wait_s is not None and use.begin == row.start:
            self.waits.append(row.wait_s)
        self._add_measured(use, hours)

    def _add_measured(self, use: Use, hours: float) -> None:
        percent, joules = use.measured.utilization_percent, use.energy_joules
        if percent is not None and hours:
            self.hours["measured"] += hours
            self.hours["used"] += use.used or 0.0
            self.classes[_class(percent)] += hours
        if joules is not None:
            self.hours["joules"] += joules
            self.hours["energy"] += hours

    def totals(self) -> Totals:
        add = self.hours
        measured, used = add["measured"], add["used"]
        known = bool(measured) or not add["held"]  # none held: none without work
        return Totals(
            jobs=len(self.last),
            failed_jobs=sum(state in FAILED for _, state in self.last.values()),
            gpu_hours=add["held"],
            gpu_hours_measured=measured,
            gpu_hours_used=used if known else None,
            gpu_hours_unused=measured - used if known else None,
            gpu_hours_failed=add["failed"],
            gpu_hours_asked=add["asked"],
            gpu_hours_ended=add["ended"],
            node_hours=add["nodes"],
            utilization_percent=used / measured * 100 if measured else None,
            utilization_hours=tuple(self.classes),
            wait_median_s=median(self.waits) if self.waits else None,
            wait_p90_s=_p90(self.waits),
            wait_attempts=_wait_classes(self.waits),
            energy_kwh=add["joules"] / 3.6e6 if add["energy"] else None,
            energy_gpu_hours=add["energy"],
        )


def _class(percent: float) -> int:
    return next((at for at, most in enumerate(CLASSES) if percent < most), len(CLASSES) - 1)


def _wait_classes(waits: Sequence[float]) -> tuple[int, ...]:
    counts = Counter(bisect_right(WAITS_S, wait) for wait in waits)
    return tuple(counts[at] for at in range(len(WAITS_S) + 1))


def _p90(values: Sequence[float]) -> float | None:
    """Return the least value that nine of ten do not exceed."""
    return sorted(values)[-(-len(values) * 9 // 10) - 1] if values else None


def total(uses: Iterable[Use]) -> Totals:
    """Add up."""
    found = _Sum()
    for use in uses:
        found.add(use)
    return found.totals()


def grouped(uses: Sequence[Use], by: str) -> dict[str, Totals]:
    """Add up by one of `KINDS`; times in their order, the others by GPU-hours held."""
    sums: dict[str, _Sum] = defaultdict(_Sum)
    periods = _Periods(_OF_TIME[by]) if by in _OF_TIME else None
    for use in uses:
        for label, part in periods.parts(use) if periods else [(_LABELS[by](use) or "-", use)]:
            sums[label].add(part)
    found = {label: one.totals() for label, one in sums.items()}
    if by in _OF_TIME:
        return dict(sorted(found.items()))
    return dict(sorted(found.items(), key=lambda row: (-row[1].gpu_hours, row[0])))


class _Periods:
    """Days, weeks or months of this machine's time, each worked out once."""

    def __init__(self, form: str) -> None:
        self._form = form
        self._starts: list[float] = []
        self._rows: list[tuple[float, str]] = []

    def parts(self, use: Use) -> Iterator[tuple[str, Use]]:
        """Cut an attempt where one period ends and the next begins."""
        begin = use.begin
        while True:
            end, label = self._at(begin)
            if begin == use.begin and use.end <= end:
                yield label, use
                return
            yield label, replace(use, begin=begin, end=min(end, use.end))
            if end >= use.end:
                return
            begin = end

    def _at(self, moment: float) -> tuple[float, str]:
        """Return when the period of a moment ends, and its name."""
        place = bisect_right(self._starts, moment)
        if place and moment < self._rows[place - 1][0]:
            return self._rows[place - 1]
        label = self._name(moment)
        start, end = _midnight(moment, 0), _midnight(moment)
        while self._name(end) == label:
            end = _midnight(end)
        while self._name(before := _midnight(start, -1)) == label:
            start = before
        self._starts.insert(place, start)
        self._rows.insert(place, (end, label))
        return end, label

    def _name(self, moment: float) -> str:
        return time.strftime(self._form, time.localtime(moment))


def _midnight(moment: float, days: int = 1) -> float:
    """Return a midnight: the next, that of the same day (0), and so on; a day may have 23 hours."""
    day = time.localtime(moment)
    return time.mktime((day.tm_year, day.tm_mon, day.tm_mday + days, 0, 0, 0, 0, 0, -1))


_OF_TIME = {"week": "%G-W%V", "day": "%Y-%m-%d", "month": "%Y-%m"}
_LABELS: Mapping[str, Callable[[Use], str | None]] = {
    "user": lambda use: use.row.user,
    "account": lambda use: use.row.account,
    "partition": lambda use: use.row.partition,
    "gpu": lambda use: use.row.gpu_type,
    "state": lambda use: use.row.state,
    "name": lambda use: use.row.name,
    "workload": lambda use: use.measured.workload,
    "template": lambda use: use.measured.template,
}
KINDS = (*_OF_TIME, *_LABELS)


def most_wasteful(uses: Iterable[Use], number: int) -> list[tuple[Use, Totals, float]]:
    """Return the jobs that wasted most: last attempt, all attempts' totals, GPU-hours wasted."""
    mine: dict[str, list[Use]] = defaultdict(list)
    for use in uses:
        mine[use.row.job_id].append(use)
    wasted = {job: sum(use.wasted for use in attempts) for job, attempts in mine.items()}
    worst = sorted((job for job in mine if wasted[job] > 0), key=lambda job: -wasted[job])
    return [(_last(mine[job]), total(mine[job]), wasted[job]) for job in worst[:number]]


def _last(attempts: Sequence[Use]) -> Use:
    return max(reversed(attempts), key=lambda use: use.row.start)
