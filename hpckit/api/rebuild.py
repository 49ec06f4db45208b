"""The index of runs made anew from the folders that can have some."""

import os
from pathlib import Path

from hpckit.api import Tell, log, searched
from hpckit.api.lookup import folder_there
from hpckit.errors import HpckitError, UnsetVariableError
from hpckit.job_spec.arguments import FUNCTION, PATH, checked, maybe
from hpckit.paths import typed_path, users_path
from hpckit.run_folders.reindex import Rebuilt, known_roots, rebuild


@checked(runs=maybe(PATH), tell=FUNCTION)
def rebuild_index(*, runs: Path | str | None = None, tell: Tell = log) -> Rebuilt:
    """Make the index of your runs anew, from the runs' folders, which it only repeats.

    Looked into are the folders that the index speaks of, `$HPCKIT_RUNS`, each site's, `./runs`
    and `runs`. Nothing in them is changed.

    Raises:
        NotFoundError: there is no folder `runs`. OutsideError: the index cannot be written.
    """
    root = folder_there(runs, tell)
    return rebuild([root, *usual_roots(tell), *known_roots()])


def usual_roots(tell: Tell) -> list[Path]:
    """Return the folders that runs go to when nobody names one: `$HPCKIT_RUNS`, sites', `./runs`.

    A site's file that is wrong is said to `tell`: its folder may be known otherwise.
    """
    from hpckit.sites import list_sites, read_site  # noqa: PLC0415  # seldom

    named = os.environ.get("HPCKIT_RUNS")
    words = [named] if named else []
    try:
        collections = searched(tell)
        sites = [read_site(row.path, collections) for row in list_sites(collections).values()]
        words += [word for site in sites if site.runs and (word := _folder_of(site.runs))]
    except HpckitError as error:
        tell(f"folders of sites are left out: {error}")
    return [typed_path(word) for word in (*words, "runs")]


def _folder_of(site_runs: str) -> str | None:
    """Return a site's folder of runs; None where it is of another cluster, by its variables."""
    try:
        return users_path(site_runs, "runs")
    except UnsetVariableError:
        return None
