"""Notes on what the sources do not say of a job: lost times, silent queues, no samples. Pure."""

from collections.abc import Iterator, Sequence

from hpckit.report.attempt_spans import filled, lost_rows
from hpckit.report.known_job import KnownJob
from hpckit.report.terminal import duration
from hpckit.slurm.states import JobState, is_finished, is_past_limit
from hpckit.stats.samples.columns import Columns
from hpckit.stats.summary.attempts import Span
from hpckit.stats.summary.figures import RUN, SourceNote


def lost_notes(known: KnownJob, held: Sequence[Span]) -> Iterator[SourceNote]:
    """Say which attempts stand in no list and no sum, and which are by their ranks alone."""
    for row in lost_rows(known, held):
        text = f"Accounting does not give the start and end of an attempt ({row.state})."
        yield SourceNote(code="attempt_lost", text=text)
    for usage in known.attempts:
        if usage.record.source == RUN:
            text = (
                f"Accounting does not have attempt {usage.record.restarts} (yet): its time is from "
                "the first rank's start to the last rank's end or sample."
            )
            yield SourceNote(code="rank_times", text=text)
    for restart, ended in filled(known, held):
        moments, end = (
            ("start", "its end") if ended else ("start and end", "the last rank's end or sample")
        )
        text = (
            f"Accounting does not give the {moments} of attempt {restart}: its time is from the "
            f"first rank's start to {end}."
        )
        yield SourceNote(code="rank_times", text=text)


def state_notes(known: KnownJob) -> Iterator[SourceNote]:
    """Say that a run's state may have changed since, where the queue was silent."""
    status = known.status
    if status and status.unanswered and not (status.finished or status.left_queue):
        text = f"Slurm's queue did not answer, so the state may be old: {status.silence}"
        yield SourceNote(code="no_queue", text=text)


def end_notes(known: KnownJob) -> Iterator[SourceNote]:
    """Say of a job that the queue does not have, and that is over, that accounting has no end."""
    last = known.last
    if known.record or last is None:
        return
    limit_s = last.time_limit_min * 60 if last.time_limit_min else None
    if is_past_limit(last.state, last.elapsed_s, limit_s):
        text = (
            "Accounting has lost the end of this job: the queue does not have the job, and its "
            "time limit is over. Its time and hours go on up to now, and are too high. "
            "Administrators correct this: sacctmgr show runawayjobs."
        )
        yield SourceNote(code="end_lost", text=text)


def rank_notes(known: KnownJob, held: Sequence[Span], *, sampled: bool) -> Iterator[SourceNote]:
    """Say that Slurm gave none of a job's times; the set-up before its ranks is not in theirs."""
    status, by_slurm = known.status, known.attempts or known.record
    told = by_slurm or (status and status.start_time)
    newest = known.ranks[-1][0] if known.ranks and not by_slurm else None
    if newest is not None and newest not in {span.restart for span in held}:
        what = "its time is that of its samples" if sampled else "how long it was is unknown"
        text = f"Nobody has recorded the end of attempt {newest}: {what}."
        yield SourceNote(code="attempt_lost", text=text)
    if held and status and not told and not status.run.scheduler.one_machine:
        text = (
            "Slurm does not say when the job ran: its time is from the first rank's start to the "
            "last rank's end or sample."
        )
        yield SourceNote(code="rank_times", text=text)


def suspended_notes(held: Sequence[Span]) -> Iterator[SourceNote]:
    """Say for how long a job held no cores between its start and its end."""
    away = sum(span.suspended_s for span in held)
    if away:
        text = (
            f"The job was suspended for {duration(away)}: its time and hours do not include this."
        )
        yield SourceNote(code="suspended", text=text)


def missing_notes(
    known: KnownJob, files: Sequence[Columns], step: str | None, *, started: bool
) -> Iterator[SourceNote]:
    """Say why there are no figures of a job or a step of it, where there are none."""
    if not files and step is not None and started:
        text = "This step has no samples. A step is sampled by srun hpckit sample -- COMMAND."
        yield SourceNote(code="no_samples", text=text)
    elif not files:
        code, text = _why_none(known, started=started)
        yield SourceNote(code=code, text=text)
    elif known.run and known.run.scheduler.one_machine and not any(f.header.gpus for f in files):
        yield SourceNote(code="cpu_run", text="This machine has no GPU: the ranks ran on the CPU.")


def _why_none(known: KnownJob, *, started: bool) -> tuple[str, str]:
    """Return the code and the text of the note on a job without samples."""
    if known.sampled:
        return "no_samples", "The files of this job's samples have no samples yet."
    if not started and known.state is JobState.UNKNOWN:
        return "not_known", (
            "hpckit does not know what became of this job, or whether it had a node, so there "
            "are no figures."
        )
    if not started:
        never = "never had a node" if is_finished(known.state) else "has not had a node yet"
        return "not_started", f"The job {never}, so there are no figures."
    if known.run and known.run.record["plan"].get("sample_interval_s") == 0:
        return "no_samples", "Sampling was off (--sample-interval 0)."
    if known.run:
        return "no_samples", "This job has no samples."
    if known.last and known.last.name is None:
        return "no_samples", (
            "Accounting does not know yet in which folder this job works, so its samples, if "
            "it has any, are not here. Ask again in some seconds."
        )
    return "no_samples", (
        "hpckit has no run of this job, and its folder has no samples. A job script of "
        "your own is sampled by srun hpckit sample -- COMMAND in it."
    )
