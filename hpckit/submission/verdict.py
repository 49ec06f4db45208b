"""Slurm's word and the ranks' own records, weighed together: is a run over, and did it end well?

Pure. Neither side is believed alone where the other can know better: Slurm calls a job COMPLETED
whose step lost a node's slurmstepd (srun then knows of no bad exit), and a rank's end says nothing
of the attempt that Slurm starts next.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from hpckit.run_folders.ranks import (
    RankRecord,
    current,
    first_failure,
    is_about_a_peer,
    not_ended,
    own_failures,
)
from hpckit.run_folders.runs import Run
from hpckit.slurm.states import JobRecord, JobState, is_finished, is_waiting
from hpckit.text import listed
from hpckit.units import format_minutes

# How long a file written on another node may stay unseen: NFS keeps what it knows of a folder for
# acdirmax, 60 s unless mounted otherwise (nfs(5)).
LATE_S = 60.0
_NAMED = 3
# From when on it is said that a rank goes on: also longer than a file may stay unseen.
_STRAGGLING_S = 90.0
# Between the clocks of two nodes. No job starts again so soon: Slurm holds one for 120 s.
_CLOCKS_S = 30
# What accounting can say of an attempt that no other follows by itself.
_FOR_GOOD = frozenset({JobState.COMPLETED, JobState.CANCELLED, JobState.DEADLINE, JobState.REVOKED})


# Slurm's states of which `unless_over` may know better.
DOUBTED = (JobState.PREEMPTED, JobState.TIMEOUT, JobState.FAILED)


def contradiction(
    ranks: Sequence[RankRecord], planned: int, never_begun: Callable[[], str | None]
) -> str | None:
    """Say which ranks of a job that Slurm calls COMPLETED did not end well; None: all did.

    No record at all is no contradiction: a group's own template may start no rank of hpckit's, and
    others' folders may hide theirs. Then `never_begun` may say why none is there.
    """
    if not ranks:
        return never_begun()
    wrong = [*_failed(ranks), *_lost(ranks, planned)]
    return listed(wrong, _NAMED) or None


def may_be_late(ranks: Sequence[RankRecord], end: float | None, now: float) -> bool:
    """Say whether ends that are missing may only be on their way through the file system.

    `end` is when the job ended, None if not known; both are epoch seconds. Of ranks that srun did
    not start, nothing is on its way.
    """
    failed = any(row.exit_code for row in ranks)
    return bool(ranks) and not failed and end is not None and abs(now - end) < LATE_S


def doubt_of_end(record: JobRecord, ranks: Sequence[RankRecord], most: int) -> str | None:
    """Say why accounting's row of a finished attempt may not be the job's end; None: it is.

    For when squeue cannot be asked, which alone knows of a job's way back into the queue. Slurm
    starts no job again that was submitted with --no-requeue: sbatch(1).
    """
    if record.restarts is not None and any(row.restart > record.restarts for row in ranks):
        return "its ranks have begun another attempt"
    if most and record.state not in _FOR_GOOD:
        return "it may start again"
    return None


def not_begun(record: JobRecord, ranks: Sequence[RankRecord]) -> bool:
    """Say whether a job that waits, or that is over, has held no node in this attempt."""
    if record.elapsed_s or ranks:
        return False
    if is_waiting(record.state):
        return True
    ended_badly = is_finished(record.state) and record.state is not JobState.COMPLETED
    return ended_badly and not record.nodes and record.start_time is None


def outdated(record: JobRecord, ranks: Sequence[RankRecord]) -> str | None:
    """Say why accounting's row cannot be the last word on a job that left the queue; None: it may.

    The daemon that writes accounting may be minutes behind, or have lost the end of a job for good
    (sacctmgr(1), "show runawayjobs"). Of other users' jobs the queue may not say that it has them.
    """
    if not is_finished(record.state):
        return f"accounting says {record.state}, but the queue no longer lists the job"
    if record.restarts is not None and any(row.restart > record.restarts for row in ranks):
        return "accounting knows only an earlier attempt, and the queue no longer lists the job"
    return None


def taken_away(
    state: JobState,
    *,
    time_limit_min: int | None,
    restarts: int | None,
    most: int,
    option: str = "--max-requeues",
    no_checkpoint: bool = False,
) -> str:
    """Say what took a job away, and in which of its attempts.

    A FAILED one, none of whose ranks did, ended when it was told of a time limit or preemption.

    Args:
        state: what became of it.
        time_limit_min: its time limit.
        restarts: how often it was started again.
        most: how often it might have been.
        option: what said so.
        no_checkpoint: it was not, because it left nothing that --checkpoint names.
    """
    limit = f" of {format_minutes(time_limit_min)}" if time_limit_min else ""
    what = f"it reached its time limit{limit}"
    if state is JobState.PREEMPTED:
        what = "jobs with a higher priority took its nodes"
    elif state is JobState.FAILED:
        what = (
            f"its script ended after the signal that the time limit{limit} or a preemption was near"
        )
    if not most:
        return what
    attempt = "" if restarts is None else f", in attempt {restarts + 1} of {most + 1}"
    kept = ", and left no checkpoint that --checkpoint names" if no_checkpoint else ""
    return f"{what}{attempt} ({option} {most}){kept}"


def unless_over(
    state: JobState, ranks: Sequence[RankRecord], planned: int, words: Sequence[set[str]]
) -> JobState:
    """Return Slurm's state, but PREEMPTED just where a preemption has ended the newest attempt.

    Slurm may take the end of an attempt for the preemption of an earlier one: see `no_requeue`. And
    until 24.05 it calls FAILED what ends in its own one's grace time, for nobody ended the script.
    TIMEOUT only where the time limit has ended a rank: what a job does after that takes seconds.

    Args:
        state: what Slurm says.
        ranks: of the newest attempt.
        planned: how many there should be.
        words: what `stop_marks` has of each attempt, the newest one's last.
    """
    from hpckit.stop_marks import (  # noqa: PLC0415  # few are
        NO_CHECKPOINT,
        PREEMPTED,
        REQUEUED,
        TERMINATED,
        stopped_early,
    )

    *earlier, said = words
    if state is JobState.TIMEOUT:
        left = stopped_early(said, 0) or said & {NO_CHECKPOINT, PREEMPTED, REQUEUED}
        return state if left or not _done_by_itself(ranks, planned) else JobState.COMPLETED
    if state is JobState.FAILED:
        own = any(not is_about_a_peer(row) for row in own_failures(ranks))
        return state if own or PREEMPTED not in said else JobState.PREEMPTED
    told = not said.isdisjoint({PREEMPTED, REQUEUED})
    if state is not JobState.PREEMPTED or not (told or any(PREEMPTED in row for row in earlier)):
        return state
    if all_ended(ranks, planned) and not any(row.exit_code for row in ranks):
        early = stopped_early(said, 0) or TERMINATED in said
        return state if told and early else JobState.COMPLETED
    return JobState.FAILED if own_failures(ranks) and not told else state


def ended_when_told(
    state: JobState,
    ranks: Sequence[RankRecord],
    run: Run,
    restarts: int | None,
    *,
    early: bool = False,
) -> bool:
    """Say whether a job that FAILED did so only because its last attempt was told to end.

    `early`: hpckit or the script itself has written so.
    """
    requeues = most_restarts(run)
    last = bool(requeues) and restarts is not None and restarts >= requeues
    well = all_ended(ranks, run.ranks) and not any(row.exit_code for row in ranks)
    return state is JobState.FAILED and well and (last or early)


def all_ended(ranks: Sequence[RankRecord], planned: int) -> bool:
    """Say whether every rank of the newest attempt has written its end."""
    return len(ranks) == planned and all(row.ended is not None for row in ranks)


def _done_by_itself(ranks: Sequence[RankRecord], planned: int) -> bool:
    """Say whether every rank of an attempt has ended well, and none because it was told to end."""
    return all_ended(ranks, planned) and not any(row.exit_code or row.consequence for row in ranks)


def straggling(ranks: Sequence[RankRecord], planned: int, now: float) -> str | None:
    """Say of a running job which ranks have not ended long after the others; None: it is not so.

    "7 of 8 ranks have ended, rank 3 has not for 2 min"; `now` is in epoch seconds.
    """
    words = not_ended(ranks, planned)
    passed_s = now - max((row.ended for row in ranks if row.ended is not None), default=now)
    if words is None or passed_s < _STRAGGLING_S:
        return None
    return f"{words} for {passed_s / 60:.0f} min"


def _failed(ranks: Sequence[RankRecord]) -> Iterator[str]:
    # Those first that were not stopped because of another.
    for row in sorted(ranks, key=lambda row: row.consequence):
        if row.exit_code:
            yield f"rank {row.rank} on {row.host} ended with exit status {row.exit_code}"


def _lost(ranks: Sequence[RankRecord], planned: int) -> Iterator[str]:
    for row in ranks:
        if row.ended is None:
            yield f"rank {row.rank} on {row.host} recorded no end"
    for number in sorted({*range(planned)} - {row.rank for row in ranks}):
        yield f"rank {number} left no record"


def most_restarts(run: Run) -> int:
    """Return how often a run may start again: by requeues, or by the other jobs of its chain."""
    return int(run.record["plan"].get("max_requeues") or 0) or len(run.jobs) - 1


def numbered(record: JobRecord, ranks: Sequence[RankRecord]) -> JobRecord:
    """Return accounting's row of an attempt that is over with the number that its ranks have.

    Accounting numbers the rows it has; one that it never got, or lost, shifts all that follow.
    """
    began, ended = record.start_time, record.end_time
    if record.restarts is None or began is None or ended is None or not is_finished(record.state):
        return record
    mine = [row.restart for row in ranks if began - _CLOCKS_S < row.started <= ended]
    return replace(record, restarts=max([record.restarts, *mine]))


def restarts_of(record: JobRecord, ranks: tuple[RankRecord, ...]) -> int | None:
    """Count restarts by the ranks' own files where Slurm does not say (squeue)."""
    if record.restarts is not None or not ranks:
        return record.restarts
    # A job that waits though its ranks have run is on its way to the next attempt.
    return max(rank.restart for rank in ranks) + is_waiting(record.state)


def of_attempt(
    run: Run, record: JobRecord, ranks: tuple[RankRecord, ...]
) -> tuple[RankRecord, ...]:
    """Leave out what an earlier attempt wrote: this one may wait, or have failed in its set-up."""
    if not most_restarts(run):
        return ranks  # submitted with --no-requeue
    if is_waiting(record.state):
        return ()
    began = record.start_time
    if record.restarts is not None or began is None:
        return current(ranks, record.restarts)
    # squeue, of a job that runs or that ended well.
    newer = (row for row in ranks if row.started > began - _CLOCKS_S)
    return tuple(row for row in newer if row.ended is None or row.ended >= began)


def exit_code_of(record: JobRecord, ranks: tuple[RankRecord, ...]) -> int | None:
    """Return how a job that is over ended: the first failed rank's word before Slurm's."""
    if not is_finished(record.state):
        return None
    if record.state is JobState.COMPLETED:
        return 0
    failed = first_failure(list(ranks))
    return failed.exit_code if failed else record.exit_code


def longest_s(ranks: tuple[RankRecord, ...]) -> float | None:
    """Return how long the longest rank took: by its own node's clock, since others' may differ."""
    spans = [rank.ended - rank.started for rank in ranks if rank.ended is not None]
    return max((span for span in spans if span >= 0), default=None)
