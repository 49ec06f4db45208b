"""What SIGTERM means to a job: the beginning of a preemption's grace time, a requeue, or its end.

Seen with Slurm 22.05.8, and in its src/slurmctld/preempt.c and job_mgr.c. With a GraceTime the job
stays RUNNING, and has a PreemptTime; the end of that time, a preemption without GraceTime and
`scontrol requeue` make it COMPLETING, and count the restart at once. scancel and the time limit
make it COMPLETING as well, and count nothing.
"""

from hpckit.errors import CommandError
from hpckit.slurm.client import ask, checked_id
from hpckit.slurm.states import JobState, parse_state
from hpckit.stop_marks import OVER, PREEMPTED, REQUEUED

_FIELDS = "JobID:.30,State:.30,RestartCnt:.20,PreemptTime:.40"
# While Slurm sends SIGTERM again and again, and for a controller that is busy.
_TIMEOUT_S = 5.0
_RUNS = (JobState.RUNNING, JobState.SUSPENDED, JobState.SIGNALING)


def fate(job_id: str, restarts: int) -> str:
    """Return what becomes of a job, by its own number, that got SIGTERM: a word of `stop_marks`.

    Args:
        job_id: also of an array's task the job's own number.
        restarts: how often it had been started again when this attempt began.

    Raises:
        CommandError: The controller does not answer, or there is no squeue.
    """
    words = ["squeue", "--noheader", "--states=all", f"--jobs={checked_id(job_id)}"]
    return parse_fate(ask([*words, "-O", _FIELDS], timeout_s=_TIMEOUT_S).stdout, job_id, restarts)


def parse_fate(text: str, job_id: str, restarts: int) -> str:
    """Read what squeue said of a job, or of all tasks of its array.

    Raises:
        CommandError: The job is not among them.
    """
    rows = (line.split() for line in text.splitlines())
    for row in rows:
        if len(row) != 4 or row[0] != job_id:
            continue
        _, state, count, since = row
        if count.isdecimal() and int(count) > restarts:
            return REQUEUED
        preempted = since[:1].isdecimal() and parse_state(state) in _RUNS
        return PREEMPTED if preempted else OVER
    raise CommandError(f"squeue does not know job {job_id}.", argv=("squeue",))
