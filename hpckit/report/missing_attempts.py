"""A run's attempts of which accounting has no row, or none yet: by the files of ranks. Pure.

What accounting was told of an attempt may come late, and is lost if slurmdbd was. Its rows have no
number, so one that lacks shifts all that follow; when their ranks began tells which is which.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from hpckit.report.attempt_spans import next_start
from hpckit.report.known_job import KnownJob
from hpckit.run_folders.ranks import AttemptTimes
from hpckit.run_folders.runs import Run
from hpckit.slurm.states import JobRecord, JobState, is_waiting
from hpckit.slurm.usage_rows import JobUsage
from hpckit.stats.samples.columns import Columns
from hpckit.stats.summary.figures import RUN

# A start in whole seconds, and two clocks of one cluster.
_APART_S = 2.0


def until_last_seen(
    ranks: Sequence[AttemptTimes], ended: Mapping[int, float], files: Iterable[Columns]
) -> tuple[AttemptTimes, ...]:
    """Give attempts with ranks that were killed the last moment at which something was there.

    The newest attempt may go on, and stays as it is.

    Args:
        ranks: of each attempt, in order.
        ended: the last end of those ranks that have one, by attempt.
        files: samples.
    """
    seen = dict(ended)
    for file in files:
        seen[file.restart] = max(file.last_epoch, seen.get(file.restart, 0.0))
    earlier = (
        (number, start, seen[number] if end is None and seen.get(number, start) > start else end)
        for number, start, end in ranks[:-1]
    )
    return (*earlier, *ranks[-1:])


def with_all_attempts(known: KnownJob) -> KnownJob:
    """Number accounting's rows as the ranks do, and add a row for each attempt that has none.

    Only attempts before the newest one that Slurm knows are added. Nothing changes where ranks and
    rows contradict each other, and for a job that changed its size, whose rows are not attempts.
    """
    rows, run = known.attempts, known.run
    if not rows or not known.ranks or run is None:
        return known
    if any(row.record.state is JobState.RESIZING for row in rows):
        return known
    numbers = _numbers(known)
    if numbers is None:
        return known
    named = {
        number: replace(row, record=replace(row.record, restarts=number))
        for number, row in zip(numbers, rows, strict=True)
    }
    added = {row.record.restarts: row for row in _missing(known, run, named)}
    return replace(known, attempts=tuple(row for _, row in sorted((named | added).items())))


def _numbers(known: KnownJob) -> list[int] | None:
    """Return the number of each row's attempt; None if ranks and rows contradict each other."""
    found: list[int] = []
    for at, row in enumerate(known.attempts):
        least = found[-1] + 1 if found else 0
        begun = _begun_in(known, at, least)
        # A job whose ranks never began is known by its row alone, which has its place.
        number = max(least, row.record.restarts or 0) if begun is None else begun
        if number < least:
            return None
        found.append(number)
    return found


def _begun_in(known: KnownJob, at: int, least: int) -> int | None:
    """Return the attempt whose ranks began in the time of a row; None if there is none."""
    start, end = known.attempts[at].record.start_time, known.attempts[at].record.end_time
    if start is None:  # Slurm lost it: the last one that had begun
        begun = [row[0] for row in known.ranks if end and row[1] <= end and row[0] >= least]
        return begun[-1] if begun else None
    later = (row.record.start_time for row in known.attempts[at + 1 :])
    ends = [moment for moment in (end, *later) if moment is not None and moment >= start]
    last = min(ends, default=math.inf)
    return next((row[0] for row in known.ranks if start - _APART_S <= row[1] <= last), None)


def _missing(known: KnownJob, run: Run, rows: dict[int, JobUsage]) -> Iterator[JobUsage]:
    """Yield a row for each attempt that the ranks know and accounting does not."""
    status, newest = known.status, max(rows)
    if status and status.start_time is not None and not is_waiting(status.state):
        newest = max(newest, status.attempt or 0)
    nodes = int(run.record["plan"]["nodes"])
    for number, start, end in known.ranks:
        if number in rows or number >= newest:
            continue
        record = JobRecord(
            job_id=run.job_id,
            state=JobState.UNKNOWN,
            source=RUN,
            name=run.record["name"],
            start_time=start,
            end_time=end or next_start(known, start),
            restarts=number,
        )
        yield JobUsage(record=record, alloc_nodes=nodes, alloc_gpus=run.gpus)
