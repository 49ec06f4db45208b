"""Nodes that looked bad: events of each cluster's nodes, in a file of the user's, for some weeks.

The file is only added to, a line for an event and one for a node that is forgotten; what counts is
the order of the lines, not their clocks. A line that is lost costs one event.
"""

import json
import os
import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from hpckit.errors import OutsideError
from hpckit.file_locks import append_lines, held_alone
from hpckit.files import DamagedFileError, open_regular, parse_json, read_tail, reason
from hpckit.frozen import frozen
from hpckit.owners import writers
from hpckit.paths import bad_nodes_path
from hpckit.slurm.hostlist import is_host
from hpckit.text import in_line
from hpckit.values import Moment, Within, Word, rebuild

DAYS = 14.0
"""How many days an event counts, unless user or site say otherwise."""
# A node on which jobs failed again counts longer, up to so many times.
_MOST_TIMES = 4
_DAY_S = 86_400.0
# Some 10,000 events.
_MOST_BYTES = 4 * 2**20
_WORDS, _WHAT = 300, 120
_CLUSTER = re.compile(r"[A-Za-z0-9_.-]{1,64}", re.ASCII)
_Host = Annotated[str, Within(1, 128)]


def is_cluster(name: str) -> bool:
    """Say whether a text can be a cluster's name."""
    return _CLUSTER.fullmatch(name) is not None


@frozen(kw_only=True)
class NodeEvent:
    """One event of one node: what it was, since when it is known, and the words that say so.

    `job_id` is None for what the user added. `restart` is the job's attempt.
    """

    cluster: str
    host: str
    what: str
    when: float
    words: str = ""
    job_id: str | None = None
    restart: int = 0

    @property
    def key(self) -> tuple[str, str, str, str | None, int]:
        """What makes it the same event, however often hpckit meets it."""
        return self.cluster, self.host, self.what, self.job_id, self.restart


@frozen(kw_only=True)
class _Line:
    """A line of the file; `forget`: nothing before it counts for its node."""

    cluster: _Host
    host: _Host
    when: Moment
    what: Word = ""
    words: Word = ""
    job_id: Annotated[str, Within(1, 80)] | None = None
    restart: Annotated[int, Within(0, 1_000_000)] = 0
    forget: bool = False


@frozen(kw_only=True)
class BadNode:
    """A node that looked bad, by the events that still count, newest first.

    `until`: when it is forgotten, in epoch seconds; None: never, for a site's file names it.
    """

    cluster: str
    host: str
    events: tuple[NodeEvent, ...]
    until: float | None = None

    @property
    def what(self) -> str:
        """The newest event, and how many jobs there were."""
        jobs = _jobs(self.events)
        return self.events[0].what + (f" ({jobs} jobs)" if jobs > 1 else "")


@frozen(kw_only=True)
class Memory:
    """The file: events in their order, less what is forgotten; `trouble`: what is wrong with it.

    `seen` are the keys of all events, also of forgotten ones: those are not learned again. `usable`
    is false where nothing in it is believed, or can be read.
    """

    events: tuple[NodeEvent, ...] = ()
    seen: frozenset[tuple[str, str, str, str | None, int]] = frozenset()
    trouble: str = ""
    usable: bool = True


def read_memory() -> Memory:
    """Read the file; what is damaged in it is left out."""
    path = bad_nodes_path()
    try:
        if who := _others(path):
            return Memory(
                usable=False,
                trouble=f"{path} is not believed, because {who} may write to it "
                f"(chmod 600 {shlex.quote(str(path))})",
            )
        content = read_tail(path, _MOST_BYTES)
    except FileNotFoundError:
        return Memory()
    except (OSError, DamagedFileError) as error:
        return Memory(usable=False, trouble=f"{path} cannot be read: {reason(error)}")
    lines = content.split(b"\n")
    rows, torn = _rows(lines[len(content) == _MOST_BYTES :])
    counted: list[_Line] = []
    for row in rows:
        if row.forget:
            counted = [old for old in counted if (old.cluster, old.host) != (row.cluster, row.host)]
        else:
            counted.append(row)
    return Memory(
        events=tuple(map(_event, counted)),
        seen=frozenset(_event(row).key for row in rows if not row.forget),
        trouble=f"{torn} of the lines of {path} are damaged and left out" if torn else "",
    )


def _others(path: Path) -> str:
    """Name who else than the user may have written the file; "" if nobody."""
    with open_regular(path) as stream:
        status = os.fstat(stream.fileno())
        if status.st_uid != os.getuid():
            return f"user {status.st_uid}, whose file it is,"
        return writers(stream.fileno(), status)


def _rows(lines: Iterable[bytes]) -> tuple[list[_Line], int]:
    rows, torn = [], 0
    for line in filter(None, lines):
        try:
            row = rebuild(_Line, parse_json(line), newer=True)
        except DamagedFileError:
            torn += 1
            continue
        # Names that could not have been written here go nowhere.
        good = is_host(row.host) and is_cluster(row.cluster)
        rows += [row] if good else []
        torn += not good
    return rows, torn


def _event(row: _Line) -> NodeEvent:
    return NodeEvent(
        cluster=row.cluster, host=row.host, what=row.what, when=row.when, words=row.words,
        job_id=row.job_id, restart=row.restart,
    )  # fmt: skip


def bad_nodes(
    events: Iterable[NodeEvent], now: float, *, days: float = DAYS, cluster: str | None = None
) -> list[BadNode]:
    """Return the nodes whose events count at a moment, the newest first.

    A node counts for `days` days after its newest event; where several jobs met events there, as
    many times as long. An event of more than a day ahead, by a clock that was wrong, does not.

    Args:
        events: in any order.
        now: epoch seconds.
        days: how long.
        cluster: only nodes of this one.
    """
    span = days * _DAY_S
    by_node: dict[tuple[str, str], list[NodeEvent]] = {}
    for row in events:
        known = -_DAY_S <= now - row.when <= span * _MOST_TIMES
        if known and cluster in (None, row.cluster):
            by_node.setdefault((row.cluster, row.host), []).append(row)
    found = []
    for (where, host), rows in by_node.items():
        rows.sort(key=lambda row: row.when, reverse=True)
        until = rows[0].when + span * min(max(_jobs(rows), 1), _MOST_TIMES)
        if now < until:
            found.append(BadNode(cluster=where, host=host, events=tuple(rows), until=until))
    return sorted(found, key=lambda row: row.events[0].when, reverse=True)


def _jobs(rows: Iterable[NodeEvent]) -> int:
    """Count the jobs that met events; an array is one. What was added by hand is of no job."""
    return len({row.job_id.partition("_")[0] for row in rows if row.job_id})


def remember(events: Iterable[NodeEvent], now: float) -> tuple[NodeEvent, ...]:
    """Write down events that are not known yet; return these.

    Raises:
        OutsideError: the file cannot be written.
    """
    asked = [row for row in events if is_host(row.host) and is_cluster(row.cluster)]
    memory = read_memory()
    if asked and not memory.usable:
        raise OutsideError(f"{memory.trouble}. Nothing is remembered of bad nodes.")
    if all(row.job_id is not None and row.key in memory.seen for row in asked):
        return ()
    new: list[NodeEvent] = []
    with held_alone(bad_nodes_path()) as descriptor:
        seen = set(read_memory().seen)  # another command may have been faster
        for row in asked:
            if row.job_id is None or row.key not in seen:
                seen.add(row.key)
                new.append(row)
        if new:
            append_lines(descriptor, "".join(_line(row, now) for row in new).encode())
    return tuple(new)


def forget(hosts: Sequence[tuple[str, str]], now: float) -> None:
    """Let nothing count any more that is known of nodes, each a cluster's and a node's name.

    Raises:
        OutsideError: the file cannot be written.
    """
    rows = [_Line(cluster=cluster, host=host, when=now, forget=True) for cluster, host in hosts]
    with held_alone(bad_nodes_path()) as descriptor:
        append_lines(descriptor, "".join(map(_written, rows)).encode())


def _line(row: NodeEvent, now: float) -> str:
    # What is dated ahead, by a clock that was wrong, would count too long.
    return _written(
        _Line(
            cluster=row.cluster, host=row.host, when=min(row.when, now),
            what=in_line(row.what)[:_WHAT], words=in_line(row.words)[:_WORDS], job_id=row.job_id,
            restart=row.restart,
        )
    )  # fmt: skip


def _written(row: _Line) -> str:
    values = asdict(row)
    return json.dumps({key: values[key] for key in values if values[key] or key == "when"}) + "\n"
