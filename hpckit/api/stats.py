"""`hpckit.stats`: what a job did with its GPUs, cores and memory, and what to change."""

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any, Literal, TextIO

from hpckit.api import log
from hpckit.api.lookup import settled_folder
from hpckit.api.run import Run, handle
from hpckit.arguments import JOB, PATH, checked, job_word, maybe
from hpckit.errors import HpckitError, JobError, RequestError
from hpckit.files import write_shown
from hpckit.frozen import frozen
from hpckit.paths import typed_path
from hpckit.report.at_end import save
from hpckit.report.gather import Gathered, gather, live_steps
from hpckit.report.job_page import Page, page
from hpckit.report.node_faults import counted_events
from hpckit.report.targets import find_targets
from hpckit.report.terminal import Style, style_of
from hpckit.runs import Run as RunFolder
from hpckit.slurm.client import patience
from hpckit.stats.advice.engine import Advice
from hpckit.stats.advice.loading import advised, find_rule, forget_rules, rules_for, site_called
from hpckit.stats.document import job_document, json_schema
from hpckit.stats.js1 import jobstats_record
from hpckit.stats.merge import too_little_read
from hpckit.stats.samples.records import samples_files
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

    @checked(everything=bool)
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

    @checked(everything=bool)
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
                f"--textfile {place}: node_exporter reads only files whose names end with .prom."
            )
        return write_shown(place, self.openmetrics(), "textfile")


def grafana_dashboard() -> str:
    """Return a Grafana dashboard of what `openmetrics` says, as Grafana imports it."""
    from hpckit.stats.dashboard import dashboard  # noqa: PLC0415  # seldom

    return dashboard()


def _style(stream: TextIO | None) -> Style:
    return style_of(stream) if stream else Style()


def _cells(*words: str) -> str:
    import html  # noqa: PLC0415  # for notebooks

    return "".join(f"<td>{html.escape(in_line(word))}</td>" for word in words)


@checked(job=JOB, runs=maybe(PATH), samples=maybe(PATH))
def stats(
    job: Run | str | int | Path,
    *,
    runs: Path | str | None = None,
    samples: Path | str | None = None,
) -> JobStats:
    """Return how anyone's job used its GPUs, cores and memory, and what to change.

    Args:
        job: a run, Slurm's id (`123`, `123_4`, a step `123.0`), a run's id or folder, or `latest`.
        runs: the folder of runs.
        samples: a folder of samples to use instead of the job's.

    Raises:
        NotFoundError: there is no such job. RequestError: it is an array of several tasks.
        OutsideError: Slurm does not answer.
    """
    word = job_word(job)
    root, own = (None if path is None else typed_path(path) for path in (runs, samples))
    found, missing = stats_asked([word], root, own)
    if missing:
        raise missing[-1]
    if len(found) > 1:
        raise RequestError(
            f"{word} is an array of {len(found)} tasks. Give one of them: {found[0].job.job_id}"
        )
    return found[0]


def _write_html(found: Sequence[JobStats], path: Path | str) -> Path:
    from hpckit.pages.write import Shown, write_page  # noqa: PLC0415  # seldom

    return write_page(
        [Shown(found=row.found or Gathered(job=row.job), advice=row.advice) for row in found],
        typed_path(path),
    )


def stats_of_runs(runs: Sequence[RunFolder]) -> StatsList:
    """Return the same of runs that are at hand."""
    every = StatsList()
    for root in dict.fromkeys(run.dir.parent for run in runs):
        found, missing = _called([str(run.dir) for run in runs if run.dir.parent == root], root)
        if missing:
            raise missing[-1]
        every += found
    return every


def stats_asked(
    words: Sequence[str],
    runs: Path | None,
    samples: Path | None = None,
    tell: Callable[[str], None] = log,
    files: Collection[str] = (),
) -> tuple[StatsList, list[HpckitError]]:
    """Return the accounts of the jobs that words mean, and why others have none.

    `files` are what will be written of them, of html, png and svg: their samples are read once.
    The summary of each of the user's own runs is written into its folder.

    Raises:
        RequestError: the folder of samples has none.
    """
    if samples is not None and not samples_files(samples):
        raise RequestError(
            f"--samples {samples}: this folder has no samples files. See docs/sampler.md."
        )
    with patience():
        return _called(words, settled_folder(runs, words, tell), samples, files)


def stats_schema() -> str:
    """Return the JSON Schema of `JobStats.document`."""
    return json_schema()


@checked(rule=str)
def explain_advice(rule: str) -> str:
    """Return a page on a rule of the advice: what it looks at, its limits, what it says.

    Raises:
        RequestError: there is no such rule.
    """
    from hpckit.stats.advice.explaining import explain  # noqa: PLC0415  # seldom

    return explain(find_rule(rule, rules_for(None)))


def _called(
    words: Sequence[str], root: Path, samples: Path | None = None, files: Collection[str] = ()
) -> tuple[StatsList, list[HpckitError]]:
    forget_rules()  # a notebook may live longer than a rule stays as it was
    with patience():
        targets, missing = find_targets(words, root)
        live = live_steps(targets)
    found = StatsList()
    points = _points_of(files, len(targets)) if files else ()
    for target, row in zip(targets, gather(targets, samples, live, points), strict=True):
        run = target.known.run
        found.append(replace(_account(row, samples), run=None if run is None else handle(run)))
        if run is not None and run.mine and not samples:
            _learn(run, row)
    return found, [*missing]


def _learn(run: RunFolder, found: Gathered) -> None:
    """Write down what a run tells of bad nodes."""
    status = found.known.status
    events = [*(status.node_events() if status else ()), *counted_events(run, found.job)]
    if events:
        from hpckit.api.bad_nodes import write_down  # noqa: PLC0415  # seldom

        write_down(events)


def _points_of(files: Collection[str], jobs: int) -> tuple[int, ...]:
    from hpckit.pages.write import points_of  # noqa: PLC0415  # seldom

    return points_of(files, jobs)


def _account(found: Gathered, samples: Path | None) -> JobStats:
    job, advice = advised(found.job, found.timelines)
    whole = replace(found, job=job)
    kept = whole if samples else save(whole, advice)
    return JobStats(job=kept.job, advice=advice, timelines=kept.timelines, found=kept)


def _less(value: float, limit: float) -> str:
    """Write a value with as many digits as show that it is below a limit: 39.96, not 40.0."""
    texts = (f"{value:.{digits}f}" for digits in range(1, 16))
    return next((text for text in texts if float(text) < limit), repr(value))
