"""Taking a job out of Slurm, and making sure of it: scancel also ends well where it did nothing.

A wrapper or a plugin of the site may swallow the request, and Slurm itself says nothing of jobs
that it does not know: scancel(1). So squeue is asked what came of it.
"""

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager

from hpckit.errors import CommandError, HpckitError, NotFoundError, RequestError
from hpckit.owners import user_name
from hpckit.slurm import control, jobs
from hpckit.slurm.client import left_s, own_patience_s, patience
from hpckit.slurm.states import JobRecord, JobState, is_finished, is_waiting

_SETTLING_S, _PAUSE_S = 6.0, 0.3
# So much of the patience is left for a last question.
_ANSWER_S = 1.0


def cancel_in_slurm(job_id: str, before: Sequence[JobRecord] = ()) -> JobState:
    """Cancel a job, or an array; return what it is a moment later.

    Of several tasks the state of one that is not ending, if there is such; CANCELLED of a job
    that Slurm no longer lists. `before` is what squeue said before.

    Raises:
        CommandError: the controller does not answer or refuses, or there is no scancel; or squeue
            does not say what came of it.
    """
    with patience():
        try:
            control.cancel([job_id])
        except CommandError as error:
            raise CommandError(
                f"Slurm has job {job_id}, and it could not be cancelled: {error}"
            ) from error
        records = _left(job_id, before)
        until = time.monotonic() + min(_SETTLING_S, left_s() - _ANSWER_S)
        while records and time.monotonic() < until:
            time.sleep(_PAUSE_S)
            records = _left(job_id, records)
    states = [row.state for row in records]
    return next((state for state in states if is_unheeded(state)), (*states, JobState.CANCELLED)[0])


def is_unheeded(state: JobState) -> bool:
    """Say whether a job that was cancelled goes on as if it were not; not so while it is ending."""
    return not is_finished(state) and state not in (JobState.COMPLETING, JobState.UNKNOWN)


def unheeded(job_id: str, state: JobState) -> str:
    """Say of a job that was cancelled that it goes on, and what can be done."""
    does = "waits" if is_waiting(state) else "runs"
    return (
        f"Asked Slurm to cancel {job_id}; it still {does} ({state}). Look again: squeue "
        f"--job={job_id}. If it is still there, run scancel {job_id} and ask the cluster's support."
    )


def _left(job_id: str, before: Sequence[JobRecord]) -> list[JobRecord]:
    """Return what is not over of a job; `before` is the last answer."""
    try:
        records = jobs.squeue([job_id]).values()
    except CommandError as error:
        states = ", ".join(dict.fromkeys(str(row.state) for row in before))
        last = f" Slurm's last answer was {states}." if states else ""
        raise CommandError(
            f"Asked Slurm to cancel {job_id}; hpckit does not know whether it ended: "
            f"{str(error).rstrip('.')}.{last} Ask again: squeue --job={job_id}"
        ) from error
    return [row for row in records if not is_finished(row.state)]


def cancel_by_id(job_id: str, why: HpckitError | None, known: Sequence[JobRecord] = ()) -> JobState:
    """Cancel a job of this user's; return the state Slurm gives it a moment later.

    `why` is what stands in the way of its run, None where there is a run that is not the user's;
    `known` is what `known_in_slurm` said before.

    Raises:
        RequestError: it is somebody else's. HpckitError: `why`, if Slurm does not know it.
        CommandError: it could not be cancelled, or nobody says whether it is.
    """
    with _time_of_its_own():
        records = known or _ask(job_id, why)
        if all(is_finished(row.state) for row in records):
            return records[0].state
        return cancel_in_slurm(job_id, records)


def known_in_slurm(job_id: str, why: HpckitError | None) -> list[JobRecord]:
    """Return what Slurm's queue says of a job that `cancel_by_id` can cancel; see there.

    Raises:
        RequestError: it is somebody else's. HpckitError: `why`, if Slurm does not know it.
        CommandError: Slurm does not answer.
    """
    with _time_of_its_own():
        return _ask(job_id, why)


def _time_of_its_own() -> AbstractContextManager[None]:
    """Give each of several jobs its own time; but what went before the first counts."""
    return patience(max(left_s(), own_patience_s() / 2), anew=True)


def _ask(job_id: str, why: HpckitError | None) -> list[JobRecord]:
    try:
        records = list(jobs.squeue([job_id]).values())
    except CommandError as error:
        raise why or error from error
    if not records:
        raise why or NotFoundError(f"Slurm has no job {job_id} in its queue.")
    users = {record.user for record in records}
    if users - {user_name()}:
        whose = ", ".join(sorted(str(user) for user in users))
        raise RequestError(
            f"Job {job_id} belongs to {whose}. Only its owner can cancel it with hpckit. "
            f"If you may end any job: scancel {job_id}"
        )
    return records


def take_back(job_id: str) -> str | None:
    """Cancel a job that was submitted a moment ago; say what stands in the way, None: nothing."""
    try:
        state = cancel_in_slurm(job_id)
    except CommandError as silent:
        return f"{silent} Run `scancel {job_id}`."
    except KeyboardInterrupt:
        return (
            f"Interrupted again: Slurm has job {job_id}, and hpckit does not know whether "
            f"it is cancelled. Run `scancel {job_id}`."
        )
    return unheeded(job_id, state) if is_unheeded(state) else None
