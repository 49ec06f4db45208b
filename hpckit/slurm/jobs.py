"""Where jobs stand: squeue for what the controller remembers, sacct for what accounting does.

squeue is fresh, and answers without accounting; it forgets a job some minutes after its end
(slurm.conf(5), MinJobAge). sacct remembers, every attempt, but may lag or be switched off. Each
reads any number of jobs in one process, because controllers are shared and easily overloaded.
`scontrol show job` says most, exit code and restarts among it, of one job, while the controller
remembers it: the last resort where there is no accounting.
"""

import dataclasses
import re
from collections.abc import Iterable, Iterator, Sequence

from hpckit.slurm.client import UNKNOWN_JOB, ask, checked_id, id_lists, is_answer, refusal
from hpckit.slurm.hostlist import nodes_or_none
from hpckit.slurm.rows import (
    COLUMN,
    SACCT_FORMAT,
    new_mark,
    parse_sacct,
    parse_squeue,
    squeue_format,
)
from hpckit.slurm.states import (
    JobRecord,
    JobState,
    SlurmSource,
    each_task,
    is_finished,
    parse_exit,
    parse_state,
    text_or_none,
)
from hpckit.units import parse_duration_s, parse_limit_min, parse_moment

_REQUEUE_S = 2
_PAIR = r"(?:^|\s)([A-Za-z][\w/:]*)=(\S*)"


def squeue(job_ids: Sequence[str]) -> dict[str, JobRecord]:
    """Ask the controller about jobs; those it does not know are left out.

    The keys are as users type them; an array's id brings all its tasks, `123_0`, `123_1`...

    Raises:
        RequestError: Something in `job_ids` is not a job id.
        CommandError: The controller does not answer, or there is no squeue.
    """
    wanted = frozenset(job_ids)
    rows = [row for ids in id_lists(job_ids) for row in _ask_squeue(ids)]
    # What is left of an array whose last waiting tasks were cancelled is a row of the bare id.
    arrays = {row.array_job_id for row in rows}
    return {row.job_id: row for row in rows if row.job_id not in arrays and is_asked(row, wanted)}


def sacct(job_ids: Sequence[str]) -> dict[str, JobRecord]:
    """Ask accounting about jobs: the latest attempt of each, with the number of restarts.

    Right after a requeue the latest row is REQUEUED: the next attempt gets its row when it starts.

    Raises:
        RequestError: Something in `job_ids` is not a job id.
        CommandError: There is no accounting, or it does not answer.
    """
    return {job_id: _latest(rows) for job_id, rows in sacct_attempts(job_ids).items()}


def sacct_attempts(job_ids: Sequence[str]) -> dict[str, tuple[JobRecord, ...]]:
    """Ask accounting for every attempt of jobs, oldest first; `restarts` counts them from 0.

    An attempt that changed its size has a row for each.

    Raises:
        RequestError: Something in `job_ids` is not a job id.
        CommandError: There is no accounting, or it does not answer.
    """
    wanted = frozenset(job_ids)
    # sacct does not find a task in the row that all tasks share which never ran: ask for the array.
    whole = [checked_id(job_id).partition("_")[0] for job_id in job_ids]
    rows = (row for ids in id_lists(whole) for row in _ask_sacct(ids))
    return by_job(row for row in rows if is_asked(row, wanted))


def by_job(records: Iterable[JobRecord]) -> dict[str, tuple[JobRecord, ...]]:
    """Group attempts by job, oldest first, and number them in `restarts`.

    Ids are used again after the highest, or after a controller lost its state: an earlier row of
    another user or name is another job's, unless it ended when the next was submitted: that is a
    requeue, and the job was renamed.
    """
    groups: dict[str, list[JobRecord]] = {}
    for record in records:
        groups.setdefault(record.job_id, []).append(record)
    return {job_id: tuple(_attempts(rows)) for job_id, rows in groups.items()}


def _attempts(rows: list[JobRecord]) -> Iterator[JobRecord]:
    """Number a job's rows; a task still listed in its waiting array has no row of its own yet."""
    known = [row for row in rows if row.raw_id is not None] or rows[-1:]
    ordered = sorted(known, key=lambda row: row.submit_time or 0)
    same = ordered[-1:]
    for row in reversed(ordered[:-1]):
        if row.user == same[0].user and (_agree(row.name, same[0].name) or _again(row, same[0])):
            same.insert(0, row)
    number = 0
    for row in same:
        yield dataclasses.replace(row, restarts=number)
        number += row.state is not JobState.RESIZING  # the next row is of the same attempt


def _again(row: JobRecord, following: JobRecord) -> bool:
    """Say whether one attempt's end was the next one's submission, as Slurm writes a requeue."""
    ended, submitted = row.end_time, following.submit_time
    return ended is not None and submitted is not None and abs(submitted - ended) <= _REQUEUE_S


def _agree(one: str | None, other: str | None) -> bool:
    return one is None or other is None or one == other


def _latest(rows: tuple[JobRecord, ...]) -> JobRecord:
    last = rows[-1]
    if last.state is JobState.REQUEUED:
        return dataclasses.replace(last, restarts=(last.restarts or 0) + 1)
    return last


def _ask_squeue(ids: str) -> list[JobRecord]:
    """Read jobs in any state; when one unknown id spoils the answer, ask by halves."""
    mark = new_mark()
    argv = ["squeue", "--noheader", "--states=all"]
    argv += [f"--format={squeue_format(mark)}", f"--jobs={ids}"]
    result = ask(argv, check=False)
    if result.returncode != 0 and UNKNOWN_JOB not in result.stderr:
        raise refusal(result)
    each = ids.split(",")
    middle = len(each) // 2
    if result.returncode == 0 or result.stdout or not middle:
        rows = parse_squeue(result.stdout, mark)
        if not (is_answer(result, rows=bool(rows)) or _has_all(rows, each)):
            raise refusal(result)
        return rows
    return _ask_squeue(",".join(each[:middle])) + _ask_squeue(",".join(each[middle:]))


def _ask_sacct(ids: str) -> list[JobRecord]:
    mark = new_mark()
    argv = ["sacct", "--allocations", "--duplicates", "--noheader", "--parsable2"]
    argv += [f"--delimiter={COLUMN}{mark}", f"--format={SACCT_FORMAT}", f"--jobs={ids}"]
    result = ask(argv)
    rows = parse_sacct(result.stdout, mark)
    if not (rows or is_answer(result, rows=False)):
        raise refusal(result)
    return rows


def _has_all(rows: Iterable[JobRecord], job_ids: Iterable[str]) -> bool:
    """Say whether each of some jobs has a row."""
    names = {name for row in rows for name in (row.job_id, row.raw_id, _whole(row.job_id))}
    return names.issuperset(job_ids)


def _whole(job_id: str) -> str:
    """Return the id of the array or heterogeneous job that a job is of, else its own."""
    return re.split(r"[_+]", job_id)[0]


def is_asked(record: JobRecord, wanted: frozenset[str]) -> bool:
    """Say whether a job, or the array or heterogeneous job it is of, was asked for.

    squeue answers for `23+1` with all of job 23.
    """
    return not wanted.isdisjoint({record.job_id, record.raw_id, _whole(record.job_id)})


def scontrol_job(job_id: str, name: str) -> dict[str, JobRecord]:
    """Ask the controller for one job in full; an array's id brings its tasks, an unknown nothing.

    `name` is the job's as squeue says it: a name may hold lines that look like Slurm's own, and
    only who knows it can tell where it ends. A job of another name is left out.

    Raises:
        RequestError: `job_id` is not a job id.
        CommandError: The controller does not answer, or there is no scontrol.
    """
    result = ask(["scontrol", "show", "job", checked_id(job_id)], check=False)
    if result.returncode != 0 and UNKNOWN_JOB not in result.stderr:
        raise refusal(result)
    found: dict[str, JobRecord] = {}
    for record in parse_scontrol_jobs(result.stdout, name):
        # A comment may hold lines like Slurm's too, but it comes after what is the job's own.
        found.setdefault(record.job_id, record)
    return found


def parse_scontrol_jobs(text: str, name: str) -> list[JobRecord]:
    """Read the jobs of a name in the output of `scontrol show job`."""
    block = re.compile(
        r"(?:\A|\n\n)JobId=(?P<ids>[^\n]*?)JobName="
        + re.escape(name)
        + r"\n(?: +HetJobIdSet=\S*\n)? +UserId="
    )
    heads = list(block.finditer(text))
    borders = [head.start() for head in heads] + [len(text)]
    return [
        task
        for head, end in zip(heads, borders[1:], strict=True)
        for task in each_task(_record(name, head["ids"], _fields(text[head.end() : end])))
    ]


def _fields(text: str) -> dict[str, str]:
    """Return a block's fields; of several of a name the first, which no comment wrote."""
    fields: dict[str, str] = {}
    for key, value in re.findall(_PAIR, "UserId=" + text):
        fields.setdefault(key, value)
    return fields


def _record(name: str, ids: str, fields: dict[str, str]) -> JobRecord:
    raw_id, job_id = _ids(ids)
    state = parse_state(fields.get("JobState", ""))
    finished = is_finished(state)
    exit_code, signal = parse_exit(fields.get("ExitCode", ""), state)
    restarts = fields.get("Restarts", "")
    return JobRecord(
        job_id=job_id,
        raw_id=raw_id,
        state=state,
        source=SlurmSource.SCONTROL,
        name=name,
        user=text_or_none(fields.get("UserId", "").partition("(")[0]),
        account=text_or_none(fields.get("Account", "")),
        partition=text_or_none(fields.get("Partition", "")),
        qos=text_or_none(fields.get("QOS", "")),
        reason=text_or_none(fields.get("Reason", "")),
        nodes=nodes_or_none(fields.get("NodeList", "")),
        elapsed_s=parse_duration_s(fields.get("RunTime", "")),
        time_limit_min=parse_limit_min(fields.get("TimeLimit", "")),
        submit_time=parse_moment(fields.get("SubmitTime", "")),
        start_time=parse_moment(fields.get("StartTime", "")),
        end_time=parse_moment(fields.get("EndTime", "")) if finished else None,
        exit_code=exit_code,
        signal=signal,
        restarts=int(restarts) if restarts.isdecimal() else None,
    )


def _ids(text: str) -> tuple[str, str]:
    """Return (the number inside, the id as users type it) from the start of a job's first line."""
    raw_id, _, rest = text.partition(" ")
    fields = dict(re.findall(_PAIR, rest))
    if "ArrayTaskId" in fields:
        tasks = fields["ArrayTaskId"]
        return raw_id, f"{fields['ArrayJobId']}_" + (tasks if tasks.isdecimal() else f"[{tasks}]")
    if "HetJobOffset" in fields:
        return raw_id, f"{fields['HetJobId']}+{fields['HetJobOffset']}"
    return raw_id, raw_id
