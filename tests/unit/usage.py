"""Rows of accounting as sacct writes them, and those of a real Slurm."""

from dataclasses import replace

from hpckit.slurm.rows import COLUMN
from hpckit.slurm.states import JobRecord, JobState, SlurmSource
from hpckit.slurm.usage_rows import FIXED, FREE, JobUsage, StepUsage, parse_usage
from tests.unit.recorded import slurm_said

COLUMNS = (*FIXED, *FREE)
# Those of real Slurms' answers that were recorded before more was asked.
RECORDED_COLUMNS = tuple(name for name in COLUMNS if name != "ReqTRES")
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


_OLD_COLUMNS = [name for name in COLUMNS if name != "ReqTRES"]
RECORDED = [
    replace(usage, poll_s=1)
    for usage in parse_usage(slurm_said("sacct-usage-22.05.8.txt"), _OLD_COLUMNS, MARK)
]


def recorded(job_id: str) -> JobUsage:
    return next(usage for usage in reversed(RECORDED) if usage.record.job_id == job_id)


def step(name: str, seconds: int, memory: str, cpu: str = "00:00:00", **cells: str) -> str:
    return line(
        f"7.{name}",
        **{"ElapsedRaw": str(seconds), "NTasks": "1", "MaxRSS": memory, "TotalCPU": cpu} | cells,
        **({"TRESUsageInTot": f"cpu={cpu},mem={memory}"} if memory else {}),
    )


# After the steps whose moments are not given.
HOUR = {"ElapsedRaw": "3600", "AllocTRES": "cpu=2,mem=10G,node=1"}


def ran(memory: str, cpu: str, **cells: str) -> tuple[str, str]:
    """Return the rows of an attempt of an hour."""
    return line("7", **HOUR | cells), step("batch", 3600, memory, cpu)


def numbered(*lines: str) -> list[JobUsage]:
    """Return a job's attempts as `job_usage` does."""
    return [
        replace(usage, record=replace(usage.record, restarts=number))
        for number, usage in enumerate(read(*lines))
    ]


def gpu_step(name: str, memory: str, util: str, gpus: str = "1", **cells: str) -> str:
    tres = f"gres/gpumem={memory},gres/gpuutil={util},mem=1M"
    given = {"AllocTRES": f"gres/gpu={gpus},node=1", "TRESUsageInTot": tres}
    return line(f"7.{name}", NTasks="1", ElapsedRaw="900", **given | cells)
