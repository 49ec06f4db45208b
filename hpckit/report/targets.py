"""What a user's word means: runs of hpckit's, jobs of anyone's, one step of either."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from hpckit.errors import (
    CommandError,
    DamagedRunError,
    HpckitError,
    NotFoundError,
    OutsideError,
    RequestError,
)
from hpckit.frozen import frozen
from hpckit.report.known_job import KnownJob
from hpckit.report.samples_alone import find_sampled, why_alone
from hpckit.report.source_notes import end_notes
from hpckit.run_folders.find import find_runs, no_such_run
from hpckit.run_folders.runs import DamagedRun, Run
from hpckit.schedulers.slurm.asking import is_its
from hpckit.shell import which
from hpckit.slurm.jobs import is_asked, squeue
from hpckit.slurm.states import JobRecord, JobState
from hpckit.slurm.usage import job_usage
from hpckit.slurm.usage_rows import JobUsage
from hpckit.stats.summary.figures import SourceNote
from hpckit.submission.states import statuses
from hpckit.submission.status import RunStatus

_SLURM_ID = re.compile(r"\d+(?:[_+]\d+)?", re.ASCII)
_STEP = re.compile(r"(?P<job>\d+(?:[_+]\d+)?)\.(?P<step>\w+)", re.ASCII)


@frozen(kw_only=True)
class Target:
    """One job that a word means.

    Attributes:
        step: `0`, `batch`...: only what that step used.
    """

    job_id: str
    known: KnownJob
    step: str | None = None
    notes: tuple[SourceNote, ...] = ()


@frozen(kw_only=True)
class _Word:
    job_id: str
    step: str | None
    runs: tuple[Run, ...]
    damaged: tuple[HpckitError, ...] = ()


def find_targets(
    words: Sequence[str], root: Path, samples: Path | None = None, *, here_only: bool = False
) -> tuple[list[Target], list[HpckitError]]:
    """Return the jobs that words mean, each once, and what is wrong with words that mean none.

    Slurm is asked once for all of them: squeue and sacct for states, sacct for what was used.
    A job that has no run and that Slurm does not tell of is what its samples say, if there are any:
    in the folder `samples`, else where `hpckit sample` writes. `here_only`: `latest` is the newest
    below `root`.
    """
    read = [_read(word, root, here_only=here_only) for word in words]
    runs = list({run.dir: run for word in read for run in word.runs}.values())
    found = {status.run.dir: status for status in statuses(runs)}
    ids = [job for run in runs if run.scheduler.accounting for job in run.jobs]
    ids += [word.job_id for word in read if _is_foreign(word)]
    usage, trouble = _usage(list(dict.fromkeys(ids)))
    queued, silent = _squeue([word.job_id for word in read if _is_foreign(word)])
    targets: list[Target] = []
    missing: list[HpckitError] = []
    for word in read:
        mine = [_of_run(found[run.dir], usage, word.step, trouble) for run in word.runs]
        meant = mine or _foreign(word, usage, None if silent else queued, trouble)
        if not meant and not word.damaged:
            try:
                meant = _by_samples(word, samples, trouble, silent)
            except (NotFoundError, RequestError) as error:
                missing.append(error)
                continue
        there = [target for target in meant if _has_step(target)]
        targets += there
        missing += word.damaged
        if not meant and not word.damaged:
            missing.append(_no_such_job(word.job_id, root, trouble))
        elif meant and not there:
            missing.append(_no_such_step(meant[0]))
    return list({(row.job_id, row.step): row for row in targets}.values()), missing


def _read(word: str, root: Path, *, here_only: bool) -> _Word:
    match = _STEP.fullmatch(word)
    job_id, step = (match["job"], match["step"]) if match else (word, None)
    damaged: list[DamagedRun] = []
    try:
        runs = tuple(find_runs(job_id, root, damaged, here_only=here_only))
    except NotFoundError:
        if job_id == "latest":
            raise
        runs = ()
    except (DamagedRunError, OutsideError) as error:
        return _Word(job_id=job_id, step=step, runs=(), damaged=(error,))
    return _Word(job_id=job_id, step=step, runs=runs, damaged=tuple(row.error for row in damaged))


def _usage(ids: list[str]) -> tuple[dict[str, tuple[JobUsage, ...]], str | None]:
    if not ids:
        return {}, None
    try:
        return job_usage(ids), None
    except CommandError as error:
        return {}, str(error)


def _of_run(
    status: RunStatus,
    usage: dict[str, tuple[JobUsage, ...]],
    step: str | None,
    trouble: str | None,
) -> Target:
    run = status.run
    attempts = _attempts(status, usage)
    # A job that was requeued and renamed has neither name nor time of its run's in its last row.
    if not any(is_its(run, row.record) for row in attempts):
        attempts = ()
    known = KnownJob(
        run=run,
        status=status,
        attempts=_with_plan(run, attempts),
        out_of_memory=status.out_of_memory,
    )
    notes = _trouble(trouble) if run.scheduler.accounting else ()
    return Target(job_id=run.job_id, known=known, step=step, notes=notes)


def _attempts(status: RunStatus, usage: dict[str, tuple[JobUsage, ...]]) -> tuple[JobUsage, ...]:
    """Return accounting's rows of a run's attempts; those of a chain are its jobs that began.

    For accounting a job may wait that for the queue has begun, and is the newest of its chain.
    """
    run, newest = status.run, status.attempt
    if len(run.jobs) == 1:
        return usage.get(run.job_id, ())
    rows = [(link, row) for link, job in enumerate(run.jobs) for row in usage.get(job, ())]
    return tuple(
        replace(row, record=replace(row.record, restarts=link))
        for link, row in rows
        if row.record.nodes
        or (row.record.state is not JobState.CANCELLED and (newest is None or link <= newest))
    )


def _with_plan(run: Run, attempts: tuple[JobUsage, ...]) -> tuple[JobUsage, ...]:
    """Give new rows, which do not list what the job holds, the nodes and GPUs it asked for."""
    nodes = int(run.record["plan"]["nodes"])
    return tuple(
        replace(row, alloc_nodes=nodes, alloc_gpus=run.gpus)
        if row.record.name is None and row.alloc_gpus is None
        else row
        for row in attempts
    )


def _is_foreign(word: _Word) -> bool:
    return not word.runs and _SLURM_ID.fullmatch(word.job_id) is not None


def _foreign(
    word: _Word,
    usage: dict[str, tuple[JobUsage, ...]],
    answer: dict[str, JobRecord] | None,
    trouble: str | None,
) -> list[Target]:
    """Return jobs that hpckit did not submit; an array's or het job's id gives all its parts."""
    if not _is_foreign(word):
        return []
    mine = frozenset({word.job_id})
    queued = {job_id: record for job_id, record in (answer or {}).items() if is_asked(record, mine)}
    tasks = {record.raw_id: job_id for job_id, record in queued.items()}
    rows = [
        (job_id, _newer(attempts, queued.get(job_id)))
        for job_id, attempts in usage.items()
        if is_asked(attempts[-1].record, mine)
        # For some seconds accounting may not know that a job is a task of an array.
        and tasks.get(attempts[-1].record.raw_id, job_id) == job_id
    ]
    known = {job_id for job_id, _ in rows}
    rows += [
        (job_id, KnownJob(record=record))
        for job_id, record in queued.items()
        if job_id not in known
    ]
    return [
        Target(
            job_id=job_id,
            known=row,
            step=word.step,
            notes=(*_trouble(trouble), *(() if answer is None else end_notes(row))),
        )
        for job_id, row in rows
    ]


def _newer(attempts: tuple[JobUsage, ...], queued: JobRecord | None) -> KnownJob:
    """Return what accounting and the queue know: what a new job's row lacks is the queue's.

    The name stays unknown: by that, a new row is told from others.
    """
    *earlier, last = attempts
    if queued and last.record.name is None:
        nodes = queued.nodes or last.record.nodes
        record = replace(
            last.record,
            nodes=nodes,
            partition=queued.partition,
            qos=last.record.qos or queued.qos,
            time_limit_min=queued.time_limit_min,
        )
        last = replace(last, record=record, alloc_nodes=len(nodes or ()) or last.alloc_nodes)
    return KnownJob(attempts=(*earlier, last), record=queued)


def _by_samples(
    word: _Word, samples: Path | None, trouble: str | None, silent: str | None
) -> list[Target]:
    """Return jobs of which only samples are known.

    Raises:
        RequestError, NotFoundError: samples are there, but not of this job or step.
    """
    found = find_sampled(word.job_id, word.step, samples)
    if not found:
        return []
    note = why_alone(word.job_id, asked=_is_foreign(word), silence=_silence(trouble, silent))
    return [
        Target(job_id=job_id, known=KnownJob(sampled=job), step=word.step, notes=(note,))
        for job_id, job in found.items()
    ]


def _silence(trouble: str | None, silent: str | None) -> str | None:
    """Say which side of Slurm did not answer, and why; None: both did."""
    if trouble and not (which("sacct") or which("squeue")):
        return "this machine has no Slurm"
    if trouble:
        return f"accounting does not answer: {trouble}"
    if silent:
        return f"accounting does not have this job, and the queue does not answer: {silent}"
    return None


def _squeue(job_ids: list[str]) -> tuple[dict[str, JobRecord], str | None]:
    """Ask the controller, whose word on running jobs is newer; say why it is of no help."""
    try:
        return squeue(job_ids), None
    except CommandError as error:
        return {}, str(error)


def _trouble(text: str | None) -> tuple[SourceNote, ...]:
    return (
        (SourceNote(code="no_accounting", text=f"Accounting did not answer: {text}"),)
        if text
        else ()
    )


def _has_step(target: Target) -> bool:
    """Say whether a job has the step that was asked for, as far as accounting tells."""
    attempts = target.known.attempts
    names = {step.step for usage in attempts for step in usage.steps}
    return target.step is None or not attempts or target.step in names


def _no_such_step(target: Target) -> NotFoundError:
    names = {step.step for usage in target.known.attempts for step in usage.steps}
    steps = f"it has {', '.join(sorted(names))}" if names else "it has none yet"
    return NotFoundError(f"Job {target.job_id} has no step {target.step!r}; {steps}.")


def _no_such_job(job_id: str, root: Path, trouble: str | None) -> HpckitError:
    if not _SLURM_ID.fullmatch(job_id):
        return NotFoundError(no_such_run(job_id, root))
    if trouble:
        return OutsideError(
            f"There is no run of job {job_id!r} here or in your index, and accounting does "
            f"not answer: {trouble}"
        )
    return NotFoundError(
        f"There is no job {job_id!r} here, in your index or in Slurm's accounting. "
        "See `hpckit jobs`."
    )
