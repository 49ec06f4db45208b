"""The samples of one node of one job, as values: what the sampler writes and the summary reads.

A file `<host>.r<restart>.<pid>.jsonl` has one writer and is only appended to. Its first record is a
`Header`; then `Sample`s, a `Slow` once a minute, a `State` when one changed, `Note`s, and an `End`
unless the sampler was killed. `encoding` turns records into lines, `reading` reads whole files.

None is "unknown" everywhere, and never 0. Counters (`_us` of CPU, `_mj`, `io_*`, `oom_kills`) only
grow, except that a driver reload sets an energy counter back to 0; take differences.
"""

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

from hpckit.frozen import frozen
from hpckit.stats.metric import readings, with_fields
from hpckit.stats.metric_table import GPU, NODE
from hpckit.values import LAST_MOMENT, Count, Within, Word

SCHEMA = 1
# Of one node, counted as MIG slices.
MOST_GPUS = 1024
# Its samples may be ten years later: reading.py.
Wall = Annotated[int, Within(0, LAST_MOMENT * 990_000)]
# The kernel gives processes lower numbers: proc(5), pid_max.
_PIDS = 1 << 22
_NAME = r"(?a)(?P<host>.+)\.r(?P<restart>\d+)\.(?P<pid>\d+)\.jsonl"

# How sure it is that a GPU is this job's (facts 7.1): its processes are all the job's; none was
# seen, or they cannot be told; others' processes are on it too.
VERIFIED, UNVERIFIED, SHARED = "verified", "unverified", "shared"
GPU_SAMPLED = tuple(metric for metric in GPU if metric.bits)
GPU_MINUTELY = tuple(metric for metric in GPU if not metric.bits)

# What `GpuSample.utilization_permille` is: the mean over the interval from the driver's own
# buffer; the mean of readings at random moments, each of the driver's last window (1/6 to 1 s); or
# GPM's mean over the interval (MIG slices).
MEAN, SPOT, GPM = "mean", "spot", "gpm"


@frozen(kw_only=True)
class GpuInfo:
    """One GPU, or one MIG slice, that is this job's.

    Attributes:
        index: its number on this node (PCI order); a slice has its parent's.
        minor: N of /dev/nvidiaN.
        pci: bus id, as `00000000:18:00.0`.
        memory_total_bytes: the slice's own for a slice.
        power_limit_mw: the enforced limit of the whole GPU.
        mig_parent: UUID of the GPU that a MIG slice, or AMD's partition, is part of; None for a
            whole GPU.
        gpm: whether SM, tensor and DRAM activity can be read (Hopper and newer).
    """

    index: int
    uuid: str
    name: str | None = None
    minor: int | None = None
    pci: str | None = None
    memory_total_bytes: int | None = None
    power_limit_mw: int | None = None
    mig_parent: str | None = None
    gpm: bool = False


def gpu_numbers(places: Sequence[tuple[str, int | None]]) -> list[str]:
    """Return what each GPU is called on its node: `3`; slices of one, which share it, `3.0`, `3.1`.

    `places` are the GPUs' hosts and numbers; `?` is a number that is not known.
    """
    shared, found = Counter(places), []
    seen: Counter[tuple[str, int | None]] = Counter()
    for place in places:
        part = f".{seen[place]}" if shared[place] > 1 else ""
        found.append("?" if place[1] is None else f"{place[1]}{part}")
        seen[place] += 1
    return found


@frozen(kw_only=True)
class Header:
    """What holds for a whole file.

    Attributes:
        ids: job, array and run ids, where known: `job_id`, `array_job_id`, `array_task_id`,
            `het_job_id`, `het_offset`, `step_id`, `step_gpus`, `cluster`, `run_id`, `restart`.
        epoch_us: wall clock at `mono_us`, which gives every sample's wall time.
        mono_us: CLOCK_BOOTTIME, comparable within one `boot_id`.
        interval_us: what was asked for; the first minutes are finer.
        gpu_method: how the job's GPUs were found (`hpckit.stats.sampler.job_gpus`).
        gpu_confidence: VERIFIED, UNVERIFIED or SHARED at the start; `State` has it later.
        cores: how many this step may use here.
        job_cores: how many the whole job may; None where that is not known, and in older files.
        memory_limit_bytes: what this job may use here; None if unlimited or unknown.
        cgroup: `v1`, `v2`, or `proc` where /proc was summed over the job's processes.
        summed: over whose descendants CPU time was summed: the process's number, and before it that
            of their namespace; None where it is of a cgroup, and in older files.
        gpu_library: what the GPUs are read by: `NVML` or `AMD SMI`; None in older files, too.
        spot_us: between readings of utilization where it is SPOT; None: once each sample (0.1).
    """

    host: Word
    boot_id: Word | None
    pid: Count
    epoch_us: Wall
    mono_us: Count
    interval_us: Annotated[int, Within(1, 86_400_000_000)]
    ids: Mapping[str, str] = field(default_factory=dict)
    gpus: Annotated[tuple[GpuInfo, ...], Within(0, MOST_GPUS)] = ()
    gpu_method: str | None = None
    gpu_confidence: str = UNVERIFIED
    cores: Count | None = None
    job_cores: Count | None = None
    memory_limit_bytes: Count | None = None
    cgroup: str | None = None
    summed: str | None = None
    driver: str | None = None
    gpu_library: str | None = None
    spot_us: int | None = None
    schema: int = SCHEMA

    def epoch_at(self, mono_us: int) -> int:
        """Return the wall clock, in microseconds since 1970, at a record's time."""
        return self.epoch_us + mono_us - self.mono_us


# Of these records only the fields that code of its own writes or reads are spelt out; the others
# are the table's.
@with_fields(readings(GPU_SAMPLED))
@frozen(kw_only=True)
class GpuSample:
    """One GPU at one time: its metrics. Permilles are of the time since the last sample."""

    energy_mj: int | None = None
    power_mw: int | None = None
    utilization_permille: int | None = None  # MEAN, SPOT or GPM


@with_fields(readings(NODE))
@frozen(kw_only=True)
class Sample:
    """One node at one time: when, on the header's clock, its metrics, and those of its GPUs.

    Attributes:
        gpus: in the header's order.
    """

    mono_us: int
    own_cpu_us: int | None = None
    own_rss_bytes: int | None = None
    memory_bytes: int | None = None
    oom_kills: int | None = None
    took_us: int | None = None
    gpus: tuple[GpuSample, ...] = ()


@with_fields(readings(row for row in NODE if row.read))
@frozen(kw_only=True)
class Usage:
    """What a job used on this node so far, by the kernel's files."""

    cpu_us: int | None = None
    memory_bytes: int | None = None
    swap_bytes: int | None = None
    io_read_bytes: int | None = None
    io_write_bytes: int | None = None
    oom_kills: int | None = None


if TYPE_CHECKING:

    class GpuSlow(NamedTuple):
        """What is read of a GPU once a minute."""

        throttle_reasons: int | None = None
        utilization_source: str | None = None
else:
    # Made 80,000 times for a week of 8, so no dataclass. Its fields are the columns of the file's
    # rows: new ones come last. The utilization's source is MEAN, SPOT or GPM; SPOT if any sample
    # of the minute was.
    _COLUMNS: list = [(metric.name, int | None) for metric in GPU_MINUTELY]
    _COLUMNS.insert(5, ("utilization_source", str | None))
    GpuSlow = NamedTuple("GpuSlow", _COLUMNS)
    GpuSlow.__new__.__defaults__ = (None,) * len(_COLUMNS)


# As many as minutes, so a dataclass that makes its instances faster.
@dataclass(frozen=True, kw_only=True, slots=True)
class Slow:
    """The slow fields of all GPUs, in the header's order, and the wall clock beside ours."""

    mono_us: Count
    epoch_us: Wall
    gpus: tuple[GpuSlow, ...] = ()


@frozen(kw_only=True)
class GpuState:
    """What seldom changes about a GPU.

    Attributes:
        ecc_corrected: volatile, since the driver was loaded.
        remapped_rows: correctable and uncorrectable.
        processes: (pid, bytes of GPU memory) on it, anyone's; None if not readable.
        confidence: VERIFIED, UNVERIFIED or SHARED.
    """

    ecc_corrected: int | None = None
    ecc_uncorrected: int | None = None
    remapped_rows: int | None = None
    processes: tuple[tuple[int, int | None], ...] | None = None
    confidence: str = UNVERIFIED


@frozen(kw_only=True)
class State:
    """The state of all GPUs, in the header's order; written when one of them changed."""

    mono_us: Count
    gpus: tuple[GpuState, ...] = ()


@frozen(kw_only=True)
class Note:
    """Something the reader of the summary should know, in a sentence.

    Attributes:
        code: a stable word: `gpu_lost` (not read from then on), `gpu_back` (read again),
            `gpu_hang`, `gpu_error`, `no_nvml`, `not_supported`, `counter_reset`, `disk`, `cgroup`,
            `gpu_mapping`, `crash`.
        gpu: UUID of the GPU it is about.
        error: the library's number of what went wrong (`nvmlReturn_t`, `amdsmi_status_t`); None in
            files of 0.1, too.
    """

    mono_us: Count
    code: str
    text: str
    gpu: str | None = None
    error: int | None = None


@frozen(kw_only=True)
class End:
    """The sampler ended by itself: `reason` is `signal`, `parent` (the job's end) or `error`."""

    mono_us: Count
    reason: str


Record = Header | Sample | Slow | State | Note | End


@frozen(kw_only=True)
class SamplesPath:
    """One samples file, and what its name says."""

    path: Path
    host: str
    restart: int
    pid: int


def sampled_host(environ: Mapping[str, str]) -> str:
    """Return what a sampler with this environment calls its node: as Slurm does, if it says so.

    Of many clusters Slurm's name is `n1`, and the node's own `n1.cluster.example.org`.
    """
    return environ.get("SLURMD_NODENAME") or os.uname().nodename


def file_name(host: str, restart: int, pid: int) -> str:
    """Return the name of a samples file."""
    return f"{host.replace('/', '_')}.r{restart}.{pid}.jsonl"


def file_names(host: str, restart: int, pid: int) -> Iterator[str]:
    """Yield names for a sampler's file, the usual one first.

    Another one may have had this number: a thousand steps before, or in a container with numbers of
    its own.
    """
    return (file_name(host, restart, number) for number in count(pid, _PIDS))


def samples_files(folder: Path) -> tuple[SamplesPath, ...]:
    """Return the samples files of a folder by restart, host and pid; none if it is not there.

    Raises:
        OSError: it cannot be read.
    """
    try:
        paths = list(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return ()
    found = (
        SamplesPath(
            path=path, host=name["host"], restart=int(name["restart"]), pid=int(name["pid"])
        )
        for path in paths
        if (name := re.fullmatch(_NAME, path.name))
    )
    return tuple(sorted(found, key=lambda file: (file.restart, file.host, file.pid)))


def has_samples(folder: Path) -> bool:
    """Say whether a folder has samples files that this user may see."""
    try:
        return bool(samples_files(folder))
    except OSError:
        return False
