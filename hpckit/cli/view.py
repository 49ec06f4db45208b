"""How a run's status reads: as JSON, as a line, as a page."""

import time
from collections.abc import Iterator
from typing import Any

from hpckit.causes import Cause, Kind, listed, places
from hpckit.failures import why
from hpckit.files import DamagedFileError
from hpckit.launchers import launched_by
from hpckit.metrics import METRICS, Progress, read_progress
from hpckit.slurm.states import is_waiting
from hpckit.submission.states import RunStatus
from hpckit.text import format_seconds
from hpckit.tracebacks import error_line

# So many files are named that cannot be read, of each run.
_DAMAGED = 5


def status_record(status: RunStatus) -> dict[str, Any]:
    """Return `status --json` of one run, in the words of the public contract."""
    return {
        "job_id": status.run.job_id,
        "run_id": status.run.run_id,
        "state": str(status.state),
        "reason": status.reason,
        "reason_text": status.reason_text,
        "nodes": list(status.nodes),
        "elapsed_s": None if status.elapsed_s is None else round(status.elapsed_s, 1),
        "restarts": status.restarts,
        "exit_code": status.exit_code,
        "run_dir": str(status.run.dir),
        "executor": status.run.executor,
        "source": status.source,
        "expected_start": status.expected_start,
        "ranks": [
            {
                "rank": rank.rank,
                "host": rank.host,
                "exit_code": rank.exit_code,
                "error": rank.error,
                "device": rank.device,
                "restart": rank.restart,
            }
            for rank in status.ranks
        ],
        "damaged": list(status.damaged),
        "notes": list(status.notes),
    }


def status_document(statuses: list[RunStatus]) -> dict[str, Any]:
    """Return `--json` of one run, or of several under `jobs`."""
    records = [status_record(status) for status in statuses]
    return records[0] if len(records) == 1 else {"jobs": records}


def submit_record(status: RunStatus) -> dict[str, Any]:
    """Return `submit --json` of one run."""
    return {
        "job_id": status.run.job_id,
        "run_id": status.run.run_id,
        "run_dir": str(status.run.dir),
        "executor": status.run.executor,
        "state": str(status.state),
        "exit_code": status.exit_code,
    }


def status_line(status: RunStatus) -> str:
    """Return a run's state and what matters in it, on one line."""
    parts = [f"{status.run.job_id} {status.state}"]
    if status.elapsed_s is not None and not is_waiting(status.state):
        parts.append(format_seconds(status.elapsed_s))
    if status.reason_text:
        parts.append(status.reason_text.rstrip("."))
    if status.never_starts:
        parts.append(f"remove it from the queue: hpckit cancel {status.run.job_id}")
    elif is_waiting(status.state) and status.expected_start:
        parts.append(f"expected start {clock(status.expected_start)}")
    if status.restarts:
        parts.append(f"restarted {status.restarts}x")
    if status.ranks:
        parts += _progress(status)
    if status.finished and status.exit_code:
        parts.append(f"exit status {status.exit_code}")
    return ": ".join([parts[0], ", ".join(parts[1:])]) if parts[1:] else parts[0]


def _progress(status: RunStatus) -> list[str]:
    try:
        found = read_progress(status.run.dir)
    except DamagedFileError as error:
        return [f"damaged: {METRICS}: {error}"]
    return [progress_text(found, over=status.finished)] if found else []


def progress_text(progress: Progress, *, over: bool = False) -> str:
    """Return how far a script is: `step 120/460 loss 0.31 1234 samples/s 12 s left`."""
    total = f"/{progress.total_steps}" if progress.total_steps else ""
    parts = [f"step {progress.step}{total}"]
    if progress.epoch is not None and progress.epochs:
        parts.append(f"epoch {progress.epoch}/{progress.epochs}")
    if progress.loss is not None:
        parts.append(f"loss {progress.loss:.4g}")
    if progress.test_accuracy is not None:
        parts.append(f"held-out accuracy {progress.test_accuracy:.3f}")
    if progress.samples_per_s:
        parts.append(f"{progress.samples_per_s:,.0f} samples/s")
    if progress.seconds_left is not None and not over:
        parts.append(f"{format_seconds(progress.seconds_left)} left")
    return " ".join(parts)


def status_page(status: RunStatus) -> str:
    """Return what `hpckit status` shows of one run."""
    plan = status.run.record["plan"]
    lines = [
        status_line(status),
        f"  run      {status.run.run_id}",
        f"  folder   {status.run.dir}",
        f"  shape    {plan['nodes']} node(s) x {plan['tasks_per_node']} rank(s), "
        f"{plan['total_gpus']} GPU(s), {plan['strategy']}"
        + launched_by(plan["launcher"], one_machine=status.run.scheduler.one_machine),
    ]
    if status.nodes:
        lines.append(f"  nodes    {', '.join(status.nodes)}")
    if cause := why(status.run, status.ranks, status.state):
        lines += _cause_lines(cause)
    lines += [f"  note     {text}" for text in status.notes]
    lines += [f"  damaged  {text}" for text in status.damaged[:_DAMAGED]]
    if len(status.damaged) > _DAMAGED:
        lines.append(f"  damaged  {len(status.damaged) - _DAMAGED} more files")
    if status.finished and not status.good:
        lines.append(f"  see      hpckit logs {status.run.job_id} --errors")
    return "\n".join(lines)


def _cause_lines(cause: Cause) -> Iterator[str]:
    if cause.rank is None or cause.kind is not Kind.RANK:
        yield f"  why      {cause.text}"
    for rank in (*([cause.rank] if cause.rank else []), *cause.also):
        error = f": {error_line(rank.error)}" if rank.error else ""
        yield f"  rank {rank.rank:<3} {rank.host}, exit status {rank.exit_code}{error}"
    if cause.lost and cause.kind not in (Kind.LOST, Kind.CANCELLED):
        yield f"  lost     rank(s) {places(cause.lost)} recorded no end"
    if cause.stopped:
        yield f"  stopped  rank(s) {listed([str(row.rank) for row in cause.stopped])}, after that"


def clock(moment: float) -> str:
    """Return a moment as people say it: the time today, else date and time."""
    then, now = time.localtime(moment), time.localtime()
    return time.strftime("%H:%M" if then[:3] == now[:3] else "%Y-%m-%d %H:%M", then)
