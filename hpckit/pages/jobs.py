"""The page of several jobs: a table that sorts and filters, and a small picture of each."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any
from xml.etree.ElementTree import Element

from hpckit.pages.elements import Content, e, figure, section, table
from hpckit.pages.frame import page
from hpckit.report.array_page import distribution
from hpckit.report.terminal import hours
from hpckit.stats.advice.engine import Advice
from hpckit.stats.document import job_document
from hpckit.stats.summary.curves import Chart, Curves
from hpckit.stats.summary.figures import JobUse
from hpckit.text import settings_text

_COLUMNS = {
    "run time": "elapsed_s",
    "GPU utilization": "summary.gpu_utilization_percent",
    "GPU memory peak": "summary.gpu_memory_peak_bytes",
    "GPU-hours": "summary.gpu_hours",
    "GPU-hours idle": "summary.gpu_hours_idle",
    "cores used": "summary.cpu_efficiency_percent",
    "memory peak": "summary.memory_peak_bytes",
}
# Columns of what tasks of an array were given, and letters of it below a picture.
_MOST_GIVEN, _GIVEN = 8, 40
_MOST_BINS, _MOST_IN_ALL = 120, 60_000


def bins_each(jobs: int) -> int:
    """Return how many bins the small picture of each of so many jobs may have."""
    return max(min(_MOST_BINS, _MOST_IN_ALL // max(jobs, 1)), 20)


def jobs_page(
    jobs: Sequence[tuple[JobUse, Sequence[Advice]]], curves: Sequence[Curves | None]
) -> str:
    """Return the page of several jobs."""
    known = [job for job, _ in jobs]
    charts = [_main_chart(found) for found in curves]
    data = {
        "kind": "jobs",
        "jobs": [
            _small(chart, found.times if found else ())
            for chart, found in zip(charts, curves, strict=True)
        ],
    }
    body = e(
        "main",
        _head(known),
        _advice(jobs),
        section("Each job", _filter(), _table(known, jobs)),
        section(
            "Over time",
            e("p", _about(charts), class_="dim"),
            e("div", map(_picture, range(len(known)), known, charts), id="small", class_="small"),
        ),
    )
    return page(f"{len(known)} jobs", body, {"page-data": data}, "jobs.js")


def _main_chart(found: Curves | None) -> Chart | None:
    """Return the first picture: utilization of the GPUs; without GPUs, the nodes' cores."""
    return found.charts[0] if found and found.charts else None


def _small(chart: Chart | None, times: Sequence[float]) -> dict[str, Any]:
    """Return one line of a job: the mean over its devices, and the band of all of them."""
    if chart is None:
        return {"times": [], "mean": [], "low": [], "high": [], "top": None}
    curves = chart.curves
    lows = zip(*(curve.low for curve in curves), strict=True)
    means = zip(*(curve.mean for curve in curves), strict=True)
    highs = zip(*(curve.high for curve in curves), strict=True)
    return {
        "times": [round(moment - times[0]) for moment in times],
        "mean": [_of(_mean, row) for row in means],
        "low": [_of(min, row) for row in lows],
        "high": [_of(max, row) for row in highs],
        "top": chart.top,
    }


def _of(add: Any, row: Sequence[float | None]) -> float | None:  # noqa: ANN401  # min, max, mean
    known = [value for value in row if value is not None]
    return round(add(known), 2) if known else None


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _head(jobs: Sequence[JobUse]) -> Element:
    found = distribution(jobs)
    states = ", ".join(f"{count} {state or 'UNKNOWN'}" for state, count in _states(found))
    held, idle = found["gpu_hours"], found["gpu_hours_idle"]
    said = [f"{states}."]
    if held:
        of_them = f", {hours(idle)} of them idle" if idle is not None else ""
        said.append(f"{hours(held)} GPU-hours{of_them}.")
    used = found["gpu_utilization_percent"]
    if used:
        low, middle, high = (f"{used[key]:.0f} %" for key in ("min", "median", "max"))
        said.append(f"GPU utilization: {low} to {high}, half of the jobs below {middle}.")
    bad = any(state not in ("COMPLETED", "RUNNING", "PENDING") for state, _ in _states(found))
    return e(
        "header",
        e("h1", f"{len(jobs)} jobs"),
        e(
            "section",
            e("h2", "Not all of them ended well" if bad else "In short"),
            (e("p", text) for text in said),
            class_=f"verdict {'red' if bad else 'info'}",
            id="verdict",
        ),
    )


def _states(found: Mapping[str, Any]) -> list[tuple[str | None, int]]:
    return sorted(found["states"].items(), key=lambda row: (-row[1], str(row[0])))


def _advice(jobs: Sequence[tuple[JobUse, Sequence[Advice]]]) -> Element | None:
    """Return each rule once, with how many jobs it is about."""
    found = [(item, job) for job, items in jobs for item in items]
    if not found:
        return None
    counts = Counter(item.id for item, _ in found).most_common()
    rows = []
    for rule, count in counts:
        item, job = next(pair for pair in found if pair[0].id == rule)
        text = f"{count} of {len(jobs)} jobs: {item.title}. In {job.job_id}: {item.message}"
        rows.append(e("li", e("strong", f"{item.severity} "), text, class_=str(item.severity)))
    return section("Advice", e("ol", rows, class_="advice"))


def _filter() -> Element:
    words = e("input", type="search", data_filters="table-jobs", placeholder="FAILED resnet")
    return e("p", e("label", "Show jobs with ", words), " ", e("output"), class_="filter")


def _table(known: Sequence[JobUse], jobs: Sequence[tuple[JobUse, Sequence[Advice]]]) -> Element:
    documents = [job_document(job, advice) for job, advice in jobs]
    shown = {
        label: path
        for label, path in _COLUMNS.items()
        if any(_at(document, path) is not None for document in documents)
    }
    given = list(dict.fromkeys(name for job in known for name in job.parameters))[:_MOST_GIVEN]
    rows = [
        [
            document["job_id"],
            document["name"] or "",
            document["state"] or "UNKNOWN",
            *(document["parameters"].get(name, "") for name in given),
            *(figure(f"jobs.{at}.{path}", _at(document, path)) for path in shown.values()),
            _findings(document),
        ]
        for at, document in enumerate(documents)
    ]
    made = table(
        f"{len(known)} jobs",
        ("job", "name", "state", *given, *shown, "advice"),
        rows,
        sortable=True,
        id="table-jobs",
    )
    for at, row in enumerate(made.iterfind(".//tbody/tr")):
        row.set("data-of", str(at))
    return made


def _at(document: Mapping[str, Any], path: str) -> Any:  # noqa: ANN401
    for part in path.split("."):
        document = document[part]
    return document


def _findings(document: Mapping[str, Any]) -> Content:
    return ", ".join(item["id"] for item in document["advice"])


def _about(charts: Sequence[Chart | None]) -> str:
    titles = list(dict.fromkeys(_title(chart) for chart in charts if chart))
    drawn = " or ".join(titles) if titles else "Nothing"
    return (
        f"{drawn}, from the start of each job: the mean over its devices, and a pale band from the "
        "lowest to the highest sample of any. The pictures stand in the order of the table."
    )


def _title(chart: Chart) -> str:
    kind = "GPU" if chart.curves[0].gpu is not None else "Node:"
    return f"{kind} {chart.title} ({chart.unit})"


def _picture(number: int, job: JobUse, chart: Chart | None) -> Element:
    words = f"Job {job.job_id}: {_spread(chart)}"
    return e(
        "figure",
        e(
            "figcaption",
            e("strong", job.job_id),
            " ",
            e("span", _named(job), class_="dim"),
        ),
        e("div", class_="plot", data_job=str(number), role="img", aria_label=words)
        if chart
        else e("p", "no samples", class_="dim"),
        data_of=str(number),
    )


def _named(job: JobUse) -> str:
    given = settings_text(job.parameters, _GIVEN)
    return (job.state or "UNKNOWN") + (f" ({given})" if given else "")


def _spread(chart: Chart | None) -> str:
    """Say what a picture shows, for those who do not see it; the table has the figures."""
    if chart is None:
        return "no samples"
    means = [value for curve in chart.curves for value in curve.mean if value is not None]
    if not means:
        return "nothing known"
    return f"{_title(chart)}, means from {min(means):.4g} to {max(means):.4g}"
