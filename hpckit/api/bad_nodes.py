"""Nodes that looked bad: what is known of them, and how hpckit learns it of runs."""

import time
from collections.abc import Iterable, Sequence
from typing import Any

from hpckit.api import log
from hpckit.bad_nodes.node_events import events_at_end
from hpckit.bad_nodes.node_memory import (
    DAYS,
    BadNode,
    NodeEvent,
    forget,
    is_cluster,
    read_memory,
    remember,
)
from hpckit.bad_nodes.node_memory import bad_nodes as counted
from hpckit.collections import search_path
from hpckit.errors import NotFoundError, OutsideError, RequestError
from hpckit.job_spec.arguments import checked, several
from hpckit.paths import bad_nodes_path
from hpckit.run_folders.runs import Run as RunFolder
from hpckit.sites import find_site
from hpckit.sites.node_rules import NodeRules, find_rules
from hpckit.slurm.client import patience, sbatch_answers
from hpckit.slurm.cluster import cluster_name
from hpckit.slurm.hostlist import is_host
from hpckit.submission.leaving_out import named_by_site
from hpckit.submission.status import RunStatus


class BadNodes(list[BadNode]):
    """Nodes that looked bad, the newest first.

    Attributes:
        cluster: whose; None: of all clusters, for none is here.
        days: how long an event counts.
        trouble: what is wrong with the file that they are in; "" for nothing.
    """

    def __init__(
        self, rows: Iterable[BadNode], cluster: str | None, days: float, trouble: str
    ) -> None:
        super().__init__(rows)
        self.cluster, self.days, self.trouble = cluster, days, trouble

    def document(self) -> dict[str, Any]:
        """Return what `hpckit bad-nodes --json` prints."""
        return {
            "cluster": self.cluster,
            "days": self.days,
            "file": str(bad_nodes_path()),
            "trouble": self.trouble or None,
            "nodes": [_document(row) for row in self],
        }


def _document(row: BadNode) -> dict[str, Any]:
    return {
        "host": row.host,
        "cluster": row.cluster or None,
        "what": row.what,
        "until": row.until,
        "events": [
            {
                "what": event.what,
                "when": event.when,
                "job_id": event.job_id,
                "restart": event.restart,
                "words": event.words,
            }
            for event in row.events
            if row.until is not None
        ],
    }


@checked(cluster=str | None, site=str | None)
def bad_nodes(cluster: str | None = None, *, site: str | None = None) -> BadNodes:
    """Return the nodes that looked bad, and that `exclude_bad=True` leaves out.

    Args:
        cluster: Slurm's name of it (else the one whose Slurm answers here; without one, of all).
        site: a site's name (else the one detected here), whose file may name nodes.
    """
    rules, memory, here = _rules(site), read_memory(), _here()
    name = cluster or here
    days = rules.days or DAYS
    found = counted(memory.events, time.time(), days=days, cluster=name)
    more = named_by_site(rules, {row.host for row in found}) if name == here else []
    return BadNodes([*found, *more], name, days, memory.trouble)


@checked(why=str, cluster=str | None)
def add_bad_node(host: str | Sequence[str], why: str, *, cluster: str | None = None) -> None:
    """Remember a node by hand, as of now; or several, all or none of them.

    Raises:
        RequestError: it is no node's name, or the reason is empty. OutsideError: no Slurm says
            which cluster this is, or the file cannot be written.
    """
    hosts = _hosts(host)
    if not why.strip():
        raise RequestError(f"{hosts[0]}: give a reason (why), as in 'GPU 3 is slow'.")
    now, name = time.time(), _cluster(cluster)
    events = [
        NodeEvent(cluster=name, host=one, what=why.strip(), when=now, words="added by hand")
        for one in hosts
    ]
    remember(events, now)


@checked(cluster=str | None)
def forget_bad_node(host: str | Sequence[str], *, cluster: str | None = None) -> None:
    """Let nothing count any more that is remembered of a node; what comes later does.

    Of several nodes, all are forgotten or none.

    Raises:
        NotFoundError: nothing is. OutsideError: the file cannot be read or written.
    """
    hosts = _hosts(host)
    memory, name = read_memory(), cluster or _here()
    if not memory.usable:
        raise OutsideError(f"{memory.trouble}.")
    rows = {(row.cluster, row.host) for row in memory.events if row.host in hosts}
    found = sorted(row for row in rows if name in (None, row[0]))
    if unknown := [one for one in hosts if one not in {row[1] for row in found}]:
        where = f" of cluster {name}" if name else ""
        raise NotFoundError(
            f"Nothing is remembered of node {unknown[0]!r}{where}. See `hpckit bad-nodes`."
        )
    forget(found, time.time())


def _hosts(given: str | Sequence[str]) -> tuple[str, ...]:
    hosts = several(given, "host")
    for host in hosts:
        if not is_host(host):
            raise RequestError(f"{host!r} is not the name of one node, as sinfo -N shows it.")
    if not hosts:
        raise RequestError("host is empty: give the name of a node.")
    return hosts


def _cluster(name: str | None) -> str:
    if name is not None and not is_cluster(name):
        raise RequestError(f"{name!r} is not the name of a cluster, as `sacctmgr show cluster`.")
    if found := name or _here():
        return found
    raise OutsideError(
        "No Slurm answers here, so it is unknown which cluster this is. Give its name (cluster, "
        "--cluster)."
    )


@patience()
def _here() -> str | None:
    """Return the name of the cluster whose Slurm answers here; None: none does."""
    return cluster_name() if sbatch_answers() else None


def _rules(site: str | None) -> NodeRules:
    return find_rules(find_site(site, search_path()).bad_nodes)


def learn(statuses: Iterable[RunStatus]) -> list[NodeEvent]:
    """Write down what runs of the user's own tell of their nodes; return it."""
    found = [event for row in statuses if row.run.mine for event in row.node_events()]
    write_down(found)
    return found


def learn_of_run(run: RunFolder) -> Sequence[NodeEvent]:
    """Do the same of a run that is submitted again, without asking Slurm for it: it is over."""
    found = events_at_end(run)
    write_down(found)
    return found


def write_down(events: Sequence[NodeEvent]) -> None:
    """Remember events; a folder that cannot be written costs only the memory of them."""
    if not events:
        return
    try:
        remember(events, time.time())
    except OutsideError as error:
        log(f"bad nodes: {error}")
