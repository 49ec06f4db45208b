"""A report as lines of a page for a terminal, and of Markdown. Pure."""

import textwrap
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from hpckit.group_report.totals import CLASSES, Totals
from hpckit.render.writers import format_hours, markdown
from hpckit.report.terminal import energy, mass
from hpckit.text import counted, in_line
from hpckit.units import format_period, format_seconds

if TYPE_CHECKING:
    from hpckit.group_report.result import Report, WastefulJob

# Lays out a table of heads and rows.
Table = Callable[[Sequence[str], Sequence[Sequence[str]]], str]
_HEADS = ("JOBS", "FAILED", "GPU-H", "MEASURED", "UTIL", "UNUSED", "LOST", "ASKED", "WAIT")
_MEANINGS = (
    "GPU-H: GPU-hours held. MEASURED: part of them of which the utilization is known.",
    "UTIL: its mean. UNUSED: measured GPU-hours without work.",
    "LOST: GPU-hours of attempts that ended as FAILED, TIMEOUT, OUT_OF_MEMORY, NODE_FAIL,",
    "BOOT_FAIL or DEADLINE. ASKED: time limits, as a multiple of the time held.",
    "WAIT: median time in the queue.",
)


def _title(report: "Report") -> str:
    return f"GPU use of {in_line(report.who)}, {format_period(report.since, report.until)}"


def _lines(report: "Report") -> Iterator[str]:
    """Yield the verdict."""
    whole = report.total
    held = format_hours(whole.gpu_hours)
    yield f"{counted(whole.jobs, 'job')}, {whole.failed_jobs} failed; {held} GPU-hours held"
    if whole.gpu_hours_measured and whole.gpu_hours_unused is not None:
        share = _percent(whole.gpu_hours_measured, whole.gpu_hours)
        yield (
            f"utilization {whole.utilization_percent:.0f} % (known of {share} of the GPU-hours): "
            f"{format_hours(whole.gpu_hours_unused)} GPU-hours without work"
        )
    elif whole.gpu_hours:
        yield (
            "utilization unknown: no job has it in samples that this report may read (your own "
            "runs), in a ledger, or in a record of jobstats"
        )
    if whole.gpu_hours_failed:
        lost = _percent(whole.gpu_hours_failed, whole.gpu_hours)
        yield f"{format_hours(whole.gpu_hours_failed)} GPU-hours ({lost}) in attempts that failed"
    if whole.wait_median_s is not None and whole.wait_p90_s is not None:
        yield (
            f"queue: half of the attempts waited at most {format_seconds(whole.wait_median_s)}, "
            f"nine of ten at most {format_seconds(whole.wait_p90_s)}"
        )
    yield from _cost_lines(report)
    yield from map(in_line, report.notes)


def _cost_lines(report: "Report") -> Iterator[str]:
    kwh = report.total.energy_kwh
    if kwh is not None:
        share = _percent(report.total.energy_gpu_hours, report.total.gpu_hours)
        co2 = "" if report.co2_kg is None else f", {mass(report.co2_kg)} CO2"
        yield f"energy of GPUs {energy(kwh * 3.6e6)} (of {share} of the GPU-hours){co2}"
    if report.money is not None:
        yield f"cost {report.money:,.2f} {in_line(report.costs.currency)}"


def _distribution(totals: Totals, width: int) -> Iterator[str]:
    """Yield one bar per class of utilization."""
    most = max(totals.utilization_hours)
    for low, high, hours in zip((0, *CLASSES), CLASSES, totals.utilization_hours, strict=False):
        bar = "#" * round(width * hours / most) if most else ""
        yield f"  {low:>3}-{high:<3} %  {format_hours(hours):>9}  {bar}".rstrip()


def _row(name: str, one: Totals) -> tuple[str, ...]:
    used = "-" if one.utilization_percent is None else f"{one.utilization_percent:.0f} %"
    asked = one.gpu_hours_asked / one.gpu_hours_ended if one.gpu_hours_ended else None
    return (
        in_line(name),
        str(one.jobs),
        str(one.failed_jobs),
        format_hours(one.gpu_hours),
        _percent(one.gpu_hours_measured, one.gpu_hours),
        used,
        "-" if one.gpu_hours_unused is None else format_hours(one.gpu_hours_unused),
        format_hours(one.gpu_hours_failed),
        "-" if asked is None else f"{asked:.1f} x",
        "-" if one.wait_median_s is None else format_seconds(one.wait_median_s),
    )


def _wasteful_row(job: "WastefulJob") -> tuple[str, ...]:
    used = job.utilization_percent
    return (
        in_line(job.job_id),
        in_line(job.user),
        in_line(job.name),
        job.state,
        "-" if job.gpus is None else str(job.gpus),
        format_hours(job.gpu_hours),
        format_hours(job.gpu_hours_wasted),
        "-" if used is None else f"{used:.0f} %",
        in_line(job.advice or "-"),
    )


_WASTEFUL = ("JOBID", "USER", "NAME", "STATE", "GPUS", "GPU-H", "WASTED", "UTIL", "ADVICE")


def text_lines(report: "Report", table: Table, width: int | None) -> Iterator[str]:
    """Yield the lines of a page; see `Report.text`."""
    yield from _folded(_title(report), width)
    for line in _lines(report):
        yield from _folded(line, width, "  ")
    if report.groups:
        yield ""
        rows = [_row(name, one) for name, one in report.groups.items()]
        yield table((report.by.upper(), *_HEADS), rows)
        yield ""
        for line in _MEANINGS:
            yield from _folded(line, width)
    if report.total.gpu_hours_measured:
        yield ""
        yield from _folded("GPU-hours by the utilization of their jobs", width)
        yield from _distribution(report.total, 30 if width is None else min(30, max(width - 24, 1)))
    if report.wasteful:
        yield "\nThe jobs that wasted most GPU-hours"
        yield table(_WASTEFUL, [_wasteful_row(job) for job in report.wasteful])


def _folded(line: str, width: int | None, indent: str = "") -> list[str]:
    if width is None or len(indent + line) <= width:
        return [indent + line]
    inner = f"{indent}  " if indent else ""
    words = textwrap.TextWrapper(width, initial_indent=indent, subsequent_indent=inner)
    words.break_long_words = words.break_on_hyphens = False
    return words.wrap(line)


def aligned(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in columns, as wide as its cells."""
    widths = [max(len(row[at]) for row in (heads, *rows)) for at in range(len(heads))]
    cells = ([cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
             for row in (heads, *rows))  # fmt: skip
    return "\n".join("  ".join(row).rstrip() for row in cells)


def markdown_lines(report: "Report") -> Iterator[str]:
    """Yield the lines of the report in Markdown."""
    yield f"# {markdown(_title(report))}\n"
    yield from (f"- {markdown(line)}" for line in _lines(report))
    if report.groups:
        yield ""
        rows = [_row(name, one) for name, one in report.groups.items()]
        yield from _markdown_table((report.by, *(head.lower() for head in _HEADS)), rows)
        yield ""
        yield from _MEANINGS
    if report.wasteful:
        yield "\n## The jobs that wasted most GPU-hours\n"
        rows = [_wasteful_row(job) for job in report.wasteful]
        yield from _markdown_table([head.lower() for head in _WASTEFUL], rows)


def _markdown_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    for row in (heads, ["---"] * len(heads), *rows):
        yield "| " + " | ".join(markdown(cell) if row[0] != "---" else cell for cell in row) + " |"


def _percent(part: float, whole: float) -> str:
    return f"{part / whole * 100:.0f} %" if whole else "-"
