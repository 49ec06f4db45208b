"""A job that is known by its number alone: its run is not here, cannot be read, or is not believed.

Whose it is, and what becomes of it, is then Slurm's word.
"""

import os
import pwd
import time

from hpckit.errors import CommandError, HpckitError, NotFoundError, RequestError
from hpckit.slurm import control, jobs
from hpckit.slurm.client import patience
from hpckit.slurm.record import JobRecord
from hpckit.slurm.states import is_finished

_SETTLING_S, _PAUSE_S = 6.0, 0.3


def cancel_by_id(job_id: str, why: HpckitError | None) -> str:
    """Cancel a job of this user's; return the state Slurm gives it a moment later.

    `why` is what stands in the way of its run, None where there is a run that is not the user's.

    Raises:
        RequestError: it is somebody else's. HpckitError: `why`, if Slurm does not know it.
    """
    with patience():
        records = _ask(job_id, why)
        users = {record.user for record in records}
        if users - {_me()}:
            whose = ", ".join(sorted(str(user) for user in users))
            raise RequestError(
                f"Job {job_id} is of {whose}, who alone can cancel it with hpckit. "
                f"Who may end any job: scancel {job_id}"
            )
        control.cancel([job_id])
        until = time.monotonic() + _SETTLING_S
        while not all(is_finished(row.state) for row in records) and time.monotonic() < until:
            time.sleep(_PAUSE_S)
            records = _ask(job_id, why)
    return str(records[0].state)


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
