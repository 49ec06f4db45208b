"""A job that is known by its number alone: its run is not here, cannot be read, or is not believed.

Whose it is, and what becomes of it, is then Slurm's word.
"""

import os
import pwd

from hpckit.errors import CommandError, HpckitError, NotFoundError, RequestError
from hpckit.slurm import jobs
from hpckit.slurm.client import left_s, own_patience_s, patience
from hpckit.slurm.record import JobRecord
from hpckit.slurm.states import JobState, is_finished
from hpckit.submission.ending import cancel_in_slurm


def cancel_by_id(job_id: str, why: HpckitError | None) -> JobState:
    """Cancel a job of this user's; return the state Slurm gives it a moment later.

    `why` is what stands in the way of its run, None where there is a run that is not the user's.

    Raises:
        RequestError: it is somebody else's. HpckitError: `why`, if Slurm does not know it.
        CommandError: it could not be cancelled, or nobody says whether it is.
    """
    # Each of several jobs has time of its own, but what went before the first counts.
    with patience(max(left_s(), own_patience_s() / 2), anew=True):
        records = _ask(job_id, why)
        users = {record.user for record in records}
        if users - {_me()}:
            whose = ", ".join(sorted(str(user) for user in users))
            raise RequestError(
                f"Job {job_id} belongs to {whose}. Only its owner can cancel it with hpckit. "
                f"If you may end any job: scancel {job_id}"
            )
        if all(is_finished(row.state) for row in records):
            return records[0].state
        return cancel_in_slurm(job_id, records)


def _ask(job_id: str, why: HpckitError | None) -> list[JobRecord]:
    try:
        records = list(jobs.squeue([job_id]).values())
    except CommandError as error:
        raise why or error from error
    if not records:
        raise why or NotFoundError(f"Slurm has no job {job_id} in its queue.")
    return records


def _me() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
