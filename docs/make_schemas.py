"""Write docs/schemas.md, all keys of the files that people write, from the schemas: `make pages`."""

from collections.abc import Iterator
from pathlib import Path

from hpckit.schemas import KINDS, schema
from hpckit.schemas.words import Schema

PAGE = Path(__file__).with_name("schemas.md")
_TOP = """\
# Keys of the files that people write

hpckit reads these files strictly: an unknown key is an error. `hpckit templates schema KIND` prints the JSON Schema of a kind, for editors
([how to tell an editor](collections.md#editors-hooks-ci)); this page is made from the schemas by `make docs`. `NAME` stands for a name of your own, and
`[]` for each item of a list. A **key** in bold is mandatory. The pages on each kind have examples: [collections](collections.md), [sites](sites.md),
[workloads](workloads.md), [rules of advice](advice.md), [your configuration](notify.md).
"""
_TYPES = {"string": "text", "boolean": "true or false", "integer": "whole number", "object": "keys"}


def page() -> str:
    """Return the page's text."""
    return _TOP + "".join(map(_section, KINDS))


def _section(kind: str) -> str:
    rows = (
        f"| {f'**`{key}`**' if needed else f'`{key}`'} | {_type(one)} | {_said(one)} |\n"
        for key, one, needed in _keys(schema(kind), "")
    )
    where = KINDS[kind][1]
    return f"\n## {kind}: `{where}`\n\n| key | value | |\n|---|---|---|\n" + "".join(rows)


def _keys(found: Schema, above: str) -> Iterator[tuple[str, Schema, bool]]:
    """Yield the keys of a value, theirs after each: its dotted name, its schema, if it is needed."""
    for one in found.get("anyOf", [found]):
        for name, below in one.get("properties", {}).items():
            key = f"{above}.{name}" if above else name
            yield key, below, name in one.get("required", ())
            yield from _keys(below, key)
        named = one.get("additionalProperties")
        if isinstance(named, dict):
            key = f"{above}.NAME" if above else "NAME"
            yield key, named, False
            yield from _keys(named, key)
        if isinstance(items := one.get("items"), dict) and items.get("properties"):
            yield from _keys(items, f"{above}[]")


def _type(one: Schema) -> str:
    """Return what a value may be, in words."""
    if "anyOf" in one:
        return " or ".join(dict.fromkeys(map(_type, one["anyOf"])))
    if "const" in one:
        return f"`{one['const']}`"
    if "enum" in one:
        return ", ".join(f"`{_yaml(word)}`" for word in one["enum"] if word is not None)
    kinds = one.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else [kind for kind in kinds if kind != "null"]
    if "array" in kinds:
        return f"list of {_type(one['items'])}" if one.get("items", {}).get("type") else "list"
    if "string" in kinds and "boolean" not in kinds:  # a number that stands for a text
        kinds = [kind for kind in kinds if kind not in ("number", "integer")]
    return " or ".join(_TYPES.get(kind, kind) for kind in kinds)


def _yaml(word: object) -> str:
    return str(word).lower() if isinstance(word, bool) else str(word)


def _said(one: Schema) -> str:
    said = [one.get("description", "")]
    said += [row["description"] for row in one.get("anyOf", []) if row.get("description")]
    pattern = one.get("pattern") or one.get("items", {}).get("pattern")
    said += [f"Pattern: `{pattern}`"] if pattern else []
    return " ".join(filter(None, said)).replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
