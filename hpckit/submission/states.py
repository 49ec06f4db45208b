"""What became of runs: squeue, then sacct, then the rank files. Never finished when unknown."""

import time
from collections.abc import Sequence
from dataclasses import fields, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpckit.frozen import frozen
from hpckit.launchers import launched_by
from hpckit.metrics import Progress, progress_of
from hpckit.ranks import RankRecord, first_failure, never_met, read_ranks
from hpckit.runs import Run
from hpckit.schedulers.base import Answers, Scheduler
from hpckit.schedulers.local.state import cancel_asked
from hpckit.slurm.reasons import NEVER, code_of
from hpckit.slurm.states import (
    JobRecord,
    JobState,
    SlurmSource,
    exit_words,
    is_finished,
    is_waiting,
)
from hpckit.submission import verdict
from hpckit.submission.verdict import (
    exit_code_of,
    longest_s,
    most_restarts,
    of_attempt,
    restarts_of,
)
from hpckit.text import in_line

if TYPE_CHECKING:
    from hpckit.node_memory import NodeEvent
    from hpckit.restarts import EarlierEnd

_SAID_OF_RANKS = ("rank", "host", "exit_code", "error", "device", "restart")


@frozen(kw_only=True, slots=False)
class RunStatus:
    """State of one run, in Slurm's words, and where it was learned.

    `elsewhere`: this Slurm has another job with its id, or nothing is here that could say what
    became of a local run. `damaged`: which of the run's files cannot be read, and why.

    `silence`: why Slurm's queue did not say what it is now, or accounting what became of it.
    `left_queue`: the queue answered, and no longer lists it.

    `reason` is Slurm's code while pending, `reason_text` the same in plain words, or what stands in
    the way of knowing. `expected_start` and `start_time` are in epoch seconds.
    """

    run: Run
    state: JobState
    source: str
    reason: str | None = None
    reason_text: str | None = None
    nodes: tuple[str, ...] = ()
    elapsed_s: float | None = None
    start_time: float | None = None
    time_limit_min: int | None = None
    expected_start: float | None = None
    restarts: int | None = None
    exit_code: int | None = None
    ranks: tuple[RankRecord, ...] = ()
    elsewhere: bool = False
    silence: str | None = None
    left_queue: bool = False
    damaged: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """Name the job, and what is known of it but its ranks."""
        rows = ((row.name, getattr(self, row.name)) for row in fields(self)[1:])
        known = {name: value for name, value in rows if value and name != "ranks"}
        said = (f"{name}={value!r}" for name, value in known.items() if name != "state")
        return f"RunStatus({self.run.job_id!r}, {str(self.state)!r}, {', '.join(said)})"

    @property
    def finished(self) -> bool:
        """Whether the job is over for good."""
        return is_finished(self.state)

    @property
    def by_accounting(self) -> bool:
        """Whether its exit status is accounting's word, and no rank's own."""
        return self.source == SlurmSource.SACCT and first_failure(self.ranks) is None

    @property
    def exit_words(self) -> str:
        """Its exit status in words, and what it may also have been; empty if there is none."""
        if self.exit_code is None:
            return ""
        return exit_words(self.exit_code, by_accounting=self.by_accounting)

    @property
    def unanswered(self) -> bool:
        """Whether a service that would know more of it did not answer."""
        return self.silence is not None

    @property
    def waiting(self) -> bool:
        """Whether the job is in the queue, or going back to it, and holds no node."""
        return is_waiting(self.state)

    @property
    def never_starts(self) -> bool:
        """Whether it waits for what cannot come any more."""
        return self.waiting and code_of(self.reason) == NEVER

    @property
    def notes(self) -> tuple[str, ...]:
        """What people should know of a run that Slurm has no word for."""
        strategy = str(self.run.record["plan"]["strategy"])
        said = never_met(strategy, self.run.ranks, self.ranks)
        rest = [said] if said else []
        return (*self._session(), *self._retries(), *rest, *self.node_notes)

    @property
    def speaks_of_nodes(self) -> bool:
        """Whether a look at the run's logs may tell of a bad node, by what is known already."""
        if self.run.scheduler.one_machine:
            return False
        if self.restarts or any(row.restart for row in self.ranks):
            return True
        lost = self.state in (JobState.NODE_FAIL, JobState.BOOT_FAIL)
        told = lost or any(row.fault or row.ended is None for row in self.ranks)
        return told and self.finished and not self.good

    def node_events(self) -> "list[NodeEvent]":
        """Return what its attempts tell of bad nodes; see `hpckit.node_events`."""
        return self._node_events

    @cached_property
    def _node_events(self) -> "list[NodeEvent]":
        if not self.speaks_of_nodes:
            return []
        from hpckit.node_events import events_of  # noqa: PLC0415  # most runs tell nothing

        return events_of(self.run, self.ranks, self.state, self.earlier())

    @property
    def node_notes(self) -> list[str]:
        """What people should know of its bad nodes, a line each."""
        whats: dict[str, list[str]] = {}
        for row in self.node_events():
            whats.setdefault(row.host, []).append(row.what)
        how = f"Leave it out: hpckit resubmit {self.run.job_id} --exclude-bad"
        return [
            in_line(f"node {host} looked bad: {', '.join(dict.fromkeys(what))}. {how}")
            for host, what in whats.items()
        ]

    def _session(self) -> list[str]:
        if not self.run.record.get("session"):
            return []
        from hpckit.session.notes import session_notes  # noqa: PLC0415  # few runs are sessions

        run, over = self.run, self.finished
        return session_notes(run.record, run.dir, over=over, waiting=self.waiting)

    def _retries(self) -> list[str]:
        record = self.run.record
        if not (record.get("retry") or record["request"].get("retry")):
            return []
        from hpckit.failures import why  # noqa: PLC0415  # few runs have rules
        from hpckit.submission.retry import retry_lines  # noqa: PLC0415

        failed = self.finished and not self.good
        cause = why(self.run, self.ranks, self.state) if failed else None
        return retry_lines(self.run, self.state, cause)

    @property
    def good(self) -> bool:
        """Whether it ended well."""
        return self.state is JobState.COMPLETED

    @property
    def chain(self) -> str | None:
        """Which of a chain's jobs the newest attempt is, in words; None: it is no chain."""
        jobs = self.run.jobs
        if len(jobs) == 1:
            return None
        from hpckit.causes import listed  # noqa: PLC0415  # few runs are chains

        link = min(self.restarts or 0, len(jobs) - 1)
        return f"job {jobs[link]} is attempt {link + 1} of {len(jobs)} ({listed(jobs)})"

    @property
    def launched_by(self) -> str | None:
        """The launcher's name; None where another stands in for it on one machine."""
        name = self.run.record["plan"]["launcher"]
        return launched_by(name, one_machine=self.run.scheduler.one_machine)

    def why(self) -> list[tuple[str, str]]:
        """Return what ended it: rows such as `why`, `rank 1`, `stopped`, each with a text.

        Empty while it lasts, and when it ended well. `Run.errors` has the traceback.
        """
        from hpckit.failures import cause_rows  # noqa: PLC0415  # lists of runs ask no reasons

        return cause_rows(self.run, self.ranks, self.state)

    def earlier(self) -> "list[EarlierEnd]":
        """Return how the attempts before this one ended, oldest first; see `hpckit.restarts`."""
        return self._earlier

    @cached_property
    def _earlier(self) -> "list[EarlierEnd]":
        if not self.restarts and not any(row.restart for row in self.ranks):
            return []
        from hpckit.restarts import earlier_ends  # noqa: PLC0415  # most jobs have one attempt

        return earlier_ends(self.run, self.restarts)

    def progress(self) -> Progress | None:
        """Return how far the script is by what it logged last; None: it has logged nothing.

        Raises:
            DamagedRunError: what it logs to cannot be read.
        """
        return progress_of(self.run.dir)

    def document(self) -> dict[str, Any]:
        """Return what `hpckit status --json` prints of it."""
        return {
            "job_id": self.run.job_id,
            "run_id": self.run.run_id,
            "state": str(self.state),
            "reason": self.reason,
            "reason_text": self.reason_text,
            "nodes": list(self.nodes),
            "elapsed_s": None if self.elapsed_s is None else round(self.elapsed_s, 1),
            "restarts": self.restarts,
            "chain": list(self.run.jobs) if len(self.run.jobs) > 1 else None,
            "earlier_attempts": [
                {"restart": row.restart, "hosts": list(row.hosts), "why": row.why}
                for row in self.earlier()
            ],
            "exit_code": self.exit_code,
            "run_dir": str(self.run.dir),
            "executor": self.run.executor,
            "source": self.source,
            "expected_start": self.expected_start,
            "ranks": [
                {name: getattr(rank, name) for name in _SAID_OF_RANKS} for rank in self.ranks
            ],
            "damaged": list(self.damaged),
            "bad_nodes": [
                {"host": row.host, "what": row.what, "restart": row.restart}
                for row in self.node_events()
            ],
            "notes": list(self.notes),
        }


def by_scheduler(runs: Sequence[Run]) -> dict[Scheduler, list[Run]]:
    """Return runs by who queued them."""
    found: dict[Scheduler, list[Run]] = {}
    for run in runs:
        found.setdefault(run.scheduler, []).append(run)
    return found


def statuses(runs: Sequence[Run]) -> list[RunStatus]:
    """Return the status of every run; each scheduler is asked once, for all that it has."""
    said = {row: row.query(its) for row, its in by_scheduler(runs).items()}
    return [_status(run, said[run.scheduler]) for run in runs]


def _status(run: Run, said: Answers) -> RunStatus:
    damaged: list[str] = []
    ranks = tuple(read_ranks(run.dir, damaged))
    damaged += said.damaged.get(run.run_id, ())
    listed = said.queue and any(job in said.records for job in run.jobs)
    silent = bool(said.trouble) and not listed
    status = replace(
        _told(run, ranks, said),
        silence="; ".join(said.trouble) if silent else None,
        left_queue=_has_left(run, said),
    )
    if status.state is JobState.RUNNING and not status.reason_text:
        words = verdict.straggling(status.ranks, run.ranks, time.time())
        status = replace(status, reason_text=words)
    return replace(status, damaged=tuple(damaged))


def _has_left(run: Run, said: Answers) -> bool:
    """Say whether the queue answered and does not list a run's job; a local run has none."""
    record = _record(run, said)
    unlisted = record is None or record.source == SlurmSource.SACCT
    return said.queue and unlisted and run.scheduler.accounting


def _told(run: Run, ranks: tuple[RankRecord, ...], said: Answers) -> RunStatus:
    if why := said.lost.get(run.run_id):
        status = _inferred(run, ranks, Answers(trouble=(why,)))
        return replace(status, elsewhere=not status.finished)
    record = _record(run, said)
    if record is None:
        return _inferred(run, ranks, said)
    if _has_left(run, said) and run.mine and (why := verdict.outdated(record, ranks)):
        return _inferred(run, ranks, replace(said, trouble=(*said.trouble, why)))
    status = _as_recorded(run, record, ranks)
    if not said.queue:
        return _without_queue(status, record, said)
    # On one machine no file comes late.
    ended = None if run.scheduler.one_machine else record.end_time
    return _completed(status, ended) if status.good else status


def _record(run: Run, said: Answers) -> JobRecord | None:
    """Return what is known of a run's job; of a chain's, of the one that speaks for all."""
    if len(run.jobs) == 1:
        return said.records.get(run.job_id)
    from hpckit.submission.chain import record_of  # noqa: PLC0415  # few runs are chains

    return record_of(run, said.records)


def _as_recorded(run: Run, record: JobRecord, ranks: tuple[RankRecord, ...]) -> RunStatus:
    waiting = is_waiting(record.state)
    restarts, ranks = restarts_of(record, ranks), of_attempt(run, record, ranks)
    return RunStatus(
        run=run,
        state=record.state,
        source=str(record.source),
        reason=record.reason,
        reason_text=_why(run, record, ranks, restarts),
        nodes=_nodes(run, record, ranks),
        elapsed_s=record.elapsed_s,
        start_time=None if waiting else record.start_time,
        time_limit_min=record.time_limit_min,
        expected_start=record.start_time if waiting else None,
        restarts=restarts,
        exit_code=exit_code_of(record, ranks),
        ranks=ranks,
    )


def _nodes(run: Run, record: JobRecord, ranks: tuple[RankRecord, ...]) -> tuple[str, ...]:
    """Return an attempt's nodes: of a job that ends, squeue names those alone that have not yet."""
    named = record.nodes or ()
    if not named or len(named) >= int(run.record["plan"]["nodes"]):
        return named
    return tuple(dict.fromkeys((*(row.node or row.host for row in ranks), *named)))


def _why(
    run: Run, record: JobRecord, ranks: tuple[RankRecord, ...], restarts: int | None
) -> str | None:
    """Say why a job waits, or was taken away for good."""
    if record.reason:
        return run.scheduler.explain(run, record)
    if record.state not in (JobState.TIMEOUT, JobState.PREEMPTED, JobState.FAILED):
        return None
    from hpckit.stop_marks import NO_CHECKPOINT, STOPPED, marks, marks_of  # noqa: PLC0415

    words = marks(marks_of(run.dir, 0), restarts or 0)
    early = not words.isdisjoint({STOPPED, NO_CHECKPOINT})
    told = verdict.ended_when_told(record.state, ranks, run, restarts, early=early)
    if record.state is JobState.FAILED and not told:
        return None
    return verdict.taken_away(
        record.state,
        time_limit_min=record.time_limit_min,
        restarts=restarts,
        most=most_restarts(run),
        option="--chain" if len(run.jobs) > 1 else "--max-requeues",
        no_checkpoint=NO_CHECKPOINT in words,
    )


def _without_queue(status: RunStatus, record: JobRecord, said: Answers) -> RunStatus:
    """Return what accounting alone tells: of an attempt that another may follow, it is no end."""
    if not status.finished:
        return replace(status, reason_text=f"as accounting last knew it; {_first(said)}")
    doubt = verdict.doubt_of_end(record, status.ranks, most_restarts(status.run))
    if doubt is None:
        return _completed(status, record.end_time) if status.good else status
    why = f"last seen {status.state} by accounting, but {doubt}; {_first(said)}"
    return replace(status, state=JobState.UNKNOWN, reason_text=why, exit_code=None)


def _first(said: Answers) -> str:
    return next(iter(said.trouble), "the queue did not answer")


def _completed(status: RunStatus, ended: float | None) -> RunStatus:
    """Return a status that calls a run COMPLETED, if its ranks agree; else what they make of it.

    `ended` is when, None where its files cannot come late.
    """
    wrong = verdict.contradiction(
        status.ranks, status.run.ranks, lambda: _never_begun(status.run.dir)
    )
    if wrong is None:
        return status
    said = status.run.scheduler.says
    if verdict.may_be_late(status.ranks, ended, time.time()):
        return replace(
            status,
            state=JobState.COMPLETING,
            reason_text=f"{said} says COMPLETED, and {wrong}: it may come late",
            exit_code=None,
        )
    failed = first_failure(list(status.ranks))
    return replace(
        status,
        state=JobState.FAILED,
        source="ranks",
        reason_text=f"{said} says COMPLETED, but {wrong}",
        exit_code=failed.exit_code if failed else None,
    )


def _never_begun(folder: Path) -> str | None:
    from hpckit.failures import never_begun  # noqa: PLC0415  # few that end well have no ranks

    return never_begun(folder)


def _unknown(run: Run) -> str:
    if run.scheduler.accounting:
        return "Slurm no longer knows this job, and accounting has no record of it"
    return f"{run.executor} no longer knows this job"


def _inferred(run: Run, ranks: tuple[RankRecord, ...], said: Answers) -> RunStatus:
    """Judge by the rank files alone: over when every rank of the last attempt has ended."""
    ended = verdict.all_ended(ranks, run.ranks)
    # Ranks end also when Slurm takes their job away, to start it again later.
    over = ended and (said.queue or not most_restarts(run))
    why = "; ".join(said.trouble)
    why = why or _unknown(run)
    failed = first_failure(list(ranks))
    state = JobState.UNKNOWN
    if over:
        state = JobState.FAILED if failed else JobState.COMPLETED
        if failed and failed.consequence and cancel_asked(run.dir):
            state = JobState.CANCELLED  # each rank was told to stop, and hpckit had asked for it
        why = f"judged by the rank files ({why})"
    elif ended:
        why = f"every rank had ended when last seen, but it may start again; {why}"
    elif not said.trouble and not ranks and cancel_asked(run.dir):
        state, why = JobState.CANCELLED, "cancelled by hpckit before it started"
    return RunStatus(
        run=run,
        state=state,
        source="ranks",
        reason_text=why,
        nodes=tuple(dict.fromkeys(rank.host for rank in ranks)),
        elapsed_s=longest_s(ranks) if over else None,
        restarts=max((rank.restart for rank in ranks), default=None),
        exit_code=(failed.exit_code if failed else 0) if over else None,
        ranks=ranks,
    )
