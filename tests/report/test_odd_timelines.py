"""Odd timelines beside rows of accounting: each figure is right or unknown, each blame is known."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from hpckit.report import job_samples
from hpckit.report.terminal import energy, hours
from hpckit.stats.samples.collecting import read_columns
from hpckit.stats.samples.encoding import SAMPLE_PREFIX
from hpckit.stats.samples.records import Note
from hpckit.stats.summary import gpu_tally
from hpckit.stats.summary.attempts import Span
from hpckit.stats.summary.coverage import union
from hpckit.stats.summary.summarise import summarise
from tests.conftest import Answer
from tests.js1 import encode
from tests.report.accounting import keep_accounts, row
from tests.report.made import BEGAN_US, START, write_samples

pytestmark = pytest.mark.long

Cli = Callable[..., Answer]
HOUR = 361  # samples, 10 s apart
STOPPED = [*range(7), *[None] * (HOUR - 7)]  # read for a minute of the hour
BUSY, IDLE = [90.0], [0.0]


def job(job_id: int | str, **cells: str) -> dict[str, str]:
    gpus = cells.pop("gpus", "1")
    tres = f"cpu=16,gres/gpu={gpus},mem=64G,node=1"
    return row(str(job_id), SubmitLine="sbatch x.sh", AllocTRES=tres) | cells


def again(job_id: int | str, **cells: str) -> dict[str, str]:
    """The second attempt, which began 100 s after the first had ended."""
    start = START + 3700
    return job(job_id, Submit=str(START + 3600), Start=str(start), End=str(start + 3600)) | cells


def first(job_id: int | str, **cells: str) -> dict[str, str]:
    return job(job_id, State="REQUEUED", **cells)


@pytest.fixture
def stats(here: Path, cli: Cli) -> Callable[..., dict[str, Any]]:
    """Return a function from accounting's rows to the document of what is asked for."""

    def call(rows: Sequence[Mapping[str, str]], *ids: int | str) -> dict[str, Any]:
        keep_accounts(here.parent / "bin", rows)
        answer = cli("stats", *map(str, ids), "--json")
        assert answer.status == 0, answer.err
        found: dict[str, Any] = json.loads(answer.out)
        return {row["job_id"]: row for row in found["jobs"]} | found if "jobs" in found else found

    return call


def samples(job_id: int | str, used: Sequence[Sequence[float | None]], **more: Any) -> Path:
    return write_samples(Path("hpckit-samples") / str(job_id), used, **more)


def advice(found: Mapping[str, Any]) -> set[str]:
    return {item["id"] for item in found["advice"]}


def test_a_gpu_of_an_earlier_attempt_is_not_blamed_by_the_newest_ones_time(stats: Any) -> None:
    ended = [*BUSY * 160, *IDLE * 201]
    samples(1, [ended])
    samples(1, [BUSY * HOUR], host="n2", restart=1, late_s=3700)
    late = [*IDLE * 200, *BUSY * 161]
    samples(2, [late])  # the sampler of its second attempt never began
    found = stats([first(1), again(1, NodeList="n2"), first(2), again(2)], 1, 2)
    old, new = found["1"]["per_gpu"]
    assert (old["idle_tail_s"], new["idle_tail_s"]) == (None, 0)
    assert "idle-tail" not in advice(found["1"])
    assert found["2"]["per_gpu"][0]["first_use_s"] is None
    assert "late-first-use" not in advice(found["2"])


def test_what_stopped_being_read_is_unknown(stats: Any) -> None:
    cpus = {"AllocTRES": "cpu=16,mem=64G,node=1"}
    samples(1, [], cores_used=[*[0.01] * 7, *[None] * (HOUR - 7)])
    samples(2, [], cores_used=[15.0] * HOUR, memory=[1 << 30 if k else None for k in STOPPED])
    samples(3, [[10.0] * HOUR], stopped={"memory_bytes": 7}, gpu_memory=1 << 30)
    found = stats([job(1, **cpus), job(2, **cpus), job(3)], 1, 2, 3)
    summary, node = found["1"]["summary"], found["1"]["per_node"][0]
    assert (summary["cpu_efficiency_percent"], summary["cpu_s"]) == (None, None)
    assert (node["cores_used"], node["cpu_efficiency_percent"]) == (None, None)
    assert not advice(found["1"]) & {"cpu-node-unused", "low-cpu-efficiency"}
    summary = found["2"]["summary"]
    assert (summary["memory_peak_bytes"], summary["memory_efficiency_percent"]) == (None, None)
    assert "memory-over-allocated" not in advice(found["2"])
    summary = found["3"]["summary"]
    assert (summary["gpu_memory_peak_bytes"], summary["gpu_memory_used_percent"]) == (None, None)
    assert not advice(found["3"]) & {"gpu-too-powerful", "low-gpu-memory"}


def test_gpus_that_only_samples_tell_are_those_of_one_attempt_and_of_all_nodes(stats: Any) -> None:
    samples(1, [[50.0] * HOUR] * 4)
    samples(2, [[50.0] * HOUR] * 4)
    samples(2, [[50.0] * HOUR] * 4, host="n2", restart=1, late_s=3700)
    none = {"AllocTRES": ""}
    two = job(1, NodeList="n[1-2]", NNodes="2", **none)
    found = stats([two, first(2, **none), again(2, NodeList="n2", **none)], 1, 2)
    assert (found["1"]["gpus"], found["1"]["summary"]["gpu_hours"]) == (None, None)
    assert (found["2"]["gpus"], found["2"]["summary"]["gpu_hours"]) == (4, 8)


def test_less_memory_is_not_advised_by_half_of_the_nodes(stats: Any) -> None:
    samples(1, [BUSY * HOUR], memory=1 << 30)
    tres = "cpu=2,gres/gpu=2,mem=256G,node=2"
    found = stats([job(1, NodeList="n[1-2]", NNodes="2", AllocTRES=tres)], 1)
    assert not advice(found) & {"memory-over-allocated", "host-memory-per-gpu"}


def test_time_suspended_is_in_no_figure_of_samples(stats: Any) -> None:
    # As gang scheduling does: half a minute each.
    samples(1, [IDLE * 721], cores_used=4.0)
    found = stats([job(1, End=str(START + 7200))], 1)
    assert found["summary"]["gpu_hours"] == found["summary"]["gpu_hours_idle"] == 1
    # 4 cores in each of 7200 s are 8 in each of 3600.
    assert found["summary"]["cpu_efficiency_percent"] == pytest.approx(50)
    samples(2, [BUSY * 181], cores_used=8.0)
    samples(2, [BUSY * 181], cores_used=8.0, late_s=5400, pid=8)
    found = stats([job(2, End=str(START + 7200))], 2)
    assert found["summary"]["cpu_efficiency_percent"] == pytest.approx(50)


def leave_out(path: Path, first: int, last: int) -> None:
    """Take some samples out of a file."""
    kept, number = [], 0
    for line in path.read_bytes().splitlines(keepends=True):
        number += line.startswith(SAMPLE_PREFIX)
        if not (line.startswith(SAMPLE_PREFIX) and first <= number <= last):
            kept.append(line)
    path.write_bytes(b"".join(kept))


def test_cores_of_a_sampler_that_ended_soon_after_it_was_suspended(stats: Any) -> None:
    path = samples(1, [BUSY * 543], cores_used=[8.0] * 181 + [0.0] * 360 + [8.0] * 2)
    leave_out(path, 182, 541)
    found = stats([job(1, End=str(START + 7200))], 1)
    # The sample after the hole stands for three periods, and worked in one.
    assert found["summary"]["cpu_efficiency_percent"] == pytest.approx(50, rel=0.02)
    assert found["summary"]["cpu_s"] is None


def test_energy_of_suspended_time_is_in_no_figure(stats: Any) -> None:
    """Its processes stand still, the sampler with them; the GPU's counter goes on."""
    path = samples(1, [[*BUSY * 181, *IDLE * 360, *BUSY * 180]])
    leave_out(path, 182, 541)
    found = stats([job(1, End=str(START + 7200))], 1)
    (gpu,) = found["per_gpu"]
    watts = 100 + 5 * BUSY[0]
    assert gpu["power_watts_mean"] == pytest.approx(watts, rel=1e-3)
    # Of the sample that ends the hole nobody knows which part of it is the job's.
    assert gpu["energy_joules"] == pytest.approx(watts * 3600, rel=0.005)
    assert found["summary"]["energy_joules"] == gpu["energy_joules"]


def test_a_pause_ends_where_nobody_looked(stats: Any) -> None:
    folder = samples(1, [[*BUSY * 50, *IDLE * 11]], end=False)
    samples(1, [[*IDLE * 11, *BUSY * 50]], late_s=4200, pid=7)
    second = folder.read_bytes()
    samples(1, [[*BUSY * 50, *IDLE * 11]], end=False)
    folder.write_bytes(folder.read_bytes() + second)  # one file, and an hour between
    found = stats([job(1, ElapsedRaw="4800", End=str(START + 4800))], 1)
    assert found["per_gpu"][0]["longest_idle_s"] <= 140


def test_a_node_whose_clock_is_behind_has_its_whole_line(tmp_path: Path) -> None:
    path = write_samples(tmp_path, [[*IDLE * 35, *BUSY * 31]], late_s=-5, period_s=1)
    file = read_columns(path, 0)
    assert file
    found = summarise([file], [Span(restart=0, start=START, end=START + 60)])
    assert found.timelines[0].gpu_utilization[0].values == (*[0.0] * 30, *[90.0] * 30)


def test_a_step_is_of_its_own_nodes_and_attempts(stats: Any) -> None:
    samples("1", [BUSY * HOUR], ids={"step_id": "0"})
    both = {"NodeList": "n[1-2]", "NNodes": "2", "AllocTRES": "cpu=16,gres/gpu=2,mem=128G,node=2"}
    part = {"NTasks": "1", "NodeList": "n1", "AllocTRES": "cpu=8,gres/gpu=1,mem=64G,node=1"}
    rows = [job(1, **both), job("1.0", **part)]
    rows += [first(2), job("2.batch", NTasks="1"), again(2), job("2.batch", NTasks="1")]
    rows += [job("2.0", NTasks="1", ElapsedRaw="100", End=str(START + 100))]
    found = stats(rows, "1.0", "2.0")
    one, two = found["1.0"], found["2.0"]
    assert (one["nodes"], one["summary"]["coverage_percent"]) == (1, 100)
    assert one["summary"]["memory_limit_bytes"] == 64 << 30
    assert (two["elapsed_s"], len(two["attempts"])) == (100, 1)


def test_accounting_has_figures_of_all_attempts(stats: Any, cli: Cli) -> None:
    found = stats([first(1, TotalCPU="16:00:00"), again(1, TotalCPU="04:00:00")], 1)
    assert found["summary"]["cpu_s"] == 20 * 3600
    assert "2 attempts (figures above are for all of them)" in cli("stats", "1").out


def test_the_sites_record_says_of_which_attempt_it_is(stats: Any, cli: Cli) -> None:
    known = {"gpu_utilization": {"0": 60}, "cpus": 16, "total_time": 3600}
    record = encode({"gpus": 1, "nodes": {"n1": known}, "total_time": 3600})
    found = stats([first(1), again(1, AdminComment=record)], 1)
    assert "newest_attempt" in {note["code"] for note in found["notes"]}
    assert "2 attempts (GPU-hours above are for all of them)" in cli("stats", "1").out


def test_the_gate_trusts_a_whole_record_beside_samples_of_a_part(stats: Any, cli: Cli) -> None:
    known = {"gpu_utilization": {"0": 60}, "cpus": 16, "total_time": 3600}
    record = encode({"gpus": 1, "nodes": {"n1": known}, "total_time": 3600})
    samples(1, [BUSY * 91], stopped={"utilization_permille": 0})
    found = stats([job(1, AdminComment=record)], 1)
    assert found["origins"]["summary.gpu_utilization_percent"] == "JS1"
    assert cli("stats", "1", "--fail-under", "50").status == 0
    assert "in which GPUs were read" not in cli("stats", "1").out


def test_a_sum_over_jobs_of_which_some_are_unknown_is_unknown(stats: Any, cli: Cli) -> None:
    rows = [job(f"9_{task}", JobIDRaw=str(9 + task)) for task in range(3)]
    for task in range(2):
        samples(f"9_{task}", [[5.0 * task] * HOUR])
    found = stats(rows, 9)["distribution"]
    assert (found["gpu_hours"], found["gpu_hours_idle"]) == (3, None)
    assert "of them idle" not in cli("stats", "9").out
    rows[2] |= {"AllocTRES": ""}
    assert stats(rows, 9)["distribution"]["gpu_hours"] is None


def test_energy_of_nearly_a_kilowatt_hour() -> None:
    assert [energy(kwh * 3.6e6) for kwh in (0.9994, 0.9997, 1.26)] == [
        "999 Wh", "1.0 kWh", "1.3 kWh",
    ]  # fmt: skip


def test_many_gpu_hours_are_written_as_other_large_numbers_are() -> None:
    assert [hours(value) for value in (51072.4, 999.6, 99.96, 0.0417)] == [
        "51,072", "1,000", "100.0", "0.042",
    ]  # fmt: skip


def test_what_is_sampled_after_the_end_is_in_no_figure(stats: Any) -> None:
    """Another's work, or none: nothing of it is the job's, whatever it is."""
    work = [60.0, 95.0] * 180
    usual = {"cores_used": [4.0] * 361, "memory": [8 << 30] * 361, "source": "mean"}
    samples(1, [[*work, 90.0], [*work, 0.0]], **usual)
    more = {"cores_used": [16.0] * 360, "memory": [60 << 30] * 360}
    lost = Note(mono_us=BEGAN_US + 5 * 10**9, code="gpu_lost", text="gone", gpu="GPU-n1-1")
    late: dict[str, Any] = {key: usual[key] + more[key] for key in more} | {"notes": [lost]}
    samples(2, [[*work, 90.0, *[100.0] * 360], [*work, 0.0, *[None] * 360]], **late)
    idle = {"cores_used": [4.0] * 361 + [0.0] * 360, "memory": 8 << 30}
    samples(3, [[*work, 90.0, *[0.0] * 360], [*work, 0.0, *[0.0] * 360]], **idle)
    found = stats([job(number, gpus="2") for number in (1, 2, 3)], 1, 2, 3)
    one, two, three = (found[str(number)] for number in (1, 2, 3))
    for other in (two, three):
        for part in ("summary", "per_gpu", "per_node", "attempts", "advice", "elapsed_s"):
            assert other[part] == one[part], part
        assert other["notes"] == one["notes"]
    assert one["summary"]["samples"] == 361
    assert one["per_gpu"][1]["idle_tail_s"] == 10
    assert "idle-tail" not in advice(one)


def test_a_file_that_vanishes_while_it_is_read_is_named(
    stats: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = samples(1, [BUSY * HOUR * 2])
    real = job_samples.read_columns

    def read_once(*words: Any, **more: Any) -> Any:
        found = real(*words, **more)
        path.unlink()
        return found

    monkeypatch.setattr(job_samples, "read_columns", read_once)
    assert "unreadable" in {note["code"] for note in stats([job(1)], 1)["notes"]}


def test_time_taken_is_put_together_only_where_it_is_near(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = []
    for step in range(40):
        path = write_samples(tmp_path, [BUSY * 2], late_s=100 * step, pid=step)
        files.append(read_columns(path, 0))
    sizes = []

    def counted(groups: Any) -> Any:
        groups = [list(group) for group in groups]
        sizes.append(sum(map(len, groups)))
        return union(groups)

    monkeypatch.setattr(gpu_tally, "union", counted)
    found = summarise(
        [file for file in files if file], [Span(restart=0, start=START, end=START + 4000)]
    )
    assert found.per_gpu[0].hours == pytest.approx(400 / 3600)
    assert sum(sizes) < 10 * 40
