"""Who a job is and what it asked for: of its run, and of Slurm. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from hpckit.report.attempt_spans import lost_rows
from hpckit.report.known_job import KnownJob
from hpckit.run_folders.run_record import session_kind
from hpckit.run_folders.runs import Run
from hpckit.slurm.states import JobState, is_finished, is_running
from hpckit.slurm.usage_rows import JobUsage
from hpckit.stats.summary.attempts import Span
from hpckit.stats.summary.coverage import total
from hpckit.stats.summary.figures import RUN, SACCT, SAMPLES, JobUse, Requested


def identify(job_id: str, known: KnownJob, attempts: Sequence[Span]) -> JobUse:
    """Return the job without any figure of use."""
    record, run, state = known.last, known.run, known.state
    said = (record, known.record)
    written: Mapping[str, Any] = run.record if run else {}
    usage = known.attempts[-1] if known.attempts else None
    hosts = attempts[-1].hosts if attempts else ()
    hosts = hosts or (known.status.nodes if known.status else ())
    requested = _requested(known)
    source = str(record.source) if record else SAMPLES if known.sampled else RUN
    return JobUse(
        job_id=job_id,
        raw_id=record.raw_id if record else None,
        run_id=run.run_id if run else None,
        run_dir=str(run.dir) if run else None,
        # sacct writes a quotation mark in a name as a backtick.
        name=written.get("name") or next((row.name for row in said if row and row.name), None),
        user=(record and record.user) or written.get("user") or _samples_user(known),
        account=(record and record.account) or _asked(run, "account"),
        partition=(record and record.partition) or _asked(run, "partition"),
        qos=(record and record.qos) or _asked(run, "qos"),
        site=written.get("site", {}).get("name"),
        state=str(state),
        exit_code=_exit_code(known),
        out_of_memory=_out_of_memory(known),
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


def _samples_user(known: KnownJob) -> str | None:
    return known.sampled.user if known.sampled else None


def _submitted(known: KnownJob) -> float | None:
    """Return when a job was submitted; to Slurm a requeue is a submission, too."""
    first = known.attempts[0].record if known.attempts else known.record
    said = [first and first.submit_time, known.run.submitted_at if known.run else None]
    found = [moment for moment in said if moment]
    again = len(known.attempts) > 1 or bool(known.last and known.last.restarts)
    return (min(found) if again else found[0]) if found else None


def _began(known: KnownJob, attempts: Sequence[Span]) -> float | None:
    """Return when the first attempt began; None if one may have been earlier."""
    starts = [row.start_time for row in lost_rows(known, attempts)]
    known_starts = [*(span.start for span in attempts), *(start for start in starts if start)]
    by_ranks = min((start for _, start, _ in known.ranks), default=None)
    otherwise = known.sampled.start if known.sampled else by_ranks
    return None if None in starts else min(known_starts, default=otherwise)


def _elapsed(known: KnownJob, attempts: Sequence[Span]) -> float | None:
    """Return the time of all attempts; None if one's is not known, or none has held a node."""
    # A row whose moments Slurm lost still says how long it was.
    lost = [row.elapsed_s for row in lost_rows(known, attempts)]
    return total([*(span.elapsed_s for span in attempts), *lost])


def _exit_code(known: KnownJob) -> int | None:
    """Return the script's own exit code where the ranks say it, else what Slurm says of the job."""
    if not is_finished(known.state):
        return None
    own = known.status.exit_code if known.status else None
    return own if own is not None or known.last is None else known.last.exit_code


def _out_of_memory(known: KnownJob) -> bool | None:
    """Say whether memory was full: Slurm may call such a job FAILED, of which the run knows it."""
    if not is_finished(known.state):
        return None
    return True if known.state is JobState.OUT_OF_MEMORY else known.out_of_memory


def _of_exit(known: KnownJob) -> dict[str, str]:
    """Return whose word the exit status is, where that matters: see `exit_words`."""
    by = known.status.by_accounting if known.status else known.last is not None
    said = by and known.last is not None and known.last.source == SACCT
    return {"exit_code": SACCT} if said and _exit_code(known) else {}


def _nodes(known: KnownJob, attempts: Sequence[Span]) -> int | None:
    usage = known.attempts[-1] if known.attempts else None
    return (usage.alloc_nodes if usage else None) or (attempts[-1].nodes if attempts else None)


def _requested(known: KnownJob) -> Requested:
    """Return what was asked for by hpckit's plan, else what Slurm gave, or will give."""
    usage = known.attempts[-1] if known.attempts else None
    limit = known.last.time_limit_min if known.last else None
    plan = known.run.record["plan"] if known.run else {}
    nodes = plan.get("nodes") or (usage.alloc_nodes if usage else None)
    gpus = plan.get("total_gpus", _gpus(usage) if usage else None)
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


def _gpus(usage: JobUsage) -> int | None:
    return usage.asked_gpus if usage.alloc_gpus is None else usage.alloc_gpus


def _on_each(count: int | None, nodes: int | None) -> int | None:
    """Return how many of something each node has; None where not all can have as many."""
    return count // nodes if count is not None and nodes and count % nodes == 0 else None


def _asked(run: Run | None, name: str) -> str | None:
    """Return what a run asked of its cluster; a run on this machine is in no partition of it."""
    value = None if run is None or run.scheduler.one_machine else run.record["plan"].get(name)
    return None if value is None else str(value)
