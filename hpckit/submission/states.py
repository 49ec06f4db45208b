"""What became of runs: squeue, then sacct, then the rank files. Never finished when unknown."""

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from hpckit.run_folders.ranks import RankRecord, first_failure, read_ranks
from hpckit.run_folders.runs import Run
from hpckit.schedulers.base import Answers, Scheduler
from hpckit.schedulers.local.state import cancel_asked
from hpckit.slurm.reasons import is_held
from hpckit.slurm.states import JobRecord, JobState, SlurmSource, is_finished, is_waiting
from hpckit.submission import verdict
from hpckit.submission.status import RunStatus
from hpckit.submission.verdict import (
    exit_code_of,
    longest_s,
    most_restarts,
    of_attempt,
    restarts_of,
)


def by_scheduler(runs: Sequence[Run]) -> dict[Scheduler, list[Run]]:
    """Return runs by who queued them."""
    found: dict[Scheduler, list[Run]] = {}
    for run in runs:
        found.setdefault(run.scheduler, []).append(run)
    return found


def statuses(runs: Sequence[Run], *, in_full: bool = False) -> list[RunStatus]:
    """Return the status of every run; each scheduler is asked once, for all that it has.

    `in_full`, as for one run alone: once more for what its queue leaves out of those that failed.
    """
    said = {row: row.query(its) for row, its in by_scheduler(runs).items()}
    if in_full or len(runs) == 1:
        said = {row: row.in_full(answers) for row, answers in said.items()}
    return [_status(run, said[run.scheduler]) for run in runs]


def _status(run: Run, said: Answers) -> RunStatus:
    damaged: list[str] = []
    ranks = tuple(read_ranks(run.dir, damaged))
    unread = bool(damaged)
    damaged += said.damaged.get(run.run_id, ())
    listed = said.queue and any(job in said.records for job in run.jobs)
    silent = bool(said.trouble) and not listed
    status = replace(
        _told(run, ranks, said, unread=unread),
        silence="; ".join(said.trouble) if silent else None,
        left_queue=_has_left(run, said),
    )
    if len(run.jobs) > 1 and (attempt := status.restarts):
        from hpckit.submission.chain import begun_before  # noqa: PLC0415  # few runs are chains

        begun = begun_before(run, attempt, said.records)
        status = replace(status, restarts=begun, passed_over=attempt - begun)
    if status.state is JobState.RUNNING and not status.reason_text:
        words = verdict.straggling(status.ranks, run.ranks, time.time())
        status = replace(status, reason_text=words)
    return replace(status, damaged=tuple(damaged))


def _has_left(run: Run, said: Answers) -> bool:
    """Say whether the queue answered and does not list a run's job; a local run has none."""
    record = _record(run, said)
    unlisted = record is None or record.source == SlurmSource.SACCT
    return said.queue and unlisted and run.scheduler.accounting


def _told(run: Run, ranks: tuple[RankRecord, ...], said: Answers, *, unread: bool) -> RunStatus:
    """Return what the scheduler and the ranks say; `unread`: some ranks' files cannot be read."""
    if why := said.lost.get(run.run_id):
        status = _inferred(run, ranks, Answers(trouble=(why,)))
        return replace(status, elsewhere=not status.finished)
    record = _record(run, said)
    if record is None:
        return _inferred(run, ranks, said)
    record = verdict.numbered(record, ranks)
    if _has_left(run, said) and run.mine and (why := verdict.outdated(record, ranks)):
        return _inferred(run, ranks, replace(said, trouble=(*said.trouble, why)))
    record = _unless_over(run, record, ranks)
    status = _as_recorded(run, record, ranks)
    if not said.queue:
        return _without_queue(status, record, said, unread=unread)
    # On one machine no file comes late.
    ended = None if run.scheduler.one_machine else record.end_time
    return _completed(status, ended, unread=unread) if status.good else status


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
        elapsed_s=_elapsed_s(record, ranks),
        start_time=None if waiting else record.start_time,
        time_limit_min=record.time_limit_min,
        # Of a held job, Slurm gives its begin time as its start.
        expected_start=record.start_time if waiting and not is_held(record.reason) else None,
        restarts=restarts,
        exit_code=exit_code_of(record, ranks),
        ranks=ranks,
        held_by=record.held_by,
    )


def _elapsed_s(record: JobRecord, ranks: tuple[RankRecord, ...]) -> float | None:
    """Return how long an attempt runs or ran: Slurm counts 0 s for what has not begun, too.

    And for one of which slurmdbd 22.05 has lost the start: its ranks say how long it was.
    """
    if verdict.not_begun(record, ranks):
        return None
    if record.elapsed_s or not is_finished(record.state):
        return record.elapsed_s
    by_ranks = longest_s(ranks)
    return by_ranks if by_ranks and by_ranks > 1 else record.elapsed_s


def _unless_over(run: Run, record: JobRecord, ranks: tuple[RankRecord, ...]) -> JobRecord:
    """Return Slurm's record, but for what the ranks and their supervisors know better."""
    newer = of_attempt(run, record, ranks)
    return replace(record, state=_known_better(run, record.state, ranks, newer))


def _known_better(
    run: Run, state: JobState, ranks: Sequence[RankRecord], newer: Sequence[RankRecord]
) -> JobState:
    """Return a state by `verdict.unless_over`; `newer`: the ranks of the newest attempt."""
    if state not in verdict.DOUBTED or not ranks:
        return state
    from hpckit.stop_marks import marks_of, marks_until  # noqa: PLC0415  # few end so

    words = marks_until(marks_of(run.dir, 0), max(row.restart for row in ranks))
    return verdict.unless_over(state, newer, run.ranks, words)


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
    if record.reason or is_waiting(record.state):
        return run.scheduler.explain(run, record)
    if record.state not in (JobState.TIMEOUT, JobState.PREEMPTED, JobState.FAILED):
        return None
    from hpckit.stop_marks import NO_CHECKPOINT, STOPPED, UNDONE, marks, marks_of  # noqa: PLC0415

    words = marks(marks_of(run.dir, 0), restarts or 0)
    early = not words.isdisjoint({STOPPED, UNDONE, NO_CHECKPOINT})
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


def _without_queue(
    status: RunStatus, record: JobRecord, said: Answers, *, unread: bool
) -> RunStatus:
    """Return what accounting alone tells: of an attempt that another may follow, it is no end."""
    if not status.finished:
        return replace(status, reason_text=f"as accounting last knew it; {_first(said)}")
    doubt = verdict.doubt_of_end(record, status.ranks, most_restarts(status.run))
    if doubt is None:
        return _completed(status, record.end_time, unread=unread) if status.good else status
    why = f"last seen {status.state} by accounting, but {doubt}; {_first(said)}"
    return replace(status, state=JobState.UNKNOWN, reason_text=why, exit_code=None)


def _first(said: Answers) -> str:
    return next(iter(said.trouble), "the queue did not answer")


def _completed(status: RunStatus, ended: float | None, *, unread: bool) -> RunStatus:
    """Return a status that calls a run COMPLETED, if its ranks agree; else what they make of it.

    `ended` is when, None where its files cannot come late. `unread`: which ranks have left no
    record is not known, for some cannot be read now.
    """
    if unread and not status.ranks:
        return status
    wrong = verdict.contradiction(
        status.ranks,
        0 if unread else status.run.ranks,
        lambda: _never_begun(status.run.dir),
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
    from hpckit.job_ends.failures import never_begun  # noqa: PLC0415  # few that end well have no ranks

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
        state = _known_better(run, state, ranks, ranks)
        why = f"judged by the rank files ({why})"
    elif ended:
        why = f"every rank had ended when last seen, but it may start again; {why}"
    elif not said.trouble and not ranks and cancel_asked(run.dir):
        state, why = JobState.CANCELLED, ""  # by hpckit, before it started
    return RunStatus(
        run=run,
        state=state,
        source="ranks",
        reason_text=why or None,
        nodes=tuple(dict.fromkeys(rank.host for rank in ranks)),
        elapsed_s=longest_s(ranks) if over else None,
        restarts=max((rank.restart for rank in ranks), default=None),
        exit_code=(failed.exit_code if failed else 0) if over else None,
        ranks=ranks,
    )
