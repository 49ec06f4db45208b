"""The account of one job, as values: every figure `hpckit stats` shows, and advice rests on.

None is "unknown" everywhere, and never 0. Percents are 0 to 100, hours are GPU-hours, `_s` seconds,
moments epoch seconds. Means are weighted by time. The figures that a row of the table of metrics
makes are not spelt out here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING

from hpckit.frozen import frozen
from hpckit.slurm.resized import by_attempt
from hpckit.stats.metric import figures, job_figures, with_fields
from hpckit.stats.metric_table import GPU, NODE
from hpckit.stats.samples.records import gpu_numbers

if TYPE_CHECKING:
    # What `with_fields` adds, for type checkers; tests/stats/test_docs.py writes it of the table.
    from hpckit.stats.summary.of_table import GpuOfTable, JobOfTable, NodeOfTable
else:
    GpuOfTable = NodeOfTable = JobOfTable = object

# Where a figure comes from, best first.
SAMPLES, JS1, SACCT, SSTAT = "samples", "JS1", "sacct", "sstat"
PROMETHEUS = "Prometheus"
SQUEUE, SCONTROL, RANKS, LOCAL, RUN = "squeue", "scontrol", "ranks", "local", "run"


@frozen(kw_only=True)
class Stalls:
    """Repeated short pauses of a GPU between busy times, and what the node did in the pauses.

    Attributes:
        count: number of pauses.
        period_s: median time from one pause to the next.
        share_percent: time in pauses, of the time between first and last use.
        cpu_during_percent: cores in use during pauses, of the job's cores on the node.
        cpu_otherwise_percent: the same while the GPU was busy.
        read_during_bytes_per_s: bytes read from block devices during pauses.
    """

    count: int
    period_s: float
    share_percent: float
    cpu_during_percent: float | None = None
    cpu_otherwise_percent: float | None = None
    read_during_bytes_per_s: float | None = None


@with_fields(figures(GPU))
@frozen(kw_only=True)
class GpuUse(GpuOfTable):
    """One GPU or MIG slice over the whole job, all attempts together.

    When a figure is known: `hpckit.stats.summary.coverage`.

    Attributes:
        covered_percent: time in which the GPU was read, of the time the job had it.
        utilization_percent: time in which a kernel ran, of the time covered.
        utilization_peak_percent: the highest utilization of any sample.
        utilization_source: `mean`, `spot` or `gpm` (`hpckit.stats.samples.records`).
        utilization_error_percent: two standard errors of a `spot` mean; null for the others.
        idle_percent: time in samples with almost no kernel (< 1 %), of the time covered.
        memory_used_percent: the highest memory in use / the GPU's memory, as in jobstats.
        memory_peak_bytes: the highest memory in use, by anyone.
        memory_total_bytes: the GPU's memory.
        power_watts_mean: mean power over time.
        energy_joules: energy, from the GPU's counter.
        hours: GPU-hours covered by samples.
        idle_hours: GPU-hours without a kernel, of those covered.
        first_use_s: time from the start of the (last) attempt to the first kernel; None if no
            kernel ran.
        idle_tail_s: time without a kernel at the end of the (last) attempt.
        longest_idle_s: the longest pause between first and last use.
        memory_held_idle_s: idle time with at least 5 % of the GPU's memory in use.
        busy_sm_percent: SM activity while a kernel ran: SM activity / utilization.
        busy_hours: GPU-hours in which a kernel ran: hours x utilization.
        throttled_percent: minutes in which clocks were held down for heat or power supply.
        throttle_reasons: NVML's names of the reasons.
        ecc_uncorrected: memory errors that could not be corrected, since the job's start.
        confidence: VERIFIED, UNVERIFIED or SHARED (`hpckit.stats.samples.records`).
        lost: whether the GPU became unreadable, for ever or for a while.
        lost_at, back_at: when the GPU was last read before that, and when it was read again; None
            if it was not.
        lost_s: how long the GPU could not be read.
        lost_error: NVML's message.
    """

    host: str
    index: int | None = None
    uuid: str | None = None
    name: str | None = None
    mig: bool = False
    covered_percent: float | None = None
    utilization_percent: float | None = None
    utilization_peak_percent: float | None = None
    utilization_source: str | None = None
    utilization_error_percent: float | None = None
    idle_percent: float | None = None
    memory_used_percent: float | None = None
    memory_peak_bytes: int | None = None
    memory_total_bytes: int | None = None
    power_watts_mean: float | None = None
    energy_joules: float | None = None
    hours: float | None = None
    idle_hours: float | None = None
    first_use_s: float | None = None
    idle_tail_s: float | None = None
    longest_idle_s: float | None = None
    memory_held_idle_s: float | None = None
    busy_sm_percent: float | None = None
    busy_hours: float | None = None
    throttled_percent: float | None = None
    throttle_reasons: tuple[str, ...] = ()
    ecc_uncorrected: int | None = None
    confidence: str | None = None
    lost: bool = False
    lost_at: float | None = None
    back_at: float | None = None
    lost_s: float | None = None
    lost_error: str | None = None
    stalls: Stalls | None = None


def last_attempt(job: "JobUse") -> "Attempt | None":
    """Return a job's last attempt, with the start and the time of all its parts.

    Each change of its size ended a part.
    """
    if not job.attempts:
        return None
    parts = by_attempt(job.attempts)[-1]
    times = [part.elapsed_s for part in parts if part.elapsed_s is not None]
    elapsed_s = sum(times) if len(times) == len(parts) else None
    return replace(parts[-1], start=parts[0].start, elapsed_s=elapsed_s)


def attempt_words(job: "JobUse") -> str:
    """Return in how many attempts a job ran, and in how many parts where it changed its size."""
    if len(job.attempts) < 2:
        return ""
    parts, attempts = len(job.attempts), len(by_attempt(job.attempts))
    if attempts == 1:
        return f"{parts} parts of one attempt"
    return f"{attempts} attempts" + (f" with {parts} parts" if parts > attempts else "")


def part_word(name: str | None, *, part: bool) -> str:
    """Return what stands after the number of a part of a GPU; nothing after a whole one's."""
    if not part:
        return ""
    return " part" if (name or "").startswith("AMD") else " MIG"


def numbers_of(gpus: "Sequence[GpuUse]") -> list[str]:
    """Return what each of a job's GPUs is called on its node (`gpu_numbers`)."""
    return gpu_numbers([(gpu.host, gpu.index) for gpu in gpus])


@with_fields(figures(NODE))
@frozen(kw_only=True)
class NodeUse(NodeOfTable):
    """One node over the whole job, all attempts together.

    Attributes:
        cores: cores that the job may use.
        cpu_s: CPU time used.
        cpu_efficiency_percent: CPU time / (cores x time), in percent, of the time covered.
        cores_used: CPU time / time, of the time covered.
        memory_peak_bytes: peak of anonymous and shared memory, without page cache.
        memory_limit_bytes: memory that the job may use.
        memory_efficiency_percent: peak of memory / its limit, in percent.
        oom_kills: processes that the kernel killed because the job's memory was full.
        gpus: GPUs of the job.
        gpu_utilization_percent: utilization of its GPUs, mean over GPUs and time.
        covered_percent: time covered by samples, of the time the job had the node.
        sampler_cpu_percent: CPU time of the sampler itself, its start too, of one core;
            unknown where that is more than the time of its samples.
    """

    host: str
    cores: int | None = None
    cores_used: float | None = None
    cpu_s: float | None = None
    cpu_efficiency_percent: float | None = None
    memory_peak_bytes: int | None = None
    memory_limit_bytes: int | None = None
    memory_efficiency_percent: float | None = None
    oom_kills: int | None = None
    gpus: int | None = None
    gpu_utilization_percent: float | None = None
    covered_percent: float | None = None
    sampler_cpu_percent: float | None = None


@frozen(kw_only=True)
class Attempt:
    """One attempt of a job; a requeue begins the next.

    Attributes:
        why: how it ended, of one that another followed, where its run's folder tells.
    """

    restart: int
    state: str | None = None
    why: str | None = None
    hosts: tuple[str, ...] = ()
    start: float | None = None
    end: float | None = None
    elapsed_s: float | None = None
    gpu_utilization_percent: float | None = None
    gpu_hours: float | None = None
    gpu_hours_idle: float | None = None
    energy_joules: float | None = None
    cpu_efficiency_percent: float | None = None
    memory_peak_bytes: int | None = None
    coverage_percent: float | None = None
    gpu_coverage_percent: float | None = None
    gpu_coverage_lowest_percent: float | None = None


@with_fields(job_figures(GPU), job_figures(NODE))
@frozen(kw_only=True)
class Summary(JobOfTable):
    """The whole job in figures.

    Attributes:
        gpu_utilization_percent: time in which a kernel ran, mean over GPUs and time.
        gpu_utilization_peak_percent: the highest utilization of any sample; or Slurm's gpuutil,
            which is also a peak.
        gpu_memory_used_percent: GPU memory in use: sum of the GPUs' peaks / sum of their totals.
        gpu_memory_peak_bytes: the highest memory in use on any GPU.
        gpu_memory_total_bytes: memory of one GPU; of the largest, where they differ.
        power_watts_mean: mean power of one GPU over time, averaged over GPUs.
        energy_joules: energy of all GPUs, from their counters; None if one GPU has no counter.
        cpu_efficiency_percent: CPU time / (cores x time), in percent.
        cpu_s: CPU time used, on all nodes.
        memory_efficiency_percent: sum of the nodes' peaks / sum of their limits, in percent.
        memory_peak_bytes: the highest memory in use on any node, without page cache.
        memory_limit_bytes: memory that the job may use on a node; the largest, where they differ.
        gpu_hours: GPUs of the job x elapsed time.
        gpu_hours_idle: GPU-hours without a kernel, of those.
        samples: how many samples hpckit's samplers wrote.
        coverage_percent: time covered by samples, of the time the job had its nodes.
        gpu_coverage_percent: time in which GPUs were read, of the time the job had them.
        gpu_coverage_lowest_percent: the same of the GPU that was read least; 0 if one never was.
        gpu_imbalance_percent, node_imbalance_percent: the largest difference between two GPUs'
            (nodes') utilization.
    """

    gpu_utilization_percent: float | None = None
    gpu_utilization_peak_percent: float | None = None
    gpu_memory_used_percent: float | None = None
    gpu_memory_peak_bytes: int | None = None
    gpu_memory_total_bytes: int | None = None
    power_watts_mean: float | None = None
    energy_joules: float | None = None
    cpu_efficiency_percent: float | None = None
    cpu_s: float | None = None
    memory_efficiency_percent: float | None = None
    memory_peak_bytes: int | None = None
    memory_limit_bytes: int | None = None
    gpu_hours: float | None = None
    gpu_hours_idle: float | None = None
    samples: int | None = None
    coverage_percent: float | None = None
    gpu_coverage_percent: float | None = None
    gpu_coverage_lowest_percent: float | None = None
    gpu_imbalance_percent: float | None = None
    node_imbalance_percent: float | None = None


@frozen(kw_only=True)
class Requested:
    """What the job asked for; or what it got, where Slurm says only that.

    Attributes:
        gpus_per_node: None, too, where not all nodes have as many.
    """

    nodes: int | None = None
    gpus: int | None = None
    gpus_per_node: int | None = None
    gpu_type: str | None = None
    cores: int | None = None
    tasks_per_node: int | None = None
    cpus_per_task: int | None = None
    memory_bytes_per_node: int | None = None
    time_limit_s: int | None = None


@frozen(kw_only=True)
class SourceNote:
    """A remark on the figures, in one sentence; `code` is a word that does not change."""

    code: str
    text: str
    host: str | None = None
    gpu: str | None = None


@frozen(kw_only=True)
class JobUse:
    """One job's account, merged from all sources.

    Attributes:
        job_id: `123`, `123_4`, `123+1`, or a local run's.
        raw_id: Slurm's own number of an array task.
        state: Slurm's name of the job's state.
        exit_code: as in a shell: 128 + signal after a signal; None if the job runs, or if unknown.
        out_of_memory: whether it ended because memory was full, by Slurm, the kernel's count, or
            its last samples; None if the job runs, or if unknown.
        elapsed_s: time of all attempts together.
        interactive: whether a person used it directly (salloc, srun --pty, `hpckit shell`,
            `hpckit jupyter`); None if unknown.
        parameters: what a task of an array that hpckit submitted was given alone, as its program
            gets it; empty for other jobs.
        submitted_by_hpckit: whether `hpckit resubmit` can use the job, unless it is interactive.
        origins: figure (`summary.cpu_efficiency_percent`, `per_gpu`, `state`) -> source.
        suspect: impossible figures (over 100 %), and means made of a GPU's: they are shown, but not
            used for advice.
        at_least: figures that may be higher, because a part was not measured: not used for advice.
    """

    job_id: str
    raw_id: str | None = None
    run_id: str | None = None
    run_dir: str | None = None
    name: str | None = None
    user: str | None = None
    account: str | None = None
    partition: str | None = None
    qos: str | None = None
    cluster: str | None = None
    site: str | None = None
    state: str | None = None
    exit_code: int | None = None
    out_of_memory: bool | None = None
    running: bool = False
    interactive: bool | None = None
    submitted_by_hpckit: bool = False
    hosts: tuple[str, ...] = ()
    nodes: int | None = None
    gpus: int | None = None
    submitted: float | None = None
    start: float | None = None
    end: float | None = None
    elapsed_s: float | None = None
    data_age_s: float | None = None
    array_job_id: str | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)
    requested: Requested = field(default_factory=Requested)
    summary: Summary = field(default_factory=Summary)
    per_node: tuple[NodeUse, ...] = ()
    per_gpu: tuple[GpuUse, ...] = ()
    attempts: tuple[Attempt, ...] = ()
    notes: tuple[SourceNote, ...] = ()
    sources: tuple[str, ...] = ()
    origins: Mapping[str, str] = field(default_factory=dict)
    suspect: tuple[str, ...] = ()
    at_least: tuple[str, ...] = ()
    timeseries_file: str | None = None

    @property
    def gpus_or_asked(self) -> int | None:
        """Its GPUs; those it asks for while it waits, and if it never had a node."""
        waits = self.elapsed_s is None and self.start is None and self.gpus is None
        return self.requested.gpus if waits else self.gpus

    @property
    def has_gpus(self) -> bool:
        """Whether anything is to be said of GPUs; also where nobody knows how many it has."""
        return self.gpus_or_asked != 0 or bool(self.per_gpu)
