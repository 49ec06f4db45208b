"""Runs with samples as a sampler writes them, made in a moment."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hpckit.stats.samples.encoding import encoder
from hpckit.stats.samples.records import (
    End,
    GpuInfo,
    GpuSample,
    GpuSlow,
    Header,
    Note,
    Sample,
    Slow,
    file_name,
)

SCHEMA_FILE = Path(__file__).parent / "stats.schema.json"
REPORT_SCHEMA_FILE = Path(__file__).parent / "report.schema.json"
START = 1_790_000_000
BEGAN_US = 10_000_000
H200_BYTES = 150_754_820_096


def table(
    count: int, host: str = "n1", uuids: Sequence[str] = (), model: str = "NVIDIA H200"
) -> tuple[GpuInfo, ...]:
    return tuple(
        GpuInfo(
            index=at,
            uuid=uuids[at] if uuids else f"GPU-{host}-{at}",
            name=model,
            memory_total_bytes=H200_BYTES,
            gpm=True,
        )
        for at in range(count)
    )


def write_samples(
    folder: Path,
    used: Sequence[Sequence[float | None]],
    *,
    host: str = "n1",
    restart: int = 0,
    pid: int = 7,
    ids: Mapping[str, str] | None = None,
    stopped: Mapping[str, int] | None = None,
    period_s: float = 10.0,
    late_s: float = 0.0,
    cores: int = 16,
    cores_used: Sequence[float | None] | float = 4.0,
    memory: Sequence[int | None] | int = 8 << 30,
    limit: int | None = 64 << 30,
    sm: float | None = 0.5,
    source: str = "mean",
    uuids: Sequence[str] = (),
    infos: tuple[GpuInfo, ...] = (),
    spot_us: int | None = 250_000,
    gpu_memory: int = 60 << 30,
    model: str = "NVIDIA H200",
    power: bool = False,
    reasons: int = 0,
    notes: Iterable[Note] = (),
    end: bool = True,
) -> Path:
    """Write a file; `used[gpu][sample]` is the percent since the sample before.

    `stopped` are fields of all GPUs that are unknown from a sample on.
    """
    count = max(len(row) for row in used) if used else 1
    encode = encoder(len(used))
    path = folder / file_name(host, restart, pid)
    folder.mkdir(parents=True, exist_ok=True)
    lines = [
        encode(
            Header(
                host=host,
                boot_id="b",
                pid=pid,
                epoch_us=round((START + late_s) * 1e6),
                mono_us=BEGAN_US + round(late_s * 1e6),
                ids=dict(ids or {}),
                interval_us=round(period_s * 1e6),
                gpus=infos or table(len(used), host, uuids, model),
                gpu_method="constrained",
                cores=cores,
                memory_limit_bytes=limit,
                cgroup="v2",
                spot_us=spot_us,
            )
        )
    ]
    energy, cpu_us = [10**9] * len(used), 10**6
    for number in range(count):
        mono_us = BEGAN_US + round((late_s + number * period_s) * 1e6)
        busy = cores_used if isinstance(cores_used, int | float) else cores_used[number]
        if number and busy is not None:
            cpu_us += round(busy * period_s * 1e6)
        gpus = []
        for at, row in enumerate(used):
            value = row[number]
            if value is None:
                gpus.append(GpuSample())
                continue
            if number:
                energy[at] += round((100_000 + 5_000 * value) * period_s)
            reading = GpuSample(
                energy_mj=energy[at],
                memory_bytes=gpu_memory,
                power_mw=round(100_000 + 5_000 * value) if power else None,
                utilization_permille=round(value * 10),
                sm_permille=None if sm is None else round(value * 10 * sm),
                tensor_permille=round(value),
                dram_permille=round(value * 2),
            )
            gone = [name for name, first in (stopped or {}).items() if number >= first]
            gpus.append(replace(reading, **dict.fromkeys(gone)))
        need = memory if isinstance(memory, int) else memory[number]
        sample = Sample(
            mono_us=mono_us, cpu_us=None if busy is None else cpu_us, memory_bytes=need,
            memory_peak_bytes=need, oom_kills=0, own_cpu_us=number * 500, own_rss_bytes=19 << 20,
            gpus=tuple(gpus),
        )  # fmt: skip
        lines.append(encode(sample))
        if number % 6 == 0 and used:
            slow = GpuSlow(throttle_reasons=reasons, temperature_c=60, utilization_source=source)
            rows = (slow,) * len(used)
            lines.append(encode(Slow(mono_us=mono_us, epoch_us=START * 10**6, gpus=rows)))
    lines += [encode(note) for note in notes]
    if end:
        lines.append(encode(End(mono_us=mono_us, reason="parent")))
    path.write_bytes(b"".join(lines))
    return path


def make_run(
    root: Path,
    name: str = "train",
    *,
    job_id: str = "local-abc123",
    seconds: float = 3600,
    executor: str = "local",
    state: str = "COMPLETED",
    plan: Mapping[str, Any] | None = None,
    **record: Any,
) -> Path:
    """Write a run's folder that has ended, without samples."""
    folder = root / f"{name}-20261001-000000-{job_id[-6:]}"
    folder.mkdir(parents=True)
    planned = {
        "nodes": 1, "gpus_per_node": 4, "total_gpus": 4, "tasks_per_node": 4, "ranks": 4,
        "cpus_per_task": 4, "mem_gb": 64, "time_min": 120, "strategy": "ddp", "launcher": "srun",
    }  # fmt: skip
    fields = {
        "run_id": folder.name, "job_id": job_id, "executor": executor, "name": name,
        "submitted_at": START - 5, "cwd": str(root), "request": {}, "parameters": {},
        "command": [], "hpckit_version": "0", "plan": planned | dict(plan or {}), "user": "me",
        "site": {"name": "generic"},
    }  # fmt: skip
    (folder / "run.json").write_text(json.dumps(fields | record))
    local = {
        "job_id": job_id, "state": state, "host": "n1", "pid": 1, "pid_started": 1,
        "started": START, "ended": START + seconds, "exit_code": 0 if state == "COMPLETED" else 1,
    }  # fmt: skip
    if executor == "local":
        (folder / "local.json").write_text(json.dumps(local))
    (folder / "ranks").mkdir()
    for number in range(fields["plan"]["ranks"]):
        attempt = {
            "rank": number, "restart": 0, "host": "n1", "device": "cuda", "pid": 1,
            "started": START, "ended": START + seconds,
            "exit_code": 143 if state == "TIMEOUT" else 0,
        }  # fmt: skip
        text = json.dumps({"rank": number, "attempts": [attempt]})
        (folder / "ranks" / f"{number}.json").write_text(text)
    return folder
