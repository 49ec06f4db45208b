"""All samples of a job to its figures: per GPU, per node, per attempt, and the whole."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hpckit.stats.samples.columns import Columns
from hpckit.stats.summary.attempts import Added, Span, add_up, by, seen_span
from hpckit.stats.summary.gpu_use import gpu_use
from hpckit.stats.summary.gpus import GpuTally
from hpckit.stats.summary.nodes import NodeTally, node_use
from hpckit.stats.summary.notes import file_notes, gpu_notes
from hpckit.stats.summary.timeline import Timeline, make_timeline
from hpckit.stats.summary.values import Attempt, GpuUse, NodeUse, SourceNote, Summary
from hpckit.stats.summary.whole import whole


@dataclass(frozen=True, kw_only=True, slots=True)
class Account:
    """What the samples of one job say.

    Attributes:
        last_epoch: when the newest sample was taken.
        gpus: those of the newest attempt that has samples; None if a node of it has none.
    """

    summary: Summary
    per_gpu: tuple[GpuUse, ...]
    per_node: tuple[NodeUse, ...]
    attempts: tuple[Attempt, ...]
    notes: tuple[SourceNote, ...]
    timelines: tuple[Timeline, ...]
    last_epoch: float
    gpus: int | None = None


def summarise(files: Sequence[Columns], spans: Sequence[Span] = ()) -> Account:
    """Add up a job's samples over its attempts.

    Args:
        files: at least one, of any number of nodes and attempts.
        spans: the attempts that are known otherwise, also such without samples; the rest is as
            its samples tell.
    """
    attempts = list(_attempts(files, spans))
    gpus = by((t for attempt in attempts for t in attempt.gpus), _gpu)
    starts = {attempt.span.restart: attempt.span.start for attempt in attempts}
    uses = (gpu_use(tallies, starts) for tallies in gpus)
    per_gpu = tuple(sorted(uses, key=lambda gpu: (gpu.host, gpu.index or 0)))
    nodes = by((t for attempt in attempts for t in attempt.nodes), _host)
    per_node = tuple(
        node_use(tallies, [gpu for gpu in per_gpu if gpu.host == tallies[0].host])
        for tallies in sorted(nodes, key=lambda tallies: tallies[0].host)
    )
    newest = [attempt for attempt in attempts if attempt.nodes][-1]
    over = {attempt.span.restart: attempt.span.over for attempt in attempts}
    return Account(
        summary=whole(per_gpu, per_node, attempts),
        per_gpu=per_gpu,
        per_node=per_node,
        attempts=tuple(map(_figures, attempts)),
        notes=(
            *(note for file in files for note in file_notes(file, over=over[file.restart])),
            *gpu_notes((t for attempt in attempts for t in attempt.gpus), per_gpu),
        ),
        timelines=tuple(map(make_timeline, attempts)),
        last_epoch=max(file.last_epoch for file in files),
        gpus=len(newest.gpus) if newest.saw_all_nodes else None,
    )


def _attempts(files: Sequence[Columns], spans: Sequence[Span]) -> Iterator[Added]:
    known = {span.restart: span for span in spans}
    own = {group[0].restart: group for group in by(files, lambda file: file.restart)}
    for restart in sorted(known.keys() | own.keys()):
        group = own.get(restart, [])
        yield add_up(group, known.get(restart) or seen_span(group, restart))


def _figures(attempt: Added) -> Attempt:
    """Return one attempt's own figures."""
    span = attempt.span
    per_gpu = [gpu_use([tally], {span.restart: span.start}) for tally in attempt.gpus]
    per_node = [node_use([tally], []) for tally in attempt.nodes]
    summary = whole(per_gpu, per_node, [attempt])
    return Attempt(
        restart=span.restart,
        state=span.state,
        hosts=span.hosts or tuple(sorted({node.host for node in attempt.nodes})),
        start=span.start,
        end=span.end if span.over else None,
        elapsed_s=span.elapsed_s,
        gpu_utilization_percent=summary.gpu_utilization_percent,
        gpu_hours=summary.gpu_hours,
        gpu_hours_idle=summary.gpu_hours_idle,
        energy_joules=summary.energy_joules,
        cpu_efficiency_percent=summary.cpu_efficiency_percent,
        memory_peak_bytes=summary.memory_peak_bytes,
        coverage_percent=summary.coverage_percent,
        gpu_coverage_percent=summary.gpu_coverage_percent,
    )


def _gpu(tally: GpuTally) -> tuple[str, str]:
    return tally.host, tally.info.uuid


def _host(tally: NodeTally) -> str:
    return tally.host
