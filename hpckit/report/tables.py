"""The rows of a job's page: one per GPU with its line of time, one per node."""

from collections.abc import Iterator, Sequence

from hpckit.report.terminal import Style, blocks, duration, percent, size
from hpckit.slurm.resized import row_word
from hpckit.stats.metric import Metric
from hpckit.stats.metric_table import GPU
from hpckit.stats.summary.coverage import enough, total
from hpckit.stats.summary.figures import GpuUse, JobUse, NodeUse, numbers_of, part_word
from hpckit.stats.summary.timeline import Timeline
from hpckit.text import by_number, counted, cut, in_line

_MOST_GPUS, _MOST_NODES = 8, 4
# Of an attempt on the axis of time, with the mark before it.
_LEAST_COLUMNS = 3
# A line of time with less room than this stands below its figures.
_LEAST_LINE = 12


def gpu_rows(
    job: JobUse, timelines: Sequence[Timeline], style: Style, *, everything: bool
) -> Iterator[str]:
    """Yield a row per GPU: what it did, and when."""
    if not job.per_gpu:
        return
    numbers = dict(zip(map(id, job.per_gpu), numbers_of(job.per_gpu), strict=True))

    def label(gpu: GpuUse) -> str:
        return in_line(f"{gpu.host} {numbers[id(gpu)]}") + part_word(gpu.name, part=gpu.mig)

    gpus = sorted(job.per_gpu, key=lambda gpu: (by_number(gpu.host), gpu.index or 0))
    shown = gpus if everything or len(gpus) <= _MOST_GPUS else _worst(gpus)
    more = [row for row in GPU if row.column and any(_of(row, gpu) is not None for gpu in shown)]
    partly = any(
        gpu.covered_percent is not None and not enough(gpu.covered_percent, gpu.hours)
        for gpu in gpus
    )
    head = f"  {'util':>5} {'idle':>5} {'mem':>5}"
    head += "".join(f" {row.column:>5}" for row in more)
    head += f" {'W':>5}" + (f" {'read':>5}" if partly else "") + "  "
    width = min(max(len(label(gpu)) for gpu in shown), 22, max(style.width - len(head), 3))
    head = f"{'GPU':<{width}}{head}"
    room = style.width - len(head)
    below = room < _LEAST_LINE
    axis = Axis(timelines, style.width - 2 if below else room)
    span = _axis(axis, job)
    yield ""
    yield style.paint(head + ("" if below else span), "bold")
    if below and span:
        yield style.paint(f"  {span}", "bold")
    for gpu in shown:
        line = f"  {_short(gpu.utilization_percent)} "
        line += f"{_short(gpu.idle_percent)} {_short(gpu.memory_used_percent)}"
        line += "".join(f" {_short(_of(row, gpu), row)}" for row in more)
        watts = f"{gpu.power_watts_mean:.0f}" if gpu.power_watts_mean is not None else "?"
        line += f" {watts:>5}" + (f" {_short(gpu.covered_percent)}" if partly else "")
        drawn = axis.line(gpu, style)
        yield from _named(label(gpu), width, line + ("" if below else f"  {drawn}"), style)
        if below and timelines:
            yield f"  {drawn}"
    if len(shown) < len(gpus):
        rest = [gpu for gpu in gpus if gpu not in shown]
        known = [g.utilization_percent for g in rest if g.utilization_percent is not None]
        span = f", {percent(min(known))} to {percent(max(known))} used" if known else ""
        yield f"and {counted(len(rest), 'more GPU')}{span}: --all"


def node_rows(job: JobUse, style: Style, *, everything: bool) -> Iterator[str]:
    """Yield a row per node where there are several."""
    if len(job.per_node) < 2:
        return
    nodes = sorted(job.per_node, key=lambda node: by_number(node.host))
    shown = nodes if everything or len(nodes) <= _MOST_NODES else nodes[:_MOST_NODES]
    head = f"  {_gpu_cell(job, 'GPU')}{'CPU':>6} {'cores':>12} {'memory':>20}"
    longest = max(*(len(in_line(node.host)) for node in shown), 4)
    width = min(longest, 22, style.width - len(head))
    yield ""
    yield style.paint(f"{'Node':<{width}}{head}", "bold")
    for node in shown:
        row = _node(node, _gpu_cell(job, percent(node.gpu_utilization_percent)))
        yield from _named(in_line(node.host), width, row, style)
    if len(shown) < len(nodes):
        yield f"and {counted(len(nodes) - len(shown), 'more node')}: --all"


def _gpu_cell(job: JobUse, text: str) -> str:
    return f"{text:>6} " if job.has_gpus else ""


def _named(label: str, width: int, row: str, style: Style) -> Iterator[str]:
    """Yield a row behind its label; a long label, whose end tells GPUs apart, stands above it."""
    if len(label) > width:
        yield cut(label, style.width)
        label = ""
    yield f"{cut(label, width):<{width}}{row}"


def _node(node: NodeUse, gpu: str) -> str:
    used = f"{node.cores_used:.1f}" if node.cores_used is not None else "?"
    memory = f"{size(node.memory_peak_bytes)} of {size(node.memory_limit_bytes)}"
    kills = f"  {node.oom_kills} killed, out of memory" if node.oom_kills else ""
    cores = f"{used} of {node.cores or '?'}"
    return f"  {gpu}{percent(node.cpu_efficiency_percent):>6} {cores:>12} {memory:>20}{kills}"


def _worst(gpus: Sequence[GpuUse]) -> list[GpuUse]:
    """Return those lost and the least used, in their own order: those one came to see."""
    known = sorted(gpus, key=lambda gpu: (not gpu.lost, gpu.utilization_percent or 0.0))
    known = known[:_MOST_GPUS]
    return [gpu for gpu in gpus if gpu in known]


def _of(metric: Metric, gpu: GpuUse) -> float | None:
    value: float | None = getattr(gpu, metric.figure or "")
    return value


def _short(value: float | None, metric: Metric | None = None) -> str:
    """Return a figure in five letters, a share in percent."""
    if value is None:
        return f"{'?':>5}"
    share = metric is None or (metric.figure or "").endswith("_percent")
    return f"{value:>4.0f}%" if share else f"{value:>5.4g}"


class Axis:
    """One axis of time for all attempts, each as wide as it was long; a mark between two.

    Attributes:
        shown: the attempts there is room for, the newest ones.
        widths: how many columns each of them has.
    """

    def __init__(self, timelines: Sequence[Timeline], room: int) -> None:
        most = max(room // _LEAST_COLUMNS, 1)
        self.shown = tuple(timelines[-most:])
        self.room = room
        lengths = [_columns(one) * one.width_s for one in self.shown]
        self.widths = shares(lengths, room - len(self.shown) + 1)

    def line(self, gpu: GpuUse, style: Style) -> str:
        """Return what a GPU did in all of them."""
        mark = "\u250a" if style.unicode else "|"
        parts = zip(self.shown, self.widths, strict=True)
        return mark.join(blocks(_values(gpu, one) or (None,), width, style) for one, width in parts)


def shares(lengths: Sequence[float], room: int) -> list[int]:
    """Divide columns in proportion to lengths; the shortest has two."""
    found: list[int] = []
    for at, length in enumerate(lengths):
        rest = sum(lengths[at:])
        share = round(room * length / rest) if rest else room // (len(lengths) - at)
        left = (_LEAST_COLUMNS - 1) * (len(lengths) - at - 1)
        width = min(max(share, _LEAST_COLUMNS - 1), room - left)
        found.append(width)
        room -= width
    return found


def _columns(timeline: Timeline) -> int:
    return max((len(line.values) for line in timeline.gpu_utilization), default=1)


def _values(gpu: GpuUse, timeline: Timeline) -> tuple[float | None, ...]:
    lines = timeline.gpu_utilization
    return next(
        (line.values for line in lines if (line.host, line.gpu) == (gpu.host, gpu.uuid)), ()
    )


def _axis(axis: Axis, job: JobUse) -> str:
    """Return what stands above the lines: which attempts, and how long they were together."""
    if not axis.shown or job.elapsed_s is None:
        return ""
    first, last = axis.shown[0].restart, axis.shown[-1].restart
    word = row_word(job.attempts)
    if len(axis.shown) == 1:
        only = job.attempts[-1].elapsed_s if job.attempts else job.elapsed_s
        begin, end = "0" if len(job.attempts) < 2 else f"{word} {last}", duration(only)
        return f"{begin}{end:>{axis.room - len(begin)}}"
    mine = [row for row in job.attempts if first <= row.restart <= last]
    end = duration(total(row.elapsed_s for row in mine))
    begin = f"{word}s {first}-{last}"
    return f"{begin}{end:>{axis.room - len(begin)}}"
