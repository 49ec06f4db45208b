"""Jobs that changed their size while they ran (`scontrol update NumNodes=`): their rows. Pure.

Accounting then has a row for each size. The first ends, RESIZING, when the next begins. That one
has its own nodes and GPUs, and counts as submitted at the change; but its start is the whole job's,
and so its elapsed time is from there (22.05; `_setup_job_start_msg` of the plugin for slurmdbd).
"""

from collections.abc import Iterable
from dataclasses import replace

from hpckit.slurm.states import JobRecord, JobState


def goes_on(submit: float | None, start: float | None) -> bool:
    """Say whether a row is of a job that has changed its size: nothing else starts too early."""
    return submit is not None and start is not None and start < submit


def own_times(record: JobRecord) -> JobRecord:
    """Return a row with the start and the elapsed time of its own size."""
    submit, start, elapsed_s = record.submit_time, record.start_time, record.elapsed_s
    if submit is None or start is None or not goes_on(submit, start):
        return record
    left_s = None if elapsed_s is None else max(elapsed_s - round(submit - start), 0)
    return replace(record, start_time=submit, elapsed_s=left_s)


def places(records: Iterable[JobRecord]) -> list[int]:
    """Return a number for each of a job's rows, oldest first, of which no two have the same.

    It is the number of the attempt, and for each change of size before it one more.
    """
    found, changes = [], 0
    for at, record in enumerate(records):
        found.append((at - changes if record.restarts is None else record.restarts) + changes)
        changes += record.state is JobState.RESIZING
    return found
