"""A job of a `--chain`, inside the job: each but the first waits for the end of those before.

It waits for their end (`afterany`), however it came. So each job says at its end whether work is
left; if none is, it takes the others out of the queue. And before a job begins, it looks whether
the one before could still say so.
"""

import time
from dataclasses import replace
from pathlib import Path

from hpckit.errors import CommandError
from hpckit.files import reason
from hpckit.job_ends.failures import why_from_inside
from hpckit.payload.task import GOES_ON
from hpckit.run_folders.ranks import own_failures
from hpckit.slurm import control
from hpckit.slurm.states import JobRecord, JobState
from hpckit.stop_marks import NEXT, NO_CHECKPOINT, TERMINATED, add_mark, marks, marks_of
from hpckit.submission.chain import LinkEnd, Outcome, read_end, write_end
from hpckit.submission.checkpoints import Checkpoints
from hpckit.submission.verdict import LATE_S, contradiction, not_begun
from hpckit.submission.watched import PAUSE_S, Watched, ranks_of


class Link(Watched):
    """Job `number` of a chain, in the folder of the run.

    If nothing that `pattern` names (`--checkpoint`) is new at its end, the next job would only do
    the same again.
    """

    def __init__(
        self, run_dir: Path, number: int, argv: tuple[str, ...], pattern: str | None = None
    ) -> None:
        super().__init__(run_dir, argv)
        self.number = number
        self._pattern = pattern
        self._checkpoints = Checkpoints(run_dir, pattern, Path.cwd()) if pattern else None
        # Whether srun gave its step up, as it does with status 0 where a node is lost.
        self._lost = False

    def ends_at_once(self) -> int | None:
        """Return an exit status if the jobs before this one have left nothing to do."""
        before = self._before()
        if not before or not before.over:
            return None
        self.say(f"is not needed: job {before.job_id} {_how(before)}. It ends at once")
        self._cancel(self._rest())
        # Jobs that wait for a chain (`--after`) look at the status of each of its jobs.
        return int(before.outcome is Outcome.FAILED)

    def contradicted(self) -> str | None:
        """Say which ranks did not end well; what another node has written may come late."""
        until = time.monotonic() + LATE_S
        while run := self.recorded():
            ranks = ranks_of(run, self.number)
            wrong = contradiction(ranks, run.ranks, lambda: None)
            failed = any(row.exit_code for row in ranks)
            if wrong is None or failed or time.monotonic() > until:
                self._lost = bool(wrong) and not own_failures(ranks)
                return wrong
            time.sleep(PAUSE_S)
        return None

    @property
    def attempt(self) -> int:
        """Its number in the chain, from 0."""
        return self.number

    def variables(self) -> dict[str, str]:
        """Count the jobs before this one as restarts."""
        return {"HPCKIT_RESTART": str(self.number)}

    def ended(self, status: int) -> None:
        """Decide whether the jobs after this one have something to do."""
        self._settle(self._end(status))

    def _before(self) -> LinkEnd | None:
        """Return how the last job before this one that had begun ended.

        Even if it could not say so itself. None: none had, or this is the first one.
        """
        said = read_end(self.run_dir, in_job=True) if self.number else None
        if said and said.over:
            return said
        for number in reversed(range(self.number)):
            if said and said.link == number:
                return said
            if end := self._silent(number):
                self._note_down(end)
                return end
        return None

    def _silent(self, number: int) -> LinkEnd | None:
        """Return how a job ended that could not say so; None: it was cancelled before it began."""
        end, run = self._judged(number), self.recorded()
        record = _slurms_word(end.job_id) if end.over and run else None
        if run is None or record is None:
            return end
        if record.state in (JobState.NODE_FAIL, JobState.BOOT_FAIL):
            return LinkEnd(link=number, job_id=end.job_id, outcome=Outcome.GOES_ON)
        ranks = ranks_of(run, number)
        if record.state is JobState.COMPLETED and not contradiction(ranks, run.ranks, lambda: None):
            return LinkEnd(link=number, job_id=end.job_id, outcome=Outcome.COMPLETE)
        return None if not_begun(record, ranks) else end

    def _end(self, status: int) -> LinkEnd:
        """Return how this job ended, by the exit status of its command."""
        # Who handles SIGTERM may save and end with 0: what sent the signal says what follows.
        told = not status and self._was_told()
        if (status in (0, GOES_ON) and not told) or self._lost:
            outcome = Outcome.GOES_ON if status else Outcome.COMPLETE
            end = LinkEnd(link=self.number, job_id=self.job_id, outcome=outcome)
        else:
            end = self._judged(self.number)
        if end.over or self._checkpoints is None or self._checkpoints.newer():
            return end
        add_mark(marks_of(self.run_dir, 0), self.number, NO_CHECKPOINT)
        why = (
            f"it ended before its work was done, and nothing that --checkpoint {self._pattern} "
            "names, and nothing in the run's checkpoints/, is newer than its start"
        )
        return replace(end, outcome=Outcome.FAILED, why=why)

    def _was_told(self) -> bool:
        """Say whether a rank was told to end; rank 0 may have done its part before."""
        run = self.recorded()
        files = (marks_of(self.run_dir, rank) for rank in range(run.ranks if run else 1))
        return any(TERMINATED in marks(file, self.number) for file in files)

    def _judged(self, number: int) -> LinkEnd:
        """Return how a job ended, by rank 0's supervisor, else its log and its ranks' records."""
        run, cause = self.recorded(), None
        if run is not None and NEXT not in marks(marks_of(self.run_dir, 0), number):
            cause = why_from_inside(run, ranks_of(run, number))
        return LinkEnd(
            link=number,
            job_id=run.jobs[number] if run else self.job_id,
            outcome=Outcome.FAILED if cause else Outcome.GOES_ON,
            why=cause.text if cause else "",
        )

    def _note_down(self, end: LinkEnd) -> None:
        """Write down how a job ended; if that cannot be, who comes next judges without it."""
        try:
            write_end(self.run_dir, end)
        except OSError as error:
            self.say(f"cannot write into {self.run_dir} how a job ended: {reason(error)}")

    def _settle(self, end: LinkEnd) -> None:
        """Write down how this job ended; if all work is over, cancel the jobs after it."""
        self._note_down(end)
        rest = self._rest()
        if end.outcome is Outcome.FAILED:
            so_none = f". {_count(rest)} would fail again, so none runs" if rest else ""
            self.say(f"failed: {end.why}{so_none}")
        elif end.outcome is Outcome.GOES_ON and rest:
            self.say(f"has ended before the work was done; job {rest[0]} goes on")
        elif end.outcome is Outcome.GOES_ON:
            self.say(
                "has ended before the work was done, and it was the last of its chain. `hpckit "
                f"resubmit {self.job_id}` begins anew; what was saved is in {self.run_dir}"
            )
        if end.over:
            self._cancel(rest)

    def _rest(self) -> tuple[str, ...]:
        run = self.recorded()
        return run.jobs[self.number + 1 :] if run else ()

    def _cancel(self, jobs: tuple[str, ...]) -> None:
        """Take jobs out of the queue, the last one first, so that none starts meanwhile."""
        try:
            if jobs:
                control.cancel(jobs[::-1])
        except CommandError as error:
            self.say(f"cannot cancel {', '.join(jobs)}, which will end at once: {error}")


def _slurms_word(job_id: str) -> JobRecord | None:
    """Return what Slurm says of a job that is over; None: it does not answer, or has forgotten."""
    from hpckit.schedulers.slurm.asking import records_of  # noqa: PLC0415  # few are asked for

    return next(iter(records_of(job_id) or ()), None)


def _how(end: LinkEnd) -> str:
    return "has COMPLETED" if end.outcome is Outcome.COMPLETE else f"failed ({end.why})"


def _count(jobs: tuple[str, ...]) -> str:
    return "The next job of the chain" if len(jobs) == 1 else f"The next {len(jobs)} jobs"
