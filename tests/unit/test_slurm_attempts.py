from dataclasses import replace

import pytest

from hpckit.report.accounting import running_answer, slurm_answers
from hpckit.slurm.usage_rows import JobUsage, StepUsage, parse_usage
from hpckit.stats.merge import Answer
from tests.js1 import encode
from tests.unit.recorded import slurm_said
from tests.unit.usage import (
    GIB,
    HOUR,
    MARK,
    RECORDED_COLUMNS,
    gpu_step,
    line,
    numbered,
    ran,
    read,
    running_job,
    step,
)


def lows(answer: Answer) -> dict[str, str]:
    """Return which figures are lower bounds, and the notes that say so."""
    return {
        name: mark.note.text for mark in answer.remarks if mark.at_least for name in mark.figures
    }


def requeued_recorded(job_id: str) -> list[JobUsage]:
    text = slurm_said("sacct-usage-requeued-22.05.8.txt")
    found = [
        row for row in parse_usage(text, RECORDED_COLUMNS, MARK) if row.record.job_id == job_id
    ]
    return [
        replace(row, poll_s=1, record=replace(row.record, restarts=number))
        for number, row in enumerate(found)
    ]


def test_a_real_requeued_jobs_figures_are_of_both_attempts() -> None:
    (answer,) = slurm_answers(requeued_recorded("856000"))
    assert answer.summary["cpu_s"] == pytest.approx(3.326 + 0.028)
    assert answer.summary["cpu_efficiency_percent"] == pytest.approx(3.354 / 14 * 100)
    assert answer.summary["memory_peak_bytes"] == 139404 << 10
    assert answer.remarks == ()


def test_what_a_lost_node_never_told_is_unknown() -> None:
    (answer,) = slurm_answers(requeued_recorded("856003"))
    names = ("cpu_s", "cpu_efficiency_percent", "memory_peak_bytes")
    assert [answer.summary[name] for name in names] == [None] * 3
    texts = [remark.note.text for remark in answer.remarks]
    assert texts[0] == "CPU time is unknown: accounting lacks some of attempt 0."


def test_a_peak_is_the_highest_of_all_attempts() -> None:
    (answer,) = slurm_answers(numbered(*ran("3G", "00:17"), *ran("5M", "00:03")))
    assert (answer.summary["cpu_s"], answer.summary["memory_peak_bytes"]) == (20, 3 * GIB)
    assert answer.summary["memory_efficiency_percent"] == 30
    assert lows(answer) == {}


def test_attempts_did_not_run_side_by_side() -> None:
    (answer,) = slurm_answers(numbered(*ran("3G", "00:17"), *ran("2G", "00:17")))
    assert lows(answer) == {}


def test_an_attempt_without_figures_makes_a_peak_a_lower_bound() -> None:
    lost = line("7", State="NODE_FAIL", **HOUR)
    (answer,) = slurm_answers(numbered(lost, *ran("2G", "00:17")))
    assert answer.summary["memory_peak_bytes"] == 2 * GIB
    text = lows(answer)["memory_peak_bytes"]
    assert text == "CPU memory is a lower bound: Slurm has not measured all of attempt 0."


def test_a_step_of_which_nothing_is_told_makes_a_peak_a_lower_bound() -> None:
    lost = line("7", **HOUR), step("batch", 3600, "2G", "20:00:00"), step("0", 900, "")
    (answer,) = slurm_answers(read(*lost))
    assert lows(answer)["memory_peak_bytes"].endswith("Slurm has not measured all of the job.")


@pytest.mark.parametrize(
    ("seconds", "cpu_s", "what"), [(60, 17, "a lower bound"), (3600, None, "unknown")]
)
def test_cpu_time_that_an_attempt_lacks_is_said(
    seconds: int, cpu_s: float | None, what: str
) -> None:
    lost = line("7", **HOUR | {"ElapsedRaw": str(seconds)})
    (answer,) = slurm_answers(numbered(lost, *ran("2G", "00:17")))
    assert answer.summary["cpu_s"] == cpu_s
    assert ("cpu_efficiency_percent" in lows(answer)) == (cpu_s is not None)
    text = f"CPU time is {what}: accounting lacks some of attempt 0."
    assert text in [remark.note.text for remark in answer.remarks]


def test_an_attempt_that_took_no_time_changes_nothing() -> None:
    failed = line("7", State="FAILED", **HOUR | {"ElapsedRaw": "0"})
    (answer,) = slurm_answers(numbered(*ran("2G", "00:17"), failed))
    assert answer.summary["memory_peak_bytes"] == 2 * GIB
    assert answer.summary["cpu_efficiency_percent"] == pytest.approx(17 / 7200 * 100)
    assert lows(answer) == {}


def test_memory_of_attempts_on_other_numbers_of_nodes_is_unknown() -> None:
    both = {"AllocTRES": "cpu=2,mem=20G,node=2", "NNodes": "2"}
    (answer,) = slurm_answers(numbered(*ran("9G", "00:17", **both), *ran("2G", "00:17")))
    assert answer.summary["memory_peak_bytes"] is None
    assert answer.summary["memory_efficiency_percent"] is None


def test_gpu_peaks_are_the_highest_of_all_attempts() -> None:
    job = line("7", AllocTRES="cpu=4,gres/gpu=1,node=1", ElapsedRaw="900")
    attempts = numbered(job, gpu_step("0", "9G", "40"), job, gpu_step("0", "4G", "80"))
    (answer,) = slurm_answers(attempts)
    assert answer.summary["gpu_memory_peak_bytes"] == 9 * GIB
    assert answer.summary["gpu_utilization_peak_percent"] == 80
    (answer,) = slurm_answers([*attempts, replace(attempts[0], steps=())])
    assert "gpu_memory_peak_bytes" in lows(answer)


def test_a_running_attempts_figures_go_with_those_before_it() -> None:
    live = [
        StepUsage(step=name, cpu_s=10.0, memory_bytes=5 << 20, live=True) for name in ("batch", "1")
    ]
    earlier = numbered(*ran("3G", "00:17"))
    answer = running_answer([*earlier, running_job()], live)
    assert answer.summary["cpu_s"] == 17 + 2 + 20
    assert answer.summary["memory_peak_bytes"] == 3 * GIB


def test_a_jobstats_record_is_of_the_newest_attempt_and_sacct_of_all() -> None:
    node = {"cpus": 2, "total_time": 50, "used_memory": GIB, "total_memory": 10 * GIB}
    node |= {"gpu_utilization": {"0": 40}, "gpu_used_memory": {"0": GIB}}
    record = encode({"gpus": 1, "nodes": {"c1": node}, "total_time": 3600})
    one_gpu = {"AllocTRES": "cpu=2,gres/gpu=1,mem=10G,node=1"}
    rows = *ran("3G", "00:17", **one_gpu), *ran("1G", "00:40", AdminComment=record, **one_gpu)
    js1, sacct = slurm_answers(numbered(*rows))
    assert js1.source == "JS1"
    assert js1.summary["gpu_utilization_percent"] == 40
    assert js1.summary.get("memory_peak_bytes") is js1.summary.get("cpu_s") is None
    assert (sacct.summary["cpu_s"], sacct.summary["memory_peak_bytes"]) == (57, 3 * GIB)
    text = "The site's jobstats record has the newest attempt only."
    assert lows(js1)["gpu_memory_peak_bytes"] == text
