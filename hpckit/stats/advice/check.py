"""What is wrong with the rules and sites' `advice:` of a search path, all of it at once."""

from collections.abc import Iterator

from hpckit.collections import Collection
from hpckit.errors import ConfigError
from hpckit.sites import list_sites, read_site
from hpckit.stats.advice.engine import advise
from hpckit.stats.advice.loading import in_order, list_rules, load_rules
from hpckit.stats.advice.rules import Rule, read_rule
from hpckit.stats.summary.values import GpuUse, JobUse, NodeUse

_NOTHING_KNOWN = JobUse(
    job_id="1", per_node=(NodeUse(host="n"),), per_gpu=(GpuUse(host="n"), GpuUse(host="n"))
)


def check_rules(collections: tuple[Collection, ...]) -> tuple[str, ...]:
    """Return the problems, each with its file; none if all is well."""
    return tuple(_problems(collections))


def _problems(collections: tuple[Collection, ...]) -> Iterator[str]:
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
    yield from _site_problems(collections)


def _site_problems(collections: tuple[Collection, ...]) -> Iterator[str]:
    for found in list_sites(collections).values():
        try:
            load_rules(collections, read_site(found.path, collections))
        except ConfigError as error:
            yield f"{found.path}: {error}"
