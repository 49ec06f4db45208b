"""`hpckit stats JOBID...`: what the GPUs, cores and memory of jobs did, and what to change."""

from pathlib import Path
from typing import Annotated

import typer

from hpckit.api.stats import explain_advice, grafana_dashboard, stats_schema
from hpckit.cli.arguments import JsonOption, RunsOption, finite
from hpckit.cli.output import print_json, say, show_text
from hpckit.cli.show_stats import show
from hpckit.errors import RequestError

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
_Template = Annotated[
    str | None, typer.Option(metavar="NAME", help="Print it by this template of report/.")
]
_FailUnder = Annotated[
    float | None,
    typer.Option(
        min=0,
        max=100,
        callback=finite,
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
    template: _Template = None,
    fail_under: _FailUnder = None,
    schema: _Schema = False,
    explain_rule: _Explain = None,
) -> None:
    """Show what the GPUs, cores and memory of a job did, and what to change.

    Finished, running or killed; an array's id shows how its tasks are spread. Exit status: 0 good;
    1 below --fail-under; 2 no such job; 3 Slurm does not answer.
    """
    if schema:
        print_json(stats_schema())
        return
    if dashboard:
        show_text(grafana_dashboard())
        return
    files = {"html": html, "png": png, "svg": svg, "textfile": textfile}
    shapes = {"json": json, "jobstats": jobstats, "grafana": grafana, "openmetrics": openmetrics,
              "template": template is not None}  # fmt: skip
    if explain_rule is not None:
        for word in (name for name, asked in (shapes | files).items() if asked):
            raise RequestError(f"--explain prints a text about a rule: leave out --{word}.")
        say(explain_advice(explain_rule))
        return
    if template is not None:
        from hpckit.api.templates import report_template  # noqa: PLC0415  # seldom

        report_template(template)  # before Slurm is asked
    show(
        job_ids or (),
        runs,
        samples,
        shapes=[name for name, asked in shapes.items() if asked],
        files={name: path for name, path in files.items() if path},
        template=template or "",
        everything=everything,
        watch=watch,
        fail_under=fail_under,
    )
