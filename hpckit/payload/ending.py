"""What a SIGTERM means: the end of the job, or a preemption before which the script can save.

Slurm sends the same signal at the beginning of a preemption's GraceTime, at its end, after scancel
and at the time limit. So the supervisor of rank 0 asks Slurm, and writes the answer into the run's
folder (`hpckit.stop_marks`), where the other supervisors read it. If the job may go on later, no
script gets the signal until then. In any other job scripts get it at once, and the answer only says
afterwards why they ended.
"""

import signal
import time
from collections.abc import Callable
from types import FrameType
from typing import Protocol

from hpckit.errors import CommandError
from hpckit.payload.notice import kill_wait_s
from hpckit.payload.task import Task
from hpckit.rank_variables import restart_count
from hpckit.run_folders.ranks import has_ended
from hpckit.stop_marks import (
    LIMIT,
    OVER,
    PREEMPTED,
    REQUEUED,
    add_mark,
    claim_to_ask,
    failed_with,
    look_every,
    marks,
    marks_of,
)

# How long rank 0's supervisor may be silent, which may have been killed; then another one asks.
_SILENT_S = 2.0
# How long the answer may take; after that the script gets the signal, as if the job ended.
_ANSWER_S = 10.0
# Pauses between two looks for the answer, and before a silent controller is asked again.
_LOOK_S = 0.2
_AGAIN_S = 1.0
_TAKEN = {PREEMPTED, REQUEUED}


class Running(Protocol):
    """What `Ending` needs of a rank, or of a launcher of several ranks."""

    def noted(self, signum: int) -> None:
        """Remember that the job was sent a signal to end, whatever becomes of it."""

    def stop(self, signum: int, _frame: FrameType | None = None) -> None:
        """End it."""

    def warn(self) -> None:
        """Pass Slurm's warning on to scripts that handle it, once."""

    def heeds(self) -> bool | None:
        """Say whether a script was given the warning; None: that is not known yet."""


class Ending:
    """Slurm's SIGTERM to one supervisor.

    Attributes:
        passed_on: whether the script has been told to end.
        came: when the first such signal came, by `time.monotonic`.
    """

    def __init__(
        self,
        task: Task,
        running: Running,
        *,
        asks: bool,
        warn: Callable[[], None] | None = None,
    ) -> None:
        """Begin. `asks`: this process asks Slurm. `warn`, else `running`, passes a warning on."""
        self.task = task
        self.passed_on = False
        self.came: float | None = None
        self._running = running
        self._warn = warn or running.warn
        self._asks = asks
        self._ask_at: float | None = None
        self._attempt = restart_count()
        self._file = marks_of(task.folder, 0)
        self._look_s = look_every(_LOOK_S, task.nodes * task.tasks_per_node)
        self._looked = -self._look_s
        self._warned = False
        self._until: float | None = None
        self._why_by: float | None = None

    def handle(self, signum: int, _frame: FrameType | None = None) -> None:
        """Handle SIGTERM or SIGINT."""
        self._running.noted(signum)
        maybe = signum == signal.SIGTERM and self._may_be_preemption()
        if maybe and self.task.warned:
            self.suspect()
            return
        if maybe:
            self.wonder()
        self._pass_on(signum)

    def suspect(self) -> None:
        """Find out what becomes of the job."""
        self._ask_at = time.monotonic()
        self.came = self.came or self._ask_at

    def wonder(self) -> None:
        """Find out what has ended a job that does not go on, beside its end.

        Rank 0 may have done its part: then one of the others asks.
        """
        self._ask_at = time.monotonic()
        self._why_by = self._ask_at + _SILENT_S
        if not self._asks and has_ended(self.task.folder, 0, self._attempt):
            self._stand_in()

    def _may_be_preemption(self) -> bool:
        if self.passed_on or self.task.one_machine:
            return False
        return failed_with(self.task.folder, self._attempt) is None

    def _pass_on(self, signum: int) -> None:
        self.passed_on = True
        self._running.stop(signum)

    @property
    def taken(self) -> bool:
        """Whether the job goes on later: it is preempted, or in the queue again."""
        said = self.said()
        return bool(said & _TAKEN) and OVER not in said

    @property
    def asks(self) -> bool:
        """Whether this process is the one that asks Slurm."""
        return self._asks

    def said(self) -> set[str]:
        """Return the words that were written down about this attempt's end."""
        return marks(self._file, self._attempt)

    def look(self) -> None:
        """Act on Slurm's answer, once there is one; call this often."""
        now = time.monotonic()
        if self._why_by is not None:  # a script that saves leaves time to ask a busy controller
            self._ask_if_due(now)
        if self.came is None or self.passed_on:
            return
        self._ask_if_due(now)
        if now - self._looked < self._look_s:
            return
        self._looked = now
        said = self.said()
        if not self._asks and not said & {*_TAKEN, OVER} and now - self.came > _SILENT_S:
            self._stand_in()
        if OVER in said or (not said & _TAKEN and now - self.came > _ANSWER_S):
            self._pass_on(signal.SIGTERM)
        elif said & _TAKEN:
            self._let_save(REQUEUED in said)

    def _ask_if_due(self, now: float) -> None:
        if self._asks and self._ask_at is not None and now >= self._ask_at:
            self.ask()

    def _stand_in(self) -> None:
        """Ask in the place of rank 0's supervisor, unless another process does so."""
        if claim_to_ask(self.task.folder, self._attempt):
            self._asks, self._ask_at = True, time.monotonic()

    def _let_save(self, requeued: bool) -> None:
        """Warn the script; end it if it does not listen, or if Slurm is about to kill it."""
        if not self._warned:
            self._warned = True
            self._warn()
        if requeued and self._until is None:
            self._until = time.monotonic() + kill_wait_s() * 2 / 3
        late = self._until is not None and time.monotonic() > self._until
        # Otherwise rank 0's supervisor requeues the job, and then Slurm ends it.
        alone = requeued or self._attempt >= self.task.max_requeues
        if late or (alone and self._running.heeds() is False):
            self._pass_on(signal.SIGTERM)

    def ask(self) -> str | None:
        """Ask Slurm, and write down the answer; None: there was none, and it will be asked again.

        LIMIT is not written down: the job runs, and nothing takes its place.
        """
        from hpckit.schedulers.base import find_scheduler  # noqa: PLC0415  # seldom

        self._ask_at = None
        try:
            word = find_scheduler(self.task.executor).fate()
        except CommandError:
            # The signal may have ended squeue, or the controller may be busy or restarting.
            self._ask_at = time.monotonic() + _AGAIN_S
            return None
        if word == OVER and self.came is None and not self.passed_on:
            return LIMIT  # nothing says that it ends
        add_mark(self._file, self._attempt, word)
        return word

    def settle(self) -> bool:
        """If a signal has come, wait for Slurm's answer; say whether the job goes on later."""
        while self.came is not None and not self.passed_on and not self.taken:
            self.look()
            time.sleep(_LOOK_S)
        self.look()
        return self.came is not None and self.taken

    def hear_why(self, *, patient: bool = False) -> None:
        """Wait a moment for the answer, if a signal has ended a job that does not go on.

        `patient`: longer, for without the answer a job that left work undone would be complete.

        Also those wait that do not ask: where one of them has failed, srun ends what is left of the
        step, and with it the process that asks.
        """
        if self._why_by is None:
            return
        until = self._why_by + (_ANSWER_S - _SILENT_S if patient else 0)
        while time.monotonic() < until:
            self.look()
            if self._ask_at is None or not self.said().isdisjoint({*_TAKEN, OVER}):
                return
            time.sleep(min(self._look_s, max(until - time.monotonic(), 0)))
