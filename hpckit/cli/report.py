"""`hpckit report`: what the GPUs of a user, an account or everybody did over some time."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hpckit.api import slow_answers_told
from hpckit.cli.arguments import JsonOption, RunsOption
from hpckit.cli.output import note, print_json, room, say, say_note, show_text, table
from hpckit.cli.written import check_files, write
from hpckit.errors import RequestError

if TYPE_CHECKING:
    from hpckit.api.report import Report

UsersOption = Annotated[
    list[str] | None, typer.Option("--user", "-u", metavar="NAME", help="Jobs of this user.")
]
AccountsOption = Annotated[
    list[str] | None, typer.Option("--account", "-A", metavar="NAME", help="Of this account.")
]
AllOption = Annotated[bool, typer.Option("--all", help="Of all users, as far as Slurm shows them.")]
SinceOption = Annotated[str, typer.Option(metavar="AGE|DAY", help="12h, 30d, 4w, or 2026-11-01.")]
UntilOption = Annotated[
    str | None, typer.Option(metavar="AGE|DAY", help="The same; now by default.")
]
ByOption = Annotated[
    str | None,
    typer.Option(
        metavar="WORD",
        help="week, day, month, user, account, partition, gpu, state, name, workload or template.",
    ),
]
WastefulOption = Annotated[
    int, typer.Option(min=0, metavar="N", help="How many jobs to list that wasted most.")
]
HideOption = Annotated[
    bool, typer.Option("--anonymous", "--hide-names", help="Number users and jobs, name none.")
]
SiteOption = Annotated[str | None, typer.Option(help="The site whose costs and ledger count.")]
CsvOption = Annotated[bool, typer.Option("--csv", help="Print the groups as CSV.")]
HtmlOption = Annotated[
    Path | None, typer.Option("--html", metavar="FILE", help="Write a page for a browser.")
]
SchemaOption = Annotated[bool, typer.Option("--schema", help="Print the JSON Schema of --json.")]
TemplateOption = Annotated[
    str | None,
    typer.Option("--template", metavar="NAME", help="Print it by this template of report/."),
]
MarkdownOption = Annotated[bool, typer.Option("--markdown", help="Print Markdown.")]
_SEVERAL = "Give one of --json, --csv, --markdown, --html, --template and --schema."


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(report)


def report(
    users: UsersOption = None,
    accounts: AccountsOption = None,
    everyone: AllOption = False,
    since: SinceOption = "30d",
    until: UntilOption = None,
    by: ByOption = None,
    wasteful: WastefulOption = 10,
    hide_names: HideOption = False,
    site: SiteOption = None,
    runs: RunsOption = None,
    json: JsonOption = False,
    csv: CsvOption = False,
    markdown: MarkdownOption = False,
    html: HtmlOption = None,
    template: TemplateOption = None,
    schema: SchemaOption = False,
) -> None:
    """Show GPU-hours held, used and lost: your own, an account's, everybody's.

    Exit status: 0 good; 2 a word is wrong; 3 Slurm's accounting does not answer, or the
    page cannot be written.
    """
    # No other command needs it.
    from hpckit.api.report import report as make  # noqa: PLC0415
    from hpckit.api.report import report_schema  # noqa: PLC0415
    from hpckit.api.templates import report_template  # noqa: PLC0415

    if json + csv + markdown + (html is not None) + (template is not None) + schema > 1:
        raise RequestError(_SEVERAL)
    if schema:
        print_json(report_schema())
        return
    check_files({"html": html})
    if template is not None:
        report_template(template)  # before Slurm is asked, which may take minutes
    with slow_answers_told(say_note):
        found = make(
            users=tuple(users or ()),
            accounts=tuple(accounts or ()),
            everyone=everyone,
            since=since,
            until=until,
            by=by,
            hide_names=hide_names,
            wasteful=wasteful,
            site=site,
            runs=runs,
        )
    shapes = {"json": json, "csv": csv, "markdown": markdown}
    shape = next((name for name, asked in shapes.items() if asked), "page")
    _show(found, shape, html, template)


def _show(found: "Report", shape: str, html: Path | None, template: str | None) -> None:
    if template is not None:
        show_text(found.render(template))
    elif html:
        if page := write("html", html, found.html):
            size = f"{page.stat().st_size / 1e6:.1f} MB"
            note(f"The page is in {page} ({size}). Open it in a browser.")
    elif shape == "json":
        print_json(found.document())
    elif shape == "csv":
        show_text(found.csv())
        for text in found.notes:  # there is no place for them in the table
            note(text)
    elif shape == "markdown":
        show_text(found.markdown())
    else:
        say(found.text(table, room()))
