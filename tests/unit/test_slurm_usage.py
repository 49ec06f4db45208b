import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpckit.report.accounting import running_answer, slurm_answers, slurm_notes
from hpckit.slurm.rows import (
    COLUMN,
    count_gpus,
    gpu_type,
    parse_count,
    parse_cpu_s,
    parse_size,
    parse_tres,
)
from hpckit.slurm.states import JobState
from hpckit.slurm.usage import parse_sstat
from hpckit.slurm.usage_rows import FIXED, FREE, parse_usage, step_usage
from tests.unit.usage import COLUMNS, GIB, INFINITE, MARK, NO_VAL64, line, one, read


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
        ("gres/gpu:a100=1,gres/gpu=3", 3, None),  # the others' type is not in the list
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


@pytest.mark.parametrize(
    ("nodes", "whole", "batch", "each"),
    [
        (2, "3000M", "1500M", 1500 << 20),
        (3, "100G", "34133M", 102400 * 2**20 // 3),
        # By core (--mem-per-cpu): four cores of five are on the first node.
        (2, "3000M", "2400M", None),
        (1, "3000M", None, 3000 << 20),
        # Of srun or salloc: five cores are not the same on two nodes.
        (2, "3000M", None, None),
        (5, "5000M", None, 1000 << 20),
    ],
)
def test_a_nodes_memory_is_known_where_all_nodes_have_the_same(
    nodes: int, whole: str, batch: str | None, each: int | None
) -> None:
    given = f"cpu=5,mem={whole},node={nodes}"
    rows = [line("7", AllocTRES=given, NNodes=str(nodes))]
    rows += [line("7.batch", AllocTRES=f"cpu=4,mem={batch},node=1")] if batch else []
    (usage,) = read(*rows)
    assert usage.memory_limit_bytes_per_node == each
