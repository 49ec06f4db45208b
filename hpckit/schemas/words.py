"""What a value may be, in JSON Schema: one function for each way `hpckit.documents.Fields` reads.

An empty key (null) is as one that is not there, for all of them.
"""

from collections.abc import Iterable, Mapping
from typing import Any

Schema = dict[str, Any]
_TEXT = ["string", "number"]


def text(about: str = "", *, pattern: str | None = None) -> Schema:
    """Return a text; a number is one, as it is written."""
    return _said({"type": [*_TEXT, "null"], **_pattern(pattern)}, about)


def word(pattern: str, about: str = "") -> Schema:
    """Return a text of a pattern that no number has, as the name of a variable."""
    return _said({"type": ["string", "null"], "pattern": pattern}, about)


def texts(about: str = "") -> Schema:
    """Return a list of texts, or one that stands for a list of one."""
    return _said({"type": ["array", *_TEXT, "null"], "items": {"type": _TEXT}}, about)


def integer(about: str = "", *, least: int = 0) -> Schema:
    """Return a whole number."""
    return _said({"type": ["integer", "null"], "minimum": least}, about)


def number(about: str = "", *, least: float = 0.0) -> Schema:
    """Return a number."""
    return _said({"type": ["number", "null"], "minimum": least}, about)


def any_number() -> Schema:
    """Return a number of any sign."""
    return {"type": ["number", "null"]}


def flag(about: str = "") -> Schema:
    """Return true or false."""
    return _said({"type": ["boolean", "null"]}, about)


def scalar(about: str = "") -> Schema:
    """Return a single value of any type."""
    return _said({"type": ["string", "number", "boolean", "null"]}, about)


def scalars() -> Schema:
    """Return a list of single values."""
    return {"type": ["array", "null"], "items": scalar()}


def choice(words: Iterable[str], about: str = "") -> Schema:
    """Return one of a few words."""
    return _said({"enum": [*map(str, words), None]}, about)


def mapping(keys: Mapping[str, Schema], about: str = "", *, required: Iterable[str] = ()) -> Schema:
    """Return a mapping of known keys; others are refused, as the readers do."""
    found: Schema = {
        "type": ["object", "null"],
        "properties": dict(keys),
        "additionalProperties": False,
    }
    if needed := list(required):
        found |= {"type": "object", "required": needed}
    return _said(found, about)


def named(value: Schema, about: str = "", *, names: str | None = None) -> Schema:
    """Return a mapping of names of one's own to such values; `names` is a pattern of theirs."""
    found: Schema = {"type": ["object", "null"], "additionalProperties": value}
    if names:
        found["propertyNames"] = {"pattern": names}
    return _said(found, about)


def needed(value: Schema) -> Schema:
    """Return the same for a key that must be there with a text, and not empty."""
    return {**value, "type": _TEXT, "minLength": 1}


def either(*values: Schema, about: str = "") -> Schema:
    """Return what is one of several."""
    return _said({"anyOf": list(values)}, about)


def document(title: str, keys: Mapping[str, Schema], *, required: Iterable[str] = ()) -> Schema:
    """Return the schema of a whole file."""
    body = mapping(keys, required=required)
    return {"$schema": "http://json-schema.org/draft-07/schema#", "title": title, **body,
            "type": "object"}  # fmt: skip


def _said(schema: Schema, about: str) -> Schema:
    return {"description": about, **schema} if about else schema


def _pattern(pattern: str | None) -> Schema:
    return {"pattern": pattern} if pattern else {}
