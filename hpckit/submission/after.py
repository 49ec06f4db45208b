"""`--after JOB`: what a submission waits for, and whether that can still come."""

from collections.abc import Iterator
from pathlib import Path

from hpckit.errors import OutsideError, PlanError, RequestError
from hpckit.find import find_believed
from hpckit.job.checks import off_switch
from hpckit.runs import Run
from hpckit.schedulers.base import find_scheduler
from hpckit.schedulers.slurm.asking import ended_jobs
from hpckit.slurm.states import JobState
from hpckit.submission.states import statuses

KINDS = ("afterok", "afterany", "afternotok", "after", "aftercorr")


def read_after(word: str) -> tuple[str, str]:
    """Return (kind, job) of a word: `afterany:12`, or `12`, which means `afterok:12`.

    Raises:
        RequestError: there is no such kind.
    """
    kind, colon, job = word.partition(":")
    if not colon:
        kind, job = "afterok", word
    if kind not in KINDS:
        raise RequestError(f"--after {word!r}: {kind!r} is not one of {', '.join(KINDS)}.")
    return kind, job


def is_slurm_id(job: str) -> bool:
    """Say whether Slurm itself can be given a word as a job."""
    return job.replace("_", "").isdecimal() and job.isascii()


def dependency(word: str, executor: str, root: Path) -> tuple[str, tuple[str, ...]]:
    """Return Slurm's dependency (`afterok:12`) for a word, and the `kind:folder`s of its runs.

    Raises:
        RequestError: there is no such kind or run, or it runs elsewhere.
    """
    kind, job = read_after(word)
    scheduler = find_scheduler(executor)
    try:
        found = find_believed(job, root)
    except (RequestError, OutsideError):
        if scheduler.accounting and is_slurm_id(job):
            return f"{kind}:{job}", ()  # a job that hpckit did not submit
        raise
    if found[0].scheduler is not scheduler:
        raise RequestError(
            f"--after {word}: that is a {found[0].executor} run, but this one is {executor}."
        )
    ids = [found[0].job_id]
    if len(found) > 1:
        ids = list(dict.fromkeys(str(run.array_job_id) for run in found))
    if kind == "aftercorr" and len(ids) > 1:
        raise RequestError(
            f"--after {word}: the tasks of that run are in {len(ids)} arrays of Slurm's, and Slurm "
            "can match tasks of one array only. Give --after afterok, or one array's id of "
            f"{', '.join(ids)}."
        )
    return f"{kind}:{':'.join(ids)}", tuple(f"{kind}:{run.dir}" for run in found)


def refuse_hopeless(words: tuple[str, ...], root: Path) -> None:
    """Refuse to wait for what cannot come any more. Where Slurm cannot be asked, nothing is known.

    Raises:
        PlanError: a job has ended, and not as it was to; or there is none.
    """
    for word in words:
        kind, job = read_after(word)
        ended = list(_ended(job, root))
        bad = next((row for row in ended if row[1] is not JobState.COMPLETED), None)
        if kind == "afterok" and bad:
            raise PlanError(
                f"--after {word}: job {bad[0]} is {bad[1]}, but the new job starts only after a "
                "job that is COMPLETED, so it would never start. Run that job again first (hpckit "
                f"resubmit {bad[0]}), or give --after afterany:{job}. {off_switch('after')}"
            )
        if kind == "afternotok" and ended and not bad:
            raise PlanError(
                f"--after {word}: job {ended[0][0]} is COMPLETED, but the new job starts only "
                "after a failed job, so it would never start. Leave --after out. "
                f"{off_switch('after')}"
            )


def _ended(job: str, root: Path) -> Iterator[tuple[str, JobState]]:
    """Yield each job a word means that is over, with its state."""
    try:
        runs: list[Run] = find_believed(job, root)
    except RequestError:  # no run, or none to be believed
        if not is_slurm_id(job):
            return
        ended = ended_jobs(job)
        if ended is None:
            raise PlanError(
                f"--after {job}: Slurm knows no job {job}, or does not show it to you. Slurm takes "
                "such a job for one that is over: the new job would not wait for it. `hpckit jobs` "
                f"and `squeue` show ids. {off_switch('after')}"
            ) from None
        yield from ended
        return
    for status in statuses(runs):
        if status.finished:
            yield status.run.job_id, status.state
