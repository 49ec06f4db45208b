"""`hpckit.report`: what the GPUs of a user, an account or a whole cluster did over some time."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpckit.api.lookup import runs_folder
from hpckit.collections import search_path
from hpckit.documents import nearest
from hpckit.errors import RequestError
from hpckit.group_report.absent import absent_notes
from hpckit.group_report.allocations import SOURCES, Allocation
from hpckit.group_report.cache import allocations
from hpckit.group_report.ledgers import Asked, from_ledgers
from hpckit.group_report.lost import by_queue, by_ranks, end_notes, lost_notes
from hpckit.group_report.measured import Figures, Measured, as_planned, own_runs
from hpckit.group_report.parts import joined
from hpckit.group_report.preempted import as_known
from hpckit.group_report.result import Report, wasteful_job
from hpckit.group_report.schema import json_schema
from hpckit.group_report.totals import KINDS, Use, grouped, most_wasteful, total
from hpckit.job_spec.arguments import PATH, checked, maybe, several
from hpckit.owners import login, user_name
from hpckit.sites import find_site
from hpckit.slurm.client import own_patience_s, patience
from hpckit.slurm.cluster import counts_gpus, keeps_accounting, told_config
from hpckit.text import counted
from hpckit.units import parse_past
from hpckit.values import Size

if TYPE_CHECKING:
    from datetime import date, timedelta

__all__ = ["Report", "report", "report_schema"]
# sacct may take long over a year of a large cluster, and nobody waits for anything else. One
# question gets two thirds of it; $HPCKIT_PATIENCE may give more.
_PATIENCE_S = 300.0
_LEDGER_ALONE = (
    "this cluster keeps no accounting, so the report is of the ledger's lines alone. Jobs of other "
    "tools, and those that still run, have none"
)


@checked(
    everyone=bool, by=str | None, hide_names=bool, wasteful=Size, site=str | None, runs=maybe(PATH)
)
def report(
    *,
    users: str | Sequence[str] = (),
    accounts: str | Sequence[str] = (),
    everyone: bool = False,
    since: "str | float | date | timedelta" = "30d",
    until: "str | float | date | timedelta | None" = None,
    by: str | None = None,
    hide_names: bool = False,
    wasteful: int = 10,
    site: str | None = None,
    runs: Path | str | None = None,
) -> Report:
    """Return what GPUs were held and used, and what was lost: your own jobs', unless you say whose.

    Slurm shows others' jobs only where the site allows it. Utilization is known of your own runs of
    hpckit, of jobs in a ledger, and where the site keeps the record of Princeton's jobstats.

    Args:
        users: jobs of this user, or of these.
        accounts: jobs of this account, or of these, of any user.
        everyone: jobs of all users.
        since: an age (`12h`, `30d`, `4w`, a timedelta), a day (`2026-11-01`), a datetime (without
            a time zone: in this machine's time), or epoch seconds.
        until: the same; now by default.
        by: week, day, month, user, account, partition, gpu, state, name, workload or template; by
            default week for one user, user for several.
        hide_names: write user 1, job 1 for names of users and jobs.
        wasteful: how many jobs to list that wasted most.
        site: whose costs and ledger count; the site found here by default.
        runs: the folder of runs.

    Raises:
        RequestError: a word or a name is wrong. CommandError: accounting does not answer.
    """
    asked = _asked(
        several(users, "users"), several(accounts, "accounts"), since, until, everyone=everyone
    )
    kind = by or ("week" if len(asked.users) == 1 else "user")
    if kind not in KINDS:
        raise RequestError(f"by {kind!r} is unknown. {nearest(kind, KINDS)}")
    chosen = find_site(site, search_path())
    folder = runs_folder(None if runs is None else Path(runs))
    uses, notes = _uses(asked, folder, chosen.ledgers(search_path()), hide_names=hide_names)
    named = list(_hidden(uses)) if hide_names else uses
    groups = grouped(named, kind)
    return Report(
        who=_who(asked, hide_names=hide_names),
        since=asked.since,
        until=asked.until,
        by=kind,
        groups=groups,
        total=total(named),
        wasteful=tuple(wasteful_job(*row) for row in most_wasteful(named, wasteful)),
        weeks=groups if kind == "week" else grouped(named, "week"),
        costs=chosen.costs,
        cost_source=chosen.name if hide_names else str(chosen.path),
        sources={name: sum(use.row.known_by == name for use in uses) for name in SOURCES},
        notes=tuple(notes),
    )


def report_schema() -> dict[str, Any]:
    """Return the JSON Schema of `Report.document()`, which `hpckit report --json` prints."""
    return json_schema()


def _asked(
    users: Sequence[str],
    accounts: Sequence[str],
    since: "str | float | date | timedelta",
    until: "str | float | date | timedelta | None",
    *,
    everyone: bool,
) -> Asked:
    """Return whose jobs of which time are meant: the user's own, unless another is named.

    Raises:
        RequestError: a word is wrong.
    """
    now = time.time()
    begin = parse_past(since, now, "since")
    end = now if until is None else min(parse_past(until, now, "until"), now)
    if begin >= end:
        raise RequestError(
            f"since {since} is not before until {'now' if until is None else until}. Give an "
            "earlier one."
        )
    if everyone and users:
        raise RequestError("Give users or everyone (--user or --all), not both.")
    mine = not (users or accounts or everyone)
    whom = (user_name(),) if mine else tuple(dict.fromkeys(map(_login, users)))
    return Asked(since=begin, until=end, users=whom, accounts=tuple(accounts))


def _login(word: str) -> str:
    """Return a user's login name; sacct takes numbers as well, but ledgers know names alone."""
    try:
        return (login(int(word)) if word.isdecimal() else None) or word
    except OverflowError:
        return word


def _uses(
    asked: Asked, runs: Path, ledgers: Sequence[str], *, hide_names: bool
) -> tuple[list[Use], list[str]]:
    with patience(max(_PATIENCE_S, own_patience_s()), anew=True):
        with patience(own_patience_s()):  # accounting may answer while the controller does not
            told = told_config()
        cluster = told.get("ClusterName") or None
        rows: list[Allocation] = []
        kept = [_LEDGER_ALONE]
        if keeps_accounting(told) or not ledgers:
            rows, kept = allocations(asked, cluster, time.time())
    counted_gpus = counts_gpus(told)
    if not counted_gpus:
        rows = [replace(row, gpus=row.gpus or None) for row in rows]
    cluster = cluster or next((row.cluster for row in rows if row.cluster), None)
    ends = by_queue(joined(rows))
    rows = list(ends.rows)
    lost = [row for row in rows if row.start_lost]
    if lost:
        rows = by_ranks(rows, own_runs(lost, runs))
    more = from_ledgers(list(map(Path, ledgers)), asked, rows, cluster, hide_names=hide_names)
    rows = [*(more.told.get(row, row) for row in rows), *more.rows]
    left = [row for row in rows if row.start_lost]
    rows = [row for row in rows if not row.start_lost and row.overlaps(asked.since, asked.until)]
    own = own_runs(rows, runs)
    rows = [as_known(as_planned(row, own), own) for row in rows]
    figures = Figures(own, more.measured)
    uses = [_use(row, figures.of(row), asked.since, asked.until) for row in rows]
    absent = absent_notes(asked, [*rows, *left, *ends.lost], hide_names=hide_names)
    missing = [
        *lost_notes(len(lost) - len(left), left, hide_names=hide_names),
        *end_notes(ends, more.rows, hide_names=hide_names),
    ]
    unknown = _notes(rows, counted_gpus=counted_gpus)
    if hide_names:  # why may name a home
        kept = [note.partition(":")[0] for note in kept]
    return uses, [*absent, *unknown, *missing, *kept, *more.notes]


def _use(row: Allocation, measured: Measured, since: float, until: float) -> Use:
    begin, end = row.held(since, until)
    return Use(row=row, measured=measured, begin=begin, end=end)


def _who(asked: Asked, *, hide_names: bool) -> str:
    users, accounts = asked.users, asked.accounts
    several = counted(len(users), "user") if hide_names else ", ".join(users)
    of = [several] if users else []
    of += [f"account {', '.join(accounts)}"] if accounts else []
    return " in ".join(of) or "all users"


def _hidden(uses: Sequence[Use]) -> Iterator[Use]:
    """Number users and jobs, those with most GPU-hours first, in place of their names."""
    users = {name: f"user {at}" for at, name in enumerate(grouped(uses, "user"), 1)}
    jobs: dict[str, str] = {}
    for use in uses:
        job = jobs.setdefault(use.row.job_id, f"job {len(jobs) + 1}")
        row = replace(use.row, user=users[use.row.user or "-"], job_id=job, name="-", comment="")
        # An advice may name hosts, paths and the job itself.
        measured = replace(use.measured, workload=None, advice=None)
        yield replace(use, row=row, measured=measured)


def _notes(rows: Sequence[Allocation], *, counted_gpus: bool) -> Iterator[str]:
    unknown = sum(row.gpus is None for row in rows)
    if unknown:
        they, count = ("it", "counts") if unknown == 1 else ("they", "count")
        attempts = counted(unknown, "attempt")
        why = "" if counted_gpus else "; AccountingStorageTRES in slurm.conf has no gres/gpu"
        yield (
            f"of {attempts} Slurm does not say how many GPUs {they} had: {they} {count} as "
            f"none{why}"
        )
