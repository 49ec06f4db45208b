"""sacct's rows with what jobs and their steps used: pure functions of text."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath

from hpckit.frozen import frozen
from hpckit.slurm.hostlist import nodes_or_none
from hpckit.slurm.rows import (
    COLUMN,
    SACCT_FORMAT,
    count_gpus,
    gpu_type,
    parse_count,
    parse_cpu_s,
    parse_size,
    parse_tres,
    sacct_record,
)
from hpckit.slurm.states import JobRecord, each_task, text_or_none
from hpckit.units import parse_moment

_RECORD = SACCT_FORMAT.split(",")
# Numbers and words of Slurm's first. Then free text, which may hold newlines: AdminComment before
# what users write, so that none of theirs can pass for it, and the name last.
FIXED = (
    *_RECORD[:-1],
    *("NNodes", "NTasks", "AllocCPUS", "AllocTRES", "ReqTRES", "ReqMem", "TotalCPU", "MaxRSS"),
    *("TRESUsageInTot", "TRESUsageInMax"),
)
# Of these every sacct knows all; without one of them a row cannot be read.
NEEDED = frozenset((*_RECORD, "NNodes", "AllocCPUS", "AllocTRES", "ReqMem", "TotalCPU"))
FREE = ("AdminComment", "Comment", "WorkDir", "SubmitLine", "JobName")
# A step of a heterogeneous kind is `7.0+1`; a list of tasks may be cut short: `7_[1,3,...]`.
_ROW_ID = re.compile(r"(\d{1,20}(?:[_+](?:\d{1,20}|\[[^\]]*\]?))?)(?:\.([\w+]+))?", re.ASCII)
# By how much the polls' CPU time may be above the kernel's before that lacks something.
_POLLS_EXCEED = 1.1
_MIB = 1 << 20
_REQUESTED_MEMORY = re.compile(r"([\d.]+[KMGTPE]?)([nc]?)", re.ASCII)


@frozen(kw_only=True)
class StepUsage:
    """What one step of a job used; None is what accounting does not know.

    Attributes:
        step: `batch`, `extern`, `interactive`, or its number; `0+1` is a component of one.
        memory_limit_bytes: what it was given, on all its nodes together.
        cpu_s: CPU seconds of all its tasks.
        cpu_polled: `cpu_s` is of Slurm's polls, as its sum at the end of tasks lacks some.
        memory_bytes: its highest use: the sum over tasks of each one's peak.
        memory_task_bytes: the highest use of any one task.
        gpu_util_peak: Slurm's gres/gpuutil: percents added up over GPUs and processes, the highest
            of all polls (gres.shtml: a high-water mark). Not a mean.
        gpu_memory_peak_bytes: gres/gpumem, the same way.
        memory_at_least, gpu_at_least: Slurm has no such sum; what is here may be less.
        start_time, end_time: epoch seconds; None of a step that runs, where sstat has none.
        live: sstat said so: it runs.
    """

    step: str
    state: str | None = None
    elapsed_s: int | None = None
    tasks: int | None = None
    hosts: tuple[str, ...] | None = None
    cpus: int | None = None
    gpus: int | None = None
    memory_limit_bytes: int | None = None
    cpu_s: float | None = None
    cpu_polled: bool = False
    memory_bytes: int | None = None
    memory_task_bytes: int | None = None
    memory_at_least: bool = False
    gpu_util_peak: int | None = None
    gpu_memory_peak_bytes: int | None = None
    gpu_at_least: bool = False
    start_time: float | None = None
    end_time: float | None = None
    live: bool = False


@frozen(kw_only=True)
class JobUsage:
    """One attempt of a job, and what it was given and used.

    Attributes:
        alloc_gpus: 0 if its allocation has none; None if the allocation is not known.
        asked_gpus: the same of what it asked for.
        gpu_type: of its allocation, else of what it asked for.
        memory_limit_bytes: on all nodes together.
        interactive: whether salloc or `srun --pty` started it; None if Slurm does not say.
        total_cpu_s: CPU seconds of all steps.
        poll_s: how often Slurm looks at jobs (JobAcctGatherFrequency); 0 is never, None unknown.
    """

    record: JobRecord
    alloc_nodes: int | None = None
    alloc_cpus: int | None = None
    alloc_gpus: int | None = None
    asked_gpus: int | None = None
    gpu_type: str | None = None
    memory_limit_bytes: int | None = None
    total_cpu_s: float | None = None
    work_dir: str | None = None
    comment: str | None = None
    admin_comment: str | None = None
    interactive: bool | None = None
    poll_s: float | None = None
    steps: tuple[StepUsage, ...] = ()

    @property
    def memory_limit_bytes_per_node(self) -> int | None:
        """The limit on each node; None where Slurm did not give every node the same.

        With memory by core (--mem-per-cpu) or by GPU, a node has more where it has more of these.
        The batch step has all that the job was given on its node. Without one (srun, salloc) there
        is no telling where cores cannot be the same on all nodes.
        """
        if self.memory_limit_bytes is None or not self.alloc_nodes:
            return None
        each = self.memory_limit_bytes // self.alloc_nodes
        batch = next((step.memory_limit_bytes for step in self.steps if step.step == "batch"), None)
        if batch is None:
            return None if (self.alloc_cpus or 0) % self.alloc_nodes else each
        return each if abs(batch - each) <= _MIB else None


def parse_usage(text: str, columns: Sequence[str], mark: str = COLUMN) -> list[JobUsage]:
    """Read what sacct printed with these columns: one value per attempt, in sacct's order.

    `mark` parted the columns. Where it is a text that no user can know, none of theirs can pass
    for a column or a row.
    """
    found: list[tuple[dict[str, str], list[StepUsage]]] = []
    newest: dict[str, list[StepUsage]] = {}
    for row in cut_rows(text, columns, mark):
        job_id, step = _parts(row["JobID"])
        if not step:
            newest[job_id] = []
            found.append((row, newest[job_id]))
        elif job_id in newest:
            newest[job_id].append(step_usage(step, row))
    usages = (_job_usage(row, tuple(steps)) for row, steps in found)
    return [replace(usage, record=task) for usage in usages for task in each_task(usage.record)]


def step_usage(step: str, row: Mapping[str, str], *, live: bool = False) -> StepUsage:
    """Read one step's columns: sacct's, or sstat's of a step that runs (`live`).

    When a task ends, Slurm puts its highest memory for its last into TRESUsageInTot, and of GPUs,
    too, in newer versions (`_local_jobacctinfo_aggregate` in slurmstepd's mgr.c). Before that the
    column has what the last poll saw; TRESUsageInMax and MaxRSS have the highest of any task.
    Slurm's 0 of CPU or memory is that of a step it never polled (slurm2sql issue 22): unknown.
    """
    total = parse_tres(row.get("TRESUsageInTot", ""))
    most = parse_tres(row.get("TRESUsageInMax", ""))
    given = parse_tres(row.get("AllocTRES", ""))
    tasks = parse_count(row.get("NTasks", ""))
    largest = _most(parse_size(row.get("MaxRSS", "")), parse_size(most.get("mem", "")))
    memory = parse_size(total.get("mem", ""))
    util, util_of_one = (parse_count(tres.get("gres/gpuutil", "")) for tres in (total, most))
    held, held_by_one = (parse_size(tres.get("gres/gpumem", "")) for tres in (total, most))
    last_polls = live or (util_of_one or 0) > (util or 0) or (held_by_one or 0) > (held or 0)
    cpu_s, polled = _cpu(row.get("TotalCPU", ""), total.get("cpu", ""), tasks or 1)
    return StepUsage(
        step=step,
        state=text_or_none(row.get("State", "")),
        elapsed_s=parse_count(row.get("ElapsedRaw", "")),
        tasks=tasks,
        hosts=nodes_or_none(row.get("NodeList", "")),
        cpus=parse_count(row.get("AllocCPUS", "")),
        gpus=count_gpus(given),
        memory_limit_bytes=parse_size(given.get("mem", ""), unit="M") or None,
        cpu_s=cpu_s,
        cpu_polled=polled and not live,
        memory_bytes=_most(memory, largest) or None,
        memory_task_bytes=largest or None,
        memory_at_least=tasks != 1 and (live or not memory),
        gpu_util_peak=_most(util, util_of_one),
        gpu_memory_peak_bytes=_most(held, held_by_one),
        gpu_at_least=tasks != 1 and last_polls,
        start_time=parse_moment(row.get("Start", "")),
        end_time=parse_moment(row.get("End", "")),
        live=live,
    )


def _cpu(at_end: str, in_polls: str, tasks: int) -> tuple[float | None, bool]:
    """Return a CPU time in seconds, and whether it is that of Slurm's polls.

    TotalCPU is the kernel's own sum, taken when tasks end: the better one, in milliseconds. It
    lacks processes that nobody waited for (sacct(1)), and is 0 in some versions (25.05). Polls
    round to a second per task, and may count a process twice that ends between two readings.
    """
    kernels, polls = parse_cpu_s(at_end) or 0.0, parse_cpu_s(in_polls) or 0.0
    lacks = polls > kernels * _POLLS_EXCEED + tasks
    return (polls if lacks or not kernels else kernels) or None, bool(polls) and (
        lacks or not kernels
    )


def _most(one: int | None, other: int | None) -> int | None:
    return max((value for value in (one, other) if value is not None), default=None)


def _parts(row_id: str) -> tuple[str, str | None]:
    """Part `7_1.batch` into job and step; a row of a job has no step."""
    match = _ROW_ID.fullmatch(row_id)
    return (match[1], match[2]) if match else (row_id, None)


def cut_rows(text: str, columns: Sequence[str], mark: str) -> Iterator[dict[str, str]]:
    """Cut into rows: one begins where a line has all columns but the free text, and a job id.

    Columns of free text (`FREE`) come last among `columns`.
    """
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
    record = sacct_record([row[name] for name in _RECORD])
    given, asked = parse_tres(row["AllocTRES"]), parse_tres(row.get("ReqTRES", ""))
    if record.name is None:
        # A new job's row has its first step's nodes, and no number of them: all steps' count.
        names = (*(record.nodes or ()), *(host for step in steps for host in step.hosts or ()))
        record = replace(record, nodes=tuple(dict.fromkeys(names)) or None)
    counted = parse_count(row["NNodes"]) or len(record.nodes or ())
    nodes = parse_count(given.get("node", "")) or counted
    cpus = parse_count(given.get("cpu", "")) or parse_count(row["AllocCPUS"])
    return JobUsage(
        record=record,
        alloc_nodes=nodes or None,
        alloc_cpus=cpus or None,
        alloc_gpus=count_gpus(given),
        asked_gpus=count_gpus(asked),
        gpu_type=gpu_type(given or asked),
        memory_limit_bytes=parse_size(given.get("mem", ""), unit="M")
        or _requested_memory(row["ReqMem"], nodes, cpus),
        total_cpu_s=parse_cpu_s(row["TotalCPU"]) or None,
        work_dir=_path(row.get("WorkDir", "")),
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
