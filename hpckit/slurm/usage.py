"""What jobs used, as Slurm's accounting says: sacct for any job, sstat for running steps."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from hpckit.errors import CommandError
from hpckit.slurm import cluster
from hpckit.slurm.client import ask, checked_id, id_lists, is_answer, refusal
from hpckit.slurm.jobs import by_job, is_asked
from hpckit.slurm.resized import own_times
from hpckit.slurm.rows import COLUMN, new_mark
from hpckit.slurm.states import JobRecord
from hpckit.slurm.usage_rows import (
    FIXED,
    FREE,
    NEEDED,
    JobUsage,
    StepUsage,
    parse_usage,
    step_usage,
)

_SSTAT = ("JobID", "NTasks", "MaxRSS", "TRESUsageInTot", "TRESUsageInMax")


def job_usage(job_ids: Sequence[str]) -> dict[str, tuple[JobUsage, ...]]:
    """Ask accounting for every attempt of jobs, oldest first, with all their steps.

    The keys are as users type them; an array's or heterogeneous job's id brings all its parts.
    Unknown ids are left out.

    Raises:
        RequestError: Something in `job_ids` is not a job id.
        CommandError: There is no accounting, or it does not answer.
    """
    wanted = frozenset(job_ids)
    # sacct finds neither a waiting task nor a het component by its own id: ask for the whole.
    whole = [checked_id(job_id).partition("_")[0].partition("+")[0] for job_id in job_ids]
    columns = _columns()
    rows = [row for ids in id_lists(whole) for row in _ask_sacct(ids, columns)]
    rows = [row for row in rows if is_asked(row.record, wanted)]
    told = cluster.told_config() if rows else {}
    if not cluster.counts_gpus(told):
        rows = [_without_none(row) for row in rows]
    rows = [replace(row, poll_s=poll_s(told)) for row in rows]
    own = {_key(row.record): row for row in rows}
    return {
        job_id: tuple(replace(own[_key(record)], record=own_times(record)) for record in records)
        for job_id, records in by_job(row.record for row in own.values()).items()
    }


def running_steps(job_ids: Sequence[str]) -> dict[str, tuple[StepUsage, ...]]:
    """Ask the nodes what steps of running jobs have used so far, by sstat.

    sstat answers for one's own jobs only, and not where Slurm gathers nothing: jobs it does not
    answer for are left out. The keys are the numbers jobs have inside (`JobRecord.raw_id`).
    """
    found: dict[str, list[StepUsage]] = {}
    for ids in id_lists(job_ids):
        argv = ["sstat", "--allsteps", "--noheader", "--parsable2"]
        argv += [f"--format={','.join(_SSTAT)}", f"--jobs={ids}"]
        try:
            said = ask(argv, check=False, timeout_s=20).stdout
        except CommandError:  # no sstat here, or a node that does not answer
            continue
        for job_id, step in parse_sstat(said):
            found.setdefault(job_id, []).append(step)
    return {job_id: tuple(steps) for job_id, steps in found.items()}


def parse_sstat(text: str) -> Iterator[tuple[str, StepUsage]]:
    """Read what sstat printed with our columns, none of which is users' text: job id and step."""
    for line in text.split("\n"):
        # It has no --delimiter (sstat(1), 22.05).
        row = dict(zip(_SSTAT, line.split("|"), strict=False))
        job_id, dot, step = row["JobID"].partition(".")
        if dot and job_id.isdecimal() and step:
            yield job_id, step_usage(step, row, live=True)


def _without_none(row: JobUsage) -> JobUsage:
    """Leave GPUs open that accounting would not list."""
    return replace(row, alloc_gpus=row.alloc_gpus or None, asked_gpus=row.asked_gpus or None)


def _key(record: JobRecord) -> tuple[object, ...]:
    """Tell attempts apart; a job's rows have the same id."""
    return record.job_id, record.raw_id, record.submit_time, record.start_time, record.state


def _ask_sacct(ids: str, columns: Sequence[str]) -> list[JobUsage]:
    mark = COLUMN + new_mark()
    argv = ["sacct", "--duplicates", "--noheader", "--parsable2", f"--delimiter={mark}"]
    argv += [f"--format={','.join(columns)}", f"--jobs={ids}"]
    result = ask(argv)
    rows = parse_usage(result.stdout, columns, mark)
    if not (rows or is_answer(result, rows=False)):
        raise refusal(result)
    return rows


def _columns() -> list[str]:
    """Return those of our columns that this sacct has: it refuses all for one it does not know.

    Where its list lacks one that is needed (cut short, say), sacct is asked for it all the same.
    """
    known = frozenset(ask(["sacct", "--helpformat"]).stdout.lower().split())
    return [name for name in (*FIXED, *FREE) if name in NEEDED or name.lower() in known]


def poll_s(told: Mapping[str, str]) -> float | None:
    """Return how often Slurm looks at what jobs use, in seconds: 0 is never, None is not known.

    It is `30` or `task=30,energy=60` (slurm.conf(5), JobAcctGatherFrequency).
    """
    words = told.get("JobAcctGatherFrequency", "").split(",")
    tasks = [word.removeprefix("task=") for word in words if "=" not in word or word[:5] == "task="]
    return float(tasks[0]) if tasks and tasks[0].isdecimal() and len(tasks[0]) < 9 else None
