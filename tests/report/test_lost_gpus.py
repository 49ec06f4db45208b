"""GPUs that could not be read for a part of the job: never idle, never whole, always found."""

import json
from pathlib import Path
from typing import Any

import pytest

from hpckit.group_report.allocations import Allocation
from hpckit.group_report.measured import Figures
from hpckit.report.job_page import Page, page
from hpckit.report.terminal import Style
from hpckit.run_folders.runs import read_run
from hpckit.slurm.states import JobState
from hpckit.stats.advice.engine import Advice, advise
from hpckit.stats.merge import merge, too_little_read
from hpckit.stats.samples.collecting import read_columns
from hpckit.stats.samples.records import Note, samples_files
from hpckit.stats.summary.attempts import Span
from hpckit.stats.summary.figures import JobUse
from hpckit.stats.summary.summarise import Account, summarise
from tests.advice.made import RULES
from tests.report.made import BEGAN_US, START, make_run, write_samples

BUSY, IDLE = [95.0] * 361, [0.0] * 361
ERRORS = {15: "GPU is lost", 16: "GPU requires reset", 999: "Unknown Error", 9: "Driver Not Loaded"}


def lost(after: int, value: float = 0.0, back: int = 361) -> list[float | None]:
    """An hour of which samples from one to another could not be taken."""
    return [value if at < after or at >= back else None for at in range(361)]


def note(sample: int, error: int, gpu: int = 0, code: str = "gpu_lost", host: str = "n1") -> Note:
    said = f"nvmlDeviceGetMemoryInfo: {ERRORS.get(error)} (NVML error {error})"
    return Note(
        mono_us=BEGAN_US + sample * 10**7 + 500,
        code=code,
        text=f"The GPU is no longer read: {said}",
        gpu=f"GPU-{host}-{gpu}",
        error=error,
    )


def account(folder: Path, *, gpus: int = 2, seconds: float = 3600) -> Account:
    files = [read_columns(file.path, file.restart) for file in samples_files(folder)]
    span = Span(restart=0, start=START, end=START + seconds, gpus=gpus)
    return summarise([file for file in files if file], [span])


def judged(found: Account) -> tuple[JobUse, tuple[Advice, ...]]:
    elapsed = found.attempts[0].elapsed_s
    bare = JobUse(job_id="1", state="COMPLETED", elapsed_s=elapsed, gpus=len(found.per_gpu))
    job = merge(bare, found, ())
    return job, advise(job, RULES)


@pytest.mark.parametrize("error", ERRORS)
def test_a_gpu_that_cannot_be_read_any_more_is_lost_and_not_unused(
    tmp_path: Path, error: int
) -> None:
    write_samples(tmp_path, [lost(2), BUSY], notes=[note(2, error)])
    found = account(tmp_path)
    gone, other = found.per_gpu
    # Its sample at 0 s speaks for the second before, that at 10 s for ten.
    assert gone.covered_percent == pytest.approx(11 / 36, abs=0.03)
    assert other.covered_percent == pytest.approx(100)
    assert (gone.lost, gone.lost_at, gone.back_at) == (True, START + 10, None)
    assert gone.lost_s == pytest.approx(3590)
    for name in ("energy_joules", "idle_hours", "first_use_s", "idle_tail_s", "memory_held_idle_s"):
        assert getattr(gone, name) is None, name
    assert found.summary.energy_joules is None
    assert found.summary.gpu_hours_idle is None
    assert found.summary.gpu_imbalance_percent is None
    assert found.summary.gpu_coverage_percent == pytest.approx(50.1, abs=0.2)
    assert found.summary.gpu_utilization_percent == pytest.approx(95, abs=0.5)
    job, advice = judged(found)
    about = {item.id for item in advice if any(place.index == 0 for place in item.places)}
    assert about == {"gpu-lost"}
    assert (advice[0].id, advice[0].severity) == ("gpu-lost", "red")
    for word in (f"NVML error {error}", "n1", "index 0", "GPU-n1-0", "Last read at 20"):
        assert word in advice[0].evidence
    text = page(Page(job=job, advice=advice, timelines=found.timelines), Style())
    assert "(the GPUs were read for 50 % of their time)" in text
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.long
def test_it_is_never_hidden(tmp_path: Path) -> None:
    """Beside ten other findings that lost more hours, it stands first, and on the page."""
    for at in range(10):
        write_samples(tmp_path, [IDLE, IDLE], host=f"n{at}", reasons=0x40)
    write_samples(tmp_path, [BUSY, lost(300, 95.0)], host="x", notes=[note(300, 15, 1, host="x")])
    found = account(tmp_path, gpus=22)
    _, advice = judged(found)
    assert advice[0].id == "gpu-lost"
    yellow = note(100, 999, 1, host="y")
    write_samples(tmp_path, [BUSY, lost(100, 95.0, 120)], host="y", notes=[yellow])
    job, advice = judged(account(tmp_path, gpus=24))
    many = [advice[0]] * 9 + list(advice[1:])
    text = page(Page(job=job, advice=many), Style())
    assert "GPU 1 on y: could not be read for 3 min" in text


def test_a_gpu_that_comes_back_is_counted_while_it_was_there(tmp_path: Path) -> None:
    row = lost(120, 80.0, 180)
    notes = [note(120, 999), note(180, 0, code="gpu_back")]
    write_samples(tmp_path, [row, BUSY], notes=notes)
    gone = account(tmp_path).per_gpu[0]
    assert gone.lost
    # Each sample stands for the time since the one before.
    assert gone.covered_percent == pytest.approx(100 * (361 - 60) / 361, abs=0.4)
    assert (gone.lost_at, gone.back_at) == (START + 1190, START + 1790)
    assert gone.utilization_percent == pytest.approx(80)
    # The counter went on.
    assert gone.energy_joules == pytest.approx(500 * (3600 - 600), rel=1e-3)


def test_a_metric_that_stops_is_unknown_and_the_others_are_not(tmp_path: Path) -> None:
    stopped = {"sm_permille": 100, "energy_mj": 100}
    write_samples(tmp_path, [BUSY], stopped=stopped, notes=[note(100, 3, code="gpu_error")])
    (gpu,) = account(tmp_path, gpus=1).per_gpu
    assert (gpu.lost, gpu.covered_percent) == (False, 100)
    assert gpu.utilization_percent == pytest.approx(95)
    assert gpu.tensor_percent == pytest.approx(9.5)
    assert [gpu.sm_active_percent, gpu.energy_joules, gpu.power_watts_mean] == [None] * 3


def test_nvml_fails_for_all(tmp_path: Path) -> None:
    rows = [lost(60, 90.0)] * 4
    write_samples(tmp_path, rows, notes=[note(60, 9, at) for at in range(4)])
    found = account(tmp_path, gpus=4)
    assert all(gpu.lost for gpu in found.per_gpu)
    assert found.summary.coverage_percent == 100
    assert found.summary.gpu_coverage_percent == pytest.approx(100 * 59 / 360, abs=0.1)
    _, advice = judged(found)
    assert advice[0].where == "4 of 4 GPUs (n1: 0-3)"
    assert {item.id for item in advice if item.rests_on == "samples"} <= {"low-cpu-efficiency"}


def test_a_sampler_that_died_early_and_a_node_without_one(tmp_path: Path) -> None:
    write_samples(tmp_path, [IDLE[:30]], host="n1", end=False)
    write_samples(tmp_path, [BUSY], host="n2")
    found = account(tmp_path, gpus=3)
    early, whole = found.per_gpu
    assert (early.lost, early.idle_hours, early.energy_joules) == (False, None, None)
    assert early.covered_percent == pytest.approx(100 * 301 / 3600, abs=0.1)
    assert whole.energy_joules == pytest.approx(575 * 3600, rel=1e-6)
    # The third GPU has no samples at all: what two of three used is not the job's.
    assert found.summary.energy_joules is None
    assert found.summary.gpu_coverage_percent == pytest.approx((301 + 3600) / 108, abs=0.1)
    _, advice = judged(found)
    assert not [item for item in advice if any(place.host == "n1" for place in item.places)]


def test_nodes_are_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    for host in ("n10", "n9", "n1"):
        write_samples(tmp_path, [BUSY, BUSY], host=host)
    found = account(tmp_path, gpus=6)
    hosts = ["n1", "n9", "n10"]
    assert [node.host for node in found.per_node] == hosts
    assert [(gpu.host, gpu.index) for gpu in found.per_gpu] == [
        (h, i) for h in hosts for i in (0, 1)
    ]
    (timeline,) = found.timelines
    for lines in (timeline.gpu_utilization, timeline.gpu_memory_bytes):
        assert [line.host for line in lines] == [host for host in hosts for _ in range(2)]
    for lines in (timeline.cores_used, timeline.memory_bytes):
        assert [line.host for line in lines] == hosts


def test_files_of_0_1_tell_a_lost_gpu_by_its_samples(tmp_path: Path) -> None:
    """They have neither NVML's number nor `gpu_lost` for an unknown error."""
    text = "No memory for a while: nvmlDeviceGetMemoryInfo: Unknown Error"
    old = Note(mono_us=BEGAN_US + 50 * 10**7 + 500, code="gpu_error", text=text, gpu="GPU-n1-0")
    write_samples(tmp_path, [lost(50), BUSY], notes=[old])
    gone, other = account(tmp_path).per_gpu
    assert (gone.lost, gone.lost_at, gone.lost_error) == (True, START + 490, text)
    assert not other.lost


def test_the_gate_does_not_trust_half_of_the_gpus(tmp_path: Path, here: Path, cli: Any) -> None:
    folder = make_run(here / "runs", plan={"total_gpus": 2, "gpus_per_node": 2})
    write_samples(folder / "samples", [BUSY, lost(60, 95.0)], notes=[note(60, 15, 1)])
    answer = cli("stats", "latest", "--fail-under", "40")
    assert answer.status == 1
    assert "its GPUs were read for 58 % of their time" in answer.err


@pytest.mark.parametrize(
    ("seconds", "late", "silent", "said"),
    [
        (46, 15, 0, None),
        (180, 50, 0, None),
        (180, 70, 0, "were read for 62 % of their time"),
        # Less than a minute of the mean is missing, but all of one GPU.
        (180, 0, 1, "were read for 75 % of their time"),
        (46, 0, 1, "were read for 75 % of their time"),
    ],
)
def test_short_jobs_lack_a_minute_of_each_gpu_and_no_gpu(
    here: Path, cli: Any, seconds: int, late: int, silent: int, said: str | None
) -> None:
    folder = make_run(here / "runs", seconds=seconds)
    count = seconds - late + 1
    rows = [[90.0] * count] * (4 - silent) + [[None] * count] * silent
    write_samples(folder / "samples", rows, late_s=late, period_s=1)
    answer = cli("stats", "latest", "--fail-under", "40")
    assert answer.status == (0 if said is None else 1)
    assert "(the GPUs were read for" in answer.out or said is None
    assert said is None or said in answer.err
    # The report and the ledger have the same rule.
    (attempt,) = json.loads((folder / "summary.json").read_text())["attempts"]
    assert attempt["gpu_coverage_lowest_percent"] == pytest.approx(
        0 if silent else 100 * (seconds - late) / seconds, abs=3
    )
    start, run = attempt["start"], read_run(folder)
    row = Allocation(
        job_id=run.job_id, user="u", account="a", partition="p", name="n", state=JobState.COMPLETED,
        submit=start, start=start, end=start + seconds, wait_s=0.0, nodes=1, gpus=4, gpu_type=None,
        limit_s=None,
    )  # fmt: skip
    known = Figures({run.job_id: [run]}).of(row).utilization_percent
    assert known == (pytest.approx(90) if said is None else None)


def test_a_gpu_without_any_sample_is_too_little_of_a_short_job(tmp_path: Path) -> None:
    write_samples(tmp_path, [[90.0] * 181] * 3, period_s=1)
    job, _ = judged(account(tmp_path, gpus=4, seconds=180))
    assert job.summary.gpu_coverage_percent == pytest.approx(75, abs=0.5)
    assert job.summary.gpu_coverage_lowest_percent == 0
    assert too_little_read(job) == job.summary.gpu_coverage_percent
    whole, _ = judged(account(tmp_path, gpus=3, seconds=180))
    assert too_little_read(whole) is None
