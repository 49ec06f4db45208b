import pytest

from hpckit.report.accounting import cpu_seconds, running_answer, slurm_answers, slurm_notes
from hpckit.report.peaks import gpu_util_peak, memory_peak
from hpckit.slurm.states import JobState
from hpckit.slurm.usage import parse_sstat
from hpckit.slurm.usage_rows import JobUsage, StepUsage, parse_usage
from tests.js1 import encode
from tests.unit.recorded import slurm_said
from tests.unit.usage import (
    ENDED,
    MARK,
    RECORDED,
    RECORDED_COLUMNS,
    job,
    line,
    one,
    read,
    recorded,
    running_job,
)


def test_figures_of_a_job() -> None:
    usage = job(
        StepUsage(step="batch", cpu_s=1.0, memory_bytes=100),
        StepUsage(step="0", cpu_s=150.0, memory_bytes=700 << 20, gpu_util_peak=150, gpus=2),
        alloc_gpus=4,
        memory_limit_bytes=1000 << 20,
        total_cpu_s=151.0,
    )
    (answer,) = slurm_answers([usage])
    assert answer.source == "sacct"
    assert answer.summary == {
        "cpu_s": 151.0,
        "cpu_efficiency_percent": 75.5,
        "memory_efficiency_percent": 70.0,
        "memory_peak_bytes": 700 << 20,
        "memory_limit_bytes": 1000 << 20,
        "gpu_utilization_peak_percent": 75.0,
        "gpu_memory_peak_bytes": None,
        "gpu_hours": 4 * 100 / 3600,
    }


def test_nothing_known_is_no_figure_at_all() -> None:
    (answer,) = slurm_answers([JobUsage(record=ENDED)])
    assert set(answer.summary.values()) == {None}
    assert list(slurm_answers([])) == list(slurm_notes([])) == []
    assert cpu_seconds(job()) is memory_peak(job()).value is gpu_util_peak(job()).value is None


@pytest.mark.parametrize(
    ("cpu_s", "cpus", "elapsed", "percent"),
    [
        (5.0, 1, 10, 50.0),
        (1.9, 1, 1, 100.0),
        (8.0, 2, 3, 100.0),
        (20.0, 1, 10, 200.0),
        (5.0, 1, 0, None),
        (5.0, None, 10, None),
    ],
)
def test_whole_seconds_are_no_share_over_100(
    cpu_s: float, cpus: int | None, elapsed: int, percent: float | None
) -> None:
    cells = {"ElapsedRaw": str(elapsed), "AllocCPUS": str(cpus), "TotalCPU": f"00:{cpu_s}"}
    (answer,) = slurm_answers([one(**cells)])
    assert answer.summary["cpu_efficiency_percent"] == percent


def test_hours_and_cpu_time_are_of_all_attempts_that_ran() -> None:
    attempts = read(
        line("7", State="PREEMPTED", ElapsedRaw="3600", AllocTRES="gres/gpu=2,node=1"),
        line("7.batch", TotalCPU="00:30.0"),
        line("7", State="NODE_FAIL", ElapsedRaw="1800", AllocTRES="gres/gpu=4,node=1"),
        line("7.batch", TotalCPU="00:40.0"),
        line("7", State="PENDING", ElapsedRaw="0", Start="Unknown", End="Unknown", NodeList=""),
    )
    (answer,) = slurm_answers(attempts)
    assert (answer.summary["cpu_s"], answer.summary["gpu_hours"]) == (70.0, 4.0)


def test_hours_of_an_attempt_not_known_are_not_left_out() -> None:
    attempts = read(
        line("7", State="NODE_FAIL", ElapsedRaw="3600"), line("7", AllocTRES="gres/gpu=1,node=1")
    )
    (answer,) = slurm_answers(attempts)
    assert answer.summary["gpu_hours"] is None
    cells = {"ElapsedRaw": "", "AllocTRES": "gres/gpu=1,node=1"}
    (answer,) = slurm_answers(read(line("7", **cells)))
    assert answer.summary["gpu_hours"] == 100 / 3600  # from its start to its end
    (answer,) = slurm_answers(read(line("7", **cells, End="Unknown")))
    assert answer.summary["gpu_hours"] is None


def test_steps_that_run_are_not_in_saccts_figures() -> None:
    (answer,) = slurm_answers([running_job()])
    known = {name for name, value in answer.summary.items() if value is not None}
    assert known == {"memory_limit_bytes", "gpu_hours"}


def test_a_running_jobs_figures_are_of_its_past_and_present_steps() -> None:
    live = [StepUsage(step="batch"), StepUsage(step="1", cpu_s=48.0, memory_bytes=5 << 20)]
    answer = running_answer([running_job()], live)
    assert answer.source == "sstat"
    assert (answer.summary["cpu_s"], answer.summary["cpu_efficiency_percent"]) == (50.0, 25.0)
    assert answer.summary["memory_peak_bytes"] == 9 << 20


def test_a_running_step_that_sstat_lacks_makes_the_cpu_time_unknown() -> None:
    answer = running_answer([running_job()], [StepUsage(step="1", cpu_s=48.0)])
    assert (answer.summary["cpu_s"], answer.summary["cpu_efficiency_percent"]) == (None, None)


def test_a_step_that_began_since_sacct_was_asked_counts() -> None:
    live = [StepUsage(step=name, cpu_s=10.0) for name in ("batch", "1", "2")]
    assert running_answer([running_job()], live).summary["cpu_s"] == 32.0


def test_sstats_rows_are_steps() -> None:
    ((job_id, step),) = list(parse_sstat(slurm_said("sstat-22.05.8.txt")))[1:]
    assert (job_id, step.step, step.tasks, step.memory_bytes) == ("34", "1", 1, 1624 << 10)
    text = "1.0+1|2|5K|cpu=00:00:06,mem=9K|mem=5K\nsstat: error\n\n.5|x\n|||"
    ((job_id, step),) = parse_sstat(text)
    assert (job_id, step.step, step.tasks) == ("1", "0+1", 2)
    assert (step.cpu_s, step.memory_bytes, step.memory_at_least) == (6.0, 9216, True)


# That cluster's JobAcctGatherFrequency is 1.
def test_a_real_sacct_gives_each_job_once_for_each_attempt() -> None:
    ids = [usage.record.job_id for usage in RECORDED]
    waiting = [f"5_{task}" for task in range(6)]
    others = ["1", "2", "3", "6+0", "6+1", "9", "10", "12", "4_0", "4_1", "4_2", "17"]
    rest = ["19", "19", "20", "21", "23", "24", "26", "34"]
    assert sorted(ids) == sorted([*others, *waiting, *rest])


@pytest.mark.parametrize(
    ("job_id", "cpu_s", "memory_kib"),
    [
        ("1", 7.766, 4968),
        ("2", 0.112, 117288),
        # Of 1 s: shorter than two polls.
        ("3", 0.012, None),
        ("6+1", 0.001, 1604),
        ("9", None, 3224),
        ("10", None, None),
        ("12", 99.878, 95212),
        ("21", 7.001, 4524),
        ("4_1", 0.001, 3260),
        ("5_3", None, None),
    ],
)
def test_a_real_sacct_says_what_jobs_used(
    job_id: str, cpu_s: float | None, memory_kib: int | None
) -> None:
    usage = recorded(job_id)
    memory = memory_kib * 1024 if memory_kib else None
    assert (cpu_seconds(usage), memory_peak(usage).value) == (cpu_s, memory)


def test_a_real_sacct_says_the_rest() -> None:
    assert recorded("2").record.name == "mem\nline\x1f2|3"
    assert recorded("3").record.name == "steps 'q' `d`"
    assert (recorded("3").alloc_gpus, recorded("3").gpu_type) == (2, "h200")
    assert (recorded("6+0").alloc_gpus, recorded("6+1").alloc_gpus) == (0, 1)
    assert recorded("9").record.state is JobState.CANCELLED
    assert recorded("10").record.start_time is None
    assert recorded("12").admin_comment == "some JS1:Short text"
    assert recorded("17").interactive is True
    assert [step.step for step in recorded("20").steps] == ["batch", "0+0"]
    assert recorded("23").record.time_limit_min is None
    assert [step.step for step in recorded("24").steps] == ["batch", "0", "1"]
    assert recorded("26").comment == "x\n999\x1f999\x1fbob"
    assert (recorded("26").record.name, recorded("26").work_dir) == ("a\nb\x1fc", "/tmp/u")
    assert recorded("34").interactive is False


def test_a_real_running_job_is_known_with_sstats_help() -> None:
    (usage,) = parse_usage(slurm_said("sacct-usage-running-22.05.8.txt"), RECORDED_COLUMNS, MARK)
    (answer,) = slurm_answers([usage])
    assert answer.summary.get("cpu_s") is None
    live = [step for _, step in parse_sstat(slurm_said("sstat-22.05.8.txt"))]
    assert running_answer([usage], live).summary["cpu_s"] == usage.total_cpu_s


def test_a_jobstats_record_went_through_a_real_slurm() -> None:
    js1, sacct = slurm_answers([recorded("34")])
    assert (js1.source, sacct.source) == ("JS1", "sacct")
    assert js1.summary["gpu_utilization_percent"] == 49.3
    assert [gpu.utilization_percent for gpu in js1.per_gpu] == [98.6, 0.0]
    assert js1.summary["gpu_hours"] == sacct.summary["gpu_hours"]
    assert [note.code for note in slurm_notes([recorded("12")])] == ["js1"]


@pytest.mark.parametrize(
    ("at_end", "polls", "cpu_s", "polled"),
    [
        ("01:40.0", "00:01:47", 100.0, False),  # 7 % more is a process counted twice, or rounding
        ("00:01.2", "00:00:02", 1.2, False),
        ("00:10.0", "00:01:47", 107.0, True),
        ("00:00:00", "00:01:47", 107.0, True),
        ("01:40.0", "00:00:47", 100.0, False),
        ("00:00:00", "00:00:00", None, False),
    ],
)
def test_cpu_time_is_the_kernels_unless_that_lacks_much(
    at_end: str, polls: str, cpu_s: float | None, polled: bool
) -> None:
    (usage,) = read(
        line("7", TotalCPU=at_end),
        line("7.0", TotalCPU=at_end, TRESUsageInTot=f"cpu={polls},mem=9M", NTasks="1"),
    )
    (answer,) = slurm_answers([usage])
    assert answer.summary["cpu_s"] == cpu_s
    assert [remark.note.code for remark in answer.remarks] == ["cpu_polled"] * polled


def with_js1(elapsed: str, **record: object) -> JobUsage:
    whole = {"gpus": 0, "nodes": {"c1": {"cpus": 2, "total_time": 50}}, "total_time": 100} | record
    return one(AdminComment=encode(whole), ElapsedRaw=elapsed, AllocTRES="cpu=2,node=1")


@pytest.mark.parametrize(("elapsed", "its"), [("100", True), ("90", True), ("300", False)])
def test_a_jobstats_record_of_another_attempt_is_not_this_ones(elapsed: str, its: bool) -> None:
    usage = with_js1(elapsed)
    assert next(answer.source for answer in slurm_answers([usage])) == ("JS1" if its else "sacct")
    assert [note.code for note in slurm_notes([usage])] == ([] if its else ["js1"])


@pytest.mark.long
def test_a_jobstats_record_of_more_nodes_than_the_job_had_is_not_its() -> None:
    many = {f"n{number}": {"cpus": 2, "total_time": 50} for number in range(60_000)}
    usage = with_js1("100", nodes=many)
    assert next(answer.source for answer in slurm_answers([usage])) == "sacct"
    (note,) = slurm_notes([usage])
    assert "lists 60000 nodes, the job had 1." in note.text


def test_a_jobstats_record_that_lacks_a_node_is_no_mean_of_the_rest() -> None:
    (usage,) = read(line("7", AdminComment=with_js1("100").admin_comment or "", NNodes="2"))
    js1, _ = slurm_answers([usage])
    assert (js1.summary["cpu_s"], js1.summary["cpu_efficiency_percent"]) == (None, None)
