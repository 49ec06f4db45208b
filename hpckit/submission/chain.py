"""`--chain N`: jobs that follow one another in one run; which of them says what became of the run.

Each job of a chain is an attempt of the run. At its end it writes down in the run's folder whether
the next one has something left to do: `hpckit.submission.chained`.
"""

from collections.abc import Mapping
from dataclasses import asdict, replace
from enum import StrEnum
from pathlib import Path

from hpckit.frozen import frozen
from hpckit.run_folders import run_files
from hpckit.run_folders.ranks import read_all_attempts
from hpckit.run_folders.run_files import patiently, write_json
from hpckit.run_folders.runs import Run
from hpckit.slurm.states import JobRecord, JobState, is_finished
from hpckit.submission.verdict import not_begun
from hpckit.values import Size

_NOTE = "chain.json"
# What Slurm may call a job that had ended well, and written so, before its last process ended.
_ENDED_LATE = (JobState.TIMEOUT, JobState.FAILED)


class Outcome(StrEnum):
    """What a job of a chain leaves to the next one."""

    COMPLETE = "complete"
    FAILED = "failed"  # the next one would fail again
    GOES_ON = "goes on"


@frozen(kw_only=True)
class LinkEnd:
    """How the newest job of a chain that is over has ended; `why` it failed, in words."""

    link: Size
    job_id: str
    outcome: Outcome
    why: str = ""

    @property
    def over(self) -> bool:
        """Whether nothing is left to do for the jobs after it."""
        return self.outcome is not Outcome.GOES_ON


def write_end(run_dir: Path, end: LinkEnd) -> None:
    """Write down how a job of a chain has ended.

    Raises:
        OSError: the run's folder cannot be written.
    """
    patiently(lambda: write_json(run_dir / _NOTE, asdict(end)))


def read_end(run_dir: Path, *, in_job: bool = False) -> LinkEnd | None:
    """Return how the newest job of a chain that could say so has ended; None: none could.

    `in_job` is that of `run_files.read_note`.
    """
    return run_files.read_note(run_dir / _NOTE, LinkEnd, in_job=in_job)


def record_of(run: Run, records: Mapping[str, JobRecord]) -> JobRecord | None:
    """Return what Slurm says of the job that speaks for a chain, with its attempt in `restarts`.

    This is the one that runs or waits next, or the one with which all ended.
    """
    known = [
        replace(records[job], restarts=link) for link, job in enumerate(run.jobs) if job in records
    ]
    return _speaker(known, read_end(run.dir)) if known else None


def begun_before(run: Run, link: int, records: Mapping[str, JobRecord]) -> int:
    """Return how many of a chain's jobs before one have begun, by Slurm or by their ranks' files.

    One that was cancelled while it waited has not, and the next one is passed on to.
    """
    left = {row.restart for row in read_all_attempts(run.dir, [])}
    before = [(number, records.get(job)) for number, job in enumerate(run.jobs[:link])]
    return sum(
        number in left or (record is not None and not not_begun(record, ()))
        for number, record in before
    )


def _speaker(known: list[JobRecord], end: LinkEnd | None) -> JobRecord:
    """Return the job of a chain that speaks for it; `known` are its jobs in order."""
    if end and end.over:
        # What comes after it does nothing; one before it that is not over says more than its note.
        live = [
            row for row in known if (row.restarts or 0) < end.link and not is_finished(row.state)
        ]
        last = [_as_noted(row, end) for row in known if row.restarts == end.link]
        if live or last:
            return (live or last)[0]
    for row in known:
        if row.state is JobState.COMPLETED or not is_finished(row.state):
            return row
    # All are over, and the work is not done: the last one that had begun ended it, unless somebody
    # took those after it out of the queue.
    begun = [row for row in known if row.state is not JobState.CANCELLED or row.nodes]
    if not begun:
        return known[0]
    gone = begun[-1].restarts != known[-1].restarts
    return replace(begun[-1], state=JobState.CANCELLED) if gone else begun[-1]


def _as_noted(row: JobRecord, end: LinkEnd) -> JobRecord:
    """Return what Slurm says of a job, but COMPLETED where it ended well in its last seconds.

    Between the time limit and its KillWait Slurm lets a job end by itself, and calls it TIMEOUT.
    It is FAILED if its process was killed that takes the jobs after it out of the queue.
    """
    ended_well = end.outcome is Outcome.COMPLETE and row.state in _ENDED_LATE
    return replace(row, state=JobState.COMPLETED, exit_code=0) if ended_well else row
