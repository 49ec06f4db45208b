"""The pictures of a job: what the page's script draws, and the table that stands behind each."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from xml.etree.ElementTree import Element

from hpckit.pages.elements import Content, e, table
from hpckit.report.gather import Gathered
from hpckit.report.step_samples import own_of_step
from hpckit.slurm.resized import row_word
from hpckit.stats.advice.engine import Advice
from hpckit.stats.summary.curves import Chart, Curve, Curves, make_curves, read_drawn
from hpckit.stats.summary.figures import JobUse, numbers_of


@dataclass(frozen=True, kw_only=True, slots=True)
class Picture:
    """One chart as the page has it.

    Attributes:
        id: of its element.
        moments: which list of moments it is drawn over: `job` or `training`.
    """

    id: str
    title: str
    moments: str
    chart: Chart


def read_curves(found: Gathered, most: int) -> Curves | None:
    """Return a job's pictures over time; None: it has no samples.

    Raises:
        OSError: its samples cannot be read any more. DamagedFileError: likewise.
    """
    if most in found.curves:
        return found.curves[most]
    files = read_drawn(found.files, found.spans)
    if found.of_step:
        files = list(map(own_of_step, files))
    return make_curves(files, found.spans, most)


def pictures(curves: Curves | None, training: Sequence[Chart]) -> list[Picture]:
    """Return the pictures of a page in their order: of GPUs, of training, of nodes."""
    charts = curves.charts if curves else ()
    known = [chart for chart in charts if _says_something(chart)]
    of_gpus = [chart for chart in known if chart.curves[0].gpu is not None]
    of_nodes = [chart for chart in known if chart.curves[0].gpu is None]
    return [
        *(_picture("gpu", f"GPU {chart.title}", "job", chart) for chart in of_gpus),
        *(_picture("run", chart.title, "training", chart) for chart in training),
        *(_picture("node", f"Node: {chart.title}", "job", chart) for chart in of_nodes),
    ]


def _says_something(chart: Chart) -> bool:
    """Say whether any value is known: the first sample stands for no time, and may be the last."""
    return any(value is not None for curve in chart.curves for value in curve.mean)


def _picture(kind: str, title: str, moments: str, chart: Chart) -> Picture:
    title = title[0].upper() + title[1:]
    return Picture(id=f"{kind}-{chart.name}", title=title, moments=moments, chart=chart)


def device_of(host: str | None, uuid: str | None = None) -> str:
    """Return what the page's data calls a GPU or a node."""
    return "/".join(part for part in (host, uuid) if part)


def device_names(job: JobUse) -> dict[str, str]:
    """Return the number on its node of each GPU, by what the page's data calls it."""
    numbers = zip(job.per_gpu, numbers_of(job.per_gpu), strict=True)
    return {
        device_of(gpu.host, gpu.uuid): number for gpu, number in numbers if gpu.index is not None
    }


def label(curve: Curve, hosts: int, names: Mapping[str, str]) -> str:
    """Name a device as briefly as the job allows; `names` are those of `device_names`."""
    if curve.gpu is None:
        return curve.host or ("steps repeated later" if curve.replaced else "rank 0")
    number = names.get(device_of(curve.host, curve.gpu), curve.index)
    name = f"GPU {curve.gpu[:12] if number is None else number}"
    return name if hosts == 1 else f"{curve.host} {name}"


def device_numbers(shown: Sequence[Picture]) -> dict[str, int]:
    """Give each GPU and each node a number, by which it looks the same in all pictures."""
    found: dict[bool, dict[str, int]] = {True: {}, False: {}}
    for one in shown:
        for curve in one.chart.curves if one.moments == "job" else ():
            known = found[curve.gpu is not None]
            known.setdefault(device_of(curve.host, curve.gpu), len(known))
    return found[True] | found[False]


def picture_data(
    picture: Picture, hosts: int, names: Mapping[str, str], numbers: Mapping[str, int]
) -> dict[str, Any]:
    """Return what the script draws; a band's edges only where they differ from the mean."""
    return {
        "id": picture.id,
        "title": picture.title,
        "unit": picture.chart.unit,
        "top": picture.chart.top,
        "moments": picture.moments,
        "lines": [
            {
                "device": device_of(curve.host, curve.gpu),
                "label": label(curve, hosts, names),
                "look": numbers.get(device_of(curve.host, curve.gpu), 0),
                "mean": curve.mean,
                **({"replaced": True} if curve.replaced else {}),
                **({} if curve.low == curve.high else {"low": curve.low, "high": curve.high}),
            }
            for curve in picture.chart.curves
        ],
    }


def picture_element(picture: Picture, hosts: int, names: Mapping[str, str]) -> Element:
    """Return the place of a picture, and its table, which needs no script."""
    chart = picture.chart
    title = f"{picture.title}, {chart.unit}" if chart.unit else picture.title
    heads = ("device", "lowest", "mean of the means", "highest")
    rows = [[label(curve, hosts, names), *_spread(curve)] for curve in chart.curves]
    return e(
        "figure",
        e("figcaption", e("h3", picture.title), e("span", chart.unit, class_="unit")),
        e("div", class_="plot", data_chart=picture.id),
        e("div", class_="legend"),
        e("details", e("summary", "As a table"), table(title, heads, rows)),
        id=f"chart-{picture.id}",
    )


def _spread(curve: Curve) -> Iterator[Content]:
    means = [value for value in curve.mean if value is not None]
    low = min((value for value in curve.low if value is not None), default=None)
    high = max((value for value in curve.high if value is not None), default=None)
    for value in (low, sum(means) / len(means) if means else None, high):
        yield "unknown" if value is None else f"{value:.4g}"


def attempt_data(job: JobUse) -> list[dict[str, Any]]:
    """Return when each attempt began and ended, or each part of one that changed its size."""
    word = row_word(job.attempts)
    return [
        {
            "word": word,
            "restart": row.restart,
            "state": row.state,
            "start": row.start,
            "end": row.end,
        }
        for row in job.attempts
    ]


def advice_data(advice: Sequence[Advice]) -> list[dict[str, Any]]:
    """Return the devices and stretches of time that each advice speaks of.

    No devices: it is of the whole job. No stretches: it is of all the time.
    """
    return [
        {
            "devices": [device_of(place.host, place.uuid) for place in item.places],
            "stretches": [
                {
                    "device": device_of(part.host, part.uuid),
                    "start": part.start,
                    "end": part.end,
                }
                for part in item.stretches
            ],
        }
        for item in advice
    ]


def whole_span(job: JobUse, curves: Curves | None, times: Sequence[float]) -> tuple[float, float]:
    """Return the first and the last moment of all pictures."""
    moments = [*(curves.times if curves else ()), *times]
    starts = [job.start, *(row.start for row in job.attempts), *moments[:1]]
    half = curves.width_s / 2 if curves else 0
    ends = [row.end for row in job.attempts] + [moment + half for moment in moments]
    known = [moment for moment in starts if moment is not None]
    last = [moment for moment in ends if moment is not None]
    return min(known, default=0.0), max(last, default=1.0)


def zone(moment: float | None) -> dict[str, Any]:
    """Return this machine's distance from UTC, in seconds, and its name: the page's clocks."""
    local = time.localtime(moment)
    return {"offset_s": local.tm_gmtoff, "name": local.tm_zone}
