"""What was submitted, and how it ended: of hpckit's own runs, from the run's folder."""

import shlex
from collections.abc import Iterator, Mapping
from typing import Any
from xml.etree.ElementTree import Element

from hpckit.files import DamagedFileError, read_text
from hpckit.job_ends.failures import error_report
from hpckit.pages.elements import Content, e, pairs, section, table
from hpckit.report.known_job import KnownJob
from hpckit.run_folders.runs import Run

_SCRIPT = "job.sh"
_MOST_SCRIPT = 200_000


def how_it_ended(known: KnownJob) -> Element | None:
    """Return why the run failed, with the first error; None if it did not, or nobody knows."""
    run, status = known.run, known.status
    if run is None or status is None or status.good or not status.finished:
        return None
    said = error_report(run, status.ranks, status.state)
    return section("How it ended", e("pre", said, tabindex="0"), class_="ended") if said else None


def what_was_submitted(run: Run | None) -> Element | None:
    """Return the request: command, parameters, versions of everything, and the script."""
    if run is None:
        return None
    record = run.record
    versions = list(_versions(record))
    settings = [[str(name), str(value)] for name, value in record["parameters"].items()]
    return section(
        "What was submitted",
        pairs(dict(_words(record))),
        table("Parameters", ("parameter", "value"), settings) if settings else None,
        table("Versions", ("what", "name", "collection", "revision", "hash"), versions)
        if versions
        else None,
        _script(run),
        class_="submitted",
    )


def _words(record: Mapping[str, Any]) -> Iterator[tuple[str, Content]]:
    command = record.get("command_line")
    if isinstance(command, list) and all(isinstance(word, str) for word in command):
        yield "command", e("code", shlex.join(command))
    yield "program", e("code", shlex.join(record["command"]))
    yield "folder", e("code", record["cwd"])
    yield "code", _code(record.get("code"))
    yield "hpckit", str(record["hpckit_version"])


def _code(code: Mapping[str, Any] | None) -> Content:
    if not code or not code.get("commit"):
        return None
    changed = {True: ", with changes that are in no commit", False: ", without changes"}
    said = "" if code.get("dirty") is None else changed[bool(code["dirty"])]
    return [e("code", str(code["commit"])), said]


def _versions(record: Mapping[str, Any]) -> Iterator[list[Content]]:
    found = [("template", row) for row in record.get("templates") or ()]
    found += [(what, record[what]) for what in ("workload", "site") if record.get(what)]
    for what, row in found:
        revision = row.get("revision")
        yield [
            what,
            str(row.get("name") or ""),
            str(row.get("collection") or ""),
            e("code", str(revision)[:12]) if revision else "",
            e("code", str(row.get("hash") or "")[:19]),
        ]


def _script(run: Run) -> Element | None:
    try:
        text = read_text(run.dir / _SCRIPT, most=_MOST_SCRIPT)
    except (OSError, DamagedFileError):
        return None
    return e("details", e("summary", f"The job script, {_SCRIPT}"), e("pre", text, tabindex="0"))
