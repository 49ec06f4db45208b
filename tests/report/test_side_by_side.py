"""Steps that share a node's cores and GPUs at one time, each with a sampler of its own."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import hpckit
from hpckit.report.job_samples import OWN_FOLDER
from hpckit.report.step_samples import own_of_step
from hpckit.report.unseen_steps import unseen_steps
from hpckit.slurm.usage_rows import StepUsage
from hpckit.stats.samples.collecting import read_columns
from hpckit.stats.samples.columns import Columns
from hpckit.stats.samples.encoding import encoder
from hpckit.stats.samples.records import (
    GpuSample,
    GpuSlow,
    GpuState,
    Header,
    Record,
    Sample,
    Slow,
    State,
    samples_files,
)
from hpckit.stats.summary.attempts import Span
from hpckit.stats.summary.curves import make_curves
from hpckit.stats.summary.summarise import Account, summarise
from tests.conftest import Answer
from tests.report.accounting import keep_accounts, row
from tests.report.html import data_of, read_html
from tests.report.made import BEGAN_US, START, table
from tests.unit.usage import job as usage_of

Cli = Callable[..., Answer]
GIB = 1 << 30
SECONDS = 600


def write(
    folder: Path,
    pid: int,
    *,
    used: float,
    cores: int = 1,
    kind: str = "proc",
    memory: Sequence[int] = (GIB,),
    late_s: int = 0,
    job_cores: int | None = 4,
    gpus: int = 0,
    host: str = "n1",
    ids: dict[str, str] | None = None,
) -> None:
    """A sampler of one step that uses so many cores, for ten minutes."""
    header = Header(
        host=host, boot_id="b", pid=pid, epoch_us=(START + late_s) * 10**6,
        mono_us=BEGAN_US + late_s * 10**6, interval_us=10**7, gpus=table(gpus, host), cores=cores,
        job_cores=job_cores, memory_limit_bytes=64 * GIB, cgroup=kind, ids=ids or {},
        gpu_method="slurm_job_gpus", summed=f"1:{pid}" if kind == "proc" else None,
    )  # fmt: skip
    # A cgroup's counter is that of the whole job; a step's own begins when it does.
    base = 0 if kind == "proc" else round(late_s * used * 10**6)
    rows: list[Record] = [
        Sample(  # type: ignore[call-arg]
            mono_us=BEGAN_US + (late_s + at) * 10**6 + pid * 1000,
            cpu_us=base + round(at * used * 10**6) + 70_000,
            memory_bytes=memory[min(at // 10, len(memory) - 1)],
            gpus=tuple(GpuSample(utilization_permille=100 * (1 + gpu)) for gpu in range(gpus)),
        )
        for at in range(0, SECONDS + 1, 10)
    ]
    slow = tuple(GpuSlow(temperature_c=40 + gpu) for gpu in range(gpus))  # type: ignore[call-arg]
    state = tuple(GpuState(ecc_corrected=gpu, confidence="verified") for gpu in range(gpus))
    rows += [Slow(mono_us=BEGAN_US, epoch_us=START * 10**6, gpus=slow)] if gpus else []
    rows += [State(mono_us=BEGAN_US, gpus=state)] if gpus else []
    folder.mkdir(parents=True, exist_ok=True)
    text = b"".join(map(encoder(gpus), (header, *rows)))
    (folder / f"{host}.r0.{pid}.jsonl").write_bytes(text)


def files(folder: Path) -> list[Columns]:
    found = [read_columns(file.path, file.restart) for file in samples_files(folder)]
    return [file for file in found if file]


def account(folder: Path) -> Account:
    span = Span(restart=0, start=START, end=START + SECONDS, hosts=("n1",), nodes=1, gpus=0)
    return summarise(files(folder), [span])


@pytest.mark.parametrize("used", [(0.5, 0.5, 0.5, 0.5), (0.2, 0.9, 0.4, 0.5)])
def test_each_step_has_used_its_own_cpu_time(tmp_path: Path, used: Sequence[float]) -> None:
    """Their counters begin and end at nearly the same values and moments: no sign of one."""
    for pid, each in enumerate(used, start=1):
        write(tmp_path, pid, used=each)
    found = account(tmp_path)
    (node,) = found.per_node
    assert (node.cores, node.cores_used) == (4, pytest.approx(2, rel=1e-3))
    assert found.summary.cpu_efficiency_percent == pytest.approx(50, rel=1e-3)
    assert found.summary.cpu_s == pytest.approx(SECONDS * 2, rel=1e-3)


def test_memory_of_steps_at_one_time_adds_up(tmp_path: Path) -> None:
    """The second one's peak comes when the first one has freed half of its own."""
    write(tmp_path, 1, used=1, memory=[8 * GIB] * 30 + [4 * GIB])
    write(tmp_path, 2, used=1, memory=[2 * GIB] * 40 + [7 * GIB])
    assert account(tmp_path).summary.memory_peak_bytes == 11 * GIB


def test_memory_of_steps_one_after_another_does_not(tmp_path: Path) -> None:
    write(tmp_path, 1, used=1, memory=[8 * GIB])
    write(tmp_path, 2, used=1, memory=[7 * GIB], late_s=SECONDS + 1)
    assert account(tmp_path).summary.memory_peak_bytes == 8 * GIB


def picture(folder: Path, name: str, seconds: int = SECONDS) -> set[float | None]:
    """The different values of a node's line in a page's picture."""
    span = Span(restart=0, start=START, end=START + seconds, hosts=("n1",), nodes=1, gpus=0)
    drawn = [read_columns(file.path, 0, drawn=True) for file in samples_files(folder)]
    curves = make_curves([file for file in drawn if file], [span], 20)
    assert curves
    (chart,) = (chart for chart in curves.charts if chart.name == name)
    return {value and round(value, 1) for curve in chart.curves for value in curve.mean}


def test_pictures_and_series_have_what_all_use(tmp_path: Path) -> None:
    for pid in range(1, 5):
        write(tmp_path, pid, used=0.5, memory=[2 * GIB])
    (lines,) = account(tmp_path).timelines
    cores, memory = lines.cores_used[0].values, lines.memory_bytes[0].values
    assert {value and round(value, 3) for value in cores} == {2.0}
    assert {*memory} == {8.0 * GIB}
    assert picture(tmp_path, "cpu_us") == {2.0}
    assert picture(tmp_path, "memory_bytes") == {8.0}


def test_pictures_of_steps_one_after_another_add_nothing_up(tmp_path: Path) -> None:
    """The second one begins within a bin of the first."""
    write(tmp_path, 1, used=1, memory=[2 * GIB])
    write(tmp_path, 2, used=1, memory=[2 * GIB], late_s=SECONDS + 10)
    assert picture(tmp_path, "cpu_us", 2 * SECONDS + 10) == {1.0}
    assert picture(tmp_path, "memory_bytes", 2 * SECONDS + 10) == {2.0}


def test_of_a_cgroup_both_tell_of_all_of_the_job(tmp_path: Path) -> None:
    """Two steps with two of four cores each, which all work: 100 %, not 200 %."""
    write(tmp_path, 1, used=4, cores=2, kind="v2", memory=[9 * GIB])
    write(tmp_path, 2, used=4, cores=2, kind="v2", memory=[9 * GIB])
    found = account(tmp_path)
    (node,) = found.per_node
    assert (node.cores, node.cores_used) == (4, pytest.approx(4, rel=1e-3))
    assert found.summary.cpu_efficiency_percent == pytest.approx(100, rel=1e-3)
    assert found.summary.memory_peak_bytes == 9 * GIB


@pytest.mark.parametrize(("sampled", "known"), [(1, False), (3, False), (4, True)])
def test_cpu_time_of_too_few_of_the_cores_is_not_the_jobs(
    tmp_path: Path, sampled: int, known: bool
) -> None:
    """Nobody sampled the other steps: accounting may know, and the samples do not."""
    for pid in range(1, sampled + 1):
        write(tmp_path, pid, used=1)
    found = account(tmp_path)
    assert (found.summary.cpu_efficiency_percent is not None) is known
    assert (found.summary.cpu_s is not None) is known
    assert found.per_node[0].cores == 4


def test_an_older_files_cores_are_those_of_its_step(tmp_path: Path) -> None:
    write(tmp_path, 1, used=1, cores=2, job_cores=None)
    found = account(tmp_path)
    assert (found.per_node[0].cores, found.summary.cpu_efficiency_percent) == (
        2,
        pytest.approx(50, rel=1e-3),
    )


def test_a_step_has_its_own_gpus_and_cores(tmp_path: Path) -> None:
    """Where nothing hides the job's other GPUs, its sampler reads them, too."""
    write(tmp_path, 1, used=0.5, gpus=4, ids={"step_id": "0", "step_gpus": "1,3"})
    (columns,) = map(own_of_step, files(tmp_path))
    assert [gpu.index for gpu, _ in columns.units()] == [1, 3]
    found = summarise([columns], [])
    assert [gpu.index for gpu in found.per_gpu] == [1, 3]
    assert found.summary.gpu_utilization_percent == pytest.approx(30)
    assert [gpu.temperature_peak_c for gpu in found.per_gpu] == [41, 43]
    (node,) = found.per_node
    assert (node.cores, node.cores_used) == (1, pytest.approx(0.5, rel=1e-3))
    assert (node.memory_peak_bytes, node.memory_limit_bytes) == (GIB, None)


@pytest.mark.parametrize("said", ["", "gpu:1", "0,1,2,3"])
def test_a_step_of_which_slurm_says_no_less_has_all(tmp_path: Path, said: str) -> None:
    write(tmp_path, 1, used=1, cores=4, gpus=4, ids={"step_gpus": said})
    (columns,) = map(own_of_step, files(tmp_path))
    assert [gpu.index for gpu, _ in columns.units()] == [0, 1, 2, 3]
    assert columns.header.memory_limit_bytes == 64 * GIB


def test_a_part_of_a_jobs_cgroup_is_not_known(tmp_path: Path) -> None:
    """What other steps use is in the job's counters: accounting tells the steps apart."""
    write(tmp_path, 1, used=4, cores=1, kind="v2", memory=[9 * GIB])
    (columns,) = map(own_of_step, files(tmp_path))
    found = summarise([columns], [])
    (node,) = found.per_node
    assert (node.cores_used, node.memory_peak_bytes, found.summary.cpu_s) == (None, None, None)
    write(tmp_path, 1, used=4, cores=4, kind="v2", memory=[9 * GIB])
    (columns,) = map(own_of_step, files(tmp_path))
    assert summarise([columns], []).per_node[0].cores_used == pytest.approx(4, rel=1e-3)


ENDED = {"Start": str(START), "End": str(START + SECONDS), "ElapsedRaw": str(SECONDS)}
CORES = {"AllocCPUS": "4", "AllocTRES": "cpu=4,mem=64G,node=1", "SubmitLine": "sbatch job.sh"}


def document(cli: Cli, word: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(cli("stats", word, "--json").out)
    return found


def step(name: str, cpu_s: float | None) -> StepUsage:
    return StepUsage(step=name, cpu_s=cpu_s)


def used(name: str, cpu: str, memory: str) -> dict[str, str]:
    tres = f"cpu={cpu},mem={memory}"
    cells = {"TotalCPU": cpu, "MaxRSS": memory, "TRESUsageInTot": tres, "NTasks": "1"}
    return row(f"77.{name}", User="", **ENDED | CORES | cells)


@pytest.mark.parametrize(
    ("ids", "kind", "unseen"),
    [
        ({}, "proc", True),
        ({"step_id": "1"}, "proc", True),
        ({"step_id": "0"}, "proc", False),
        ({}, "v2", False),  # the job's, whichever step reads it
    ],
)
def test_a_step_without_samples_is_in_no_sum_over_processes(
    here: Path, cli: Cli, ids: dict[str, str], kind: str, *, unseen: bool
) -> None:
    """`hpckit sample -- srun ...`: the sampler is in the script's step, the work in another."""
    job = row("77", WorkDir=str(here), **ENDED | CORES | {"TotalCPU": "00:30:02"})
    keep_accounts(
        here.parent / "bin", [job, used("batch", "00:00:02", "9M"), used("0", "00:30:00", "9G")]
    )
    named = {"job_id": "77"} | ids
    write(here / OWN_FOLDER / "77", 1, used=0.5, cores=4, kind=kind, memory=[GIB], ids=named)
    found = document(cli, "77")
    notes = [note["text"] for note in found["notes"] if note["code"] == "unseen_steps"]
    summary, (node,) = found["summary"], found["per_node"]
    assert bool(notes) is unseen
    if unseen:
        assert (summary["cpu_s"], summary["memory_peak_bytes"]) == (1802, 9 * GIB)
        assert (node["cores_used"], node["memory_peak_bytes"]) == (None, None)
        assert found["attempts"][0]["cpu_efficiency_percent"] is None
        assert notes[0].startswith("No samples are of step ")
    else:
        assert summary["cpu_s"] == pytest.approx(SECONDS * 0.5, rel=1e-3)
        assert (node["memory_peak_bytes"], summary["memory_peak_bytes"]) == (GIB, GIB)


@pytest.mark.parametrize("made_while_read", [True, False])
def test_pictures_of_a_step_are_of_its_gpus(here: Path, cli: Cli, *, made_while_read: bool) -> None:
    """A page makes its pictures as it reads the samples; a program may ask for them later."""
    job = row("77", WorkDir=str(here), **ENDED | CORES)
    keep_accounts(here.parent / "bin", [job, used("0", "00:30:00", "9G")])
    ids = {"job_id": "77", "step_id": "0", "step_gpus": "1,3"}
    write(here / OWN_FOLDER / "77", 1, used=0.5, gpus=4, ids=ids)
    if made_while_read:
        assert cli("stats", "77.0", "--html", "page.html").status == 0
    else:
        hpckit.stats("77.0").html("page.html")
    charts = data_of(read_html(here / "page.html"), "page-data")["charts"]
    (busy,) = (chart for chart in charts if chart["title"] == "GPU utilization")
    assert [line["label"] for line in busy["lines"]] == ["GPU 1", "GPU 3"]


@pytest.mark.long
@pytest.mark.parametrize(
    ("ids", "name"),
    [
        ({}, "batch"),
        ({"step_id": "0"}, "0"),
        ({"step_id": "4294967290"}, "interactive"),
    ],
)
def test_a_step_is_asked_for_by_accountings_name(
    here: Path, cli: Cli, ids: dict[str, str], name: str
) -> None:
    """A sampler that a job script starts is told no number of a step."""
    others = {"batch", "0", "interactive"} - {name}
    steps = [used(step, "00:05:00", "9M") for step in ("batch", "0", "interactive")]
    keep_accounts(here.parent / "bin", [row("77", WorkDir=str(here), **ENDED | CORES), *steps])
    write(here / OWN_FOLDER / "77", 1, used=0.5, cores=4, ids=ids)
    assert document(cli, f"77.{name}")["sources"] == ["samples", "sacct"]
    for other in sorted(others):
        found = document(cli, f"77.{other}")
        (said,) = (note["text"] for note in found["notes"] if note["code"] == "no_samples")
        assert (found["sources"], said.partition(".")[0]) == (
            ["sacct"],
            "This step has no samples",
        )


def test_what_a_script_does_beside_its_steps_is_little(here: Path, cli: Cli) -> None:
    job = row("77", WorkDir=str(here), **ENDED | CORES | {"TotalCPU": "00:10:04"})
    keep_accounts(
        here.parent / "bin", [job, used("batch", "00:00:04", "9M"), used("0", "00:10:00", "9G")]
    )
    write(here / OWN_FOLDER / "77", 1, used=1, cores=4, ids={"job_id": "77", "step_id": "0"})
    assert "unseen_steps" not in {note["code"] for note in document(cli, "77")["notes"]}


def test_of_a_running_job_its_nodes_tell_which_steps_work(tmp_path: Path) -> None:
    """`srun --overlap --jobid=77 hpckit sample -- sleep 60` beside a script that nobody samples."""
    write(tmp_path, 1, used=0.01, cores=4, ids={"job_id": "77", "step_id": "1"})
    seen = files(tmp_path)
    open_steps = [step("batch", None), step("0", None), step("1", None)]
    job = usage_of(*open_steps)
    assert unseen_steps([job], seen) == ()
    assert unseen_steps([job], seen, [step("0", 300.0), step("1", 2.0)]) == ("0",)
    assert unseen_steps([job], seen, [step("0", 4.0), step("1", 2.0)]) == ()
    # A step of that number in two attempts counts with both.
    again = usage_of(step("0", 4.0), step("extern", 900.0))
    assert unseen_steps([again, again], seen) == ("0",)
    assert unseen_steps([again], seen) == ()
    # What did next to nothing is not named; of many that did as little, all are.
    much = usage_of(step("batch", 0.03), step("0", 20.0))
    assert unseen_steps([much], seen) == ("0",)
    many = usage_of(*(step(str(number), 1.0) for number in range(2, 30)))
    assert len(unseen_steps([many], seen)) == 28


@pytest.mark.long
def test_a_step_over_components_is_of_each(here: Path, cli: Cli) -> None:
    """In all of them SLURM_JOB_ID is the first one's, and so is the folder's name."""
    first = row("77+0", JobIDRaw="77", WorkDir=str(here), **ENDED | CORES)
    second = first | {"JobID": "77+1", "JobIDRaw": "78", "NodeList": "n2"}
    keep_accounts(here.parent / "bin", [first, second])
    for pid, host in ((1, "n1"), (2, "n2")):
        ids = {"job_id": "77", "step_id": "0"}
        write(here / OWN_FOLDER / "77", pid, used=pid, cores=4, host=host, ids=ids)
    for word, host, cores in (("77+0", "n1", 1), ("77+1", "n2", 2)):
        found = document(cli, word)
        assert [(node["host"], round(node["cores_used"], 2)) for node in found["per_node"]] == [
            (host, cores)
        ]
        assert {note["code"] for note in found["notes"]}.isdisjoint({"unmatched", "no_samples"})
