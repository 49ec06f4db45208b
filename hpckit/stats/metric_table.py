"""Every metric, a row each (`hpckit.stats.metric`); a new one needs its row, and its reader here.

Readers of GPUs get the vendor's library (`hpckit.stats.sampler.gpu_library`) and the GPU:
`unit.handle` for what belongs to a MIG slice, too, `unit.board` for what belongs to the whole GPU.
They raise GpuLibraryError where it does: the reading is unknown then, and a note tells. Readers of
nodes get the files of the job's cgroup, and give None where the kernel or Slurm does not have one.
"""

from typing import TYPE_CHECKING, Any

from hpckit.stats.metric import Drawn, Metric, Over

if TYPE_CHECKING:
    from hpckit.stats.sampler.cgroup import JobFiles

_PERCENT = Drawn(unit="%", factor=0.1, digits=1, top=100)  # of a thousandth
_GIB = Drawn(unit="GiB", factor=2**-30, digits=2)
_GPM = "GPM, Hopper and newer, whole GPUs and slices"

GPU = (
    Metric(
        name="energy_mj",
        title="energy",
        says="energy counter since the driver was loaded; whole GPU, so absent on MIG slices",
        source="NVML, AMD SMI",
        bits=48,
    ),
    Metric(
        name="memory_bytes",
        title="memory",
        says="memory in use, by anyone",
        source="NVML, AMD SMI",
        read=lambda gpus, unit: gpus.memory_bytes(unit.handle),
        bits=32,
        worth=1024,
        drawn=_GIB,
    ),
    Metric(
        name="power_mw",
        title="power",
        says="mean power since the last sample; whole GPU, so absent on MIG slices",
        source="difference of the energy counter; where there is none, NVML's last second, or AMD "
        "SMI's power",
        bits=32,
        factor=1e-3,
        drawn=Drawn(unit="W", factor=1e-3),
    ),
    Metric(
        name="utilization_permille",
        title="utilization",
        says="time in which a kernel ran, since the last sample",
        source="the driver's own buffer (`mean`); where there is none, and of AMD's activity, the "
        "mean of readings of its last window (`spot`); GPM on MIG slices (`gpm`). "
        "`utilization_source` tells",
        bits=16,
        drawn=_PERCENT,
    ),
    Metric(
        name="sm_permille",
        title="SM activity",
        says="SMs busy, of all of them",
        source=_GPM,
        gpm=2,
        bits=16,
        figure="sm_active_percent",
        factor=0.1,
        in_summary="sm_active_percent",
        on_page=True,
        column="SM",
        drawn=_PERCENT,
    ),
    Metric(
        name="occupancy_permille",
        title="SM occupancy",
        says="warps resident on the SMs, of those possible",
        source=_GPM,
        gpm=3,
        bits=16,
        figure="sm_occupancy_percent",
        factor=0.1,
        in_summary="sm_occupancy_percent",
        on_page=True,
    ),
    Metric(
        name="tensor_permille",
        title="tensor cores",
        says="time in which tensor cores were busy",
        source=_GPM,
        gpm=5,
        bits=16,
        figure="tensor_percent",
        factor=0.1,
        in_summary="tensor_percent",
    ),
    Metric(
        name="dram_permille",
        title="memory bandwidth",
        says="memory bandwidth used, of what there is",
        source=_GPM,
        gpm=10,
        bits=16,
        figure="dram_percent",
        factor=0.1,
        in_summary="dram_percent",
    ),
    Metric(
        name="sm_mhz",
        title="SM clock",
        says="clock of the SMs",
        source="NVML, AMD SMI",
        read=lambda gpus, unit: gpus.clock_mhz(unit.board, "sm"),
    ),
    Metric(
        name="memory_mhz",
        title="memory clock",
        says="clock of the memory",
        source="NVML, AMD SMI",
        read=lambda gpus, unit: gpus.clock_mhz(unit.board, "memory"),
    ),
    Metric(
        name="throttle_reasons",
        title="throttle reasons",
        says="NVML's bits of why clocks are low (nvmlClocksEventReason*)",
        source="NVML",
        read=lambda gpus, unit: gpus.throttle_reasons(unit.board),
    ),
    Metric(
        name="temperature_c",
        title="temperature",
        says="temperature of the GPU",
        source="NVML; AMD SMI's hottest spot",
        read=lambda gpus, unit: gpus.temperature_c(unit.board),
        figure="temperature_peak_c",
        over_time=Over.HIGHEST,
    ),
    Metric(
        name="memory_temperature_c",
        title="memory temperature",
        says="temperature of the GPU's memory",
        source="NVML, AMD SMI",
        read=lambda gpus, unit: gpus.memory_temperature_c(unit.board),
        figure="memory_temperature_peak_c",
        over_time=Over.HIGHEST,
    ),
)


def _cpu_us(files: "JobFiles") -> int | None:
    if files.version == "v2":
        return files.pairs("cpu.stat").get("usage_usec")
    nanoseconds = files.number("cpuacct.usage")
    return None if nanoseconds is None else nanoseconds // 1000


def _memory(files: "JobFiles") -> int | None:
    anonymous = files.pairs("memory.stat").get("anon" if files.version == "v2" else "total_rss")
    # A kernel too old to tell shared memory apart still gives the anonymous part.
    return None if anonymous is None else anonymous + (_shared(files) or 0)


def _shared(files: "JobFiles") -> int | None:
    return files.pairs("memory.stat").get("shmem" if files.version == "v2" else "total_shmem")


def _cache(files: "JobFiles") -> int | None:
    whole = files.pairs("memory.stat").get("file" if files.version == "v2" else "total_cache")
    return None if whole is None else max(whole - (_shared(files) or 0), 0)


def _memory_peak(files: "JobFiles") -> int | None:
    return files.number("memory.peak" if files.version == "v2" else "memory.max_usage_in_bytes")


def _swap(files: "JobFiles") -> int | None:
    if files.version == "v2":
        return files.number("memory.swap.current")
    return files.pairs("memory.stat").get("total_swap")


def _io(v2: str, v1: str) -> Any:  # noqa: ANN401  # a reader
    def read(files: "JobFiles") -> int | None:
        if files.version == "v2":
            return files.total("io.stat", rf"\b{v2}=(\d+)")
        return files.total("blkio.throttle.io_service_bytes_recursive", rf"\b{v1} (\d+)")

    return read


NODE = (
    Metric(
        name="cpu_us",
        title="CPU time",
        says="CPU time of the job so far; the sampler's own is in it, if from a cgroup",
        source="cgroup v2 `cpu.stat`, v1 `cpuacct.usage`, else /proc over all that descends from "
        "the step's slurmstepd",
        read=_cpu_us,
        bits=64,
        drawn=Drawn(unit="cores", digits=2, title="cores in use", rate=True),
    ),
    Metric(
        name="io_read_bytes",
        title="disk reads",
        says="bytes read from block devices, not NFS or Lustre",
        source="cgroup v2 `io.stat`, v1 `blkio.throttle.io_service_bytes_recursive`, else /proc",
        read=_io("rbytes", "Read"),
        bits=64,
        figure="io_read_bytes",
        over_time=Over.GROWTH,
    ),
    Metric(
        name="io_write_bytes",
        title="disk writes",
        says="bytes written to block devices, not NFS or Lustre",
        source="the same files",
        read=_io("wbytes", "Write"),
        bits=64,
        grows=True,
        figure="io_write_bytes",
        over_time=Over.GROWTH,
    ),
    Metric(
        name="memory_bytes",
        title="memory",
        says="anonymous and shared memory: what the job needs, without page cache",
        source="cgroup `memory.stat`, else /proc (shared memory then: the largest of one process)",
        read=_memory,
        bits=48,
        drawn=_GIB,
    ),
    Metric(
        name="memory_peak_bytes",
        title="memory with page cache",
        says="the kernel's high-water mark, with page cache",
        source="cgroup v2 `memory.peak` (Linux 5.19), v1 `memory.max_usage_in_bytes`",
        read=_memory_peak,
        bits=48,
        grows=True,
        figure="memory_peak_cache_bytes",
        over_time=Over.HIGHEST,
    ),
    Metric(
        name="cache_bytes",
        title="page cache",
        says="page cache charged to the job",
        source="cgroup `memory.stat`",
        read=_cache,
        bits=48,
    ),
    Metric(
        name="swap_bytes",
        title="swap",
        says="memory of the job in swap",
        source="cgroup v2 `memory.swap.current`, v1 `memory.stat`, else /proc",
        read=_swap,
        bits=48,
        figure="swap_peak_bytes",
        over_time=Over.HIGHEST,
    ),
    Metric(
        name="own_cpu_us",
        title="sampler's CPU time",
        says="CPU time of the sampler itself so far",
        source="the sampler",
        bits=48,
        grows=True,
    ),
    Metric(
        name="own_rss_bytes",
        title="sampler's memory",
        says="memory of the sampler itself",
        source="/proc",
        bits=32,
        worth=1024,
        grows=True,
        figure="sampler_rss_bytes",
        over_time=Over.HIGHEST,
    ),
    Metric(
        name="oom_kills",
        title="processes killed, out of memory",
        says="processes that the kernel killed because the job's memory was full",
        source="cgroup v2 `memory.events`, v1 `memory.oom_control`",
        read=lambda files: files.oom_kills(),
        bits=16,
        grows=True,
        figure="oom_kills",
        over_time=Over.SUM,
        in_summary="oom_kills",
        over_all=Over.SUM,
    ),
    Metric(
        name="took_us",
        title="time of the sample",
        says="how long this sample took to take",
        source="the sampler",
        bits=32,
    ),
)
