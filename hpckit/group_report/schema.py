"""The JSON Schema of `hpckit report --json`, made of the dataclasses and their docstrings. Pure."""

from typing import Any

from hpckit.group_report.allocations import SOURCES
from hpckit.group_report.result import SCHEMA, WastefulJob
from hpckit.group_report.totals import KINDS, Totals
from hpckit.sites import Costs
from hpckit.stats.document import SchemaMaker

_ABOUT = (
    "Figures that are not known are null. Percents are 0 to 100, moments epoch seconds. Keys may "
    "be added; `schema` changes when one changes its meaning."
)
_NUMBER = {"type": ["number", "null"]}


def json_schema() -> dict[str, Any]:
    """Return the schema."""
    made = SchemaMaker()
    named = {
        "allOf": [made.of(Totals)],
        "type": "object",
        "properties": {"name": {"type": "string"}},
        "required": ["name"],
    }
    costs = made.properties(Costs) | {
        "source": {"type": ["string", "null"], "description": "The file that names the factors."}
    }
    counts = {name: {"type": "integer"} for name in SOURCES}
    top: dict[str, Any] = {
        "schema": {"const": SCHEMA},
        "who": {"type": "string", "description": "Whose jobs, in words."},
        "since": {"type": "number"},
        "until": {"type": "number"},
        "by": {"type": "string", "enum": list(KINDS)},
        "total": made.of(Totals),
        "groups": {"type": "array", "items": named, "description": "By what `by` says."},
        "weeks": {"type": "array", "items": named, "description": "Weeks of ISO 8601, in order."},
        "wasteful": {"type": "array", "items": made.of(WastefulJob)},
        "money": _NUMBER | {"description": "GPU-hours held x the price of one, in `currency`."},
        "currency": {"type": "string"},
        "co2_kg": _NUMBER | {"description": "Of the measured energy, with the site's PUE."},
        "costs": {"type": "object", "properties": costs, "required": list(costs)},
        "sources": {
            "type": "object",
            "properties": counts,
            "required": list(counts),
            "description": "How many attempts accounting knows, and how many a ledger alone.",
        },
        "notes": {"type": "array", "items": {"type": "string"}},
    }
    return made.document("hpckit report --json", _ABOUT, top)
