"""Advice on a job, by the rules of the search path and of the job's own site."""

import functools
from dataclasses import replace

from hpckit import collections as places
from hpckit.collections import Collection
from hpckit.errors import ConfigError, RequestError
from hpckit.sites import Site, detect_site, load_site
from hpckit.stats.advice.engine import Advice, advise
from hpckit.stats.advice.loading import load_rules
from hpckit.stats.advice.rules import Rule
from hpckit.stats.summary.values import JobUse, SourceNote


def advised(job: JobUse) -> tuple[JobUse, tuple[Advice, ...]]:
    """Return the job and what the rules find; a wrong rule costs the advice, and a note tells."""
    try:
        return job, advise(job, rules_for(job.site), site_called(job.site))
    except ConfigError as error:
        note = SourceNote(code="advice", text=f"No advice: {error}")
        return replace(job, notes=(note, *job.notes)), ()


def rules_for(site_name: str | None) -> tuple[Rule, ...]:
    """Return the rules as a site has them.

    Raises:
        ConfigError: a rule, or what the site says of one, is wrong.
    """
    return _rules(places.search_path(), site_name)


def site_called(name: str | None) -> Site | None:
    """Return the site a job ran on, else this one; None if its file is no longer there.

    Raises:
        ConfigError: its file is wrong.
    """
    return _site(places.search_path(), name)


# An array's tasks ask a thousand times.
@functools.cache
def _rules(collections: tuple[Collection, ...], site_name: str | None) -> tuple[Rule, ...]:
    return load_rules(collections, _site(collections, site_name))


@functools.cache
def _site(collections: tuple[Collection, ...], name: str | None) -> Site | None:
    try:
        return load_site(name or detect_site(collections), collections)
    except ConfigError:
        raise
    except RequestError:  # a run from elsewhere, or its collection is gone
        return None
