"""`hpckit stats JOBID...`: what the GPUs, cores and memory of jobs did, and what to change."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from hpckit import JobStats
from hpckit.api.stats import stats_called
from hpckit.cli.arguments import JsonOption, RunsOption, say_whose, settled_root
from hpckit.cli.output import note, print_json, say, show_page, show_text
from hpckit.errors import HpckitError, RequestError
from hpckit.report.array_page import distribution, distribution_page
from hpckit.report.job_page import Page, page
from hpckit.report.terminal import style_of
from hpckit.slurm.client import patience
from hpckit.stats.advice.loading import find_rule, rules_for
from hpckit.stats.advice.rules import explain
from hpckit.stats.document import json_schema
from hpckit.stats.samples.records import samples_files

_WATCH_S = 5.0
_Found = Sequence[JobStats]


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
    if fail_under is not None:
        for row in found:
            row.check_utilization(fail_under)


def _find(
    words: Sequence[str], runs: Path | None, samples: Path | None
) -> tuple[list[JobStats], list[HpckitError]]:
    with patience():
        root = settled_root(runs, tuple(words))
        found, missing = stats_called(words, root, samples)
    for run in dict.fromkeys(row.run for row in found if row.run):
        say_whose(run)
    return found, missing


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
    records = {row.job.job_id: row.jobstats() for row in found}
    for job_id, record in records.items():
        if record is None:
            note(f"Job {job_id}: too little is known about its nodes for a record.")
    several = many or len(records) > 1
    print_json(records if several else next(iter(records.values())))


def _print_links(found: _Found) -> list[HpckitError]:
    wrong: list[HpckitError] = []
    for row in found:
        try:
            say(row.grafana_link())
        except RequestError as error:
            wrong.append(error)
    return wrong


def _document(found: _Found, *, many: bool) -> dict[str, Any]:
    documents = [row.document() for row in found]
    if len(documents) == 1 and not many:
        return documents[0]
    return {"jobs": documents, "distribution": distribution([row.job for row in found])}


def _pages(found: _Found, *, everything: bool) -> str:
    style = style_of(sys.stdout)
    arrays = {(row.run and row.run._folder.whole) or row.job.array_job_id for row in found}
    if len(found) > 1 and len(arrays) == 1 and None not in arrays:
        advice = {row.job.job_id: row.advice for row in found}
        jobs = [row.job for row in found]
        return distribution_page(jobs, advice, style, all_jobs=everything)
    pages = [
        page(
            Page(job=row.job, advice=row.advice, timelines=row.timelines, everything=everything),
            style,
        )
        for row in found
    ]
    return "\n\n".join(pages)


def _watch(
    words: Sequence[str], runs: Path | None, samples: Path | None, *, everything: bool
) -> None:
    """Show jobs again and again, until none of them runs or waits."""
    while True:
        found, missing = _find(words, runs, samples)
        if missing:
            raise missing[0]
        show_page(_pages(found, everything=everything), anew=True)
        if not any(row.job.running or row.job.state == "PENDING" for row in found):
            return
        time.sleep(_WATCH_S)
