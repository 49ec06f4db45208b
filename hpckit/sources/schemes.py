"""Whose series are called what, and in which units: three exporters of GPUs, and one of cgroups.

- jobstats: github.com/plazonic/nvidia_gpu_prometheus_exporter, main.go. What it calls percent is a
  ratio, but for nvidia_gpu_duty_cycle. Before 0.2.2 the job stood in nvidia_gpu_jobId alone.
- dcgm: github.com/NVIDIA/dcgm-exporter, etc/default-counters.csv; `hpc_job` is of
  internal/pkg/transformation/hpc.go.
- nvidia-smi: github.com/utkuozdemir/nvidia_gpu_exporter, docs/METRICS.md. It knows of no jobs.
- cgroups: github.com/treydock/cgroup_exporter, and github.com/plazonic/cgroup_exporter, which adds
  jobid, step and task; the sum of a job has empty ones.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hpckit.sites.prometheus import DCGM, JOBSTATS, NVIDIA_SMI

_MIB = float(1 << 20)
# The label in which a question of several names says which of them a series answers.
NAME = "hpckit_name"


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """How series fill a column of samples.

    Attributes:
        column: of `GpuSample` or `Sample`, or a word of `hpckit.sources.series`.
        names: of the series; the first must be there, the others are added to it.
        factor: from their unit to the column's.
        over: PromQL's function for what becomes one value: avg, max or last (of counters).
    """

    column: str
    names: tuple[str, ...]
    factor: float = 1.0
    over: str = "avg"


@dataclass(frozen=True, kw_only=True, slots=True)
class Scheme:
    """One exporter's names.

    Attributes:
        job: the label that has the job's id; None: it has none.
        probe: a series that each GPU has, MIG slices too.
        uuid, index, model, slice_id: labels of a GPU, the first that is there.
        readings: the first of a column that a GPU has is used.
    """

    name: str
    says: str
    job: str | None
    probe: str
    uuid: tuple[str, ...]
    index: tuple[str, ...]
    model: tuple[str, ...]
    slice_id: tuple[str, ...]
    readings: tuple[Reading, ...]


JOBSTATS_NAMES = Scheme(
    name=JOBSTATS,
    says="jobstats' nvidia_gpu_*",
    job="jobid",
    probe="nvidia_gpu_memory_used_bytes",
    uuid=("uuid",),
    index=("ordinal", "minor_number"),
    model=("name",),
    slice_id=("GPU_I_ID",),
    readings=(
        Reading(column="utilization_permille", names=("nvidia_gpu_duty_cycle",), factor=10),
        Reading(
            column="utilization_permille",
            names=("nvidia_gpu_graphics_util_percent",),
            factor=1000,
        ),
        Reading(column="memory_bytes", names=("nvidia_gpu_memory_used_bytes",), over="max"),
        Reading(column="memory_total_bytes", names=("nvidia_gpu_memory_total_bytes",), over="max"),
        Reading(column="power_mw", names=("nvidia_gpu_power_usage_milliwatts",)),
        Reading(column="temperature_c", names=("nvidia_gpu_temperature_celsius",), over="max"),
        Reading(column="sm_permille", names=("nvidia_gpu_sm_util_percent",), factor=1000),
        Reading(
            column="occupancy_permille", names=("nvidia_gpu_sm_occupancy_percent",), factor=1000
        ),
        Reading(
            column="tensor_permille", names=("nvidia_gpu_any_tensor_util_percent",), factor=1000
        ),
        Reading(column="dram_permille", names=("nvidia_gpu_dram_bw_util_percent",), factor=1000),
    ),
)
# Of NVML's memory in use, what the driver keeps for itself is a part; DCGM and nvidia-smi, which
# ask by the newer call (nvml.h, nvmlMemory_v2_t), tell the two apart.
DCGM_NAMES = Scheme(
    name=DCGM,
    says="DCGM's DCGM_FI_*",
    job="hpc_job",
    probe="DCGM_FI_DEV_FB_USED",
    uuid=("UUID", "uuid", "gpu_uuid"),
    index=("gpu",),
    model=("modelName", "model_name"),
    slice_id=("GPU_I_ID",),
    readings=(
        Reading(column="utilization_permille", names=("DCGM_FI_DEV_GPU_UTIL",), factor=10),
        Reading(
            column="utilization_permille", names=("DCGM_FI_PROF_GR_ENGINE_ACTIVE",), factor=1000
        ),
        Reading(
            column="memory_bytes",
            names=("DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_RESERVED"),
            factor=_MIB,
            over="max",
        ),
        Reading(
            column="memory_total_bytes",
            names=("DCGM_FI_DEV_FB_FREE", "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_RESERVED"),
            factor=_MIB,
        ),
        Reading(column="energy_mj", names=("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",), over="last"),
        Reading(column="power_mw", names=("DCGM_FI_DEV_POWER_USAGE",), factor=1000),
        Reading(column="temperature_c", names=("DCGM_FI_DEV_GPU_TEMP",), over="max"),
        Reading(column="memory_temperature_c", names=("DCGM_FI_DEV_MEMORY_TEMP",), over="max"),
        Reading(column="sm_permille", names=("DCGM_FI_PROF_SM_ACTIVE",), factor=1000),
        Reading(column="occupancy_permille", names=("DCGM_FI_PROF_SM_OCCUPANCY",), factor=1000),
        Reading(column="tensor_permille", names=("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",), factor=1000),
        Reading(column="dram_permille", names=("DCGM_FI_PROF_DRAM_ACTIVE",), factor=1000),
    ),
)
NVIDIA_SMI_NAMES = Scheme(
    name=NVIDIA_SMI,
    says="nvidia_gpu_exporter's nvidia_smi_*",
    job=None,
    probe="nvidia_smi_memory_used_bytes",
    uuid=("uuid",),
    index=("index",),
    model=("name",),
    slice_id=(),
    readings=(
        Reading(
            column="utilization_permille", names=("nvidia_smi_utilization_gpu_ratio",), factor=1000
        ),
        Reading(
            column="memory_bytes",
            names=("nvidia_smi_memory_used_bytes", "nvidia_smi_memory_reserved_bytes"),
            over="max",
        ),
        Reading(column="memory_total_bytes", names=("nvidia_smi_memory_total_bytes",), over="max"),
        Reading(
            column="energy_mj", names=("nvidia_smi_energy_joules_total",), factor=1000, over="last"
        ),
        Reading(column="power_mw", names=("nvidia_smi_power_draw_watts",), factor=1000),
        Reading(column="temperature_c", names=("nvidia_smi_temperature_gpu",), over="max"),
        Reading(
            column="memory_temperature_c", names=("nvidia_smi_temperature_memory",), over="max"
        ),
        Reading(column="", names=("nvidia_smi_gpu_info",), over="last"),  # for its labels
    ),
)
GPU_SCHEMES = (JOBSTATS_NAMES, DCGM_NAMES, NVIDIA_SMI_NAMES)
# jobstats before 0.2.2: the job's id is the value of a series beside the others.
OWNER = "nvidia_gpu_jobId"

CGROUP_JOB, CGROUP_PROBE = "jobid", "cgroup_cpu_total_seconds"
CGROUP = (
    Reading(column="cpu_us", names=(CGROUP_PROBE,), factor=1e6, over="last"),
    Reading(
        column="memory_bytes",
        names=("cgroup_memory_rss_bytes", "cgroup_memory_shmem_bytes"),
        over="max",
    ),
    Reading(column="cores", names=("cgroup_cpus",), over="max"),
    Reading(column="limit", names=("cgroup_memory_total_bytes",), over="max"),
)


def scheme_called(name: str) -> Scheme:
    """Return the scheme of a name in `hpckit.sites.prometheus.SCHEMES`."""
    return next(scheme for scheme in GPU_SCHEMES if scheme.name == name)


def label_of(labels: Mapping[str, str], names: Sequence[str]) -> str | None:
    """Return the first of some labels that is there and not empty."""
    return next((labels[name] for name in names if labels.get(name)), None)
