"""Sites: clusters as data, the one here, and the site file that is made of what it tells."""

import re
from dataclasses import replace
from pathlib import Path

from hpckit.api import Tell, log, readable, searched
from hpckit.collections import Found
from hpckit.detect import login_node
from hpckit.detect.answers import Detected, read_answers
from hpckit.detect.page import DETECTED, site_page
from hpckit.detect.site_file import Outcome, WriteResult, write_site_file
from hpckit.errors import OutsideError, RequestError
from hpckit.job_spec.arguments import FUNCTION, checked, maybe
from hpckit.paths import config_folder
from hpckit.sites import (
    GENERIC,
    PartitionLimits,
    Site,
    detect_among,
    detect_site,
    find_site,
    list_sites,
    read_site,
)
from hpckit.sites.site_sources import sources_of
from hpckit.values import Seconds

__all__ = [
    "Detected", "Outcome", "PartitionLimits", "Site", "WriteResult", "detect_cluster", "init",
    "site", "site_file", "site_in_use", "site_page", "sites", "sites_and_here", "sources_of",
]  # fmt: skip

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


@checked(tell=FUNCTION)
def sites(*, tell: Tell = log) -> list[Site]:
    """Return the sites, by name; `site()` is the one here. `tell` hears of those that are wrong."""
    return sites_and_here(tell)[0]


def sites_and_here(tell: Tell) -> tuple[list[Site], str]:
    """Return the sites, and the name of the one that is detected here."""
    collections = searched(tell)

    def read(row: Found) -> Site:
        return replace(read_site(row.path, collections), found=row)

    found = [*readable(list_sites(collections).values(), read, tell)]
    return found, detect_among(found, collections)


@checked(name=str | None, tell=FUNCTION)
def site(name: str | None = None, *, tell: Tell = log) -> Site:
    """Return a site: its limits, GPU types, environments, defaults; None: the one detected here.

    Raises:
        RequestError: there is no such site. ConfigError: its file is wrong.
    """
    collections = searched(tell)
    return find_site(name, collections)


@checked(timeout=Seconds)
def detect_cluster(*, timeout: float = 10.0) -> Detected:
    """Ask this cluster's programs what it is, each for so many seconds; nothing is submitted.

    `site_page` makes a site file of it.

    Raises:
        OutsideError: none of them answers, so there is no Slurm here.
    """
    answers = login_node.ask_slurm(timeout)
    if all(row.text is None for row in answers.values()):
        raise OutsideError(
            f"No program of Slurm answers here. {answers['config'].why.rstrip('.')}. Log in to the "
            "cluster; or copy templates/sites/generic.yaml and fill it in (docs/sites.md)."
        )
    return read_answers(answers, login_node.describe_machine())


@checked(name=str | None, force=bool, found=maybe(DETECTED))
def init(
    name: str | None = None, *, force: bool = False, found: Detected | None = None
) -> WriteResult:
    """Write a site file for this cluster into ~/.config/hpckit/templates/sites/.

    One that is there, and was edited or not written by init, stays as it is.

    Args:
        name: of the site (else Slurm's ClusterName).
        force: overwrite such a file too.
        found: what `detect_cluster` returned, else it is asked for.

    Returns:
        What became of the file, why, and how it differs from what init would write.

    Raises:
        OutsideError: no Slurm answers, its cluster has no name, or the file cannot be written.
        RequestError: the name is not valid.
    """
    found = found or detect_cluster()
    path = site_file(name, found)
    from hpckit.api.templates import write_schemas  # noqa: PLC0415  # for this alone

    written = write_site_file(path, site_page(found), force=force)
    write_schemas(config_folder(), ["site"])  # its comment names it
    return written


def site_file(name: str | None, found: Detected) -> Path:
    """Return where `init` puts the site's file; raises what it raises for a name."""
    chosen = name or found.name
    if chosen is None:
        raise OutsideError("Slurm does not give the name of this cluster: give --name NAME.")
    if not _NAME.fullmatch(chosen) or chosen == GENERIC:
        raise RequestError(
            f"{chosen!r} is not a valid site name: give another name with --name "
            "(letters, digits, . _ -)"
        )
    return config_folder() / "templates" / "sites" / f"{chosen}.yaml"


def site_in_use(name: str, tell: Tell) -> tuple[Found, str]:
    """Return a site's file with those that it shadows, and the name of the site detected here."""
    collections = searched(tell)
    return list_sites(collections)[name], detect_site(collections)
