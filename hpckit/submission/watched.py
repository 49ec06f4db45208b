"""A job that another one may follow, inside the job: its own command, and what its end leads to.

It outlives the job's ranks, even when the kernel kills them for their memory, and it outlives
Slurm's SIGTERM at the time limit. See `hpckit.submission.follow_up`.
"""

import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from hpckit import shell
from hpckit.errors import HpckitError
from hpckit.job_ends.failures import never_begun
from hpckit.payload.children import (
    PASSED,
    WATCHED,
    prepare_child,
    prepare_script,
    shell_status,
    until_ended,
)
from hpckit.payload.handlers import handles
from hpckit.payload.notice import kill_wait_s
from hpckit.rank_variables import restart_count
from hpckit.run_folders.ranks import RankRecord, read_all_attempts
from hpckit.run_folders.run_files import patiently
from hpckit.run_folders.runs import Run, read_run
from hpckit.stop_marks import ALONE, marks, marks_of
from hpckit.submission.verdict import all_ended

if TYPE_CHECKING:
    from subprocess import Popen  # noqa: TID251  # the type only

# A job may end while hpckit is still submitting the next ones: how long it waits for their ids.
_RECORD_S, PAUSE_S = 30.0, 0.5
_POLL_S = 0.2
# The pause between two looks for ranks whose slurmstepd was killed, which end the job.
_LOOK_S = 5.0


class Watched:
    """A job that another one may follow; `argv` is its own command."""

    def __init__(self, run_dir: Path, argv: tuple[str, ...]) -> None:
        self.run_dir = run_dir
        self.argv = argv
        self.job_id = os.environ.get("SLURM_JOB_ID", "")
        self._child: Popen[bytes] | None = None
        self._told = False
        # Whether argv is hpckit's supervisor; it is srun otherwise, whose tasks Slurm signals.
        self._supervises = argv[0] == sys.executable
        self._held: list[int] = []
        self._look_at = 0.0
        self._end_by: float | None = None

    def run(self) -> int:
        """Run the job's command, and see to what follows; return the exit status."""
        for signum in (signal.SIGTERM, signal.SIGINT, *PASSED):
            signal.signal(signum, self._pass_on)
        if (status := self.ends_at_once()) is not None:
            return status
        environ = {**os.environ, WATCHED: self.job_id, **self.variables()}
        prepare = prepare_child if self._supervises else prepare_script
        self._child = shell.spawn(self.argv, env=environ, prepare=prepare)
        for _ in until_ended(self._child, _POLL_S):
            self._hand_on(self._child)
            if self._told:
                self.ending()
            if not self._supervises and time.monotonic() >= self._look_at:
                self._end_hanging(self._child)
        status = shell_status(self._child.returncode)
        if not status and (why := self._never_begun() or self.contradicted()):
            self.say(f"has FAILED, though srun ended with 0: {why}")
            status = 1
        self.ended(status)
        return status

    def _end_hanging(self, child: "Popen[bytes]") -> None:
        """End srun if a slurmstepd was killed: it waits for ever for what that would tell it.

        That one's ranks have ended. The others get SIGTERM, and may take Slurm's KillWait.
        """
        self._look_at = time.monotonic() + _LOOK_S
        if self._end_by is None:
            if ALONE not in marks(marks_of(self.run_dir, 0), self.attempt):
                return
            self._end_by = time.monotonic() + kill_wait_s() + _LOOK_S
        self._look_at = time.monotonic() + PAUSE_S
        if child.poll() is None and (time.monotonic() > self._end_by or self._all_ended()):
            self.say("has lost a slurmstepd, and srun would wait for it for ever: srun is ended")
            child.kill()

    def _all_ended(self) -> bool:
        run = self.recorded()
        return run is not None and all_ended(ranks_of(run, self.attempt), run.ranks)

    def _never_begun(self) -> str | None:
        if any(row.restart == self.attempt for row in read_all_attempts(self.run_dir)):
            return None
        return never_begun(self.run_dir)

    @property
    def attempt(self) -> int:
        """Which attempt of the run this is, from 0."""
        return restart_count()

    def ends_at_once(self) -> int | None:
        """Return the exit status of a job that has nothing to do; None: it has."""
        return None

    def contradicted(self) -> str | None:
        """Say which ranks did not end well where the job's command ended with 0; None: all did."""
        return None

    def variables(self) -> dict[str, str]:
        """Return variables to add to the job's environment."""
        return {}

    def ending(self) -> None:
        """Look at a job that was told to end and still runs; called again and again."""

    def ended(self, status: int) -> None:
        """See to what follows the job, which has ended with an exit status."""
        raise NotImplementedError

    def _pass_on(self, signum: int, _frame: FrameType | None) -> None:
        """Outlive a signal, and keep it for a supervisor; Slurm itself signals srun's tasks."""
        self._told = self._told or signum == signal.SIGTERM
        if self._supervises:
            self._held.append(signum)

    def _hand_on(self, child: "Popen[bytes]") -> None:
        """Pass on the signals that have come, as soon as the supervisor handles them."""
        held, self._held = self._held, []
        for signum in held if child.poll() is None else ():
            if signum in PASSED and not handles(child.pid, signum):
                self._held.append(signum)  # it is still starting
            else:
                child.send_signal(signum)

    def recorded(self) -> Run | None:
        """Wait until hpckit has submitted all of the run, and return it; None: it never did."""
        until = time.monotonic() + _RECORD_S
        while True:
            try:
                return read_run(self.run_dir)
            except HpckitError:
                if time.monotonic() > until:
                    return None
            time.sleep(PAUSE_S)

    def say(self, text: str) -> None:
        """Write a sentence about this job into its log."""
        sys.stderr.write(f"hpckit: job {self.job_id} {text.rstrip('.')}.\n")
        sys.stderr.flush()


def ranks_of(run: Run, attempt: int) -> list[RankRecord]:
    """Return the records of one attempt's ranks, in their order.

    A disk that refuses some of them is asked for a second: without them, a rank never began.
    """
    found: list[RankRecord] = []

    def read() -> None:
        damaged: list[str] = []
        found[:] = read_all_attempts(run.dir, damaged)
        if damaged:
            raise OSError(damaged[0])

    with suppress(OSError):
        patiently(read)
    return sorted((row for row in found if row.restart == attempt), key=lambda row: row.rank)
