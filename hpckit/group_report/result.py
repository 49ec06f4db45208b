"""A report as an object: what a group's GPUs did over some time; as JSON, CSV, or written out."""

import csv
import io
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from hpckit.collections import search_path
from hpckit.files import write_shown
from hpckit.group_report.totals import Totals, Use
from hpckit.group_report.writing import Table, aligned, markdown_lines, text_lines
from hpckit.job_spec.arguments import FUNCTION, PATH, checked, maybe
from hpckit.paths import typed_path
from hpckit.render.reports import render_report
from hpckit.sites import Costs
from hpckit.stats.document import rounded
from hpckit.stats.summary.coverage import enough_of
from hpckit.text import csv_cell
from hpckit.values import Size

SCHEMA = 1
# Several numbers each: not for a table.
_CLASSED = ("utilization_hours", "wait_attempts")


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
        return "\n".join(markdown_lines(self)) + "\n"

    @checked(template=str)
    def render(self, template: str) -> str:
        """Return what `hpckit report --template` prints: a group's own form of the report.

        Args:
            template: `mail` for `templates/report/mail.txt.j2` on the search path.

        Raises:
            TemplateError: there is none, or it is wrong.
        """
        return render_report(template, {"report": self.document()}, search_path())

    @checked(table=maybe(FUNCTION), width=Size | None)
    def text(self, table: Table | None = None, width: int | None = None) -> str:
        """Return the report as a page of plain text.

        Args:
            table: lays out a table of heads and rows; by default in columns, as wide as it takes.
            width: at most so many letters in a line of words; None: no limit.
        """
        return "\n".join(text_lines(self, table or aligned, width))

    @checked(path=PATH)
    def html(self, path: Path | str) -> Path:
        """Write what `hpckit report --html` writes: one page for a browser; return its path.

        Raises:
            OutsideError: it cannot be written.
        """
        from hpckit.pages.report import report_page  # noqa: PLC0415  # seldom

        return write_shown(typed_path(path), report_page(self.document()), "page")

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
