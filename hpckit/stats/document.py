"""A job's account as one JSON document: the public contract of `hpckit stats --json`; its schema.

The schema is made of the dataclasses and their docstrings. Figures that are not known are null.
"""

import inspect
import re
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from hpckit.stats.advice.engine import Advice
from hpckit.stats.js1 import jobstats_record
from hpckit.stats.summary.figures import JobUse
from hpckit.stats.summary.timeline import Timeline

SCHEMA = 1
_FIRST = ("job_id", "run_id", "user", "account", "partition", "state")


def job_document(job: JobUse, advice: Sequence[Advice]) -> dict[str, Any]:
    """Return one job's document."""
    fields = rounded(job)
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
    """Return the timelines, for pictures: see `docs/figures.md`."""
    return {"schema": SCHEMA, "job_id": job_id, "attempts": rounded(timelines)}


def _advice(item: Advice) -> dict[str, Any]:
    fields: dict[str, Any] = rounded(item)
    return fields | {"severity": str(item.severity)}


def rounded(value: Any) -> Any:  # noqa: ANN401
    """Return a value as JSON has it, rounded to microseconds; a dataclass becomes a mapping.

    Of a short job's GPU-hours, three digits would leave nothing.
    """
    if isinstance(value, float):
        return round(value, 6)
    if isinstance(value, list | tuple):
        # Timelines are long rows of numbers: a call for each would take half of the time.
        return [
            round(item, 6) if type(item) is float else item if item is None else rounded(item)
            for item in value
        ]
    if isinstance(value, dict):
        return {str(key): rounded(item) for key, item in value.items()}
    if is_dataclass(value):
        return {row.name: rounded(getattr(value, row.name)) for row in fields(value)}
    return value


_ENTRY = r"    (?! )([a-z_, 0-9]+?)(?:; `([a-z_]+)`)?: (.*)"
_COUNTS = {"type": "object", "additionalProperties": {"type": "integer"}}
_SHARES = {"type": "object", "additionalProperties": {"type": "number"}}
_NODE = {
    "type": "object",
    "properties": {
        "cpus": {"type": "integer"},
        "total_time": {"type": "integer", "description": "CPU seconds."},
        "total_memory": {"type": "integer"},
        "used_memory": {"type": "integer"},
        "gpu_total_memory": _COUNTS,
        "gpu_used_memory": _COUNTS,
        "gpu_utilization": _SHARES,
    },
}
_JOBSTATS = {
    "description": "The record of Princeton jobstats; what is not known is left out.",
    "type": "object",
    "properties": {
        "gpus": {"type": "integer"},
        "total_time": {"type": "integer", "description": "Seconds."},
        "nodes": {"type": "object", "additionalProperties": _NODE},
    },
    "required": ["gpus", "total_time", "nodes"],
}
_ABOUT = (
    "Figures that are not known are null. Percents are 0 to 100, moments epoch seconds. Of several "
    'jobs the document is {"jobs": [these], "distribution": {...}}. Keys may be added; `schema` '
    "changes when one changes its meaning."
)
_PLAIN = {float: "number", int: "integer", bool: "boolean", str: "string"}


def json_schema() -> dict[str, Any]:
    """Return the schema."""
    made = SchemaMaker()
    made.defs["Jobstats"] = _JOBSTATS
    top = {
        "schema": {"const": 1},
        **made.properties(JobUse),
        "advice": {"type": "array", "items": made.of(Advice)},
        "jobstats": {"oneOf": [{"$ref": "#/$defs/Jobstats"}, {"type": "null"}]},
    }
    return made.document("hpckit stats --json, one job", _ABOUT, top)


class SchemaMaker:
    """Collects the definitions of dataclasses."""

    def __init__(self) -> None:
        self.defs: dict[str, Any] = {}

    def document(self, title: str, about: str, top: Mapping[str, Any]) -> dict[str, Any]:
        """Return the schema of a document with these keys."""
        return {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": title,
            "description": about,
            "type": "object",
            "properties": top,
            "required": list(top),
            "$defs": self.defs,
        }

    def properties(self, kind: type) -> dict[str, Any]:
        """Return a schema of each field of a dataclass."""
        hints, said = typing.get_type_hints(kind), field_texts(kind)
        found = {}
        for field in fields(kind):
            words = {"description": said[field.name]} if field.name in said else {}
            found[field.name] = self.of(hints[field.name]) | words
        return found

    def of(self, kind: Any) -> dict[str, Any]:  # noqa: ANN401  # a type hint
        """Return the schema of a type."""
        origin, inner = typing.get_origin(kind), typing.get_args(kind)
        if origin in (typing.Union, types.UnionType):
            part = self.of(next(part for part in inner if part is not type(None)))
            if "$ref" in part:
                return {"oneOf": [part, {"type": "null"}]}
            return part | {"type": [part["type"], "null"]}
        if origin is tuple:
            return {"type": "array", "items": self.of(inner[0])}
        if origin is not None:
            return {"type": "object", "additionalProperties": self.of(inner[1])}
        if isinstance(kind, type) and is_dataclass(kind):
            return self._defined(kind)
        if kind in _PLAIN:
            return {"type": _PLAIN[kind]}
        return {"type": "string", "enum": [str(value) for value in kind]}

    def _defined(self, kind: type) -> dict[str, Any]:
        if kind.__name__ not in self.defs:
            self.defs[kind.__name__] = {}
            found = self.properties(kind)
            self.defs[kind.__name__] = {
                "description": (inspect.getdoc(kind) or "").partition("\n")[0],
                "type": "object",
                "properties": found,
                "required": list(found),
            }
        return {"$ref": f"#/$defs/{kind.__name__}"}


def field_texts(kind: type) -> dict[str, str]:
    """Return what is said of a dataclass's fields: in its docstring, or beside them."""
    said = {field.name: field.metadata["says"] for field in fields(kind) if field.metadata}
    return said | _attributes(kind)


def _attributes(kind: type) -> dict[str, str]:
    """Return what a docstring says of attributes."""
    said: dict[str, str] = {}
    names: list[str] = []
    _, _, body = (inspect.getdoc(kind) or "").partition("Attributes:\n")
    for line in body.splitlines():
        if match := re.fullmatch(_ENTRY, line):
            names = [name.strip() for name in match[1].split(",")]
            said |= dict.fromkeys(names, match[3])
        elif line.strip():
            said |= {name: f"{said[name]} {line.strip()}" for name in names}
    return said
