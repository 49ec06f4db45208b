"""`hpckit stats JOBID`: one job on one screen of 60 to 80 columns."""

from collections.abc import Iterable, Iterator, Sequence

from hpckit.frozen import frozen
from hpckit.report.tables import gpu_rows, node_rows
from hpckit.report.terminal import (
    WIDEST,
    Style,
    bar,
    duration,
    energy,
    fold,
    hours,
    percent,
    readable,
    size,
    with_unit,
)
from hpckit.slurm.states import exit_words, unstarted
from hpckit.stats.advice.engine import Advice
from hpckit.stats.advice.rules import DRIVER, Severity
from hpckit.stats.merge import too_little_read
from hpckit.stats.metric import Metric
from hpckit.stats.metric_table import GPU, NODE
from hpckit.stats.summary.figures import SACCT, JobUse, attempt_words, numbers_of
from hpckit.stats.summary.timeline import Timeline
from hpckit.text import counted, cut, in_line, listed, settings_text, state_colour

_MARKS = {Severity.RED: "!!", Severity.YELLOW: " !", Severity.INFO: " i"}
_COLOURS = {Severity.RED: "red", Severity.YELLOW: "yellow", Severity.INFO: "dim"}
# Of a bar in a page of 80 columns, and what is left of it in a narrower one.
_BAR, _LEAST_BAR = 32, 12
_TENTH = 0.1
_LABEL = 18
_LATER = 12
# More of them scroll the figures away: --all shows every one.
_MOST_ADVICE, _MOST_NOTES = 4, 4
# Below these a figure is red or yellow; the rules' own thresholds decide what is advised.
_LOW, _MIDDLING = 15, 40


@frozen(kw_only=True)
class Page:
    """What a page is made of."""

    job: JobUse
    advice: Sequence[Advice] = ()
    timelines: Sequence[Timeline] = ()
    everything: bool = False


def page(content: Page, style: Style) -> str:
    """Return the page, without a last newline."""
    return "\n".join(readable(line.rstrip()) for line in _lines(content, style))


def _lines(content: Page, style: Style) -> Iterator[str]:
    job = content.job
    yield from _head(job, style)
    yield ""
    yield from _figures(job, style)
    yield from gpu_rows(job, content.timelines, style, everything=content.everything)
    yield from node_rows(job, style, everything=content.everything)
    yield from _attempts(job, style)
    yield from _advice(content, style)
    yield from _notes(content, style)


def _head(job: JobUse, style: Style) -> Iterator[str]:
    name = f" {in_line(job.name)}" if job.name else ""
    state = job.state or "UNKNOWN"
    # In a list a job that ended well is dim; here its end is the news.
    colour = "green" if state == "COMPLETED" else state_colour(state) or "red"
    room = style.width - len(f"Job {job.job_id}  {state}")
    yield (
        style.paint(f"Job {job.job_id}", "bold")
        + cut(name, room)
        + "  "
        + style.paint(state, colour)
    )
    who = [part for part in (job.user, job.account, job.partition, job.site) if part]
    if who:
        yield cut("  " + in_line(" / ".join(who)), style.width)
    if job.parameters:
        yield cut(f"  {settings_text(job.parameters)}", style.width)
    for line in fold(", ".join(_shape(job)), style.width, "  ", "  "):
        yield cut(line, style.width)


def _shape(job: JobUse) -> Iterator[str]:
    if job.nodes:
        yield counted(job.nodes, "node")
    gpus = job.gpus_or_asked
    if gpus is not None:
        wanted = job.requested.gpu_type if job.gpus is None else None
        kinds = sorted({in_line(gpu.name) for gpu in job.per_gpu if gpu.name})
        kinds = [in_line(wanted)] if wanted else kinds
        yield counted(gpus, "GPU") + (f" ({', '.join(kinds)})" if kinds else "")
    if asked := _asked(job):
        yield asked
    if job.requested.cores:
        yield counted(job.requested.cores, "core")
    if job.elapsed_s is None:
        yield unstarted(job.state) if job.start is None else "ran for an unknown time"
        return
    so_far = " so far" if job.running else ""
    yield f"ran {duration(job.elapsed_s)}{so_far}{_of_limit(job, job.elapsed_s)}"
    if job.exit_code:
        yield exit_words(job.exit_code, by_accounting=job.origins.get("exit_code") == SACCT)


def _asked(job: JobUse) -> str:
    """Say what a local run asked for, whose nodes and GPUs this one machine played."""
    nodes, gpus = job.requested.nodes, job.requested.gpus
    if job.job_id[:1].isdigit() or not nodes or (nodes, gpus) == (job.nodes, job.gpus):
        return ""
    words = f"asked for {counted(nodes, 'node')}"
    return words if gpus is None else f"{words} and {counted(gpus, 'GPU')}"


def _of_limit(job: JobUse, elapsed_s: float) -> str:
    """Say what of its time a job took: each attempt has all of it, and Slurm ends none at once."""
    limit = job.requested.time_limit_s
    if not limit:
        return ""
    if len(job.attempts) > 1:
        return f" in {attempt_words(job)} of at most {duration(limit)}"
    if elapsed_s > limit:
        return f", {duration(elapsed_s - limit)} over its limit of {duration(limit)}"
    return f" of {duration(limit)}"


def _figures(job: JobUse, style: Style) -> Iterator[str]:
    if job.has_gpus:
        yield from _gpu_figures(job, style)
    summary = job.summary
    yield _bar("CPU", summary.cpu_efficiency_percent, _cores(job), style)
    yield _memory(
        "CPU memory",
        summary.memory_efficiency_percent,
        _at_least(job, "memory_efficiency_percent")
        + _of(summary.memory_peak_bytes, summary.memory_limit_bytes)
        or _unmeasured(job),
        style,
    )
    yield from _metrics(NODE, job, style)
    yield from _totals(job, style)


def _at_least(job: JobUse, name: str) -> str:
    return "at least " if f"summary.{name}" in job.at_least else ""


def _unmeasured(job: JobUse) -> str:
    return "not measured" if any(note.code == "not_measured" for note in job.notes) else ""


def _gpu_figures(job: JobUse, style: Style) -> Iterator[str]:
    summary = job.summary
    yield _bar("GPU utilization", summary.gpu_utilization_percent, "", style, low_is_bad=True)
    if (read := too_little_read(job)) is not None:
        yield f"{'':{_LABEL}}(the GPUs were read for {percent(read)} of their time)"
    if summary.gpu_utilization_percent is None and summary.gpu_utilization_peak_percent is not None:
        peak = percent(summary.gpu_utilization_peak_percent)
        peak = _at_least(job, "gpu_utilization_peak_percent") + peak
        yield f"{'':{_LABEL}}peak {peak} ({job.origins['summary.gpu_utilization_peak_percent']})"
    yield _memory(
        "GPU memory",
        summary.gpu_memory_used_percent,
        _gpu_peak(job),
        style,
    )
    yield from _metrics(GPU, job, style)


def _gpu_peak(job: JobUse) -> str:
    """Return the highest memory of one GPU; where they have not as much, of the fullest."""
    known = [gpu for gpu in job.per_gpu if gpu.memory_used_percent is not None]
    if len({gpu.memory_total_bytes for gpu in known}) > 1:
        fullest = max(known, key=lambda gpu: gpu.memory_used_percent or 0.0)
        return f"fullest {_of(fullest.memory_peak_bytes, fullest.memory_total_bytes)}"
    peak = _of(job.summary.gpu_memory_peak_bytes, job.summary.gpu_memory_total_bytes)
    return f"highest {peak}" if peak and len(job.per_gpu) > 1 else peak


def _metrics(metrics: Iterable[Metric], job: JobUse, style: Style) -> Iterator[str]:
    """Yield the figures that have a line of their own, where they are known."""
    for metric in metrics:
        value = getattr(job.summary, metric.in_summary) if metric.in_summary else None
        if not metric.on_page or value is None:
            continue
        if metric.in_summary and metric.in_summary.endswith("_percent"):
            yield _bar(metric.title, value, "", style)
        else:
            yield f"{metric.title:<{_LABEL}}{with_unit(metric.in_summary or '', value)}"


def _bar(
    label: str, value: float | None, words: str, style: Style, *, low_is_bad: bool = False
) -> str:
    text = f"{label:<{_LABEL}}{bar(value, _bar_width(style), style)} {percent(value):>6}"
    if low_is_bad and value is not None:
        colour = "red" if value <= _LOW else "yellow" if value <= _MIDDLING else "green"
        text = style.paint(text, colour)
    return f"{text} {words}" if words else text


def _bar_width(style: Style) -> int:
    return max(_BAR - (WIDEST - style.width), _LEAST_BAR)


def _memory(label: str, value: float | None, words: str, style: Style) -> str:
    """Return the row of a peak; without a limit there is no bar to fill."""
    if value is None and words.endswith("iB"):
        return f"{label:<{_LABEL}}{words} at the peak; the limit is not known"
    return _bar(label, value, words, style)


def _of(part: float | None, limit: float | None) -> str:
    if part is None:
        return ""
    if not limit:
        return size(part)
    number, unit = size(part).split()
    return (
        f"{number}/{size(limit)}" if size(limit).endswith(unit) else f"{size(part)}/{size(limit)}"
    )


def _cores(job: JobUse) -> str:
    # Of one attempt: after a requeue, the nodes of both were never held together.
    last = job.attempts[-1].hosts if job.attempts else ()
    nodes = [node for node in job.per_node if node.host in last] or list(job.per_node)
    used = [node.cores_used for node in nodes if node.cores_used is not None]
    cores = [node.cores for node in nodes if node.cores]
    if not used or not cores:
        return ""
    digits = 1 if sum(used) >= _TENTH else 2
    return f"{sum(used):.{digits}f}/{sum(cores)} cores"


def _totals(job: JobUse, style: Style) -> Iterator[str]:
    summary = job.summary
    parts = []
    if summary.gpu_hours:
        parts.append(f"{hours(summary.gpu_hours)} GPU-hours")
        if summary.gpu_hours_idle is not None and summary.gpu_hours:
            share = percent(summary.gpu_hours_idle / summary.gpu_hours * 100)
            parts[0] += f", {hours(summary.gpu_hours_idle)} of them idle ({share})"
    if summary.energy_joules is not None:
        parts.append(f"{energy(summary.energy_joules)}")
    if summary.power_watts_mean is not None:
        parts.append(f"{summary.power_watts_mean:.0f} W per GPU")
    if parts:
        yield from fold("; ".join(parts), style.width, " " * _LABEL, " " * _LABEL)


def _attempts(job: JobUse, style: Style) -> Iterator[str]:
    if len(job.attempts) < 2:
        return
    yield ""
    whose = "GPU-hours" if any(note.code == "newest_attempt" for note in job.notes) else "figures"
    yield f"{attempt_words(job)} ({whose} above are for all of them)"
    ends = (None, *(attempt.end for attempt in job.attempts))
    for end, attempt in zip(ends, job.attempts, strict=False):
        away = away_before(end, attempt.start)
        later = "" if away is None else f"{duration(away)} later"
        gpu = f"GPU {percent(attempt.gpu_utilization_percent):>6}  " if job.has_gpus else ""
        line = (
            f"  {attempt.restart}  {attempt.state or '?':<10} {duration(attempt.elapsed_s):>12}  "
        )
        line += f"{gpu}CPU {percent(attempt.cpu_efficiency_percent):>6}  "
        where = f"{later:<{_LATER}}  {in_line(','.join(attempt.hosts))}"
        if style.width == WIDEST:
            yield cut(line + where, style.width)
        else:
            yield from (line, cut(f"     {where.strip()}", style.width))
        if attempt.why:
            yield from fold(in_line(attempt.why), style.width, "     ", "     ")


def away_before(end: float | None, start: float | None) -> float | None:
    """Return for how long a job had no nodes between one attempt's end and the next one's start."""
    return None if end is None or start is None else max(start - end, 0.0)


def _advice(content: Page, style: Style) -> Iterator[str]:
    if not content.advice:
        return
    yield ""
    shown = [
        item
        for at, item in enumerate(content.advice)
        if content.everything or at < _MOST_ADVICE or item.rests_on == DRIVER
    ]
    for item in shown:
        lost = f" [{hours(item.lost_gpu_hours)} GPU-hours]" if item.lost_gpu_hours else ""
        lines = fold(
            f"{item.message}{lost} ({item.id})", style.width, f"{_MARKS[item.severity]} ", "   "
        )
        yield from (style.paint(line, _COLOURS[item.severity]) for line in lines)
        remark = f" Not red: {item.downgraded}." if item.downgraded else ""
        yield from fold(item.evidence + remark, style.width, "   ", "   ")
        if item.action:
            arrow = "→" if style.unicode else "->"
            yield from fold(item.action, style.width, f"   {arrow} ", "     ")
    if len(shown) < len(content.advice):
        yield f"   and {len(content.advice) - len(shown)} more: --all"


def _notes(content: Page, style: Style) -> Iterator[str]:
    job = content.job
    notes = list(notes_of(job))
    shown = notes if content.everything else notes[:_MOST_NOTES]
    yield ""
    yield from fold(provenance(job), style.width, "From ", "  ")
    for text in shown:
        yield from fold(text, style.width, "- ", "  ")
    if len(shown) < len(notes):
        yield f"- and {counted(len(notes) - len(shown), 'more note')}: --all"


def notes_of(job: JobUse) -> Iterator[str]:
    """Yield each note once, with all the places it is about.

    That a node has no GPUs to read is no news of a job that did not ask for GPUs.
    """
    places: dict[str, list[str]] = {}
    named = zip(job.per_gpu, numbers_of(job.per_gpu), strict=True)
    gpus = {(gpu.host, gpu.uuid): f"GPU {number}" for gpu, number in named if number != "?"}
    asked = job.has_gpus or job.requested.gpus
    for note in job.notes:
        if note.code == "no_nvml" and not asked:
            continue
        gpu = note.gpu and gpus.get((note.host or "", note.gpu), note.gpu[:12])
        place = " ".join(part for part in (note.host, gpu) if part)
        places.setdefault(note.text, []).append(place)
    for text, where in places.items():
        known = list(dict.fromkeys(place for place in where if place))
        yield in_line(f"{listed(known, 3)}: {text}" if known else text)


def provenance(job: JobUse) -> str:
    """Say where the figures come from, and how much of the job they cover."""
    parts = []
    for source in job.sources:
        names = [
            name.removeprefix("summary.")
            for name, origin in job.origins.items()
            if origin == source and name.startswith("summary.")
        ]
        if source == "samples":
            covered = percent(job.summary.coverage_percent)
            count = job.summary.samples or 0
            age = f", newest {duration(job.data_age_s)} old" if job.data_age_s is not None else ""
            nodes = counted(len(job.per_node), "node")
            read = job.summary.gpu_coverage_percent
            partly = job.has_gpus and percent(read) != covered
            gpus = f", {percent(read)} of its GPUs' time" if partly else ""
            parts.append(f"samples ({count} on {nodes}, {covered} of the job{gpus}{age})")
        elif source == "Prometheus" and "coverage_percent" in names:
            covered = percent(job.summary.coverage_percent)
            read = job.summary.gpu_coverage_percent
            gpus = f", {percent(read)} of its GPUs' time" if read is not None else ""
            parts.append(f"Prometheus (single readings: {covered} of the job{gpus})")
        elif names:
            parts.append(f"{source} ({', '.join(names)})")
        else:
            parts.append(source)
    return ", ".join(parts) + "."
