"""`hpckit stats JOBID...`: what the GPUs, cores and memory of jobs did, and what to change."""

import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from hpckit.cli.arguments import JsonOption, RunsOption, say_whose, settled_root
from hpckit.cli.output import note, print_json, say, show_page, show_text
from hpckit.errors import HpckitError, JobError, RequestError
from hpckit.report.array_page import distribution, distribution_page
from hpckit.report.at_end import save
from hpckit.report.gather import Gathered, gather, live_steps
from hpckit.report.job_page import Page, page
from hpckit.report.targets import find_targets
from hpckit.report.terminal import style_of
from hpckit.slurm.client import patience
from hpckit.stats.advice.engine import Advice
from hpckit.stats.advice.loading import advised, find_rule, rules_for, site_called
from hpckit.stats.advice.rules import explain
from hpckit.stats.document import job_document, json_schema
from hpckit.stats.js1 import jobstats_record
from hpckit.stats.merge import utilization_coverage
from hpckit.stats.samples.records import samples_files
from hpckit.stats.summary.coverage import enough

_WATCH_S = 5.0
_Found = list[tuple[Gathered, tuple[Advice, ...]]]


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(stats)


def stats(
    job_ids: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="JOBID...",
            help="Anyone's job: 123, 123_4, 123+1; its step 123.0; a run id; or latest.",
        ),
    ] = None,
    runs: RunsOption = None,
    json: JsonOption = False,
    samples: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder with the samples of this job.")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Show every GPU, node, advice and note.")
    ] = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Show the page again every 5 s until the job is over.")
    ] = False,
    jobstats: Annotated[
        bool, typer.Option("--jobstats", help="Print the record of the Princeton jobstats tool.")
    ] = False,
    grafana: Annotated[
        bool,
        typer.Option("--grafana", help="Print the link to the site's Grafana page of the job."),
    ] = False,
    fail_under: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=100,
            metavar="PERCENT",
            help="Exit 1 if the GPUs were used less, or if this is unknown.",
        ),
    ] = None,
    schema: Annotated[
        bool, typer.Option("--schema", help="Print the JSON Schema of --json.")
    ] = False,
    explain_rule: Annotated[
        str | None,
        typer.Option("--explain", metavar="RULE", help="Explain a rule of the advice."),
    ] = None,
) -> None:
    """Show what the GPUs, cores and memory of a job did, and what to change.

    Finished, running or killed; an array's id shows how its tasks are spread. Exit status: 0 good;
    1 below --fail-under; 2 no such job; 3 Slurm does not answer.
    """
    if schema:
        show_text(json_schema())
        return
    if explain_rule is not None:
        say(explain(find_rule(explain_rule, rules_for(None))))
        return
    if not job_ids:
        raise RequestError("Give a job: hpckit stats JOBID, or hpckit stats latest.")
    if samples is not None and not samples_files(samples):
        raise RequestError(
            f"--samples {samples}: this folder has no samples files. See docs/sampler.md."
        )
    if watch:
        if json or jobstats or grafana or fail_under is not None:
            raise RequestError("--watch shows pages only: leave out --json and the like.")
        _watch(job_ids, runs, samples, everything=everything)
        return
    found, missing = _find(job_ids, runs, samples)
    if found:
        shapes = {"json": json, "jobstats": jobstats, "grafana": grafana}
        asked = {name for name, wanted in shapes.items() if wanted}
        missing += _print(found, asked, everything=everything, many=len(job_ids) > 1)
    for error in missing[:-1]:
        note(f"hpckit: error: {error}")
    if missing:
        raise missing[-1]
    _gate([gathered for gathered, _ in found], fail_under)


def _find(
    words: Sequence[str], runs: Path | None, samples: Path | None
) -> tuple[_Found, list[HpckitError]]:
    found: _Found = []
    with patience():
        targets, missing = find_targets(words, settled_root(runs, tuple(words)))
        live = live_steps(targets)
    for run in {
        target.known.run.dir: target.known.run for target in targets if target.known.run
    }.values():
        say_whose(run)
    for gathered in gather(targets, samples, live):
        job, advice = advised(gathered.job)
        whole = replace(gathered, job=job)
        found.append((whole if samples else save(whole, advice), advice))
    return found, [*missing]


def _print(found: _Found, shapes: set[str], *, everything: bool, many: bool) -> list[HpckitError]:
    """Print jobs in one of the shapes; return what is wrong with some of them."""
    if len(shapes) > 1:
        raise RequestError("Give one of --json, --jobstats and --grafana.")
    if "json" in shapes:
        print_json(_document(found, many=many))
    elif "jobstats" in shapes:
        _print_jobstats(found, many=many)
    elif "grafana" in shapes:
        return _print_links(found)
    else:
        show_page(_pages(found, everything=everything))
    return []


def _print_jobstats(found: _Found, *, many: bool) -> None:
    records = {row.job.job_id: jobstats_record(row.job) for row, _ in found}
    for job_id, record in records.items():
        if record is None:
            note(f"Job {job_id}: too little is known about its nodes for a record.")
    several = many or len(records) > 1
    print_json(records if several else next(iter(records.values())))


def _print_links(found: _Found) -> list[HpckitError]:
    wrong: list[HpckitError] = []
    for row, _ in found:
        try:
            say(_link(row))
        except RequestError as error:
            wrong.append(error)
    return wrong


def _document(found: _Found, *, many: bool) -> dict[str, Any]:
    documents = [job_document(row.job, advice) for row, advice in found]
    if len(documents) == 1 and not many:
        return documents[0]
    return {"jobs": documents, "distribution": distribution([row.job for row, _ in found])}


def _pages(found: _Found, *, everything: bool) -> str:
    style = style_of(sys.stdout)
    arrays = {row.job.array_job_id for row, _ in found}
    if len(found) > 1 and len(arrays) == 1 and None not in arrays:
        advice = {row.job.job_id: items for row, items in found}
        jobs = [row.job for row, _ in found]
        return distribution_page(jobs, advice, style, all_jobs=everything)
    pages = [
        page(Page(job=row.job, advice=items, timelines=row.timelines, everything=everything), style)
        for row, items in found
    ]
    return "\n\n".join(pages)


def _link(found: Gathered) -> str:
    """Return the site's link with job id and times; jobs that run end now.

    Raises:
        RequestError: the site names no Grafana, or the job has not started.
    """
    job = found.job
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
    raw = job.raw_id or job.job_id
    link = site.grafana
    for name, value in (
        ("{jobid}", raw),
        ("{start_ms}", f"{job.start * 1000:.0f}"),
        ("{end_ms}", f"{(job.end or time.time()) * 1000:.0f}"),
    ):
        link = link.replace(name, value)
    return link


def _gate(found: Sequence[Gathered], fail_under: float | None) -> None:
    """Raise if a job's GPUs were used less than asked; unknown is not good enough.

    Raises:
        JobError: so it is.
    """
    if fail_under is None:
        return
    for row in found:
        value = row.job.summary.gpu_utilization_percent
        if value is None:
            raise JobError(f"Job {row.job.job_id}: GPU utilization is unknown.")
        read = utilization_coverage(row.job)
        if read is not None and not enough(read):
            raise JobError(
                f"Job {row.job.job_id}: GPU utilization is unknown: its GPUs were read for "
                f"{read:.0f} % of their time."
            )
        if value < fail_under:
            raise JobError(
                f"Job {row.job.job_id}: GPU utilization is {_less(value, fail_under)} %, below "
                f"{fail_under:g} %."
            )


def _less(value: float, limit: float) -> str:
    """Write a value with as many digits as show that it is below a limit: 39.96, not 40.0."""
    texts = (f"{value:.{digits}f}" for digits in range(1, 16))
    return next((text for text in texts if float(text) < limit), repr(value))


def _watch(
    words: Sequence[str], runs: Path | None, samples: Path | None, *, everything: bool
) -> None:
    """Show jobs again and again, until none of them runs or waits."""
    while True:
        found, missing = _find(words, runs, samples)
        if missing:
            raise missing[0]
        show_page(_pages(found, everything=everything), anew=True)
        if not any(row.job.running or row.job.state == "PENDING" for row, _ in found):
            return
        time.sleep(_WATCH_S)
