"""Report templates rendered with figures that nobody measured, to see what is wrong with them."""

from collections.abc import Iterator, Mapping
from typing import Any

from hpckit.collections import Collection
from hpckit.errors import TemplateError
from hpckit.group_report.schema import json_schema as of_report
from hpckit.lint import Finding, finding
from hpckit.render.reports import render_report
from hpckit.stats.document import json_schema as of_stats

# Each kind of file takes one of these for more than a letter.
_WORD = "it's 100 % <b> & \\x_y [z](u) =1 \x1b[31m"
# What a document has where all is known, and where nothing is.
_CASES = {"all figures known": True, "no figure known": False}


def lint_report(name: str, collections: tuple[Collection, ...]) -> tuple[int, list[Finding]]:
    """Render a report template with all figures and with none; return how often, what is wrong."""
    found: dict[tuple[str, int, str], Finding] = {}
    for case, known in _CASES.items():
        for row in _findings(name, case, example_documents(known=known), collections):
            found.setdefault((row.path, row.line, row.message), row)
    return len(_CASES), list(found.values())


def _findings(
    name: str, case: str, variables: Mapping[str, Any], collections: tuple[Collection, ...]
) -> Iterator[Finding]:
    try:
        render_report(name, variables, collections)
    except TemplateError as error:
        yield finding(error, name, case)


def example_documents(*, known: bool) -> dict[str, Any]:
    """Return documents as `hpckit report` and `hpckit stats` print them, made of their schemas.

    Args:
        known: fill in every figure, and two of each list; else all that may be null is, and lists
            are empty.
    """
    made = {"report": of_report(), "stats": of_stats()}
    return {name: _example(schema, schema["$defs"], known=known) for name, schema in made.items()}


def _example(schema: Mapping[str, Any], defs: Mapping[str, Any], *, known: bool) -> Any:  # noqa: ANN401
    if "$ref" in schema:
        return _example(defs[schema["$ref"].rpartition("/")[2]], defs, known=known)
    if "oneOf" in schema:
        return _example(schema["oneOf"][0], defs, known=known) if known else None
    if "const" in schema or "enum" in schema:
        return schema["const"] if "const" in schema else schema["enum"][0]
    kinds = schema.get("type", "object")
    if isinstance(kinds, list) and not known:
        return None
    kind = kinds[0] if isinstance(kinds, list) else kinds
    if kind == "array":
        return [_example(schema["items"], defs, known=known) for _ in range(2 if known else 0)]
    if kind == "object":
        return _object(schema, defs, known=known)
    return {"number": 1234.5, "integer": 3, "boolean": True}.get(kind, _WORD)


def _object(schema: Mapping[str, Any], defs: Mapping[str, Any], *, known: bool) -> dict[str, Any]:
    """Return an object with all of its keys, those of what it builds on too."""
    made: dict[str, Any] = {}
    for part in schema.get("allOf", ()):
        made |= _example(part, defs, known=known)
    for name, row in schema.get("properties", {}).items():
        made[name] = _example(row, defs, known=known)
    more = schema.get("additionalProperties")
    if known and isinstance(more, Mapping):
        made["name"] = _example(more, defs, known=known)
    return made
