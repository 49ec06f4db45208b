"""Report templates rendered with figures that nobody measured, to see what is wrong with them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from itertools import chain
from typing import Any

from hpckit.collections import Collection
from hpckit.errors import TemplateError
from hpckit.group_report.schema import json_schema as of_report
from hpckit.group_report.totals import KINDS, Totals
from hpckit.lint import Finding, finding
from hpckit.render.reports import ALONE, REPORT_VARIABLES, render_report
from hpckit.render.sandbox import REFUSES
from hpckit.stats.document import json_schema as of_stats

# Each kind of file takes one of these for more than a letter.
_WORD = "it's 100 % <b> & \\x_y [z](u) =1 \x1b[31m"
# Whether the figures are known, and how many of each list there are.
_CASES = {
    "all figures known": (True, 2),
    "no figure known": (False, 2),
    "empty lists": (False, 0),
}
# Lists of so many numbers in every document: GPU-hours by utilization, and the like.
_CLASSES = {row.name: len(row.default) for row in fields(Totals) if isinstance(row.default, tuple)}


def lint_report(name: str, collections: tuple[Collection, ...]) -> tuple[int, list[Finding]]:
    """Render a report template with all figures and with none; return how often, what is wrong.

    As each command does whose document it reads; if none has all that it reads, as the first.
    """
    tried = [
        [
            _fault(name, case, {word: document}, collections)
            for case, document in example_documents(word)
        ]
        for word in REPORT_VARIABLES
    ]
    own = [rows for rows in tried if not (rows[0] and ALONE in rows[0].message)] or tried[:1]
    found: dict[tuple[str, int, str], Finding] = {}
    for row in chain.from_iterable(own):
        if row and not row.message.startswith(REFUSES):  # as its author means it to
            found.setdefault((row.path, row.line, row.message), row)
    return sum(map(len, own)), list(found.values())


def _fault(
    name: str, case: str, variables: Mapping[str, Any], collections: tuple[Collection, ...]
) -> Finding | None:
    try:
        render_report(name, variables, collections)
    except TemplateError as error:
        return finding(error, name, case)
    return None


def example_documents(word: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield documents as `hpckit report` or `hpckit stats` prints them, made of their schemas.

    Each with what is special about it. Where no figure is known, all is null that may be, and other
    numbers are 0. Reports are by each word of `--by`.
    """
    schema = of_report() if word == "report" else of_stats()
    for case, (known, rows) in _CASES.items():
        yield case, _Example(schema["$defs"], known, rows).of(schema)
    if word == "report":  # the first word has come already
        whole = _Example(schema["$defs"], known=True, rows=2).of(schema)
        yield from ((f"--by {kind}", {**whole, "by": kind}) for kind in KINDS[1:])


@dataclass(frozen=True, slots=True)
class _Example:
    """Makes a value of each schema: with all figures known or none, and so many rows in a list."""

    defs: Mapping[str, Any]
    known: bool
    rows: int

    def of(self, schema: Mapping[str, Any], name: str = "") -> Any:  # noqa: ANN401
        """Return a value; `name` is its key's."""
        if "$ref" in schema:
            return self.of(self.defs[schema["$ref"].rpartition("/")[2]])
        if "oneOf" in schema:
            return self.of(schema["oneOf"][0]) if self.known else None
        if "const" in schema or "enum" in schema:
            return schema["const"] if "const" in schema else schema["enum"][0]
        kinds = schema.get("type", "object")
        if isinstance(kinds, list) and not self.known:
            return None
        kind = kinds[0] if isinstance(kinds, list) else kinds
        if kind == "array":
            return [self.of(schema["items"]) for _ in range(_CLASSES.get(name, self.rows))]
        return self._object(schema) if kind == "object" else self._plain(kind, name)

    def _plain(self, kind: str, name: str) -> str | float | bool:
        later = 3600 if name in ("end", "until") else 0  # than `start` and `since`
        if kind == "number":
            return (1234.5 if self.known else 0.0) + later
        if kind == "integer":
            return 3 if self.known else 0
        return self.known if kind == "boolean" else _WORD

    def _object(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        """Return an object with all of its keys, those of what it builds on too."""
        made: dict[str, Any] = {}
        for part in schema.get("allOf", ()):
            made |= self.of(part)
        for name, row in schema.get("properties", {}).items():
            made[name] = self.of(row, name)
        more = schema.get("additionalProperties")
        if self.known and isinstance(more, Mapping):
            made["name"] = self.of(more)
        return made
