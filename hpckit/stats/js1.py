"""Princeton jobstats' record of a job, as sites keep it in sacct's AdminComment. Pure.

`JS1:` and the base64 of gzipped JSON; `JS1:Short` of a job with fewer than two samples, `JS1:None`
of one without any (jobstats, docs/setup/summaries.md).
"""

import binascii
import re
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from hpckit.files import parse_json
from hpckit.frozen import frozen
from hpckit.stats.merge import Answer, Remark
from hpckit.stats.summary.coverage import enough, highest, mean, share, total
from hpckit.stats.summary.figures import (
    JS1,
    GpuUse,
    JobUse,
    NodeUse,
    SourceNote,
    numbers_of,
)
from hpckit.text import by_number

# sacctmgr of Slurm 22.05 writes all in lower case: the marks survive that, a record does not.
_MARK = r"(?i)JS1:([A-Za-z0-9+/=]+)"
# The largest known are some kilobytes; more is damage, or a trap.
_LONGEST = 16 << 20
_MOST_NODES = 65_536  # slurm.h, MAX_SLURM_NODES
# 2^64 - 1 and its like stand for "none" in most programs.
_TOO_LARGE = 1 << 63
_INDEX = r"(?a)(\d{1,6})(?:\.\d{1,6})?"


@frozen(kw_only=True)
class Js1:
    """What an AdminComment says.

    Attributes:
        record: the JSON object; None if there is none to read.
        trouble: why there is none, in a sentence; None if nothing of jobstats' is there at all.
    """

    record: Mapping[str, Any] | None = None
    trouble: str | None = None


def decode(comment: str) -> Js1:
    """Find and read the record in an AdminComment, which may hold other text, too."""
    match = re.search(_MARK, comment)
    if match is None:
        return Js1()
    word = match[1].lower()
    if word == "short":
        return Js1(trouble="The site's jobstats saw fewer than two samples of this job.")
    if word == "none":
        return Js1(trouble="The site's jobstats has no data of this job.")
    import base64  # noqa: PLC0415  # few jobs have a record

    try:
        packed = base64.b64decode(match[1], validate=True)
        inflate = zlib.decompressobj(wbits=31)  # gzip
        text = inflate.decompress(packed, _LONGEST)
        if not inflate.eof:
            raise ValueError("cut short, or far too long")
        record = parse_json(text, nan=True)
    except (ValueError, binascii.Error, zlib.error) as error:
        return Js1(trouble=f"The site's jobstats record is damaged ({error}).")
    if not isinstance(record, dict) or not isinstance(record.get("nodes"), dict):
        return Js1(trouble="The site's jobstats record has no nodes.")
    if len(record["nodes"]) > _MOST_NODES:
        return Js1(trouble=f"The site's jobstats record is damaged ({len(record['nodes'])} nodes).")
    return Js1(record=record)


def jobstats_record(job: JobUse) -> dict[str, Any] | None:
    """Return a job's record in jobstats' shape; None if nothing is known of its nodes.

    What is not known is left out, and never 0. Sizes are bytes, `total_time` of a node CPU seconds,
    of the job seconds; GPUs are keyed by their index on the node, slices of one as `0.0`, `0.1`.
    """
    if not job.per_node or job.elapsed_s is None:
        return None
    gpus = job.gpus if job.gpus is not None else len(job.per_gpu)
    nodes = {node.host: _node(node, job) for node in job.per_node}
    return {"gpus": gpus, "nodes": nodes, "total_time": round(job.elapsed_s)}


def _node(node: NodeUse, job: JobUse) -> dict[str, Any]:
    known: dict[str, Any] = {
        "cpus": node.cores,
        "total_time": None if node.cpu_s is None else round(node.cpu_s),
        "total_memory": node.memory_limit_bytes,
        "used_memory": node.memory_peak_bytes,
    }
    mine = _keyed([gpu for gpu in job.per_gpu if gpu.host == node.host])
    for key, name in (
        ("gpu_total_memory", "memory_total_bytes"),
        ("gpu_used_memory", "memory_peak_bytes"),
        ("gpu_utilization", "utilization_percent"),
    ):
        # A reader of the record cannot tell of how much of the job a figure is.
        values = {
            index: getattr(gpu, name)
            for index, gpu in mine.items()
            if gpu.covered_percent is None or enough(gpu.covered_percent, gpu.hours)
        }
        known[key] = {
            index: round(value, 1) for index, value in values.items() if value is not None
        } or None
    return {name: value for name, value in known.items() if value is not None}


def _keyed(gpus: Sequence[GpuUse]) -> dict[str, GpuUse]:
    """Name GPUs by their index, and slices, which share one, by index and number."""
    named = zip(numbers_of(gpus), gpus, strict=True)
    return {number: gpu for number, gpu in named if gpu.index is not None}


def from_record(
    record: Mapping[str, Any], *, nodes: int | None = None, gpus: int | None = None
) -> Answer:
    """Read a record's figures; what is missing, or no number, is unknown.

    A figure of the job is known where it is of every node, and of every GPU: those of a record
    that lacks some stand in its rows alone, and a note says what it lacks. `nodes` and `gpus` are
    how many Slurm gave the job.
    """
    elapsed, counted = elapsed_of(record), as_number(record.get("gpus"))
    said = {str(host): row for host, row in record["nodes"].items()}
    rows = {host: row for host, row in said.items() if isinstance(row, dict)}
    of_nodes = {host: _gpu_uses(host, row, elapsed) for host, row in rows.items()}
    per_node = tuple(_node_use(host, row, elapsed, of_nodes[host]) for host, row in rows.items())
    per_gpu = tuple(gpu for found in of_nodes.values() for gpu in found)
    # A node or GPU without a row is there as well.
    every_node = [*per_node, *[NodeUse(host="")] * _lacking(max(nodes or 0, len(said)), rows)]
    most = max((number for number in (counted, gpus) if number is not None), default=None)
    every_gpu = [*per_gpu, *[GpuUse(host="")] * _lacking(most, per_gpu)]
    hours = counted * elapsed / 3600 if counted is not None and elapsed else None
    return Answer(
        source=JS1,
        summary=_of_gpus(every_gpu) | _of_nodes(every_node, elapsed) | {"gpu_hours": hours},
        per_node=per_node,
        per_gpu=per_gpu,
        remarks=tuple(_lacks(every_gpu, every_node)),
    )


def elapsed_of(record: Mapping[str, Any]) -> float | None:
    """Return for how long the job of a record had run, in seconds."""
    return as_number(record.get("total_time"))


# Epilogs take the time some seconds after Slurm does.
_APART_S, _APART = 60, 0.05


def covers_attempt(record: Mapping[str, Any], elapsed_s: float | None) -> bool:
    """Say whether a record's time is an attempt's; not known to differ is enough."""
    theirs = elapsed_of(record)
    if theirs is None or elapsed_s is None:
        return True
    return abs(theirs - elapsed_s) <= max(_APART_S, _APART * elapsed_s)


def _lacking(wanted: float | None, rows: Collection[object]) -> int:
    """Return 1 if a job has more of something than rows: how many more changes no figure."""
    return int(wanted is not None and wanted > len(rows))


def _of_gpus(gpus: Sequence[GpuUse]) -> dict[str, float | int | None]:
    used = [gpu.memory_peak_bytes for gpu in gpus]
    limits = [gpu.memory_total_bytes for gpu in gpus]
    return {
        "gpu_utilization_percent": mean(gpu.utilization_percent for gpu in gpus),
        "gpu_memory_used_percent": share(used, limits),
        "gpu_memory_peak_bytes": highest(used),
        "gpu_memory_total_bytes": highest(limits),
    }


def _of_nodes(nodes: Sequence[NodeUse], elapsed: float | None) -> dict[str, float | int | None]:
    cpu_s = [node.cpu_s for node in nodes]
    core_s = [node.cores * elapsed if node.cores and elapsed else None for node in nodes]
    used = [node.memory_peak_bytes for node in nodes]
    limits = [node.memory_limit_bytes for node in nodes]
    return {
        "cpu_s": total(cpu_s),
        "cpu_efficiency_percent": share(cpu_s, core_s),
        "memory_efficiency_percent": share(used, limits),
        "memory_peak_bytes": highest(used),
        "memory_limit_bytes": highest(limits),
    }


def _lacks(gpus: Sequence[GpuUse], nodes: Sequence[NodeUse]) -> Iterator[Remark]:
    """Yield what a record says of some GPUs or nodes only."""
    rows: tuple[tuple[str, Sequence[GpuUse | NodeUse], str, str], ...] = (
        ("GPU utilization", gpus, "utilization_percent", "gpu_utilization_percent"),
        ("GPU memory", gpus, "memory_peak_bytes", "gpu_memory_peak_bytes"),
        ("GPU memory size", gpus, "memory_total_bytes", "gpu_memory_used_percent"),
        ("CPU time", nodes, "cpu_s", "cpu_s"),
        ("cores", nodes, "cores", "cpu_efficiency_percent"),
        ("CPU memory", nodes, "memory_peak_bytes", "memory_peak_bytes"),
        ("memory limit", nodes, "memory_limit_bytes", "memory_efficiency_percent"),
    )
    partly = {
        figure: label
        for label, parts, name, figure in rows
        if {getattr(part, name) is None for part in parts} == {True, False}
    }
    if partly:
        text = f"The site's jobstats record has {', '.join(partly.values())} for some nodes or GPUs"
        note = SourceNote(
            code="js1_partial", text=f"{text} only: the figure of the whole job is unknown."
        )
        yield Remark(figures=tuple(partly), note=note)


def _node_use(
    host: str, row: Mapping[str, Any], elapsed: float | None, gpus: Sequence[GpuUse]
) -> NodeUse:
    cores, cpu_s = as_number(row.get("cpus")), as_number(row.get("total_time"))
    used, limit = _bytes(row.get("used_memory")), _bytes(row.get("total_memory"))
    core_s = cores * elapsed if cores and elapsed else None
    return NodeUse(
        host=host,
        cores=None if cores is None else round(cores),
        cores_used=cpu_s / elapsed if cpu_s is not None and elapsed else None,
        cpu_s=cpu_s,
        cpu_efficiency_percent=share([cpu_s], [core_s]),
        memory_peak_bytes=used,
        memory_limit_bytes=limit,
        memory_efficiency_percent=share([used], [limit]),
        gpus=len(gpus),
        gpu_utilization_percent=mean(gpu.utilization_percent for gpu in gpus),
    )


def _gpu_uses(host: str, row: Mapping[str, Any], elapsed: float | None) -> tuple[GpuUse, ...]:
    def of(name: str) -> dict[str, Any]:
        values = row.get(name)
        return values if isinstance(values, dict) else {}

    utilization, used, limit = map(of, ("gpu_utilization", "gpu_used_memory", "gpu_total_memory"))
    return tuple(
        GpuUse(
            host=host,
            index=_index(index),
            mig="." in index,
            utilization_percent=as_number(utilization.get(index)),
            memory_peak_bytes=(peak := _bytes(used.get(index))),
            memory_total_bytes=(most := _bytes(limit.get(index))),
            memory_used_percent=share([peak], [most]),
            hours=elapsed / 3600 if elapsed else None,
        )
        for index in sorted({*utilization, *used, *limit}, key=by_number)
    )


def as_number(value: object) -> float | None:
    """Return a number that is one; jobstats writes sizes and times as either kind."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value < _TOO_LARGE else None


def _index(key: str) -> int | None:
    match = re.fullmatch(_INDEX, key)
    return int(match[1]) if match else None


def _bytes(value: object) -> int | None:
    number = as_number(value)
    return None if number is None else round(number)
