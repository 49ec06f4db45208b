"""The page of a scaling study: what follows of it, pictures over the sizes, tables."""

from collections.abc import Mapping
from typing import Any
from xml.etree.ElementTree import Element

from hpckit.pages.elements import Content, e, pairs, section, table
from hpckit.pages.frame import page
from hpckit.scaling.document import document, is_certain, rounded
from hpckit.scaling.intervals import Estimate
from hpckit.scaling.picture import law_points, law_time
from hpckit.scaling.study import Scaling, SizeFigures
from hpckit.scaling.timing import Source
from hpckit.scaling.writing import (
    PART_NAMES,
    TIMED,
    findings,
    outcomes_table,
    remarks,
    size_texts,
    title,
)

# Columns of the table, and where `--json` has their figures.
_FIGURES = {"time": "time_s", "speed-up": "speed_up", "efficiency": "efficiency"}
_ABOUT = {
    "time": "Time per {per}",
    "speed": "Speed-up over the smallest size",
    "efficiency": "Efficiency",
    "split": "Where the time of a step goes",
}


def scaling_page(found: Scaling) -> str:
    """Return the page of a study."""
    charts = _charts(found)
    body = e(
        "main",
        _head(found),
        section(
            "Over the sizes",
            e("p", _reading(found), class_="dim"),
            e("div", [_figure(found, *row) for row in charts.items()], class_="charts"),
        )
        if charts
        else None,
        section("Each size", _sizes(found)),
        section("Notes", e("ul", [e("li", line) for line in found.notes])) if found.notes else None,
        section("Each run", _runs(found)),
        section("How it was measured", _method(found)),
    )
    data = {"kind": "scaling", "unit": found.unit, "charts": charts}
    return page(f"Scaling of {found.about.name}", body, {"page-data": data}, "scaling.js")


def _head(found: Scaling) -> Element:
    said = findings(found) if found.source else ["No run counts: no figures."]
    good = is_certain(found) and not any(row.left_out for row in found.outcomes)
    return e(
        "header",
        e("h1", f"Scaling of {found.about.name}"),
        e("p", title(found), class_="dim"),
        e(
            "section",
            e("h2", _verdict(found)),
            [e("p", line) for line in said],
            class_=f"verdict {'good' if good else 'yellow'}",
            id="verdict",
        ),
    )


def _verdict(found: Scaling) -> str:
    if found.largest is None:
        return f"No size is {100 * found.wanted.efficiency:.0f} % efficient"
    count, unit = found.largest.shape.count, found.unit
    words = f"orth it up to {count} {unit if count > 1 else found.device}"
    match is_certain(found):
        case True:
            return f"W{words}"
        case False:
            return f"Perhaps w{words}"
    return f"W{words}, as far as single runs tell"


def _reading(found: Scaling) -> str:
    law = f" Dashed: {found.law.name}'s law as fitted." if found.law else ""
    bands = any(row.time_s and row.time_s.low is not None for row in found.sizes)
    band = " Pale: 95 % intervals over the repeats." if bands else ""
    return f"Equal distances are equal factors.{law} Dotted: what is ideal, or wanted.{band}"


def _charts(found: Scaling) -> dict[str, Any]:
    """Return what the page's script draws: numbers by the picture's name."""
    rows = [row for row in found.sizes if row.time_s]
    if not rows or found.smallest is None:
        return {}
    sizes = [row.shape.count for row in rows]
    counts = sorted({*sizes, *law_points(found)})
    first = found.smallest.count
    times = [law_time(found, count) for count in counts]
    speeds = [found.law.speed_up(count, first) if found.law else None for count in counts]
    ideal = [count / first for count in counts]
    shares = [
        None if speed is None else 100 * speed / more
        for speed, more in zip(speeds, ideal, strict=True)
    ]
    wanted: list[float | None] = [100 * found.wanted.efficiency] * len(counts)
    charts = {
        "time": _chart(found, counts, [row.time_s for row in rows], times, None, "s"),
        "speed": _chart(found, counts, [row.speed_up for row in rows], speeds, ideal, "x"),
        "efficiency": _chart(
            found, counts, [row.efficiency for row in rows], shares, wanted, "%", factor=100
        ),
    }
    for chart in charts.values():
        chart["ticks"] = sizes
    if split := _split(rows):
        charts["split"] = {"x": sizes, "unit": "s", "series": split, "ticks": sizes}
    plain: dict[str, Any] = rounded(charts)
    return plain


def _chart(
    found: Scaling,
    counts: list[float],
    estimates: list[Estimate | None],
    law: list[float | None],
    other: list[float | None] | list[float] | None,
    unit: str,
    factor: float = 1,
) -> dict[str, Any]:
    at: dict[float, Estimate] = {
        row.shape.count: estimate
        for row, estimate in zip([row for row in found.sizes if row.time_s], estimates, strict=True)
        if estimate
    }

    def column(name: str) -> list[float | None]:
        values = (getattr(at[count], name) if count in at else None for count in counts)
        return [None if value is None else value * factor for value in values]

    def edge(name: str) -> list[float | None]:
        # The smallest size is compared with itself: its speed-up is 1 without an interval.
        both = zip(column(name), column("value"), strict=True)
        return [value if bound is None else bound for bound, value in both]

    series = [{"label": "measured", "values": column("value"), "kind": "measured"}]
    band = any(estimate and estimate.low is not None for estimate in estimates)
    if found.law:
        series.append({"label": f"{found.law.name}'s law", "values": law, "kind": "law"})
    if other:
        label = "wanted" if unit == "%" else "ideal"
        series.append({"label": label, "values": list(other), "kind": "other"})
    return {
        "x": counts,
        "unit": unit,
        "series": series,
        "low": edge("low") if band else None,
        "high": edge("high") if band else None,
    }


def _split(rows: list[SizeFigures]) -> list[dict[str, Any]]:
    """Return the parts of a step that were measured, as lines; nothing where none was."""
    series = [
        {"label": label, "values": [row.parts.get(name) for row in rows], "kind": "part"}
        for name, label in PART_NAMES.items()
        if any(row.parts.get(name) is not None for row in rows)
    ]
    whole = [row.time_s.value if row.time_s else None for row in rows]
    return [{"label": "whole step", "values": whole, "kind": "part"}, *series] if series else []


def _figure(found: Scaling, name: str, chart: Mapping[str, Any]) -> Element:
    label = _ABOUT[name].format(per="run" if found.source is Source.WALL else "step")
    measured = chart["series"][0]["values"]
    said = ", ".join(f"{value:.4g}" for value in measured if value is not None)
    return e(
        "figure",
        e("figcaption", e("h3", label), e("span", chart["unit"], class_="unit")),
        e(
            "div", class_="plot", data_chart=name, role="img",
            aria_label=f"{label} ({chart['unit']}), from the smallest size to the largest: {said}",
        ),
        e("div", class_="legend"),
    )  # fmt: skip


def _sizes(found: Scaling) -> Element:
    heads, rows = size_texts(found)
    records = document(found)["sizes"]
    cells: list[list[Content]] = []
    for at, (row, record) in enumerate(zip(rows, records, strict=True)):
        cells.append([_cell(head, text, at, record) for head, text in zip(heads, row, strict=True)])
    return table(f"{len(rows)} sizes", heads, cells, id="table-sizes")


def _cell(head: str, text: str, at: int, record: Mapping[str, Any]) -> Content:
    """Return a cell: of a figure as `--json` has it too."""
    name = next((path for word, path in _FIGURES.items() if head.startswith(word)), None)
    if name is None or record[name]["value"] is None:
        return text
    value = repr(record[name]["value"])
    return e("data", text, value=value, class_="figure", data_figure=f"sizes.{at}.{name}.value")


def _runs(found: Scaling) -> Element:
    heads = ("job", found.unit, "round", "state", "time", "counts")
    rows = outcomes_table(found.outcomes, found.source)
    return table(f"{len(rows)} runs", heads, rows, sortable=True, id="table-runs")


def _method(found: Scaling) -> list[Content]:
    law = found.law
    error = None
    if law is not None:
        error = (
            f"{law.name}: serial part {law.serial_fraction:.4g}, "
            + (
                f"standard error {law.standard_error:.2g}"
                if law.standard_error is not None
                else "no error estimate from two sizes"
            )
            + (f"; root mean square deviation {100 * law.residual:.2g} %" if law.sizes > 2 else "")
        )
    order = (
        "each run began when the one before was over"
        if found.about.in_turn
        else ("all runs were submitted at once: some may have run side by side")
    )
    return [
        pairs(
            {
                "Time": f"{TIMED[found.source]}." if found.source else "unknown",
                "Order": f"Round by round, every other round backwards; {order}.",
                "Law": error,
                "Compared with": f"size {found.smallest.label}" if found.smallest else None,
            }
        ),
        [e("p", line) for line in remarks(found)] if found.source else None,
    ]
