"""Was a rank that SIGKILL has ended out of memory? By the job's last samples on its node.

For where nobody else knows: a kernel, or a Slurm without memory cgroups, that counts no such kills.
A memory that was nearly full just before is then taken for the cause. Who kills a rank by hand in
such a moment is believed to be the kernel; where kills are counted, the count alone is believed.
"""

import os
import time
from pathlib import Path

from hpckit.files import DamagedFileError
from hpckit.job_ends.tracebacks import OUT_OF_MEMORY_SAMPLED
from hpckit.stats.samples.packing import SampleBlock
from hpckit.stats.samples.reading import newest_samples
from hpckit.stats.samples.records import Header, sampled_host, samples_files

# Of what the job may use on a node: so much was in use. A sampler sees no peak between two samples.
NEARLY_ALL = 0.95
# A sample in the last two intervals counts, and what a loaded node is late by.
_INTERVALS, _LATE_US = 2, 5_000_000
_GIB = 1 << 30


def sampled_out_of_memory(run_dir: Path, restart: int) -> str | None:
    """Say that the job had nearly all its memory of this node in use just now; None: not known."""
    host = sampled_host(os.environ)
    for file in reversed(samples_files(run_dir / "samples")):
        if (file.host, file.restart) != (host.replace("/", "_"), restart):
            continue
        try:
            found = newest_samples(file.path)
        except (OSError, DamagedFileError):
            continue
        if found and (said := _said(*found, time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000)):
            return said
    return None


def _said(header: Header, samples: SampleBlock, now_us: int) -> str | None:
    limit = header.memory_limit_bytes
    since = now_us - _INTERVALS * header.interval_us - _LATE_US
    names = ("mono_us", "memory_bytes", "oom_kills")
    rows = zip(*(_column(samples, name) for name in names), strict=True)
    last = [(memory, kills) for at, memory, kills in rows if at is not None and at >= since]
    most = max((memory for memory, _ in last if memory is not None), default=0)
    counted = any(kills is not None for _, kills in last)
    if counted or not limit or most < NEARLY_ALL * limit:
        return None
    return (
        f"{OUT_OF_MEMORY_SAMPLED}: {most / _GIB:.1f} of {limit / _GIB:.1f} GiB were in use on this "
        "node just before"
    )


def _column(samples: SampleBlock, name: str) -> list[int | None]:
    column = samples.node(name)
    return column.to_list() if column else [None] * len(samples)
