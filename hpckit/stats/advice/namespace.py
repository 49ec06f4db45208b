"""What rules may name: the account of a job, its site, and figures over all GPUs or nodes.

The names follow the fields of `hpckit.stats.summary.figures`, so that a figure added there can be
used in a rule at once. Suspect figures, shares over 100 % and lower bounds are unknown to rules.
"""

import functools
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from hpckit.frozen import frozen
from hpckit.sites import PartitionLimits, Site
from hpckit.stats.advice.evaluation import Values
from hpckit.stats.advice.functions import Kind, Names, visible
from hpckit.stats.summary.clock import median
from hpckit.stats.summary.coverage import enough
from hpckit.stats.summary.figures import Attempt, GpuUse, JobUse, NodeUse, last_attempt, numbers_of
from hpckit.text import counted

_N, _T, _L = Kind.NUMBER, Kind.TEXT, Kind.LIST
_KINDS = {int: _N, float: _N, bool: Kind.TRUTH, str: _T, tuple[str, ...]: _L}
# Clocks of different programs are read some milliseconds apart (`hpckit.stats.merge` has the same).
_TOLERANCE = 1
# What each subject a rule can be written for may name beside the job.
SUBJECTS: Mapping[str, tuple[str, ...]] = {"job": (), "node": ("node",), "gpu": ("node", "gpu")}

JOB_EXTRAS = {"output_file": _T}
GPU_EXTRAS = {"others_median_utilization_percent": _N}
NODE_EXTRAS = {
    "index": _N,
    "others_median_gpu_utilization_percent": _N,
    "others_median_cpu_efficiency_percent": _N,
}
GPUS = {
    "count": _N,
    "slices": _N,
    "types": _N,
    "memory_known": _N,
    "median_utilization_percent": _N,
    "min_utilization_percent": _N,
    "max_utilization_percent": _N,
    "min_idle_tail_s": _N,
    "used_nodes": _N,
    "max_used_per_node": _N,
}
NODES = {"count": _N, "median_gpu_utilization_percent": _N, "median_cpu_efficiency_percent": _N}
# Of one device at one time: what `during` may name, beside the rest.
_NODE_NOW = {
    "gpu_utilization_percent": _N,
    "others_gpu_utilization_percent": _N,
    "cores_used": _N,
    "others_cores_used": _N,
    "memory_bytes": _N,
}
NOW: Mapping[str, Names] = {
    "node": _NODE_NOW,
    "gpu": {**_NODE_NOW, "gpu_memory_bytes": _N, "throttled_percent": _N},
}
SITE = {"name": _T, "gpus_per_node": _N, "cpus_per_gpu": _N, "gpu_types": _L}


@functools.cache
def names_for(subject: str) -> dict[str, Any]:
    """Return the names a rule `for_each: subject` may use."""
    special: dict[str, Names] = {
        "node": {**_names_of(NodeUse), **NODE_EXTRAS},
        "gpu": {**_names_of(GpuUse), **GPU_EXTRAS},
    }
    partition = {name: kind for name, kind in _names_of(PartitionLimits).items() if name != "name"}
    return {
        "job": {**_names_of(JobUse), **JOB_EXTRAS},
        "attempt": _names_of(Attempt),
        "gpus": GPUS,
        "nodes": NODES,
        "site": {**SITE, "partition": partition},
        **{name: special[name] for name in SUBJECTS[subject]},
    }


def _names_of(kind: type) -> dict[str, Any]:
    """Return the fields of a value by what they hold; those a rule cannot use are left out."""
    found: dict[str, Any] = {}
    for name, hint in typing.get_type_hints(kind).items():
        inner = _without_none(hint)
        if inner in _KINDS:
            found[name] = _KINDS[inner]
        elif is_dataclass(inner) and isinstance(inner, type):
            found[name] = _names_of(inner)
    return found


def _without_none(hint: Any) -> Any:  # noqa: ANN401  # a type hint
    if isinstance(hint, types.UnionType):
        kinds = [part for part in typing.get_args(hint) if part is not types.NoneType]
        return float if set(kinds) == {int, float} else kinds[0]
    return hint


def job_values(
    job: JobUse, site: Site | None
) -> tuple[dict[str, Any], list[dict[str, Any]], list[dict[str, Any]]]:
    """Return what rules see: of the whole job, of each node, and of each GPU."""
    suspect = frozenset((*job.suspect, *job.at_least))
    nodes = [
        {**_figures(row, f"per_node.{at}", suspect), "index": at}
        for at, row in enumerate(job.per_node)
    ]
    gpus = [_figures(row, f"per_gpu.{at}", suspect) for at, row in enumerate(job.per_gpu)]
    _add_others(nodes, "gpu_utilization_percent", "others_median_gpu_utilization_percent")
    _add_others(nodes, "cpu_efficiency_percent", "others_median_cpu_efficiency_percent")
    _add_others(gpus, "utilization_percent", "others_median_utilization_percent")
    attempt, last = last_attempt(job), len(job.attempts) - 1
    whole: dict[str, Any] = {
        "job": {**_figures(job, "", suspect), "output_file": output_file(job.job_id)},
        "attempt": _figures(attempt, f"attempts.{last}", suspect) if attempt else {},
        "gpus": _over_gpus(gpus),
        "nodes": _over_nodes(nodes),
        "site": _site(job, site),
    }
    return whole, nodes, gpus


def output_file(job_id: str) -> str:
    """Return how Slurm calls a job's output by default: sbatch(1), --output.

    `job_id` is as users type it: `123`, `123_4`, `123+1`, and each with a step, as `123.0`.
    """
    # A heterogeneous job has one script and one output, those of its first component.
    return f"slurm-{job_id.partition('.')[0].partition('+')[0]}.out"


def _figures(row: Any, path: str, suspect: frozenset[str]) -> dict[str, Any]:  # noqa: ANN401
    found: dict[str, Any] = {}
    for name in (field.name for field in fields(row)):
        value, inner = getattr(row, name), f"{path}.{name}".lstrip(".")
        if is_dataclass(value):
            found[name] = {} if inner in suspect else _figures(value, inner, suspect)
        else:
            found[name] = None if inner in suspect else _possible(name, value)
    return found


def _possible(name: str, value: Any) -> Any:  # noqa: ANN401  # a field's value
    """Return a figure, but None for a share that cannot be; a little over 100 is 100."""
    if not name.endswith("percent") or not isinstance(value, int | float):
        return value
    return min(value, 100) if 0 <= value <= 100 + _TOLERANCE else None


def _add_others(rows: list[dict[str, Any]], name: str, as_name: str) -> None:
    for row in rows:
        row[as_name] = _over(median, [other for other in rows if other is not row], name)


def _over(
    compute: Callable[[list[float]], float], rows: Sequence[Values], name: str
) -> float | None:
    """Compute over the rows where a figure is known of enough time; None if it is in none."""
    values = [row[name] for row in rows if row[name] is not None and _is_read(row)]
    return compute(values) if values else None


def _is_read(row: Values) -> bool:
    covered = row.get("covered_percent")
    return covered is None or enough(covered, row.get("hours"))


def _over_gpus(gpus: Sequence[Values]) -> Values:
    used = [_is_used(row) for row in gpus]
    hosts = [row["host"] for row, is_used in zip(gpus, used, strict=True) if is_used]
    counted = bool(gpus) and None not in used
    return {
        "count": len(gpus) or None,
        "slices": sum(row["mig"] for row in gpus) if gpus else None,
        "types": len({row["name"] for row in gpus if row["name"]}) or None,
        "memory_known": sum(row["memory_peak_bytes"] is not None for row in gpus) if gpus else None,
        "median_utilization_percent": _over(median, gpus, "utilization_percent"),
        "min_utilization_percent": _over(min, gpus, "utilization_percent"),
        "max_utilization_percent": _over(max, gpus, "utilization_percent"),
        "min_idle_tail_s": _over(min, gpus, "idle_tail_s"),
        "used_nodes": len(set(hosts)) if counted else None,
        "max_used_per_node": max(map(hosts.count, hosts), default=0) if counted else None,
    }


def _is_used(gpu: Values) -> bool | None:
    seen = [gpu["utilization_percent"], gpu["utilization_peak_percent"]]
    known = [value for value in seen if value is not None]
    # What was not seen in use may have been, while it was not read.
    return any(known) or (None if not _is_read(gpu) else False) if known else None


def _over_nodes(nodes: Sequence[Values]) -> Values:
    return {
        "count": len(nodes) or None,
        "median_gpu_utilization_percent": _over(median, nodes, "gpu_utilization_percent"),
        "median_cpu_efficiency_percent": _over(median, nodes, "cpu_efficiency_percent"),
    }


def _site(job: JobUse, site: Site | None) -> Values:
    """Return the site's limits for this job: of its GPU type and partition, where it has such."""
    if site is None:
        return {"partition": {}}
    partition = site.partitions.get(job.partition or "", PartitionLimits(name=""))
    gpus = site.gpu_types.get(job.requested.gpu_type or "", partition.gpus_per_node)
    gpus = site.gpus_per_node if gpus is None else gpus
    cpus = site.cpus_per_gpu
    if cpus is None and gpus and partition.cpus_per_node:
        cpus = partition.cpus_per_node // gpus
    return {
        "name": site.name,
        "gpus_per_node": gpus,
        "cpus_per_gpu": cpus,
        "gpu_types": tuple(site.gpu_types) or None,
        "partition": _figures(partition, "", frozenset()),
    }


_HOSTS_NAMED = 4


@frozen(kw_only=True)
class Subject:
    """One subject of a rule.

    Attributes:
        host: None for the whole job.
        gpu: position in `JobUse.per_gpu`; None for a node.
        index, uuid: what the GPU is called; slices of one GPU share an index.
        number: what pages call it on its node: its index, of slices `0.0`, `0.1`.
    """

    host: str | None = None
    gpu: int | None = None
    index: int | None = None
    uuid: str | None = None
    mig: bool = False
    number: str | None = None

    @property
    def is_part(self) -> bool:
        """Whether its index alone does not name it."""
        return self.mig or self.number not in (None, str(self.index))

    def label(self) -> str:
        """Name it: `GPU 3 on c1`, `c1`, `the job`."""
        if self.host is None:
            return "the job"
        host = visible(self.host)
        return host if self.gpu is None else f"GPU {self.short()} on {host}"

    def short(self) -> str:
        """Name the GPU on its host: `3`; a MIG slice by its UUID too."""
        if self.index is None:
            return visible(self.uuid or "?")[:12]
        number = self.number or str(self.index)
        return f"{number} ({visible(self.uuid)[:12]})" if self.mig and self.uuid else number


def subjects_of(job: JobUse) -> dict[str, list[Subject]]:
    """Return the subjects of a job: itself, its nodes, its GPUs."""
    gpus = [
        Subject(host=row.host, gpu=at, index=row.index, uuid=row.uuid, mig=row.mig, number=number)
        for at, (row, number) in enumerate(zip(job.per_gpu, numbers_of(job.per_gpu), strict=True))
    ]
    return {
        "job": [Subject()],
        "node": [Subject(host=row.host) for row in job.per_node],
        "gpu": gpus,
    }


def leaves(subject: Subject, job: JobUse) -> frozenset[object]:
    """Return the smallest parts a subject is made of, to tell which subjects cover which.

    These are GPUs where there are any, else nodes, else the job.
    """
    gpus = frozenset(
        at
        for at, row in enumerate(job.per_gpu)
        if subject.gpu == at or (subject.gpu is None and subject.host in (None, row.host))
    )
    hosts = frozenset(row.host for row in job.per_node if subject.host in (None, row.host))
    return gpus or hosts or frozenset([subject.host])


def where(subjects: Sequence[Subject], total: int) -> str:
    """Name several subjects in a line: `4 of 8 GPUs (c1: 0-3)`, `2 of 4 nodes (c1, c2)`."""
    if len(subjects) == 1:
        return subjects[0].label()
    hosts: dict[str, list[Subject]] = {}
    for subject in subjects:
        hosts.setdefault(visible(subject.host or ""), []).append(subject)
    are_gpus = subjects[0].gpu is not None
    named = [f"{host}: {_ranges(rows)}" if are_gpus else host for host, rows in hosts.items()]
    left = len(named) - _HOSTS_NAMED
    more = f" and {counted(left, 'more node')}" if left > 0 else ""
    separator = "; " if are_gpus else ", "
    return (
        f"{len(subjects)} of {total} {'GPUs' if are_gpus else 'nodes'} "
        f"({separator.join(named[:_HOSTS_NAMED])}{more})"
    )


def _ranges(subjects: Sequence[Subject]) -> str:
    """Write `0-3, 6`; GPUs without a plain index by name."""
    others = [subject.short() for subject in subjects if subject.index is None or subject.is_part]
    numbers = sorted(
        subject.index for subject in subjects if subject.index is not None and not subject.is_part
    )
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    plain = [f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs]
    return ", ".join([*plain, *others])
