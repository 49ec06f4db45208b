"""The rows squeue and sacct print for us, as records: pure functions of text.

And their spellings of amounts: sizes, CPU times, lists of trackable resources (TRES). What is not a
plain number is None: an amount that is not known must not become 0.
"""

import math
import os
import re
from collections.abc import Iterator

from hpckit.slurm.hostlist import nodes_or_none
from hpckit.slurm.states import (
    JobRecord,
    JobState,
    SlurmSource,
    each_task,
    is_finished,
    is_waiting,
    parse_exit,
    parse_state,
    text_or_none,
)
from hpckit.units import parse_duration_s, parse_limit_min, parse_moment

# No amount has more than 20 digits; Python refuses to read thousands of them.
_SIZE = re.compile(r"(\d{1,20}(?:\.\d{1,20})?)([KMGTPE]?)(?:i?B)?", re.ASCII)
_COUNT = re.compile(r"\d{1,20}", re.ASCII)
_UNITS = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40, "P": 50, "E": 60}
_CLOCK = re.compile(
    r"(?:(\d{1,20})-)?(?:(\d{1,20}):)?(\d{1,20}):(\d{1,20}(?:\.\d{1,20})?)", re.ASCII
)
# NO_VAL64 and INFINITE64 of slurm.h, and what doubles or sums make of them: never an amount.
_NO_VALUE = 1 << 63
# NO_VAL of slurm.h, the first of its marks of 32 bits: never how many there are of something.
_NO_COUNT = (1 << 32) - 2
# A job's name is its user's own text and may hold `|`, a newline or any other character. So what
# begins a row and parts columns has a mark behind it that is new at each call: no name can hold it,
# and so none can pass for a row of another job.
ROW = "\x1e"
COLUMN = "\x1f"
_SQUEUE = "%i %A %u %a %P %q %T %M %l %V %S %e %N %r %j"
SACCT_FORMAT = (
    "JobID,JobIDRaw,User,Account,Partition,QOS,State,Reason,NodeList,ElapsedRaw,TimelimitRaw,"
    "Submit,Start,End,ExitCode,JobName"
)
_SQUEUE_CUTS = _SQUEUE.count(" ")
_SACCT_CUTS = SACCT_FORMAT.count(",")


def parse_size(text: str, *, unit: str = "") -> int | None:
    """Read `123456K`, `1.5G`, `0` in bytes; `unit` is that of a number without a letter."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        return None
    # Rounded up: what is more than nothing is never 0.
    value = math.ceil(float(match[1]) * (1 << _UNITS[match[2] or unit]))
    return value if value < _NO_VALUE else None


def parse_count(text: str) -> int | None:
    """Read a whole number; Slurm's own marks for none are None."""
    match = _COUNT.fullmatch(text.strip())
    value = int(match[0]) if match else _NO_COUNT
    return value if value < _NO_COUNT else None


def parse_cpu_s(text: str) -> float | None:
    """Read a CPU time, `D-HH:MM:SS`, `HH:MM:SS` or `MM:SS.mmm`, in seconds."""
    match = _CLOCK.fullmatch(text.strip())
    if match is None:
        return None
    days, hours, minutes, seconds = match.groups()
    value = int(days or 0) * 86400 + int(hours or 0) * 3600 + int(minutes) * 60 + float(seconds)
    return value if value < _NO_VALUE else None


def parse_tres(text: str) -> dict[str, str]:
    """Read `cpu=8,gres/gpu:a100=2,mem=64G`; what has no `=` is left out."""
    pairs = (part.partition("=") for part in text.strip().split(","))
    return {name.strip(): value.strip() for name, sign, value in pairs if sign and name.strip()}


def count_gpus(tres: dict[str, str]) -> int | None:
    """Return how many GPUs an allocation has: 0 if its list names none, None without a whole list.

    Each list has `cpu` or `node`: one that has only `billing`, say, was cut short.

    Slurm lists both `gres/gpu:a100=4` and `gres/gpu=4`: the plain one is the number, the typed
    ones only count where it is missing. Of how many GPUs its shards are, no list says.
    """
    if "gres/gpu" in tres:
        return parse_count(tres["gres/gpu"])
    if any(name.startswith(("gres/shard", "gres/mps")) for name in tres):
        return None
    typed = [parse_count(tres[name]) for name in tres if name.startswith("gres/gpu:")]
    known = [count for count in typed if count is not None]
    if typed:
        return sum(known) if len(known) == len(typed) else None
    return None if tres.keys().isdisjoint({"cpu", "node"}) else 0


def gpu_type(tres: dict[str, str]) -> str | None:
    """Return the type of an allocation's GPUs; None if it has none, or several.

    Slurm lists the types that AccountingStorageTRES names: the others are in the number alone.
    """
    types = [
        name.removeprefix("gres/gpu:")
        for name in tres
        if name.startswith("gres/gpu:") and parse_count(tres[name]) != 0
    ]
    if len(types) != 1:
        return None
    every = parse_count(tres.get("gres/gpu", ""))
    of_type = parse_count(tres[f"gres/gpu:{types[0]}"])
    return types[0] if every is None or of_type is None or of_type >= every else None


def new_mark() -> str:
    """Return a text that nobody can have put into a job's name."""
    return os.urandom(8).hex()


def squeue_format(mark: str) -> str:
    """Return what to ask squeue for, so that `parse_squeue` can read it."""
    return ROW + mark + _SQUEUE.replace(" ", COLUMN + mark)


_LONGEST_S = 10 * 365 * 86400
_RAW_ID = re.compile(r"\d{1,20}", re.ASCII)


def parse_squeue(text: str, mark: str = "") -> list[JobRecord]:
    """Read what squeue printed in our format; waiting tasks of an array become a record each."""
    records: list[JobRecord] = []
    for row in text.split(ROW + mark)[1:]:
        cells = row.removesuffix("\n").split(COLUMN + mark, _SQUEUE_CUTS)
        if len(cells) == _SQUEUE_CUTS + 1:
            records += each_task(_squeue_record(cells))
    return records


def parse_sacct(text: str, mark: str = "") -> list[JobRecord]:
    """Read what sacct printed in our format: one record an attempt, in sacct's order."""
    records: list[JobRecord] = []
    for cells in _sacct_rows(text, COLUMN + mark):
        if "." not in cells[0].partition("[")[0]:  # 123.batch, 123.0: a step, not a job
            records += each_task(sacct_record(cells))
    return records


def _sacct_rows(text: str, delimiter: str) -> Iterator[list[str]]:
    """Cut into rows; a line with too few columns goes on with the name before it."""
    cells: list[str] = []
    for line in text.removesuffix("\n").split("\n"):
        here = line.split(delimiter, _SACCT_CUTS)
        if len(here) == _SACCT_CUTS + 1:
            if cells:
                yield cells
            cells = here
        elif cells:
            cells[-1] += "\n" + line
    if cells:
        yield cells


def _squeue_record(cells: list[str]) -> JobRecord:
    job_id, raw_id, user, account, partition, qos, word, elapsed, limit = cells[:9]
    submit, start, end, node_list, reason, name = cells[9:]
    state, nodes = parse_state(word), nodes_or_none(node_list)
    spent = parse_duration_s(elapsed)
    return JobRecord(
        job_id=job_id,
        # All waiting tasks of an array show the array's own id here.
        raw_id=None if is_waiting(state) and "_" in job_id else raw_id,
        state=state,
        source=SlurmSource.SQUEUE,
        name=name,
        user=text_or_none(user),
        account=text_or_none(account),
        partition=text_or_none(partition),
        qos=text_or_none(qos),
        reason=None if state is JobState.CANCELLED and _is_stale(reason) else text_or_none(reason),
        nodes=nodes,
        elapsed_s=spent,
        time_limit_min=parse_limit_min(limit),
        submit_time=parse_moment(submit),
        start_time=_start(start, state, nodes, spent),
        end_time=parse_moment(end) if is_finished(state) else None,
    )


def sacct_record(cells: list[str]) -> JobRecord:
    """Make a record of the columns of SACCT_FORMAT."""
    job_id, raw_id, user, account, partition, qos, word, reason, node_list, elapsed = cells[:10]
    limit, submit, start, end, status, name = cells[10:]
    state, nodes = parse_state(word), nodes_or_none(node_list)
    # Until the controller has sent the rest (within 5 s), a new job's row is what its first step
    # has told: without a partition, of this name, and not yet of a state. Its user is 0, root, if
    # no association tells (22.05).
    begun = name == "allocation" and not partition
    if begun and user == "root":
        user = ""
    if begun and nodes and state is JobState.PENDING:
        state = JobState.RUNNING
    exit_code = parse_exit(status, state)
    spent = _possible(parse_count(elapsed))
    return JobRecord(
        job_id=job_id,
        raw_id=raw_id if _RAW_ID.fullmatch(raw_id) else None,
        state=state,
        source=SlurmSource.SACCT,
        name=None if begun else name,
        user=text_or_none(user),
        account=text_or_none(account),
        partition=text_or_none(partition),
        qos=text_or_none(qos),
        reason=None if not is_waiting(state) and _is_stale(reason) else text_or_none(reason),
        nodes=nodes,
        elapsed_s=spent,
        time_limit_min=parse_count(limit),
        submit_time=parse_moment(submit),
        start_time=_start(start, state, nodes, spent),
        end_time=parse_moment(end),
        exit_code=exit_code,
    )


def _possible(elapsed_s: int | None) -> int | None:
    """Return an elapsed time, but None for one that began in 1970: its start was lost."""
    return elapsed_s if elapsed_s is None or elapsed_s < _LONGEST_S else None


def _is_stale(reason: str) -> bool:
    """Say whether a reason to wait lost its meaning when the wait ended.

    sacct goes on to show it while the job runs, squeue when the job was cancelled.
    """
    return reason != "DependencyNeverSatisfied"


def _start(
    text: str, state: JobState, nodes: tuple[str, ...] | None, elapsed_s: int | None
) -> float | None:
    """Read when a job started; of one cancelled in the queue Slurm shows when that was."""
    never = is_finished(state) and nodes is None and not elapsed_s
    return None if never else parse_moment(text)
