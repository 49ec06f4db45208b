"""What became of runs: squeue, then sacct, then the rank files. Never finished when unknown."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from hpckit.errors import CommandError
from hpckit.localjob import cancel_asked, read_local_state
from hpckit.ranks import RankRecord, first_failure, read_ranks
from hpckit.runs import Run
from hpckit.slurm import jobs
from hpckit.slurm.details import scontrol_job
from hpckit.slurm.reasons import explain
from hpckit.slurm.record import JobRecord, Source
from hpckit.slurm.states import JobState, is_finished, is_good, is_waiting

# Between hpckit's clock at submission and Slurm's.
_SAME_SUBMISSION_S = 3600


@dataclass(frozen=True, kw_only=True, slots=True)
class RunStatus:
    """State of one run, in Slurm's words, and where it was learned.

    `elsewhere`: this Slurm has another job with its id.

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

    @property
    def finished(self) -> bool:
        """Whether the job is over for good."""
        return is_finished(self.state)

    @property
    def good(self) -> bool:
        """Whether it ended well."""
        return self.state is JobState.COMPLETED


def statuses(runs: Sequence[Run]) -> list[RunStatus]:
    """Return the status of every run, with one query of squeue, and one of sacct for the rest."""
    job_ids = [run.job_id for run in runs if run.executor == "slurm"]
    records, trouble = _ask_slurm(job_ids)
    if len(job_ids) == 1:  # more would cost a process each
        records = {job_id: _in_full(record) for job_id, record in records.items()}
    return [
        _local_status(run)
        if run.executor == "local"
        else _slurm_status(run, records.get(run.job_id), trouble)
        for run in runs
    ]


def is_its(run: Run, record: JobRecord) -> bool:
    """Say whether Slurm's record is of a run's job, and not of another with the same id.

    Clusters that share home folders count alike, and every Slurm begins again some day. A requeue
    changes the time of submission, and a user may change the name: only both together tell.
    """
    named = record.name in (None, run.record["name"])
    submitted = record.submit_time
    return named or submitted is None or abs(submitted - run.submitted_at) < _SAME_SUBMISSION_S


def _ask_slurm(job_ids: list[str]) -> tuple[dict[str, JobRecord], list[str]]:
    """Return what Slurm says of the jobs, and what kept it from saying more."""
    trouble: list[str] = []
    records: dict[str, JobRecord] = {}
    for name, ask in (("squeue", jobs.squeue), ("sacct", jobs.sacct)):
        missing = [job_id for job_id in job_ids if job_id not in records]
        if not missing:
            break
        try:
            records = ask(_arrays(missing)) | records
        except CommandError as error:
            trouble.append(f"{name}: {error}")
    return records if trouble else records | _removed(job_ids, records), trouble


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
        full = scontrol_job(record.job_id).get(record.job_id)
    except CommandError:
        return record
    return replace(record, exit_code=full.exit_code, restarts=full.restarts) if full else record


def _slurm_status(run: Run, record: JobRecord | None, trouble: list[str]) -> RunStatus:
    ranks = tuple(read_ranks(run.dir))
    if record is None:
        return _inferred(run, ranks, trouble)
    if not is_its(run, record):
        why = f"job {run.job_id} here is another, {record.name!r}: was this one on another cluster?"
        return replace(_inferred(run, ranks, [why]), elsewhere=True)
    waiting = is_waiting(record.state)
    stale = record.source == "sacct" and trouble and not is_finished(record.state)
    status = RunStatus(
        run=run,
        state=record.state,
        source=str(record.source),
        reason=record.reason if waiting else None,
        reason_text=explain(record.reason) if waiting else None,
        nodes=record.nodes or (),
        elapsed_s=record.elapsed_s,
        time_limit_min=record.time_limit_min,
        expected_start=record.start_time if waiting else None,
        restarts=_restarts(record, ranks),
        exit_code=_exit_code(record, ranks),
        ranks=ranks,
    )
    if stale:
        return replace(status, reason_text=f"as accounting last knew it; {trouble[0]}")
    return status


def _restarts(record: JobRecord, ranks: tuple[RankRecord, ...]) -> int | None:
    """Count restarts by the ranks' own files where Slurm does not say (squeue)."""
    if record.restarts is not None or not ranks:
        return record.restarts
    # A job that waits though its ranks have run is on its way to the next attempt.
    return max(rank.restart for rank in ranks) + is_waiting(record.state)


def _exit_code(record: JobRecord, ranks: tuple[RankRecord, ...]) -> int | None:
    if not is_finished(record.state):
        return None
    if record.state is JobState.COMPLETED:
        return 0
    failed = first_failure(list(ranks))
    return failed.exit_code if failed else record.exit_code


def _inferred(run: Run, ranks: tuple[RankRecord, ...], trouble: list[str]) -> RunStatus:
    """Judge by the rank files alone: over when every rank of the newest attempt has ended."""
    over = len(ranks) == run.ranks and all(rank.ended is not None for rank in ranks)
    why = "; ".join(trouble) or "Slurm no longer knows this job, and accounting has no record of it"
    failed = first_failure(list(ranks))
    state = JobState.UNKNOWN
    if over:
        state = JobState.FAILED if failed else JobState.COMPLETED
    elif not trouble and not ranks and cancel_asked(run.dir):
        state, why = JobState.CANCELLED, "cancelled by hpckit before it started"
    return RunStatus(
        run=run,
        state=state,
        source="ranks",
        reason_text=f"judged by the rank files ({why})" if over else why,
        nodes=tuple(dict.fromkeys(rank.host for rank in ranks)),
        elapsed_s=_elapsed(ranks) if over else None,
        restarts=max((rank.restart for rank in ranks), default=None),
        exit_code=(failed.exit_code if failed else 0) if over else None,
        ranks=ranks,
    )


def _elapsed(ranks: tuple[RankRecord, ...]) -> float:
    return max(rank.ended or 0.0 for rank in ranks) - min(rank.started for rank in ranks)


def _local_status(run: Run) -> RunStatus:
    ranks = tuple(read_ranks(run.dir))
    local = read_local_state(run.dir)
    if local is None:
        return RunStatus(run=run, state=JobState.PENDING, source="local", reason="Starting")
    failed = first_failure(list(ranks))
    until = local.ended or time.time()
    return RunStatus(
        run=run,
        state=local.state,
        source="local",
        reason=local.reason or None,
        reason_text=explain(local.reason) if is_waiting(local.state) else local.reason or None,
        nodes=(local.host,),
        elapsed_s=until - local.started if local.started else None,
        time_limit_min=run.record["plan"]["time_min"],
        restarts=local.restarts,
        exit_code=failed.exit_code if failed and local.exit_code else local.exit_code,
        ranks=ranks,
    )
