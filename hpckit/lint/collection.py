"""One collection: manifest, who can write it, links, sites, workloads and their scripts."""

import ast
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from hpckit.collections import MANIFEST, Collection, find_all
from hpckit.collections.files import walk
from hpckit.collections.manifest import describe_shared
from hpckit.collections.trust import faults
from hpckit.documents import every_problem
from hpckit.errors import ConfigError
from hpckit.files import DamagedFileError, read_bytes
from hpckit.lint.finding import Finding, finding
from hpckit.lint.scripts import bash_errors
from hpckit.lint.templates import read_faults
from hpckit.render import list_templates
from hpckit.sites import list_sites, read_site
from hpckit.workloads import list_workloads, read_workload


def lint_collection(own: Collection, collections: tuple[Collection, ...]) -> Iterator[Finding]:
    """Yield what is wrong with a collection's files; `collections` is the search path it is on."""
    alone = (own,)
    manifest = own.path / MANIFEST
    if manifest.is_file():
        for problem in every_problem(lambda: describe_shared(own.path, own.origin)):
            yield finding(problem, str(manifest))
    if own.origin != "built-in":
        yield from _open_to_others(own)
    for place in list_templates(alone).values():
        yield from read_faults(place, collections)
    for site in list_sites(alone).values():
        for problem in every_problem(partial(read_site, site.path)):
            yield finding(problem, str(site.path))
    for workload in list_workloads(alone).values():
        for problem in every_problem(partial(read_workload, workload)):
            yield finding(problem, str(workload.path))
    yield from _scripts(alone)


def _open_to_others(own: Collection) -> Iterator[Finding]:
    """Yield what would keep others from adding the collection."""
    try:
        for fault in faults(own.path, walk(own.path)):
            path = next((word for word in fault.split() if word.startswith("/")), str(own.path))
            yield Finding(path=path.rstrip(","), line=0, message=f"{fault}.")
    except ConfigError as error:
        yield finding(str(error), str(own.path))


def _scripts(alone: tuple[Collection, ...]) -> Iterator[Finding]:
    """Yield what Python or bash cannot read of the workloads' scripts."""
    for found in find_all("*/**/*.py", "workloads", alone).values():
        yield from _python(found.path)
    for found in find_all("*/**/*.sh", "workloads", alone).values():
        try:
            text = read_bytes(found.path).decode(errors="replace")
        except DamagedFileError as error:
            yield Finding(path=str(found.path), line=0, message=f"{error}.")
            continue
        for line, message in bash_errors(text):
            yield Finding(path=str(found.path), line=line, message=message)


def _python(path: Path) -> Iterator[Finding]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of style, with the author's own line of source
            ast.parse(read_bytes(path), str(path))
    except SyntaxError as error:
        yield Finding(path=str(path), line=error.lineno or 0, message=f"Python: {error.msg}.")
    except ValueError as error:
        yield Finding(path=str(path), line=0, message=f"Python: {error}.")
