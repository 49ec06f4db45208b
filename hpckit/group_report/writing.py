"""A report as a page for a terminal, Markdown, CSV or JSON. Pure."""

import csv
import io
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from hpckit.arguments import PATH, checked
from hpckit.collections import search_path
from hpckit.group_report.totals import CLASSES, Totals, Use
from hpckit.paths import typed_path
from hpckit.render.reports import render_report
from hpckit.render.writers import format_hours, markdown
from hpckit.report.terminal import energy, mass
from hpckit.sites import Costs
from hpckit.stats.document import rounded
from hpckit.stats.summary.coverage import enough_of
from hpckit.text import counted, csv_cell, in_line
from hpckit.units import format_period, format_seconds

SCHEMA = 1
# Lays out a table of heads and rows.
Table = Callable[[Sequence[str], Sequence[Sequence[str]]], str]
# Several numbers each: not for a table.
_CLASSED = ("utilization_hours", "wait_attempts")
_HEADS = ("JOBS", "FAILED", "GPU-H", "MEASURED", "UTIL", "UNUSED", "LOST", "ASKED", "WAIT")
_MEANINGS = (
    "GPU-H: GPU-hours held. MEASURED: part of them of which the utilization is known.",
    "UTIL: its mean. UNUSED: measured GPU-hours without work.",
    "LOST: GPU-hours of attempts that ended as FAILED, TIMEOUT, OUT_OF_MEMORY, NODE_FAIL,",
    "BOOT_FAIL or DEADLINE. ASKED: time limits, as a multiple of the time held.",
    "WAIT: median time in the queue.",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class WastefulJob:
    """A job with many GPU-hours that came to nothing. State, GPUs and advice: the last attempt's.

    Attributes:
        gpu_hours, gpu_hours_wasted: held; and of these, all of failed attempts, else unused ones.
        utilization_percent: the mean over the GPU-hours of all attempts; None where it is not
            known of 80 % of them, or all but a minute.
        advice: hpckit's first advice on it, where it has a summary of it.
    """

    job_id: str
    user: str
    name: str
    state: str
    gpus: int | None
    gpu_hours: float
    gpu_hours_wasted: float
    utilization_percent: float | None
    advice: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """What GPUs did over some time. Moments are epoch seconds.

    Attributes:
        who: whose jobs, in words.
        by: what the groups are: user, week and so on.
        groups: by their names: weeks and days in order, others by GPU-hours held.
        total: of all together.
        weeks: the same by week, in order.
        wasteful: the jobs that wasted most, the worst first.
        costs: the site's factors for money and CO2; cost_source: where they stand.
        sources: how many attempts accounting knows, and how many a ledger alone.
        notes: what a reader should know of the figures.
    """

    who: str
    since: float
    until: float
    by: str
    groups: Mapping[str, Totals]
    total: Totals
    weeks: Mapping[str, Totals] = field(default_factory=dict)
    wasteful: tuple[WastefulJob, ...] = ()
    costs: Costs = field(default_factory=Costs)
    cost_source: str = ""
    sources: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def money(self) -> float | None:
        """What the GPU-hours held cost, in the site's currency."""
        price = self.costs.gpu_hour
        return None if price is None else self.total.gpu_hours * price

    @property
    def co2_kg(self) -> float | None:
        """CO2 of the measured energy, with the site's losses (PUE)."""
        factor, energy = self.costs.co2_g_per_kwh, self.total.energy_kwh
        return None if factor is None or energy is None else energy * self.costs.pue * factor / 1000

    def document(self) -> dict[str, Any]:
        """Return what `hpckit report --json` prints."""
        return {
            "schema": SCHEMA,
            "who": self.who,
            "since": self.since,
            "until": self.until,
            "by": self.by,
            "total": _figures(self.total),
            "groups": _named(self.groups),
            "weeks": _named(self.weeks),
            "wasteful": [rounded(asdict(job)) for job in self.wasteful],
            "money": rounded(self.money),
            "currency": self.costs.currency,
            "co2_kg": rounded(self.co2_kg),
            "costs": {**asdict(self.costs), "source": self.cost_source or None},
            "sources": dict(self.sources),
            "notes": list(self.notes),
        }

    def csv(self) -> str:
        """Return the groups as comma-separated values, with a line of names."""
        stream = io.StringIO()
        names = [row.name for row in fields(Totals) if row.name not in _CLASSED]
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow([self.by, *names])
        for name, totals in self.groups.items():
            values = _figures(totals)
            writer.writerow([csv_cell(name), *(values[key] for key in names)])
        return stream.getvalue()

    def markdown(self) -> str:
        """Return the report as Markdown."""
        return "\n".join(_markdown(self)) + "\n"

    @checked(template=str)
    def render(self, template: str) -> str:
        """Return what `hpckit report --template` prints: a group's own form of the report.

        Args:
            template: `mail` for `templates/report/mail.txt.j2` on the search path.

        Raises:
            TemplateError: there is none, or it is wrong.
        """
        return render_report(template, {"report": self.document()}, search_path())

    def text(self, table: Table | None = None, width: int | None = None) -> str:
        """Return the report as a page of plain text.

        Args:
            table: lays out a table of heads and rows; by default in columns, as wide as it takes.
            width: at most so many letters in a line of words; None: no limit.
        """
        return "\n".join(_text(self, table or _aligned, width))

    @checked(path=PATH)
    def html(self, path: Path | str) -> Path:
        """Write what `hpckit report --html` writes: one page for a browser; return its path.

        Raises:
            OutsideError: it cannot be written.
        """
        from hpckit.pages.report import write_report_page  # noqa: PLC0415  # seldom

        return write_report_page(self.document(), typed_path(path))

    def _repr_html_(self) -> str:
        import html  # noqa: PLC0415  # for notebooks

        return f"<pre>{html.escape(self.text())}</pre>"


def wasteful_job(last: Use, whole: Totals, wasted: float) -> WastefulJob:
    """Describe one of the jobs that `totals.most_wasteful` found."""
    return WastefulJob(
        job_id=last.row.job_id,
        user=last.row.user,
        name=last.row.name,
        state=str(last.row.state),
        gpus=last.row.gpus,
        gpu_hours=whole.gpu_hours,
        gpu_hours_wasted=wasted,
        utilization_percent=whole.utilization_percent if _is_measured(whole) else None,
        advice=last.measured.advice,
    )


def _is_measured(whole: Totals) -> bool:
    return enough_of(whole.gpu_hours_measured * 3.6e9, whole.gpu_hours * 3.6e9)


def _named(groups: Mapping[str, Totals]) -> list[dict[str, Any]]:
    return [{"name": name, **_figures(totals)} for name, totals in groups.items()]


def _figures(totals: Totals) -> dict[str, Any]:
    figures: dict[str, Any] = rounded(asdict(totals))
    return figures


def _title(report: Report) -> str:
    return f"GPU use of {in_line(report.who)}, {format_period(report.since, report.until)}"


def _lines(report: Report) -> Iterator[str]:
    """Yield the verdict."""
    whole = report.total
    held = format_hours(whole.gpu_hours)
    yield f"{counted(whole.jobs, 'job')}, {whole.failed_jobs} failed; {held} GPU-hours held"
    if whole.gpu_hours_measured:
        share = _percent(whole.gpu_hours_measured, whole.gpu_hours)
        yield (
            f"utilization {whole.utilization_percent:.0f} % (known of {share} of the GPU-hours): "
            f"{format_hours(whole.gpu_hours_unused)} GPU-hours without work"
        )
    elif whole.gpu_hours:
        yield (
            "utilization unknown: no job has samples that this report may read (your own runs), a "
            "line in a ledger, or a record of jobstats"
        )
    if whole.gpu_hours_failed:
        lost = _percent(whole.gpu_hours_failed, whole.gpu_hours)
        yield f"{format_hours(whole.gpu_hours_failed)} GPU-hours ({lost}) in attempts that failed"
    if whole.wait_median_s is not None and whole.wait_p90_s is not None:
        yield (
            f"queue: half of the jobs waited at most {format_seconds(whole.wait_median_s)}, "
            f"nine of ten at most {format_seconds(whole.wait_p90_s)}"
        )
    yield from _cost_lines(report)
    yield from map(in_line, report.notes)


def _cost_lines(report: Report) -> Iterator[str]:
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
        format_hours(one.gpu_hours_unused) if one.gpu_hours_measured else "-",
        format_hours(one.gpu_hours_failed),
        "-" if asked is None else f"{asked:.1f} x",
        "-" if one.wait_median_s is None else format_seconds(one.wait_median_s),
    )


def _wasteful_row(job: WastefulJob) -> tuple[str, ...]:
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


def _text(report: Report, table: Table, width: int | None) -> Iterator[str]:
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


def _aligned(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[at]) for row in (heads, *rows)) for at in range(len(heads))]
    cells = ([cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
             for row in (heads, *rows))  # fmt: skip
    return "\n".join("  ".join(row).rstrip() for row in cells)


def _markdown(report: Report) -> Iterator[str]:
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
