"""`summary.json` and `timeseries.json` of a run: written at its end, and again by `stats`.

`python -m hpckit.report FOLDER [LEDGER ...]`, which the job's rank zero starts, writes them
from the folder alone, a line into each ledger, and what is told of bad nodes into the user's own
file: no Slurm is asked. It is a process of its own: what goes wrong here cannot change how the job
ends. What it says on stderr is for the job's log.
"""

import os
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from hpckit.errors import HpckitError
from hpckit.files import DamagedFileError, read_json, reason
from hpckit.owners import is_mine_alone
from hpckit.payload.last_line import end_with
from hpckit.rank_variables import restart_count
from hpckit.report.gather import Gathered, gather_one
from hpckit.report.known_job import KnownJob
from hpckit.report.node_faults import learn_at_end
from hpckit.report.targets import Target
from hpckit.run_folders.ranks import RankRecord, first_failure, own_failures, read_all_attempts
from hpckit.run_folders.run_files import SUMMARY, write_json
from hpckit.run_folders.runs import Run, read_run
from hpckit.schedulers.local.state import cancel_asked
from hpckit.slurm.states import JobState
from hpckit.stats.advice.engine import Advice
from hpckit.stats.advice.loading import advised
from hpckit.stats.document import job_document, timeline_document
from hpckit.stats.summary.coverage import enough_of_each
from hpckit.stats.summary.figures import JobUse, SourceNote
from hpckit.stop_marks import (
    NO_CHECKPOINT,
    PREEMPTED,
    REQUEUED,
    TERMINATED,
    marks,
    marks_of,
    stopped_early,
)
from hpckit.submission.status import RunStatus
from hpckit.submission.verdict import all_ended
from hpckit.units import parse_moment

if TYPE_CHECKING:
    from hpckit.run_folders.ledger import Entry

TIMESERIES = "timeseries.json"


def save(found: Gathered, advice: Sequence[Advice]) -> Gathered:
    """Write a run's summary and timelines; return the account with where the timelines are.

    Somebody else's run is only read, and a job without a run has no folder to write to.
    """
    job = found.job
    if job.run_dir is None or "." in job.job_id or not _is_mine(Path(job.run_dir)):
        return found
    folder = Path(job.run_dir)
    # What was written while accounting, or the site's Prometheus, answered says more.
    silent = {note.code for note in job.notes} & {"no_accounting", "no_prometheus"}
    if silent and _has_more(folder / SUMMARY, silent):
        return found
    try:
        if found.timelines:
            document = timeline_document(job.job_id, found.timelines)
            write_json(folder / TIMESERIES, document, indent=None)
            job = replace(job, timeseries_file=str(folder / TIMESERIES))
        write_json(folder / SUMMARY, job_document(job, advice))
    except OSError as error:
        note = SourceNote(code="disk", text=f"{SUMMARY} could not be written: {error.strerror}.")
        job = replace(job, notes=(*job.notes, note))
    return replace(found, job=job)


def _has_more(summary: Path, silent: Collection[str]) -> bool:
    """Say whether a summary has what a source said that keeps silent now."""
    if "no_accounting" in silent:
        return summary.exists()
    try:
        return "Prometheus" in (read_json(summary).get("sources") or ())
    except (OSError, DamagedFileError, AttributeError, TypeError):
        return False


def _is_mine(folder: Path) -> bool:
    try:
        return is_mine_alone(folder, folder.stat()) and os.access(folder, os.W_OK)
    except OSError:
        return False


def main() -> None:
    """Write the summary of the run in a folder, and the newest attempt's line into ledgers."""
    try:
        run = read_run(Path(sys.argv[1]), in_job=True)
    except HpckitError as error:  # it may be over before its submission is
        end_with(str(error))
    status = status_at_end(run, os.environ)
    full = status.out_of_memory if status else None
    known = KnownJob(run=run, status=status, out_of_memory=full)
    found = gather_one(Target(job_id=run.job_id, known=known))
    job, advice = advised(_as_asked(found.job, run, os.environ), found.timelines)
    save(replace(found, job=job), advice)
    learn_at_end(run, found.job)
    if ledgers := sys.argv[2:]:
        entry = entry_of(run, job, advice, os.environ)
        for folder in ledgers:
            _enter(folder, entry)


def status_at_end(run: Run, environ: Mapping[str, str]) -> RunStatus | None:
    """Return how a run's newest attempt has ended, by its ranks; None: they do not know.

    Called in the job, at the end of rank zero; other ranks may still run.
    """
    restart = restart_count(environ)
    ranks = tuple(row for row in read_all_attempts(run.dir) if row.restart == restart)
    state = _ended_as(run, ranks, marks(marks_of(run.dir, 0), restart))
    if state is JobState.UNKNOWN:
        return None
    failed = first_failure(ranks)
    return RunStatus(
        run=run,
        state=state,
        source="ranks",
        elapsed_s=max(time.time() - min(row.started for row in ranks), 0.0),
        restarts=restart,
        exit_code=failed.exit_code if failed else 0,
        ranks=ranks,
    )


def _ended_as(run: Run, ranks: Sequence[RankRecord], said: set[str]) -> JobState:
    """Return an attempt's state by its ranks; `said`: what `stop_marks` has of it.

    A signal has many causes, and of a time limit only Slurm knows: then it is UNKNOWN.
    """
    told = PREEMPTED in said
    if own_failures(ranks) and not told:
        return JobState.FAILED
    if REQUEUED in said or not all_ended(ranks, run.ranks):
        return JobState.UNKNOWN
    stopped = any(row.exit_code for row in ranks)
    if not (stopped or stopped_early(said, 0) or said & {NO_CHECKPOINT, TERMINATED}):
        return JobState.COMPLETED
    if told:
        return JobState.PREEMPTED
    ended = stopped or TERMINATED in said
    return JobState.CANCELLED if ended and cancel_asked(run.dir) else JobState.UNKNOWN


def _as_asked(job: JobUse, run: Run, environ: Mapping[str, str]) -> JobUse:
    """Return a job with what Slurm's variables say of it; nobody has asked Slurm itself."""
    # So no note tells that Slurm did not say when the job ran.
    job = replace(job, notes=tuple(note for note in job.notes if note.code != "rank_times"))
    if run.scheduler.one_machine:  # in an allocation the variables are that one's
        return job
    return replace(
        job,
        user=environ.get("SLURM_JOB_USER") or job.user,
        account=environ.get("SLURM_JOB_ACCOUNT") or job.account,
        partition=environ.get("SLURM_JOB_PARTITION") or job.partition,
        qos=environ.get("SLURM_JOB_QOS") or job.qos,
    )


def _enter(folder: str, entry: "Entry") -> None:
    from hpckit.run_folders.ledger import append  # noqa: PLC0415  # `stats` writes none

    try:
        append(Path(folder), entry)
    except (OSError, KeyError) as error:
        why = reason(error) if isinstance(error, OSError) else "this user has no name here"
        sys.stderr.write(f"The ledger {folder} has no line of this job: {why}.\n")


def entry_of(
    run: Run, job: JobUse, advice: Sequence[Advice], environ: Mapping[str, str]
) -> "Entry":
    """Return what a ledger says of a run's newest attempt, inside the job and at its end.

    `job` has what Slurm's variables say of it.
    """
    from hpckit.run_folders.ledger import Entry  # noqa: PLC0415  # as above

    now = time.time()
    restart = restart_count(environ)
    ranks = [row for row in read_all_attempts(run.dir) if row.restart == restart]
    begun = min((row.started for row in ranks), default=now)
    start = parse_moment(environ.get("SLURM_JOB_START_TIME", "")) or begun
    used = next((row for row in job.attempts if row.restart == restart), None)
    known = used and enough_of_each(
        used.gpu_coverage_percent, used.gpu_coverage_lowest_percent, used.elapsed_s
    )
    return Entry(
        user="",
        job_id=run.jobs[restart] if restart < len(run.jobs) > 1 else run.job_id,
        start=min(start, begun),
        end=max(now, begun),
        restart=restart,
        cluster=environ.get("SLURM_CLUSTER_NAME"),
        account=job.account,
        partition=job.partition,
        name=job.name,
        state=_state(ranks),
        submit=run.submitted_at,
        nodes=job.requested.nodes,
        gpus=job.requested.gpus,
        gpu_type=job.requested.gpu_type or next((gpu.name for gpu in job.per_gpu), None),
        limit_s=job.requested.time_limit_s,
        utilization_percent=used.gpu_utilization_percent if used and known else None,
        energy_joules=used.energy_joules if used and known else None,
        workload=run.workload,
        template=run.template,
        advice=advice[0].message if advice else None,
    )


def _state(ranks: Sequence[RankRecord]) -> str:
    """Return how an attempt has ended, as far as its ranks know: a signal has many causes."""
    if any(row.exit_code and not row.consequence for row in ranks):
        return "FAILED"
    return "UNKNOWN" if any(row.exit_code for row in ranks) else "COMPLETED"
