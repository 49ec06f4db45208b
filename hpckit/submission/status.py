"""What is known of one run: its state in Slurm's words, and what goes with it."""

from dataclasses import fields
from functools import cached_property
from typing import TYPE_CHECKING, Any

from hpckit.frozen import frozen
from hpckit.launchers import launched_by
from hpckit.paths import is_there
from hpckit.run_folders.ranks import RankRecord, first_failure, never_met, without_gpus
from hpckit.run_folders.run_record import once_more
from hpckit.run_folders.runs import RESUBMITTED, Run
from hpckit.slurm.reasons import code_of, in_vain, needs_change
from hpckit.slurm.states import JobState, SlurmSource, exit_words, is_finished, is_waiting
from hpckit.text import in_line, listed

if TYPE_CHECKING:
    from hpckit.bad_nodes.node_memory import NodeEvent
    from hpckit.job_ends.restarts import EarlierEnd
    from hpckit.run_folders.metrics import Progress

# How a job ends that waits: any other end is that of a job which Slurm has tried to start.
_OUT_OF_QUEUE = frozenset({JobState.CANCELLED, JobState.DEADLINE})
_SAID_OF_RANKS = ("rank", "host", "exit_code", "error", "device", "restart")


@frozen(kw_only=True, slots=False)
class RunStatus:
    """State of one run, in Slurm's words, and where it was learned.

    `elsewhere`: this Slurm has another job with its id, or nothing is here that could say what
    became of a local run. `damaged`: which of the run's files cannot be read, and why.

    `silence`: why Slurm's queue did not say what it is now, or accounting what became of it.
    `left_queue`: the queue answered, and no longer lists it.

    `restarts`: how often it was started again; `passed_over`: how many of a chain's jobs before the
    newest attempt never began, as one that was cancelled while it waited.

    `held_by`: the job because of which it can never start, where its own `reason` does not say so.

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
    passed_over: int = 0
    exit_code: int | None = None
    ranks: tuple[RankRecord, ...] = ()
    elsewhere: bool = False
    silence: str | None = None
    left_queue: bool = False
    held_by: str | None = None
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
    def attempt(self) -> int | None:
        """The number of its newest attempt, as its files have it: from 0, a chain's by its jobs."""
        return None if self.restarts is None else self.restarts + self.passed_over

    @property
    def never_started(self) -> bool:
        """Whether it was taken out of the queue before it began: it has neither time nor log."""
        begun = self.ranks or self.start_time is not None or self.elapsed_s is not None
        return self.state in _OUT_OF_QUEUE and not begun and not self.restarts

    @property
    def by_accounting(self) -> bool:
        """Whether its exit status is accounting's word, and no rank's own.

        Where every rank has ended with 0, it is hpckit's own, as of one that saved and may not go
        on: those are under 128.
        """
        well = len(self.ranks) == self.run.ranks and all(row.exit_code == 0 for row in self.ranks)
        by_rank = well or first_failure(self.ranks) is not None
        return self.source == SlurmSource.SACCT and not by_rank

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
        return self.waiting and in_vain(self.reason, self.held_by)

    @property
    def nothing_to_come(self) -> bool:
        """Whether who waits for it waits in vain: it is over, never starts, or is not seen here."""
        return self.finished or self.never_starts or self.elsewhere

    @property
    def waits_here(self) -> bool:
        """Whether it waits for GPUs of this machine, which other jobs of its user have."""
        if not (self.waiting and self.run.scheduler.one_machine):
            return False
        return code_of(self.reason) == "Resources"

    @property
    def needs_change(self) -> bool:
        """Whether it waits until somebody changes it, as one that is held or asks for too much."""
        return self.waiting and needs_change(self.reason)

    @property
    def notes(self) -> tuple[str, ...]:
        """What people should know of a run that Slurm has no word for."""
        strategy = str(self.run.record["plan"]["strategy"])
        said = never_met(strategy, self.run.ranks, self.ranks)
        rest = [said] if said else []
        return (
            *self._session(), *self._retries(), *self._tried_again(), *self._without_gpus(), *rest,
            *self.node_notes,
        )  # fmt: skip

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
        """Return what its attempts tell of bad nodes; see `hpckit.bad_nodes.node_events`."""
        return self._node_events

    @cached_property
    def _node_events(self) -> "list[NodeEvent]":
        if not self.speaks_of_nodes:
            return []
        from hpckit.bad_nodes.node_events import events_of  # noqa: PLC0415  # most runs tell nothing

        return events_of(self.run, self.ranks, self.state, self.earlier())

    @property
    def node_notes(self) -> list[str]:
        """What people should know of its bad nodes, a line each."""
        whats: dict[str, list[str]] = {}
        for row in self.node_events():
            whats.setdefault(row.host, []).append(row.what)
        how = f"Leave it out: {once_more(self.run.record, self.run.job_id)} --exclude-bad"
        return [
            in_line(f"node {host} looked bad: {', '.join(dict.fromkeys(what))}. {how}")
            for host, what in whats.items()
        ]

    def _without_gpus(self) -> list[str]:
        plan = self.run.record["plan"]
        planned = plan["total_gpus"] and plan.get("device") != "cpu"
        said = without_gpus(self.ranks) if planned else None
        return [said] if said else []

    def _session(self) -> list[str]:
        if not self.run.record.get("session"):
            return []
        from hpckit.session.notes import session_notes  # noqa: PLC0415  # few runs are sessions

        run, over = self.run, self.finished or self.state is JobState.COMPLETING
        return session_notes(run.record, run.dir, over=over, waiting=self.waiting)

    def _retries(self) -> list[str]:
        record = self.run.record
        if not (record.get("retry") or record["request"].get("retry")):
            return []
        from hpckit.job_ends.failures import why  # noqa: PLC0415  # few runs have rules
        from hpckit.submission.retry import retry_lines  # noqa: PLC0415

        failed = self.finished and not self.good
        cause = why(self.run, self.ranks, self.state) if failed else None
        return retry_lines(self.run, self.state, cause, self.time_limit_min)

    def _tried_again(self) -> list[str]:
        if not (self.never_starts and self.run.record["request"].get("after")):
            return []
        from hpckit.submission.awaited import tried_again  # noqa: PLC0415  # few can never start

        return list(map(in_line, tried_again(self.run)))

    @property
    def good(self) -> bool:
        """Whether it ended well."""
        return self.state is JobState.COMPLETED

    @property
    def out_of_memory(self) -> bool | None:
        """Whether it ended because memory was full, by all that its folder says; None: not yet."""
        if not self.finished:
            return None
        if self.good:  # most are: their logs need not be read
            return False
        from hpckit.job_ends.causes import Kind  # noqa: PLC0415  # few ask
        from hpckit.job_ends.failures import why  # noqa: PLC0415

        cause = why(self.run, self.ranks, self.state)
        return cause is not None and cause.kind is Kind.OUT_OF_MEMORY

    @property
    def chain(self) -> str | None:
        """Which of a chain's jobs the newest attempt is, in words; None: it is no chain."""
        jobs = self.run.jobs
        if len(jobs) == 1:
            return None
        link = min(self.attempt or 0, len(jobs) - 1)
        return f"job {jobs[link]} is attempt {link + 1} of {len(jobs)} ({listed(jobs)})"

    def resubmits(self) -> tuple[str | None, str | None]:
        """Return which job `hpckit resubmit` made it from, and which it made from it last; ids."""
        if "resubmit" not in self.run.record and not is_there(self.run.dir / RESUBMITTED):
            return None, None
        from hpckit.submission.resubmitted import before_and_after  # noqa: PLC0415  # few runs

        return before_and_after(self.run)

    def _in_place_of(self) -> tuple[str | None, str | None]:
        """Return the same, where `--retry` counts as well."""
        before, after = self.resubmits()
        if retried := self.run.record.get("retry"):
            before = before or retried["job_id"]
        if after is None and self.run.record["request"].get("retry"):
            from hpckit.submission.retry import retry_after  # noqa: PLC0415  # few runs have rules

            new = retry_after(self.run)
            after = new.job_id if new else None
        return before, after

    @property
    def launched_by(self) -> str | None:
        """The launcher's name; None where another stands in for it on one machine."""
        name = self.run.record["plan"]["launcher"]
        return launched_by(name, one_machine=self.run.scheduler.one_machine)

    def why(self) -> list[tuple[str, str]]:
        """Return what ended it: rows such as `why`, `rank 1`, `stopped`, each with a text.

        Empty while it lasts, and when it ended well. `Run.errors` has the traceback.
        """
        if self.never_started:
            return []
        from hpckit.job_ends.failures import cause_rows  # noqa: PLC0415  # lists of runs ask no reasons

        return cause_rows(self.run, self.ranks, self.state)

    def earlier(self) -> "list[EarlierEnd]":
        """Return how earlier attempts ended, oldest first; see `hpckit.job_ends.restarts`."""
        return self._earlier

    @cached_property
    def _earlier(self) -> "list[EarlierEnd]":
        if not self.attempt and not any(row.restart for row in self.ranks):
            return []
        from hpckit.job_ends.restarts import earlier_ends  # noqa: PLC0415  # most jobs have one attempt

        return earlier_ends(self.run, self.attempt)

    def progress(self) -> "Progress | None":
        """Return how far the script is by what it logged last; None: it has logged nothing.

        Raises:
            DamagedRunError: what it logs to cannot be read.
        """
        from hpckit.run_folders.metrics import progress_of  # noqa: PLC0415  # few ask

        return progress_of(self.run.dir, self.run.submitted_at)

    def document(self) -> dict[str, Any]:
        """Return what `hpckit status --json` prints of it."""
        before, after = self._in_place_of()
        return {
            "job_id": self.run.job_id,
            "run_id": self.run.run_id,
            "parameters": self.run.parameters or None,
            "state": str(self.state),
            "reason": self.reason,
            "reason_text": self.reason_text,
            "nodes": list(self.nodes),
            "elapsed_s": None if self.elapsed_s is None else round(self.elapsed_s, 1),
            "restarts": self.restarts,
            "chain": list(self.run.jobs) if len(self.run.jobs) > 1 else None,
            "resubmit_of": before,
            "resubmitted_as": after,
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
