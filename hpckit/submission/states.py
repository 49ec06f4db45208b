"""What became of runs: squeue, then sacct, then the rank files. Never finished when unknown."""

import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from hpckit.causes import current
from hpckit.errors import CommandError
from hpckit.localjob import (
    STATE,
    LocalState,
    cancel_asked,
    controller_runs,
    read_local_state,
)
from hpckit.meetings import never_met
from hpckit.ranks import RankRecord, first_failure, read_ranks
from hpckit.runs import Run
from hpckit.slurm import jobs
from hpckit.slurm.client import patience
from hpckit.slurm.details import scontrol_job
from hpckit.slurm.reasons import explain
from hpckit.slurm.record import JobRecord, Source
from hpckit.slurm.states import JobState, is_finished, is_good, is_waiting
from hpckit.submission import verdict

NEVER = "DependencyNeverSatisfied"
# Between hpckit's clock at submission and Slurm's.
_SAME_SUBMISSION_S = 3600
# Between the clocks of two nodes. No job starts again so soon: Slurm holds one for 120 s.
_CLOCKS_S = 30


@dataclass(frozen=True, kw_only=True, slots=True)
class RunStatus:
    """State of one run, in Slurm's words, and where it was learned.

    `elsewhere`: this Slurm has another job with its id, or nothing is here that could say what
    became of a local run. `damaged`: which of the run's files cannot be read, and why.

    `unanswered`: Slurm's queue did not say what it is now, or accounting what became of it.

    `reason` is Slurm's code while pending, `reason_text` the same in plain words, or what stands in
    the way of knowing. `expected_start` is in epoch seconds.
    """

    run: Run
    state: JobState
    source: str
    reason: str | None = None
    reason_text: str | None = None
    nodes: tuple[str, ...] = ()
    elapsed_s: float | None = None
    time_limit_min: int | None = None
    expected_start: float | None = None
    restarts: int | None = None
    exit_code: int | None = None
    ranks: tuple[RankRecord, ...] = ()
    elsewhere: bool = False
    unanswered: bool = False
    damaged: tuple[str, ...] = ()

    @property
    def finished(self) -> bool:
        """Whether the job is over for good."""
        return is_finished(self.state)

    @property
    def never_starts(self) -> bool:
        """Whether it waits for what cannot come any more."""
        return is_waiting(self.state) and _code(self.reason) == NEVER

    @property
    def notes(self) -> tuple[str, ...]:
        """What people should know of a run that Slurm has no word for."""
        strategy = str(self.run.record["plan"]["strategy"])
        said = never_met(strategy, self.run.ranks, self.ranks)
        return (said,) if said else ()

    @property
    def good(self) -> bool:
        """Whether it ended well."""
        return self.state is JobState.COMPLETED


@dataclass(frozen=True, kw_only=True, slots=True)
class _Answers:
    """What Slurm said of jobs, and what kept it from saying more.

    `queue` says whether squeue answered: then jobs it does not list have left the queue for good.
    """

    records: Mapping[str, JobRecord] = field(default_factory=dict)
    trouble: tuple[str, ...] = ()
    queue: bool = True


def statuses(runs: Sequence[Run]) -> list[RunStatus]:
    """Return the status of every run, with one query of squeue, and one of sacct for the rest."""
    job_ids = [run.job_id for run in runs if run.executor == "slurm"]
    with patience():
        said = _ask_slurm(job_ids)
        if len(job_ids) == 1:  # more would cost a process each
            full = {job_id: _in_full(record) for job_id, record in said.records.items()}
            said = replace(said, records=full)
    return [_status(run, said) for run in runs]


def _status(run: Run, said: _Answers) -> RunStatus:
    damaged: list[str] = []
    ranks = tuple(read_ranks(run.dir, damaged))
    if run.executor == "local":
        status = _local_status(run, ranks, damaged)
    else:
        silent = bool(said.trouble) and not (said.queue and run.job_id in said.records)
        status = replace(_slurm_status(run, ranks, said), unanswered=silent)
    if status.state is JobState.RUNNING and not status.reason_text:
        words = verdict.straggling(status.ranks, run.ranks, time.time())
        status = replace(status, reason_text=words)
    return replace(status, damaged=tuple(damaged))


def ended_jobs(job_ids: Sequence[str]) -> list[tuple[str, JobState]]:
    """Return jobs of anyone's that are over, with their states; none while squeue is silent."""
    with patience():
        said = _ask_slurm(list(job_ids))
    rows = said.records.values() if said.queue else ()
    return [(row.job_id, row.state) for row in rows if is_finished(row.state)]


def is_its(run: Run, record: JobRecord) -> bool:
    """Say whether Slurm's record is of a run's job, and not of another with the same id.

    Clusters that share home folders count alike, and every Slurm begins again some day. A requeue
    changes the time of submission, and a user may change the name: only both together tell.
    """
    named = record.name in (None, run.record["name"])
    submitted = record.submit_time
    return named or submitted is None or abs(submitted - run.submitted_at) < _SAME_SUBMISSION_S


def _ask_slurm(job_ids: list[str]) -> _Answers:
    """Ask squeue for all jobs, then sacct for those that it does not know."""
    trouble: list[str] = []
    records: dict[str, JobRecord] = {}
    try:
        records = jobs.squeue(_arrays(job_ids))
    except CommandError as error:
        trouble.append(f"squeue: {error}")
    queue = not trouble
    if missing := [job_id for job_id in job_ids if job_id not in records]:
        try:
            records = jobs.sacct(_arrays(missing)) | records
        except CommandError as error:
            trouble.append(f"sacct: {error}")
    if not trouble:
        records |= _removed(job_ids, records)
    return _Answers(records=records, trouble=tuple(trouble), queue=queue)


def _removed(job_ids: list[str], records: dict[str, JobRecord]) -> dict[str, JobRecord]:
    """Return the array tasks that were cancelled while they waited.

    Slurm forgets these: squeue lists the rest of their array without them, sacct too, or for a
    while still shows them in the row of all waiting tasks.
    """
    arrays = {row.array_job_id or row.job_id for row in records.values() if not _is_stale(row)}
    return {
        job_id: JobRecord(job_id=job_id, state=JobState.CANCELLED, source=Source.SQUEUE)
        for job_id in job_ids
        if "_" in job_id
        and _array(job_id) in arrays
        and (job_id not in records or _is_stale(records[job_id]))
    }


def _is_stale(record: JobRecord) -> bool:
    """Say whether accounting calls a task waiting of which squeue no longer knows."""
    return record.source == "sacct" and is_waiting(record.state) and record.raw_id is None


def _array(job_id: str) -> str:
    return job_id.partition("_")[0]


def _arrays(job_ids: list[str]) -> list[str]:
    """Ask for arrays as a whole: it costs Slurm no more, and tells which tasks are gone."""
    return list(dict.fromkeys(map(_array, job_ids)))


def _in_full(record: JobRecord) -> JobRecord:
    """Add what squeue leaves out of a job that did not end well: its exit code, its restarts."""
    if record.source != "squeue" or not is_finished(record.state) or is_good(record.state):
        return record
    try:
        full = scontrol_job(record.job_id, record.name or "").get(record.job_id)
    except CommandError:
        return record
    return replace(record, exit_code=full.exit_code, restarts=full.restarts) if full else record


def _slurm_status(run: Run, ranks: tuple[RankRecord, ...], said: _Answers) -> RunStatus:
    record = said.records.get(run.job_id)
    if record is None:
        return _inferred(run, ranks, said)
    if not is_its(run, record):
        why = f"job {run.job_id} here is another, {record.name!r}: was this one on another cluster?"
        return replace(_inferred(run, ranks, _Answers(trouble=(why,))), elsewhere=True)
    status = _as_recorded(run, record, ranks)
    if record.source == Source.SACCT and not said.queue:
        return _without_queue(status, record, said)
    return _completed(status, record.end_time) if status.good else status


def _as_recorded(run: Run, record: JobRecord, ranks: tuple[RankRecord, ...]) -> RunStatus:
    waiting = is_waiting(record.state)
    restarts, ranks = _restarts(record, ranks), _of_attempt(run, record, ranks)
    return RunStatus(
        run=run,
        state=record.state,
        source=str(record.source),
        reason=record.reason if waiting or _code(record.reason) == NEVER else None,
        reason_text=_why(run, record, ranks, restarts),
        nodes=record.nodes or (),
        elapsed_s=record.elapsed_s,
        time_limit_min=record.time_limit_min,
        expected_start=record.start_time if waiting else None,
        restarts=restarts,
        exit_code=_exit_code(record, ranks),
        ranks=ranks,
    )


def _why(
    run: Run, record: JobRecord, ranks: tuple[RankRecord, ...], restarts: int | None
) -> str | None:
    """Say why a job waits, or was taken away for good."""
    if is_waiting(record.state) or _code(record.reason) == NEVER:
        return explain(record.reason)
    requeues = _max_requeues(run)
    told = verdict.ended_when_told(record.state, ranks, run.ranks, restarts, requeues)
    if not told and record.state not in (JobState.TIMEOUT, JobState.PREEMPTED):
        return None
    return verdict.taken_away(
        record.state,
        time_limit_min=record.time_limit_min,
        restarts=restarts,
        max_requeues=requeues,
    )


def _code(reason: str | None) -> str:
    """Return Slurm's code without what follows it."""
    return (reason or "").partition(",")[0].strip()


def _without_queue(status: RunStatus, record: JobRecord, said: _Answers) -> RunStatus:
    """Return what accounting alone tells: of an attempt that another may follow, it is no end."""
    if not status.finished:
        return replace(status, reason_text=f"as accounting last knew it; {said.trouble[0]}")
    doubt = verdict.doubt_of_end(record, status.ranks, _max_requeues(status.run))
    if doubt is None:
        return _completed(status, record.end_time) if status.good else status
    why = f"last seen {status.state} by accounting, but {doubt}; {said.trouble[0]}"
    return replace(status, state=JobState.UNKNOWN, reason_text=why, exit_code=None)


def _completed(status: RunStatus, ended: float | None) -> RunStatus:
    """Return a status that calls a run COMPLETED, if its ranks agree; else what they make of it.

    `ended` is when, None where its files cannot come late.
    """
    wrong = verdict.contradiction(status.ranks, status.run.ranks)
    if wrong is None:
        return status
    said = "Slurm" if status.run.executor == "slurm" else "the job script's end"
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


def _max_requeues(run: Run) -> int:
    return int(run.record["plan"].get("max_requeues") or 0)


def _restarts(record: JobRecord, ranks: tuple[RankRecord, ...]) -> int | None:
    """Count restarts by the ranks' own files where Slurm does not say (squeue)."""
    if record.restarts is not None or not ranks:
        return record.restarts
    # A job that waits though its ranks have run is on its way to the next attempt.
    return max(rank.restart for rank in ranks) + is_waiting(record.state)


def _of_attempt(
    run: Run, record: JobRecord, ranks: tuple[RankRecord, ...]
) -> tuple[RankRecord, ...]:
    """Leave out what an earlier attempt wrote: this one may wait, or have failed in its set-up."""
    if not _max_requeues(run):
        return ranks  # submitted with --no-requeue
    if is_waiting(record.state):
        return ()
    began = record.start_time
    if record.restarts is not None or began is None:
        return current(ranks, record.restarts)
    # squeue, of a job that runs or that ended well.
    newer = (row for row in ranks if row.started > began - _CLOCKS_S)
    return tuple(row for row in newer if row.ended is None or row.ended >= began)


def _exit_code(record: JobRecord, ranks: tuple[RankRecord, ...]) -> int | None:
    if not is_finished(record.state):
        return None
    if record.state is JobState.COMPLETED:
        return 0
    failed = first_failure(list(ranks))
    return failed.exit_code if failed else record.exit_code


def _inferred(run: Run, ranks: tuple[RankRecord, ...], said: _Answers) -> RunStatus:
    """Judge by the rank files alone: over when every rank of the last attempt has ended."""
    ended = verdict.all_ended(ranks, run.ranks)
    # Ranks end also when Slurm takes their job away, to start it again later.
    over = ended and (said.queue or not _max_requeues(run))
    why = "; ".join(said.trouble)
    why = why or "Slurm no longer knows this job, and accounting has no record of it"
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
        elapsed_s=_elapsed(ranks) if over else None,
        restarts=max((rank.restart for rank in ranks), default=None),
        exit_code=(failed.exit_code if failed else 0) if over else None,
        ranks=ranks,
    )


def _elapsed(ranks: tuple[RankRecord, ...]) -> float | None:
    """Return how long the longest rank took: by its own node's clock, since others' may differ."""
    spans = [rank.ended - rank.started for rank in ranks if rank.ended is not None]
    return max((span for span in spans if span >= 0), default=None)


def _why_local(run: Run, local: LocalState) -> str | None:
    if local.state is JobState.PENDING and local.reason == "Resources":
        # Nothing but other tasks of its own array keeps a run of this machine waiting.
        tasks = "It waits until another task of its array has ended: --parallel says how many run."
        return tasks if run.record.get("array") else "It is about to start."
    if local.reason:
        return explain(local.reason)
    if local.state is not JobState.TIMEOUT:
        return None
    return verdict.taken_away(
        local.state,
        time_limit_min=run.record["plan"]["time_min"],
        restarts=local.restarts,
        max_requeues=_max_requeues(run),
    )


def _local_status(run: Run, ranks: tuple[RankRecord, ...], damaged: list[str]) -> RunStatus:
    before = len(damaged)
    local = read_local_state(run.dir, damaged)
    if local is None and not (alive := controller_runs(run.job_id)):
        local = read_local_state(run.dir)  # it may just have written its last word
    if local is None:
        why = damaged[-1] if len(damaged) > before else f"{STATE} is gone"
        if alive:
            return RunStatus(run=run, state=JobState.UNKNOWN, source="local", reason_text=why)
        return _without_state(run, ranks, why)
    ranks = current(ranks, local.restarts)
    failed = first_failure(ranks)
    until = local.ended or time.time()
    status = RunStatus(
        run=run,
        state=local.state,
        source="local",
        reason=local.reason or None,
        reason_text=_why_local(run, local),
        nodes=(local.host,),
        elapsed_s=max(until - local.started, 0.0) if local.started else None,
        time_limit_min=run.record["plan"]["time_min"],
        restarts=local.restarts,
        exit_code=failed.exit_code if failed and local.exit_code else local.exit_code,
        ranks=ranks,
    )
    return _completed(status, None) if status.good else status


def _without_state(run: Run, ranks: tuple[RankRecord, ...], why: str) -> RunStatus:
    """Judge a local run by its ranks' files, since nothing else can tell any more."""
    status = _inferred(run, ranks, _Answers(trouble=(why,)))
    if status.finished:
        return status
    here = socket.gethostname()
    why = f"{why}; no process of this run is on {here}: it is over, or runs on another machine"
    return replace(status, reason_text=why, elsewhere=True)
