"""What `resubmit --right-size` asks for: each figure by hand, and what stays as it is."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import hpckit
from hpckit.stats.right_size import right_size
from hpckit.stats.sizing import Asked, Evidence, Sizing
from hpckit.stats.summary.figures import Attempt, GpuUse, JobUse, NodeUse, Requested, Summary
from tests.report.made import make_run, write_samples

GIB = 2**30
HOUR = 3600.0
ASKED = Asked(
    time_min=24 * 60, nodes=1, gpus=4, tasks_per_node=4, cpus_per_task=8, mem_gb=64,
    strategy="ddp", ranks_by_gpu=True, partition="gpu", most_time_min=48 * 60, most_mem_gb=120,
)  # fmt: skip


def gpu(index: int, used: float | None = 80.0, **words: Any) -> GpuUse:
    covered = {"covered_percent": 100.0, "hours": 2.0}
    return GpuUse(host="c1", index=index, utilization_percent=used, **{**covered, **words})


def run(
    took_s: float | None = 2 * HOUR,
    memory: int | None = 10 * GIB,
    cores: float | None = 6.0,
    *,
    gpus: tuple[GpuUse, ...] = tuple(map(gpu, range(4))),
    killed: bool = False,
    mean: float | None = None,
    covered: float = 100.0,
    **words: Any,
) -> Evidence:
    job = JobUse(
        job_id="7", state="COMPLETED", nodes=1, elapsed_s=took_s, per_gpu=gpus,
        requested=Requested(
            nodes=1, cores=32, memory_bytes_per_node=64 * GIB, time_limit_s=24 * 3600
        ),
        summary=Summary(
            memory_peak_bytes=memory, cpu_efficiency_percent=mean, coverage_percent=covered
        ),
        origins={"summary.memory_peak_bytes": "samples"},
    )  # fmt: skip
    return Evidence(job=replace(job, **words), out_of_memory=killed, cores_peak=cores)


def sized(*runs: Evidence, asked: Asked = ASKED) -> dict[str, Sizing]:
    return {row.field: row for row in right_size(asked, runs)}


def values(*runs: Evidence, asked: Asked = ASKED) -> dict[str, int | None]:
    return {name: row.value for name, row in sized(*runs, asked=asked).items()}


def test_a_job_of_under_a_second_took_no_time() -> None:
    assert "the last run took at most 0:00:00" in sized(run(took_s=0.0))["time_min"].line


@pytest.mark.parametrize(("least", "wanted"), [(75.0, 12), (0.0, None)])
def test_a_node_that_no_sampler_saw_says_nothing_of_a_short_job(
    least: float, wanted: int | None
) -> None:
    """All but a minute of three nodes' time is read in both: but not of each node."""
    nodes = tuple(NodeUse(host=f"c{at}", covered_percent=75.0) for at in range(3))
    known = (*nodes, NodeUse(host="c9", covered_percent=least))
    short = run(180.0, covered=75.0, nodes=4, per_node=known)
    assert values(short)["mem_gb"] == wanted


def test_a_time_that_is_not_known_is_said_to_be_that() -> None:
    """Not that no run has COMPLETED."""
    row = sized(run(took_s=None))["time_min"]
    assert (row.value, row.reason) == (None, "how long the runs that COMPLETED took is not known")


def test_each_resource_becomes_what_the_runs_used_at_most_and_a_margin() -> None:
    took = (2 * HOUR + 38 * 60 + 12, 2 * HOUR, HOUR)
    found = sized(*(run(seconds, (at + 8) * GIB, 5.0 + at) for at, seconds in enumerate(took)))
    assert [row.line for row in found.values()] == [
        "time: 1-00:00:00 -> 03:10:00, the last 3 runs took at most 2:38:12, + 20 %",
        "memory per node: 64 GiB -> 12 GiB, the last 3 runs used at most 10 GiB on a node, + 20 %",
        "cores per rank: 8 -> 3, the last 3 runs used at most 7.0 cores of a node at once, "
        "for 4 ranks, + 20 %",
        "GPUs per node: 4 stays, all were in use",
    ]
    assert values(*(run(seconds) for seconds in took))["time_min"] == 190


def test_without_a_finished_run_nothing_changes_and_says_so() -> None:
    found = sized()
    assert {row.value for row in found.values()} == {None}
    assert found["mem_gb"].line.endswith("64 GiB stays, no finished run of this kind is known")


@pytest.mark.parametrize("state", ["FAILED", "CANCELLED", "NODE_FAIL", "PREEMPTED"])
def test_a_run_that_did_not_end_well_lowers_nothing(state: str) -> None:
    assert set(values(run(60.0, GIB, 0.1, state=state)).values()) == {None}


def test_a_run_that_did_not_end_well_raises_memory_that_it_nearly_filled() -> None:
    found = sized(run(memory=60 * GIB, state="FAILED"))["mem_gb"]
    assert (found.value, found.reason) == (72, "60 GiB were in use, + 20 %")
    assert values(run(memory=10 * GIB), run(memory=60 * GIB, state="FAILED"))["mem_gb"] == 72


def test_a_run_killed_for_its_memory_raises_it_by_half() -> None:
    killed = run(memory=63 * GIB, killed=True, state="OUT_OF_MEMORY")
    found = sized(killed, run(memory=10 * GIB))["mem_gb"]
    assert found.line == "memory per node: 64 GiB -> 96 GiB, job 7 ran out of its 64 GiB, x 1.5"
    found = sized(killed, asked=replace(ASKED, most_mem_gb=80))["mem_gb"]
    assert (found.value, found.after) == (80, "80 GiB")
    assert found.reason.endswith("x 1.5; partition gpu gives at most 80 GiB")
    full = sized(killed, asked=replace(ASKED, most_mem_gb=64))["mem_gb"]
    assert full.value is None
    # One that completed with more than that tells what is enough.
    assert values(killed, run(memory=70 * GIB))["mem_gb"] == 84


def test_a_process_killed_in_a_run_that_completed_is_no_reason_to_go_down() -> None:
    assert values(run(memory=GIB, killed=True))["mem_gb"] == 96


def test_a_run_that_met_its_time_limit_raises_it_by_half() -> None:
    late = run(24 * HOUR, state="TIMEOUT")
    found = sized(late, run(HOUR))["time_min"]
    assert found.line == (
        "time: 1-00:00:00 -> 1-12:00:00, job 7 ended at its limit of 24:00:00, x 1.5"
    )
    found = sized(late, asked=replace(ASKED, most_time_min=24 * 60))["time_min"]
    assert found.value is None
    assert found.reason.endswith("x 1.5; partition gpu gives at most 1-00:00:00")
    assert values(late, run(25 * HOUR))["time_min"] == 30 * 60


def test_more_time_would_not_help_a_job_that_hung() -> None:
    idle = tuple(gpu(at, idle_tail_s=5 * HOUR + at) for at in range(4))
    found = sized(run(24 * HOUR, state="TIMEOUT", gpus=idle))["time_min"]
    assert found.value is None
    assert "its GPUs had been idle for 5:00:00: look why it hung" in found.reason


def test_time_has_a_floor_which_raises_nothing() -> None:
    assert values(run(20.0))["time_min"] == 5
    assert values(run(20.0), asked=replace(ASKED, time_min=3))["time_min"] is None
    assert values(run(170.0), asked=replace(ASKED, time_min=3))["time_min"] == 4


def test_a_run_that_was_restarted_may_need_its_whole_limit_again() -> None:
    attempts = (Attempt(restart=0), Attempt(restart=1))
    assert values(run(30 * HOUR, attempts=attempts))["time_min"] is None
    assert values(run(2 * HOUR, attempts=attempts))["time_min"] == 144
    resized = (Attempt(restart=0, state="RESIZING"), Attempt(restart=1))
    assert values(run(23.5 * HOUR, attempts=resized)) == values(run(23.5 * HOUR))


def test_figures_that_may_be_too_low_lower_nothing() -> None:
    low = ("summary.memory_peak_bytes",)
    assert values(run(memory=GIB, at_least=low))["mem_gb"] is None
    assert values(run(memory=GIB, covered=50.0))["mem_gb"] is None
    assert values(run(memory=60 * GIB, at_least=low))["mem_gb"] == 72
    assert values(run(cores=0.1, covered=50.0))["cpus_per_task"] is None


def test_cores_of_accounting_are_means_and_get_a_larger_margin() -> None:
    found = sized(run(cores=None, mean=25.0))["cpus_per_task"]  # 8 of 32 cores, 4 ranks
    assert found.value == 3
    assert found.reason == ("the last run used 8.0 cores of a node on average, for 4 ranks, + 50 %")
    assert values(run(cores=None))["cpus_per_task"] is None
    assert values(run(cores=0.0))["cpus_per_task"] == 1
    assert values(run(cores=32.0))["cpus_per_task"] is None


def test_gpus_go_down_to_those_in_which_a_kernel_ran() -> None:
    idle = (gpu(0), gpu(1), gpu(2), gpu(3, 0.0))
    found = sized(run(gpus=idle, cores=9.0))
    assert found["gpus"].line.startswith(
        "GPUs per node: 4 -> 3, 1 of each node ran no kernel in the last run; 4 -> 3 ranks: a "
        "script that sets the batch of each rank has a smaller global batch"
    )
    assert found["cpus_per_task"].value == 4  # 9 cores for the three ranks that are left
    one = replace(ASKED, tasks_per_node=1, strategy="dp", ranks_by_gpu=False)
    assert "the batch of each GPU" in sized(run(gpus=idle), asked=one)["gpus"].reason
    serial = sized(run(gpus=idle), asked=replace(one, strategy="serial"))["gpus"]
    assert serial.line == "GPUs per node: 4 -> 3, 1 of each node ran no kernel in the last run"


@pytest.mark.parametrize(
    ("last", "why"),
    [
        (gpu(3, None), "unknown"),
        (gpu(3, 0.0, covered_percent=40.0), "unknown"),
        (gpu(3, 0.0, confidence="shared"), "unknown"),
        (gpu(3, 0.0, lost=True), "unknown"),
        (gpu(3, 0.0, utilization_peak_percent=3.0), "all were in use"),
    ],
)
def test_gpus_stay_unless_one_was_measured_idle_all_the_time(last: GpuUse, why: str) -> None:
    found = sized(run(gpus=(gpu(0), gpu(1), gpu(2), last)))["gpus"]
    assert found.value is None
    assert why in found.reason


def test_gpus_stay_where_another_run_used_them_or_none_was_used() -> None:
    idle = run(gpus=(gpu(0), gpu(1), gpu(2), gpu(3, 0.0)))
    assert values(idle, run())["gpus"] is None
    found = sized(run(gpus=tuple(gpu(at, 0.0) for at in range(4))))["gpus"]
    assert (found.value, found.reason[:16]) == (None, "none was in use:")
    assert values(run(gpus=(gpu(0), gpu(1, 0.0))))["gpus"] is None  # of two others nothing is known


def test_what_is_asked_for_on_the_same_line_and_what_others_decide_stays() -> None:
    asked = replace(
        ASKED, given=frozenset({"time_min"}), tied=(("mem_gb", "--mem-per-cpu decides it"),)
    )
    found = sized(run(), asked=asked)
    assert found["time_min"].line == "time: 1-00:00:00 stays, as given here"
    assert found["mem_gb"].line == "memory per node: 64 GiB stays, --mem-per-cpu decides it"


def test_memory_that_slurm_gives_by_cores_is_kept_when_there_are_fewer() -> None:
    asked = replace(ASKED, mem_gb=None)
    found = sized(run(memory=None), asked=asked)["mem_gb"]
    assert (found.before, found.value) == ("64 GiB (Slurm's default)", 64)
    assert sized(run(memory=10 * GIB), asked=asked)["mem_gb"].value == 12
    # Where nobody knows how much that was, the cores stay, too.
    unknown = run(memory=None, requested=Requested(nodes=1, cores=32, time_limit_s=86400))
    found = sized(unknown, asked=asked)
    assert found["cpus_per_task"].value is None
    assert "memory goes with it" in found["cpus_per_task"].reason


def local_run(root: Path, job_id: str, seconds: float, **more: Any) -> None:
    """Write a run that is over, with samples of a program that needed little."""
    request = {"target": "serial", "program": "/work/train.py", "args": ["--lr", "1"]}
    request |= {"gpus": 0, "time_min": 600, "mem_gb": 64, "cpus_per_task": 8, "executor": "local"}
    shape = {"gpus_per_node": 0, "total_gpus": 0, "tasks_per_node": 1, "ranks": 1}
    plan = {**shape, "cpus_per_task": 8, "strategy": "serial", "time_min": 600, "gpu_type": None}
    words: dict[str, Any] = {
        "job_id": job_id,
        "request": request,
        "plan": plan | {"environment": "none"},
        "program": {"kind": "python", "word": str(root / "train.py")},
        "command": ["python", str(root / "train.py"), "--lr", "1"],
    }
    request["program"] = str(root / "train.py")
    folder = make_run(root, seconds=seconds, **words | more)
    write_samples(folder / "samples", [], ids={"job_id": job_id}, cores_used=2.0, period_s=seconds)


@pytest.mark.long
def test_runs_of_the_kind_are_found_and_others_are_not(
    tmp_path: Path, cli: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HPCKIT_RUNS", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "train.py").write_text("")
    local_run(tmp_path, "local-aaaaaa", 3600)
    local_run(tmp_path, "local-bbbbbb", 7200)
    other = ["python", str(tmp_path / "train.py"), "--lr", "2"]
    local_run(tmp_path, "local-cccccc", 36000, command=other)
    found = cli("resubmit", "local-aaaaaa", "--right-size", "--dry-run", "--json")
    assert "time: 10:00:00 -> 02:24:00, the last 2 runs took at most 2:00:00, + 20 %" in found.err
    said = json.loads(found.out)
    assert set(said["sized_by"]) == {"local-aaaaaa", "local-bbbbbb"}
    assert {row["field"]: row["value"] for row in said["right_size"]}["time_min"] == 144
    again = hpckit.find("local-aaaaaa").preview(right_size=True, mem_gb=40)
    assert again.submission.spec.time_min == 144
    assert again.submission.spec.mem_gb == 40
    assert not any(line.startswith("time min") for line in again.differences)
    # With other arguments it is another kind of run.
    other_kind = hpckit.find("local-aaaaaa").preview(right_size=True, args=["--lr", "2"])
    assert other_kind.sized_by == ("local-cccccc",)
    # Nobody knows what it needs on another shape.
    nothing = cli("resubmit", "local-aaaaaa", "--right-size", "--dry-run", "--gpus", "1")
    assert "note: nothing is right-sized: no finished run of the same program" in nothing.err
    assert "local-aaaaaa:" not in nothing.err


def test_a_sites_limits_and_options_that_tie_resources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HPCKIT_RUNS", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("PATH", "/nowhere")  # no Slurm knows better
    (tmp_path / "train.py").write_text("")
    lab = "description: a lab\npartitions: {p: {max_time: 700, mem_gb_per_node: 100}}\n"
    (tmp_path / "templates" / "sites").mkdir(parents=True)
    (tmp_path / "templates" / "sites" / "lab.yaml").write_text(lab)
    local_run(tmp_path, "local-aaaaaa", 36000, state="TIMEOUT")
    run = hpckit.find("local-aaaaaa")
    asked: Any = {"executor": "slurm", "site": "lab", "partition": "p"}
    asked["sbatch"] = ["mem-per-cpu=2G"]
    again = run.preview(right_size=True, unset=["mem-gb"], **asked)
    time, memory, cores = (row.line for row in again.right_size)
    assert time == (
        "time: 10:00:00 -> 11:40:00, job local-aaaaaa ended at its limit of 10:00:00, x 1.5; "
        "partition p gives at most 11:40:00"
    )
    assert memory.endswith("stays, --mem-per-cpu decides it")
    assert cores == "cores per rank: 8 stays, --mem-per-cpu decides it"
    assert "#SBATCH --time=11:40:00" in again.script
