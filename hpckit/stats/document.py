"""A job's account as one JSON document: the public contract of `hpckit stats --json`.

`json_schema` describes every key; figures that are not known are null.
"""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from hpckit.stats.advice.engine import Advice
from hpckit.stats.js1 import jobstats_record
from hpckit.stats.summary.timeline import Timeline
from hpckit.stats.summary.values import JobUse

SCHEMA = 1
_FIRST = ("job_id", "run_id", "user", "account", "partition", "state")


def job_document(job: JobUse, advice: Sequence[Advice]) -> dict[str, Any]:
    """Return one job's document."""
    fields = _rounded(asdict(job))
    first = {name: fields.pop(name) for name in _FIRST}
    return {
        "schema": SCHEMA,
        **first,
        **{name: fields.pop(name) for name in ("nodes", "gpus", "elapsed_s", "requested")},
        "sources": fields.pop("sources"),
        "summary": fields.pop("summary"),
        "advice": [_advice(item) for item in advice],
        "per_node": fields.pop("per_node"),
        "per_gpu": fields.pop("per_gpu"),
        "timeseries_file": fields.pop("timeseries_file"),
        **fields,
        "jobstats": jobstats_record(job),
    }


def timeline_document(job_id: str, timelines: Sequence[Timeline]) -> dict[str, Any]:
    """Return the timelines, for pictures: see `docs/stats.md`."""
    attempts = _rounded([asdict(timeline) for timeline in timelines])
    return {"schema": SCHEMA, "job_id": job_id, "attempts": attempts}


def _advice(item: Advice) -> dict[str, Any]:
    fields: dict[str, Any] = _rounded(asdict(item))
    return fields | {"severity": str(item.severity)}


def _rounded(value: Any) -> Any:  # noqa: ANN401
    """Round to microseconds; of a short job's GPU-hours, three digits would leave nothing."""
    if isinstance(value, float):
        return round(value, 6)
    if isinstance(value, dict):
        return {str(key): _rounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(item) for item in value]
    return value
