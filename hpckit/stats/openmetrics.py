"""A job's figures for other programs: OpenMetrics text. Pure.

node_exporter's textfile collector reads it, too: its format has the same lines. Names, units and
texts are those of the figures' fields, and so of the metrics' rows: a new figure is here as well.
All of them are gauges without a time, for older parsers know nothing else.
OpenMetrics: prometheus.io/docs/specs/om/open_metrics_spec.
"""

import functools
import math
import re
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from hpckit.slurm.resized import by_attempt
from hpckit.stats.document import field_texts
from hpckit.stats.summary.figures import GpuUse, JobUse, NodeUse, Summary, numbers_of
from hpckit.text import in_line

# Endings of figures that are units, as OpenMetrics spells them.
_ENDINGS = {"_s": "_seconds", "_c": "_celsius"}
_UNITS = ("percent", "bytes", "seconds", "celsius", "joules", "hours")
_ROOMS: Mapping[str, type] = {"job": Summary, "node": NodeUse, "gpu": GpuUse}
# Moments, and what stands in labels.
_LEFT_OUT = frozenset({"index", "mig", "lost_at", "back_at"})
INFO = "hpckit_job_info"
_INFO = ("name", "state", "partition", "qos", "site", "run_id")
_SAYS = {
    INFO: "What the job is: always 1, its labels tell.",
    "hpckit_job_elapsed_seconds": "Time of all attempts together.",
    "hpckit_job_running": "Whether the job runs: 1 or 0.",
    "hpckit_job_gpus": "GPUs of the job.",
    "hpckit_job_nodes": "Nodes of the job.",
    "hpckit_job_attempts": "Attempts: a requeue begins the next.",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """One line: a metric's labels and value."""

    name: str
    labels: Mapping[str, str]
    value: float


def metric_name(room: str, figure: str) -> str:
    """Return what a figure of `job`, `node` or `gpu` is called.

    Raises:
        KeyError: there is no such figure.
    """
    if figure not in _figures(room):
        raise KeyError(f"{room}: {figure}")
    for ending, unit in _ENDINGS.items():
        if figure.endswith(ending):
            return f"hpckit_{room}_{figure.removesuffix(ending)}{unit}"
    return f"hpckit_{room}_{figure}"


def openmetrics(jobs: Sequence[JobUse]) -> str:
    """Return the figures of jobs; those that are not known are left out."""
    families: dict[str, list[Sample]] = {}
    for job in jobs:
        for sample in _samples(job):
            families.setdefault(sample.name, []).append(sample)
    says = _SAYS | {
        metric_name(room, figure): text
        for room in _ROOMS
        for figure, text in _figures(room).items()
    }
    lines = [
        line for name, samples in families.items() for line in _family(name, says[name], samples)
    ]
    return "\n".join([*lines, "# EOF", ""])


@functools.cache
def _figures(room: str) -> dict[str, str]:
    """Return the names of a room's figures, and what each is."""
    kind = _ROOMS[room]
    hints, texts = typing.get_type_hints(kind), field_texts(kind)
    return {
        field.name: texts[field.name]
        for field in fields(kind)
        if field.name not in _LEFT_OUT
        and {int, float, bool} & {hints[field.name], *typing.get_args(hints[field.name])}
    }


def _samples(job: JobUse) -> Iterator[Sample]:
    own = {
        "job_id": job.job_id,
        "cluster": job.cluster,
        "user": job.user,
        "account": job.account,
    }
    about = own | {name: getattr(job, name) for name in _INFO}
    yield _sample(INFO, about, 1)
    plain = {
        "hpckit_job_elapsed_seconds": job.elapsed_s,
        "hpckit_job_running": job.running,
        "hpckit_job_gpus": job.gpus,
        "hpckit_job_nodes": job.nodes,
        "hpckit_job_attempts": len(by_attempt(job.attempts)) or None,
    }
    for name, value in plain.items():
        if value is not None:
            yield _sample(name, own, value)
    yield from _row("job", job.summary, own)
    for node in job.per_node:
        yield from _row("node", node, {**own, "host": node.host})
    for gpu, number in zip(job.per_gpu, numbers_of(job.per_gpu), strict=True):
        # Two lines may not have the same labels, and slices share an index.
        named = gpu.index if gpu.uuid or gpu.index is None else number
        place = {"host": gpu.host, "gpu": named, "uuid": gpu.uuid}
        yield from _row("gpu", gpu, own | place)


def _row(room: str, row: object, labels: Mapping[str, Any]) -> Iterator[Sample]:
    for figure in _figures(room):
        value = getattr(row, figure)
        if value is not None and math.isfinite(value):
            yield _sample(metric_name(room, figure), labels, value)


def _sample(name: str, labels: Mapping[str, Any], value: float) -> Sample:
    known = {key: in_line(str(text)) for key, text in labels.items() if text is not None}
    return Sample(name=name, labels=known, value=float(value))


def _family(name: str, says: str, samples: Sequence[Sample]) -> Iterator[str]:
    unit = next((unit for unit in _UNITS if name.endswith(f"_{unit}")), None)
    yield f"# HELP {name} {_escaped(in_line(says[:1].upper() + says[1:]))}"
    yield f"# TYPE {name} gauge"
    if unit:
        yield f"# UNIT {name} {unit}"
    for sample in samples:
        pairs = ",".join(f'{key}="{_escaped(text)}"' for key, text in sample.labels.items())
        number = int(sample.value) if sample.value.is_integer() else round(sample.value, 6)
        yield f"{name}{{{pairs}}} {number}"


def _escaped(text: str) -> str:
    return re.sub(r'[\\"]', r"\\\g<0>", text)  # `in_line` has left no line break
