"""Series of a Prometheus made into samples as hpckit's own sampler writes them. Pure.

So the same code makes all figures: means weighted by time, coverage, energy over resets, pauses.
All series of one attempt lie on one grid: a value at a moment is of the time since the one before.
"""

import statistics
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from hpckit.sources.client import Series
from hpckit.sources.schemes import NAME, Reading, Scheme, label_of
from hpckit.stats.samples.columns import Columns
from hpckit.stats.samples.minutes import joined
from hpckit.stats.samples.packing import GPU_PLACES, NODE_PLACES, Column, PackedField
from hpckit.stats.samples.records import SPOT, GpuInfo, GpuSlow, Header, Slow
from hpckit.text import in_line

Values = list[float | None]
# What says on which node a series was made, where the site does not: DCGM's own labels come first,
# because its `instance` may be a service's.
_HOST_LABELS = ("Hostname", "hostname", "instance")
_SLOW = ("temperature_c", "memory_temperature_c")
# A cgroup without a limit says a number near 2^63.
_NO_LIMIT = float(1 << 60)
_MOST_LETTERS = 128


@dataclass(frozen=True, kw_only=True, slots=True)
class Grid:
    """The moments of one attempt: `start + step_s`, ... `start + count * step_s`, its end.

    `late_s`: what is told of them was read so much before.
    """

    start: float
    step_s: float
    count: int
    late_s: float = 0.0

    @property
    def end(self) -> float:
        """The last moment."""
        return self.start + self.count * self.step_s

    def place(self, moment: float) -> int | None:
        """Return which moment this is, the first being 0; None if it is none."""
        at = round((moment - self.start) / self.step_s) - 1
        return at if 0 <= at < self.count else None


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """One GPU or node: the labels of all its series, and each one's values on the grid."""

    host: str
    labels: dict[str, str] = field(default_factory=dict)
    values: dict[str, Values] = field(default_factory=dict)

    def add(self, name: str, series: Series, grid: Grid) -> None:
        """Fill in values that are not known yet; a second server may have scraped the same."""
        self.labels.update(series.labels)
        row = self.values.setdefault(name, [None] * grid.count)
        for moment, value in series.points:
            at = grid.place(moment)
            if at is not None and row[at] is None:
                row[at] = value

    def column(self, readings: Sequence[Reading], column: str) -> Values | None:
        """Return a column's values in its own unit; None if no series has it."""
        for reading in readings:
            first = self.values.get(reading.names[0]) if reading.column == column else None
            if first is not None:
                more = [row for name in reading.names[1:] if (row := self.values.get(name))]
                return [
                    None
                    if value is None
                    else (value + sum(row[at] or 0.0 for row in more)) * reading.factor
                    for at, value in enumerate(first)
                ]
        return None

    def whole(self, readings: Sequence[Reading], column: str) -> float | None:
        """Return what does not change during an attempt: the middle of its values."""
        known = [value for value in self.column(readings, column) or () if value is not None]
        return statistics.median_low(known) if known else None


def host_of(labels: Mapping[str, str], hosts: Sequence[str], host_label: str | None) -> str:
    """Return the node of a series as the job calls it, whatever domain and port follow."""
    said = label_of(labels, [host_label] if host_label else _HOST_LABELS) or ""
    name = said.rpartition(":")[0] if said.count(":") == 1 else said
    same = [host for host in hosts if _short(host) == _short(name)]
    if same:
        return same[0]
    # One job on one node: an address is as good a name.
    return hosts[0] if len(hosts) == 1 and name[:1].isdigit() else in_line(name)[:_MOST_LETTERS]


def _short(host: str) -> str:
    return host.partition(".")[0]


def gpus_in(
    scheme: Scheme,
    series: Sequence[Series],
    grid: Grid,
    hosts: Sequence[str],
    host_label: str | None,
) -> dict[tuple[str, str], Part]:
    """Put the series of each GPU or MIG slice together, by node and UUID."""
    found: dict[tuple[str, str], Part] = {}
    for one in series:
        uuid = label_of(one.labels, scheme.uuid) or label_of(one.labels, scheme.index)
        if uuid is None:
            continue
        part = label_of(one.labels, scheme.slice_id)
        # DCGM names a slice by its GPU, jobstats by a UUID of its own.
        if part and not uuid.startswith("MIG-"):
            uuid = f"{uuid}/{part}"
        host = host_of(one.labels, hosts, host_label)
        key = (host, in_line(full_uuid(uuid))[:_MOST_LETTERS])
        found.setdefault(key, Part(host=host)).add(one.labels.get(NAME, ""), one, grid)
    return found


def full_uuid(uuid: str) -> str:
    """Return a UUID as NVML writes it; nvidia_gpu_exporter leaves `GPU-` away."""
    return f"GPU-{uuid}" if uuid.count("-") == 4 and uuid[:4] not in ("GPU-", "MIG-") else uuid


def nodes_in(
    series: Sequence[Series], grid: Grid, hosts: Sequence[str], host_label: str | None
) -> dict[str, Part]:
    """Put the series of each node's cgroup together."""
    found: dict[str, Part] = {}
    for one in series:
        host = host_of(one.labels, hosts, host_label)
        found.setdefault(host, Part(host=host)).add(one.labels.get(NAME, ""), one, grid)
    return found


def gpu_samples(
    host: str, gpus: Mapping[tuple[str, str], Part], scheme: Scheme, grid: Grid, restart: int
) -> Columns:
    """Return the samples of one node's GPUs in one attempt."""
    mine = [(uuid, part) for (where, uuid), part in gpus.items() if where == host]
    mine.sort(key=lambda pair: index_of(pair[1], scheme) or 0)
    readings = scheme.readings
    found = _samples(host, grid, restart, tuple(_info(uuid, part, scheme) for uuid, part in mine))
    columns = [_of_gpu(part, readings) for _, part in mine]
    return replace(
        found,
        energies=tuple(row.pop("energy_mj", None) for row in columns),  # they stand apart
        gpus=tuple(columns),
        slow=joined(_slow([part for _, part in mine], readings, found.times), len(mine)),
    )


def node_samples(node: Part, readings: Sequence[Reading], grid: Grid, restart: int) -> Columns:
    """Return the samples of one node's cores and memory in one attempt."""
    found = _samples(node.host, grid, restart)
    header = replace(
        found.header,
        cores=_whole(node, readings, "cores"),
        memory_limit_bytes=_limit(node, readings),
    )
    cpu_us = node.column(readings, "cpu_us")
    columns = {
        "cpu_us": None if cpu_us is None else _only_growing(cpu_us),
        "memory_bytes": node.column(readings, "memory_bytes"),
    }
    return replace(found, header=header, node=_packed(NODE_PLACES, columns))


def _samples(host: str, grid: Grid, restart: int, gpus: tuple[GpuInfo, ...] = ()) -> Columns:
    """Return samples of which only the times are known; the first one is the attempt's start."""
    begun_us, step_us = round(grid.start * 1e6), max(round(grid.step_s * 1e6), 1)
    first_us = begun_us - round(grid.late_s * 1e6)
    read = (first_us + round(at * grid.step_s * 1e6) for at in range(1, grid.count + 1))
    times = array("Q", (begun_us, *(max(at, begun_us + 1) for at in read)))
    return Columns(
        path=Path("prometheus"),
        restart=restart,
        header=Header(
            host=host, boot_id=None, pid=0, epoch_us=begun_us, mono_us=begun_us,
            interval_us=step_us, gpus=gpus, gpu_method="prometheus", spot_us=step_us,
        ),
        times=times,
        node={},
        gpus=(),
        counter_times=times,
        counters={},
        energies=(),
        every_energy=True,
    )  # fmt: skip


def _info(uuid: str, part: Part, scheme: Scheme) -> GpuInfo:
    size = _whole(part, scheme.readings, "memory_total_bytes")
    model = label_of(part.labels, scheme.model)
    is_slice = bool(label_of(part.labels, scheme.slice_id))
    return GpuInfo(
        index=index_of(part, scheme) or 0,
        uuid=uuid,
        name=in_line(model)[:_MOST_LETTERS] if model else None,
        memory_total_bytes=size,
        mig_parent=label_of(part.labels, scheme.uuid) if is_slice else None,
    )


def index_of(part: Part, scheme: Scheme) -> int | None:
    """Return a GPU's number on its node: NVML's order, which is PCI's."""
    said = label_of(part.labels, scheme.index)
    if said and said.isascii() and said.isdecimal() and len(said) <= 4:
        return int(said)
    return None


def _whole(part: Part, readings: Sequence[Reading], column: str) -> int | None:
    value = part.whole(readings, column)
    return None if value is None or value < 0 else round(value)


def _limit(node: Part, readings: Sequence[Reading]) -> int | None:
    value = _whole(node, readings, "limit")
    return value if value and value < _NO_LIMIT else None


def _only_growing(values: Values) -> Values:
    """Return a counter that goes on where it began again from 0."""
    found: Values = []
    before = lost = 0.0
    for value in values:
        if value is not None:
            lost += before if value < before else 0.0
            before = value
        found.append(None if value is None else value + lost)
    return found


def _of_gpu(part: Part, readings: Sequence[Reading]) -> dict[str, Column]:
    columns = {
        name: part.column(readings, name)
        for name in dict.fromkeys(reading.column for reading in readings)
        if name in GPU_PLACES
    }
    return _packed(GPU_PLACES, columns)


def _packed(
    places: Mapping[str, PackedField], columns: Mapping[str, Values | None]
) -> dict[str, Column]:
    """Return columns as a file's are, with a first sample of which nothing is known.

    A counter of CPU time begins at 0, as the job's cgroup does.
    """
    found = {}
    for name, values in columns.items():
        if values is None:
            continue
        place = places[name]
        first = 0.0 if name == "cpu_us" else None
        kind = "Q" if place.high is not None else place.kind
        packed = array(kind, (_number(value, place) for value in (first, *values)))
        found[name] = Column(values=packed, missing=place.missing, scale=place.scale)
    return {name: column for name, column in found.items() if not column.is_unknown()}


def _number(value: float | None, place: PackedField) -> int:
    """Return a value as it is packed; what does not fit is unknown."""
    number = place.missing if value is None or value < 0 else round(value / place.scale)
    return min(number, place.missing)


def _slow(
    parts: Sequence[Part], readings: Sequence[Reading], times: "array[int]"
) -> Sequence[Slow]:
    """Return what a sampler reads once a minute: the highest of all is all that is made of it."""
    rows = []
    for part in parts:
        known = {name: part.column(readings, name) for name in _SLOW}
        peaks = {
            name: round(max(there))
            for name, values in known.items()
            if (there := [value for value in values or () if value is not None])
        }
        rows.append(GpuSlow(**peaks, utilization_source=SPOT))
    return [Slow(mono_us=times[-1], epoch_us=times[-1], gpus=tuple(rows))] if rows else []
