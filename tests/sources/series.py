"""Series as exporters make them, of GPUs that play a script: for promtool's OpenMetrics."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tests.report.made import H200_BYTES, START
from tests.stats.stub.script import Gpu, Steps, uuid

SECONDS, CORES, CORES_USED = 3600, 16, 4.0
MEMORY, LIMIT = 8 << 30, 64 << 30
GPU_MEMORY, RESERVED = 60 << 30, 600 << 20
_MIB = 1 << 20


def scripted(index: int, util: Steps) -> Gpu:
    """A GPU whose readings follow its utilization as in `write_samples`."""
    curves = {
        "util": util,
        "power": [(at, 100_000 + 5_000 * value) for at, value in util],
        "sm": [(at, value * 0.5) for at, value in util],
        "tensor": [(at, value * 0.1) for at, value in util],
        "dram": [(at, value * 0.2) for at, value in util],
    }
    return Gpu(index=index, curves=curves)


# Of one hour; the exact means follow from them.
GPUS = (
    scripted(0, [(0, 0), (300, 90), (1800, 40), (3000, 0)]),
    scripted(1, [(0, 70), (1500, 20), (2400, 100)]),
)


@dataclass(frozen=True, kw_only=True)
class Scraped:
    """One exporter's scrapes of a job on a node.

    `lost` are scrapes that failed, of `gone` GPUs; `reset_at` a driver begins its counters anew.
    """

    host: str = "n1"
    job: str = "77"
    start: float = START
    seconds: int = SECONDS
    every_s: float = 15.0
    late_s: float = 4.3
    gpus: Sequence[Gpu] = GPUS
    lost: range = range(0)
    gone: Mapping[int, int] = field(default_factory=dict)
    reset_at: float = float("inf")

    def times(self) -> Iterator[tuple[int, float]]:
        """Each scrape's number and its second in the script; some before and after the job."""
        for number in range(int(self.seconds / self.every_s)):
            if number not in self.lost:
                yield number, self.late_s + number * self.every_s

    def line(self, name: str, labels: Mapping[str, str], value: float, at: float) -> str:
        pairs = ",".join(f'{key}="{text}"' for key, text in labels.items())
        return f"{name}{{{pairs}}} {value!r} {self.start + at:.3f}"

    def of(self, gpu: Gpu) -> Iterator[tuple[float, dict[str, float]]]:
        """Each scrape's second, and the GPU's curves then; energy in mJ since the driver began."""
        for number, at in self.times():
            if number >= self.gone.get(gpu.index, 10**9):
                return
            found = {name: _value(steps, at) for name, steps in gpu.curves.items()}
            begun = self.reset_at if at >= self.reset_at else 0.0
            base = 0.0 if begun else 1e9
            spent = gpu.mean("power", begun, at) * (at - begun) if at > begun else 0.0
            yield at, found | {"energy": base + spent}


def _value(steps: Steps, at: float) -> float:
    return next(value for since, value in reversed(steps) if since <= at)


def jobstats(scraped: Scraped, *, owner: bool = False, model: str = "NVIDIA H200") -> Iterator[str]:
    """The jobstats exporter's; `owner`: as it was before it had a label with the job's id."""
    for gpu in scraped.gpus:
        own = {
            "instance": f"{scraped.host}.cluster.example.org:9445",
            "ordinal": str(gpu.index),
            "minor_number": str(gpu.index),
            "uuid": uuid(gpu.index),
            "name": model,
        }
        if not owner:
            own |= {"jobid": scraped.job, "userid": "1000"}
        for at, now in scraped.of(gpu):
            values = {
                "nvidia_gpu_duty_cycle": now["util"],
                "nvidia_gpu_memory_used_bytes": GPU_MEMORY,
                "nvidia_gpu_memory_total_bytes": H200_BYTES,
                "nvidia_gpu_power_usage_milliwatts": now["power"],
                "nvidia_gpu_temperature_celsius": 60,
                "nvidia_gpu_sm_util_percent": now["sm"] / 100,
                "nvidia_gpu_any_tensor_util_percent": now["tensor"] / 100,
                "nvidia_gpu_dram_bw_util_percent": now["dram"] / 100,
            }
            if owner:
                values["nvidia_gpu_jobId"] = int(scraped.job)
            yield from (scraped.line(name, own, value, at) for name, value in values.items())


def dcgm(scraped: Scraped) -> Iterator[str]:
    """DCGM exporter's, with the labels of `--hpc-job-mapping-dir`."""
    for gpu in scraped.gpus:
        own = {
            "instance": "10.0.0.7:9400",
            "gpu": str(gpu.index),
            "UUID": uuid(gpu.index),
            "device": f"nvidia{gpu.index}",
            "modelName": "NVIDIA H200",
            "Hostname": scraped.host,
            "hpc_job": scraped.job,
        }
        for at, now in scraped.of(gpu):
            values = {
                "DCGM_FI_DEV_GPU_UTIL": now["util"],
                "DCGM_FI_DEV_FB_USED": (GPU_MEMORY - RESERVED) / _MIB,
                "DCGM_FI_DEV_FB_RESERVED": RESERVED / _MIB,
                "DCGM_FI_DEV_FB_FREE": (H200_BYTES - GPU_MEMORY) / _MIB,
                "DCGM_FI_DEV_POWER_USAGE": now["power"] / 1000,
                "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": now["energy"],
                "DCGM_FI_DEV_GPU_TEMP": 60,
                "DCGM_FI_PROF_SM_ACTIVE": now["sm"] / 100,
                "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": now["tensor"] / 100,
                "DCGM_FI_PROF_DRAM_ACTIVE": now["dram"] / 100,
            }
            yield from (scraped.line(name, own, value, at) for name, value in values.items())


def nvidia_smi(scraped: Scraped) -> Iterator[str]:
    """nvidia_gpu_exporter's: by node and UUID alone."""
    for gpu in scraped.gpus:
        own = {
            "instance": f"{scraped.host}:9835",
            "uuid": uuid(gpu.index).removeprefix("GPU-"),
        }
        for at, now in scraped.of(gpu):
            values = {
                "nvidia_smi_utilization_gpu_ratio": now["util"] / 100,
                "nvidia_smi_memory_used_bytes": GPU_MEMORY - RESERVED,
                "nvidia_smi_memory_reserved_bytes": RESERVED,
                "nvidia_smi_memory_total_bytes": H200_BYTES,
                "nvidia_smi_power_draw_watts": now["power"] / 1000,
                "nvidia_smi_energy_joules_total": now["energy"] / 1000,
                "nvidia_smi_temperature_gpu": 60,
            }
            yield from (scraped.line(name, own, value, at) for name, value in values.items())
            about = own | {"name": "NVIDIA H200", "index": str(gpu.index)}
            yield scraped.line("nvidia_smi_gpu_info", about, 1, at)


def cgroups(scraped: Scraped, *, by_path: bool = False) -> Iterator[str]:
    """cgroup_exporter's; `by_path`: as its first author's, which has no label for the job."""
    own = {"instance": f"{scraped.host}:9306"}
    own |= {"cgroup": f"/slurm/uid_1000/job_{scraped.job}"} if by_path else {"jobid": scraped.job}
    for _, at in scraped.times():
        reset = at if at < scraped.reset_at else at - scraped.reset_at
        values = {
            "cgroup_cpu_total_seconds": CORES_USED * reset,
            "cgroup_cpus": CORES,
            "cgroup_memory_rss_bytes": MEMORY - (2 << 30),
            "cgroup_memory_shmem_bytes": 2 << 30,
            "cgroup_memory_total_bytes": LIMIT,
        }
        yield from (scraped.line(name, own, value, at) for name, value in values.items())
        # A step's part of it: not the job's.
        if not by_path:
            part = own | {"step": "0", "task": ""}
            yield scraped.line("cgroup_cpu_total_seconds", part, reset, at)


def openmetrics(lines: Iterable[str]) -> str:
    """What promtool reads: each name's lines together."""
    return "\n".join([*sorted(lines, key=lambda line: line.partition("{")[0]), "# EOF", ""])
