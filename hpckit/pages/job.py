"""The page of one job: the verdict first, then figures, advice, pictures, and what it was."""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from xml.etree.ElementTree import Element

from hpckit.pages.elements import Content, e, figure, section, table, with_code
from hpckit.pages.frame import page
from hpckit.pages.pictures import (
    advice_data,
    attempt_data,
    device_names,
    device_numbers,
    picture_data,
    picture_element,
    pictures,
    whole_span,
    zone,
)
from hpckit.pages.submitted import how_it_ended, what_was_submitted
from hpckit.pages.training import Training, training
from hpckit.pages.verdict import WORDS, verdict
from hpckit.report.gather import Gathered
from hpckit.report.job_page import away_before, notes_of, provenance
from hpckit.report.terminal import duration
from hpckit.slurm.resized import by_attempt, row_word
from hpckit.stats.advice.engine import Advice
from hpckit.stats.document import job_document
from hpckit.stats.metric import Metric
from hpckit.stats.metric_table import GPU, NODE
from hpckit.stats.summary.curves import Curves
from hpckit.stats.summary.figures import JobUse, attempt_words, numbers_of, part_word
from hpckit.text import counted, settings_text

Document = Mapping[str, Any]
_GPU_COLUMNS = {
    "utilization": "utilization_percent",
    "idle": "idle_percent",
    "memory": "memory_used_percent",
    **{row.title: row.figure for row in GPU if row.column and row.figure},
    "power": "power_watts_mean",
    "energy": "energy_joules",
    "read": "covered_percent",
}
_NODE_COLUMNS = {
    "GPUs used": "gpu_utilization_percent",
    "cores used": "cpu_efficiency_percent",
    "cores in use": "cores_used",
    "cores": "cores",
    "memory peak": "memory_peak_bytes",
    "memory limit": "memory_limit_bytes",
}
_ATTEMPT_COLUMNS = {
    "run time": "elapsed_s",
    "GPU utilization": "gpu_utilization_percent",
    "GPU-hours": "gpu_hours",
    "cores used": "cpu_efficiency_percent",
    "memory peak": "memory_peak_bytes",
}
_HELP = (
    "Drag over a picture to zoom; all pictures follow. With the keyboard: Tab to a picture, arrow "
    "keys move the cursor (with Shift by ten), + and - zoom, 0 shows all. Each point is the mean "
    "over {width}; the pale band goes from the lowest to the highest sample in it."
)


def job_page(found: Gathered, advice: Sequence[Advice], curves: Curves | None) -> str:
    """Return the page of one job."""
    job = found.job
    document = job_document(job, advice)
    logged = training(found.known.run, job.attempts, found.known.ranks)
    shown = pictures(curves, logged.charts)
    numbers = device_numbers(shown)
    hosts = len({row.host for row in job.per_node} | {row.host for row in job.per_gpu})
    names = device_names(job)
    data = {
        "kind": "job",
        "zone": zone(job.start),
        "range": whole_span(job, curves, logged.times),
        "width_s": curves.width_s if curves else 1,
        "moments": {"job": curves.times if curves else (), "training": logged.times},
        "breaks": logged.breaks,
        "charts": [picture_data(picture, hosts, names, numbers) for picture in shown],
        "attempts": attempt_data(job),
        "advice": advice_data(advice),
    }
    body = e(
        "main",
        _head(job),
        _verdict(job, advice),
        _figures(document, job),
        _advice(advice, drawn=bool(shown)),
        how_it_ended(found.known),
        _over_time(
            [picture_element(picture, hosts, names) for picture in shown],
            curves,
            [*_said_of_attempts(job, logged), *logged.left_out()],
        ),
        _tables(document, row_word(job.attempts), numbers_of(job.per_gpu)),
        what_was_submitted(found.known.run),
        _sources(job),
    )
    title = f"Job {job.job_id}" + (f" {job.name}" if job.name else "")
    return page(title, body, {"page-data": data, "document": document}, "job.js")


def _head(job: JobUse) -> Element:
    who = [job.user, job.account, job.partition, job.site]
    what = [
        counted(job.nodes, "node") if job.nodes else None,
        counted(job.gpus_or_asked, "GPU") if job.gpus_or_asked else None,
        ", ".join(sorted({gpu.name for gpu in job.per_gpu if gpu.name})),
        _when("from", job.start),
        _when("to", job.end),
    ]
    state = job.state or "UNKNOWN"
    return e(
        "header",
        e("h1", f"Job {job.job_id} ", e("span", job.name, class_="name") if job.name else None),
        e("p", e("span", state, class_="state", data_state=state), " ", _joined(who)),
        e("p", settings_text(job.parameters)) if job.parameters else None,
        e("p", _joined(what), class_="dim"),
    )


def _joined(words: Sequence[str | None]) -> str:
    return " · ".join(word for word in words if word)


def _when(word: str, moment: float | None) -> str | None:
    if moment is None:
        return None
    return f"{word} {clock(moment)}"


def clock(moment: float) -> str:
    """Return a moment as the cluster's clocks have it."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(moment))


def _verdict(job: JobUse, advice: Sequence[Advice]) -> Element:
    judged = verdict(job, advice)
    return e(
        "section",
        e("h2", WORDS[judged.level]),
        (e("p", sentence) for sentence in judged.sentences),
        class_=f"verdict {judged.level}",
        id="verdict",
    )


def _figures(document: Document, job: JobUse) -> Element | None:
    """Return the job's figures, as tiles; of a job without GPUs none of theirs."""
    names = {
        **(_gpu_figures() if job.has_gpus else {}),
        "cores used": "cpu_efficiency_percent",
        "memory at its peak, of the limit": "memory_efficiency_percent",
        **_on_page(NODE),
    }
    summary = document["summary"]
    tiles = [
        e("div", e("dt", label), e("dd", figure(f"summary.{name}", summary[name])))
        for label, name in names.items()
    ]
    if all(summary[name] is None for name in names.values()):
        return section("Figures", e("p", "No figure of this job is known."))
    return section("Figures", e("dl", tiles, class_="tiles"))


def _gpu_figures() -> dict[str, str]:
    return {
        "GPU utilization": "gpu_utilization_percent",
        "GPU memory at its peak": "gpu_memory_used_percent",
        **_on_page(GPU),
        "GPU-hours": "gpu_hours",
        "GPU-hours idle": "gpu_hours_idle",
        "power of a GPU": "power_watts_mean",
        "energy": "energy_joules",
    }


def _on_page(metrics: Sequence[Metric]) -> dict[str, str]:
    return {row.title: row.in_summary for row in metrics if row.on_page and row.in_summary}


def _advice(advice: Sequence[Advice], *, drawn: bool) -> Element | None:
    rows = [_one_advice(number, item, drawn=drawn) for number, item in enumerate(advice)]
    return section("Advice", e("ol", rows, class_="advice")) if rows else None


def _one_advice(number: int, item: Advice, *, drawn: bool) -> Element:
    show = e(
        "button",
        "Show in the pictures",
        type="button",
        class_="show",
        data_advice=str(number),
        aria_pressed="false",
    )
    return e(
        "li",
        e("p", e("strong", f"{item.severity} "), item.message, class_="message"),
        e("p", item.evidence, class_="dim"),
        e("p", "→ ", with_code(item.action)) if item.action else None,
        show if drawn else None,
        class_=str(item.severity),
    )


def _said_of_attempts(job: JobUse, logged: Training) -> Sequence[str]:
    """Say what the marks of attempts mean, where there are several."""
    if len(job.attempts) < 2:
        return ()
    words = [f"The {attempt_words(job)} stand on one axis."]
    if len(by_attempt(job.attempts)) > 1:
        words = [words[0][:-1] + "; between attempts, in grey, the job had no nodes."]
    if logged.repeated:
        words.append("A dotted line has steps that a later attempt took again.")
    return words


def _over_time(
    shown: Sequence[Element], curves: Curves | None, remarks: Sequence[str]
) -> Element | None:
    said = e("p", " ".join(remarks), class_="dim", id="remarks") if remarks else None
    if not shown:
        none = e("p", "This job has no samples, so there are no pictures.")
        return section("Over time", none, said)
    buttons = {"in": "Zoom in", "out": "Zoom out", "all": "Show all", "none": "No highlight"}
    tools = (e("button", word, type="button", data_tool=name) for name, word in buttons.items())
    width = f"{curves.width_s} s" if curves else "one or more steps"
    return section(
        "Over time",
        e("div", tools, e("output", id="moment"), class_="tools"),
        e("p", _HELP.format(width=width), class_="dim", id="help"),
        said,
        e("noscript", e("p", "Without its script this page has tables, and no pictures.")),
        e("div", shown, class_="charts"),
        e("div", class_="unseen", id="spoken", role="status", aria_live="polite"),
        id="pictures",
    )


def _tables(document: Document, word: str, numbers: Sequence[str]) -> Iterator[Element]:
    """Yield the tables.

    `word` is what each row of `attempts` is called, `numbers` what each GPU is on its node.
    """
    for title, name, heads, columns in (
        ("GPUs", "per_gpu", ("GPU", "model"), _GPU_COLUMNS),
        ("Nodes", "per_node", ("node",), _NODE_COLUMNS),
        (
            "Attempts" if word == "attempt" else "Parts of attempts",
            "attempts",
            (word, "state", "why", "nodes", "began", "wait before"),
            _ATTEMPT_COLUMNS,
        ),
    ):
        rows = document[name]
        if not rows or (name == "attempts" and len(rows) < 2):
            continue
        known = {
            label: key
            for label, key in columns.items()
            if any(row[key] is not None for row in rows)
        }
        cells = [
            [
                *(
                    _gpu_names(row, numbers[at])
                    if name == "per_gpu"
                    else _names(name, row, rows[at - 1] if at else None)
                ),
                *(figure(f"{name}.{at}.{key}", row[key]) for key in known.values()),
            ]
            for at, row in enumerate(rows)
        ]
        made = table(title, (*heads, *known), cells, sortable=True, id=f"table-{name}")
        found = section(title, made)
        if found is not None:
            yield found


def _gpu_names(row: Document, number: str) -> list[Content]:
    return [f"{row['host']} {number}" + part_word(row["name"], part=row["mig"]), row["name"] or ""]


def _names(name: str, row: Document, before: Document | None) -> list[Content]:
    """Return the first cells of a row: what it is about, and when; `before` is the row before."""
    if name == "per_node":
        return [str(row["host"])]
    away = away_before(before["end"], row["start"]) if before else None
    return [
        str(row["restart"]),
        row["state"] or "",
        row["why"] or "",
        ", ".join(row["hosts"]),
        "" if row["start"] is None else clock(row["start"]),
        "" if away is None else duration(away),
    ]


def _sources(job: JobUse) -> Element | None:
    return section(
        "Where the figures come from",
        e("p", provenance(job)),
        e("ul", (e("li", text) for text in notes_of(job))),
    )
