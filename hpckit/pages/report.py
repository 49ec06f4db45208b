"""The page of a group's report, made of the document of `hpckit report --json` and nothing else."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from xml.etree.ElementTree import Element

from hpckit.pages.elements import Content, e, figure, section, table
from hpckit.pages.frame import page
from hpckit.report.terminal import energy, hours, mass, percent
from hpckit.text import counted
from hpckit.units import format_period

Document = Mapping[str, Any]
UTILIZATIONS = ("0–10 %", "10–25 %", "25–50 %", "50–75 %", "75–100 %")
WAITS = ("under 1 min", "1–10 min", "10–60 min", "1–6 h", "6–24 h", "over a day")
_COLUMNS = {
    "jobs": "jobs",
    "failed": "failed_jobs",
    "GPU-hours": "gpu_hours",
    "of them measured": "gpu_hours_measured",
    "utilization": "utilization_percent",
    "without work": "gpu_hours_unused",
    "lost": "gpu_hours_failed",
    "median wait": "wait_median_s",
}
_TILES = {
    "jobs": "jobs",
    "failed jobs": "failed_jobs",
    "GPU-hours held": "gpu_hours",
    "GPU utilization": "utilization_percent",
    "GPU-hours without work": "gpu_hours_unused",
    "GPU-hours lost to failures": "gpu_hours_failed",
    "half of the attempts waited at most": "wait_median_s",
    "nine of ten waited at most": "wait_p90_s",
}
# Of a job's GPU-hours: what rounding may make of two figures that are the same.
_ROUNDED = 0.001
_HELP = "With the keyboard: Tab to a picture, arrow keys move over it."
# What the bars of a picture are called, and where the document has them.
_WEEKS = {"held": "gpu_hours", "used": "gpu_hours_used", "lost to failures": "gpu_hours_failed"}


def report_page(document: Document) -> str:
    """Return the page of a report."""
    charts = _charts(document)
    body = e(
        "main",
        _head(document),
        section("Figures", e("dl", _tiles(document), class_="tiles")),
        _groups(document),
        section(
            "Pictures",
            e("p", _HELP, class_="dim", id="help"),
            e("noscript", e("p", "Without its script this page has tables, and no pictures.")),
            e("div", (_picture(name, chart) for name, chart in charts.items()), class_="charts"),
            id="pictures",
        ),
        _wasteful(document),
        _costs(document),
        _unknown(document),
        section("What the words mean", e("dl", _meanings(), class_="meanings")),
    )
    data = {"kind": "report", "charts": charts}
    return page(_title(document), body, {"page-data": data, "document": document}, "report.js")


def _title(document: Document) -> str:
    return f"GPU use of {document['who']}, {_days(document)}"


def _days(document: Document) -> str:
    return format_period(document["since"], document["until"])


def _head(document: Document) -> Element:
    whole = document["total"]
    lost = whole["gpu_hours_failed"] + (whole["gpu_hours_unused"] or 0.0)  # known to be
    bad = lost > whole["gpu_hours"] / 2
    return e(
        "header",
        e("h1", "GPU use of ", e("span", document["who"], class_="name")),
        e("p", _days(document), class_="dim"),
        e(
            "section",
            e("h2", "Much of it came to nothing" if bad else "In short"),
            (e("p", text) for text in _sentences(whole)),
            class_=f"verdict {'yellow' if bad else 'info'}",
            id="verdict",
        ),
    )


def _sentences(whole: Document) -> Iterator[str]:
    held, failed = whole["gpu_hours"], whole["gpu_hours_failed"]
    jobs = counted(whole["jobs"], "job")
    yield f"{jobs}, {whole['failed_jobs']} failed. {hours(held)} GPU-hours were held."
    if whole["gpu_hours_measured"]:
        yield (
            f"The GPUs were busy for {percent(whole['utilization_percent'])} of the time: "
            f"{hours(whole['gpu_hours_unused'])} of {hours(whole['gpu_hours_measured'])} measured "
            "GPU-hours were without work."
        )
    if failed:
        yield f"{hours(failed)} GPU-hours were held by attempts that failed."
    if not whole["jobs"]:
        yield "There is nothing to show."


def _tiles(document: Document) -> Iterator[Element]:
    rows = {label: f"total.{name}" for label, name in _TILES.items()}
    rows |= {"energy of GPUs": "total.energy_kwh"}
    rows |= {"cost": "money"} if document["money"] is not None else {}
    rows |= {"CO₂": "co2_kg"} if document["co2_kg"] is not None else {}
    for label, path in rows.items():
        yield e("div", e("dt", label), e("dd", _figure(document, path)))


def _figure(document: Document, path: str) -> Element:
    value: Any = document
    for part in path.split("."):
        value = value[int(part)] if isinstance(value, Sequence) else value[part]
    if path == "money":
        return _worded(path, value, f"{value:,.2f} {document['currency']}".strip())
    if path.endswith("_kwh") and value is not None:
        return _worded(path, value, energy(value * 3.6e6))
    if path.endswith("_kg") and value is not None:
        return _worded(path, value, mass(value))
    if isinstance(value, int):
        return _worded(path, value, f"{value:,}")
    return figure(path, value)


def _worded(path: str, value: float, text: str) -> Element:
    return e("data", text, value=repr(value), class_="figure", data_figure=path)


def _groups(document: Document) -> Element | None:
    groups = document["groups"]
    if not groups:
        return None
    rows = (
        [row["name"], *(_figure(document, f"groups.{at}.{name}") for name in _COLUMNS.values())]
        for at, row in enumerate(groups)
    )
    return section(
        f"By {document['by']}",
        _filter() if len(groups) > 5 else None,
        table(
            f"By {document['by']}",
            (document["by"], *_COLUMNS),
            rows,
            sortable=True,
            id="table-groups",
        ),
    )


def _filter() -> Element:
    words = e("input", type="search", data_filters="table-groups")
    return e("p", e("label", "Show rows with ", words), " ", e("output"), class_="filter")


def _wasteful(document: Document) -> Element | None:
    jobs = document["wasteful"]
    rows = (
        [
            job["job_id"],
            job["user"],
            job["name"],
            job["state"],
            _figure(document, f"wasteful.{at}.gpu_hours"),
            _figure(document, f"wasteful.{at}.gpu_hours_wasted"),
            _figure(document, f"wasteful.{at}.utilization_percent"),
            job["advice"] or e("span", _why(job), class_="dim"),
        ]
        for at, job in enumerate(jobs)
    )
    heads = ("job", "user", "name", "state", "GPU-hours", "wasted", "utilization", "advice")
    title = "The jobs that wasted most GPU-hours"
    made = table(title, heads, rows, sortable=True, id="table-wasteful")
    more = e("p", e("code", "hpckit stats JOB"), " says more of a job.", class_="dim")
    return section(title, made, more) if jobs else None


def _why(job: Document) -> str:
    """Say what was wasted of a job that no advice is known of."""
    held, wasted, used = job["gpu_hours"], job["gpu_hours_wasted"], job["utilization_percent"]
    idle = 0.0 if used is None else 100 - used
    # A job whose GPUs did nothing wasted all of it as well, however it ended. Figures are rounded.
    if used is not None and wasted <= held * (idle / 100 + _ROUNDED):
        return f"Its GPUs were without work for {percent(idle)} of the time."
    if wasted >= held:
        return "All of it was held by attempts that failed."
    if used is None:
        return "Attempts of it failed, or their GPUs were without work."
    return f"Attempts of it failed, and its GPUs were without work for {percent(idle)} of the time."


def _costs(document: Document) -> Element | None:
    costs, kwh = document["costs"], document["total"]["energy_kwh"]
    lines: list[Content] = []
    if costs["gpu_hour"] is not None:
        price = f"{costs['gpu_hour']:g} {costs['currency']}".strip()
        lines.append(["Cost: GPU-hours held × ", price, ": ", _figure(document, "money"), "."])
    if kwh is not None:
        share = _share(document["total"]["energy_gpu_hours"], document["total"]["gpu_hours"])
        known = f", known of {share} of the GPU-hours."
        lines.append(["Energy of the GPUs: ", _figure(document, "total.energy_kwh"), known])
    if document["co2_kg"] is not None:
        factors = f"energy × {costs['pue']:g} (PUE) × {costs['co2_g_per_kwh']:g} g/kWh: "
        lines.append(["CO₂: ", factors, _figure(document, "co2_kg"), "."])
    if costs["gpu_hour"] is None and costs["co2_g_per_kwh"] is None:
        lines.append("The site's file names no price and no CO₂ of its electricity (costs:).")
    source = f"The factors stand in {costs['source']}." if costs["source"] else None
    return section(
        "Costs", (e("p", line) for line in lines), e("p", source, class_="dim") if source else None
    )


def _unknown(document: Document) -> Element | None:
    """Say what was not measured, and who knows of what is here."""
    whole, sources = document["total"], document["sources"]
    missing = whole["gpu_hours"] - whole["gpu_hours_measured"]
    share = _share(missing, whole["gpu_hours"])
    lines = []
    if whole["gpu_hours"] and missing > 0:
        lines.append(
            f"Of {hours(missing)} of {hours(whole['gpu_hours'])} GPU-hours ({share}) nobody knows "
            "how well they were used: it is not in samples of hpckit that this report may read, in "
            "a ledger or in a record of jobstats."
        )
    elif whole["gpu_hours"]:
        lines.append("How well the GPUs were used is known of all GPU-hours.")
    told = {"accounting": "from Slurm's accounting", "ledger": "from a ledger alone"}
    counts = [f"{sources[name]} {words}" for name, words in told.items() if sources.get(name)]
    lines += [f"Attempts of jobs: {', '.join(counts)}."] if counts else []
    notes = e("ul", (e("li", note) for note in document["notes"])) if document["notes"] else None
    return section("What is not known", (e("p", line) for line in lines), notes, id="unknown")


def _share(part: float, whole: float) -> str:
    return percent(part / whole * 100) if whole else "none"


def _charts(document: Document) -> dict[str, Any]:
    """Return what the script draws: names of places on the x axis, and rows of values."""
    whole, weeks = document["total"], document["weeks"]
    charts: dict[str, Any] = {}
    if whole["gpu_hours_measured"]:
        charts["utilization"] = {
            "title": "GPU-hours by the utilization of their jobs",
            "unit": "GPU-hours",
            "names": UTILIZATIONS,
            "rows": [{"label": "GPU-hours", "values": whole["utilization_hours"]}],
        }
    if any(whole["wait_attempts"]):
        charts["waits"] = {
            "title": "How long attempts waited in the queue",
            "unit": "attempts",
            "names": WAITS,
            "rows": [{"label": "attempts", "values": whole["wait_attempts"]}],
        }
    if weeks:
        charts["weeks"] = {
            "title": "GPU-hours by week",
            "unit": "GPU-hours",
            "names": [row["name"] for row in weeks],
            "rows": [
                {"label": label, "values": [row[name] for row in weeks]}
                for label, name in _WEEKS.items()
            ],
        }
        charts["trend"] = {
            "title": "Utilization by week, where it was measured",
            "unit": "%",
            "top": 100,
            "names": [row["name"] for row in weeks],
            "rows": [
                {"label": "utilization", "values": [row["utilization_percent"] for row in weeks]}
            ],
        }
    return charts


def _picture(name: str, chart: Document) -> Element:
    """Return the place of a picture, and its table, which needs no script."""
    labels = [row["label"] for row in chart["rows"]]
    columns = [row["values"] for row in chart["rows"]]
    rows = [
        [place, *("unknown" if value is None else f"{value:.4g}" for value in values)]
        for place, *values in zip(chart["names"], *columns, strict=True)
    ]
    return e(
        "figure",
        e("figcaption", e("h3", chart["title"]), e("span", chart["unit"], class_="unit")),
        e("div", class_="plot", data_chart=name),
        e("p", e("output", aria_live="polite"), class_="reading"),
        e("details", e("summary", "As a table"), table(chart["title"], ("", *labels), rows)),
        id=f"chart-{name}",
    )


def _meanings() -> Iterator[Element]:
    meanings = {
        "GPU-hours": "GPUs of the allocation × time inside the report.",
        "measured": "GPU-hours of which the mean utilization is known; used is hours × "
        "utilization, without work is the rest.",
        "lost": "held by attempts that ended as FAILED, TIMEOUT, OUT_OF_MEMORY, NODE_FAIL, "
        "BOOT_FAIL or DEADLINE. A checkpoint may have saved some of it.",
        "wasted": "all GPU-hours of failed attempts, those without work of the others.",
        "wait": "from when an attempt could start, after its dependencies, until it did.",
    }
    for word, text in meanings.items():
        yield e("div", e("dt", word), e("dd", text))
