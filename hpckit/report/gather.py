"""All that is known of jobs, from every source: the edge. What it finds is merged by `stats`."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from hpckit.frozen import frozen
from hpckit.report.accounting import running_answer, slurm_answers, slurm_notes
from hpckit.report.attempt_spans import lost_rows, spans
from hpckit.report.changed_sizes import cut_at_changes
from hpckit.report.identity import identify
from hpckit.report.job_samples import (
    Matched,
    cut_to_attempts,
    is_its_host,
    leader_of,
    match,
    read_folders,
    samples_folders,
)
from hpckit.report.known_job import KnownJob, of_step
from hpckit.report.missing_attempts import until_last_seen, with_all_attempts
from hpckit.report.monitoring import Monitoring
from hpckit.report.node_faults import node_notes
from hpckit.report.samples_alone import open_notes, open_spans
from hpckit.report.source_notes import (
    lost_notes,
    missing_notes,
    rank_notes,
    state_notes,
    suspended_notes,
)
from hpckit.report.step_samples import own_of_step
from hpckit.report.targets import Target
from hpckit.report.unseen_steps import without_unseen
from hpckit.run_folders.ranks import AttemptTimes, attempt_times
from hpckit.run_folders.runs import Run
from hpckit.slurm.states import JobState, is_running
from hpckit.slurm.usage import running_steps
from hpckit.slurm.usage_rows import StepUsage
from hpckit.stats.merge import RANKED, merge
from hpckit.stats.samples.collecting import uncollected
from hpckit.stats.samples.columns import Columns, SampleFile
from hpckit.stats.samples.records import has_samples
from hpckit.stats.summary.attempts import Span
from hpckit.stats.summary.figures import Attempt, JobUse, SourceNote
from hpckit.stats.summary.summarise import Account, summarise
from hpckit.stats.summary.timeline import Timeline

if TYPE_CHECKING:
    from hpckit.stats.summary.curves import Curves


@frozen(kw_only=True)
class Gathered:
    """One job with its timelines, oldest attempt first; none without samples.

    Attributes:
        known: what else is known of it.
        files, spans: its samples and attempts, for pictures over time.
        of_step: of one of its steps, which has its own part of what they say.
        curves: pictures that were made while the samples were read, by their number of points.
    """

    job: JobUse
    timelines: tuple[Timeline, ...] = ()
    known: KnownJob = field(default_factory=KnownJob)
    files: tuple[SampleFile, ...] = ()
    spans: tuple[Span, ...] = ()
    of_step: bool = False
    curves: "Mapping[int, Curves | None]" = field(default_factory=dict, repr=False)


def gather(
    targets: Sequence[Target],
    samples: Path | None,
    live: Mapping[str, Sequence[StepUsage]],
    points: Sequence[int] = (),
) -> Iterator[Gathered]:
    """Yield the account of each job; `samples` is a folder of samples to use instead of theirs.

    `live` is what `live_steps` found; `points`: how many points pictures of each job are to have.
    The sites' own monitoring is asked, too.
    """
    monitoring = None if samples else Monitoring()
    for target in targets:
        raw = target.known.last.raw_id if target.known.last else None
        yield gather_one(target, samples, live.get(raw or "", ()), monitoring, points)


@uncollected()
def gather_one(
    target: Target,
    samples: Path | None = None,
    live: Sequence[StepUsage] = (),
    monitoring: Monitoring | None = None,
    points: Sequence[int] = (),
) -> Gathered:
    """Return the account of one job; `live` is what sstat says of it, `points` as in `gather`.

    `monitoring` None: the site's is not asked, as at the end of a job, on a node.
    """
    now = time.time()
    folders = samples_folders(target.known, samples)
    read, notes = read_folders(folders, target.step, drawn=bool(points))
    known = replace(target.known, ranks=_rank_times(target.known.run, read))
    known = of_step(with_all_attempts(known), target.step)
    matched = _matched(target, known, read, notes, now, drawn=bool(points))
    files, held = matched.files, matched.spans
    account = summarise(files, held) if files else None
    if account and lost_rows(known, held):  # the others' hours are not the job's
        account = replace(account, summary=replace(account.summary, gpu_hours=None))
    account, unseen = without_unseen(account, known.attempts, files, live)
    job = identify(target.job_id + (f".{target.step}" if target.step else ""), known, held)
    told = monitoring.ask(target, job.site, account, held, files) if monitoring else None
    job = replace(
        _completed(job, account, held, now),
        notes=(
            *target.notes,
            *node_notes(known),
            *state_notes(known),
            *rank_notes(known, held, sampled=bool(files)),
            *matched.notes,
            *unseen,
            *suspended_notes(held),
            *lost_notes(known, held),
            *slurm_notes(known.attempts),
            *missing_notes(known, files, target.step, started=_has_begun(job)),
        ),
    )
    answers = list(slurm_answers(known.attempts))
    if told:
        job = replace(job, notes=(*job.notes, *told.notes), attempts=told.attempts or job.attempts)
        answers += [told.answer] if told.answer else []
        answers.sort(key=lambda answer: RANKED.index(answer.source))
    live = [row for row in live if target.step in (None, row.step)]
    if live and known.attempts and job.running:
        answers.insert(0, running_answer(known.attempts, live))
    drawn = files or (told.files if told else ())
    job = merge(job, account, answers)
    return Gathered(
        job=replace(job, attempts=_with_ends(job, known.run)),
        timelines=account.timelines if account else told.timelines if told else (),
        known=known,
        files=tuple(file.place for file in files),
        spans=held,
        of_step=target.step is not None,
        curves=_curves(drawn, held, points),
    )


def _has_begun(job: JobUse) -> bool:
    return (job.start, job.elapsed_s) != (None, None)


def _matched(
    target: Target,
    known: KnownJob,
    read: list[Columns],
    notes: list[SourceNote],
    now: float,
    *,
    drawn: bool,
) -> Matched:
    """Return a job's samples with the attempts they are of, and notes on what cannot be used."""
    attempts = spans(known, now)
    if _whole_of_part(target):
        read = [file for file in read if any(is_its_host(file, span) for span in attempts)]
    read = cut_at_changes(read, attempts, notes, drawn=drawn)
    found = match(read, attempts, job_ids=_ids(target), running=is_running(known.state))
    if known.sampled:
        return _sampled(found, notes)
    files = cut_to_attempts(found.files, found.spans, notes, drawn=drawn)
    if target.step is not None:
        files = tuple(map(own_of_step, files))
    return replace(found, files=files, notes=(*notes, *found.notes))


def _sampled(found: Matched, notes: Sequence[SourceNote]) -> Matched:
    """Return the samples of a job of which nothing else is known: its attempts are theirs."""
    held = open_spans(found.files)
    more = open_notes(found.files, held)
    return replace(found, spans=held, notes=(*notes, *found.notes, *more))


def _curves(
    files: Sequence[Columns], held: Sequence[Span], points: Sequence[int]
) -> "dict[int, Curves | None]":
    if not points:
        return {}
    from hpckit.stats.summary.curves import make_curves  # noqa: PLC0415  # for pictures alone

    return {most: make_curves(files, held, most) for most in points}


def _with_ends(job: JobUse, run: Run | None) -> tuple[Attempt, ...]:
    """Return a job's attempts, each with why it ended that another one followed."""
    if run is None or len(job.attempts) < 2:
        return job.attempts
    from hpckit.job_ends.restarts import earlier_ends  # noqa: PLC0415  # most jobs have one attempt

    parts = [row.state == JobState.RESIZING for row in job.attempts]
    # Whoever counts restarts does not count changes of size, at which nothing ended.
    numbers = [row.restart - sum(parts[:at]) for at, row in enumerate(job.attempts)]
    ends = {end.restart: end.why for end in earlier_ends(run, numbers[-1])}
    return tuple(
        replace(row, why=None if part else ends.get(number))
        for row, part, number in zip(job.attempts, parts, numbers, strict=True)
    )


def _ids(target: Target) -> frozenset[str]:
    """Return what a job is called by those who sample it."""
    last, run = target.known.last, target.known.run
    own = (run.run_id, *run.jobs) if run else ()
    names = {target.job_id, *((last.job_id, last.raw_id) if last else ()), *own}
    names.add(_whole_of_part(target))
    return frozenset(name for name in names if name)


def _whole_of_part(target: Target) -> str | None:
    """Return the job that a component of a heterogeneous job is of, by which its steps are called.

    A step over several components has the first one's SLURM_JOB_ID in all of them.
    """
    last = target.known.last
    return leader_of(last.job_id) if last else None


def live_steps(targets: Sequence[Target]) -> dict[str, tuple[StepUsage, ...]]:
    """Ask sstat about running jobs of which nothing else will tell what they use."""
    ids = [
        raw_id
        for known in (target.known for target in targets)
        if known.attempts
        and (raw_id := known.attempts[-1].record.raw_id)
        and known.state is JobState.RUNNING
        and not (known.run and has_samples(known.run.dir / "samples"))
    ]
    return running_steps(ids) if ids else {}


def _completed(job: JobUse, account: Account | None, held: Sequence[Span], now: float) -> JobUse:
    """Add what samples alone know, and attempts without any."""
    if account is None:
        return replace(job, attempts=tuple(map(_bare_attempt, held)))
    elapsed = sum(attempt.elapsed_s or 0.0 for attempt in account.attempts)
    return replace(
        job,
        elapsed_s=job.elapsed_s if held else elapsed,
        start=job.start or account.attempts[0].start,
        gpus=job.gpus if job.gpus is not None else _gpus(held, account),
        nodes=job.nodes or len(account.per_node),
        hosts=job.hosts or tuple(node.host for node in account.per_node),
        data_age_s=max(now - account.last_epoch, 0.0) if job.running else None,
    )


def _gpus(held: Sequence[Span], account: Account) -> int | None:
    planned = held[-1].gpus if held else None
    return planned if planned is not None else account.gpus


def _bare_attempt(span: Span) -> Attempt:
    return Attempt(
        restart=span.restart,
        state=span.state,
        hosts=span.hosts,
        start=span.start,
        end=span.end if span.over else None,
        elapsed_s=span.elapsed_s,
        gpu_hours=None if span.gpus is None else span.gpus * span.elapsed_s / 3600,
    )


def _rank_times(run: Run | None, files: Sequence[Columns]) -> tuple[AttemptTimes, ...]:
    """Return when each attempt began and ended, by the files of its ranks, and by its samples.

    Where a local run ended before any rank began, its own state tells.
    """
    if run is None:
        return ()
    seen: dict[int, float] = {}
    times = attempt_times(run.dir, seen)
    if not times and run.scheduler.one_machine:
        record = run.scheduler.query([run]).records.get(run.job_id)
        if record and record.start_time is not None:
            return ((record.restarts or 0, record.start_time, record.end_time),)
    return until_last_seen(times, seen, files)
