"""What kept a GPU from its work: repeated pauses, clocks held down, and its loss.

Repeated short pauses are most often a data loader that cannot keep up.
"""

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from itertools import pairwise
from operator import or_

from hpckit.frozen import frozen
from hpckit.stats.samples.columns import Columns
from hpckit.stats.samples.packing import Column
from hpckit.stats.samples.records import GpuInfo, Note
from hpckit.stats.summary.clock import Clock, below, each_known, median, minus, runs, weigh
from hpckit.stats.summary.coverage import Interval
from hpckit.stats.summary.figures import Stalls

# A pause is time below half of what the GPU does when it works. Fewer, rarer or longer ones are
# validation, checkpoints or the end of the work, which other figures tell.
_LEAST_COUNT, _LEAST_SHARE, _LONGEST_S, _LEAST_BUSY = 5, 0.05, 300.0, 200
_ENOUGH = 4096


def find_stalls(columns: Columns, clock: Clock, utilization: Column) -> Stalls | None:
    """Return the pauses of one GPU between its first and its last use, if there are many."""
    values = utilization.values
    if len(values) < 2 * _LEAST_COUNT:
        return None
    usual = _usual(values, utilization.missing)
    if usual is None or usual < _LEAST_BUSY:
        return None
    low = below(values, usual // 2)
    busy = minus(each_known(utilization), low)
    first, last = busy.find(1), busy.rfind(1)
    between = bytes(first) + low[first:last] + bytes(len(low) - last)
    span = columns.times[last] - columns.times[first]
    share = weigh(between, clock) / span if span else 0.0
    if share < _LEAST_SHARE:
        return None
    pauses = runs(between)
    lengths = [columns.times[end - 1] - columns.times[begin - 1] for begin, end in pauses]
    if len(pauses) < _LEAST_COUNT or median(lengths) > _LONGEST_S * 1e6:
        return None
    begins = [columns.times[begin] for begin, _ in pauses]
    working = runs(busy)
    return Stalls(
        count=len(pauses),
        period_s=median(after - before for before, after in pairwise(begins)) / 1e6,
        share_percent=share * 100,
        cpu_during_percent=_cores_busy(columns, pauses),
        cpu_otherwise_percent=_cores_busy(columns, working),
        read_during_bytes_per_s=_rate(columns, "io_read_bytes", pauses),
    )


def _usual(values: "array[int]", missing: int) -> int | None:
    """Return the third quartile of what a GPU that is in use does; of some values, if many."""
    some = sorted(values[:: len(values) // _ENOUGH + 1])
    some = some[bisect_left(some, 10) : bisect_left(some, missing)]
    return some[len(some) * 3 // 4] if some else None


def _cores_busy(columns: Columns, parts: Sequence[tuple[int, int]]) -> float | None:
    rate, header = _rate(columns, "cpu_us", parts), columns.header
    cores = header.cores if header.summed else header.job_cores or header.cores
    return rate / 1e6 / cores * 100 if rate is not None and cores else None


def _rate(columns: Columns, name: str, parts: Sequence[tuple[int, int]]) -> float | None:
    """Return a counter's growth per second over runs of samples; None if it has gaps or fell."""
    column = columns.node.get(name)
    if column is None or column.has_gaps():
        return None
    values, times = column.values, columns.times
    ends = [(begin - 1, end - 1) for begin, end in parts if begin > 0]
    grown = sum(values[last] - values[before] for before, last in ends) * column.scale
    passed = sum(times[last] - times[before] for before, last in ends)
    return grown / passed * 1e6 if passed and grown >= 0 else None


# nvml.h, nvmlClocksEventReason*: those that mean lost speed. Not among them: idle (0x1), clocks
# set by the user (0x2), the power cap that a GPU at full work always meets (0x4), sync (0x10).
_HELD_DOWN = {
    0x08: "HwSlowdown",
    0x20: "SwThermalSlowdown",
    0x40: "HwThermalSlowdown",
    0x80: "HwPowerBrakeSlowdown",
}
_HELD_BITS = sum(_HELD_DOWN)


@frozen(kw_only=True)
class Throttling:
    """What the slow readings of a GPU say, once a minute each."""

    readings: int = 0
    held_down: int = 0
    reasons: tuple[str, ...] = ()

    @property
    def percent(self) -> float | None:
        """Readings that found clocks held down, of all that told."""
        return self.held_down / self.readings * 100 if self.readings else None

    def __add__(self, other: "Throttling") -> "Throttling":
        return Throttling(
            readings=self.readings + other.readings,
            held_down=self.held_down + other.held_down,
            reasons=tuple(sorted({*self.reasons, *other.reasons})),
        )


def is_held_down(bits: int) -> bool:
    """Say whether NVML's reasons are ones that hold clocks down."""
    return bool(bits & _HELD_BITS)


def find_throttling(readings: Iterable[int | None]) -> Throttling:
    """Count readings of NVML's reasons that say that clocks are held down."""
    told = Counter(bits for bits in readings if bits is not None)
    every = reduce(or_, told, 0)
    return Throttling(
        readings=told.total(),
        held_down=sum(count for bits, count in told.items() if is_held_down(bits)),
        reasons=tuple(sorted(name for bit, name in _HELD_DOWN.items() if every & bit)),
    )


_LOST = ("gpu_lost", "gpu_hang")
# Files of 0.1 have no more than these where NVML's error was none that says "lost".
_HINTS = ("gpu_error", "not_supported")
_SAMPLES = 3


@frozen(kw_only=True)
class Loss:
    """A GPU that could not be read for a while; microseconds from the attempt's start.

    Attributes:
        at_us: when it was last read before.
        back_us: when it was read again; None if it was not.
        error: NVML's own words.
    """

    at_us: int
    back_us: int | None
    error: str | None


def find_loss(
    files: Sequence[tuple[Columns, Clock]], info: GpuInfo, read: Sequence[Interval]
) -> Loss | None:
    """Return the loss that a GPU did not come back from, else the first; None without any.

    `read` is when it was read in all files together.
    """
    said = sorted(_said(files, info, _LOST), key=lambda pair: pair[0])
    if not said:
        return _silent(files, info, read)
    losses = [loss for at, note in said if (loss := _loss(at, note, read))]
    return next((loss for loss in losses if loss.back_us is None), losses[0] if losses else None)


def _loss(at: int, note: Note, read: Sequence[Interval]) -> Loss | None:
    if any(begin < at < end for begin, end in read):
        return None  # another sampler went on reading it
    before = [end for _, end in read if end <= at]
    after = [begin for begin, _ in read if begin >= at]
    return Loss(
        at_us=before[-1] if before else at,
        back_us=after[0] if after else None,
        error=note.text,
    )


def _silent(
    files: Sequence[tuple[Columns, Clock]], info: GpuInfo, read: Sequence[Interval]
) -> Loss | None:
    """Return the loss of a GPU whose last samples have no values although errors were noted."""
    hints = list(_said(files, info, _HINTS))
    if not read:
        return None
    last = read[-1][1]
    after = [
        time
        for columns, clock in files
        for time in columns.times[-_SAMPLES:]
        if time - clock.origin_us > last
    ]
    if len(after) < _SAMPLES:
        return None
    # The same words are noted once, so perhaps before.
    later = [note for at, note in hints if at >= last or note.code == _HINTS[0]]
    return Loss(at_us=last, back_us=None, error=later[0].text) if later else None


def _said(
    files: Sequence[tuple[Columns, Clock]], info: GpuInfo, codes: Sequence[str]
) -> Iterator[tuple[int, Note]]:
    for columns, clock in files:
        for note in columns.notes:
            if note.gpu == info.uuid and note.code in codes:
                yield note.mono_us - clock.origin_us, note
