from dataclasses import replace

import pytest

from hpckit.report.accounting import running_answer, slurm_answers
from hpckit.slurm.usage import parse_sstat, poll_s
from tests.unit.recorded import slurm_said
from tests.unit.usage import GIB, gpu_step, line, read, running_job, step


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
