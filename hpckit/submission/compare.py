"""What differs between a recorded run and the same request now."""

from collections.abc import Mapping
from typing import Any

_PLAN_SKIP = ("device",)


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Return one line per difference: request, plan, code, templates, site, hpckit's version."""
    lines = [
        f"{key.replace('_', ' ')}: {old['plan'].get(key)} -> {value}"
        for key, value in new["plan"].items()
        if key not in _PLAN_SKIP and old["plan"].get(key) != value
    ]
    lines += _settings(old, new)
    lines += _code(old, new)
    lines += _files("template", old.get("templates", []), new["templates"])
    for part in ("workload", "site"):
        before, now = old.get(part) or {}, new.get(part) or {}
        if before.get("hash") != now.get("hash"):
            lines.append(f"{part} {now.get('name')} has changed")
    lines += _revisions(old, new)
    if old["hpckit_version"] != new["hpckit_version"]:
        lines.append(f"hpckit {old['hpckit_version']} -> {new['hpckit_version']}")
    return lines


def _revisions(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Return the collections whose revision moved, of those that either run used."""
    before, now = _used(old), _used(new)
    return [
        f"collection {name}: {before.get(name) or 'none'} -> {now.get(name) or 'none'}"
        for name in sorted({*before, *now})
        if name in before and name in now and before[name] != now[name]
    ]


def _used(record: Mapping[str, Any]) -> dict[str, str]:
    rows = [*record.get("templates", []), record.get("workload") or {}, record.get("site") or {}]
    return {
        row["collection"].partition(" (")[0]: row.get("revision") or ""
        for row in rows
        if row.get("collection")
    }


def _settings(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    before, now = old["parameters"], new["parameters"]
    return [
        f"parameter {key}: {before.get(key)} -> {now.get(key)}"
        for key in sorted({*before, *now})
        if before.get(key) != now.get(key)
    ]


def _code(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    before, now = old.get("code") or {}, new.get("code") or {}
    lines = []
    if before.get("commit") != now.get("commit"):
        lines.append(f"code: commit {_short(before)} -> {_short(now)}")
    if before.get("dirty"):
        lines.append(
            "code: the recorded run had uncommitted changes, which the record does not hold"
        )
    if now.get("dirty"):
        lines.append("code: there are uncommitted changes now")
    if now.get("unknown"):
        lines.append(f"code: whether there are uncommitted changes is unknown: {now['unknown']}")
    if old.get("script_hash") != new["script_hash"]:
        lines.append("code: the script itself has changed")
    return lines


def _short(code: Mapping[str, Any]) -> str:
    return str(code.get("commit") or ("unknown" if code.get("unknown") else "none"))[:12]


def _files(what: str, old: list[Mapping[str, Any]], new: list[Mapping[str, Any]]) -> list[str]:
    before = {row["name"]: row for row in old}
    return [
        f"{what} {row['name']} has changed (was {before[row['name']]['hash']}, is {row['hash']})"
        if row["name"] in before
        else f"{what} {row['name']} of {row['collection']} is new"
        for row in new
        if before.get(row["name"], {}).get("hash") != row["hash"]
    ]
