"""Many jobs at once, most often the tasks of an array: how their figures are spread."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hpckit.report.terminal import (
    WIDEST,
    Style,
    duration,
    fold,
    hours,
    percent,
    readable,
    size,
)
from hpckit.slurm.states import is_finished, parse_state
from hpckit.stats.advice.engine import Advice
from hpckit.stats.summary.coverage import total
from hpckit.stats.summary.figures import JobUse
from hpckit.text import cut, in_line

_MOST = 12
_FIGURES = {
    "gpu_utilization_percent": ("GPU utilization", percent),
    "gpu_memory_peak_bytes": ("GPU memory peak", size),
    "cpu_efficiency_percent": ("CPU", percent),
    "memory_peak_bytes": ("memory peak", size),
    "elapsed_s": ("run time", duration),
}
_BINS = 10


def distribution(jobs: Sequence[JobUse]) -> dict[str, Any]:
    """Return how many jobs are known, and of each figure its spread over them.

    `gpu_utilization_histogram` counts jobs from 0-10 % to 90-100 %.
    """
    utilization = _values(jobs, "gpu_utilization_percent")
    histogram = [0] * _BINS
    for value in utilization:
        histogram[min(int(value / 100 * _BINS), _BINS - 1)] += 1
    return {
        "jobs": len(jobs),
        "states": dict(Counter(job.state for job in jobs)),
        "gpu_hours": _total(jobs, "gpu_hours"),
        "gpu_hours_idle": _total(jobs, "gpu_hours_idle"),
        "gpu_utilization_histogram": histogram if utilization else None,
        **{name: _spread(_values(jobs, name)) for name in _FIGURES},
    }


def distribution_page(
    jobs: Sequence[JobUse], advice: Mapping[str, Sequence[Advice]], style: Style, *, all_jobs: bool
) -> str:
    """Return one screen on many jobs; `advice` is keyed by job id."""
    lines = _lines(jobs, advice, style, all_jobs=all_jobs)
    return "\n".join(readable(line.rstrip()) for line in lines)


def _lines(
    jobs: Sequence[JobUse], advice: Mapping[str, Sequence[Advice]], style: Style, *, all_jobs: bool
) -> Iterator[str]:
    found = distribution(jobs)
    states = ", ".join(f"{count} {state}" for state, count in sorted(found["states"].items()))
    yield style.paint(f"{len(jobs)} jobs", "bold") + f": {states}"
    if found["gpu_hours"] is None and _values(jobs, "gpu_hours"):
        yield "GPU-hours unknown: they are not known for some of the jobs"
    elif found["gpu_hours"]:
        idle = found["gpu_hours_idle"]
        yield f"{hours(found['gpu_hours'])} GPU-hours" + (
            f", {hours(idle)} of them idle" if idle is not None else ""
        )
    yield ""
    yield style.paint(_spread_line("", ("lowest", "median", "95th %", "highest"), style), "bold")
    for name, (label, show) in _FIGURES.items():
        spread = found[name]
        if spread:
            cells = [show(spread[key]) for key in ("min", "median", "p95", "max")]
            yield _spread_line(label, cells, style)
    if found["gpu_utilization_histogram"]:
        yield from _histogram(found["gpu_utilization_histogram"], style)
    yield from _tasks(jobs, style, all_jobs=all_jobs)
    yield from _advice(advice, len(jobs), style)


def _histogram(counts: Sequence[int], style: Style) -> Iterator[str]:
    yield ""
    yield style.paint("GPU utilization, jobs", "bold")
    longest = max(counts)
    for number, count in enumerate(counts):
        if count:
            length = max(round(count / longest * (style.width - 30)), 1)
            span = f"{number * 10:>3} to {number * 10 + 10:>3} %"
            yield f"  {span}  {('█' if style.unicode else '#') * length} {count}"


def _tasks(jobs: Sequence[JobUse], style: Style, *, all_jobs: bool) -> Iterator[str]:
    """Yield a line per job; of many, the least used."""

    def used(job: JobUse) -> float:
        value = job.summary.gpu_utilization_percent
        return value if value is not None else (job.summary.cpu_efficiency_percent or 0.0)

    chosen = jobs if all_jobs or len(jobs) <= _MOST else sorted(jobs, key=used)[:_MOST]
    names = list(dict.fromkeys(name for job in jobs for name in job.parameters))
    yield ""
    head = _row(("job", "state", "run time", "GPU", "CPU", "memory"), names, style)
    yield from (style.paint(line, "bold") for line in head)
    for job in chosen:
        figures = job.summary
        yield from _row(
            (
                in_line(job.job_id),
                job.state or "?",
                "never" if _never_ran(job) else duration(job.elapsed_s),
                percent(figures.gpu_utilization_percent),
                percent(figures.cpu_efficiency_percent),
                size(figures.memory_peak_bytes),
            ),
            [job.parameters.get(name, "?") for name in names],
            style,
        )
    if len(chosen) < len(jobs):
        yield f"and {len(jobs) - len(chosen)} more: --all"


def _never_ran(job: JobUse) -> bool:
    return not _began(job) and is_finished(parse_state(job.state or ""))


def _row(cells: Sequence[str], values: Sequence[str], style: Style) -> Iterator[str]:
    """Yield a job's line; what a task was given stands at its end, or below in a narrow page."""
    job, state, *figures = cells
    narrow = style.width < WIDEST
    first = f"{job:<12}{state:<14}" if narrow else f"{job:<16}{state:<14}"
    widths = (11, 6, 6, 9) if values or narrow else (14, 8, 8, 12)
    line = first + "".join(map(str.rjust, figures, widths))
    given = in_line(", ".join(values))
    if narrow:
        yield line
        yield from [cut(f"  {given}", style.width)] if given else []
    else:
        yield f"{line}  {cut(given, max(style.width - len(line) - 2, 1))}" if values else line


def _spread_line(label: str, cells: Sequence[str], style: Style) -> str:
    first, width = (18, 14) if style.width == WIDEST else (16, 11)
    return f"{label:<{first}}" + "".join(f"{cell:>{width}}" for cell in cells)


def _advice(advice: Mapping[str, Sequence[Advice]], count: int, style: Style) -> Iterator[str]:
    """Yield each rule once, with how many jobs it is about."""
    found = [(item, job_id) for job_id, items in advice.items() for item in items]
    if not found:
        return
    yield ""
    for rule, jobs in Counter(item.id for item, _ in found).most_common():
        item, job_id = next(pair for pair in found if pair[0].id == rule)
        text = f"{jobs} of {count}: {item.title} ({rule}), as in {job_id}: {item.message}"
        yield from fold(in_line(text), style.width, "! ", "  ")
    yield cut("  For what to do, run hpckit stats JOBID with one of these jobs.", style.width)


def _values(jobs: Sequence[JobUse], name: str) -> list[float]:
    values = (job.elapsed_s if name == "elapsed_s" else getattr(job.summary, name) for job in jobs)
    return sorted(value for value in values if value is not None)


def _total(jobs: Sequence[JobUse], name: str) -> float | None:
    """Return the sum over jobs that held nodes; None if one's is not known, or none has begun."""
    began = [job for job in jobs if _began(job)]
    held = [getattr(job.summary, name) for job in began if job.elapsed_s != 0]
    # Jobs of less than a second, by Slurm's clock, held nodes for none.
    values = total(held) if held or not began else 0.0
    return None if values is None else round(values, 3)


def _began(job: JobUse) -> bool:
    return job.elapsed_s is not None or job.start is not None


def _spread(values: Sequence[float]) -> dict[str, float] | None:
    """Return lowest, median, 95th percentile (nearest rank) and highest of sorted values."""
    if not values:
        return None
    last = len(values) - 1
    return {
        "min": round(values[0], 3),
        "median": round((values[last // 2] + values[(last + 1) // 2]) / 2, 3),
        "p95": round(values[-(-len(values) * 95 // 100) - 1], 3),
        "max": round(values[-1], 3),
    }
