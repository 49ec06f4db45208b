"""What could stand at a place of a command line, for a shell's completion.

A shell asks at each key, so nothing here starts a program or asks Slurm, and what is wrong in a
file offers nothing instead of ending with an error.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path

from hpckit.api.options import check_names
from hpckit.collections import Collection, Found, find_all, search_path
from hpckit.environments import BARE
from hpckit.errors import HpckitError
from hpckit.launchers import LAUNCHERS
from hpckit.render.loader import list_templates
from hpckit.render.reports import report_templates, shortest_names
from hpckit.run_folders.index import IndexEntry, array_of, read_index
from hpckit.run_folders.ranks import first_failure, read_ranks
from hpckit.run_folders.runs import Run, read_run
from hpckit.sites import Site, find_site, list_sites
from hpckit.slurm.states import JobState
from hpckit.strategies import STRATEGIES
from hpckit.submission.verdict import all_ended
from hpckit.workloads import Parameter, list_workloads, load_workload

# A word, and a note about it.
Offer = tuple[str, str]
_MOST_RUNS = 40


def offers(kind: str, words: tuple[str, ...] = ()) -> list[Offer]:
    """Return the words of a kind.

    Args:
        kind: a key of `_KINDS`.
        words: what was typed before: for `parameter` the workload, for what a site's file names
            the site; none where nothing was.
    """
    try:
        return list(_KINDS[kind](words[0] if words else None))
    except HpckitError:
        return []


def _collections() -> tuple[Collection, ...]:
    return search_path()


def _targets(word: str | None) -> Iterator[Offer]:
    yield from ((row.name, row.help) for row in STRATEGIES.values())
    yield from _workloads(word)


def _workloads(word: str | None) -> Iterator[Offer]:
    del word
    yield from _origins(list_workloads(_collections()))


def _sites(word: str | None) -> Iterator[Offer]:
    del word
    yield from _origins(list_sites(_collections()))


def _origins(found: Mapping[str, Found]) -> Iterator[Offer]:
    yield from ((name, row.collection.name) for name, row in found.items())


def _templates(word: str | None) -> Iterator[Offer]:
    del word
    found = find_all("*.sh.j2", "templates/slurm", _collections())
    yield from ((name.removesuffix(".sh.j2"), row.collection.name) for name, row in found.items())


def _report_templates(word: str | None) -> Iterator[Offer]:
    del word
    found = report_templates(_collections())
    for short, name in shortest_names(found).items():
        yield short, found[name].collection.name


def _template_files(word: str | None) -> Iterator[Offer]:
    del word
    yield from _origins(list_templates(_collections()))


def _collection_names(word: str | None) -> Iterator[Offer]:
    del word
    yield from ((row.name, row.origin) for row in _collections())


def _site(name: str | None) -> Site:
    return find_site(name, _collections())


def _environments(site: str | None) -> Iterator[Offer]:
    yield from ((name, str(row.kind)) for name, row in _site(site).environments.items())
    yield BARE.name, "no environment"


def _partitions(site: str | None) -> Iterator[Offer]:
    yield from ((name, "") for name in _site(site).partitions)


def _parameters(workload: str | None) -> Iterator[Offer]:
    """Yield `name=`, or `name=choice` for each of its choices."""
    if workload is None:
        return
    for row in load_workload(workload, _collections()).parameters.values():
        yield from _settings(row)


def _settings(row: Parameter) -> Iterator[Offer]:
    note = f"{row.help} (default {row.default})"
    yield f"{row.name}=", note
    values = ("true", "false") if row.type == "bool" else row.choices
    yield from ((f"{row.name}={value}", note) for value in values)


def _runs(word: str | None) -> Iterator[Offer]:
    del word
    groups: dict[str, list[IndexEntry]] = {}
    for entry in read_index()[0]:
        array = entry.whole or array_of(entry.job_id)
        groups.setdefault(array or entry.job_id, []).append(entry)
    room = _MOST_RUNS  # for tasks: those of one array leave other jobs theirs
    for name, entries in islice(groups.items(), _MOST_RUNS):
        if name != entries[0].job_id:
            yield name, f"{array_of(entries[0].run_id)}, an array"
            entries, room = entries[:room], max(room - len(entries), 0)
        for entry in entries:
            with suppress(OSError, HpckitError):
                run = read_run(Path(entry.dir))
                yield run.job_id, _about(run)
    if groups:
        yield "latest", "the newest run"


def _about(run: Run) -> str:
    """Say what the run's folder knows: its ranks' ends, never what Slurm says now."""
    ranks = read_ranks(run.dir)
    state = "not over"
    if all_ended(ranks, run.ranks):
        state = "FAILED" if first_failure(ranks) else "COMPLETED"
    hours = (time.time() - run.submitted_at) / 3600
    age = f"{hours / 24:.0f} d" if hours >= 48 else f"{hours:.0f} h"
    return f"{run.run_id} {state}, {age} ago"


def _plain(*names: str) -> Callable[[str | None], Iterator[Offer]]:
    return lambda _word: ((name, "") for name in names)


_KINDS: dict[str, Callable[[str | None], Iterator[Offer]]] = {
    "target": _targets,
    "workload": _workloads,
    "site": _sites,
    "template": _templates,
    "report template": _report_templates,
    "template file": _template_files,
    "collection": _collection_names,
    "environment": _environments,
    "partition": _partitions,
    "parameter": _parameters,
    "run": _runs,
    "launcher": lambda _word: ((name, "") for name in LAUNCHERS),
    "executor": _plain("auto", "slurm", "local"),
    "check": lambda _word: ((name, "") for name in check_names()),
    "state": lambda _word: ((state.value, "") for state in JobState),
    "by": _plain(
        "week",
        "day",
        "month",
        "user",
        "account",
        "partition",
        "gpu",
        "state",
        "name",
        "workload",
        "template",
    ),
}
