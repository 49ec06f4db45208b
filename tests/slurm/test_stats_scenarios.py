"""Twelve scripted timelines of H200s on two nodes of a real Slurm, and what `hpckit stats` says.

The stub library plays them through the real nvidia-ml-py to the sampler of a job that the command
line submitted. Each figure is compared with the script's exact value over the time from the job's
first sample to its last: means, peaks, idle share, memory, power and energy within 1 %. All jobs
are submitted at once; each has two GPUs on each of two nodes, so two of them run at a time.

What sampling blurs is kept below 1 % by its period: a sample in which a kernel starts or ends
counts as busy, so each edge of a timeline moves up to one period from idle to busy. Where there
are edges, the period is 50 ms or, with several, 25 ms; idle phases take 6 s or more.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.slurm.conftest import Record, desk_in
from tests.slurm.playing import (
    NODES,
    SCALE,
    Nodes,
    Show,
    Theatre,
    assert_coverage,
    assert_whole,
    gpu,
    gpu_uuid,
)
from tests.slurmbox.fixture import Slurm
from tests.stats.exact import assert_gpu, assert_moments
from tests.stats.stub.script import Gpu, Steps, build_library, busy

# All jobs run while the first test waits; a loaded machine may take three times as long.
pytestmark = [pytest.mark.slurm, pytest.mark.timeout(900)]

EVENT = 6.0  # seconds from the job script's first line to what befalls a GPU
# Slurm tells a job's GPUs in another way on nodes after the first.
METHODS = {"c1": "slurm_job_gpus", "c2": "slurm_step_gpus"}
MIG_TOTAL = 18 * 2**30


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """What is played, and how the job is submitted."""

    nodes: Nodes
    options: dict[str, Any] = field(default_factory=dict)


def everywhere(make: Callable[[str, int], Gpu]) -> Nodes:
    """Give each node four GPUs; which two are the job's is Slurm's choice."""
    return {host: [make(host, index) for index in range(4)] for host in NODES}


def one_node(make: Callable[[str, int], Gpu]) -> Nodes:
    """Give all four GPUs to the first node's script."""
    return {"c1": [make("c1", index) for index in range(4)]}


def odd_one(host: str, index: int) -> bool:
    """Of each pair of GPUs on the first node, the second: whichever pair the job gets has one."""
    return host == "c1" and index % 2 == 1


def wave(host: str, index: int) -> Steps:
    """Six seconds on, six off; each GPU begins elsewhere."""
    shift = 1.0 + 1.5 * index + (3 if host == "c2" else 0)
    return [(0, 0), *((shift + 6 * at, 100 * (1 - at % 2)) for at in range(8))]


def sliced(host: str) -> list[Gpu]:
    """Two GPUs of two MIG slices each."""
    found = []
    for board in (0, 1):
        whole = Gpu(index=board, curves={"power": [(0, 300_000)]}, uuid=gpu_uuid(host, board))
        found.append(whole)
        for instance, level in ((1, 80.0 + board), (2, 10.0 + board)):
            part = busy(board, [(0, level)])
            part.uuid, part.slice_of = f"MIG-{host}-{board}-{instance}", whole.uuid
            part.words = {"instance": instance, "memory_total": MIG_TOTAL, "name": "H200 MIG"}
            part.curves = {**part.curves, "memory": [(0, instance * 2**30)]}
            found.append(part)
    return found


def lacking(host: str, index: int) -> Gpu:
    """A board without history, counters and GPM; beside it one without utilization, or memory."""
    if index % 2 == 0:
        return gpu(host, index, [(0, 50)], na="energy samples throttle fields ecc clocks", gpm=0)
    missing = "utilization samples" if host == "c1" else "memory"
    return gpu(host, index, [(0, 50)], na=missing)


PAIR = ("--nodes", "1", "--gpus", "2", "--exclude", "c2", "--sbatch", "hold")
NEIGHBOURS = one_node(lambda host, index: gpu(host, index, [(0, 20.0 + 20 * index)]))
SCENARIOS = {
    # These two run at the same time on the same node: they are released at once.
    "neighbour-a": Scenario(nodes=NEIGHBOURS, options={"shape": PAIR}),
    "neighbour-b": Scenario(nodes=NEIGHBOURS, options={"shape": PAIR}),
    "square-wave": Scenario(
        nodes=everywhere(lambda host, index: gpu(host, index, wave(host, index))),
        options={"interval_s": 0.025, "work": ("26",)},
    ),
    "idle-tail": Scenario(
        nodes=everywhere(lambda host, index: gpu(host, index, [(0, 95), (9, 0)])),
        options={"interval_s": 0.05, "work": ("16",)},
    ),
    "late-start": Scenario(
        nodes=everywhere(lambda host, index: gpu(host, index, [(0, 0), (9, 100)])),
        options={"interval_s": 0.05, "work": ("16",)},
    ),
    "constant": Scenario(
        nodes=everywhere(
            lambda host, index: gpu(host, index, [(0, 40.0 + 15 * index + 5 * (host == "c2"))])
        )
    ),
    "straggler": Scenario(
        nodes=everywhere(
            lambda host, index: gpu(host, index, [(0, 31 if odd_one(host, index) else 100)])
        )
    ),
    "lost-gpu": Scenario(
        nodes=everywhere(
            lambda host, index: gpu(
                host, index, [(0, 80)], **({"lost": EVENT} if odd_one(host, index) else {})
            )
        )
    ),
    "na-fields": Scenario(nodes=everywhere(lacking)),
    "mig": Scenario(nodes={host: sliced(host) for host in NODES}),
    "hang": Scenario(
        nodes=everywhere(
            lambda host, index: gpu(
                host, index, [(0, 70)], **({"hang": EVENT} if odd_one(host, index) else {})
            )
        ),
        options={"work": ("12",)},
    ),
    "no-nvml": Scenario(
        nodes=everywhere(gpu),
        options={"env": {"LD_LIBRARY_PATH": "/nowhere"}, "work": ("9", "2")},
    ),
    "counter-reset": Scenario(
        nodes=everywhere(
            lambda host, index: gpu(
                host, index, [(0, 90)], **({"energy_reset": EVENT} if odd_one(host, index) else {})
            )
        ),
        options={"interval_s": 0.05},
    ),
}


@pytest.fixture(scope="module")
def shows(slurm: Slurm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Show]]:
    folder = tmp_path_factory.mktemp("theatre")
    with desk_in(folder, slurm) as desk:
        theatre = Theatre(desk=desk, library=build_library(folder))
        found: dict[str, Show] = {}
        for name, scenario in SCENARIOS.items():
            found[name] = theatre.submit(name, scenario.nodes, **scenario.options)
            if name == "neighbour-b":
                both = (found[pair].job_id for pair in ("neighbour-a", name))
                slurm.run("scontrol", "release", ",".join(both))
        yield found


Completed = Callable[[str], Show]


@pytest.fixture
def completed(shows: dict[str, Show]) -> Completed:
    """Wait for a scenario's job."""

    def wait(name: str) -> Show:
        show = shows[name]
        assert show.over() == "COMPLETED", name
        assert show.document["state"] == "COMPLETED"
        return show

    return wait


def of_gpu(show: Show, uuid: str) -> Record:
    return next(row for row in show.document["per_gpu"] if row["uuid"] == uuid)


def assert_all(show: Show) -> None:
    """Every GPU, node and the whole agree with the script."""
    assert set(show.played) == set(show.nodes)
    for host, played in show.played.items():
        assert len(played.header.gpus) == 2
        assert played.header.gpu_method == METHODS[host]
        for row in show.rows(host):
            assert_gpu(row)
            assert not row.figures["lost"]
    assert_whole(show)


def test_constant(completed: Completed) -> None:
    show = completed("constant")
    assert_all(show)
    assert show.codes() == {("cgroup", "c1", None), ("cgroup", "c2", None)}
    assert {row["name"] for row in show.document["per_gpu"]} == {"NVIDIA H200"}
    assert {row["memory_total_bytes"] for row in show.document["per_gpu"]} == {150_754_820_096}


def test_square_wave(completed: Completed) -> None:
    show = completed("square-wave")
    assert_all(show)


def test_idle_tail(completed: Completed) -> None:
    show = completed("idle-tail")
    assert_all(show)
    began = show.document["attempts"][-1]["start"]
    for host in show.played:
        for row in show.rows(host):
            assert_moments(row, began, first=0, last=9 * SCALE)
            assert row.figures["idle_tail_s"] > 5


def test_late_start(completed: Completed) -> None:
    show = completed("late-start")
    assert_all(show)
    began = show.document["attempts"][-1]["start"]
    for host in show.played:
        for row in show.rows(host):
            assert_moments(row, began, first=9 * SCALE, last=float("inf"))
            assert row.figures["idle_tail_s"] == 0


def test_straggler(completed: Completed) -> None:
    show = completed("straggler")
    assert_all(show)
    slowest = min(show.document["per_gpu"], key=lambda row: row["utilization_percent"])
    assert (slowest["host"], slowest["index"] % 2) == ("c1", 1)
    summary = show.document["summary"]
    assert summary["gpu_imbalance_percent"] == pytest.approx(69, rel=0.01)
    assert summary["node_imbalance_percent"] == pytest.approx(34.5, rel=0.01)
    used = {row["host"]: row["gpu_utilization_percent"] for row in show.document["per_node"]}
    assert used == {"c1": pytest.approx(65.5, rel=0.01), "c2": pytest.approx(100, rel=0.01)}


def assert_gone(show: Show, code: str) -> None:
    """A GPU that is lost has figures until then, and none that claims more; others have all."""
    (gone,) = [row for row in show.document["per_gpu"] if row["lost"]]
    assert (gone["host"], gone["index"] % 2) == ("c1", 1)
    assert (code, "c1", gone["uuid"]) in show.codes()
    for host in NODES:
        for row in show.rows(host):
            assert_gpu(row)
    full = [row for row in show.document["per_gpu"] if not row["lost"]]
    row = next(row for row in show.rows("c1") if row.figures["lost"])
    end = row.last("utilization_permille") / SCALE
    following = next(time for time in row.times if time / SCALE > end)
    assert end <= EVENT <= following / SCALE + 0.2
    assert row.times[-1] / SCALE - end > 2
    # It was busy when last seen: what came after is unknown, and no idle time.
    assert gone["idle_tail_s"] == 0
    assert gone["idle_percent"] == 0
    assert gone["longest_idle_s"] == 0
    seconds = [row["energy_joules"] / row["power_watts_mean"] for row in (gone, *full)]
    assert seconds[0] == pytest.approx(end - row.times[0] / SCALE, rel=0.03)
    assert min(seconds[1:]) > seconds[0] + 2
    assert_whole(show)


def test_lost_gpu(completed: Completed) -> None:
    assert_gone(completed("lost-gpu"), "gpu_lost")


def test_hanging_driver(completed: Completed) -> None:
    show = completed("hang")
    assert_gone(show, "gpu_hang")
    c1 = next(row for row in show.document["per_node"] if row["host"] == "c1")
    assert c1["cpu_s"] is not None
    assert c1["memory_peak_bytes"] > 0
    # Two seconds are waited, once: the samples go on to the job's end.
    assert c1["covered_percent"] == pytest.approx(
        next(r for r in show.document["per_node"] if r["host"] == "c2")["covered_percent"], abs=10
    )


def test_na_fields_are_null(completed: Completed) -> None:
    show = completed("na-fields")
    for row in show.document["per_gpu"]:
        if row["index"] % 2 == 0:
            unknown = ("energy_joules", "sm_active_percent", "tensor_percent", "dram_percent")
            more = ("throttled_percent", "ecc_uncorrected", "busy_sm_percent")
            assert [row[name] for name in (*unknown, *more)] == [None] * 7
            assert row["power_watts_mean"] == pytest.approx(385, rel=0.01)
            assert row["utilization_percent"] == pytest.approx(50, rel=0.01)
            assert row["utilization_source"] == "spot"
            assert row["idle_percent"] == 0
        elif row["host"] == "c1":
            names = ("utilization_percent", "utilization_peak_percent", "idle_percent")
            more = ("idle_hours", "first_use_s", "idle_tail_s", "memory_held_idle_s", "stalls")
            assert [row[name] for name in (*names, *more)] == [None] * 8
            assert row["power_watts_mean"] == pytest.approx(385, rel=0.01)
            assert row["sm_active_percent"] == pytest.approx(30, rel=0.01)
            assert row["energy_joules"] > 0
        else:
            assert (row["memory_peak_bytes"], row["memory_used_percent"]) == (None, None)
            assert (row["memory_total_bytes"], row["memory_held_idle_s"]) == (None, None)
            assert row["utilization_percent"] == pytest.approx(50, rel=0.01)
    # Means are over those GPUs of which they are known.
    summary = show.document["summary"]
    assert summary["gpu_utilization_percent"] == pytest.approx(50, rel=0.01)
    # What some of them were idle is not known, so neither is the sum.
    assert summary["gpu_hours_idle"] is None
    assert summary["sm_active_percent"] == pytest.approx(30, rel=0.01)
    # A total of which parts are unknown is unknown.
    assert summary["energy_joules"] is None
    assert {"not_supported", "spot"} <= {code for code, _, _ in show.codes()}
    assert_coverage(show)


def test_mig_slices(completed: Completed) -> None:
    show = completed("mig")
    for host in NODES:
        rows = show.rows(host)
        assert len(rows) == 2
        assert len({row.figures["uuid"] for row in rows}) == 2
        for row in rows:
            assert_gpu(row)
            assert row.figures["mig"]
            assert row.figures["utilization_source"] == "gpm"
            assert row.figures["memory_total_bytes"] == MIG_TOTAL
            # The board's, not this slice's.
            energy = (row.figures["energy_joules"], row.figures["power_watts_mean"])
            assert energy == (None, None)
    used = sorted(row["utilization_percent"] for row in show.document["per_gpu"])
    assert used[0] < 12 < 79 < used[-1]
    assert show.document["summary"]["energy_joules"] is None
    assert show.document["summary"]["gpu_utilization_percent"] == pytest.approx(
        sum(used) / 4, rel=0.01
    )


def test_no_nvml(completed: Completed) -> None:
    show = completed("no-nvml")
    document, summary = show.document, show.document["summary"]
    assert document["per_gpu"] == []
    assert summary["gpu_coverage_percent"] == 0
    others = ("gpu_hours", "gpu_coverage_percent")
    names = [name for name in summary if name.startswith("gpu_") and name not in others]
    names += ["sm_active_percent", "tensor_percent", "power_watts_mean", "energy_joules"]
    assert {name: summary[name] for name in names} == dict.fromkeys(names)
    assert summary["gpu_hours"] == pytest.approx(4 * document["elapsed_s"] / 3600, abs=0.001)
    assert {("no_nvml", host, None) for host in NODES} <= show.codes()
    for row in document["per_node"]:
        # Two ranks take 2 s each, all but the start of Python after the first sample; the rest is
        # the supervisor's.
        assert 3.5 < row["cpu_s"] < 5.5
        assert row["cpu_efficiency_percent"] > 0
        assert row["memory_peak_bytes"] > 10 * 2**20
        assert row["gpu_utilization_percent"] is None
    assert summary["cpu_s"] == pytest.approx(sum(row["cpu_s"] for row in document["per_node"]))
    assert_coverage(show)


def test_counter_reset(completed: Completed) -> None:
    show = completed("counter-reset")
    resets = [(host, uuid) for code, host, uuid in show.codes() if code == "counter_reset"]
    ((host, uuid),) = resets
    assert (host, of_gpu(show, uuid)["index"] % 2) == ("c1", 1)
    # What was used between the last sample before the reset and the reset is not known: at this
    # period 0.05 s of some 8. Of what came before and after, neither half is missing.
    assert_all(show)


def test_two_jobs_on_one_node(completed: Completed) -> None:
    first, second = completed("neighbour-a"), completed("neighbour-b")
    documents = [show.document for show in (first, second)]
    begins, ends = ([document[name] for document in documents] for name in ("start", "end"))
    assert max(begins) < min(ends), "they did not run at the same time"
    for show in (first, second):
        assert_all(show)
        assert show.document["gpus"] == 2
    seen = [row["uuid"] for show in (first, second) for row in show.document["per_gpu"]]
    assert sorted(seen) == [gpu_uuid("c1", index) for index in range(4)]
