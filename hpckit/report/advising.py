"""Advice on a job, by the rules of the search path and of the job's own site."""

import functools

from hpckit import collections as places
from hpckit.errors import ConfigError, RequestError
from hpckit.sites import Site, detect_site, load_site
from hpckit.stats.advice.engine import Advice, advise
from hpckit.stats.advice.loading import load_rules
from hpckit.stats.advice.rules import Rule
from hpckit.stats.summary.values import JobUse


def advice_on(job: JobUse) -> tuple[Advice, ...]:
    """Return what the rules find.

    Raises:
        ConfigError: a rule, or what the site says of one, is wrong.
    """
    return advise(job, rules_for(job.site), site_called(job.site))


@functools.cache
def rules_for(site_name: str | None) -> tuple[Rule, ...]:
    """Return the rules as a site has them."""
    return load_rules(places.search_path(), site_called(site_name))


@functools.cache
def site_called(name: str | None) -> Site | None:
    """Return the site a job ran on, else this one; None if its file is no longer there.

    Raises:
        ConfigError: its file is wrong.
    """
    collections = places.search_path()
    try:
        return load_site(name or detect_site(collections), collections)
    except ConfigError:
        raise
    except RequestError:  # a run from elsewhere, or its collection is gone
        return None
