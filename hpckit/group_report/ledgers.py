"""What ledgers know of jobs: figures of those that accounting shows, and jobs it does not show."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from hpckit.errors import OutsideError
from hpckit.group_report.allocations import APART_S, Allocation
from hpckit.group_report.measured import Measured
from hpckit.run_folders.ledger import Entry, of_cluster, read_ledger
from hpckit.slurm.states import parse_state
from hpckit.text import counted, listed


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """Whose jobs a report is of, and of which time. Moments are epoch seconds."""

    since: float
    until: float
    users: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()

    def wants(self, entry: Entry) -> bool:
        """Say whether a report is of this attempt; capitals of an account mean small letters."""
        account, accounts = (entry.account or "").lower(), [name.lower() for name in self.accounts]
        return (
            (not self.users or entry.user in self.users)
            and (not accounts or account in accounts)
            and entry.start < self.until
            and entry.end > self.since
        )


@dataclass
class FromLedgers:
    """What ledgers add to accounting.

    Attributes:
        rows: attempts that accounting does not show.
        measured: figures of these and of others, by job and start.
        told: attempts whose start accounting has lost, or whose GPUs it does not count, with those
            of their lines.
        notes: what a reader should know of them.
    """

    rows: list[Allocation] = field(default_factory=list)
    measured: dict[tuple[str, float], Measured] = field(default_factory=dict)
    told: dict[Allocation, Allocation] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def from_ledgers(
    folders: Sequence[Path],
    asked: Asked,
    rows: Sequence[Allocation],
    cluster: str | None,
    *,
    hide_names: bool = False,
) -> FromLedgers:
    """Read ledgers; an attempt that accounting has as well is not counted again.

    Args:
        folders: of ledgers.
        asked: whose attempts, and when.
        rows: what accounting shows of them.
        cluster: the name of the one that `rows` are of; None: not known.
        hide_names: name no users, folders and files in notes.
    """
    found, known = FromLedgers(), _by_job(rows) if folders else {}
    entries: dict[tuple[str | None, str, int, str], Entry] = {}
    for folder in folders:
        try:
            read = read_ledger(folder, asked.since, asked.users)
        except OutsideError as error:
            found.notes.append("a ledger cannot be read" if hide_names else str(error).rstrip("."))
            continue
        found.notes += read.notes(hide_names=hide_names)
        mine = of_cluster(read.entries, cluster)
        wanted = (row for row in mine if asked.wants(row))
        entries |= {(row.cluster, row.job_id, row.restart, row.user): row for row in wanted}
    found.notes += _mixed({key[0] for key in entries if cluster is None})
    wrong, types = 0, {row.gpu_type for row in rows if row.gpu_type}
    for entry in entries.values():
        same = known.get(entry.job_id, ())
        if any(row.user != entry.user for row in same):
            wrong += 1
        elif row := _same_attempt(entry, same):
            if (wiser := _told(entry, row)) is not row:
                found.told[row] = row = wiser
            for part in _parts(row, same):
                found.measured[part.job_id, part.start] = _measured(entry, part)
        else:
            found.rows.append(made := _row(entry, types))
            found.measured[made.job_id, made.start] = _measured(entry, made)
    found.notes += _notes(found.rows, wrong, hide_names=hide_names)
    return found


def _mixed(clusters: set[str | None]) -> Iterator[str]:
    """Say that attempts of several clusters count, as nobody tells which one this is."""
    names = sorted(name for name in clusters if name)
    if len(names) > 1:
        yield (
            f"attempts in the ledger on clusters {listed(names)} count, of each of them: Slurm's "
            "controller does not say which cluster this is"
        )


def _by_job(rows: Iterable[Allocation]) -> Mapping[str, list[Allocation]]:
    known: dict[str, list[Allocation]] = {}
    for row in rows:
        known.setdefault(row.job_id, []).append(row)
    return known


def _same_attempt(entry: Entry, rows: Iterable[Allocation]) -> Allocation | None:
    """Return the attempt of which a line is: Slurm counts jobs anew some day."""
    near = (
        row
        for row in rows
        if _earliest(row) - APART_S <= entry.start
        and (row.end is None or entry.start <= row.end + APART_S)
    )
    return min(near, key=lambda row: abs(entry.start - row.start), default=None)


def _earliest(row: Allocation) -> float:
    return row.submit if row.start_lost and row.submit is not None else row.attempt_start


def _parts(row: Allocation, rows: Iterable[Allocation]) -> Iterator[Allocation]:
    """Yield an attempt; of one that changed its size all parts, for a line is of them together."""
    yield row
    if row.first_start is not None:
        yield from (one for one in rows if one.first_start == row.first_start and one is not row)


def _told(entry: Entry, row: Allocation) -> Allocation:
    """Return an attempt with what accounting lacks and its line has."""
    if row.start_lost:
        row = row.begun(entry.start, entry.end) or row
    counts = row.gpus is not None or row.first_start is not None or not entry.gpus
    return row if counts else replace(row, gpus=entry.gpus)


def _measured(entry: Entry, row: Allocation) -> Measured:
    used = entry.utilization_percent
    return Measured(
        # A line has all digits of a sum: 49.99999999999999 is in the class that 50 begins.
        utilization_percent=None if used is None else round(used, 6),
        energy_joules=entry.energy_joules if row.first_start is None else None,
        workload=entry.workload,
        template=entry.template,
        advice=entry.advice,
    )


def _row(entry: Entry, types: Collection[str]) -> Allocation:
    return Allocation(
        job_id=entry.job_id,
        user=entry.user,
        account=entry.account or "",
        partition=entry.partition or "",
        name=entry.name or "",
        state=parse_state(entry.state),
        submit=entry.submit,
        start=entry.start,
        end=entry.end,
        wait_s=None,  # it does not know what it waited for
        nodes=entry.nodes,
        gpus=entry.gpus,
        gpu_type=_slurms_type(entry.gpu_type or "", types) or None,
        limit_s=entry.limit_s,
        known_by="ledger",
    )


def _slurms_type(name: str, types: Collection[str]) -> str:
    """Return `h200` for `NVIDIA H200`, if jobs here have GPUs of that type; else the name itself.

    A job that asked for no type has the name that the driver gives.
    """
    fitting = [row for row in types if _words(row) <= _words(name)]
    longest = max((len(_words(row)) for row in fitting), default=0)
    found = [row for row in fitting if len(_words(row)) == longest]
    return found[0] if len(found) == 1 else name


def _words(name: str) -> set[str]:
    return set(re.findall(r"[a-z0-9]+", name.lower()))


def _notes(rows: Sequence[Allocation], wrong: int, *, hide_names: bool) -> Iterator[str]:
    counts = Counter(row.user for row in rows)
    if counts:
        names = ", ".join(f"{name} ({count})" for name, count in counts.most_common(5))
        more = f" and {counted(len(counts) - 5, 'more user')}" if len(counts) > 5 else ""
        whose = counted(len(counts), "user") if hide_names else f"{names}{more}"
        are, none = ("is", "does not show it") if len(rows) == 1 else ("are", "shows none of them")
        yield (
            f"{counted(len(rows), 'attempt')} {are} known from the ledger alone, Slurm {none} "
            f"here: of {whose}"
        )
    if wrong:
        lines, whose = ("line", "its job is") if wrong == 1 else ("lines", "their jobs are")
        yield f"ledger: {wrong} {lines} left out: Slurm says that {whose} another user's"
