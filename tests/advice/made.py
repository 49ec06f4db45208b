"""Accounts of jobs nothing is wrong with, to change one figure of."""

from typing import Any

from hpckit.collections import Collection, builtin_folder
from hpckit.sites import PartitionLimits, Site
from hpckit.stats.advice.engine import Advice, advise
from hpckit.stats.advice.loading import load_rules
from hpckit.stats.advice.rules import Rule
from hpckit.stats.summary.figures import (
    Attempt,
    GpuUse,
    JobUse,
    NodeUse,
    Requested,
    Stalls,
    Summary,
)

BUILTIN = (Collection(name="built-in", path=builtin_folder(), origin="built-in"),)
RULES = load_rules(BUILTIN)
GIB = 2**30
START, HOUR = 1_793_700_000.0, 3600.0
SITE = Site(
    name="box",
    gpus_per_node=4,
    cpus_per_gpu=16,
    gpu_types={"A100": 4, "T4": 8},
    partitions={
        "gpu": PartitionLimits(name="gpu", max_time_min=2880, cpus_per_node=64, mem_gb_per_node=512)
    },
)


def gpu(host: str = "c1", index: int = 0, **changes: Any) -> GpuUse:
    """One GPU, well used for two hours."""
    figures: dict[str, Any] = {
        "uuid": f"GPU-{host}-{index}",
        "name": "NVIDIA A100",
        "utilization_percent": 90.0,
        "utilization_peak_percent": 100.0,
        "idle_percent": 1.0,
        "memory_peak_bytes": 60 * GIB,
        "memory_total_bytes": 80 * GIB,
        "hours": 2.0,
        "idle_hours": 0.02,
        "first_use_s": 30.0,
        "idle_tail_s": 20.0,
        "longest_idle_s": 5.0,
        "memory_held_idle_s": 0.0,
        "busy_sm_percent": 60.0,
        "busy_hours": 1.8,
        "throttled_percent": 0.0,
        "ecc_uncorrected": 0,
        "confidence": "verified",
    }
    return GpuUse(host=host, index=index, **(figures | changes))


def node(host: str = "c1", **changes: Any) -> NodeUse:
    """One node whose cores and memory are well used."""
    figures: dict[str, Any] = {
        "cores": 16,
        "cores_used": 13.6,
        "cpu_s": 97_920.0,
        "cpu_efficiency_percent": 85.0,
        "memory_peak_bytes": 50 * GIB,
        "memory_limit_bytes": 60 * GIB,
        "memory_efficiency_percent": 83.3,
        "gpus": 1,
        "gpu_utilization_percent": 90.0,
        "covered_percent": 99.0,
    }
    return NodeUse(host=host, **(figures | changes))


def job(
    *,
    gpus: tuple[GpuUse, ...] = (gpu(),),
    nodes: tuple[NodeUse, ...] = (node(),),
    summary: dict[str, Any] | None = None,
    requested: dict[str, Any] | None = None,
    stalls: Stalls | None = None,
    **changes: Any,
) -> JobUse:
    """One job of two hours; its totals follow from its nodes and GPUs."""
    wanted: dict[str, Any] = {
        "nodes": len(nodes),
        "gpus": len(gpus),
        "gpus_per_node": len(gpus) // len(nodes),
        "gpu_type": "A100" if gpus else None,
        "cores": 16 * len(nodes),
        "tasks_per_node": 1,
        "cpus_per_task": 16,
        "memory_bytes_per_node": 60 * GIB,
        "time_limit_s": 3 * HOUR,
    }
    totals: dict[str, Any] = {
        "gpu_utilization_percent": mean(row.utilization_percent for row in gpus),
        "gpu_memory_used_percent": 75.0 if gpus else None,
        "gpu_memory_peak_bytes": 60 * GIB if gpus else None,
        "cpu_efficiency_percent": mean(row.cpu_efficiency_percent for row in nodes),
        "cpu_s": 97_920.0,
        "memory_efficiency_percent": 83.3,
        "memory_peak_bytes": 50 * GIB,
        "coverage_percent": 99.0,
        "oom_kills": 0,
    }
    fields: dict[str, Any] = {
        "job_id": "4711",
        "state": "COMPLETED",
        "partition": "gpu",
        "qos": "normal",
        "submitted_by_hpckit": True,
        "interactive": False,
        "nodes": len(nodes),
        "gpus": len(gpus),
        "start": START,
        "end": START + 2 * HOUR,
        "elapsed_s": 2 * HOUR,
        "requested": Requested(**(wanted | (requested or {}))),
        "summary": Summary(**(totals | (summary or {}))),
        "per_gpu": gpus,
        "per_node": nodes,
        "attempts": (Attempt(restart=0, start=START, elapsed_s=2 * HOUR),),
    }
    return JobUse(**(fields | changes))


def cpu_job(*, nodes: tuple[NodeUse, ...] | None = None, **changes: Any) -> JobUse:
    """One job without GPUs."""
    return job(gpus=(), nodes=nodes or (cpu_node(),), **changes)


def cpu_node(host: str = "c1", **changes: Any) -> NodeUse:
    """One node without GPUs."""
    return node(host, **({"gpus": 0, "gpu_utilization_percent": None} | changes))


def mean(values: Any) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def found(account: JobUse, site: Site | None = SITE) -> dict[str, Advice]:
    """Advice by rule; the worst of a rule that gives two."""
    items: dict[str, Advice] = {}
    for item in advise(account, RULES, site):
        items.setdefault(item.id, item)
    return items


def one_rule(name: str) -> Rule:
    return next(rule for rule in RULES if rule.id == name)
