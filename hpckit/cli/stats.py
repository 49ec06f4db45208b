"""`hpckit stats JOBID...`: what the GPUs, cores and memory of jobs did, and what to change."""

import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from hpckit.api.stats import (
    StatsList,
    explain_advice,
    grafana_dashboard,
    stats_asked,
    stats_schema,
)
from hpckit.beside import allow
from hpckit.cli.arguments import JsonOption, RunsOption, say_note, say_whose
from hpckit.cli.output import note, print_json, say, show_page, show_text
from hpckit.errors import HpckitError, RequestError

_WATCH_S = 5.0


_Jobs = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="JOBID...",
        help="Anyone's job: 123, 123_4, 123+1; its step 123.0; a run id; or latest.",
    ),
]
_Samples = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Folder with the samples of this job.")
]
_All = Annotated[bool, typer.Option("--all", help="Show every GPU, node, advice and note.")]
_Watch = Annotated[
    bool, typer.Option("--watch", help="Show the page again every 5 s until the job is over.")
]
_Jobstats = Annotated[
    bool, typer.Option("--jobstats", help="Print the record of the Princeton jobstats tool.")
]
_Grafana = Annotated[
    bool, typer.Option("--grafana", help="Print the link to the site's Grafana page of the job.")
]
_OpenMetrics = Annotated[
    bool, typer.Option("--openmetrics", help="Print the figures as OpenMetrics text.")
]
_Textfile = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Write them for node_exporter's textfile collector."),
]
_Dashboard = Annotated[
    bool, typer.Option("--dashboard", help="Print a Grafana dashboard of these metrics.")
]
_Html = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write a page with pictures, for a browser.")
]
_Png = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write the main picture, for papers and slides.")
]
_Svg = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write the same picture as an SVG.")
]
_FailUnder = Annotated[
    float | None,
    typer.Option(
        min=0,
        max=100,
        metavar="PERCENT",
        help="Exit 1 if the GPUs were used less, or if this is unknown.",
    ),
]
_Schema = Annotated[bool, typer.Option("--schema", help="Print the JSON Schema of --json.")]
_Explain = Annotated[
    str | None,
    typer.Option("--explain", metavar="RULE", help="Explain a rule of the advice."),
]


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(stats)


def stats(
    job_ids: _Jobs = None,
    runs: RunsOption = None,
    json: JsonOption = False,
    samples: _Samples = None,
    everything: _All = False,
    watch: _Watch = False,
    jobstats: _Jobstats = False,
    grafana: _Grafana = False,
    openmetrics: _OpenMetrics = False,
    textfile: _Textfile = None,
    dashboard: _Dashboard = False,
    html: _Html = None,
    png: _Png = None,
    svg: _Svg = None,
    fail_under: _FailUnder = None,
    schema: _Schema = False,
    explain_rule: _Explain = None,
) -> None:
    """Show what the GPUs, cores and memory of a job did, and what to change.

    Finished, running or killed; an array's id shows how its tasks are spread. Exit status: 0 good;
    1 below --fail-under; 2 no such job; 3 Slurm does not answer.
    """
    allow()
    if schema or dashboard:
        show_text(stats_schema() if schema else grafana_dashboard())
        return
    if explain_rule is not None:
        say(explain_advice(explain_rule))
        return
    if not job_ids:
        raise RequestError("Give a job: hpckit stats JOBID, or hpckit stats latest.")
    files = {"html": html, "png": png, "svg": svg, "textfile": textfile}
    shapes = {"json": json, "jobstats": jobstats, "grafana": grafana, "openmetrics": openmetrics}
    asked = _one_shape(shapes | {"file": any(files.values())})
    if watch:
        if asked or fail_under is not None:
            raise RequestError("--watch shows pages only: leave out --json and the like.")
        _watch(job_ids, runs, samples, everything=everything)
        return
    drawn = [name for name in ("html", "png", "svg") if files[name]]
    found, missing = _find(job_ids, runs, samples, drawn)
    if found and asked == "file":
        _write(found, files)
    elif found:
        missing += _print(found, asked, everything=everything, many=len(job_ids) > 1)
    for error in missing[:-1]:
        note(f"hpckit: error: {error}")
    if missing:
        raise missing[-1]
    if fail_under is not None:
        for row in found:
            row.check_utilization(fail_under)


def _one_shape(shapes: Mapping[str, bool]) -> str:
    """Return the one shape that is wanted; "" for the page.

    Raises:
        RequestError: several are.
    """
    wanted = [name for name, is_wanted in shapes.items() if is_wanted]
    if len(wanted) > 1:
        raise RequestError(
            "Give one of --json, --jobstats, --grafana and --openmetrics, or files to write."
        )
    return wanted[0] if wanted else ""


def _find(
    words: Sequence[str], runs: Path | None, samples: Path | None, files: Sequence[str] = ()
) -> tuple[StatsList, list[HpckitError]]:
    found, missing = stats_asked(words, runs, samples, say_note, files)
    for run in dict.fromkeys(row.run for row in found if row.run):
        say_whose(run)
    return found, missing


def _print(found: StatsList, shape: str, *, everything: bool, many: bool) -> list[HpckitError]:
    """Print jobs in one of the shapes; return what is wrong with some of them."""
    if shape == "json":
        print_json(found[0].document() if len(found) == 1 and not many else found.document())
    elif shape == "jobstats":
        _print_jobstats(found, many=many)
    elif shape == "openmetrics":
        show_text(found.openmetrics())
    elif shape == "grafana":
        return _print_links(found)
    else:
        show_page(found.page(sys.stdout, everything=everything))
    return []


def _write(found: StatsList, files: Mapping[str, Path | None]) -> None:
    """Write the files that were asked for, and say where they are."""
    html, png, svg, textfile = (files[name] for name in ("html", "png", "svg", "textfile"))
    if (png or svg) and len(found) > 1:
        raise RequestError(
            f"A picture is of one job, and these are {len(found)}. Give one of them, such as "
            f"{found[0].job.job_id}, or write a page of all: --html FILE."
        )
    if html:
        page = found.html(html)
        note(f"The page is in {page} ({page.stat().st_size / 1e6:.1f} MB). Open it in a browser.")
    for path in (found[0].png(png) if png else None, found[0].svg(svg) if svg else None):
        if path:
            note(f"The picture is in {path} ({path.stat().st_size / 1e3:.0f} kB).")
    if textfile:  # without a word: it is written every minute
        found.textfile(textfile)


def _print_jobstats(found: StatsList, *, many: bool) -> None:
    records = {row.job.job_id: row.jobstats() for row in found}
    for job_id, record in records.items():
        if record is None:
            note(f"Job {job_id}: too little is known about its nodes for a record.")
    several = many or len(records) > 1
    print_json(records if several else next(iter(records.values())))


def _print_links(found: StatsList) -> list[HpckitError]:
    wrong: list[HpckitError] = []
    for row in found:
        try:
            say(row.grafana_link())
        except RequestError as error:
            wrong.append(error)
    return wrong


def _watch(
    words: Sequence[str], runs: Path | None, samples: Path | None, *, everything: bool
) -> None:
    """Show jobs again and again, until none of them runs or waits."""
    while True:
        found, missing = _find(words, runs, samples)
        if missing:
            raise missing[0]
        show_page(found.page(sys.stdout, everything=everything), anew=True)
        if not any(row.job.running or row.job.state == "PENDING" for row in found):
            return
        time.sleep(_WATCH_S)
