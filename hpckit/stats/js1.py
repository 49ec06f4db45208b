"""Princeton jobstats' record of a job, as sites keep it in sacct's AdminComment: in and out. Pure.

`JS1:` and the base64 of gzipped JSON; `JS1:Short` of a job with fewer than two samples, `JS1:None`
of one without any (jobstats, docs/setup/summaries.md).
"""

import base64
import binascii
import gzip
import json
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hpckit.stats.merge import Answer
from hpckit.stats.summary.values import JS1, GpuUse, JobUse, NodeUse

# sacctmgr of Slurm 22.05 writes all in lower case: the marks survive that, a record does not.
_MARK = re.compile(r"JS1:([A-Za-z0-9+/=]+)", re.IGNORECASE)
# The largest known are some kilobytes; more is damage, or a trap.
_LONGEST = 16 << 20
# 2^64 - 1 and its like stand for "none" in most programs.
_TOO_LARGE = 1 << 63
_INDEX = re.compile(r"(\d{1,6})(?:\.\d{1,6})?", re.ASCII)


@dataclass(frozen=True, kw_only=True, slots=True)
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
    match = _MARK.search(comment)
    if match is None:
        return Js1()
    word = match[1].lower()
    if word == "short":
        return Js1(trouble="The site's jobstats saw fewer than two samples of this job.")
    if word == "none":
        return Js1(trouble="The site's jobstats has no data of this job.")
    try:
        packed = base64.b64decode(match[1], validate=True)
        inflate = zlib.decompressobj(wbits=31)  # gzip
        text = inflate.decompress(packed, _LONGEST)
        if not inflate.eof:
            raise ValueError("cut short, or far too long")
        record = json.loads(text)
    except (ValueError, binascii.Error, zlib.error, RecursionError) as error:
        return Js1(trouble=f"The site's jobstats record is damaged ({error}).")
    if not isinstance(record, dict) or not isinstance(record.get("nodes"), dict):
        return Js1(trouble="The site's jobstats record has no nodes.")
    return Js1(record=record)


def encode(record: Mapping[str, Any]) -> str:
    """Return a record as an AdminComment; the same record always gives the same text."""
    text = json.dumps(record, separators=(",", ":"), sort_keys=True).encode()
    return "JS1:" + base64.b64encode(gzip.compress(text, mtime=0)).decode()


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
        values = {index: getattr(gpu, name) for index, gpu in mine.items()}
        known[key] = {
            index: round(value, 1) for index, value in values.items() if value is not None
        } or None
    return {name: value for name, value in known.items() if value is not None}


def _keyed(gpus: Sequence[GpuUse]) -> dict[str, GpuUse]:
    """Name GPUs by their index, and slices, which share one, by index and number."""
    alike: dict[int, list[GpuUse]] = {}
    for gpu in gpus:
        if gpu.index is not None:
            alike.setdefault(gpu.index, []).append(gpu)
    return {
        str(index) if len(group) == 1 else f"{index}.{number}": gpu
        for index, group in alike.items()
        for number, gpu in enumerate(group)
    }


def from_record(record: Mapping[str, Any]) -> Answer:
    """Read a record's figures; what is missing, or no number, is unknown."""
    elapsed = _number(record.get("total_time"))
    rows = {str(host): row for host, row in record["nodes"].items() if isinstance(row, dict)}
    per_node = tuple(_node_use(host, row, elapsed) for host, row in rows.items())
    per_gpu = tuple(gpu for host, row in rows.items() for gpu in _gpu_uses(host, row, elapsed))
    used = [gpu.utilization_percent for gpu in per_gpu if gpu.utilization_percent is not None]
    core_s = [
        node.cores * elapsed
        for node in per_node
        if node.cores and elapsed and node.cpu_s is not None
    ]
    cpu_s = [node.cpu_s for node in per_node if node.cpu_s is not None]
    gpus = _number(record.get("gpus"))
    return Answer(
        source=JS1,
        summary={
            "gpu_utilization_percent": sum(used) / len(used) if used else None,
            "gpu_memory_used_percent": _share(
                [(gpu.memory_peak_bytes, gpu.memory_total_bytes) for gpu in per_gpu]
            ),
            "gpu_memory_peak_bytes": _largest([gpu.memory_peak_bytes for gpu in per_gpu]),
            "gpu_memory_total_bytes": _largest([gpu.memory_total_bytes for gpu in per_gpu]),
            "cpu_s": sum(cpu_s) if cpu_s else None,
            "cpu_efficiency_percent": sum(cpu_s) / sum(core_s) * 100 if cpu_s and core_s else None,
            "memory_efficiency_percent": _share(
                [(node.memory_peak_bytes, node.memory_limit_bytes) for node in per_node]
            ),
            "memory_peak_bytes": _largest([node.memory_peak_bytes for node in per_node]),
            "memory_limit_bytes": _largest([node.memory_limit_bytes for node in per_node]),
            "gpu_hours": gpus * elapsed / 3600 if gpus is not None and elapsed else None,
        },
        per_node=per_node,
        per_gpu=per_gpu,
    )


def _node_use(host: str, row: Mapping[str, Any], elapsed: float | None) -> NodeUse:
    cores, cpu_s = _number(row.get("cpus")), _number(row.get("total_time"))
    used, limit = _bytes(row.get("used_memory")), _bytes(row.get("total_memory"))
    gpus = [gpu.utilization_percent for gpu in _gpu_uses(host, row, elapsed)]
    known = [value for value in gpus if value is not None]
    return NodeUse(
        host=host,
        cores=None if cores is None else round(cores),
        cores_used=cpu_s / elapsed if cpu_s is not None and elapsed else None,
        cpu_s=cpu_s,
        cpu_efficiency_percent=cpu_s / (cores * elapsed) * 100
        if cpu_s is not None and cores and elapsed
        else None,
        memory_peak_bytes=used,
        memory_limit_bytes=limit,
        memory_efficiency_percent=_share([(used, limit)]),
        gpus=len(gpus),
        gpu_utilization_percent=sum(known) / len(known) if known else None,
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
            utilization_percent=_number(utilization.get(index)),
            memory_peak_bytes=_bytes(used.get(index)),
            memory_total_bytes=_bytes(limit.get(index)),
            memory_used_percent=_share([(_bytes(used.get(index)), _bytes(limit.get(index)))]),
            hours=elapsed / 3600 if elapsed else None,
        )
        for index in sorted({*utilization, *used, *limit})
    )


def _number(value: object) -> float | None:
    """Return a number that is one; jobstats writes sizes and times as either kind."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value < _TOO_LARGE else None


def _index(key: str) -> int | None:
    match = _INDEX.fullmatch(key)
    return int(match[1]) if match else None


def _bytes(value: object) -> int | None:
    number = _number(value)
    return None if number is None else round(number)


def _share(pairs: list[tuple[int | None, int | None]]) -> float | None:
    known = [(part, limit) for part, limit in pairs if part is not None and limit]
    total = sum(limit for _, limit in known)
    return sum(part for part, _ in known) / total * 100 if total else None


def _largest(values: list[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)
