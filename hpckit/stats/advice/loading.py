"""The rules of a search path, with what the site changes in them.

A file of the same name earlier on the path takes the place of a later one, whole.
"""

from dataclasses import replace
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from hpckit.collections import Collection, Found, find_all
from hpckit.documents import nearest
from hpckit.errors import ConfigError, RequestError
from hpckit.sites import AdviceOverride, Site
from hpckit.stats.advice.parts import kind_of
from hpckit.stats.advice.rules import Rule, read_rule


def list_rules(collections: tuple[Collection, ...]) -> dict[str, Found]:
    """Return the rule files on the search path by rule id."""
    found = find_all("advice/*.yaml", "templates", collections)
    return {Path(name).stem: place for name, place in found.items()}


def load_rules(collections: tuple[Collection, ...], site: Site | None = None) -> tuple[Rule, ...]:
    """Read all rules of the search path, with the site's changes; those switched off too.

    Raises:
        ConfigError: a rule's file or the site's `advice:` is wrong.
    """
    rules = {name: read_rule(found) for name, found in list_rules(collections).items()}
    in_order(tuple(rules.values()))
    for name, changes in (site.advice if site else {}).items():
        origin = f"site {site.name!r}" if site else ""
        if name not in rules:
            raise ConfigError(
                f"{origin}: advice: there is no rule {name!r}. {nearest(name, rules)}"
            )
        rules[name] = _changed(rules[name], changes, origin)
    return tuple(rules.values())


def find_rule(name: str, rules: tuple[Rule, ...]) -> Rule:
    """Return the rule of that id.

    Raises:
        RequestError: there is none.
    """
    known = {rule.id: rule for rule in rules}
    if name not in known:
        raise RequestError(f"Unknown advice rule {name!r}. {nearest(name, known)}")
    return known[name]


def in_order(rules: tuple[Rule, ...]) -> tuple[Rule, ...]:
    """Return the rules so that each comes after those that silence it.

    Raises:
        ConfigError: a rule silences one there is not, or two silence each other.
    """
    known = {rule.id: rule for rule in rules}
    after: dict[str, set[str]] = {rule.id: set() for rule in rules}
    for rule in rules:
        for name in rule.silences:
            if name not in known:
                raise ConfigError(
                    f"{rule.found.path}: silences {name!r}, which is not a rule. "
                    f"{nearest(name, known)}"
                )
            after[name].add(rule.id)
    try:
        return tuple(known[name] for name in TopologicalSorter(after).static_order())
    except CycleError as error:
        circle = " -> ".join(reversed(error.args[1]))
        raise ConfigError(f"These advice rules silence each other: {circle}.") from error


def _changed(rule: Rule, changes: AdviceOverride, origin: str) -> Rule:
    if changes is None:
        return replace(rule, off=origin)
    for name, value in changes.items():
        where = f"{origin}: advice of rule {rule.id!r}"
        if name not in rule.variables:
            raise ConfigError(
                f"{where}: there is no variable {name!r}. {nearest(name, rule.variables)}"
            )
        wanted = kind_of(rule.variables[name])
        if kind_of(value) is not wanted:
            raise ConfigError(f"{where}: {name!r} is {value!r}, must be a {wanted}.")
    return replace(
        rule,
        variables={**rule.variables, **changes},
        changed={**rule.changed, **dict.fromkeys(changes, origin)},
    )
