"""All samples of a job to its figures: per GPU, per node, per attempt, and the whole."""

from collections.abc import Iterable, Iterator, Sequence

from hpckit.frozen import frozen
from hpckit.stats.metric_table import GPU, NODE
from hpckit.stats.samples.columns import Columns
from hpckit.stats.samples.records import SHARED
from hpckit.stats.summary.attempts import AttemptSums, Span, add_up, grouped, seen_span
from hpckit.stats.summary.coverage import enough, enough_of, percent_of, total
from hpckit.stats.summary.figures import Attempt, GpuUse, NodeUse, SourceNote, Summary
from hpckit.stats.summary.gpu_tally import GpuTally
from hpckit.stats.summary.gpu_use import gpu_use
from hpckit.stats.summary.nodes import NodeTally, node_use
from hpckit.stats.summary.over_time import add_known, most, over_all, weighted_mean
from hpckit.stats.summary.timeline import Timeline, make_timeline
from hpckit.text import by_number


@frozen(kw_only=True)
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
    gpus = grouped((t for attempt in attempts for t in attempt.gpus), _gpu)
    starts = {attempt.span.restart: attempt.span.start for attempt in attempts}
    uses = (gpu_use(tallies, starts) for tallies in gpus)
    per_gpu = tuple(sorted(uses, key=lambda gpu: (by_number(gpu.host), gpu.index or 0)))
    nodes = grouped((t for attempt in attempts for t in attempt.nodes), _host)
    per_node = tuple(
        node_use(tallies, [gpu for gpu in per_gpu if gpu.host == tallies[0].host])
        for tallies in sorted(nodes, key=lambda tallies: by_number(tallies[0].host))
    )
    newest = [attempt for attempt in attempts if attempt.nodes][-1]
    over = {attempt.span.restart: attempt.span.over for attempt in attempts}
    return Account(
        summary=job_summary(per_gpu, per_node, attempts),
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


def _attempts(files: Sequence[Columns], spans: Sequence[Span]) -> Iterator[AttemptSums]:
    known = {span.restart: span for span in spans}
    own = {group[0].restart: group for group in grouped(files, lambda file: file.restart)}
    for restart in sorted(known.keys() | own.keys()):
        group = own.get(restart, [])
        yield add_up(group, known.get(restart) or seen_span(group, restart))


def _figures(attempt: AttemptSums) -> Attempt:
    """Return one attempt's own figures."""
    span = attempt.span
    per_gpu = [gpu_use([tally], {span.restart: span.start}) for tally in attempt.gpus]
    per_node = [node_use([tally], []) for tally in attempt.nodes]
    summary = job_summary(per_gpu, per_node, [attempt])
    return Attempt(
        restart=span.restart,
        state=span.state,
        hosts=span.hosts or tuple(sorted({node.host for node in attempt.nodes}, key=by_number)),
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
        gpu_coverage_lowest_percent=summary.gpu_coverage_lowest_percent,
    )


def _gpu(tally: GpuTally) -> tuple[str, str]:
    return tally.host, tally.info.uuid


def _host(tally: NodeTally) -> str:
    return tally.host


def job_summary(
    per_gpu: Sequence[GpuUse], per_node: Sequence[NodeUse], attempts: Sequence[AttemptSums]
) -> Summary:
    """Return the figures of all attempts together."""
    tallies = [tally for attempt in attempts for tally in attempt.nodes]
    due_us = sum(attempt.due_us for attempt in attempts)
    covered_us = sum(tally.covered_us for tally in tallies)
    cpu_seen_us = sum(t.cpu_seen_us for t in tallies)
    saw_all = all(attempt.saw_all_gpus for attempt in attempts)
    core_us = sum(t.cpu_seen_us * (t.cores or 0) for t in tallies if t.cpu_us is not None)
    cpu_us = add_known(tally.cpu_us for tally in tallies)
    if not enough_of(cpu_seen_us, covered_us):
        cpu_us = None
    hours = [gpu.hours for gpu in per_gpu]
    gpu_used, gpu_total = _used((gpu.memory_peak_bytes, gpu.memory_total_bytes) for gpu in per_gpu)
    used, limit = _used((node.memory_peak_bytes, node.memory_limit_bytes) for node in per_node)
    return Summary(
        gpu_utilization_percent=weighted_mean([row.utilization_percent for row in per_gpu], hours),
        gpu_utilization_peak_percent=_highest(gpu.utilization_peak_percent for gpu in per_gpu),
        gpu_memory_used_percent=_percent(gpu_used, gpu_total),
        gpu_memory_peak_bytes=most(gpu.memory_peak_bytes for gpu in per_gpu),
        gpu_memory_total_bytes=most(gpu.memory_total_bytes for gpu in per_gpu),
        power_watts_mean=weighted_mean([row.power_watts_mean for row in per_gpu], hours),
        energy_joules=total(gpu.energy_joules for gpu in per_gpu) if saw_all else None,
        cpu_efficiency_percent=None if cpu_us is None else _percent(cpu_us, core_us),
        cpu_s=cpu_us / 1e6 if cpu_us is not None and enough_of(cpu_seen_us, due_us) else None,
        memory_efficiency_percent=_percent(used, limit),
        memory_peak_bytes=most(node.memory_peak_bytes for node in per_node),
        memory_limit_bytes=most(node.memory_limit_bytes for node in per_node),
        gpu_hours=total(attempt.gpu_hours for attempt in attempts),
        gpu_hours_idle=total(gpu.idle_hours for gpu in per_gpu) if saw_all else None,
        samples=sum(tally.samples for tally in tallies),
        coverage_percent=percent_of(covered_us, due_us),
        gpu_coverage_percent=percent_of(
            sum(tally.read_us for attempt in attempts for tally in attempt.gpus),
            sum(attempt.gpu_due_us for attempt in attempts),
        ),
        gpu_coverage_lowest_percent=_least_read(per_gpu, saw_all=saw_all),
        gpu_imbalance_percent=_spread(
            gpu.utilization_percent for gpu in per_gpu if enough(gpu.covered_percent, gpu.hours)
        ),
        node_imbalance_percent=_spread(node.gpu_utilization_percent for node in per_node),
        **over_all(GPU, per_gpu, hours, lambda known: total(known) if saw_all else None),
        **over_all(NODE, per_node, [node.covered_percent for node in per_node], add_known),
    )


def _least_read(per_gpu: Sequence[GpuUse], *, saw_all: bool) -> float | None:
    """Return for how much of its time the GPU was read that was read least."""
    known = _known(gpu.covered_percent for gpu in per_gpu)
    return (min(known) if saw_all else 0.0) if known else None


def _used(pairs: Iterable[tuple[int | None, int | None]]) -> tuple[int, int]:
    """Add up peaks and limits where both are known."""
    known = [(peak, limit) for peak, limit in pairs if peak is not None and limit]
    return sum(peak for peak, _ in known), sum(limit for _, limit in known)


def _percent(part: float, all_of_it: float) -> float | None:
    return part / all_of_it * 100 if all_of_it else None


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _highest(values: Iterable[float | None]) -> float | None:
    return max(_known(values), default=None)


def _spread(values: Iterable[float | None]) -> float | None:
    known = _known(values)
    return max(known) - min(known) if len(known) > 1 else None


def file_notes(file: Columns, *, over: bool) -> Iterator[SourceNote]:
    """Yield the notes on one file; `over`: the attempt has ended, so its sampler should have."""
    host = file.header.host
    for note in file.notes:
        yield SourceNote(code=note.code, text=note.text, host=host, gpu=note.gpu)
    if over and file.end is None:
        yield SourceNote(
            code="sampler_stopped",
            text="The sampler was killed from outside; all samples it wrote before that are here.",
            host=host,
        )
    damage = file.damage
    if damage.bad_lines or damage.holes or damage.unknown or damage.astray:
        yield SourceNote(
            code="damage",
            text=f"{damage.bad_lines} damaged records, {damage.holes} holes, {damage.unknown} "
            f"records of a newer version and {damage.astray} records with impossible times "
            f"were left out of {file.path.name}.",
            host=host,
        )


def gpu_notes(tallies: Iterable[GpuTally], per_gpu: Sequence[GpuUse]) -> Iterator[SourceNote]:
    """Yield what limits the figures of GPUs."""
    shared = [(t.host, t.info.uuid) for t in tallies if t.confidence == SHARED]
    for host, uuid in dict.fromkeys(shared):
        yield SourceNote(
            code="shared_gpu",
            text="Processes of other jobs used this GPU too.",
            host=host,
            gpu=uuid,
        )
    errors = [gpu.utilization_error_percent for gpu in per_gpu]
    known = [error for error in errors if error is not None]
    if known:
        yield SourceNote(
            code="spot",
            text="The driver keeps no history here: utilization is the mean of single readings, "
            f"with an error of ± {max(known):.2g} %.",
        )
