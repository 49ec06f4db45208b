"""What `hpckit stats` shows once its options are read; without typer, so that it begins at once."""

import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from hpckit.api.job_stats import StatsList
from hpckit.api.stats import stats_asked
from hpckit.beside import allow
from hpckit.cli.output import note, print_json, say, say_note, say_whose, show_page, show_text
from hpckit.errors import HpckitError, RequestError

_WATCH_S = 5.0


def show(
    job_ids: Sequence[str],
    runs: Path | None = None,
    samples: Path | None = None,
    *,
    shapes: Sequence[str] = (),
    files: Mapping[str, Path] | None = None,
    template: str = "",
    everything: bool = False,
    watch: bool = False,
    fail_under: float | None = None,
) -> None:
    """Show jobs as a page each, or as one of `shapes`; or write `files`. See `hpckit.cli.stats`.

    `template` is the name of that shape's.

    Raises:
        RequestError: no job was given, or more than one shape. HpckitError: what went wrong with
            the last job of which there is nothing. JobError: GPUs were used less than `fail_under`.
    """
    allow()
    files = files or {}
    if not job_ids:
        raise RequestError("Give a job: hpckit stats JOBID, or hpckit stats latest.")
    if len(shapes) + bool(files) > 1:
        raise RequestError(
            "Give one of --json, --jobstats, --grafana, --openmetrics and --template, or files to "
            "write."
        )
    if watch:
        if shapes or files or fail_under is not None:
            raise RequestError("--watch shows pages only: leave out --json and the like.")
        _watch(job_ids, runs, samples, everything=everything)
        return
    if files:
        from hpckit.cli.written import check_files  # noqa: PLC0415  # most write none

        check_files(files)
    drawn = [name for name in ("html", "png", "svg") if name in files]
    found, missing = _find(job_ids, runs, samples, drawn)
    if found and files:
        _write(found, files)
    elif found and "template" in shapes:
        show_text(found.render(template))
    elif found:
        shape = shapes[0] if shapes else "page"
        missing += _print(found, shape, everything=everything, many=len(job_ids) > 1)
    for error in missing[:-1]:
        note(f"hpckit: error: {error}")
    if missing:
        raise missing[-1]
    if fail_under is not None:
        for row in found:
            row.check_utilization(fail_under)


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


def _write(found: StatsList, files: Mapping[str, Path]) -> None:
    """Write the files that were asked for, and say where they are."""
    from hpckit.cli.written import write  # noqa: PLC0415  # as above

    html, png, svg, textfile = (files.get(name) for name in ("html", "png", "svg", "textfile"))
    if (png or svg) and len(found) > 1:
        raise RequestError(
            f"A picture is of one job, and these are {len(found)}. Give one of them, such as "
            f"{found[0].job.job_id}, or write a page of all: --html FILE."
        )
    if html and (page := write("html", html, found.html)):
        note(f"The page is in {page} ({page.stat().st_size / 1e6:.1f} MB). Open it in a browser.")
    drawn = (("png", png, found[0].png), ("svg", svg, found[0].svg))
    for kind, place, draw in drawn:
        if place and (path := write(kind, place, draw)):
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
