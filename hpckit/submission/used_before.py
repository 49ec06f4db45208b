"""What the user's last runs of a kind made of their GPUs: said of one that has just been submitted.

It is read from what runs wrote at their end; no Slurm is asked.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from hpckit.files import DamagedFileError, read_json
from hpckit.frozen import frozen
from hpckit.run_folders.find import newest_runs
from hpckit.run_folders.run_files import SUMMARY
from hpckit.run_folders.run_record import is_function_call, work_of
from hpckit.run_folders.runs import Run
from hpckit.text import listed
from hpckit.values import rebuild

# Runs that are looked through, and those of the kind that count, newest first.
_LOOKED_AT, _COUNTED = 20, 5
# In shorter runs the start is most of the time; of less than this share nobody knows enough.
_LEAST_S, _COVERED_PERCENT = 300.0, 80.0
_SHAPE = ("strategy", "nodes", "gpus_per_node", "total_gpus")


@frozen(kw_only=True)
class _Figures:
    """What a run's `summary` says of all its GPUs; see `hpckit.stats.summary.figures.Summary`."""

    gpu_hours: float | None = None
    gpu_hours_idle: float | None = None
    gpu_coverage_percent: float | None = None
    gpu_coverage_lowest_percent: float | None = None


@frozen(kw_only=True)
class _Summary:
    summary: _Figures
    elapsed_s: float | None = None


def gpus_used_before(run: Run) -> str | None:
    """Say how few GPUs the last runs of a run's kind used; None: they used most, or it is unknown.

    Of the kind are runs with the same program or workload, strategy, nodes and GPUs. A GPU is used
    while a kernel runs on it. It is said where at least one GPU, or half of all, was not used.
    """
    gpus = run.record["plan"]["total_gpus"]
    if not gpus or is_function_call(run.record):
        return None
    shares = dict(_shares(run))
    if not shares:
        return None
    used = gpus * sum(shares.values()) / len(shares)
    if gpus - used < min(1.0, gpus / 2):
        return None
    last, *others = shares
    which = f"last {len(shares)} runs" if others else "last run"
    return (
        f"your {which} of this kind ({listed(list(shares))}) used {used:.1f} of {gpus} GPUs. "
        f"hpckit stats {last} says why"
    )


def _shares(run: Run) -> Iterator[tuple[str, float]]:
    """Yield the runs of the kind that count, newest first, with the part of GPU time in use."""
    kind, count = _kind(run.record), 0
    for other in newest_runs(run.dir.parent, _LOOKED_AT):
        if other.dir == run.dir or not other.mine or _kind(other.record) != kind:
            continue
        if (share := _share(other)) is not None:
            yield other.job_id, share
            count += 1
        if count == _COUNTED:
            return


def _kind(record: Mapping[str, Any]) -> tuple[Any, ...]:
    shape = (record["plan"].get(name) for name in _SHAPE)
    return (*shape, work_of(record), is_function_call(record))


def _share(run: Run) -> float | None:
    """Return the part of a run's GPU time in which a kernel ran; None: it says too little."""
    try:
        found = rebuild(_Summary, read_json(run.dir / SUMMARY), newer=True)
    except (OSError, DamagedFileError):
        return None  # it goes on, or was killed; what it did says nothing of a new run
    row = found.summary
    if (found.elapsed_s or 0) < _LEAST_S or (
        row.gpu_coverage_lowest_percent or 0
    ) < _COVERED_PERCENT:
        return None
    if not row.gpu_hours or not row.gpu_coverage_percent or row.gpu_hours_idle is None:
        return None
    return max(0.0, 1 - row.gpu_hours_idle / (row.gpu_hours * row.gpu_coverage_percent / 100))
