"""All that is known of a job but its samples: of run, ranks, queue and accounting. Pure."""

from dataclasses import replace
from pathlib import Path

from hpckit.frozen import frozen
from hpckit.run_folders.ranks import AttemptTimes
from hpckit.run_folders.runs import Run
from hpckit.slurm.resized import own_times, places
from hpckit.slurm.states import JobRecord, JobState, is_finished, is_waiting
from hpckit.slurm.usage_rows import JobUsage
from hpckit.submission.status import RunStatus
from hpckit.submission.verdict import DOUBTED

# Slurm's row of an attempt, what it used, and whether it is over.
Row = tuple[JobRecord, JobUsage | None, bool]


@frozen(kw_only=True)
class SampledJob:
    """A job of which only samples are known.

    Attributes:
        start: when its first sampler began.
        user: who owns all of the files.
    """

    folder: Path
    start: float
    user: str | None = None


@frozen(kw_only=True)
class KnownJob:
    """All that is known of a job but its samples; at least one of them is there.

    Attributes:
        attempts: sacct's rows, oldest first.
        record: squeue's or scontrol's, of a job that accounting does not have.
        ranks: (restart, start, end or None) of each attempt, by the rank files.
        out_of_memory: whether the newest attempt of a run ended because memory was full, by all
            that its folder says; None: there is no run, or it is not over.
        sampled: only samples are known of it; then nothing else is there.
    """

    run: Run | None = None
    status: RunStatus | None = None
    attempts: tuple[JobUsage, ...] = ()
    record: JobRecord | None = None
    ranks: tuple[AttemptTimes, ...] = ()
    out_of_memory: bool | None = None
    sampled: SampledJob | None = None

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


def numbered_rows(known: KnownJob) -> list[tuple[int, Row]]:
    """Return Slurm's rows, each with a number of its own: also where an attempt has several."""
    rows = _rows(known)
    return list(zip(places(record for record, _, _ in rows), rows, strict=True))


def _rows(known: KnownJob) -> list[Row]:
    """Return Slurm's rows, and whether each attempt is over."""
    rows: list[tuple[JobRecord, JobUsage | None]] = [(row.record, row) for row in known.attempts]
    if not rows and known.record:
        rows = [(known.record, None)]
    if rows:
        record, usage = rows[-1]
        number = len(rows) - 1 if record.restarts is None else record.restarts
        rows[-1] = (_by_queue(known, number, record), usage)
    last, finished = len(rows) - 1, is_finished(known.state)
    return [
        (record if at == last else _earlier(record), usage, at < last or finished)
        for at, (record, usage) in enumerate(rows)
    ]


def _earlier(record: JobRecord) -> JobRecord:
    """Return a row that another one follows, which is of no job that waits for its first start."""
    waits = record.state is JobState.PENDING
    return replace(record, state=JobState.UNKNOWN) if waits else record


def _by_queue(known: KnownJob, number: int, record: JobRecord) -> JobRecord:
    """Return the newest attempt's row, with the queue's times where accounting lacks them.

    slurmdbd 22.05 at times writes over a start with that of a job which waits, none: it says then
    that the attempt took no time. A job that was cancelled while it waited has taken none. And
    what is over for the queue goes on for accounting until that hears of it. A new job's row is its
    first step's: it has the nodes of that alone, and its start, which may be a second later.
    """
    status = known.status
    if status is None or not status.start_time or (status.attempt or 0) != number:
        return record
    new = record.name is None
    late = status.finished and not is_finished(record.state) and status.elapsed_s is not None
    lost = (new or record.start_time is None) and not is_waiting(record.state)
    # An earlier attempt's preemption, or a limit that ended no rank: the run's own files say more.
    over = status.finished and record.state in DOUBTED
    if late or over:
        record = replace(record, state=status.state)
    if late or new:
        nodes = (status.nodes if new else ()) or record.nodes or status.nodes or None
        record = replace(record, nodes=nodes)
    if not late and not (lost and status.elapsed_s):
        return record
    return own_times(replace(record, start_time=status.start_time, elapsed_s=status.elapsed_s))


def of_step(known: KnownJob, step: str | None) -> KnownJob:
    """Leave only one step's usage, if one was asked for: of attempts that came to have it."""
    if step is None:
        return known
    had = [usage for usage in known.attempts if any(row.step == step for row in usage.steps)]
    attempts = had or known.attempts
    return replace(known, attempts=tuple(_one_step(usage, step) for usage in attempts))


def _one_step(usage: JobUsage, name: str) -> JobUsage:
    step = next((row for row in usage.steps if row.step == name), None)
    if step is None:
        return replace(usage, steps=(), total_cpu_s=None, admin_comment=None)
    record = replace(
        usage.record,
        elapsed_s=usage.record.elapsed_s if step.elapsed_s is None else step.elapsed_s,
        start_time=step.start_time or usage.record.start_time,
        end_time=step.end_time or usage.record.end_time,
        nodes=step.hosts or usage.record.nodes,
    )
    nodes = len(step.hosts or ()) or usage.alloc_nodes
    each = usage.memory_limit_bytes_per_node
    limit = step.memory_limit_bytes or (each * nodes if each and nodes else None)
    return replace(
        usage,
        record=record,
        steps=(step,),
        total_cpu_s=None,
        admin_comment=None,
        alloc_nodes=nodes,
        memory_limit_bytes=limit,
        alloc_cpus=step.cpus or usage.alloc_cpus,
        alloc_gpus=usage.alloc_gpus if step.gpus is None else step.gpus,
    )
