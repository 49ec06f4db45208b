import dataclasses
from itertools import pairwise

import pytest

from hpckit.stats.advice.engine import Advice, advise
from hpckit.stats.summary.figures import GpuUse, JobUse, Stalls
from tests.advice.cases import CASES, one, two
from tests.advice.made import GIB, RULES, SITE, cpu_job, cpu_node, found, gpu, job, node

UNUSED = {"utilization_percent": 0.0, "utilization_peak_percent": 0.0}


def eight(**last_four: object) -> JobUse:
    """Two nodes with four GPUs each; the last four changed."""
    return job(
        nodes=(node("c1", gpus=4), node("c2", gpus=4)),
        gpus=tuple(gpu("c1", at) for at in range(4))
        + tuple(gpu("c2", at, **last_four) for at in range(4)),
    )


def one_with_free_memory(suspect: tuple[str, ...]) -> JobUse:
    summary = {"gpu_memory_used_percent": 10.0, "gpu_utilization_percent": 50.0}
    return job(summary=summary, suspect=suspect)


@pytest.mark.parametrize(
    ("coverage", "severity", "reason"),
    [
        (80.0, "red", None),
        (79.9, "yellow", "only 79 % of the job was sampled"),
        (43.0, "yellow", "only 43 % of the job was sampled"),
        (None, "yellow", "it is unknown how much of the job was sampled"),
        (100.9, "red", None),
        (250.0, "yellow", "it is unknown how much of the job was sampled"),
    ],
)
def test_red_needs_four_fifths_of_the_job(coverage, severity: str, reason) -> None:
    account = two(0.0, 0.0)
    summary = dataclasses.replace(account.summary, coverage_percent=coverage)
    advice = found(dataclasses.replace(account, summary=summary))["gpu-unused"]
    assert (advice.severity, advice.downgraded) == (severity, reason)


def test_red_needs_four_fifths_of_its_own_node() -> None:
    for covered, severity in ((80.0, "red"), (79.9, "yellow"), (None, "red")):
        account = job(gpus=(gpu(**UNUSED),), nodes=(node(covered_percent=covered),))
        assert found(account)["gpu-unused"].severity == severity


def test_yellow_is_yellow_at_any_coverage() -> None:
    advice = found(one(throttled_percent=50.0))["throttling"]
    account = job(gpus=(gpu(throttled_percent=50.0),), summary={"coverage_percent": 1.0})
    assert found(account)["throttling"] == advice


@pytest.mark.parametrize("rule", ["timeout", "out-of-memory", "time-limit-too-long", "gpu-lost"])
def test_what_slurm_or_the_driver_says_is_red_without_samples(rule: str) -> None:
    account = next(case.triggers for case in CASES if case.rule == rule and case.severity == "red")
    summary = dataclasses.replace(account.summary, coverage_percent=None)
    assert found(dataclasses.replace(account, summary=summary))[rule].severity == "red"


def test_nobody_is_blamed_red_for_a_gpu_others_used_too() -> None:
    advice = found(one(**UNUSED, confidence="shared"))["gpu-unused"]
    assert advice.severity == "yellow"
    assert advice.downgraded == "other jobs' processes used this GPU too"


def test_no_advice_rests_on_a_suspect_figure_and_other_advice_stays() -> None:
    account = two(10.0)
    assert {"low-gpu-utilization", "straggler-gpu"} <= set(found(account))
    suspect = ("per_gpu.1.utilization_percent",)
    slow = dataclasses.replace(account, suspect=suspect, state="TIMEOUT")
    assert set(found(slow)) == {"timeout"}
    assert "low-gpu-memory" in found(one_with_free_memory(()))
    for name in ("summary.gpu_memory_used_percent", "summary.gpu_utilization_percent"):
        assert "low-gpu-memory" not in found(one_with_free_memory((name,)))


def test_a_share_over_100_is_suspect_by_itself_and_silences_nothing_else() -> None:
    stalls = Stalls(count=40, period_s=90, share_percent=300.0, cpu_during_percent=97.0)
    account = job(gpus=(gpu(stalls=stalls, throttled_percent=20.0),))
    assert set(found(account)) == {"throttling"}
    crooked = job(nodes=(node(cpu_efficiency_percent=1593.0, gpu_utilization_percent=10.0),))
    assert "cpu-starved" not in found(crooked)
    full = job(nodes=(node(cpu_efficiency_percent=100.4, gpu_utilization_percent=10.0),))
    assert "the cores were 100 % busy" in found(full)["cpu-starved"].message


def test_numbers_that_are_none_are_unknown() -> None:
    for value in (float("nan"), float("inf"), 10**40, "12", -1.0):
        row = gpu(utilization_percent=value, idle_tail_s=value)
        assert found(dataclasses.replace(job(), per_gpu=(row,))) == {}


def test_many_gpus_are_one_item() -> None:
    advice = found(eight(**UNUSED))["gpu-unused"]
    assert advice.message == "4 of 8 GPUs (c2: 0-3): no kernel ran in 2 h 00 min."
    assert advice.where == "4 of 8 GPUs (c2: 0-3)"
    assert [(place.host, place.index, place.gpu) for place in advice.places] == [
        ("c2", at, 4 + at) for at in range(4)
    ]
    assert advice.lost_gpu_hours == pytest.approx(8.0)
    assert "--nodes 1 --gpus 4" in (advice.action or "")


def test_a_group_shows_its_worst() -> None:
    gpus = tuple(
        gpu(index=at, idle_tail_s=tail) for at, tail in enumerate((700.0, 0.0, 900.0, 800.0))
    )
    advice = found(job(gpus=gpus))["idle-tail"]
    assert advice.where == "3 of 4 GPUs (c1: 0, 2-3)"
    assert "in the last 15 min 00 s" in advice.message
    assert advice.evidence.startswith("GPU 2 on c1: ")


def test_red_and_yellow_of_a_rule_are_two_items() -> None:
    gpus = (gpu(), gpu(index=1, idle_tail_s=700.0), gpu(index=2, idle_tail_s=2000.0))
    items = [item for item in advise(job(gpus=gpus), RULES, SITE) if item.id == "idle-tail"]
    assert [(item.severity, item.where) for item in items] == [
        ("red", "GPU 2 on c1"),
        ("yellow", "GPU 1 on c1"),
    ]


def test_hours_lost_are_unknown_if_one_of_them_is() -> None:
    gpus = (gpu(**UNUSED), gpu(index=1, **UNUSED, hours=None))
    assert found(job(gpus=gpus))["gpu-unused"].lost_gpu_hours == pytest.approx(4.0)
    stalls = Stalls(count=40, period_s=90, share_percent=20.0)
    gpus = (gpu(stalls=stalls), gpu(index=1, stalls=stalls, hours=None))
    assert found(job(gpus=gpus))["loader-stalls"].lost_gpu_hours is None


def test_many_nodes_fit_a_line() -> None:
    hosts = [f"node{at}" for at in range(16)]
    account = job(
        nodes=tuple(node(host, gpus=4) for host in hosts),
        gpus=tuple(gpu(host, at, **UNUSED) for host in hosts for at in range(4)),
    )
    message = found(account)["gpu-unused"].message
    assert message == (
        "64 of 64 GPUs (node0: 0-3; node1: 0-3; node2: 0-3; node3: 0-3 and 12 more nodes): "
        "no kernel ran in 2 h 00 min."
    )


def test_slices_are_told_apart_and_gpus_without_index_too() -> None:
    slices = (
        gpu(mig=True, uuid="MIG-aaaaaaaaaaaa", **UNUSED),
        gpu(mig=True, uuid="MIG-bbbbbbbbbbbb", **UNUSED),
        GpuUse(host="c1", **UNUSED),
    )
    message = found(job(gpus=slices))["gpu-unused"].message
    assert "0.0 (MIG-aaaaaaaa), 0.1 (MIG-bbbbbbbb), ?" in message


@pytest.mark.parametrize(
    ("rule", "figures"),
    [
        ("low-gpu-utilization", {"utilization_percent": 10.0}),
        ("low-gpu-memory", {"utilization_percent": 70.0}),
        ("busy-but-empty", {"busy_sm_percent": 4.0}),
    ],
)
def test_a_slice_is_not_sent_to_a_slice(rule: str, figures: dict[str, float]) -> None:
    summary = {"gpu_memory_used_percent": 10.0}
    for mig in (False, True):
        one = job(gpus=(gpu(mig=mig, **figures),), requested={"gpus_per_node": 1}, summary=summary)
        action = found(one)[rule].action or ""
        assert ("a MIG slice" in action, "a smaller slice" in action.lower()) == (not mig, mig)
    mixed = job(gpus=(gpu(mig=True, **figures), gpu(index=1, **figures)), summary=summary)
    assert rule != "low-gpu-memory" or "a MIG slice" in (found(mixed)[rule].action or "")


def test_memory_of_a_gpu_that_nobody_read_may_be_full() -> None:
    summary = {"gpu_memory_used_percent": 10.0, "gpu_utilization_percent": 50.0}
    for peak in (GIB, None):
        gpus = (gpu(), gpu(index=1, memory_peak_bytes=peak))
        assert ("low-gpu-memory" in found(job(gpus=gpus, summary=summary))) == bool(peak)


def test_a_straggler_among_gpus_of_different_types_is_called_so() -> None:
    for name, said in (("NVIDIA A100", False), ("Tesla T4", True), (None, False)):
        gpus = (gpu(), gpu(index=1, name=name, utilization_percent=40.0))
        evidence = found(job(gpus=gpus))["straggler-gpu"].evidence
        assert evidence.endswith("90 %, among GPUs of different types." if said else "is 90 %.")


def test_a_smaller_gpu_must_have_room_for_the_highest_use_of_one() -> None:
    """Of 9, 3 and 1 of 18 GiB, a quarter is in use together; a quarter of a GPU is not enough."""
    peaks = [gpu(index=at, mig=True, utilization_percent=70.0, memory_peak_bytes=size * GIB)
             for at, size in enumerate((9, 3, 1))]  # fmt: skip
    summary = {"gpu_memory_used_percent": 100 * 13 / 54, "gpu_memory_peak_bytes": 9 * GIB}
    action = found(job(gpus=tuple(peaks), summary=summary))["low-gpu-memory"].action or ""
    assert action.endswith("a smaller slice is enough, if it has more than 9.0 GiB of memory.")


def test_a_gpu_never_used_is_not_also_hardly_used() -> None:
    figures = {**UNUSED, "idle_tail_s": 7200.0, "memory_held_idle_s": 7200.0}
    assert set(found(eight(**figures))) == {"gpu-unused"}


def test_what_silences_covers_only_its_own_gpus() -> None:
    gpus = (gpu(**UNUSED), gpu(index=1, utilization_percent=10.0), gpu(index=2))
    advice = found(job(gpus=gpus))
    assert advice["gpu-unused"].where == "GPU 0 on c1"
    assert advice["low-gpu-utilization"].where == "GPU 1 on c1"


def test_a_node_silences_for_its_gpus() -> None:
    account = job(
        nodes=(node("c1"), node("c2", cpu_efficiency_percent=97.0, gpu_utilization_percent=10.0)),
        gpus=(gpu("c1"), gpu("c2", utilization_percent=10.0)),
    )
    assert set(found(account)) >= {"cpu-starved", "straggler-node"}
    assert not {"low-gpu-utilization", "straggler-gpu"} & set(found(account))


def test_all_gpus_silence_for_their_node_and_the_job() -> None:
    summary = {"gpu_memory_used_percent": 1.0}
    account = dataclasses.replace(eight(**UNUSED), summary=job(summary=summary).summary)
    assert "straggler-node" not in found(account)
    half = dataclasses.replace(account.summary, gpu_utilization_percent=45.0)
    assert "low-gpu-memory" in found(dataclasses.replace(account, summary=half))
    gpus = tuple(dataclasses.replace(row, **UNUSED) for row in account.per_gpu)
    assert "low-gpu-memory" not in found(dataclasses.replace(account, summary=half, per_gpu=gpus))


def test_one_node_that_did_nothing_does_not_hide_the_jobs_low_efficiency() -> None:
    nodes = (
        cpu_node("a", cpu_efficiency_percent=50.0),
        cpu_node("b", cpu_efficiency_percent=0.0, cores_used=0.0),
    )
    assert {"cpu-node-unused", "low-cpu-efficiency"} <= set(found(cpu_job(nodes=nodes)))


def test_worst_comes_first() -> None:
    gpus = (
        gpu(**UNUSED),
        gpu(index=1, idle_tail_s=3000.0),
        gpu(index=2, idle_tail_s=700.0, throttled_percent=50.0),
    )
    items = advise(job(gpus=gpus, state="TIMEOUT", qos="devel"), RULES, SITE)
    order = ["red", "yellow", "info"]
    keys = [(order.index(item.severity), -(item.lost_gpu_hours or 0), item.id) for item in items]
    assert keys == sorted(keys)
    assert [item.id for item in items][:2] == ["gpu-unused", "idle-tail"]
    assert len(items) >= 5


def test_advice_is_the_same_whatever_the_order_of_rules() -> None:
    account = eight(utilization_percent=10.0, idle_tail_s=700.0)
    assert advise(account, RULES, SITE) == advise(account, RULES[::-1], SITE)


def test_names_from_a_job_cannot_write_to_the_terminal_or_the_shell() -> None:
    host = "c1\x1b[31m\n$(rm -rf ~)`id`" + "x" * 200
    account = job(
        job_id="1; reboot",
        gpus=(gpu(host, throttled_percent=50.0, throttle_reasons=("\x07",)), gpu("c2", 1)),
        nodes=(node(host), node("c2")),
        qos="devel",
        partition="\u202e",
    )
    for item in advise(account, RULES, SITE):
        text = " ".join([item.message, item.evidence, item.action or "", item.where or ""])
        assert text.isprintable()
        assert len(text) < 1200
    action = found(account)["throttling"].action or ""
    assert "'1; reboot'" in action
    assert "--exclude 'c1\\x1b[31m\\n$(rm -rf ~)" in action


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.rule)
def test_advice_is_plain_values(case) -> None:
    for item in advise(case.triggers, RULES, None):
        assert isinstance(item, Advice)
        fields = dataclasses.asdict(item)
        for name in ("message", "evidence", "action", "where", "downgraded"):
            assert fields[name] is None or isinstance(fields[name], str)


def test_times_are_in_order() -> None:
    account = job(gpus=(gpu(first_use_s=1000.0, idle_tail_s=1000.0),))
    advice = found(account)
    texts = [advice[rule].evidence for rule in ("late-first-use", "idle-tail")]
    clocks = [text.partition(" at ")[2][:16] for text in texts]
    assert all(early < late for early, late in pairwise(clocks))
