from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpckit.report.accounting import (
    cpu_seconds,
    running_answer,
    slurm_answers,
    slurm_notes,
)
from hpckit.report.peaks import gpu_util_peak, memory_peak
from hpckit.slurm.rows import (
    COLUMN,
    count_gpus,
    gpu_type,
    parse_count,
    parse_cpu_s,
    parse_size,
    parse_tres,
)
from hpckit.slurm.states import JobRecord, JobState, SlurmSource
from hpckit.slurm.usage import parse_sstat, poll_s
from hpckit.slurm.usage_rows import (
    FIXED,
    FREE,
    JobUsage,
    StepUsage,
    parse_usage,
    step_usage,
)
from hpckit.stats.merge import Answer
from tests.js1 import encode
from tests.unit.recorded import slurm_said

COLUMNS = (*FIXED, *FREE)
MARK = f"{COLUMN}hpckit{COLUMN}"
INFINITE = "18446744073709551615"
NO_VAL64 = "18446744073709551614"
GIB = 1 << 30


def line(job_id: str, **cells: str) -> str:
    """Make one of sacct's rows; what is not said is as for a finished job without free text."""
    job = "." not in job_id.partition("[")[0]
    usual = {
        "JobID": job_id,
        "JobIDRaw": job_id,
        "User": "alice" if job else "",
        "State": "COMPLETED",
        "NodeList": "c1",
        "ElapsedRaw": "100",
        "Submit": "1700000000",
        "Start": "1700000010",
        "End": "1700000110",
        "ExitCode": "0:0",
        "NNodes": "1",
        "AllocCPUS": "2",
        "TotalCPU": "00:00:00",
        "JobName": "job" if job else "batch",
        "Partition": "gpu" if job else "",
    }
    return MARK.join({**usual, **cells}.get(name, "") for name in COLUMNS)


def read(*lines: str) -> list[JobUsage]:
    return parse_usage("".join(f"{text}\n" for text in lines), COLUMNS, MARK)


def one(**cells: str) -> JobUsage:
    (usage,) = read(line("7", **cells))
    return usage


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("123456K", 123456 << 10),
        ("10M", 10 << 20),
        ("1.50G", 3 << 29),
        ("0.4", 1),
        ("0.00", 0),
        ("2T", 2 << 40),
        ("1P", 1 << 50),
        ("64GiB", 64 << 30),
        ("7B", 7),
        (" 5K ", 5 << 10),
        ("", None),
        ("K", None),
        ("-5K", None),
        ("5k", None),
        ("0n", None),
        ("1.5.5G", None),
        ("1e5", None),
        ("٣K", None),
        ("16?", None),
        ("16E", None),
        ("17179869184G", None),
        (NO_VAL64, None),
        (INFINITE, None),
        ("18446744073709551612", None),
        ("9" * 400, None),
        ("9" * 5000 + "E", None),
        ("UNLIMITED", None),
    ],
)
def test_a_size_is_read_or_unknown(text: str, size: int | None) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("0", 0),
        ("8", 8),
        (" 12\n", 12),
        ("4294967293", 4294967293),
        ("4294967294", None),
        ("4294967295", None),
        (NO_VAL64, None),
        (INFINITE, None),
        ("", None),
        ("-1", None),
        ("1.0", None),
        ("4K", None),
        ("²", None),
        ("٣", None),
        ("9" * 5000, None),
        ("UNLIMITED", None),
        ("Partition_Limit", None),
    ],
)
def test_a_count_is_read_or_unknown(text: str, count: int | None) -> None:
    assert parse_count(text) == count


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("00:00:00", 0.0),
        ("00:01.500", 1.5),
        ("01:39.878", 99.878),
        ("01:02:03", 3723.0),
        ("2-03:04:05", 183845.0),
        ("1000-00:00:00", 86400000.0),
        ("", None),
        ("5", None),
        ("1-2", None),
        ("INVALID", None),
        ("-00:00:01", None),
        ("213503982334601-07:00:15", None),
        ("9" * 400 + ":00", None),
        ("9" * 5000 + "-00:00:00", None),
    ],
)
def test_a_cpu_time_is_read_or_unknown(text: str, seconds: float | None) -> None:
    assert parse_cpu_s(text) == seconds


@pytest.mark.parametrize(
    ("text", "gpus", "kind"),
    [
        ("", None, None),
        ("cpu=8,mem=64G,node=1,billing=8", 0, None),
        ("cpu=8,gres/gpu=2", 2, None),
        ("gres/gpu:a100=1,gres/gpu=1", 1, "a100"),
        ("gres/gpu=4,gres/gpu:a100=4", 4, "a100"),
        ("gres/gpu:a100=3", 3, "a100"),
        ("gres/gpu:a100=3,gres/gpu:v100=1", 4, None),
        ("gres/gpu:a100=3,gres/gpu:v100=0,gres/gpu=3", 3, "a100"),
        ("gres/gpu:1g.10gb=2,gres/gpu=2", 2, "1g.10gb"),
        ("gres/gpu=0", 0, None),
        (f"gres/gpu={NO_VAL64}", None, None),
        ("gres/gpu:a100=x", None, "a100"),
        ("gres/gpu:a100=1,gres/gpu:v100=", None, None),
        ("cpu=1,gres/shard=4", None, None),
        ("cpu=1,gres/mps:a100=50", None, None),
        ("cpu=1,gres/shard=4,gres/gpu=1", 1, None),
        ("cpu=1,gres/gpumem=1G,gres/gpuutil=5", 0, None),
        ("billing=4", None, None),
        ("nonsense", None, None),
        ("=5,,=", None, None),
    ],
)
def test_gpus_are_counted_once(text: str, gpus: int | None, kind: str | None) -> None:
    tres = parse_tres(text)
    assert (count_gpus(tres), gpu_type(tres)) == (gpus, kind)


@pytest.mark.parametrize(
    ("cells", "limit"),
    [
        ({"AllocTRES": "cpu=2,mem=64G,node=2"}, 64 * GIB),
        ({"AllocTRES": "cpu=2,mem=500,node=1"}, 500 << 20),
        ({"AllocTRES": "cpu=2,node=1", "ReqMem": "4G"}, 4 * GIB),
        ({"ReqMem": "4000"}, 4000 << 20),
        ({"ReqMem": "4Gn", "NNodes": "3"}, 12 * GIB),
        ({"ReqMem": "4Gc", "AllocCPUS": "8"}, 32 * GIB),
        ({"ReqMem": "1.5Gc", "AllocTRES": "cpu=4,node=1", "AllocCPUS": "2"}, 6 * GIB),
        ({"ReqMem": "4Gc", "AllocCPUS": "0"}, None),
        ({"ReqMem": "4Gn", "NNodes": NO_VAL64, "NodeList": "c[1-2]"}, 8 * GIB),
        ({"ReqMem": "4Gn", "NNodes": NO_VAL64, "NodeList": "None assigned"}, None),
        ({"ReqMem": "0n"}, None),
        ({"ReqMem": "0"}, None),
        ({"ReqMem": "?"}, None),
        ({"ReqMem": "Gn"}, None),
        ({"ReqMem": "..."}, None),
        ({"ReqMem": "9" * 5000}, None),
        ({"AllocTRES": "mem=16E", "ReqMem": "UNLIMITED"}, None),
        ({}, None),
    ],
)
def test_the_memory_limit_is_of_all_nodes(cells: dict[str, str], limit: int | None) -> None:
    assert one(**cells).memory_limit_bytes == limit


@pytest.mark.parametrize(
    ("cells", "cpu_s", "memory"),
    [
        ({"TotalCPU": "01:00.5", "TRESUsageInTot": "cpu=00:01:00,mem=100K"}, 60.5, 102400),
        # Slurm 25.05, and processes that their parent did not wait for.
        ({"TotalCPU": "00:00:00", "TRESUsageInTot": "cpu=00:01:00,mem=1M"}, 60.0, 1 << 20),
        ({"TotalCPU": "00:00.002", "TRESUsageInTot": "cpu=01:00:00"}, 3600.0, None),
        ({"TotalCPU": "00:00:00", "TRESUsageInTot": "cpu=00:00:00,mem=0"}, None, None),
        ({"TRESUsageInTot": "energy=0"}, None, None),
        ({"MaxRSS": "100K", "NTasks": "4"}, None, 102400),
        ({"MaxRSS": "100K"}, None, 102400),
        ({"MaxRSS": "0", "NTasks": "4"}, None, None),
        ({"MaxRSS": NO_VAL64, "NTasks": "1"}, None, None),
        ({"MaxRSS": "5K", "NTasks": "2", "TRESUsageInTot": "mem=7K"}, None, 7168),
        ({"TRESUsageInTot": f"cpu=00:00:05,mem={NO_VAL64}"}, 5.0, None),
        ({"TotalCPU": "INVALID"}, None, None),
    ],
)
def test_a_step_says_what_it_used(
    cells: dict[str, str], cpu_s: float | None, memory: int | None
) -> None:
    step = step_usage("0", cells)
    assert (step.cpu_s, step.memory_bytes) == (cpu_s, memory)


@pytest.mark.parametrize(
    ("total", "util", "memory"),
    [
        ("gres/gpumem=2G,gres/gpuutil=180", 180, 2 * GIB),
        ("gres/gpumem=0,gres/gpuutil=0", 0, 0),
        (f"gres/gpumem={NO_VAL64},gres/gpuutil={NO_VAL64}", None, None),
        ("cpu=00:00:01", None, None),
    ],
)
def test_gpu_peaks_of_a_step(total: str, util: int | None, memory: int | None) -> None:
    step = step_usage("0", {"TRESUsageInTot": total})
    assert (step.gpu_util_peak, step.gpu_memory_peak_bytes) == (util, memory)


@pytest.mark.parametrize(
    ("submit_line", "steps", "interactive"),
    [
        ("salloc -N1", (), True),
        ("/usr/bin/salloc --gpus=1 bash", (), True),
        ("sbatch job.sh", (), False),
        ("srun --gpus=1 --pty bash", (), True),
        ("srun --pty=0 bash", (), True),
        ("srun python train.py", (), False),
        ("sbatch job.sh", ("interactive",), True),
        ("", ("batch",), None),
        ("flux submit", (), None),
    ],
)
def test_who_sat_at_it(submit_line: str, steps: tuple[str, ...], interactive: bool | None) -> None:
    (usage,) = read(line("7", SubmitLine=submit_line), *(line(f"7.{step}") for step in steps))
    assert usage.interactive is interactive


@pytest.mark.parametrize(
    ("row_id", "job", "step"),
    [
        ("7.batch", "7", "batch"),
        ("7.extern", "7", "extern"),
        ("7.0", "7", "0"),
        ("7.0+1", "7", "0+1"),
        ("7_3.batch", "7_3", "batch"),
        ("7+1.0", "7+1", "0"),
        ("7.TBD", "7", "TBD"),
    ],
)
def test_a_step_is_its_jobs(row_id: str, job: str, step: str) -> None:
    (usage,) = read(line(job), line(row_id))
    assert (usage.record.job_id, usage.record.name) == (job, "job")
    assert [row.step for row in usage.steps] == [step]


@pytest.mark.parametrize(
    ("row_id", "ids"),
    [
        ("7_[0-2%1]", ["7_0", "7_1", "7_2"]),
        ("7_[1,3,...]", ["7_1", "7_3"]),
        ("7_[1,3,...", ["7_1", "7_3"]),
        ("7_[0-99999999999999]", []),
    ],
)
def test_waiting_tasks_are_a_job_each(row_id: str, ids: list[str]) -> None:
    found = read(line(row_id, State="PENDING", AllocCPUS="0", Start="Unknown", NodeList=""))
    assert [usage.record.job_id for usage in found] == ids
    assert all((usage.alloc_gpus, usage.alloc_cpus) == (None, None) for usage in found)


def test_states_and_limits_in_slurms_words() -> None:
    cancelled = one(State="CANCELLED by 1000", TimelimitRaw="UNLIMITED").record
    assert (cancelled.state, cancelled.time_limit_min) == (JobState.CANCELLED, None)
    assert one(TimelimitRaw="Partition_Limit").record.time_limit_min is None
    assert one(TimelimitRaw="4294967295").record.time_limit_min is None
    assert one(ElapsedRaw=NO_VAL64).record.elapsed_s is None
    assert one(ElapsedRaw="9" * 5000, ExitCode="9" * 5000 + ":0").record.exit_code is None


def test_each_attempt_keeps_its_own_steps() -> None:
    first, second = read(
        line("7", State="REQUEUED", Submit="1700000000"),
        line("7.batch", TotalCPU="00:10.0"),
        line("8"),
        line("7", Submit="1700000200"),
        line("7.batch", TotalCPU="00:20.0"),
        line("7.0", TotalCPU="00:30.0"),
    )[0::2]
    assert [step.cpu_s for step in first.steps] == [10.0]
    assert [step.cpu_s for step in second.steps] == [20.0, 30.0]


def test_a_step_without_its_job_is_nobodys() -> None:
    assert read(line("7.batch"), line("8")) == read(line("8"))


def test_an_older_sacct_has_fewer_columns() -> None:
    columns = [name for name in COLUMNS if name not in {"SubmitLine", "AdminComment"}]
    text = MARK.join({"JobID": "7", "JobName": "a\nb"}.get(name, "") for name in columns)
    (usage,) = parse_usage(text + "\n", columns, MARK)
    assert (usage.record.name, usage.admin_comment) == ("a\nb", None)


def test_banners_and_errors_are_no_jobs() -> None:
    assert parse_usage("", COLUMNS, MARK) == []
    assert parse_usage("sacct: error: no\nwelcome to c1\n\n", COLUMNS, MARK) == []


ENDED = JobRecord(
    job_id="7",
    state=JobState.COMPLETED,
    source=SlurmSource.SACCT,
    elapsed_s=100,
    start_time=1.0,
    end_time=101.0,
    nodes=("c1",),
)


def job(*steps: StepUsage, **values: int | float | str | None) -> JobUsage:
    return JobUsage(record=ENDED, alloc_nodes=1, alloc_cpus=2, steps=steps, **values)  # type: ignore[arg-type]


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


RUNNING = {"State": "RUNNING", "End": "Unknown", "AllocTRES": "cpu=2,mem=1G,node=1"}


def running_job() -> JobUsage:
    (usage,) = read(
        line("7", TotalCPU="00:02.0", **RUNNING),
        line("7.batch", **RUNNING),
        line("7.extern", **RUNNING),
        line("7.0", State="FAILED", TotalCPU="00:02.0", TRESUsageInTot="mem=9M"),
        line("7.1", **RUNNING),
    )
    return usage


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
RECORDED = [
    replace(usage, poll_s=1)
    for usage in parse_usage(slurm_said("sacct-usage-22.05.8.txt"), COLUMNS, MARK)
]


def recorded(job_id: str) -> JobUsage:
    return next(usage for usage in reversed(RECORDED) if usage.record.job_id == job_id)


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
    (usage,) = parse_usage(slurm_said("sacct-usage-running-22.05.8.txt"), COLUMNS, MARK)
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


# Peaks ----------------------------------------------------------------------------------------


def test_a_running_steps_peak_is_the_highest_it_had_and_not_what_it_has_now() -> None:
    # Each held much for its first 4 s, and little when sstat was asked.
    steps = {step.step: step for _, step in parse_sstat(slurm_said("sstat-peak-22.05.8.txt"))}
    assert steps["1"].memory_bytes == 320600 << 10
    assert not steps["1"].memory_at_least
    # Of two tasks it says what the larger had; sacct said 231660K when they had ended.
    assert (steps["0"].memory_bytes, steps["0"].memory_at_least) == (115864 << 10, True)


def gpus(total: str, most: str, tasks: str = "1", util: str = "600") -> dict[str, str]:
    """What a step of one node says that had one GPU for so many seconds."""
    return {
        "NTasks": tasks, "ElapsedRaw": util, "AllocTRES": "gres/gpu=1,node=1", "MaxRSS": "2G",
        "TotalCPU": "09:00.0", "TRESUsageInTot": f"cpu=00:09:00,mem=2G,{total}",
        "TRESUsageInMax": f"mem=2G,{most}",
    }  # fmt: skip


LOW, HIGH = "gres/gpumem=1G,gres/gpuutil=7", "gres/gpumem=30G,gres/gpuutil=87"


def test_a_running_gpus_peak_is_the_highest_poll() -> None:
    cells = gpus(LOW, HIGH)
    row = "|".join(cells[name] for name in ("NTasks", "MaxRSS", "TRESUsageInTot", "TRESUsageInMax"))
    ((_, live),) = parse_sstat(f"7.0|{row}\n")
    usage = replace(running_job(), alloc_gpus=1, steps=())
    summary = running_answer([usage], [live]).summary
    assert summary["gpu_utilization_peak_percent"] == 87
    assert summary["gpu_memory_peak_bytes"] == 30 * GIB


@pytest.mark.parametrize(
    ("cells", "percent", "memory", "codes"),
    [
        # Slurm before 24: at the end, only memory is put where the last poll was.
        (gpus(LOW, HIGH), 87, 30 * GIB, []),
        (gpus(HIGH, HIGH), 87, 30 * GIB, []),
        (gpus(LOW, HIGH, tasks="2"), 87, 30 * GIB, ["at_least"]),
        (gpus(HIGH, LOW, tasks="2"), 87, 30 * GIB, []),
        (gpus("gres/gpumem=0,gres/gpuutil=0", "gres/gpumem=0,gres/gpuutil=0"), 0, 0, []),
        # Of seconds: nobody looked.
        (gpus(HIGH, HIGH, util="40"), None, None, ["not_measured"] * 2),
        (gpus("gres/gpumem=0,gres/gpuutil=0", "", util="9"), None, None, ["not_measured"] * 2),
        (
            {"TRESUsageInTot": "mem=0,gres/gpumem=0,gres/gpuutil=0"},
            None,
            None,
            ["not_measured"] * 2,
        ),
    ],
)
def test_gpu_peaks_are_known_if_slurm_looked(
    cells: dict[str, str], percent: int | None, memory: int | None, codes: list[str]
) -> None:
    job = {"AllocTRES": "cpu=2,gres/gpu=1,node=1", "ElapsedRaw": cells.get("ElapsedRaw", "600")}
    (usage,) = read(line("7", **job), line("7.0", **{"ElapsedRaw": "600"} | cells))
    (answer,) = slurm_answers([usage])
    assert answer.summary["gpu_utilization_peak_percent"] == percent
    assert answer.summary["gpu_memory_peak_bytes"] == memory
    assert [remark.note.code for remark in answer.remarks] == codes


def step(name: str, seconds: int, memory: str, cpu: str = "00:00:00", **cells: str) -> str:
    return line(
        f"7.{name}",
        **{"ElapsedRaw": str(seconds), "NTasks": "1", "MaxRSS": memory, "TotalCPU": cpu} | cells,
        **({"TRESUsageInTot": f"cpu={cpu},mem={memory}"} if memory else {}),
    )


# After the steps whose moments are not given.
MOMENTS = {"Start": "1700000110", "End": "1700000120"}


@pytest.mark.parametrize(
    ("steps", "poll_s", "memory", "code"),
    [
        ([step("batch", 45, "896K", "00:03:00")], None, None, "not_measured"),
        ([step("batch", 200, "896K", "00:03:00")], None, None, "not_measured"),
        ([step("batch", 59, "5G")], None, None, "not_measured"),
        ([step("batch", 59, "5G")], 30, None, "not_measured"),
        ([step("batch", 60, "5G")], 30, 5 * GIB, None),
        ([step("batch", 5, "5G")], 1, 5 * GIB, None),
        ([step("batch", 900, "5G")], 600, None, "not_measured"),
        ([step("batch", 900, "5G")], 0, None, "not_measured"),
        ([step("extern", 900, "12K")], 30, None, "not_measured"),
        ([step("batch", 900, "0"), step("extern", 900, "12K")], 30, None, "not_measured"),
        ([step("batch", 900, "5G"), step("extern", 900, "12K")], 30, 5 * GIB, None),
        # What was adopted came and went: its sum was never there at once, one process of it was.
        (
            [
                step("batch", 900, "20G"),
                step("extern", 900, "163G", NTasks="1", MaxRSS="1G"),
            ],
            30, 20 * GIB, None,
        ),
        (
            [
                step("batch", 900, "20G"),
                step("extern", 900, "163G", NTasks="1", MaxRSS="12G"),
            ],
            30, 20 * GIB, "at_least",
        ),
        (
            [
                step("batch", 900, "5G"),
                step("extern", 900, "163G", NTasks="1", MaxRSS="12G"),
            ],
            30, None, "not_measured",
        ),
        # The shell was seen, what worked was not.
        (
            [step("batch", 900, "5M", "00:01"), step("0", 20, "4G", "00:40")],
            30, None, "not_measured",
        ),
        (
            [step("batch", 900, "5M"), step("0", 2, "9M"), step("1", 890, "4G", "10:00")],
            30, 4 * GIB, None,
        ),
        # Two side by side; one after the other.
        ([step("0", 900, "4G"), step("1", 900, "3G")], 30, 4 * GIB, "at_least"),
        ([step("0", 900, "4G"), step("1", 900, "3G", **MOMENTS)], 30, 4 * GIB, None),
        # Two side by side after the largest: more than it, together; or less.
        ([step("0", 900, "4G"), *(step(n, 900, "3G", **MOMENTS) for n in "12")],
         30, 4 * GIB, "at_least"),
        ([step("0", 900, "4G"), *(step(n, 900, "2G", **MOMENTS) for n in "12")],
         30, 4 * GIB, None),
        # Three, of which only two were there at once.
        ([step("0", 900, "5G"), step("1", 900, "3G", Start="1700000110", End="1700000115"),
          step("2", 900, "2G", **MOMENTS), step("3", 900, "3G", Start="1700000115", End="Unknown")],
         30, 5 * GIB, None),
        # Seen too seldom, and much even so.
        ([step("0", 900, "4G", "10:00"), step("1", 20, "6G", "00:20", **MOMENTS)],
         30, 6 * GIB, "at_least"),
        ([], 30, None, None),
    ],
)  # fmt: skip
def test_memory_is_known_if_slurm_looked(
    steps: list[str], poll_s: float | None, memory: int | None, code: str | None
) -> None:
    elapsed = "900" if poll_s else "200"
    limit = {"AllocTRES": "cpu=4,mem=64G,node=1", "ElapsedRaw": elapsed}
    (usage,) = read(line("7", **limit), *steps)
    (answer,) = slurm_answers([replace(usage, poll_s=poll_s)])
    assert answer.summary["memory_peak_bytes"] == memory
    assert (answer.summary["memory_efficiency_percent"] is None) == (memory is None)
    codes = [remark.note.code for remark in answer.remarks if "memory" in remark.note.text]
    assert codes == ([code] if code else [])


def test_steps_side_by_side_on_one_of_two_nodes_make_the_peak_a_lower_bound() -> None:
    alone = step("0", 900, "400M", NTasks="2", NodeList="c[1-2]", NNodes="2")
    beside = [step("1", 900, "300M", **MOMENTS), step("2", 900, "350M", **MOMENTS)]
    job = line("7", AllocTRES="cpu=4,mem=2000M,node=2", NNodes="2", ElapsedRaw="900")
    (answer,) = slurm_answers(read(job, alone, *beside))
    assert answer.summary["memory_efficiency_percent"] == 20
    (remark,) = (remark for remark in answer.remarks if "memory" in remark.note.text)
    assert remark.at_least
    assert "memory_efficiency_percent" in remark.figures


def gpu_step(name: str, memory: str, util: str, gpus: str = "1", **cells: str) -> str:
    tres = f"gres/gpumem={memory},gres/gpuutil={util},mem=1M"
    given = {"AllocTRES": f"gres/gpu={gpus},node=1", "TRESUsageInTot": tres}
    return line(f"7.{name}", NTasks="1", ElapsedRaw="900", **given | cells)


@pytest.mark.parametrize(
    ("gpus", "steps", "low"),
    [
        (1, [gpu_step("0", "9G", "40"), gpu_step("1", "4G", "1")], ["gpu_memory_peak_bytes"]),
        (1, [gpu_step("0", "9G", "40"), gpu_step("1", "1M", "30")],
         ["gpu_utilization_peak_percent", "gpu_memory_peak_bytes"]),
        (1, [gpu_step("0", "9G", "40"), gpu_step("1", "4G", "30", **MOMENTS)], []),
        # Each on a GPU of its own; both on both.
        (2, [gpu_step("0", "9G", "40"), gpu_step("1", "4G", "30")], []),
        (2, [gpu_step("0", "9G", "80", "2"), gpu_step("1", "4G", "60", "2")],
         ["gpu_utilization_peak_percent", "gpu_memory_peak_bytes"]),
        # What is used in full cannot be used more.
        (1, [gpu_step("0", "9G", "98"), gpu_step("1", "1M", "30")], []),
    ],
)  # fmt: skip
def test_steps_side_by_side_on_gpus_make_their_peaks_lower_bounds(
    gpus: int, steps: list[str], low: list[str]
) -> None:
    job = line("7", AllocTRES=f"cpu=4,gres/gpu={gpus},node=1", ElapsedRaw="900")
    (answer,) = slurm_answers(read(job, *steps))
    gpu_marks = [mark for mark in answer.remarks if mark.at_least and "GPU" in mark.note.text]
    assert [name for mark in gpu_marks for name in mark.figures] == low


@pytest.mark.parametrize(
    ("told", "poll"),
    [
        ("30", 30),
        ("0", 0),
        ("task=15,energy=60", 15),
        ("energy=60,task=15", 15),
        ("energy=60", None),
        ("", None),
        ("(null)", None),
        ("9" * 400, None),
    ],
)
def test_how_often_slurm_looks(told: str, poll: float | None) -> None:
    assert poll_s({"JobAcctGatherFrequency": told}) == poll


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


# Attempts -------------------------------------------------------------------------------------


def numbered(*lines: str) -> list[JobUsage]:
    """Return a job's attempts as `job_usage` does."""
    return [
        replace(usage, record=replace(usage.record, restarts=number))
        for number, usage in enumerate(read(*lines))
    ]


def lows(answer: Answer) -> dict[str, str]:
    """Return which figures are lower bounds, and the notes that say so."""
    return {
        name: mark.note.text for mark in answer.remarks if mark.at_least for name in mark.figures
    }


def requeued_recorded(job_id: str) -> list[JobUsage]:
    text = slurm_said("sacct-usage-requeued-22.05.8.txt")
    found = [row for row in parse_usage(text, COLUMNS, MARK) if row.record.job_id == job_id]
    return [
        replace(row, poll_s=1, record=replace(row.record, restarts=number))
        for number, row in enumerate(found)
    ]


HOUR = {"ElapsedRaw": "3600", "AllocTRES": "cpu=2,mem=10G,node=1"}


def ran(memory: str, cpu: str, **cells: str) -> tuple[str, str]:
    """Return the rows of an attempt of an hour."""
    return line("7", **HOUR | cells), step("batch", 3600, memory, cpu)


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


# Text -----------------------------------------------------------------------------------------

USERS = st.text(max_size=60) | st.text(alphabet=f"{COLUMN}|\n\r\x1e 0127._+[]-=,", max_size=60)
FORGED = st.just("x\n" + line("8", User="mallory", JobName="forged").replace(MARK, COLUMN))
FREE_TEXT = (USERS | FORGED).filter(lambda text: MARK not in text)


@given(st.tuples(*[FREE_TEXT] * 5), FREE_TEXT)
def test_no_users_text_moves_another_jobs_row(texts: tuple[str, ...], name: str) -> None:
    theirs = dict(zip(FREE, texts, strict=True))
    plain = read(line("6"), line("8"), line("8.batch", TotalCPU="00:05.0"), line("9"))
    found = read(
        line("6"),
        line("7", **theirs),
        line("7.0", JobName=name, SubmitLine=name),
        line("8"),
        line("8.batch", TotalCPU="00:05.0"),
        line("9"),
    )
    assert [usage for usage in found if usage.record.job_id != "7"] == plain
    (seven,) = [usage for usage in found if usage.record.job_id == "7"]
    assert seven.record.name == texts[-1]
    assert [step.step for step in seven.steps] == ["0"]
    assert seven.admin_comment in (None, texts[0].strip())


SLURMS = st.text(alphabet="0123456789.:-_+[]=,/KMGTPEnc\n" + COLUMN + "gresuptalm²٣", max_size=40)
ANY = st.text(max_size=40) | SLURMS | st.text("9", min_size=300, max_size=5000)


@given(ANY)
def test_no_text_is_a_crash_or_an_invented_zero(text: str) -> None:
    for found in (parse_size(text), parse_count(text), parse_cpu_s(text)):
        assert found is None or found > 0 or not set(text) & set("123456789")
        assert found is None or found >= 0
    for found in (parse_size(text), parse_count(text), parse_cpu_s(text)):
        assert found != 0 or set(text.strip()) <= set("0.:-KMGTPEiB")
    tres = parse_tres(text)
    count_gpus(tres)
    gpu_type(tres)
    list(parse_sstat(text))
    parse_usage(text, COLUMNS)
    parse_usage(text, COLUMNS, MARK)


@given(st.dictionaries(st.sampled_from(COLUMNS), ANY), st.dictionaries(st.sampled_from(FIXED), ANY))
def test_no_row_is_a_crash_or_an_invented_zero(cells: dict[str, str], step: dict[str, str]) -> None:
    rows = line("7", **{**cells, "JobID": "7"}) + "\n" + line("7.0", **{**step, "JobID": "7.0"})
    for usage in parse_usage(rows, COLUMNS, MARK):
        for answer in slurm_answers([usage]):
            assert answer.summary.get("cpu_s") != 0
            assert answer.summary.get("memory_peak_bytes") != 0
            if not answer.summary.get("gpu_hours"):
                zero = usage.alloc_gpus == 0 or usage.record.elapsed_s == 0
                assert answer.summary.get("gpu_hours") is None or zero
        running_answer([usage], usage.steps)
        list(slurm_notes([usage]))


@given((st.text(max_size=30) | SLURMS).filter(lambda text: not set(text) & set("0\n")))
def test_a_cell_without_a_zero_never_becomes_one(text: str) -> None:
    usage = one(**dict.fromkeys(("AllocTRES", "ElapsedRaw", "NNodes", "AllocCPUS", "ReqMem"), text))
    # A list that names other things says that there are no GPUs.
    assert usage.alloc_gpus != 0 or "=" in text
    for value in (usage.record.elapsed_s, usage.alloc_nodes, usage.alloc_cpus):
        assert value != 0
    step = step_usage("0", dict.fromkeys(("TRESUsageInTot", "MaxRSS", "NTasks", "TotalCPU"), text))
    for value in (step.tasks, step.cpu_s, step.memory_bytes, step.gpu_util_peak):
        assert value != 0
