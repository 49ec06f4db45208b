"""Passing Slurm's warning on to a script: SIGUSR2, once, and only if the script handles it.

By default SIGUSR2 ends a process. Whether a process handles it is in /proc/PID/status (proc(5),
SigCgt). So a script without a handler never gets the signal, and a script that is still importing
what will handle it gets the signal as soon as its handler is there.
"""

import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from hpckit.files import DamagedFileError, read_bytes
from hpckit.payload.handlers import handlers_of, may_only_clean_up
from hpckit.payload.task import Task
from hpckit.stop_marks import DEAF, SENT, WARNED, add_mark

_WARNING = signal.SIGUSR2
# Slurm's default, for when slurm.conf cannot be read.
_KILL_WAIT_S = 30.0
# A script that ends so soon after the warning has ended because of it.
_AT_ONCE_S = 1.0


class Notice:
    """The warning for one script.

    Attributes:
        told: whether Slurm has sent it.
        by_slurm: whether Slurm itself sends it to every process of the step.
    """

    def __init__(
        self, marks: Path, attempt: int, *, by_slurm: bool, declared: bool = False
    ) -> None:
        """Begin. `declared`: the workload says `handles_stop_signal`."""
        self.told = False
        self.by_slurm = by_slurm
        self._declared = declared
        self._marks = marks
        self._attempt = attempt
        self._sent = False
        self._caught = False
        self._by_term = False
        self._saves_on_term = False
        self._deaf = False
        self._looked = False
        self._before_script = False
        self._told_at = 0.0
        self._ended_at: float | None = None

    def tell(self, pid: int | None, *, ended: bool = False, by_term: bool = False) -> None:
        """Note that Slurm has sent the warning; `deliver` passes it on.

        A signal handler may call this, at any moment of `deliver`.

        Args:
            pid: the script's process; None: it has not begun, or has ended.
            ended: whether it has ended.
            by_term: Slurm has sent SIGTERM instead, so a script that handles only SIGTERM gets
                that.
        """
        if self.told:
            return
        self.told = True
        self._told_at = time.monotonic()
        self._before_script = pid is None and not ended
        # Before any signal: a script whose handler is set too late for the signal looks here.
        add_mark(self._marks, self._attempt, WARNED)
        self._by_term = by_term
        if by_term:
            has_it = self.by_slurm and self._saves_on_term and not self._caught
        else:
            has_it = self.by_slurm and (self._caught or bool(pid and handlers_of(pid)))
        if has_it:
            self._note_sent()
        self._settle()

    def deliver(self, pid: int, done: Callable[[int], bool] = lambda _pid: False) -> None:
        """Send the script a warning that it has not got, once it handles it; call this often.

        `done`: says whether a process has only to exit: it has nothing to save, and no handler.
        """
        if not self.told:
            # If Slurm sends it itself, the script may end because of it before `tell` is called.
            if self.by_slurm and not self._caught:
                self._looked = True
                self._caught = bool(handlers_of(pid))
                # Who ignores the signal while it saves shows no handler then.
                self._saves_on_term |= bool(handlers_of(pid, signal.SIGTERM))
            return
        if self._sent:
            return
        able, signum = handlers_of(pid), _WARNING
        if self._by_term and all(map(may_only_clean_up, able)):
            by_term = handlers_of(pid, signal.SIGTERM)
            if by_term != able:
                able, signum = by_term, signal.SIGTERM
        if done(pid):  # after the look: its handlers go when it has said so
            return
        if not able:
            if not self._deaf:
                self._deaf = True
                add_mark(self._marks, self._attempt, DEAF)
            return
        self._note_sent()
        for process in able:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signum)

    def ended(self) -> None:
        """Note that the script has ended."""
        self._ended_at = time.monotonic()
        self._settle()

    def _settle(self) -> None:
        """Decide of a script that has ended whether it had got the warning from Slurm itself.

        It may get and answer the signal between two looks at it, and what has ended, or ignores the
        signal while it saves its state, shows no handler. If it is complete nevertheless, the next
        attempt finds that; if it were taken for complete, what is left of its work would be lost.
        """
        if self._ended_at is None or self._sent or self._before_script:
            return
        if not (self.told and self.by_slurm):
            return
        if self._deaf:
            answered = self._declared and self._ended_at - self._told_at < _AT_ONCE_S
        else:
            answered = self._declared or not self._looked
        if answered:
            self._note_sent()

    def _note_sent(self) -> None:
        self._sent = True
        add_mark(self._marks, self._attempt, SENT)


def slurm_tells_all(task: Task) -> bool:
    """Say whether Slurm sends a step's signals to scripts, too, and not only to supervisors.

    `proctrack/linuxproc` does. `proctrack/cgroup`, the usual one, signals only tasks (both in
    Slurm's src/plugins/proctrack). A batch script's signal goes to its own process only.
    """
    from hpckit.launchers import find_launcher  # noqa: PLC0415  # launchers import this package

    if task.one_machine or find_launcher(task.launcher).in_batch_script:
        return False
    return tells_all(_conf())


def _conf() -> str:
    return os.environ.get("SLURM_CONF") or "/etc/slurm/slurm.conf"


def tells_all(conf: str) -> bool:
    """Say whether a slurm.conf names `proctrack/linuxproc`."""
    return "proctracktype=proctrack/linuxproc" in _settings(conf)


def kill_wait_s(conf: str | None = None) -> float:
    """Return the seconds that Slurm waits from SIGTERM to SIGKILL: KillWait of slurm.conf(5)."""
    named = (row.partition("=") for row in _settings(conf or _conf()))
    found = [value for name, _, value in named if name == "killwait" and value.isdecimal()]
    return float(found[-1]) if found else _KILL_WAIT_S


def _settings(conf: str) -> list[str]:
    """Return the lines of a slurm.conf in small letters, without spaces and comments."""
    try:
        text = read_bytes(conf).decode(errors="replace")
    except (OSError, DamagedFileError):
        return []
    return ["".join(line.partition("#")[0].split()).lower() for line in text.splitlines()]
