"""The rules of a search path, as the site has them: what is wrong with them, and their advice.

A file of the same name earlier on the path takes the place of a later one, whole.
"""

import functools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from hpckit.collections import Collection, Found, find_all, search_path
from hpckit.documents import nearest
from hpckit.errors import ConfigError, RequestError
from hpckit.sites import AdviceOverride, Site, find_site, list_sites, read_site
from hpckit.stats.advice.engine import Advice, advise
from hpckit.stats.advice.functions import kind_of
from hpckit.stats.advice.keeping import read_rules
from hpckit.stats.advice.rules import Rule, in_order
from hpckit.stats.summary.figures import GpuUse, JobUse, NodeUse, SourceNote
from hpckit.stats.summary.timeline import Timeline


def list_rules(collections: tuple[Collection, ...]) -> dict[str, Found]:
    """Return the rule files on the search path by rule id."""
    found = find_all("advice/*.yaml", "templates", collections)
    return {Path(name).stem: place for name, place in found.items()}


def load_rules(collections: tuple[Collection, ...], site: Site | None = None) -> tuple[Rule, ...]:
    """Read all rules of the search path, with the site's changes; those switched off too.

    Raises:
        ConfigError: a rule's file or the site's `advice:` is wrong.
    """
    rules = tuple(read_rules(list_rules(collections).values()))
    in_order(rules)
    return _with_changes(rules, site)


def _with_changes(known: tuple[Rule, ...], site: Site | None) -> tuple[Rule, ...]:
    rules = {rule.id: rule for rule in known}
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


def advised(job: JobUse, timelines: Sequence[Timeline] = ()) -> tuple[JobUse, tuple[Advice, ...]]:
    """Return the job and what the rules find; a wrong rule costs the advice, and a note tells."""
    try:
        collections = search_path()
        rules, site = _rules(collections, job.site), _site(collections, job.site)
        return job, advise(job, rules, site, timelines)
    except ConfigError as error:
        note = SourceNote(code="advice", text=f"No advice: {error}")
        return replace(job, notes=(note, *job.notes)), ()


def rules_here() -> tuple[Rule, ...]:
    """Return the rules as this site has them.

    Raises:
        ConfigError: a rule, or what the site says of one, is wrong.
    """
    return _rules(search_path(), None)


def site_called(name: str | None) -> Site | None:
    """Return the site a job ran on, else this one; None if its file is no longer there.

    Raises:
        ConfigError: its file is wrong.
    """
    return _site(search_path(), name)


def forget_rules() -> None:
    """Read rules and sites anew at the next question."""
    _rules.cache_clear()
    _site.cache_clear()


# An array's tasks ask a thousand times.
@functools.cache
def _rules(collections: tuple[Collection, ...], site_name: str | None) -> tuple[Rule, ...]:
    return load_rules(collections, _site(collections, site_name))


@functools.cache
def _site(collections: tuple[Collection, ...], name: str | None) -> Site | None:
    try:
        return find_site(name, collections)
    except ConfigError:
        raise
    except RequestError:  # a run from elsewhere, or its collection is gone
        return None


_NOTHING_KNOWN = JobUse(
    job_id="1", per_node=(NodeUse(host="n"),), per_gpu=(GpuUse(host="n"), GpuUse(host="n"))
)


def check_rules(collections: tuple[Collection, ...]) -> tuple[str, ...]:
    """Return the problems, each with its file; none if all is well."""
    return tuple(_problems(collections))


def _problems(collections: tuple[Collection, ...]) -> Iterator[str]:
    from hpckit.stats.advice.reading import read_rule  # noqa: PLC0415  # as in `keeping`

    rules: list[Rule] = []
    wrong = 0
    for found in list_rules(collections).values():
        try:
            rules.append(read_rule(found))
        except ConfigError as error:
            wrong += 1
            yield str(error)
    if wrong:
        return  # what the sites and other rules say of those cannot be checked
    try:
        in_order(tuple(rules))
    except ConfigError as error:
        yield str(error)
        return
    for advice in advise(_NOTHING_KNOWN, rules):
        path = next(rule.found.path for rule in rules if rule.id == advice.id)
        yield f"{path}: this rule fires on a job with no known figures."
    yield from _site_problems(tuple(rules), collections)


def _site_problems(rules: tuple[Rule, ...], collections: tuple[Collection, ...]) -> Iterator[str]:
    for found in list_sites(collections).values():
        try:
            _with_changes(rules, read_site(found.path, collections))
        except ConfigError as error:
            yield f"{found.path}: {error}"
