"""Which runs of many are meant: by state, age, name and user; the same words in every place."""

import time
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from hpckit.api.run import Run, handle
from hpckit.api.run_list import RunList
from hpckit.api.run_status import status_of
from hpckit.errors import HpckitError, RequestError
from hpckit.frozen import frozen
from hpckit.job_spec.arguments import argument, several
from hpckit.run_folders.find import array_key, newest_runs
from hpckit.run_folders.runs import DamagedRun
from hpckit.run_folders.runs import Run as RunFolder
from hpckit.slurm.states import JobState, parse_state
from hpckit.units import parse_past

if TYPE_CHECKING:
    from datetime import date, timedelta

    from hpckit.submission.status import RunStatus


@frozen(kw_only=True)
class Choice:
    """Which runs of a folder are meant; see `runs` for each word."""

    states: tuple[JobState, ...] = ()
    since: float = 0.0
    name: str | None = None
    user: str | None = None
    active: bool = False

    @classmethod
    def of(
        cls,
        *,
        state: str | Sequence[str] | None = None,
        since: "str | float | date | timedelta | None" = None,
        name: str | None = None,
        user: str | None = None,
        active: bool = False,
    ) -> "Choice":
        """Read the words of a choice.

        Raises:
            RequestError: a state, age or day is not one.
        """
        return cls(
            states=parse_states(state),
            since=0.0 if since is None else parse_past(since, time.time()),
            name=argument(str | None, name, "name"),
            user=argument(str | None, user, "user"),
            active=active,
        )

    @property
    def selects(self) -> bool:
        """Whether it may leave a run out."""
        return self != Choice()

    def among(self, runs: Sequence[Run], limit: int | None = None) -> "list[Chosen]":
        """Return the runs that are meant; Slurm is asked, once, where their states decide."""
        meant = [run for run in runs if self._means(run)]
        if not self.states and not self.active:
            return [Chosen(run=run) for run in meant[:limit]]
        found = zip(meant, status_of(meant), strict=True)
        rows = [Chosen(run=run, status=status) for run, status in found if self._is_in(status)]
        return rows[:limit]

    def _means(self, run: Run) -> bool:
        if run.submitted_at < self.since:
            return False
        if self.user is not None and owner_of(run) != self.user:
            return False
        return self.name is None or run.name == self.name or fnmatchcase(run.name, self.name)

    def _is_in(self, status: "RunStatus") -> bool:
        if self.active and status.finished:
            return False
        return not self.states or status.state in self.states


def owner_of(run: Run | RunFolder) -> str | None:
    """Return whose a run is; None: it was removed since."""
    try:
        return run.owner
    except (OSError, HpckitError):
        return None


@frozen(kw_only=True)
class Chosen:
    """A run that is meant, and its status where that was asked for."""

    run: Run
    status: "RunStatus | None" = None


@frozen(kw_only=True)
class Listed:
    """What `hpckit jobs` lists.

    Attributes:
        found: the runs that are meant, newest first, with their states.
        runs: those that were looked at; its `damaged` cannot be read.
        more: whether `limit` left some out.
    """

    found: "list[RunStatus]"
    runs: RunList
    more: bool


def listed(
    root: Path,
    chosen: Choice,
    limit: int | None,
    *,
    arrays_as_one: bool = False,
    here_only: bool = False,
) -> Listed:
    """Return the newest runs that are meant, `limit` of them; Slurm is asked once for all.

    `arrays_as_one` counts all tasks of an array as one; `here_only` leaves the index out.
    """
    bad: list[DamagedRun] = []
    most = None if chosen.selects else limit
    folders = newest_runs(root, most, bad, arrays_as_one=arrays_as_one, here_only=here_only)
    every = RunList(map(handle, folders), bad)
    rows = chosen.among(every)
    key = array_key if arrays_as_one else str
    keys = set(list(dict.fromkeys(key(row.run.dir) for row in rows))[:limit])
    kept = [row for row in rows if key(row.run.dir) in keys]
    known = [row.status for row in kept if row.status]
    return Listed(
        found=known or status_of([row.run for row in kept]),
        runs=every,
        more=len(kept) < len(rows) or (len(keys) == limit and not chosen.selects),
    )


def _state(word: str) -> JobState:
    state = parse_state(word)
    if state is JobState.UNKNOWN and word.upper() != "UNKNOWN":
        raise RequestError(f"{word!r} is not a state of Slurm's: give FAILED, RUNNING or the like.")
    return state


def parse_states(words: str | Sequence[str] | None) -> tuple[JobState, ...]:
    """Return the states of one word, of several with commas between them, or of a list.

    Raises:
        RequestError: one is no state of Slurm's.
    """
    rows = () if words is None else several(words, "state")
    return tuple(_state(word.strip()) for row in rows for word in row.split(","))
