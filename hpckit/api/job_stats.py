"""What is known of one job, and of several, as Python programs hold it: figures, advice, pages."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, Literal, TextIO

from hpckit.api.run import Run
from hpckit.collections import search_path
from hpckit.errors import JobError, RequestError
from hpckit.files import write_shown
from hpckit.frozen import frozen
from hpckit.job_spec.arguments import PATH, STREAM, checked, maybe
from hpckit.paths import typed_path
from hpckit.report.gather import Gathered
from hpckit.report.job_page import Page, page
from hpckit.report.terminal import Style, style_of
from hpckit.stats.advice.engine import Advice
from hpckit.stats.advice.loading import site_called
from hpckit.stats.document import job_document
from hpckit.stats.js1 import jobstats_record
from hpckit.stats.merge import too_little_read
from hpckit.stats.summary.figures import GpuUse, JobUse, NodeUse, Summary
from hpckit.stats.summary.timeline import Timeline
from hpckit.text import in_line


@frozen(kw_only=True)
class JobStats:
    """What is known of one job, and the advice on it. Figures that are not known are None.

    `run` is hpckit's run of the job; None: hpckit did not submit it. `found` is what all of it was
    made of.
    """

    job: JobUse
    advice: tuple[Advice, ...] = ()
    timelines: tuple[Timeline, ...] = ()
    run: Run | None = None
    found: Gathered | None = field(default=None, repr=False, compare=False)

    @property
    def summary(self) -> Summary:
        """The whole job: gpu_utilization_percent, gpu_hours, memory_peak_bytes..."""
        return self.job.summary

    @property
    def per_node(self) -> tuple[NodeUse, ...]:
        """Each node."""
        return self.job.per_node

    @property
    def per_gpu(self) -> tuple[GpuUse, ...]:
        """Each GPU."""
        return self.job.per_gpu

    def document(self) -> dict[str, Any]:
        """Return what `hpckit stats --json` prints."""
        return job_document(self.job, self.advice)

    @checked(stream=maybe(STREAM), everything=bool)
    def page(self, stream: TextIO | None = None, *, everything: bool = False) -> str:
        """Return what `hpckit stats` prints of it.

        Args:
            stream: where it is to be shown, for colours; without one it has none.
            everything: show every GPU, node, advice and note.
        """
        content = Page(
            job=self.job, advice=self.advice, timelines=self.timelines, everything=everything
        )
        return page(content, _style(stream))

    @checked(path=PATH)
    def html(self, path: Path | str) -> Path:
        """Write what `hpckit stats --html` writes: one page that needs no network.

        Raises:
            OutsideError: it cannot be written.
        """
        return _write_html([self], path)

    @checked(path=PATH)
    def png(self, path: Path | str) -> Path:
        """Write what `hpckit stats --png` writes: the job's main picture, for papers and slides.

        Raises:
            RequestError: nothing of it is known over time. OutsideError: it cannot be written, or
                matplotlib is not installed.
        """
        return self._picture(path, "png")

    @checked(path=PATH)
    def svg(self, path: Path | str) -> Path:
        """Write the same as an SVG, in which text is text; see `png`."""
        return self._picture(path, "svg")

    def _picture(self, path: Path | str, kind: Literal["png", "svg"]) -> Path:
        from hpckit.pages.write import write_picture_of  # noqa: PLC0415  # seldom

        return write_picture_of(self.found or Gathered(job=self.job), typed_path(path), kind)

    @checked(template=str)
    def render(self, template: str) -> str:
        """Return what `hpckit stats --template` prints: a group's own form of the figures.

        Args:
            template: `note` for `templates/report/note.md.j2` on the search path.

        Raises:
            TemplateError: there is none, or it is wrong.
        """
        from hpckit.render.reports import render_report  # noqa: PLC0415  # seldom

        return render_report(template, {"stats": self.document()}, search_path())

    def openmetrics(self) -> str:
        """Return what `hpckit stats --openmetrics` prints: its figures as OpenMetrics text."""
        return StatsList([self]).openmetrics()

    @checked(path=PATH)
    def textfile(self, path: Path | str) -> Path:
        """Write what `hpckit stats --textfile` writes; see `StatsList.textfile`."""
        return StatsList([self]).textfile(path)

    def jobstats(self) -> dict[str, Any] | None:
        """Return the record of the Princeton jobstats tool; None: too little is known."""
        return jobstats_record(self.job)

    def grafana_link(self) -> str:
        """Return the site's link with the job's id and times; jobs that run end now.

        Raises:
            RequestError: the site names no Grafana, or the job has not started.
        """
        job = self.job
        site = site_called(job.site)
        if site is None or not site.grafana:
            name = site.name if site else job.site
            raise RequestError(
                f"Job {job.job_id}: site {name!r} has no Grafana. Add to the site's file, "
                "under `grafana:`, "
                "the address of a job's page with {jobid}, {start_ms} and {end_ms}."
            )
        if job.start is None:
            raise RequestError(f"Job {job.job_id!r} has not started, so it has no figures yet.")
        values = {
            "{jobid}": job.raw_id or job.job_id,
            "{start_ms}": f"{job.start * 1000:.0f}",
            "{end_ms}": f"{(job.end or time.time()) * 1000:.0f}",
        }
        link = site.grafana
        for name, value in values.items():
            link = link.replace(name, value)
        return link

    @checked(least=float)
    def check_utilization(self, least: float) -> None:
        """Raise if the GPUs were used less than `least` percent; unknown is not good enough.

        Raises:
            JobError: so it is.
        """
        job, value = self.job, self.job.summary.gpu_utilization_percent
        if value is None:
            raise JobError(f"Job {job.job_id}: GPU utilization is unknown.")
        if "summary.gpu_utilization_percent" in job.suspect:
            raise JobError(
                f"Job {job.job_id}: GPU utilization is unknown: "
                f"{job.origins['summary.gpu_utilization_percent']} says more than 100 % of a GPU."
            )
        if (read := too_little_read(job)) is not None:
            raise JobError(
                f"Job {job.job_id}: GPU utilization is unknown: its GPUs were read for "
                f"{read:.0f} % of their time."
            )
        # The job's mean is of the GPUs of which it is known.
        silent = [gpu for gpu in job.per_gpu if gpu.utilization_percent is None]
        if any(gpu.covered_percent for gpu in silent):
            raise JobError(
                f"Job {job.job_id}: GPU utilization is unknown of {len(silent)} of its "
                f"{len(job.per_gpu)} GPUs."
            )
        if value < least:
            raise JobError(
                f"Job {job.job_id}: GPU utilization is {_less(value, least)} %, below {least:g} %."
            )

    def __repr__(self) -> str:
        return in_line(f"JobStats({self.job.job_id!r}, {self.job.state!r}, {self.summary!r})")

    def _repr_html_(self) -> str:
        rows = "".join(f"<tr>{row}</tr>" for row in self._rows())
        return f"<table>{rows}</table>"

    def _rows(self) -> Iterator[str]:
        yield _cells("job", f"{self.job.job_id} {self.job.state}")
        figures = self.document()["summary"]
        for name, value in figures.items():
            if value is not None:
                yield _cells(name, f"{value:,.1f}" if isinstance(value, float) else str(value))
        for item in self.advice:
            yield _cells(str(item.severity), item.message)


class StatsList(list[JobStats]):
    """What is known of several jobs: each alone, and how an array's tasks are spread."""

    def document(self) -> dict[str, Any]:
        """Return what `hpckit stats --json` prints of several jobs."""
        from hpckit.report.array_page import distribution  # noqa: PLC0415  # most ask of one job

        return {
            "jobs": [row.document() for row in self],
            "distribution": distribution([row.job for row in self]),
        }

    @checked(stream=maybe(STREAM), everything=bool)
    def page(self, stream: TextIO | None = None, *, everything: bool = False) -> str:
        """Return one page on the tasks of an array, else a page for each job; see `JobStats`."""
        arrays = {(row.run and row.run._folder.whole) or row.job.array_job_id for row in self}
        if len(self) > 1 and len(arrays) == 1 and None not in arrays:
            from hpckit.report.array_page import distribution_page  # noqa: PLC0415  # as above

            advice = {row.job.job_id: row.advice for row in self}
            jobs = [row.job for row in self]
            return distribution_page(jobs, advice, _style(stream), all_jobs=everything)
        return "\n\n".join(row.page(stream, everything=everything) for row in self)

    @checked(path=PATH)
    def html(self, path: Path | str) -> Path:
        """Write what `hpckit stats --html` writes; see `JobStats.html`."""
        return _write_html(self, path)

    @checked(template=str)
    def render(self, template: str) -> str:
        """Return each of them as a group's own form has it, one after the other; see `JobStats`."""
        return "".join(row.render(template) for row in self)

    def openmetrics(self) -> str:
        """Return the figures of all of them as OpenMetrics text."""
        from hpckit.stats.openmetrics import openmetrics  # noqa: PLC0415  # seldom

        return openmetrics([row.job for row in self])

    @checked(path=PATH)
    def textfile(self, path: Path | str) -> Path:
        """Write the same for node_exporter's textfile collector: whole or not at all.

        Raises:
            RequestError: its name does not end with `.prom`. OutsideError: it cannot be written.
        """
        place = typed_path(path)
        if place.suffix != ".prom":
            raise RequestError(
                f"textfile {place}: node_exporter reads only files whose names end with .prom. "
                "To print the same: hpckit stats --openmetrics."
            )
        return write_shown(place, self.openmetrics(), "textfile")


def _style(stream: TextIO | None) -> Style:
    return style_of(stream) if stream else Style()


def _cells(*words: str) -> str:
    import html  # noqa: PLC0415  # for notebooks

    return "".join(f"<td>{html.escape(in_line(word))}</td>" for word in words)


def _write_html(found: Sequence[JobStats], path: Path | str) -> Path:
    from hpckit.pages.write import Shown, write_page  # noqa: PLC0415  # seldom

    return write_page(
        [Shown(found=row.found or Gathered(job=row.job), advice=row.advice) for row in found],
        typed_path(path),
    )


def _less(value: float, limit: float) -> str:
    """Write a value with as many digits as show that it is below a limit: 39.96, not 40.0."""
    texts = (f"{value:.{digits}f}" for digits in range(1, 16))
    return next((text for text in texts if float(text) < limit), repr(value))
