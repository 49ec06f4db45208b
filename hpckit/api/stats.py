"""`hpckit.stats`: what a job did with its GPUs, cores and memory, and what to change."""

import html
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hpckit.api.lookup import settled_folder
from hpckit.api.run import Run, handle
from hpckit.errors import HpckitError, JobError, RequestError
from hpckit.report.at_end import save
from hpckit.report.gather import Gathered, gather, live_steps
from hpckit.report.targets import find_targets
from hpckit.runs import Run as RunFolder
from hpckit.slurm.client import patience
from hpckit.stats.advice.engine import Advice
from hpckit.stats.advice.loading import advised, forget_rules, site_called
from hpckit.stats.document import job_document
from hpckit.stats.js1 import jobstats_record
from hpckit.stats.merge import utilization_coverage
from hpckit.stats.summary.coverage import enough
from hpckit.stats.summary.figures import GpuUse, JobUse, NodeUse, Summary
from hpckit.stats.summary.timeline import Timeline
from hpckit.text import in_line


@dataclass(frozen=True, kw_only=True, slots=True)
class JobStats:
    """What is known of one job, and the advice on it. Figures that are not known are None.

    `run` is hpckit's run of the job; None: hpckit did not submit it.
    """

    job: JobUse
    advice: tuple[Advice, ...] = ()
    timelines: tuple[Timeline, ...] = ()
    run: Run | None = None

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

    def check_utilization(self, least: float) -> None:
        """Raise if the GPUs were used less than `least` percent; unknown is not good enough.

        Raises:
            JobError: so it is.
        """
        job, value = self.job, self.job.summary.gpu_utilization_percent
        if value is None:
            raise JobError(f"Job {job.job_id}: GPU utilization is unknown.")
        read = utilization_coverage(job)
        if read is not None and not enough(read):
            raise JobError(
                f"Job {job.job_id}: GPU utilization is unknown: its GPUs were read for "
                f"{read:.0f} % of their time."
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


def _cells(*words: str) -> str:
    return "".join(f"<td>{html.escape(in_line(word))}</td>" for word in words)


def stats(
    job: str | int, *, runs: Path | str | None = None, samples: Path | str | None = None
) -> JobStats:
    """Return how anyone's job used its GPUs, cores and memory, and what to change.

    Args:
        job: Slurm's id (`123`, `123_4`, a step `123.0`), a run's id, or `latest`.
        runs: the folder of runs.
        samples: a folder of samples to use instead of the job's.

    Raises:
        NotFoundError: there is no such job. RequestError: it is an array of several tasks.
        OutsideError: Slurm does not answer.
    """
    word = str(job)
    root = settled_folder(None if runs is None else Path(runs), (word,))
    found, missing = stats_called([word], root, None if samples is None else Path(samples))
    if missing:
        raise missing[-1]
    if len(found) > 1:
        raise RequestError(
            f"{word} is an array of {len(found)} tasks. Give one of them: {found[0].job.job_id}"
        )
    return found[0]


def stats_of_run(run: RunFolder) -> JobStats:
    """Return the same of a run that is at hand."""
    found, missing = stats_called([str(run.dir)], run.dir.parent)
    if missing:
        raise missing[-1]
    return found[0]


def stats_called(
    words: Sequence[str], root: Path, samples: Path | None = None
) -> tuple[list[JobStats], list[HpckitError]]:
    """Return the accounts of the jobs that words mean, and why others have none.

    The summary of each of the user's own runs is written into its folder.
    """
    forget_rules()  # a notebook may live longer than a rule stays as it was
    with patience():
        targets, missing = find_targets(words, root)
        live = live_steps(targets)
    found = []
    for target, row in zip(targets, gather(targets, samples, live), strict=True):
        run = target.known.run
        found.append(replace(_account(row, samples), run=None if run is None else handle(run)))
    return found, [*missing]


def _account(found: Gathered, samples: Path | None) -> JobStats:
    job, advice = advised(found.job)
    whole = replace(found, job=job)
    kept = whole if samples else save(whole, advice)
    return JobStats(job=kept.job, advice=advice, timelines=kept.timelines)


def _less(value: float, limit: float) -> str:
    """Write a value with as many digits as show that it is below a limit: 39.96, not 40.0."""
    texts = (f"{value:.{digits}f}" for digits in range(1, 16))
    return next((text for text in texts if float(text) < limit), repr(value))
