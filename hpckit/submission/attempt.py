"""What Slurm's record of a job and the files of its ranks say together of one attempt. Pure."""

from hpckit.causes import current
from hpckit.ranks import RankRecord, first_failure
from hpckit.runs import Run
from hpckit.slurm.record import JobRecord
from hpckit.slurm.states import JobState, is_finished, is_waiting

# Between the clocks of two nodes. No job starts again so soon: Slurm holds one for 120 s.
_CLOCKS_S = 30


def code_of(reason: str | None) -> str:
    """Return Slurm's code without what follows it."""
    return (reason or "").partition(",")[0].strip()


def max_requeues_of(run: Run) -> int:
    """Return how often Slurm may start a run again."""
    return int(run.record["plan"].get("max_requeues") or 0)


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
    if not max_requeues_of(run):
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
