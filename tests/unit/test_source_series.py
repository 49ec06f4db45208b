"""Series made into samples: slices, replicas, names of nodes, counters. No server."""

import pytest

from hpckit.sites.prometheus import Prometheus
from hpckit.sources.client import Series
from hpckit.sources.questions import Questions
from hpckit.sources.schemes import CGROUP, DCGM_NAMES, JOBSTATS_NAMES, NAME, Reading
from hpckit.sources.series import (
    Grid,
    full_uuid,
    gpu_samples,
    gpus_in,
    host_of,
    node_samples,
    nodes_in,
)
from hpckit.stats.summary.attempts import Span
from hpckit.stats.summary.summarise import summarise

GRID = Grid(start=1000.0, step_s=10.0, count=6)
SPAN = Span(restart=0, start=1000.0, end=1060.0, hosts=("n1",), nodes=1, gpus=1)


def series(name: str, values: list[float | None], **labels: str) -> Series:
    points = tuple(
        (1000.0 + 10 * (at + 1), value) for at, value in enumerate(values) if value is not None
    )
    return Series(labels={NAME: name, "instance": "n1:9400"} | labels, points=points)


def test_slices_of_a_gpu_are_gpus_of_their_own() -> None:
    both = [
        series(
            "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
            [0.25 * (at + 1)] * 6,
            gpu="0",
            UUID="GPU-a",
            GPU_I_ID=part,
        )
        for at, part in enumerate(("1", "2"))
    ]
    found = gpus_in(DCGM_NAMES, both, GRID, ("n1",), None)
    assert list(found) == [("n1", "GPU-a/1"), ("n1", "GPU-a/2")]
    uses = summarise([gpu_samples("n1", found, DCGM_NAMES, GRID, 0)], [SPAN]).per_gpu
    assert [(row.mig, row.index, row.utilization_percent) for row in uses] == [
        (True, 0, pytest.approx(25)),
        (True, 0, pytest.approx(50)),
    ]


def test_jobstats_slices_have_a_uuid_of_their_own_and_another_reading() -> None:
    one = series(
        "nvidia_gpu_graphics_util_percent", [0.5] * 6, uuid="MIG-b", ordinal="3", GPU_I_ID="7"
    )
    found = gpus_in(JOBSTATS_NAMES, [one], GRID, ("n1",), None)
    [use] = summarise([gpu_samples("n1", found, JOBSTATS_NAMES, GRID, 0)], [SPAN]).per_gpu
    assert (use.uuid, use.index, use.mig) == ("MIG-b", 3, True)
    assert use.utilization_percent == pytest.approx(50)
    assert (use.energy_joules, use.memory_peak_bytes) == (None, None)


def test_two_servers_that_scrape_the_same_count_once() -> None:
    twice = [
        series("nvidia_gpu_duty_cycle", [10, None, 30, None, 50, None], uuid="GPU-a", replica="a"),
        series("nvidia_gpu_duty_cycle", [99, 20, 99, 40, 99, 60], uuid="GPU-a", replica="b"),
    ]
    [part] = gpus_in(JOBSTATS_NAMES, twice, GRID, ("n1",), None).values()
    assert part.column(JOBSTATS_NAMES.readings, "utilization_permille") == [
        100, 200, 300, 400, 500, 600,
    ]  # fmt: skip


def test_what_is_reserved_is_memory_in_use_as_nvml_has_it() -> None:
    rows = [
        series("DCGM_FI_DEV_FB_USED", [100.0, None, 300, 300, 300, 300], UUID="GPU-a"),
        series("DCGM_FI_DEV_FB_RESERVED", [10.0] * 6, UUID="GPU-a"),
        series("DCGM_FI_DEV_FB_FREE", [690.0, 690, 490, 490, 490, 490], UUID="GPU-a"),
    ]
    [part] = gpus_in(DCGM_NAMES, rows, GRID, ("n1",), None).values()
    found = gpu_samples("n1", {("n1", "GPU-a"): part}, DCGM_NAMES, GRID, 0)
    assert found.gpus[0]["memory_bytes"].to_list() == [
        None, 110 << 20, None, *[310 << 20] * 4,
    ]  # fmt: skip
    assert found.header.gpus[0].memory_total_bytes == 800 << 20


def test_a_counter_that_begins_again_goes_on() -> None:
    rows = [
        series("cgroup_cpu_total_seconds", [10.0, 20, 30, 5, None, 25]),
        series("cgroup_cpus", [4.0] * 6),
        series("cgroup_memory_total_bytes", [9.223372036854772e18] * 6),
    ]
    [part] = nodes_in(rows, GRID, ("n1",), None).values()
    found = node_samples(part, CGROUP, GRID, 0)
    assert found.node["cpu_us"].to_list() == [0, 10e6, 20e6, 30e6, 35e6, None, 55e6]
    assert (found.header.cores, found.header.memory_limit_bytes) == (4, None)


def test_values_that_cannot_be_are_unknown() -> None:
    rows = [series("nvidia_gpu_duty_cycle", [-1.0, 1e30, 50, 50, 50, 50], uuid="GPU-a")]
    parts = gpus_in(JOBSTATS_NAMES, rows, GRID, ("n1",), None)
    found = gpu_samples("n1", parts, JOBSTATS_NAMES, GRID, 0)
    assert found.gpus[0]["utilization_permille"].to_list() == [None, None, None, *[500] * 4]
    no_name = [series("nvidia_gpu_duty_cycle", [1.0] * 6)]
    assert gpus_in(JOBSTATS_NAMES, no_name, GRID, ("n1",), None) == {}


def test_nodes_are_called_as_the_job_calls_them() -> None:
    hosts = ("n1", "n2.example.org")
    for labels, wanted in (
        ({"instance": "n1:9445"}, "n1"),
        ({"instance": "n1.example.org:9445"}, "n1"),
        ({"instance": "n2:9445"}, "n2.example.org"),
        ({"instance": "10.0.0.1:9400", "Hostname": "n2"}, "n2.example.org"),
        ({"instance": "n12:9445"}, "n12"),
    ):
        assert host_of(labels, hosts, None) == wanted
    assert host_of({"instance": "10.0.0.1:9400"}, ("n1",), None) == "n1"
    assert host_of({"instance": "x", "node": "n1"}, hosts, "node") == "n1"


def test_uuids_are_written_as_nvml_does() -> None:
    bare = "00000000-0000-4000-8000-000000000000"
    assert full_uuid(bare) == f"GPU-{bare}"
    assert full_uuid(f"GPU-{bare}") == f"GPU-{bare}"
    assert full_uuid(f"MIG-{bare}") == f"MIG-{bare}"
    assert full_uuid("3") == "3"


def test_a_question_quotes_what_the_site_and_the_job_say() -> None:
    settings = Prometheus(url="http://h", match={"cluster": 'a"} or up{x="\\'})
    asked = Questions(settings=settings, job_ids=("12", "10_2"), span=SPAN).counts()
    assert 'cluster="a\\"} or up{x=\\"\\\\",jobid=~"12|10_2"' in asked
    hosts = Span(restart=0, start=0.0, end=60.0, hosts=("n.1", "a+b"))
    asked = Questions(settings=settings, job_ids=("12",), span=hosts).counts()
    assert 'instance=~"(n|a\\\\+b)([.:].*)?"' in asked


def test_no_reading_is_of_a_column_that_samples_do_not_have() -> None:
    from hpckit.stats.samples.packing import GPU_PLACES

    more = {"memory_total_bytes", "temperature_c", "memory_temperature_c", ""}
    for scheme in (JOBSTATS_NAMES, DCGM_NAMES):
        for reading in scheme.readings:
            assert isinstance(reading, Reading)
            assert reading.column in {*GPU_PLACES, *more}
