"""What runs in a job script's place where other jobs follow this one; it starts what the job is.

`python -m hpckit.submission.follow_up RUN_DIR LINK -- COMMAND...`. In a chain each job but the
first waits for the end of the one before (`afterany`), however that ended. So each says at its end
whether there is something left to do, and takes the others out of the queue if there is not; and
each looks, before it begins, whether the one before could still say so.
"""

import os
import signal
import sys
import time
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from hpckit import shell
from hpckit.errors import CommandError, HpckitError
from hpckit.failures import why_from_inside
from hpckit.notify.told import told_at_the_end
from hpckit.payload.children import PASSED, prepare_script, shell_status
from hpckit.payload.task import GOES_ON
from hpckit.ranks import read_all_attempts
from hpckit.runs import Run, read_run
from hpckit.slurm import control
from hpckit.submission.chain import LinkEnd, Outcome, read_end, write_end

if TYPE_CHECKING:
    from subprocess import Popen  # noqa: TID251  # the type only

# A job may end while hpckit still submits those after it: so long their numbers are waited for.
_RECORD_S, _PAUSE_S = 30.0, 0.5


class Link:
    """One job of a chain: number `number`, in the folder of the run."""

    def __init__(self, run_dir: Path, number: int, argv: tuple[str, ...]) -> None:
        self.run_dir = run_dir
        self.number = number
        self.argv = argv
        self.job_id = os.environ.get("SLURM_JOB_ID", "")
        self._child: Popen[bytes] | None = None

    def run(self) -> int:
        """Start what the job is, if anything is left to do; return its exit status."""
        for signum in (signal.SIGTERM, signal.SIGINT, *PASSED):
            signal.signal(signum, self._pass_on)
        before = self._before()
        if before and before.over:
            self._say(f"is not needed: job {before.job_id} {_how(before)}. It ends at once")
            self._cancel(self._rest())
            return 0
        self._child = shell.spawn(
            self.argv,
            env={**os.environ, "HPCKIT_RESTART": str(self.number)},
            prepare=prepare_script,
        )
        status = shell_status(self._child.wait())
        self._settle(self._end(status))
        return status

    def _pass_on(self, signum: int, _frame: FrameType | None) -> None:
        """Outlive a signal; pass it on to a supervisor, since Slurm itself signals srun's tasks."""
        supervisor = self.argv[0] == sys.executable
        if supervisor and self._child and self._child.poll() is None:
            self._child.send_signal(signum)

    def _before(self) -> LinkEnd | None:
        """Return how the job before this one ended; judge it where it could not say so itself."""
        if not self.number:
            return None
        said = read_end(self.run_dir)
        if said and (said.over or said.link == self.number - 1):
            return said
        end = self._judged(self.number - 1)
        write_end(self.run_dir, end)
        return end

    def _end(self, status: int) -> LinkEnd:
        """Say what this job leaves to the next one, by the status of what it was."""
        if status in (0, GOES_ON):
            outcome = Outcome.GOES_ON if status else Outcome.COMPLETE
            return LinkEnd(link=self.number, job_id=self.job_id, outcome=outcome)
        return self._judged(self.number)

    def _judged(self, number: int) -> LinkEnd:
        """Judge how a job ended by its log and the records of its ranks."""
        run, cause = self._recorded(), None
        if run is not None:
            ranks = [row for row in read_all_attempts(run.dir) if row.restart == number]
            cause = why_from_inside(run, ranks)
        return LinkEnd(
            link=number,
            job_id=run.jobs[number] if run else self.job_id,
            outcome=Outcome.FAILED if cause else Outcome.GOES_ON,
            why=cause.text if cause else "",
        )

    def _settle(self, end: LinkEnd) -> None:
        """Write down how this job ended, and take those after it out of the queue if it is over."""
        write_end(self.run_dir, end)
        rest = self._rest()
        if end.outcome is Outcome.FAILED:
            self._say(f"failed: {end.why}. {_count(rest)} would fail again, so none runs")
        elif end.outcome is Outcome.GOES_ON and rest:
            self._say(f"has ended before the work was done; job {rest[0]} goes on")
        elif end.outcome is Outcome.GOES_ON:
            self._say(
                "has ended before the work was done, and it was the last of its chain. To go on: "
                f"hpckit resubmit {self.job_id}"
            )
        if end.over:
            self._cancel(rest)

    def _rest(self) -> tuple[str, ...]:
        run = self._recorded()
        return run.jobs[self.number + 1 :] if run else ()

    def _recorded(self) -> Run | None:
        """Return the run, once hpckit has submitted all of the chain; None: it never did."""
        until = time.monotonic() + _RECORD_S
        while True:
            try:
                return read_run(self.run_dir)
            except HpckitError:
                if time.monotonic() > until:
                    return None
            time.sleep(_PAUSE_S)

    def _cancel(self, jobs: tuple[str, ...]) -> None:
        """Take jobs out of the queue, the last one first: each would make room for the next."""
        try:
            if jobs:
                control.cancel(jobs[::-1])
        except CommandError as error:
            self._say(f"cannot cancel {', '.join(jobs)}, which will end at once: {error}")

    def _say(self, text: str) -> None:
        sys.stderr.write(f"hpckit: job {self.job_id} {text.rstrip('.')}.\n")
        sys.stderr.flush()


def _how(end: LinkEnd) -> str:
    return "has COMPLETED" if end.outcome is Outcome.COMPLETE else f"failed ({end.why})"


def _count(jobs: tuple[str, ...]) -> str:
    return "The next job of the chain" if len(jobs) == 1 else f"The next {len(jobs)} jobs"


def main() -> None:
    """Run one job of a chain."""
    run_dir, number, _, *argv = sys.argv[1:]
    with told_at_the_end():
        try:
            sys.exit(Link(Path(run_dir), int(number), tuple(argv)).run())
        except (HpckitError, OSError) as error:
            sys.exit(f"hpckit: {error}")


if __name__ == "__main__":
    main()
