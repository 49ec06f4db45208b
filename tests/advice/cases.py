"""For each rule: a job that triggers it, at which severity, and a near miss that does not.

The two differ by as little as the threshold allows.
"""

from dataclasses import dataclass, replace

from hpckit.stats.summary.figures import Attempt, JobUse, Stalls
from tests.advice.made import GIB, HOUR, START, cpu_job, cpu_node, gpu, job, node


@dataclass(frozen=True)
class Case:
    rule: str
    severity: str
    triggers: JobUse
    misses: JobUse
    lost: float | None = None
    action: str | None = None


def two(utilization: float, peak: float = 100.0) -> JobUse:
    return job(gpus=(gpu(), gpu(index=1, utilization_percent=utilization,
                                utilization_peak_percent=peak)))  # fmt: skip


def one(**figures: object) -> JobUse:
    return job(gpus=(gpu(**figures),))


def lost(**figures: object) -> JobUse:
    return one(lost=True, lost_at=START + 1800, lost_s=5400.0, covered_percent=25.0,
               lost_error="GPU is lost (NVML error 15)", **figures)  # fmt: skip


def small(utilization: float, memory_gb: float = 5, **changes: object) -> JobUse:
    return job(
        gpus=(gpu(utilization_percent=utilization, memory_peak_bytes=memory_gb * GIB),),
        requested={"cores": 4, "cpus_per_task": 4, "memory_bytes_per_node": 20 * GIB},
        summary={"memory_peak_bytes": 16 * GIB, "cpu_efficiency_percent": 85.0},
        **changes,
    )


def spread(nodes: int, gpus: int, **changes: object) -> JobUse:
    hosts = [f"c{at}" for at in range(nodes)]
    return job(
        nodes=tuple(node(host) for host in hosts),
        gpus=tuple(gpu(host, index) for host in hosts for index in range(gpus)),
        **changes,
    )


def cores(count: int, **changes: object) -> JobUse:
    wanted = {"cores": count, "cpus_per_task": count}
    return job(requested=wanted, summary={"cpu_efficiency_percent": 50.0}, **changes)


def sampled(account: JobUse, percent: float) -> JobUse:
    summary = replace(account.summary, coverage_percent=percent)
    return replace(account, summary=summary)


def memory(gb_used: float, gb: float, **changes: object) -> JobUse:
    peak, limit = int(gb_used * GIB), int(gb * GIB)
    return job(
        nodes=(node(memory_peak_bytes=peak, memory_limit_bytes=limit,
                    memory_efficiency_percent=100 * peak / limit),),
        requested={"memory_bytes_per_node": limit},
        summary={"memory_peak_bytes": peak, "memory_efficiency_percent": 100 * peak / limit},
        **changes,
    )  # fmt: skip


def cpu(percent: float, cores: int = 16, **changes: object) -> JobUse:
    wanted = {"cores": cores, "cpus_per_task": cores}
    return cpu_job(nodes=(cpu_node(cpu_efficiency_percent=percent),), requested=wanted, **changes)


def took(seconds: float, limit: float, **changes: object) -> JobUse:
    fields = {"elapsed_s": seconds, "attempts": (), "requested": {"time_limit_s": limit}}
    return job(gpus=(gpu(hours=seconds / 3600),), **(fields | changes))


def stalls(**changes: object) -> JobUse:
    figures = {"count": 40, "period_s": 90.0, "share_percent": 12.0, "cpu_during_percent": 97.0,
               "cpu_otherwise_percent": 20.0, "read_during_bytes_per_s": 1e6}  # fmt: skip
    return one(stalls=Stalls(**(figures | changes)))


def pauses(cpu_during: float, read: float) -> JobUse:
    return stalls(
        share_percent=30.0,
        cpu_during_percent=cpu_during,
        cpu_otherwise_percent=20.0,
        read_during_bytes_per_s=read,
    )


def starved(cpu_efficiency_percent: float, utilization: float) -> JobUse:
    nodes = (
        node(
            cores=1,
            cpu_efficiency_percent=cpu_efficiency_percent,
            gpu_utilization_percent=utilization,
        ),
    )
    wanted = {"cores": 1, "cpus_per_task": 1}
    return job(nodes=nodes, gpus=(gpu(utilization_percent=utilization),), requested=wanted)


def nodes_of(last: float) -> JobUse:
    hosts = {"c1": 80.0, "c2": 80.0, "c3": last}
    return job(
        nodes=tuple(node(host, gpu_utilization_percent=value) for host, value in hosts.items()),
        gpus=tuple(gpu(host, utilization_percent=value) for host, value in hosts.items()),
    )


def cpu_nodes(**last: object) -> JobUse:
    return cpu_job(
        nodes=tuple(cpu_node(f"c{at}", **(last if at == 7 else {})) for at in range(8)),
        requested={"cores": 8 * 64, "cpus_per_task": 64},
    )


def held(seconds: float, hours: float) -> JobUse:
    return job(gpus=(gpu(memory_held_idle_s=seconds, longest_idle_s=seconds),),
               elapsed_s=hours * HOUR)  # fmt: skip


CASES = (
    Case("gpu-unused", "red", two(0.0, 0.0), two(0.0, 0.1), lost=2.0,
         action="--nodes 1 --gpus 1"),
    Case("gpu-unused", "red", one(utilization_percent=0, utilization_peak_percent=None),
         one(utilization_percent=0.1, utilization_peak_percent=None), action="--nodes 1 --gpus 0"),
    Case("gpu-unused", "yellow",
         job(gpus=(gpu(utilization_percent=0, utilization_peak_percent=0),), interactive=True,
             elapsed_s=28801.0),
         job(gpus=(gpu(utilization_percent=0, utilization_peak_percent=0),), interactive=True,
             elapsed_s=28800.0)),
    Case("low-gpu-utilization", "red", two(15.0), two(25.1), lost=1.7),
    Case("low-gpu-utilization", "yellow", two(25.0), two(25.1), lost=1.5),
    Case("low-gpu-utilization", "red",
         job(gpus=tuple(gpu(index=at, utilization_percent=10.0, hours=301 / 3600)
                        for at in range(4)), elapsed_s=301.0),
         job(gpus=tuple(gpu(index=at, utilization_percent=10.0) for at in range(4)),
             elapsed_s=300.0),
         action="`hpckit resubmit 4711 --gpus 1`"),
    Case("low-gpu-memory", "info",
         job(summary={"gpu_memory_used_percent": 24.9, "gpu_utilization_percent": 79.0}),
         job(summary={"gpu_memory_used_percent": 25.0, "gpu_utilization_percent": 79.0})),
    Case("low-gpu-memory", "info",
         job(summary={"gpu_memory_used_percent": 10.0, "gpu_utilization_percent": 79.9}),
         job(summary={"gpu_memory_used_percent": 10.0, "gpu_utilization_percent": 80.0})),
    Case("gpu-too-powerful", "yellow", small(15.0), small(15.1), lost=1.7,
         action="A100, T4"),
    Case("gpu-too-powerful", "yellow", small(15.0, 9.9), small(15.0, 10.0)),
    Case("cores-per-gpu", "yellow", cores(17), cores(16), action="--cpus-per-task 16"),
    Case("cores-per-gpu", "yellow",
         job(requested={"cores": 17}, summary={"cpu_efficiency_percent": 79.9}),
         job(requested={"cores": 17}, summary={"cpu_efficiency_percent": 80.0})),
    Case("host-memory-per-gpu", "yellow", memory(84, 129), memory(84, 128),
         action="--mem-gb 101"),
    Case("host-memory-per-gpu", "yellow", memory(169.9, 200), memory(170, 200),
         action="at most 128 GiB per GPU"),
    Case("gpu-fragmentation", "yellow", spread(2, 2), spread(2, 3),
         action="--nodes 1 --gpus 4"),
    Case("gpu-fragmentation", "yellow", spread(4, 1, elapsed_s=3601.0),
         spread(4, 1, elapsed_s=3600.0)),
    Case("low-cpu-efficiency", "red", cpu(64.9), cpu(80.0), action="--cpus-per-task 12"),
    Case("low-cpu-efficiency", "yellow", cpu(79.9), cpu(80.0), action="--cpus-per-task 15"),
    Case("cpu-node-unused", "red", cpu_nodes(cores_used=0.049), cpu_nodes(cores_used=0.05),
         action="--nodes 7"),
    Case("serial-on-many-cores", "red", cpu(101 / 16), cpu(101.1 / 16),
         action="--nodes 1 --cpus-per-task 1"),
    Case("serial-on-many-cores", "red", cpu(85 / 16), cpu(84.9 / 16)),
    Case("cpu-fragmentation", "yellow",
         cpu_job(nodes=(cpu_node("a"), cpu_node("b")), requested={"cores": 64}),
         cpu_job(nodes=(cpu_node("a"), cpu_node("b")), requested={"cores": 65}),
         action="--nodes 1 --tasks-per-node 2"),
    Case("cpu-fragmentation", "yellow",
         cpu_job(nodes=(cpu_node("a"), cpu_node("b")), requested={"memory_bytes_per_node":
                                                                  217 * GIB}),
         cpu_job(nodes=(cpu_node("a"), cpu_node("b")), requested={"memory_bytes_per_node":
                                                                  218 * GIB})),
    Case("memory-over-allocated", "yellow", memory(69.9, 100), memory(70, 100),
         action="--mem-gb 84"),
    Case("memory-over-allocated", "yellow", memory(10, 50), memory(10, 49.9)),
    # What the nodes that nobody read had may be the peak.
    Case("memory-over-allocated", "yellow", sampled(memory(10, 100), 80),
         sampled(memory(10, 100), 79.9)),
    Case("host-memory-per-gpu", "yellow", sampled(memory(84, 129), 80),
         sampled(memory(84, 129), 79.9)),
    Case("memory-near-limit", "yellow", memory(95, 100), memory(94.9, 100),
         action="--mem-gb 114"),
    Case("time-limit-too-long", "red", took(1000, 10000), took(1000, 1666),
         action="--time 00:22:00"),
    Case("time-limit-too-long", "yellow", took(6000, 10000), took(6001, 10000),
         action="--time 02:10:00"),
    Case("time-limit-too-long", "red", took(901, 90000), took(900, 90000)),
    # After a restart all may be to do again: the last attempt alone is not what it takes.
    Case("time-limit-too-long", "red",
         took(1000, 10000, attempts=(Attempt(restart=0, elapsed_s=500.0),) * 2),
         took(7000, 10000, attempts=(Attempt(restart=0, elapsed_s=6000.0),
                                     Attempt(restart=1, elapsed_s=1000.0)))),
    Case("failed", "yellow", took(60, 7200, state="FAILED"), took(60, 7200, state="COMPLETED"),
         action="hpckit logs 4711 --errors"),
    # Red says that the loader is to blame: only if cores or disks have more to do.
    Case("loader-stalls", "red", pauses(24.0, 0.0), stalls(count=4)),
    Case("loader-stalls", "yellow", pauses(23.5, 0.0), stalls(count=4)),
    Case("loader-stalls", "red", pauses(20.0, 1.1e6), stalls(count=4)),
    Case("loader-stalls", "yellow", pauses(20.0, 0.9e6), stalls(count=4)),
    Case("timeout", "red", took(7200, 7200, state="TIMEOUT"), took(7200, 7200, state="FAILED"),
         action="--time 03:00:00"),
    Case("out-of-memory", "red", job(state="OUT_OF_MEMORY", out_of_memory=True),
         job(state="FAILED"), action="--mem-gb 90"),
    # Where no kill is counted, the last samples may know it.
    Case("out-of-memory", "red", took(60, 7200, state="FAILED", out_of_memory=True),
         took(60, 7200, state="FAILED", out_of_memory=False),
         action="--mem-gb 90"),
    Case("failed", "yellow", took(60, 7200, state="FAILED", out_of_memory=False),
         took(60, 7200, state="FAILED", out_of_memory=True)),
    Case("out-of-memory", "red", job(summary={"oom_kills": 1}), job(summary={"oom_kills": 0})),
    Case("test-qos", "info", job(qos="devel"), job(qos="normal")),
    Case("idle-tail", "red", one(idle_tail_s=1800.0), one(idle_tail_s=599.0), lost=0.5,
         action="--time 01:48:00"),
    Case("idle-tail", "yellow", one(idle_tail_s=600.0), one(idle_tail_s=599.9), lost=600 / 3600),
    Case("idle-tail", "yellow", one(idle_tail_s=1799.0), one(idle_tail_s=300.0)),
    Case("late-first-use", "red", one(first_use_s=1800.0), one(first_use_s=599.0), lost=0.5),
    Case("late-first-use", "yellow", one(first_use_s=600.0), one(first_use_s=599.9)),
    Case("loader-stalls", "yellow", stalls(share_percent=10.0), stalls(share_percent=9.9),
         action="--cpus-per-task 32"),
    Case("loader-stalls", "red", stalls(share_percent=30.0), stalls(count=4, share_percent=30.0)),
    Case("loader-stalls", "yellow", stalls(cpu_during_percent=89.9), stalls(count=4),
         action="Let the loader work ahead"),
    Case("cpu-starved", "yellow", starved(90.0, 49.0), starved(89.9, 49.0),
         action="--cpus-per-task 16"),
    Case("cpu-starved", "red", starved(97.0, 15.0), starved(97.0, 50.0), lost=1.7),
    Case("straggler-gpu", "yellow", two(44.9), two(45.0), lost=2 * 0.451),
    Case("straggler-node", "yellow", nodes_of(55.9), nodes_of(56.0), lost=2 * 0.241,
         action="--exclude c3"),
    Case("straggler-node", "yellow", cpu_nodes(cpu_efficiency_percent=59.4), cpu_nodes(
        cpu_efficiency_percent=59.5)),
    Case("busy-but-empty", "red", one(busy_sm_percent=4.9), one(busy_sm_percent=25.0)),
    Case("busy-but-empty", "yellow", one(busy_sm_percent=24.9), one(busy_sm_percent=25.0)),
    Case("busy-but-empty", "yellow", one(busy_sm_percent=12.0),
         one(busy_sm_percent=12.0, utilization_percent=89.9), lost=1.8 * 0.76),
    Case("memory-held-idle", "red", held(14400.0, 8.0), held(7199.0, 8.0), lost=4.0),
    Case("memory-held-idle", "yellow", one(memory_held_idle_s=3600.0),
         one(memory_held_idle_s=3599.0), lost=1.0),
    Case("throttling", "yellow", one(throttled_percent=10.0), one(throttled_percent=9.9),
         action="--exclude c1"),
    Case("gpu-lost", "red", lost(back_at=None), one(lost=False), lost=1.5, action="--exclude c1"),
    Case("gpu-lost", "yellow", lost(back_at=START + 7200), one(lost=False), lost=1.5),
    Case("gpu-errors", "yellow", one(ecc_uncorrected=1), one(ecc_uncorrected=0)),
)  # fmt: skip
