"""What Slurm gave to jobs over some time: a row for each attempt, from one question to accounting.

sacct shows other users' jobs only where the site allows it (PrivateData in slurm.conf).
"""

import os
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache

from hpckit.errors import CommandError, RequestError
from hpckit.shell import Completed
from hpckit.slurm.client import ask, id_lists, is_answer, refusal
from hpckit.slurm.resized import goes_on, left_of
from hpckit.slurm.rows import (
    COLUMN,
    count_gpus,
    gpu_type,
    new_mark,
    parse_count,
    parse_tres,
)
from hpckit.slurm.states import JobState, is_finished, is_waiting, parse_state
from hpckit.slurm.usage_rows import cut_rows
from hpckit.units import parse_duration_s, parse_moment

# sacct's own words of a name that getpwnam(3) does not know.
_NOBODY = r"Invalid user id: (\S+)"
# By so much a node's clock may differ from Slurm's, whose moments are whole seconds.
APART_S = 60.0
# AdminComment and the job's name are free text: they come last, as `cut_rows` needs it.
_COLUMNS = (
    *("JobID", "User", "Account", "Partition", "State", "Submit", "Eligible", "Start", "End"),
    *("ElapsedRaw", "Suspended", "TimelimitRaw", "NNodes", "AllocTRES", "Cluster"),
    *("AdminComment", "JobName"),
)
# In a list of names a comma parts two, and sacct takes quotes away (22.05, slurm_addto_char_list).
_LONGEST_NAME = 256
# Who may know of an attempt.
SOURCES = ("accounting", "ledger")
# A hundred thousand jobs take sacct some seconds; a slow database takes more. Whoever asks has a
# patience, which is shorter.
_LIMIT_S = 86_400.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Allocation:
    """One attempt of a job that held nodes, and what it held. Moments are epoch seconds.

    Attributes:
        end: None while it runs.
        wait_s: from when it could start (its dependencies were met) until it did.
        gpus: None where its list of resources does not say.
        limit_s: its time limit; None: none, or not known.
        start_lost: accounting has lost the start, and `start` stands for it: the end, or the
            moment of submission of what goes on. `lost` finds the true one or leaves it out.
        first_start: when its attempt began, where this is a part of one that changed its size.
        elapsed_s: for how long it held its nodes, as Slurm says.
        suspended_s: for how long it was suspended, which Slurm does not count as held.
        cluster: the name of the cluster whose accounting has it.
        comment: AdminComment, where sites keep the record of Princeton's jobstats.
        known_by: `accounting`, or `ledger` where Slurm does not show it.
    """

    job_id: str
    user: str
    account: str
    partition: str
    name: str
    state: JobState
    submit: float | None
    start: float
    end: float | None
    wait_s: float | None
    nodes: int | None
    gpus: int | None
    gpu_type: str | None
    limit_s: int | None
    start_lost: bool = False
    first_start: float | None = None
    elapsed_s: int | None = None
    suspended_s: float = 0.0
    cluster: str | None = None
    comment: str = ""
    known_by: str = "accounting"

    @property
    def share_held(self) -> float:
        """The part of its time in which it held its nodes: less than 1 where it was suspended.

        When it was suspended, accounting does not say.
        """
        if not self.suspended_s:
            return 1.0
        if self.end is not None:
            whole = self.end - self.start
        elif self.elapsed_s is not None:
            whole = self.elapsed_s + self.suspended_s  # up to the moment at which Slurm was asked
        else:
            return 1.0
        return max(whole - self.suspended_s, 0.0) / whole if whole > 0 else 1.0

    @property
    def attempt_start(self) -> float:
        """When its attempt began: before it, where this is a part that follows another one."""
        return self.start if self.first_start is None else self.first_start

    @property
    def held_s(self) -> float:
        """For how long an attempt that is over held its nodes; 0 while it runs."""
        return 0.0 if self.end is None else (self.end - self.start) * self.share_held

    def overlaps(self, since: float, until: float) -> bool:
        """Say whether it held nodes in a time; or may have, where its start is lost."""
        if self.start_lost:
            begun = self.start if self.submit is None else self.submit
            return begun < until and (self.end is None or self.end > since)
        begin, end = self.held(since, until)
        return end > begin or (begin == end == self.start and since <= self.start < until)

    def held(self, since: float, until: float) -> tuple[float, float]:
        """Return the part of a time between its start and end; empty where there is none."""
        begin, end = max(self.start, since), min(until if self.end is None else self.end, until)
        return begin, max(begin, end)

    def begun(self, start: float, end: float | None) -> "Allocation | None":
        """Return it with the start and the end that it wrote itself; None: it is no wiser.

        What Slurm says of its end counts.
        """
        end = end if self.end is None and is_finished(self.state) else self.end
        if end is None and is_finished(self.state):
            return None
        start = start if end is None else min(start, end)
        # Slurm's own time of it is from the start that is not known.
        return replace(self, start=start, end=end, start_lost=False, elapsed_s=None)


def ask_allocations(
    since: float, until: float, users: Sequence[str] = (), accounts: Sequence[str] = ()
) -> list[Allocation]:
    """Ask accounting for every attempt that held nodes between two moments.

    Args:
        since: epoch seconds.
        until: the same.
        users: only theirs; none: all users'.
        accounts: only of these; none: of any.

    Raises:
        RequestError: a name is none, or nobody's.
        CommandError: there is no accounting, or it does not answer.
    """
    words = [f"--starttime={_moment(since)}", f"--endtime={_moment(until)}"]
    return [row for row in _ask(words, users, accounts) if row.overlaps(since, until)]


def ask_jobs(
    rows: Sequence[Allocation], users: Sequence[str], accounts: Sequence[str]
) -> list[Allocation]:
    """Ask accounting for the attempts of the jobs that some rows are of.

    Raises:
        RequestError, CommandError: as `ask_allocations`.
    """
    oldest = min(row.start if row.submit is None else row.submit for row in rows)
    ids = next(id_lists([row.job_id for row in rows]))
    return _ask([f"--starttime={_moment(oldest)}", f"--jobs={ids}"], users, accounts)


def _ask(words: Sequence[str], users: Sequence[str], accounts: Sequence[str]) -> list[Allocation]:
    mark = COLUMN + new_mark()
    argv = ["sacct", "--allocations", "--duplicates", "--noheader", "--parsable2"]
    argv += [f"--delimiter={mark}", f"--format={','.join(_COLUMNS)}", *words]
    argv.append(f"--user={_names(users)}" if users else "--allusers")
    argv += [f"--accounts={_names(accounts)}"] if accounts else []
    result = _answer(argv)
    found = list(parse_allocations(result.stdout, mark))
    if not (found or is_answer(result, rows=False) or _has_rows(result.stdout, mark)):
        raise refusal(result)
    return found


def _answer(argv: Sequence[str]) -> Completed:
    try:
        return ask(argv, env={**os.environ, "TZ": "UTC"}, timeout_s=_LIMIT_S)
    except CommandError as error:
        if unknown := re.search(_NOBODY, error.stderr):
            raise RequestError(
                f"--user {unknown[1]!r}: this machine knows no such user. Give a login name; jobs "
                "of a user who is gone are among those of --all."
            ) from error
        raise


def parse_allocations(text: str, mark: str) -> Iterator[Allocation]:
    """Read what sacct printed; jobs that held no node are left out."""
    for row in cut_rows(text, _COLUMNS, mark):
        start, end = parse_moment(row["Start"]), parse_moment(row["End"])
        submit, state = parse_moment(row["Submit"]), _state(row["State"])
        given = _given(row["AllocTRES"])
        # slurmdbd 22.05 at times writes over a start: what was given nodes has had one.
        lost = start is None and (end is not None or not is_waiting(state))
        start = (end or submit) if lost else start
        # A job that was cancelled in the queue may have a start, but got nothing.
        if start is None or not row["AllocTRES"]:
            continue
        first_start, elapsed_s = None, parse_count(row["ElapsedRaw"])
        if not lost and submit is not None and goes_on(submit, start):
            first_start, start = start, submit
            elapsed_s = left_of(elapsed_s, first_start, start)
        waited = not lost and first_start is None
        possible = parse_moment(row["Eligible"]) or submit if waited else None
        limit_min = parse_count(row["TimelimitRaw"])
        yield Allocation(
            job_id=row["JobID"],
            user=row["User"],
            account=row["Account"],
            cluster=row["Cluster"] or None,
            partition=row["Partition"],
            name=row["JobName"],
            state=state,
            submit=submit,
            start=start,
            start_lost=lost,
            end=end,
            wait_s=None if possible is None else max(start - possible, 0.0),
            nodes=parse_count(row["NNodes"]),
            gpus=given[0],
            gpu_type=given[1],
            limit_s=None if limit_min is None else limit_min * 60,
            first_start=first_start,
            elapsed_s=elapsed_s,
            suspended_s=parse_duration_s(row["Suspended"]) or 0.0,
            comment=row["AdminComment"] if "JS1:" in row["AdminComment"].upper() else "",
        )


@cache
def _given(text: str) -> tuple[int | None, str | None]:
    tres = parse_tres(text)
    return count_gpus(tres), gpu_type(tres)


_state = cache(parse_state)


def _has_rows(text: str, mark: str) -> bool:
    return next(cut_rows(text, _COLUMNS, mark), None) is not None


def _moment(seconds: float) -> str:
    """Write a moment as sacct reads it in UTC (sacct(1), --starttime).

    In the night in which clocks go back, an hour of this machine's time is there twice.
    """
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))


def _names(words: Sequence[str]) -> str:
    """Join names as sacct takes several; accounts may have spaces and letters of any language.

    Raises:
        RequestError: one cannot be a name.
    """
    for word in words:
        refused = f"{word!r} cannot be the name of a user or an account"
        if "," in word:
            raise RequestError(f"{refused}. Give the option once for each name.")
        if not word.strip():
            raise RequestError(f"{refused}: it is empty.")
        odd = word != word.strip() or word.startswith("-") or not word.isprintable()
        if odd or not {*"\"'"}.isdisjoint(word) or len(word) > _LONGEST_NAME:
            raise RequestError(f"{refused}. Give it as sacctmgr shows it.")
    return ",".join(words)
