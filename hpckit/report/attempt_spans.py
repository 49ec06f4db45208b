"""When a job's attempts held nodes: by Slurm, and by the rank files where Slurm lost it. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import zip_longest

from hpckit.report.known_job import KnownJob, Row, numbered_rows
from hpckit.slurm.states import JobRecord, JobState, is_waiting
from hpckit.slurm.usage_rows import JobUsage
from hpckit.stats.summary.attempts import Span


def spans(known: KnownJob, now: float) -> tuple[Span, ...]:
    """Return the attempts that held nodes, in order."""
    by_slurm = [*_slurm_spans(known, now), *_filled_spans(known), *_queue_spans(known, now)]
    by_slurm = list(in_turn(sorted(by_slurm, key=lambda span: span.restart)))
    found = by_slurm or list(_rank_spans(known, now))
    return tuple(span for span in found if span.end >= span.start)


def in_turn(spans: Sequence[Span]) -> Iterator[Span]:
    """Yield attempts; one that goes on for accounting was over when the next one began."""
    for span, later in zip_longest(spans, spans[1:]):
        if later and span.start <= later.start < span.end:
            yield replace(span, end=later.start, held_s=None, over=True)
        else:
            yield span


def _slurm_spans(known: KnownJob, now: float) -> "Sequence[Span]":
    return [
        _span(known, (record, usage, over), number, record.start_time, end)
        for number, (record, usage, over) in numbered_rows(known)
        if record.start_time is not None and (end := _end(record, now, over=over)) is not None
    ]


def _span(known: KnownJob, row: Row, restart: int, start: float, end: float) -> Span:
    record, usage, over = row
    return Span(
        restart=restart,
        start=start,
        end=end,
        state=str(record.state),
        hosts=record.nodes or (),
        nodes=len(record.nodes or ()) or (usage.alloc_nodes if usage else None),
        gpus=usage.alloc_gpus if usage else (known.run.gpus if known.run else None),
        memory_limit_bytes=usage.memory_limit_bytes_per_node if usage else None,
        held_s=record.elapsed_s,
        over=over,
    )


def _filled_spans(known: KnownJob) -> Iterator[Span]:
    """Yield attempts whose times Slurm lost, by the rank files, as far as these tell."""
    ranks = {restart: (start, end) for restart, start, end in known.ranks}
    for restart, record, usage in _lost(known):
        mine = restart if record.restarts is None else record.restarts
        start, end = ranks.get(mine, (None, None))
        if start is None:
            continue
        end = record.end_time or end or next_start(known, start)
        if end is not None:
            start = min(record.start_time or start, start)
            span = _span(known, (record, usage, True), restart, start, end)
            yield replace(span, held_s=record.elapsed_s or None)


def next_start(known: KnownJob, start: float) -> float | None:
    """Return when the next ranks began after some: by then these had been killed."""
    return min((later for _, later, _ in known.ranks if later > start), default=None)


def _queue_spans(known: KnownJob, now: float) -> "Sequence[Span]":
    """Return the newest attempt of a run, by the queue, where accounting does not have it yet.

    The queue knows no other, so where accounting lacks an earlier one, too, the rank files say
    more.
    """
    run, status = known.run, known.status
    if run is None or status is None or run.scheduler.one_machine or is_waiting(status.state):
        return []
    start, elapsed_s, newest = status.start_time, status.elapsed_s, status.attempt or 0
    records = [row.record for row in known.attempts]
    told = [record.restarts for record in records if record.state is not JobState.RESIZING]
    begun = max((restart for restart, _, _ in known.ranks), default=0)
    if start is None or elapsed_s is None or told != [*range(newest)] or begun > newest:
        return []
    return [
        Span(
            restart=newest + len(records) - len(told),
            start=start,
            end=start + elapsed_s if status.finished else max(now, start),
            state=str(known.state),
            hosts=status.nodes,
            nodes=len(status.nodes) or None,
            gpus=run.gpus,
            held_s=elapsed_s,
            over=status.finished,
        )
    ]


def _end(record: JobRecord, now: float, *, over: bool) -> float | None:
    """Return when an attempt ended, or now; None if it had no node, or nobody knows its end."""
    start, end = record.start_time, record.end_time
    if start is None or (is_waiting(record.state) and not end):
        return None
    if end is not None and end >= start:
        return end
    if not over:
        return now
    return None if record.elapsed_s is None else start + record.elapsed_s


def lost_rows(known: KnownJob, attempts: Sequence[Span]) -> list[JobRecord]:
    """Return Slurm's rows of attempts that held nodes, but nobody knows from when to when."""
    held = {span.restart for span in attempts}
    return [row for number, row, _ in _lost(known) if number not in held and row.elapsed_s != 0]


def filled(known: KnownJob, attempts: Sequence[Span]) -> list[tuple[int, bool]]:
    """Return attempts that Slurm lost and the rank files tell, and whether it knows an end."""
    held = {span.restart for span in attempts}
    return [
        (restart, record.end_time is not None)
        for restart, record, _ in _lost(known)
        if restart in held
    ]


def _lost(known: KnownJob) -> list[tuple[int, JobRecord, JobUsage | None]]:
    """Return the rows of attempts that do not wait and whose times Slurm lacks, by number.

    Where only a start was lost, Slurm says that such an attempt took no time at all.
    """
    rows = numbered_rows(known)
    return [
        (number, record, usage)
        for at, (number, (record, usage, over)) in enumerate(rows)
        if _end(record, 0.0, over=over) is None
        and (at < len(rows) - 1 or record.end_time is not None or not is_waiting(record.state))
    ]


def _rank_spans(known: KnownJob, now: float) -> "Sequence[Span]":
    """Return the attempts by the rank files: of local runs, and where Slurm has forgotten.

    Without the newest one, where it is over and nobody knows its end.
    """
    run, status = known.run, known.status
    gone = bool(status and (status.finished or status.left_queue or status.waiting))
    gpus = None if run is None or run.scheduler.one_machine else run.gpus
    found = []
    for number, (restart, start, end) in enumerate(known.ranks):
        newest = number == len(known.ranks) - 1
        over = not newest or bool(status and status.finished)
        if end is None and over and newest and status and status.elapsed_s is not None:
            end = start + status.elapsed_s
        if end is None and not newest:
            end = known.ranks[number + 1][1]  # it was killed, at the latest when the next began
        if end is None and gone:
            break
        found.append(
            Span(
                restart=restart,
                start=start,
                end=end if end is not None else now,
                state=str(known.state) if newest else None,
                gpus=gpus,
                over=over,
            )
        )
    return found
