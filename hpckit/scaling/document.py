"""A study's figures as data: JSON and CSV. Pure."""

import csv
import io
from collections.abc import Mapping
from typing import Any

from hpckit.scaling.intervals import LEVEL, Estimate
from hpckit.scaling.laws import Law
from hpckit.scaling.study import Outcome, Scaling, SizeFigures
from hpckit.scaling.timing import PARTS, Source
from hpckit.text import csv_cell

SCHEMA = 1


def document(found: Scaling) -> dict[str, Any]:
    """Return what `hpckit scale --json` prints. What is not known is null."""
    about, largest = found.about, found.largest
    values = {
        "schema": SCHEMA,
        "study": about.study,
        "name": about.name,
        "scaling": "weak" if about.weak else "strong",
        "grow": list(about.grow),
        "repeats": about.repeats,
        "in_turn": about.in_turn,
        "submitted_at": round(about.submitted_at),
        "unit": found.unit,
        "timed": found.source and str(found.source),
        "interval": LEVEL,
        "smallest": found.smallest and found.smallest.count,
        "sizes": [_size_record(row) for row in found.sizes],
        "law": found.law and _law_record(found.law),
        "wanted_efficiency": found.wanted.efficiency,
        "largest": largest and largest.shape.count,
        "largest_is_certain": is_certain(found),
        "full": {"steps": found.steps, "from": found.steps_from},
        "runs": [_run_record(row, found.source) for row in found.outcomes],
        "notes": list(found.notes),
    }
    plain: dict[str, Any] = rounded(values)
    return plain


def rounded(value: Any) -> Any:  # noqa: ANN401
    """Round to nine digits: a step may take microseconds."""
    if isinstance(value, float):
        return float(f"{value:.9g}")
    if isinstance(value, dict):
        return {str(key): rounded(item) for key, item in value.items()}
    return [rounded(item) for item in value] if isinstance(value, list | tuple) else value


def _size_record(row: SizeFigures) -> dict[str, Any]:
    return {
        "size": row.shape.count,
        "label": row.shape.label,
        "nodes": row.shape.nodes,
        "gpus": row.shape.gpus,
        "ranks": row.shape.ranks,
        "runs": row.runs,
        "runs_of": row.of,
        "seconds": list(row.seconds),
        "time_s": _estimate(row.time_s),
        "speed_up": _estimate(row.speed_up),
        "efficiency": _estimate(row.efficiency),
        **{name: row.parts.get(name) for name in PARTS},
        "full_s": _estimate(row.full_s),
        "device_hours": _estimate(row.device_hours),
    }


def _estimate(found: Estimate | None) -> dict[str, float | None]:
    low, high = (found.low, found.high) if found else (None, None)
    return {"value": found.value if found else None, "low": low, "high": high}


def _law_record(law: Law) -> dict[str, Any]:
    return {
        "name": law.name,
        "serial_fraction": law.serial_fraction,
        "standard_error": law.standard_error,
        "residual": law.residual,
        "sizes": law.sizes,
        "largest_speed_up": law.most,
    }


def _run_record(row: Outcome, source: Source | None) -> dict[str, Any]:
    counts = source is not None and not row.left_out
    return {
        "job_id": row.job_id,
        "run_id": row.run_id,
        "size": row.shape.count,
        "round": row.repeat,
        "state": row.state,
        "left_out": row.left_out or None,
        "seconds": row.timing.seconds.get(source) if counts and source else None,
        "steps": row.timing.steps.get(source) if counts and source else None,
    }


def is_certain(found: Scaling) -> bool | None:
    """Say whether all of the interval is above the wanted efficiency; None: there is none."""
    if found.largest is None or found.largest.efficiency is None:
        return None
    if found.largest.shape == found.smallest:
        return True
    low = found.largest.efficiency.low
    return None if low is None else low >= found.wanted.efficiency


def as_csv(found: Scaling) -> str:
    """Return the sizes as comma-separated values, with a line of names."""
    rows = [
        {name: csv_cell(value) if isinstance(value, str) else value for name, value in row.items()}
        for row in map(_flat, document(found)["sizes"])
    ]
    stream = io.StringIO()
    writer = csv.DictWriter(stream, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return stream.getvalue()


def _flat(record: Mapping[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in record.items():
        if isinstance(value, dict):
            flat |= {name if key == "value" else f"{name}_{key}": value[key] for key in value}
        elif name != "seconds":
            flat[name] = value
    return flat
