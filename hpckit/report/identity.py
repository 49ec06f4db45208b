"""Who a job is, what it asked for and when it held its nodes: of its run, and of Slurm. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any

from hpckit.frozen import frozen
from hpckit.run_record import session_kind
from hpckit.runs import Run
from hpckit.slurm.resized import own_times, places
from hpckit.slurm.states import JobRecord, JobState, is_finished, is_waiting
from hpckit.slurm.usage_rows import JobUsage
from hpckit.stats.summary.attempts import Span
from hpckit.stats.summary.coverage import total
from hpckit.stats.summary.figures import RUN, SACCT, JobUse, Requested
from hpckit.submission.status import RunStatus

# Slurm's row of an attempt, what it used, and whether it is over.
_Row = tuple[JobRecord, JobUsage | None, bool]


@frozen(kw_only=True)
class KnownJob:
    """All that is known of a job but its samples; at least one of them is there.

    Attributes:
        attempts: sacct's rows, oldest first.
        record: squeue's or scontrol's, of a job that accounting does not have.
        ranks: (restart, start, end or None) of each attempt, by the rank files.
    """

    run: Run | None = None
    status: RunStatus | None = None
    attempts: tuple[JobUsage, ...] = ()
    record: JobRecord | None = None
    ranks: tuple[tuple[int, float, float | None], ...] = ()

    @property
    def last(self) -> JobRecord | None:
        """Slurm's own record of the newest attempt."""
        return self.attempts[-1].record if self.attempts else self.record

    @property
    def state(self) -> JobState:
        """The state; squeue's (in the status) before sacct's, which lags."""
        if self.status and self.status.state is not JobState.UNKNOWN:
            return self.status.state
        return self.last.state if self.last else JobState.UNKNOWN


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
        for number, (record, usage, over) in _numbered(known)
        if record.start_time is not None and (end := _end(record, now, over=over)) is not None
    ]


def _span(known: KnownJob, row: _Row, restart: int, start: float, end: float) -> Span:
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
    begins = sorted(start for start, _ in ranks.values())
    for restart, record, usage in _lost(known):
        mine = restart if record.restarts is None else record.restarts
        start, end = ranks.get(mine, (None, None))
        if start is None:
            continue
        # Its ranks were killed, at the latest when the next ones began.
        end = record.end_time or end or next((later for later in begins if later > start), None)
        if end is not None:
            start = min(record.start_time or start, start)
            span = _span(known, (record, usage, True), restart, start, end)
            yield replace(span, held_s=record.elapsed_s or None)


def _queue_spans(known: KnownJob, now: float) -> "Sequence[Span]":
    """Return the newest attempt of a run, by the queue, where accounting does not have it yet.

    The queue knows no other, so where accounting lacks an earlier one, too, the rank files say
    more.
    """
    run, status = known.run, known.status
    if run is None or status is None or run.scheduler.one_machine or is_waiting(status.state):
        return []
    start, elapsed_s, newest = status.start_time, status.elapsed_s, status.restarts or 0
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


def _rows(known: KnownJob) -> list[_Row]:
    """Return Slurm's rows, and whether each attempt is over."""
    rows: list[tuple[JobRecord, JobUsage | None]] = [(row.record, row) for row in known.attempts]
    if not rows and known.record:
        rows = [(known.record, None)]
    if rows:
        record, usage = rows[-1]
        number = len(rows) - 1 if record.restarts is None else record.restarts
        rows[-1] = (_by_queue(known, number, record), usage)
    finished = is_finished(known.state)
    return [
        (record, usage, number < len(rows) - 1 or finished)
        for number, (record, usage) in enumerate(rows)
    ]


def _numbered(known: KnownJob) -> list[tuple[int, _Row]]:
    """Return Slurm's rows, each with a number of its own: also where an attempt has several."""
    rows = _rows(known)
    return list(zip(places(record for record, _, _ in rows), rows, strict=True))


def _by_queue(known: KnownJob, number: int, record: JobRecord) -> JobRecord:
    """Return the newest attempt's row, with the queue's times where accounting lacks them.

    slurmdbd 22.05 at times writes over a start with that of a job which waits, none: it says then
    that the attempt took no time. A job that was cancelled while it waited has taken none. And
    what is over for the queue goes on for accounting until that hears of it. A new job's row is its
    first step's: it has the nodes of that alone, and its start, which may be a second later.
    """
    status = known.status
    if status is None or not status.start_time or (status.restarts or 0) != number:
        return record
    new = record.name is None
    late = status.finished and not is_finished(record.state) and status.elapsed_s is not None
    lost = (new or record.start_time is None) and not is_waiting(record.state)
    # An earlier attempt's preemption, for Slurm: the run's own files say more.
    over = status.finished and record.state is JobState.PREEMPTED
    if late or over:
        record = replace(record, state=status.state)
    if late or new:
        nodes = (status.nodes if new else ()) or record.nodes or status.nodes or None
        record = replace(record, nodes=nodes)
    if not late and not (lost and status.elapsed_s):
        return record
    return own_times(replace(record, start_time=status.start_time, elapsed_s=status.elapsed_s))


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
    return [
        (number, record, usage)
        for number, (record, usage, over) in _numbered(known)
        if _end(record, 0.0, over=over) is None
        and (record.end_time is not None or not is_waiting(record.state))
    ]


def _elapsed(known: KnownJob, attempts: Sequence[Span]) -> float | None:
    """Return the time of all attempts; None if one's is not known, or none has held a node."""
    # A row whose moments Slurm lost still says how long it was.
    lost = [row.elapsed_s for row in lost_rows(known, attempts)]
    return total([*(span.elapsed_s for span in attempts), *lost])


def _began(known: KnownJob, attempts: Sequence[Span]) -> float | None:
    """Return when the first attempt began; None if one may have been earlier."""
    starts = [row.start_time for row in lost_rows(known, attempts)]
    known_starts = [*(span.start for span in attempts), *(start for start in starts if start)]
    by_ranks = min((start for _, start, _ in known.ranks), default=None)
    return None if None in starts else min(known_starts, default=by_ranks)


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


def identify(job_id: str, known: KnownJob, attempts: Sequence[Span]) -> JobUse:
    """Return the job without any figure of use."""
    record, run, state = known.last, known.run, known.state
    said = (record, known.record)
    written: Mapping[str, Any] = run.record if run else {}
    usage = known.attempts[-1] if known.attempts else None
    hosts = attempts[-1].hosts if attempts else ()
    hosts = hosts or (known.status.nodes if known.status else ())
    requested = _requested(known)
    source = str(record.source) if record else RUN
    return JobUse(
        job_id=job_id,
        raw_id=record.raw_id if record else None,
        run_id=run.run_id if run else None,
        run_dir=str(run.dir) if run else None,
        # sacct writes a quotation mark in a name as a backtick.
        name=written.get("name") or next((row.name for row in said if row and row.name), None),
        user=(record and record.user) or written.get("user"),
        account=(record and record.account) or _plan(run, "account"),
        partition=(record and record.partition) or _plan(run, "partition"),
        qos=(record and record.qos) or _plan(run, "qos"),
        site=written.get("site", {}).get("name"),
        state=str(state),
        exit_code=_exit_code(known),
        running=is_running(state),
        interactive=session_kind(run.record) is not None
        if run
        else (usage.interactive if usage else None),
        submitted_by_hpckit=run is not None,
        hosts=hosts,
        nodes=_nodes(known, attempts) or len(hosts) or requested.nodes,
        gpus=usage.alloc_gpus if usage else (attempts[-1].gpus if attempts else None),
        submitted=_submitted(known),
        start=_began(known, attempts),
        end=attempts[-1].end if attempts and attempts[-1].over else None,
        elapsed_s=_elapsed(known, attempts),
        array_job_id=(record and record.array_job_id) or (run.array_job_id if run else None),
        parameters=run.parameters if run else {},
        requested=requested,
        origins={"state": known.status.source if known.status else source, **_of_exit(known)},
    )


def _submitted(known: KnownJob) -> float | None:
    """Return when a job was submitted; to Slurm a requeue is a submission, too."""
    first = known.attempts[0].record if known.attempts else known.record
    said = [first and first.submit_time, known.run.submitted_at if known.run else None]
    found = [moment for moment in said if moment]
    again = len(known.attempts) > 1 or bool(known.last and known.last.restarts)
    return (min(found) if again else found[0]) if found else None


def _exit_code(known: KnownJob) -> int | None:
    """Return the script's own exit code where the ranks say it, else what Slurm says of the job."""
    if not is_finished(known.state):
        return None
    own = known.status.exit_code if known.status else None
    return own if own is not None or known.last is None else known.last.exit_code


def _of_exit(known: KnownJob) -> dict[str, str]:
    """Return whose word the exit status is, where that matters: see `exit_words`."""
    by = known.status.by_accounting if known.status else known.last is not None
    said = by and known.last is not None and known.last.source == SACCT
    return {"exit_code": SACCT} if said and _exit_code(known) else {}


def is_running(state: JobState) -> bool:
    """Say whether a job holds nodes, as far as its state tells."""
    return not is_finished(state) and not is_waiting(state) and state is not JobState.UNKNOWN


def _nodes(known: KnownJob, attempts: Sequence[Span]) -> int | None:
    usage = known.attempts[-1] if known.attempts else None
    return (usage.alloc_nodes if usage else None) or (attempts[-1].nodes if attempts else None)


def _requested(known: KnownJob) -> Requested:
    """Return what was asked for by hpckit's plan, else what Slurm gave."""
    usage = known.attempts[-1] if known.attempts else None
    limit = known.last.time_limit_min if known.last else None
    plan = known.run.record["plan"] if known.run else {}
    nodes = plan.get("nodes") or (usage.alloc_nodes if usage else None)
    gpus = plan.get("total_gpus", usage.alloc_gpus if usage else None)
    memory = plan.get("mem_gb")
    given = usage.memory_limit_bytes_per_node if usage else None
    minutes = plan.get("time_min", limit)
    return Requested(
        nodes=nodes,
        gpus=gpus,
        gpus_per_node=plan.get("gpus_per_node", _on_each(gpus, nodes)),
        gpu_type=plan.get("gpu_type") or (usage.gpu_type if usage else None),
        cores=(usage.alloc_cpus if usage else None)
        or (plan["ranks"] * plan["cpus_per_task"] if plan.get("cpus_per_task") else None),
        tasks_per_node=plan.get("tasks_per_node"),
        cpus_per_task=plan.get("cpus_per_task"),
        memory_bytes_per_node=memory << 30 if memory else given,
        time_limit_s=minutes * 60 if minutes is not None else None,
    )


def _on_each(count: int | None, nodes: int | None) -> int | None:
    """Return how many of something each node has; None where not all can have as many."""
    return count // nodes if count is not None and nodes and count % nodes == 0 else None


def _plan(run: Run | None, name: str) -> str | None:
    value = run.record["plan"].get(name) if run else None
    return None if value is None else str(value)
