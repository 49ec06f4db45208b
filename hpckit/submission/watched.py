"""A job that another one may follow, inside the job: its own command, and what its end leads to.

It outlives the job's ranks, even when the kernel kills them for their memory, and it outlives
Slurm's SIGTERM at the time limit. See `hpckit.submission.follow_up`.
"""

import os
import signal
import sys
import time
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from hpckit import shell
from hpckit.errors import HpckitError
from hpckit.failures import never_begun
from hpckit.payload.children import (
    PASSED,
    prepare_child,
    prepare_script,
    shell_status,
    until_ended,
)
from hpckit.payload.notice import handles
from hpckit.rank_variables import restart_count
from hpckit.ranks import RankRecord, read_all_attempts
from hpckit.runs import Run, read_run

if TYPE_CHECKING:
    from subprocess import Popen  # noqa: TID251  # the type only

# A job may end while hpckit is still submitting the next ones: how long it waits for their ids.
_RECORD_S, PAUSE_S = 30.0, 0.5
_POLL_S = 0.2


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

    def run(self) -> int:
        """Run the job's command, and see to what follows; return the exit status."""
        for signum in (signal.SIGTERM, signal.SIGINT, *PASSED):
            signal.signal(signum, self._pass_on)
        if (status := self.ends_at_once()) is not None:
            return status
        environ = {**os.environ, **self.variables()}
        prepare = prepare_child if self._supervises else prepare_script
        self._child = shell.spawn(self.argv, env=environ, prepare=prepare)
        for _ in until_ended(self._child, _POLL_S):
            self._hand_on(self._child)
            if self._told:
                self.ending()
        status = shell_status(self._child.returncode)
        if not status and (why := self._never_begun() or self.contradicted()):
            self.say(f"has FAILED, though srun ended with 0: {why}")
            status = 1
        self.ended(status)
        return status

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
    """Return the records of one attempt's ranks."""
    return [row for row in read_all_attempts(run.dir) if row.restart == attempt]
