"""One attempt of a job: its files, each node and each GPU of them counted once."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import TypeVar

from hpckit.beside import beside
from hpckit.frozen import frozen
from hpckit.stats.samples.columns import Columns
from hpckit.stats.summary.clock import Clock, bin_width_s, make_clock
from hpckit.stats.summary.coverage import Interval
from hpckit.stats.summary.gpu_in_file import GpuInFile
from hpckit.stats.summary.gpu_tally import GpuTally, tally_gpu
from hpckit.stats.summary.nodes import NodeTally, tally_node

Item = TypeVar("Item")
# By how much a start and an end in whole seconds differ from the time between, if it is over; and
# for how long accounting takes to answer.
_ROUNDING_S = {True: 1.0, False: 30.0}
# So many readings of GPUs are added up by two processes: of a day at 1 s, by 8 GPUs. A file takes
# as long as so many more.
_MANY, _OF_A_FILE = 500_000, 500
# Slurm rounds the end down to a second.
_END_S = 1.0


@frozen(kw_only=True)
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
    def suspended_s(self) -> float:
        """For how long it held no cores between its start and its end."""
        away = self.wall_s - self.elapsed_s
        return away if away > _ROUNDING_S[self.over] else 0.0

    @property
    def elapsed_s(self) -> float:
        """How long it held its nodes: what hours are made of, here as in accounting."""
        return self.wall_s if self.held_s is None else self.held_s


@frozen(kw_only=True)
class AttemptSums:
    """One attempt, added up. `clocks` has its files, oldest first."""

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
        if count is None and self.nodes and self.saw_all_nodes:
            count = len(self.gpus)
        return None if count is None else count * self.span.elapsed_s / 3600

    @property
    def gpu_due_us(self) -> float:
        """The time of all GPUs together, also of those no sampler saw."""
        return max(self.span.gpus or 0, len(self.gpus)) * self.span.elapsed_s * 1e6

    @property
    def saw_all_nodes(self) -> bool:
        """Whether each node has samples."""
        seen = len({node.host for node in self.nodes})
        return seen >= (self.span.nodes or len(self.span.hosts))

    @property
    def saw_all_gpus(self) -> bool:
        """Whether each GPU has samples."""
        if self.span.gpus is None:
            return self.saw_all_nodes
        return len(self.gpus) >= self.span.gpus


def add_up(files: Sequence[Columns], span: Span) -> AttemptSums:
    """Add up one attempt's files: of a node, those of all its steps are one timeline."""
    width_s = bin_width_s(span.wall_s)
    clocks = list(clocks_of(files, span.start, width_s))
    due_us = span.elapsed_s * 1e6  # nothing is sampled while a job is suspended
    return AttemptSums(
        span=span,
        width_s=width_s,
        clocks=tuple(clocks),
        nodes=tuple(
            tally_node(
                group,
                due_us,
                span.memory_limit_bytes,
                suspended_us=span.suspended_s * 1e6,
            )
            for group in grouped(clocks, lambda pair: pair[0].header.host)
        ),
        gpus=_tally_gpus(clocks, span),
    )


def _tally_gpus(files: Sequence[tuple[Columns, Clock]], span: Span) -> tuple[GpuTally, ...]:
    parts = [part for columns, clock in files for part in _parts(columns, clock)]
    gpus = grouped(parts, lambda part: (part.columns.header.host, part.info.uuid))

    def tally(some: Sequence[Sequence[GpuInFile]]) -> list[GpuTally]:
        held_us, end_us, suspended = span.elapsed_s * 1e6, span.wall_s * 1e6, span.suspended_s > 0
        return [
            tally_gpu(group, span.restart, held_us, end_us, suspended=suspended) for group in some
        ]

    if len(gpus) < 2 or sum(len(part.columns) + _OF_A_FILE for part in parts) < _MANY:
        return tuple(tally(gpus))
    # Neighbours mostly do the same, so each process has every second one.
    with beside(lambda: tally(gpus[1::2])) as others:
        mine, its = tally(gpus[::2]), others()
    both = [*mine, *its]
    both[::2], both[1::2] = mine, its
    return tuple(both)


def _parts(columns: Columns, clock: Clock) -> Iterator[GpuInFile]:
    times: dict[bytes | None, list[Interval]] = {}
    for position in range(len(columns.header.gpus)):
        yield GpuInFile(columns=columns, clock=clock, position=position, times=times)


def clocks_of(
    files: Sequence[Columns], start: float, width_s: int
) -> Iterator[tuple[Columns, Clock]]:
    """Yield each file that has samples, oldest first; those of one boot on one clock.

    Wall clocks are set now and then; CLOCK_BOOTTIME is not.
    """
    for file, origin_us in _origins(files, start):
        yield file, make_clock(file, origin_us, width_s)


def _origins(files: Sequence[Columns], start: float) -> Iterator[tuple[Columns, int]]:
    """Yield each file that has samples with the attempt's start on its clock, oldest first."""
    zero: dict[Hashable, int] = {}
    for file in sorted(files, key=lambda file: file.first_epoch):
        if not len(file):
            continue
        header = file.header
        boot = (header.host, header.boot_id) if header.boot_id else id(file)
        origin = header.mono_us + round((start - file.first_epoch) * 1e6)
        yield file, zero.setdefault(boot, origin)


def outliving(files: Sequence[Columns], spans: Sequence[Span]) -> Iterator[tuple[Columns, int]]:
    """Yield each file that goes on after its attempt's end, and where it is to be cut (`mono_us`).

    What a GPU or a node does then is another's work, or none, and not in the job's hours. A file
    with nothing before the end is not cut: its node's clock is ahead.
    """
    for span in spans:
        own = [file for file in files if file.restart == span.restart]
        for file, origin_us in _origins(own, span.start) if span.over else ():
            end_us = origin_us + round((span.wall_s + _END_S) * 1e6)
            if file.times[0] <= end_us < file.times[-1]:
                yield file, end_us


def seen_span(files: Sequence[Columns], restart: int) -> Span:
    """Return an attempt's span as its samples alone tell it."""
    return Span(
        restart=restart,
        start=min(file.first_epoch for file in files),
        end=max(file.last_epoch for file in files),
    )


def grouped(items: Iterable[Item], key: Callable[[Item], Hashable]) -> list[list[Item]]:
    """Group items, in the order in which their keys appear."""
    groups: dict[Hashable, list[Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return list(groups.values())
