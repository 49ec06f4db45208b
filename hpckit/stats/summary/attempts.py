"""One attempt of a job: its files, each node and each GPU of them counted once."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from hpckit.stats.samples.columns import Columns
from hpckit.stats.samples.records import GpuInfo
from hpckit.stats.summary.clock import Clock, bin_width_s, make_clock
from hpckit.stats.summary.gpus import GpuTally, tally_gpu
from hpckit.stats.summary.nodes import NodeTally, tally_node

Item = TypeVar("Item")


@dataclass(frozen=True, kw_only=True, slots=True)
class Span:
    """When one attempt of a job held its nodes, in epoch seconds.

    Attributes:
        nodes, gpus: in all; None if unknown, then those in the samples count.
        memory_limit_bytes: of each node, for samples that do not tell.
        held_s: for how long Slurm says it held them, which leaves out time it was suspended.
        over: False while it runs, then `end` is now.
    """

    restart: int
    start: float
    end: float
    state: str | None = None
    hosts: tuple[str, ...] = ()
    nodes: int | None = None
    gpus: int | None = None
    memory_limit_bytes: int | None = None
    held_s: float | None = None
    over: bool = True

    @property
    def wall_s(self) -> float:
        """The time from its start to its end."""
        return max(self.end - self.start, 0.0)

    @property
    def elapsed_s(self) -> float:
        """How long it held its nodes: what hours are made of, here as in accounting."""
        return self.wall_s if self.held_s is None else self.held_s


@dataclass(frozen=True, kw_only=True, slots=True)
class Added:
    """One attempt, added up. `clocks` has the files that count for nodes."""

    span: Span
    width_s: int
    clocks: tuple[tuple[Columns, Clock], ...]
    nodes: tuple[NodeTally, ...]
    gpus: tuple[GpuTally, ...]

    @property
    def due_us(self) -> float:
        """The time of all nodes together."""
        count = self.span.nodes or len(self.span.hosts) or len({node.host for node in self.nodes})
        return count * self.span.elapsed_s * 1e6

    @property
    def gpu_hours(self) -> float | None:
        """For how long it held GPUs; None if their number is unknown."""
        count = self.span.gpus
        if count is None and self.nodes:
            count = len({(gpu.host, gpu.info.uuid) for gpu in self.gpus})
        return None if count is None else count * self.span.elapsed_s / 3600


def add_up(files: Sequence[Columns], span: Span) -> Added:
    """Add up one attempt's files."""
    width_s = bin_width_s(span.wall_s)
    with_samples = [file for file in files if len(file)]
    by_node = list(distinct(with_samples, lambda file: file.header.host, lambda file: file))
    clocks = {id(file): make_clock(file, span.start, width_s) for file in with_samples}
    return Added(
        span=span,
        width_s=width_s,
        clocks=tuple((file, clocks[id(file)]) for file in by_node),
        nodes=tuple(
            # Nothing is sampled while a job is suspended.
            tally_node(
                file,
                clocks[id(file)],
                span.start,
                span.start + span.elapsed_s,
                span.memory_limit_bytes,
            )
            for file in by_node
        ),
        gpus=tuple(
            tally_gpu(file, clocks[id(file)], position, span.start)
            for file, position in _each_gpu(with_samples)
        ),
    )


def seen_span(files: Sequence[Columns], restart: int) -> Span:
    """Return an attempt's span as its samples alone tell it."""
    return Span(
        restart=restart,
        start=min(file.first_epoch for file in files),
        end=max(file.last_epoch for file in files),
    )


def distinct(
    items: Iterable[Item], key: Callable[[Item], Hashable], file: Callable[[Item], Columns]
) -> Iterator[Item]:
    """Leave out what another sampler saw at the same time; the longer of two files counts.

    Several samplers run on a node where each task was bound to GPUs of its own, or one after
    another where a script starts several steps.
    """
    kept: dict[Hashable, list[Columns]] = {}
    for item in sorted(items, key=lambda item: -len(file(item))):
        others = kept.setdefault(key(item), [])
        own = file(item)
        if not any(_overlap(own, other) for other in others):
            others.append(own)
            yield item


def by(items: Iterable[Item], key: Callable[[Item], Hashable]) -> list[list[Item]]:
    """Group items, in the order in which their keys appear."""
    groups: dict[Hashable, list[Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return list(groups.values())


def _overlap(one: Columns, other: Columns) -> bool:
    return one.first_epoch < other.last_epoch and other.first_epoch < one.last_epoch


def _each_gpu(files: Sequence[Columns]) -> Iterator[tuple[Columns, int]]:
    """Name each GPU once, oldest file first: its table's position in a file."""
    seen = [(file, at) for file in files for at in range(len(file.header.gpus))]

    def info(pair: tuple[Columns, int]) -> GpuInfo:
        return pair[0].header.gpus[pair[1]]

    once = distinct(seen, lambda pair: (pair[0].header.host, info(pair).uuid), lambda pair: pair[0])
    yield from sorted(once, key=lambda pair: pair[0].first_epoch)
