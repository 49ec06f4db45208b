"""`--exclude-bad`: nodes that looked bad are left out of a job, or offered to be; of Slurm's alone.

A site or the user may say that all jobs leave them out; `--skip-check bad-nodes` leaves none out.
"""

import time
from collections.abc import Iterable, Sequence
from dataclasses import replace

from hpckit.bad_nodes.node_memory import DAYS, BadNode, NodeEvent, bad_nodes, read_memory
from hpckit.errors import CommandError, ConfigError, OutsideError, PlanError
from hpckit.job import Job
from hpckit.job.checks import off_switch
from hpckit.job_spec.sbatch_words import read_sbatch
from hpckit.job_spec.spec import JobSpec
from hpckit.run_folders.run_record import LeftOut
from hpckit.sinks import find_notify
from hpckit.sites.node_rules import NodeRules, find_rules
from hpckit.slurm.client import sbatch_answers
from hpckit.slurm.cluster import Partition, cluster_name, meant, partitions
from hpckit.slurm.hostlist import nodes_or_none
from hpckit.text import in_line, listed
from hpckit.units import format_seconds

CHECK = "bad-nodes"
_NAMED = 5
_HOW = "`hpckit bad-nodes` shows them; --forget HOST forgets one."


def without_bad_nodes(
    job: Job, spec: JobSpec, *, preview: bool, learned: Sequence[NodeEvent] = ()
) -> tuple[Job, LeftOut | None]:
    """Return a job that leaves bad nodes out if that is asked for, else a note that names them.

    Args:
        job: as it was worked out.
        spec: what was asked.
        preview: nothing is submitted, so Slurm need not answer.
        learned: events that the file of bad nodes may not hold.

    Raises:
        PlanError: too few nodes would be left. OutsideError: Slurm does not say which cluster it
            is. ConfigError: the user's own file is wrong.
    """
    if CHECK in spec.skip_checks:
        return job, None
    if job.scheduler.one_machine or not job.scheduler.accounting:
        why = f"--exclude-bad is for Slurm, and this run is for executor {job.executor!r}"
        return (_noted(job, f"{why}: it does nothing") if spec.exclude_bad else job), None
    try:
        rules = find_rules(job.site.bad_nodes)
    except ConfigError as error:
        raise ConfigError(f"{error.why} {off_switch(*_checks(job, spec))}", at=error.at) from error
    by, now = _asked_by(spec, job, rules), time.time()
    found, notes = _known(rules, learned, by, now, preview=preview)
    job = replace(job, notes=(*job.notes, *notes))
    if not found and spec.exclude_bad and not notes:
        return _noted(job, f"{by}: no bad node is known, so none is left out"), None
    if not found:
        return job, None
    if by is None:
        how = "--exclude-bad leaves them out"
        return _noted(job, f"nodes that looked bad: {described(found, now)}. {how}"), None
    return _left_out(job, found, by, now)


def _checks(job: Job, spec: JobSpec) -> tuple[str, ...]:
    """Return which checks refuse the user's file: it also says who is notified."""
    if "notify" in spec.skip_checks:
        return (CHECK,)
    try:
        find_notify(job.site.notify)
    except ConfigError:
        return (CHECK, "notify")
    return (CHECK,)


def _known(
    rules: NodeRules, learned: Sequence[NodeEvent], by: str | None, now: float, *, preview: bool
) -> tuple[list[BadNode], list[str]]:
    """Return the bad nodes of the cluster here, and what is wrong with what is known of them."""
    memory, days = read_memory(), rules.days or DAYS
    events = (*memory.events, *(row for row in learned if row.key not in memory.seen))
    notes = [memory.trouble] if memory.trouble else []
    found: list[BadNode] = []
    if bad_nodes(events, now, days=days):  # else Slurm need not be asked for its name
        cluster = _cluster(preview=preview)
        if cluster:
            found = bad_nodes(events, now, days=days, cluster=cluster)
        elif by and not preview:
            raise OutsideError(
                f"{by}: Slurm does not say which cluster this is, so the nodes that looked bad "
                f"here are not known. Try again soon. {off_switch(CHECK)}"
            )
        elif by:
            notes.append(f"{by}: no Slurm says which cluster this is: its bad nodes are unknown")
    return [*found, *named_by_site(rules, {row.host for row in found})], notes


def _cluster(*, preview: bool) -> str | None:
    """Return the name of the cluster here; None: no Slurm says it, which a preview may find."""
    try:
        return cluster_name() if sbatch_answers() else None
    except CommandError:
        if preview:
            return None
        raise


def _asked_by(spec: JobSpec, job: Job, rules: NodeRules) -> str | None:
    """Return what says that bad nodes are left out; None: nothing does."""
    if spec.exclude_bad:
        return "--exclude-bad"
    if rules.exclude is not None:
        return "your config.yaml (bad_nodes)" if rules.exclude else None
    return f"site {job.site.name} (defaults)" if job.site.defaults.get("exclude_bad") else None


def named_by_site(rules: NodeRules, known: Iterable[str] = ()) -> list[BadNode]:
    """Return the nodes that a site's file names, but for those that are known already."""
    return [
        BadNode(
            cluster="", host=host,
            events=(NodeEvent(cluster="", host=host, what="named by the site's file", when=0.0),),
        )
        for host in rules.hosts
        if host not in known
    ]  # fmt: skip


def described(rows: Sequence[BadNode], now: float) -> str:
    """Name nodes, each with what happened and how long ago."""
    return listed([_described(row, now) for row in rows], _NAMED)


def _described(row: BadNode, now: float) -> str:
    newest = row.events[0]
    parts = [row.what]
    if newest.job_id:
        parts.append(f"job {newest.job_id}")
    if row.until is not None:
        parts.append(f"{format_seconds(max(now - newest.when, 0.0))} ago")
    return in_line(f"{row.host} ({', '.join(parts)})")


def _noted(job: Job, note: str) -> Job:
    return replace(job, notes=(*job.notes, note))


def _left_out(job: Job, found: Sequence[BadNode], by: str, now: float) -> tuple[Job, LeftOut]:
    _refuse_conflict(job, found, by)
    given = job.options["exclude"]
    rows, known = list(found), _partitions()
    if known is None:
        job = _noted(job, "Slurm did not answer whether enough nodes are left")
    else:
        there = {node for row in known for group in row.node_groups for node in group.nodes}
        gone = [row.host for row in rows if row.host not in there]
        rows = [row for row in rows if row.host in there]  # sbatch refuses names that it has not
        if gone:
            job = _noted(
                job, f"the cluster has no such node, so it is not left out: {listed(gone)}"
            )
        _refuse_too_few(job, known, rows, by)
    hosts = [row.host for row in rows]
    words = [*([given] if given else []), *(host for host in hosts if host not in _names(given))]
    if rows:
        job = _noted(job, f"left out by {by}: {described(rows, now)}")
        job = replace(job, options={**job.options, "exclude": ",".join(words)})
    return job, LeftOut(by=by, hosts=tuple(hosts), why=tuple(_described(row, now) for row in rows))


def _names(exclude: str | None) -> tuple[str, ...]:
    return nodes_or_none(exclude or "") or ()


def _partitions() -> tuple[Partition, ...] | None:
    try:
        return partitions()
    except CommandError:
        return None


def _refuse_conflict(job: Job, found: Sequence[BadNode], by: str) -> None:
    """Refuse options that say otherwise, or that would take the place of ours.

    Raises:
        PlanError: there is one.
    """
    if any(word.startswith(("--exclude", "-x")) and not word.startswith("--exclusive")
           for word in job.site.sbatch_args):  # fmt: skip
        raise PlanError(
            f"{by} cannot be combined with --exclude in the sbatch_args of site "
            f"{job.site.name!r}: sbatch would obey only these. Name the nodes under "
            f"'bad_nodes: {{hosts: [...]}}' in the site's file instead. {off_switch(CHECK)}"
        )
    pairs = dict(map(read_sbatch, job.sbatch))
    wanted = {*_names(pairs.get("nodelist"))}
    if both := [row.host for row in found if row.host in wanted]:
        raise PlanError(
            f"{by} leaves out {listed(both)}, which --sbatch nodelist asks for. {_HOW} "
            f"{off_switch(CHECK)}"
        )


def _refuse_too_few(job: Job, known: Sequence[Partition], rows: Sequence[BadNode], by: str) -> None:
    """Refuse a job that would wait for ever, because too few nodes of its partitions are left.

    Raises:
        PlanError: so it is.
    """
    chosen = meant(known, job.options["partition"])
    able = {node for row in chosen for node in _able(row, job)} - {*_names(job.options["exclude"])}
    left = able - {row.host for row in rows}
    if len(left) >= job.nodes or len(able) < job.nodes:  # without ours it would wait, too
        return
    names = ", ".join(row.name for row in chosen)
    raise PlanError(
        f"{by} leaves {len(left)} of {len(able)} nodes of partition {names}, and the job asks for "
        f"{job.nodes}: it would wait for ever. Left out: {described(rows, time.time())}. {_HOW} "
        f"{off_switch(CHECK)}"
    )


def _able(partition: Partition, job: Job) -> list[str]:
    """Return a partition's nodes that have as many GPUs as the job asks for of each."""
    groups = partition.node_groups
    enough = [row for row in groups if row.gpus >= job.gpus_per_node]
    return [node for row in enough or groups for node in row.nodes]
