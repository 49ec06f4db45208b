"""What Slurm says of jobs: squeue for all of them, then sacct for those that it does not know."""

from collections.abc import Sequence
from dataclasses import replace

from hpckit.errors import CommandError
from hpckit.run_folders.runs import Run
from hpckit.schedulers.base import Answers
from hpckit.slurm import jobs
from hpckit.slurm.client import patience
from hpckit.slurm.reasons import NEVER, WAITS, code_of, in_vain
from hpckit.slurm.states import (
    JobRecord,
    JobState,
    SlurmSource,
    is_finished,
    is_good,
    is_waiting,
    parse_exit,
)

# Between hpckit's clock at submission and Slurm's.
_SAME_SUBMISSION_S = 3600


def ask_of_runs(runs: Sequence[Run]) -> Answers:
    """Ask for runs' jobs, and see that the answers are of these."""
    with patience():
        said = _ask_slurm([job for run in runs for job in run.jobs])
    records, lost = {}, {}
    for owner, job in ((run, job) for run in runs for job in run.jobs):
        if (record := said.records.get(job)) is None:
            continue
        if is_its(owner, record):
            records[job] = _with_reason(record)
        else:
            lost[owner.run_id] = (
                f"job {job} here is another, {record.name!r}: was this one on another cluster?"
            )
    return replace(said, records=_with_held(records, {run.jobs[0] for run in runs}), lost=lost)


def _with_held(records: dict[str, JobRecord], jobs: set[str]) -> dict[str, JobRecord]:
    """Add to jobs that wait for others which of these can never start.

    The later jobs of a chain are not among `jobs`: they wait for those before them as they should.
    """
    waiting = [job for job in jobs & records.keys() if _waits_for_another(records[job])]
    if not waiting:
        return records
    from hpckit.slurm.dependencies import ask_hopeless  # few jobs wait for others

    try:
        held = ask_hopeless()
    except CommandError:
        return records  # Slurm's own word, that it waits, is still true
    return records | {job: replace(records[job], held_by=held.get(job)) for job in waiting}


def _waits_for_another(record: JobRecord) -> bool:
    """Say whether a job waits for the end or the start of another."""
    listed = record.source == SlurmSource.SQUEUE and is_waiting(record.state)
    return listed and code_of(record.reason) == WAITS


def never_starts(record: JobRecord) -> bool:
    """Say whether a job waits for what cannot come any more."""
    return is_waiting(record.state) and in_vain(record.reason, record.held_by)


def _with_reason(record: JobRecord) -> JobRecord:
    """Leave out a reason that tells nothing: why a job that runs once waited, or how it ended."""
    waits = is_waiting(record.state) or code_of(record.reason) == NEVER
    return record if waits else replace(record, reason=None)


def in_full(said: Answers) -> Answers:
    """Add what squeue leaves out of jobs that did not end well, in one question for all."""
    bad = [job_id for job_id, record in said.records.items() if _ended_badly(record)]
    if not bad:
        return said
    try:
        with patience():
            ends = jobs.ends(bad)
    except CommandError:
        return said  # their states are known all the same
    full = {job_id: _ended(said.records[job_id], *end) for job_id, end in ends.items()}
    return replace(said, records={**said.records, **full})


def _ended_badly(record: JobRecord) -> bool:
    listed = record.source == SlurmSource.SQUEUE
    return listed and is_finished(record.state) and not is_good(record.state)


def _ended(record: JobRecord, status: str, restarts: int) -> JobRecord:
    exit_code = parse_exit(status, record.state)
    return replace(record, exit_code=exit_code, restarts=restarts)


def records_of(job_id: str) -> list[JobRecord] | None:
    """Return what Slurm says of a job of anyone's, or its array's tasks; none if squeue is silent.

    None: squeue and accounting have answered, and neither knows such a job.
    """
    with patience():
        said = _ask_slurm([job_id])
    if not said.records and not said.trouble:
        return None
    found = dict(said.records)
    return list(_with_held(found, set(found)).values()) if said.queue else []


def is_its(run: Run, record: JobRecord) -> bool:
    """Say whether Slurm's record is of a run's job, and not of another with the same id.

    Clusters that share home folders count alike, and every Slurm begins again some day. A requeue
    changes the time of submission, and a user may change the name: only both together tell.
    """
    named = record.name in (None, run.record["name"])
    submitted = record.submit_time
    return named or submitted is None or abs(submitted - run.submitted_at) < _SAME_SUBMISSION_S


def _ask_slurm(job_ids: list[str]) -> Answers:
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
    return Answers(records=records, trouble=tuple(trouble), queue=queue)


def _removed(job_ids: list[str], records: dict[str, JobRecord]) -> dict[str, JobRecord]:
    """Return the array tasks that were cancelled while they waited.

    Slurm forgets these: squeue lists the rest of their array without them, sacct too, or for a
    while still shows them in the row of all waiting tasks.
    """
    arrays = {row.array_job_id or row.job_id for row in records.values() if not _is_stale(row)}
    return {
        job_id: JobRecord(job_id=job_id, state=JobState.CANCELLED, source=SlurmSource.SQUEUE)
        for job_id in job_ids
        if "_" in job_id
        and _array(job_id) in arrays
        and (job_id not in records or _is_stale(records[job_id]))
    }


def _is_stale(record: JobRecord) -> bool:
    """Say whether accounting calls a task waiting of which squeue no longer knows."""
    return record.source == SlurmSource.SACCT and is_waiting(record.state) and record.raw_id is None


def _array(job_id: str) -> str:
    return job_id.partition("_")[0]


def _arrays(job_ids: list[str]) -> list[str]:
    """Ask for arrays as a whole: it costs Slurm no more, and tells which tasks are gone."""
    return list(dict.fromkeys(map(_array, job_ids)))
