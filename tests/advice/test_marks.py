"""Which devices and times each rule's finding speaks of: what the pictures mark."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import pytest

from hpckit.collections import Collection
from hpckit.errors import ConfigError
from hpckit.stats.advice.engine import Advice, advise
from hpckit.stats.advice.loading import load_rules
from hpckit.stats.summary.figures import Attempt, JobUse
from hpckit.stats.summary.timeline import Line, Timeline
from tests.advice.cases import cpu_nodes, held, lost, memory, nodes_of, small, spread, starved, two
from tests.advice.cases import stalls as stalled
from tests.advice.made import GIB, RULES, SITE, START, cpu_job, cpu_node, gpu, job, node
from tests.conftest import write_files

BIN = 720  # ten of them are two hours
Values = Sequence[float | None]


def lines(rows: Mapping[str, Values]) -> tuple[Line, ...]:
    """`c1` is a node, `c1/0` a GPU of it."""
    found = []
    for name, values in rows.items():
        host, _, index = name.partition("/")
        uuid = f"GPU-{host}-{index}" if index else None
        number = int(index) if index else None
        found.append(Line(host=host, gpu=uuid, index=number, values=tuple(values)))
    return tuple(found)


def over(**rows: Mapping[str, Values]) -> Timeline:
    kept = ("restart", "start", "width_s")
    empty: dict[str, Any] = {row.name: () for row in fields(Timeline) if row.name not in kept}
    given = {name: lines(found) for name, found in rows.items()}
    return Timeline(restart=0, start=START, width_s=BIN, **(empty | given))


def used(**rows: Values) -> Timeline:
    return over(gpu_utilization={name.replace("_", "/"): row for name, row in rows.items()})


@dataclass(frozen=True)
class Marked:
    """A job, what it did over time, and what its advice marks: devices, and (device, bins)."""

    job: JobUse
    devices: tuple[str, ...] = ()
    times: tuple[tuple[str, float, float], ...] = ()
    over: Timeline | None = None


def nodes(**second: Any) -> tuple[Any, Any]:
    return node("c1"), node("c2", **second)


def pair(**second: Any) -> JobUse:
    return job(gpus=(gpu(), gpu(index=1, **second)))


def again(state: str, **changes: Any) -> JobUse:
    """A job whose second attempt is the last half of its time."""
    attempts = (
        Attempt(restart=0, start=START, end=START + 3000, elapsed_s=3000.0),
        Attempt(restart=1, start=START + 3600, end=START + 7200, elapsed_s=3600.0),
    )
    return job(state=state, attempts=attempts, **changes)


LAST = (("job", 5.0, 10.0),)
ALL = (("job", 0.0, 10.0),)
MARKS = {
    "gpu-unused": Marked(two(0.0, 0.0), ("c1/1",)),
    "low-gpu-utilization": Marked(
        two(15.0),
        ("c1/1",),
        (("c1/1", 2, 10),),
        used(c1_0=[90.0] * 10, c1_1=[90.0] * 2 + [5.0] * 8),
    ),
    "low-gpu-memory": Marked(
        job(
            gpus=(gpu(memory_used_percent=75.0), gpu(index=1, memory_used_percent=5.0)),
            summary={"gpu_memory_used_percent": 24.9, "gpu_utilization_percent": 79.0},
        ),
        ("c1/1",),
    ),
    "gpu-too-powerful": Marked(small(15.0), ("c1/0",)),
    "cores-per-gpu": Marked(
        job(
            nodes=nodes(cpu_efficiency_percent=10.0),
            requested={"cores": 40},
            summary={"cpu_efficiency_percent": 50.0},
        ),
        ("c2",),
    ),
    "host-memory-per-gpu": Marked(
        job(
            nodes=(node("c1", memory_efficiency_percent=90.0), node("c2")),
            requested={"memory_bytes_per_node": 200 * GIB, "gpus_per_node": 1},
            summary={"memory_efficiency_percent": 50.0},
        ),
        ("c2",),
    ),
    "memory-over-allocated": Marked(
        job(
            nodes=nodes(memory_efficiency_percent=10.0),
            requested={"memory_bytes_per_node": 100 * GIB, "gpus_per_node": 1},
            summary={"memory_efficiency_percent": 50.0},
        ),
        ("c2",),
    ),
    "gpu-fragmentation": Marked(spread(2, 2)),
    "low-cpu-efficiency": Marked(
        cpu_job(nodes=(cpu_node("c1"), cpu_node("c2", cpu_efficiency_percent=10.0))),
        ("c2",),
        (("c2", 5, 10),),
        over(cores_used={"c1": [13.6] * 10, "c2": [16.0] * 5 + [1.0] * 5}),
    ),
    "cpu-node-unused": Marked(
        cpu_nodes(cores_used=0.049), ("c7",), (("c7", 0, 10),), over(cores_used={"c7": [0.0] * 10})
    ),
    "serial-on-many-cores": Marked(
        cpu_job(
            nodes=(
                cpu_node("c1", cores_used=1.0, cpu_efficiency_percent=6.25),
                cpu_node("c2", cores_used=0.0, cpu_efficiency_percent=0.0),
            ),
        ),
        ("c1",),
    ),
    "cpu-fragmentation": Marked(
        cpu_job(nodes=(cpu_node("c1"), cpu_node("c2")), requested={"cores": 64})
    ),
    "memory-near-limit": Marked(
        memory(95, 100),
        ("c1",),
        (("c1", 9, 10),),
        over(memory_bytes={"c1": [50.0 * GIB] * 9 + [95.0 * GIB]}),
    ),
    "time-limit-too-long": Marked(again("COMPLETED", requested={"time_limit_s": 9e4}), (), ALL),
    "failed": Marked(again("FAILED"), (), LAST),
    "timeout": Marked(again("TIMEOUT"), (), LAST),
    "out-of-memory": Marked(
        again(
            "OUT_OF_MEMORY",
            out_of_memory=True,
            nodes=(node("c1", oom_kills=0), node("c2", oom_kills=1)),
        ),
        ("c2",),
        (("c2", 5.0, 10.0),),
    ),
    "test-qos": Marked(job(qos="devel")),
    "idle-tail": Marked(pair(idle_tail_s=3600.0), ("c1/1",), (("c1/1", 5, 10),)),
    "late-first-use": Marked(pair(first_use_s=3600.0), ("c1/1",), (("c1/1", 0, 5),)),
    "gpu-lost": Marked(lost(back_at=None), ("c1/0",), (("c1/0", 2.5, 10),)),
    "loader-stalls": Marked(stalled(), ("c1/0",), (("c1/0", 30 / BIN, 10 - 20 / BIN),)),
    "cpu-starved": Marked(
        starved(90.0, 49.0),
        ("c1",),
        (("c1", 0, 4),),
        over(
            cores_used={"c1": [1.0] * 6 + [0.1] * 4},
            gpu_utilization={"c1/0": [9.0] * 4 + [90.0] * 6},
        ),
    ),
    "straggler-gpu": Marked(
        two(40.0),
        ("c1/1",),
        (("c1/1", 4, 10),),
        # At first neither has work.
        used(c1_0=[0.0] * 2 + [90.0] * 8, c1_1=[0.0] * 2 + [90.0] * 2 + [9.0] * 6),
    ),
    "straggler-node": Marked(
        nodes_of(50.0),
        ("c3",),
        (("c3", 5, 10),),
        used(c1_0=[0.0] + [80.0] * 9, c3_0=[0.0] + [80.0] * 4 + [20.0] * 5),
    ),
    "busy-but-empty": Marked(
        pair(busy_sm_percent=4.0),
        ("c1/1",),
        (("c1/1", 0, 9),),
        used(c1_0=[95.0] * 10, c1_1=[95.0] * 9 + [0.0]),
    ),
    "memory-held-idle": Marked(
        held(3600.0, 2.0),
        ("c1/0",),
        (("c1/0", 2, 6),),
        over(
            gpu_utilization={"c1/0": [90.0] * 2 + [0.0] * 8},
            gpu_memory_bytes={"c1/0": [60.0 * GIB] * 6 + [0.0] * 4},
        ),
    ),
    "throttling": Marked(
        pair(throttled_percent=20.0),
        ("c1/1",),
        (("c1/1", 6, 8),),
        over(gpu_throttled={"c1/0": [0.0] * 10, "c1/1": [0.0] * 6 + [50.0] * 2 + [0.0] * 2}),
    ),
    "gpu-errors": Marked(pair(ecc_uncorrected=1), ("c1/1",)),
}  # fmt: skip


def named(place: Any) -> str:
    if place.host is None:
        return "job"
    return place.host if place.uuid is None else f"{place.host}/{place.uuid[-1]}"


def marked(advice: Advice) -> tuple[tuple[str, ...], list[tuple[str, float, float]]]:
    times = [
        (named(part), (part.start - START) / BIN, (part.end - START) / BIN)
        for part in advice.stretches
    ]
    return tuple(named(place) for place in advice.places), times


def test_each_rule_is_here() -> None:
    assert MARKS.keys() == {rule.id for rule in RULES}


@pytest.mark.parametrize("name", MARKS)
def test_each_rule_marks_the_devices_and_the_time_it_speaks_of(name: str) -> None:
    case = MARKS[name]
    rule = next(rule for rule in RULES if rule.id == name)
    timelines = [case.over] if case.over else []
    (advice,) = advise(case.job, (replace(rule, silences=()),), SITE, timelines)
    devices, times = marked(advice)
    assert devices == case.devices
    assert times == [
        (who, pytest.approx(start), pytest.approx(end)) for who, start, end in case.times
    ]
    # Without samples over time it is the whole time, of the same devices.
    if case.over:
        (advice,) = advise(case.job, (replace(rule, silences=()),), SITE)
        assert marked(advice) == (case.devices, [])


def test_a_node_without_gpus_lags_by_its_cores() -> None:
    (advice,) = [
        item
        for item in advise(
            cpu_nodes(cpu_efficiency_percent=50.0),
            RULES,
            SITE,
            [over(cores_used={"c0": [16.0] * 10, "c7": [16.0] * 6 + [4.0] * 4})],
        )
        if item.id == "straggler-node"
    ]
    assert marked(advice) == (("c7",), [("c7", 6, 10)])


def times_of(values: Values, *, width_s: int = BIN, end: float | None = None) -> list[Any]:
    rule = next(rule for rule in RULES if rule.id == "low-gpu-utilization")
    account = job(gpus=(gpu(utilization_percent=10.0),))
    account = replace(account, attempts=(replace(account.attempts[0], end=end),))
    timeline = replace(used(c1_0=values), width_s=width_s)
    (advice,) = advise(account, (rule,), SITE, [timeline])
    return [(part.start - START, part.end - START) for part in advice.stretches]


def test_times_in_which_nothing_is_known_are_not_marked() -> None:
    assert times_of([5.0, None, 5.0, 90.0, None]) == [(0, BIN), (2 * BIN, 3 * BIN)]


def test_a_break_that_nobody_would_see_is_bridged() -> None:
    """Of two hours, one percent is 72 s."""
    row = [5.0] * 10 + [90.0] + [5.0] * 10
    assert times_of(row, width_s=71) == [(0, 21 * 71)]
    assert times_of(row, width_s=72) == [(0, 720), (11 * 72, 21 * 72)]


def test_nothing_is_marked_after_the_end_of_the_attempt() -> None:
    assert times_of([5.0] * 10, end=START + 7000) == [(0, 7000)]


RULE = {
    "title": "mine", "why": "of a group", "levels": "{yellow: job.elapsed_s > 1}",
    "message": "m", "evidence": "e", "sources": "[us]",
}  # fmt: skip


def advice_of(tmp_path: Path, **more: str) -> Advice:
    text = "".join(f"{key}: {value}\n" for key, value in (RULE | more).items())
    write_files(tmp_path, {"templates/advice/mine.yaml": text})
    rules = load_rules((Collection(name="lab", path=tmp_path, origin="group"),))
    timeline = used(c1_0=[90.0] * 10, c1_1=[90.0] * 5 + [5.0] * 5)
    (advice,) = advise(two(50.0), rules, SITE, [timeline])
    return advice


def test_a_groups_rule_without_marks_is_of_the_whole_job(tmp_path: Path) -> None:
    assert marked(advice_of(tmp_path)) == ((), [])
    assert marked(advice_of(tmp_path, for_each="gpu")) == (("c1/0", "c1/1"), [])
    # Names that mean something in `during` may be a rule's own.
    own = {"variables": "{now: 1, node: 2}", "when": "job.elapsed_s > now + node"}
    assert marked(advice_of(tmp_path, **own)) == ((), [])


def test_a_groups_rule_may_say_which_devices_it_means(tmp_path: Path) -> None:
    wanted = {"devices": "{gpu: gpu.utilization_percent < 60}", "variables": "{low: 50}"}
    found = advice_of(tmp_path, **wanted, during="now.gpu_utilization_percent < low")
    assert marked(found) == (("c1/1",), [("c1/1", 5, 10)])
    assert found.where is None


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"during": "now.cores_used < 1"}, "say which in 'devices'"),
        ({"for_each": "gpu", "during": "now.cores_used < 1", "since": "job.start",
          "until": "job.end"}, "leave out 'since' and 'until'"),
        ({"for_each": "node", "during": "now.gpu_memory_bytes < 1"}, "there is no 'now.gpu_memory"),
        ({"for_each": "gpu", "devices": "{gpu: gpu.index == 1}"}, "is for rules for each job"),
        ({"devices": "{gpu: gpu.index == 1, node: node.index == 1}"}, "either gpu or node"),
        ({"devices": "{host: gpu.index == 1}"}, "host"),
        ({"devices": "{gpu: gpu.index}"}, "must be a truth"),
    ],
)  # fmt: skip
def test_what_cannot_be_marked_is_refused(tmp_path: Path, more: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        advice_of(tmp_path, **more)
