"""Rules that were read before: their files are checked once, and what was made of them is kept."""

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

from hpckit.collections import Found
from hpckit.documents import text_of
from hpckit.kept import kept, makers
from hpckit.stats.advice.expressions import Expression, Field, Text
from hpckit.stats.advice.functions import Kind
from hpckit.stats.advice.rules import Marks, Rule, Severity, switched_off

# What reads rules, and what says which names there are.
_MADE_BY = (
    *("documents", "sites", "stats.metric", "stats.metric_table", "stats.summary.figures"),
    *("stats.advice.evaluation", "stats.advice.expressions", "stats.advice.functions"),
    *("stats.advice.keeping", "stats.advice.namespace", "stats.advice.parsing"),
    *("stats.advice.parts", "stats.advice.reading", "stats.advice.rules"),
)
_NOT_KEPT = ("found", "off", "changed")


def read_rules(files: Iterable[Found]) -> list[Rule]:
    """Read rules, or take what was made of the same texts before.

    Raises:
        ConfigError: a file is not a rule; with file and line.
    """
    found = [(place, text_of(place.path)) for place in files]
    texts = (f"{place.name}\n{text}" for place, text in found)

    def read() -> list[dict[str, Any]]:
        from hpckit.stats.advice.reading import parse_rule  # noqa: PLC0415  # seldom: Python's parser

        return [_plain_rule(parse_rule(text, place)) for place, text in found]

    rows = kept(read, *texts, *makers(*(f"hpckit.{name}" for name in _MADE_BY)))
    return [_rule(row, place) for row, (place, _) in zip(rows, found, strict=True)]


def _plain_rule(rule: Rule) -> dict[str, Any]:
    """Return a rule without what is its file's name, as values that can be kept."""
    row = {part.name: getattr(rule, part.name) for part in fields(rule)}
    plain = {name: _plain(value) for name, value in row.items() if name not in _NOT_KEPT}
    return {**plain, "is_off": rule.off is not None}


def _rule(plain: Mapping[str, Any], found: Found) -> Rule:
    row = {name: _made(value) for name, value in plain.items()}
    is_off = row.pop("is_off")
    row["levels"] = {Severity(name): level for name, level in row["levels"].items()}
    return Rule(found=found, off=switched_off(found) if is_off else None, **row)


def _plain(value: Any) -> Any:  # noqa: ANN401
    """Return a part of a rule as plain values: a list, which no part is, stands for one of ours."""
    match value:
        case Expression():
            return ["e", value.text, value.kind.value, tuple(sorted(value.names)), value.program]
        case Field():
            return ["f", _plain(value.expression), value.in_command]
        case Text():
            return ["t", tuple(map(_plain, value.pieces))]
        case Marks():
            return ["m", {row.name: _plain(getattr(value, row.name)) for row in fields(value)}]
        case Mapping():
            return {str(key): _plain(part) for key, part in value.items()}
    return value


def _made(plain: Any) -> Any:  # noqa: ANN401
    """Return what such plain values stand for."""
    if isinstance(plain, dict):
        return {key: _made(part) for key, part in plain.items()}
    if not isinstance(plain, list):
        return plain
    match plain:
        case ["e", text, kind, names, program]:
            return Expression(text=text, kind=Kind(kind), names=frozenset(names), program=program)
        case ["f", expression, in_command]:
            return Field(_made(expression), in_command)
        case ["t", pieces]:
            return Text(tuple(map(_made, pieces)))
        case ["m", parts]:
            return Marks(**_made(parts))
    raise ValueError(f"no part of a rule: {plain!r:.100}")
