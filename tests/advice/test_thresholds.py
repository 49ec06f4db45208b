"""Every threshold is where its rule says: moved by a fifth, some job here is judged otherwise."""

import dataclasses
from dataclasses import dataclass, replace

import pytest

from hpckit.sites import Site
from hpckit.stats.advice.engine import advise
from hpckit.stats.advice.rules import Rule
from hpckit.stats.summary.figures import JobUse
from tests.advice.cases import (
    CASES,
    cores,
    cpu,
    held,
    memory,
    nodes_of,
    one,
    small,
    stalls,
    starved,
    took,
    two,
)
from tests.advice.made import HOUR, RULES, SITE, cpu_job, cpu_node, gpu, job, one_rule


@dataclass(frozen=True)
class Point:
    rule: str
    account: JobUse
    severity: str | None
    action: str = ""
    site: Site | None = SITE


def lasting(hours: float, **figures: object) -> JobUse:
    return job(gpus=(gpu(**figures),), elapsed_s=hours * HOUR, attempts=())


def four(percent: float) -> JobUse:
    return job(gpus=tuple(gpu(index=at, utilization_percent=percent) for at in range(4)))


def sat_at(seconds: float) -> JobUse:
    return job(gpus=(gpu(utilization_percent=10.0),), interactive=True, elapsed_s=seconds)


def frugal(host_gb: float, count: int) -> JobUse:
    account = small(10.0)
    return dataclasses.replace(
        account,
        summary=dataclasses.replace(account.summary, memory_peak_bytes=int(host_gb * 2**30)),
        requested=dataclasses.replace(account.requested, cores=count),
    )


def two_cpu_nodes(count: int) -> JobUse:
    return cpu_job(nodes=(cpu_node("a"), cpu_node("b")), requested={"cores": count})


def cpu_memory(gb: int) -> JobUse:
    account = memory(10, gb)
    return dataclasses.replace(account, gpus=0, per_gpu=())


def three_nodes(others: float, last: float) -> JobUse:
    account = nodes_of(last)
    rows = [
        dataclasses.replace(row, gpu_utilization_percent=others) for row in account.per_node[:2]
    ]
    return dataclasses.replace(account, per_node=(*rows, account.per_node[2]))


def pair(other: float) -> JobUse:
    return job(gpus=(gpu(utilization_percent=other), gpu(index=1, utilization_percent=10.0)))


def timed_out(idle_s: float) -> JobUse:
    limit = {"time_limit_s": 2 * HOUR}
    return job(gpus=(gpu(idle_tail_s=idle_s),), state="TIMEOUT", requested=limit)


POINTS = (
    Point("busy-but-empty", one(busy_sm_percent=5.0), "yellow"),
    Point("busy-but-empty", one(busy_sm_percent=12.0, busy_hours=0.1), "yellow"),
    Point("busy-but-empty", one(busy_sm_percent=12.0, busy_hours=0.099), None),
    Point("cores-per-gpu", cores(13), "yellow", site=None),
    Point("cores-per-gpu", cores(12), None, site=None),
    Point("cpu-fragmentation", two_cpu_nodes(31), "info", site=None),
    Point("cpu-fragmentation", two_cpu_nodes(32), None, site=None),
    Point("cpu-starved", starved(97.0, 15.1), "yellow"),
    Point("cpu-starved", starved(97.0, 15.0), "red", action="--cpus-per-task 8", site=None),
    Point("gpu-too-powerful", frugal(31.9, 12), "yellow"),
    Point("gpu-too-powerful", frugal(32.0, 12), None),
    Point("gpu-too-powerful", frugal(31.9, 13), None),
    Point("host-memory-per-gpu", memory(80, 116), "yellow", site=None),
    Point("host-memory-per-gpu", memory(80, 115), None, site=None),
    Point("idle-tail", lasting(5, idle_tail_s=900.0), "yellow"),
    Point("idle-tail", lasting(5, idle_tail_s=899.0), None),
    Point("idle-tail", lasting(1, idle_tail_s=1800.0), "red"),
    Point("idle-tail", lasting(1, idle_tail_s=1799.0), "yellow"),
    Point("idle-tail", lasting(10, idle_tail_s=9000.0), "red"),
    Point("idle-tail", lasting(10, idle_tail_s=8999.0), "yellow"),
    Point("late-first-use", lasting(5, first_use_s=900.0), "yellow"),
    Point("late-first-use", lasting(5, first_use_s=899.0), None),
    Point("late-first-use", lasting(1, first_use_s=1800.0), "red"),
    Point("late-first-use", lasting(1, first_use_s=1799.0), "yellow"),
    Point("late-first-use", lasting(10, first_use_s=9000.0), "red"),
    Point("late-first-use", lasting(10, first_use_s=8999.0), "yellow"),
    Point("loader-stalls", stalls(share_percent=29.9), "yellow"),
    Point("loader-stalls", stalls(count=5), "yellow"),
    Point("loader-stalls", stalls(count=4), None),
    Point("loader-stalls", replace(stalls(), elapsed_s=301.0), "yellow"),
    Point("loader-stalls", replace(stalls(), elapsed_s=300.0), None),
    Point("low-cpu-efficiency", cpu(65.0), "yellow"),
    Point("low-gpu-utilization", two(15.1), "yellow"),
    Point("low-gpu-utilization", four(13.0), "red", action="--gpus 2"),
    Point("low-gpu-utilization", four(24.0), "yellow", action="--gpus 2"),
    Point("low-gpu-utilization", sat_at(28801.0), "red"),
    Point("low-gpu-utilization", sat_at(28800.0), None),
    Point("memory-held-idle", held(7200.0, 8.0), "yellow"),
    Point("memory-held-idle", held(14399.0, 5.0), "yellow"),
    Point("memory-held-idle", held(14400.0, 5.0), "red"),
    Point("memory-held-idle", held(18000.0, 10.0), "red"),
    Point("memory-held-idle", held(17999.0, 10.0), "yellow"),
    Point("memory-over-allocated", cpu_memory(65), "yellow"),
    Point("memory-over-allocated", cpu_memory(64), None),
    Point("straggler-gpu", pair(30.0), "yellow"),
    Point("straggler-gpu", pair(29.9), None),
    Point("straggler-node", three_nodes(30.0, 10.0), "yellow"),
    Point("straggler-node", three_nodes(29.9, 10.0), None),
    Point("time-limit-too-long", took(1000, 9999), "yellow"),
    Point("timeout", timed_out(1799.0), "red", action="--time 03:00:00"),
    Point("timeout", timed_out(1800.0), "red", action="Look at the end of the logs"),
)


def elapsed_points() -> list[Point]:
    """For each rule that asks for a shortest time: its first job, at that time and a bit over."""
    found = []
    for rule in RULES:
        shortest = rule.variables.get("min_elapsed_s")
        if isinstance(shortest, int):
            case = next(case for case in CASES if case.rule == rule.id)
            at, over = (
                dataclasses.replace(case.triggers, elapsed_s=seconds, attempts=())
                for seconds in (float(shortest), shortest + 1.0)
            )
            found += [Point(rule.id, at, None), Point(rule.id, over, case.severity)]
    return found


ALL = (*POINTS, *elapsed_points())


def judged(rule: Rule, account: JobUse, site: Site | None) -> tuple[str | None, str, float]:
    items = advise(account, (dataclasses.replace(rule, silences=()),), site)
    if not items:
        return None, "", 0.0
    return str(items[0].severity), items[0].action or "", items[0].lost_gpu_hours or 0.0


@pytest.mark.parametrize("point", ALL, ids=lambda point: f"{point.rule}-{point.severity}")
def test_a_job_at_a_threshold(point: Point) -> None:
    severity, action, _ = judged(one_rule(point.rule), point.account, point.site)
    assert severity == point.severity
    assert point.action in action


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_no_threshold_can_be_moved_unseen(rule: Rule) -> None:
    accounts = [(point.account, point.site) for point in ALL if point.rule == rule.id]
    for case in CASES:
        if case.rule == rule.id:
            accounts += [(case.triggers, SITE), (case.misses, SITE)]
    before = [judged(rule, *account) for account in accounts]
    for name, value in rule.variables.items():
        if isinstance(value, int | float) and not isinstance(value, bool):
            for moved in (value * 1.2 or 0.5, value * 0.8 or -0.5):
                other = dataclasses.replace(rule, variables={**rule.variables, name: moved})
                assert [judged(other, *account) for account in accounts] != before, (name, moved)
