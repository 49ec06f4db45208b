"""What a job did over time, for pictures: of each metric that is drawn, a line per device.

All attempts stand on one axis, cut into bins of one width. A bin has the mean over its time, as the
figures have it, and the lowest and highest value of any sample in it: a peak of a second is still
seen in the picture of a week. Pure, but for the files that `read_drawn` reads.
"""

from array import array
from collections.abc import Iterator, Mapping, Sequence
from itertools import compress, pairwise

from hpckit.frozen import frozen
from hpckit.stats.metric import Drawn, Metric
from hpckit.stats.metric_table import GPU, NODE
from hpckit.stats.samples.collecting import read_columns
from hpckit.stats.samples.columns import Columns, SampleFile
from hpckit.stats.samples.packing import Column
from hpckit.stats.samples.pieces import piece_of
from hpckit.stats.summary.attempts import Span, clocks_of, grouped, outliving, seen_span
from hpckit.stats.summary.clock import Clock, bin_width_s, weighted
from hpckit.stats.summary.coverage import Interval, length, union
from hpckit.stats.summary.timeline import first_bins, row_of
from hpckit.text import by_number

# A picture is some 1000 points wide, and can be zoomed.
MOST_BINS = 3000
# Bins of all lines together: each is some 15 bytes of the page.
_MOST_IN_ALL = 120_000
_LEAST_BINS = 120
# Growth per microsecond is kept as an integer: cores in millionths.
_RATE = 1_000_000
Band = tuple[float, float, float]  # lowest, mean, highest
# Of one bin: microseconds in which a value is known, integral over them, lowest, highest.
Sums = tuple[int, float, float, float]
# Of one device, by whose processes it is of (`Header.summed`); None: all of the job's.
Owners = dict[str | None, dict[int, Sums]]
Device = tuple[str, str | None, int | None]  # host, GPU's UUID, its index


@frozen(kw_only=True)
class Curve:
    """One device's line; None where nothing is known, and between attempts.

    Attributes:
        gpu: its UUID; None: the line is the node's.
        index: the GPU's on its node.
        replaced: it is what an attempt did that a later one did again.
    """

    host: str
    gpu: str | None
    index: int | None
    low: tuple[float | None, ...]
    mean: tuple[float | None, ...]
    high: tuple[float | None, ...]
    replaced: bool = False


@frozen(kw_only=True)
class Chart:
    """One metric of all GPUs, or of all nodes."""

    name: str
    title: str
    unit: str
    top: float | None
    curves: tuple[Curve, ...]


@frozen(kw_only=True)
class Curves:
    """All pictures of a job, over the same moments.

    Attributes:
        width_s: of a bin.
        times: the middle of each bin, in epoch seconds; between two attempts, where the first ends.
    """

    width_s: int
    times: tuple[float, ...]
    charts: tuple[Chart, ...]


def read_drawn(files: Sequence[SampleFile], spans: Sequence[Span]) -> list[Columns]:
    """Read what is drawn of samples files, as far as their attempts had their nodes.

    Raises:
        OSError: one cannot be read any more. DamagedFileError: it is no regular file.
    """
    found = [_drawn_of(file) for file in files]
    known = [columns for columns in found if columns]
    ends = {(file.path, file.restart): until_us for file, until_us in outliving(known, spans)}
    cut = [
        _drawn_of(columns, ends[columns.path, columns.restart])
        if (columns.path, columns.restart) in ends
        else columns
        for columns in known
    ]
    return [columns for columns in cut if columns]


def _drawn_of(file: SampleFile | Columns, until_us: int | None = None) -> Columns | None:
    found = read_columns(file.path, file.restart, until_us, drawn=True, figures=False)
    return piece_of(found, file) if found else None


def make_curves(
    files: Sequence[Columns], spans: Sequence[Span], most: int = MOST_BINS
) -> Curves | None:
    """Return the pictures of a job, in some `most` bins; None if nothing was sampled."""
    used = [file for file in files if len(file)]
    if not used:
        return None
    attempts = _spans(used, spans)
    width_s = _width_s(used, attempts, most)
    times: list[float] = []
    lines: dict[tuple[str, bool], dict[Device, list[Band | None]]] = {}
    for span in attempts:
        count = max(-int(-span.wall_s // width_s), 1)
        times += [span.start] if times else []
        own = [file for file in used if file.restart == span.restart]
        for key, device, row in _rows(own, span.start, width_s, count):
            line = lines.setdefault(key, {}).setdefault(device, [])
            line += [None] * (len(times) - len(line))
            line += row
        times += [span.start + (number + 0.5) * width_s for number in range(count)]
    charts = (
        _chart(metric, lines.get((metric.name, of_gpus), {}), len(times))
        for metric, of_gpus in _drawn()
    )
    return Curves(
        width_s=width_s, times=tuple(times), charts=tuple(chart for chart in charts if chart.curves)
    )


def _drawn() -> Iterator[tuple[Metric, bool]]:
    """Yield what is drawn, what is seen most first: of GPUs, then of nodes."""
    rows = [row for row in GPU if row.drawn]
    first = [row for row in rows if row.name == "utilization_permille"]
    yield from ((row, True) for row in (*first, *(row for row in rows if row not in first)))
    yield from ((row, False) for row in NODE if row.drawn)


def _spans(files: Sequence[Columns], spans: Sequence[Span]) -> list[Span]:
    known = {span.restart: span for span in spans}
    seen = {group[0].restart: group for group in grouped(files, lambda file: file.restart)}
    found = [
        known.get(restart) or seen_span(seen[restart], restart)
        for restart in sorted(known.keys() | seen.keys())
    ]
    return sorted(found, key=lambda span: span.start)


def _width_s(files: Sequence[Columns], spans: Sequence[Span], most: int) -> int:
    """Return a width that lets each line be seen, and all of them be sent by mail."""
    gpus = {(file.header.host, info.uuid) for file in files for info in file.header.gpus}
    hosts = {file.header.host for file in files}
    lines = sum(len(gpus if of_gpus else hosts) for _, of_gpus in _drawn())
    most = max(min(most, _MOST_IN_ALL // lines), min(most, _LEAST_BINS))
    interval_s = max(file.header.interval_us for file in files) / 1e6
    elapsed_s = sum(span.wall_s for span in spans)
    # A bin narrower than the time between samples would be a picture of the sampler.
    return bin_width_s(max(elapsed_s, interval_s * most), most)


def _rows(
    files: Sequence[Columns], start: float, width_s: int, count: int
) -> Iterator[tuple[tuple[str, bool], Device, tuple[Band | None, ...]]]:
    """Yield the lines of one attempt; a device's several files are one line."""
    found: dict[tuple[str, bool], dict[Device, Owners]] = {}
    seen: dict[str, dict[int, list[Interval]]] = {}
    reach_us = 0
    clocks = [*clocks_of(files, start, width_s)]
    begun = first_bins(clocks)
    for columns, clock in clocks:
        for number, extent in _extents(columns, clock):
            seen.setdefault(columns.header.host, {}).setdefault(number, []).append(extent)
        reach_us = max(reach_us, clock.reach_us)
        for metric, of_gpus in _drawn():
            for device, column in _columns(columns, metric, of_gpus):
                lines = found.setdefault((metric.name, of_gpus), {})
                # Of a node without cgroups each step has its own processes.
                owner = None if of_gpus else columns.header.summed
                owners = lines.setdefault(device, {})
                _add(owners.setdefault(owner, {}), _bins(columns, clock, column))
    reach = reach_us // (width_s * 1_000_000)
    drawn = {(metric.name, of_gpus): metric.drawn for metric, of_gpus in _drawn()}
    for key, lines in found.items():
        shape = drawn[key] or Drawn(unit="")
        for device, owners in lines.items():
            bins = _side_by_side([*owners.values()], seen[device[0]])
            bands = {number: _band(sums, shape) for number, sums in bins.items()}
            yield key, device, row_of(bands, count, reach, begun[device[0]])


def _columns(columns: Columns, metric: Metric, of_gpus: bool) -> Iterator[tuple[Device, Column]]:
    host = columns.header.host
    if of_gpus:
        for info, row in columns.drawn_units():
            if (column := row.get(metric.name)) is not None:
                yield (host, info.uuid, info.index), column
    elif (column := columns.node.get(metric.name)) is not None:
        rate = metric.drawn is not None and metric.drawn.rate
        yield (host, None, None), _growth(columns, column) if rate else column


def _growth(columns: Columns, column: Column) -> Column:
    """Return how fast a counter grew since the sample before; unknown for the first."""
    missing = (1 << 64) - 1
    found = array("Q", [missing] * min(len(column.values), 1))
    unknown = column.missing
    scale = column.scale * _RATE
    pairs = zip(pairwise(column.values), pairwise(columns.times), strict=True)
    found.extend(
        missing
        if before == unknown or after == unknown or after < before or until <= since
        else (after - before) * scale // (until - since)
        for (before, after), (since, until) in pairs
    )
    return Column(values=found, missing=missing, scale=1)


def _bins(columns: Columns, clock: Clock, column: Column) -> Iterator[tuple[int, Sums]]:
    """Yield the bins in which a value is known; the first sample stands for no time."""
    known = column.known
    for part, (weight_us, amount) in zip(clock.bins, weighted(clock, column), strict=True):
        first = max(part.first, 1)
        values = column.values[first : part.last]
        if known is not None:
            values = array(values.typecode, compress(values, known[first : part.last]))
        if weight_us and values:
            low, high = min(values) * column.scale, max(values) * column.scale
            yield part.number, (weight_us, amount, low, high)


def _add(bins: dict[int, Sums], more: Iterator[tuple[int, Sums]]) -> None:
    """Put the bins of another file of the same device beside those there are."""
    for number, (weight_us, amount, low, high) in more:
        if number in bins:
            known = bins[number]
            weight_us, amount = weight_us + known[0], amount + known[1]
            low, high = min(low, known[2]), max(high, known[3])
        bins[number] = (weight_us, amount, low, high)


def _side_by_side(
    owners: Sequence[dict[int, Sums]], seen: Mapping[int, Sequence[Interval]]
) -> dict[int, Sums]:
    """Add up what several use at one time; `seen` is when they were, of each bin."""
    if len(owners) == 1:
        return owners[0]
    found: dict[int, Sums] = {}
    for number in sorted({number for own in owners for number in own}):
        rows = [own[number] for own in owners if number in own]
        weight_us = max(length(union([seen.get(number, ())])), *(row[0] for row in rows))
        amount = sum(row[1] for row in rows)
        low, high = sum(row[2] for row in rows), sum(row[3] for row in rows)
        found[number] = (weight_us, amount, min(low, amount / weight_us), high)
    return found


def _extents(columns: Columns, clock: Clock) -> Iterator[tuple[int, Interval]]:
    """Yield from when to when a file has samples in each bin."""
    for part in clock.bins:
        begin, end = columns.times[max(part.first - 1, 0)], columns.times[part.last - 1]
        yield part.number, (begin - clock.origin_us, end - clock.origin_us)


def _band(sums: Sums, drawn: Drawn) -> Band:
    """Return a bin's lowest, mean and highest value in the unit of the picture."""
    weight_us, amount, low, high = sums
    factor = drawn.factor / _RATE if drawn.rate else drawn.factor
    # A mean of equal values may differ from them in its last bit.
    mean = min(max(amount / weight_us, low), high)
    found = (round(value * factor, drawn.digits or None) for value in (low, mean, high))
    first, second, third = found
    return first, second, third


def _chart(metric: Metric, lines: dict[Device, list[Band | None]], count: int) -> Chart:
    drawn = metric.drawn or Drawn(unit="")
    return Chart(
        name=metric.name,
        title=drawn.title or metric.title,
        unit=drawn.unit,
        top=drawn.top,
        curves=tuple(
            _curve(device, [*row, *[None] * (count - len(row))])
            for device, row in sorted(lines.items(), key=lambda line: _place(line[0]))
        ),
    )


def _place(device: Device) -> tuple[str, int, str]:
    host, gpu, index = device
    return by_number(host), -1 if index is None else index, gpu or ""


def _curve(device: Device, row: Sequence[Band | None]) -> Curve:
    host, gpu, index = device
    low, mean, high = (tuple(band and band[at] for band in row) for at in range(3))
    return Curve(host=host, gpu=gpu, index=index, low=low, mean=mean, high=high)
