"""sacct's rows with what jobs and their steps used: pure functions of text."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from hpckit.slurm.record import JobRecord, each_task, text_or_none
from hpckit.slurm.rows import COLUMN, SACCT_FORMAT, sacct_record
from hpckit.slurm.tres import (
    count_gpus,
    gpu_type,
    parse_count,
    parse_cpu_s,
    parse_size,
    parse_tres,
)

_RECORD = SACCT_FORMAT.split(",")
# Numbers and words of Slurm's first. Then free text, which may hold newlines: AdminComment before
# what users write, so that none of theirs can pass for it, and the name last.
FIXED = (
    *_RECORD[:-1],
    *("NNodes", "NTasks", "AllocCPUS", "AllocTRES", "ReqMem", "TotalCPU", "MaxRSS"),
    *("TRESUsageInTot", "TRESUsageInMax"),
)
FREE = ("AdminComment", "Comment", "WorkDir", "SubmitLine", "JobName")
# A step of a heterogeneous kind is `7.0+1`; a list of tasks may be cut short: `7_[1,3,...]`.
_ROW_ID = re.compile(r"(\d{1,20}(?:[_+](?:\d{1,20}|\[[^\]]*\]?))?)(?:\.([\w+]+))?", re.ASCII)
_REQUESTED_MEMORY = re.compile(r"([\d.]+[KMGTPE]?)([nc]?)", re.ASCII)


@dataclass(frozen=True, kw_only=True, slots=True)
class StepUsage:
    """What one step of a job used; None is what accounting does not know.

    Attributes:
        step: `batch`, `extern`, `interactive`, or its number; `0+1` is a component of one.
        cpu_s: CPU seconds of all its tasks.
        memory_bytes: its highest use: Slurm's sum over tasks of each one's peak.
        gpu_util_peak: Slurm's gres/gpuutil: percents added up over GPUs and processes, the highest
            of all polls (gres.shtml: a high-water mark). Not a mean.
        gpu_memory_peak_bytes: gres/gpumem, the same way.
    """

    step: str
    name: str | None = None
    state: str | None = None
    elapsed_s: int | None = None
    tasks: int | None = None
    cpus: int | None = None
    gpus: int | None = None
    cpu_s: float | None = None
    memory_bytes: int | None = None
    gpu_util_peak: int | None = None
    gpu_memory_peak_bytes: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class JobUsage:
    """One attempt of a job, and what it was given and used.

    Attributes:
        alloc_gpus: 0 if its allocation has none; None if the allocation is not known.
        memory_limit_bytes: on all nodes together.
        interactive: whether salloc or `srun --pty` started it; None if Slurm does not say.
        total_cpu_s: CPU seconds of all steps.
    """

    record: JobRecord
    alloc_nodes: int | None = None
    alloc_cpus: int | None = None
    alloc_gpus: int | None = None
    gpu_type: str | None = None
    memory_limit_bytes: int | None = None
    total_cpu_s: float | None = None
    work_dir: str | None = None
    submit_line: str | None = None
    comment: str | None = None
    admin_comment: str | None = None
    interactive: bool | None = None
    steps: tuple[StepUsage, ...] = ()

    @property
    def memory_limit_bytes_per_node(self) -> int | None:
        """The limit on each node, as Slurm gives every node the same."""
        if self.memory_limit_bytes is None or not self.alloc_nodes:
            return None
        return self.memory_limit_bytes // self.alloc_nodes


def parse_usage(text: str, columns: Sequence[str], mark: str = COLUMN) -> list[JobUsage]:
    """Read what sacct printed with these columns: one value per attempt, in sacct's order.

    `mark` parted the columns. Where it is a text that no user can know, none of theirs can pass
    for a column or a row.
    """
    found: list[tuple[dict[str, str], list[StepUsage]]] = []
    newest: dict[str, list[StepUsage]] = {}
    for row in _rows(text, columns, mark):
        job_id, step = _parts(row["JobID"])
        if not step:
            newest[job_id] = []
            found.append((row, newest[job_id]))
        elif job_id in newest:
            newest[job_id].append(step_usage(step, row))
    usages = (_job_usage(row, tuple(steps)) for row, steps in found)
    return [replace(usage, record=task) for usage in usages for task in each_task(usage.record)]


def step_usage(step: str, row: Mapping[str, str]) -> StepUsage:
    """Read one step's columns, sacct's or sstat's.

    Slurm's 0 of CPU or memory is that of a step it never polled (slurm2sql issue 22): unknown.
    """
    total = parse_tres(row.get("TRESUsageInTot", ""))
    tasks = parse_count(row.get("NTasks", ""))
    largest = parse_size(row.get("MaxRSS", ""))
    memory = parse_size(total.get("mem", "")) or (largest * tasks if largest and tasks else None)
    return StepUsage(
        step=step,
        name=text_or_none(row.get("JobName", "")),
        state=text_or_none(row.get("State", "")),
        elapsed_s=parse_count(row.get("ElapsedRaw", "")),
        tasks=tasks,
        cpus=parse_count(row.get("AllocCPUS", "")),
        gpus=count_gpus(parse_tres(row.get("AllocTRES", ""))),
        # TotalCPU may be that of the task's first process only (sacct(1)), or 0 (Slurm 25.05).
        cpu_s=_larger(parse_cpu_s(row.get("TotalCPU", "")), parse_cpu_s(total.get("cpu", ""))),
        memory_bytes=memory or None,
        gpu_util_peak=parse_count(total.get("gres/gpuutil", "")),
        gpu_memory_peak_bytes=parse_size(total.get("gres/gpumem", "")),
    )


def cpu_seconds(job: JobUsage) -> float | None:
    """Return the CPU time of all steps; None if Slurm knows of none."""
    known = [step.cpu_s for step in job.steps if step.cpu_s is not None]
    return _larger(job.total_cpu_s, sum(known))


def memory_peak_bytes(job: JobUsage) -> int | None:
    """Return the highest use of any step, on all nodes together (as seff has it)."""
    return max((step.memory_bytes for step in job.steps if step.memory_bytes), default=None)


def gpu_util_peak_percent(job: JobUsage) -> float | None:
    """Return the highest gpuutil of any step, divided by the step's GPUs: a peak, not a mean."""
    peaks = [
        step.gpu_util_peak / gpus
        for step in job.steps
        if step.gpu_util_peak is not None and (gpus := step.gpus or job.alloc_gpus)
    ]
    return max(peaks, default=None)


def _larger(one: float | None, other: float | None) -> float | None:
    """Return the larger of two amounts, of which 0 is none."""
    return max(one or 0.0, other or 0.0) or None


def _parts(row_id: str) -> tuple[str, str | None]:
    """Part `7_1.batch` into job and step; a row of a job has no step."""
    match = _ROW_ID.fullmatch(row_id)
    return (match[1], match[2]) if match else (row_id, None)


def _rows(text: str, columns: Sequence[str], mark: str) -> Iterator[dict[str, str]]:
    """Cut into rows: one begins where a line has all columns but the free text, and a job id."""
    begun: list[str] = []
    fixed = sum(name not in FREE for name in columns)
    for line in text.removesuffix("\n").split("\n"):
        if line.count(mark) >= fixed and _ROW_ID.fullmatch(line.partition(mark)[0]):
            yield from _row(begun, columns, mark)
            begun = [line]
        elif begun:
            begun.append(line)
    yield from _row(begun, columns, mark)


def _row(lines: list[str], columns: Sequence[str], mark: str) -> Iterator[dict[str, str]]:
    cells = "\n".join(lines).split(mark, len(columns) - 1)
    if len(cells) == len(columns):
        yield dict(zip(columns, cells, strict=True))


def _job_usage(row: Mapping[str, str], steps: tuple[StepUsage, ...]) -> JobUsage:
    given = parse_tres(row["AllocTRES"])
    nodes = parse_count(given.get("node", "")) or parse_count(row["NNodes"])
    cpus = parse_count(given.get("cpu", "")) or parse_count(row["AllocCPUS"])
    return JobUsage(
        record=sacct_record([row[name] for name in _RECORD]),
        alloc_nodes=nodes or None,
        alloc_cpus=cpus or None,
        alloc_gpus=count_gpus(given),
        gpu_type=gpu_type(given),
        memory_limit_bytes=parse_size(given.get("mem", ""), unit="M")
        or _requested_memory(row["ReqMem"], nodes, cpus),
        total_cpu_s=parse_cpu_s(row["TotalCPU"]) or None,
        work_dir=_path(row.get("WorkDir", "")),
        submit_line=text_or_none(row.get("SubmitLine", "")),
        comment=text_or_none(row.get("Comment", "")),
        admin_comment=text_or_none(row.get("AdminComment", "")),
        interactive=_interactive(row.get("SubmitLine", ""), steps),
        steps=steps,
    )


def _requested_memory(text: str, nodes: int | None, cpus: int | None) -> int | None:
    """Read ReqMem, in all: `4Gn` is per node, `4Gc` per core; since 21.08 `4G` is of the job."""
    match = _REQUESTED_MEMORY.fullmatch(text.strip())
    size = parse_size(match[1], unit="M") if match else None
    times = {"n": nodes, "c": cpus, "": 1}[match[2] if match else ""]
    return size * times if size and times else None


def _interactive(line: str, steps: Sequence[StepUsage]) -> bool | None:
    if any(step.step == "interactive" for step in steps):
        return True
    words = line.split()
    program = PurePosixPath(words[0]).name if words else ""
    if program == "srun":
        return any(word.partition("=")[0] == "--pty" for word in words)
    return {"salloc": True, "sbatch": False}.get(program)


def _path(text: str) -> str | None:
    return text if text.startswith("/") else None
