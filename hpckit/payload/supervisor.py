"""The supervisor: what each task of a job runs. It starts ranks, or a launcher that starts them."""

import contextlib
import os
import signal
import time
from types import FrameType
from typing import TYPE_CHECKING, Protocol

from hpckit import shell
from hpckit.launchers import find_launcher
from hpckit.payload.children import (
    end_job,
    is_abandoned,
    prepare_child,
    prepare_shielded_child,
    shell_status,
    signal_group,
    stop_all,
)
from hpckit.payload.environment import threads
from hpckit.payload.handlers import is_below, parent_of
from hpckit.payload.notice import slurm_tells_all
from hpckit.payload.rank import Look, RankProcess, nobody
from hpckit.payload.task import TASK_VARIABLE, Task
from hpckit.rank_variables import restart_count, task_number
from hpckit.run_folders.ranks import RankRecord, read_attempt
from hpckit.stop_marks import WARNED, failed_with, heeds, look_every, marks, marks_of

if TYPE_CHECKING:
    from subprocess import Popen  # noqa: TID251  # the type only

_POLL_S = 0.05
# torchrun gives its workers 30 s after SIGTERM; a rank of ours needs 3 s at most.
_GRACE_S = 6.0
# How long a launcher may take to end by itself after one of its ranks has failed. MPICH's mpirun
# may never end: if the first rank fails, ranks on another node go on (seen with 4.x, Slurm 22.05).
_PATIENCE_S = 10.0
_LOOK_S = 0.5
# The pause between two attempts to warn ranks that have not begun yet.
_TELL_S = 1.0


class Supervised(Protocol):
    """Something a supervisor runs: one rank, or a launcher of several."""

    def run(self, look: Look = nobody) -> int:
        """Run to the end; return the exit status. `look` is called again and again: see `Look`."""

    def stop(self, signum: int, _frame: FrameType | None = None) -> None:
        """End it."""

    def forward(self, signum: int) -> None:
        """Pass a signal on."""

    def warn(self) -> None:
        """Pass Slurm's warning on to scripts that handle it, once."""

    def noted(self, signum: int) -> None:
        """Remember that the job was sent a signal to end, whatever becomes of it."""

    def heeds(self) -> bool | None:
        """Say whether a script was given the warning; None: that is not known yet."""


def supervised(task: Task) -> Supervised:
    """Return what this process has to run: a rank, or a launcher that starts ranks."""
    launcher = find_launcher(task.launcher)
    argv = launcher.child(task)
    if argv is not None:
        return LauncherProcess(task, argv)
    place = launcher.variables(task).placement(os.environ, task.tasks_per_node)
    return RankProcess(task, place)


class LauncherProcess:
    """A launcher that starts ranks itself, as a child; each of them runs `hpckit.payload.rank`."""

    def __init__(self, task: Task, argv: tuple[str, ...]) -> None:
        self.task = task
        self.argv = argv
        self.launcher = find_launcher(task.launcher)
        self._child: Popen[bytes] | None = None
        self._stop_at: float | None = None
        self._patient_until: float | None = None
        self._failed_look = 0.0
        self._tell_at: float | None = None
        # Slurm would signal the launcher, too, which would end its ranks before they save state.
        self._shielded = bool(
            task.warned and self.launcher.without_sigterm() and slurm_tells_all(task)
        )

    def run(self, look: Look = nobody) -> int:
        """Run the launcher to its end."""
        environ = launcher_environment(self.task)
        child = shell.spawn(
            self.argv,
            env=environ | self.launcher.without_sigterm() if self._shielded else environ,
            new_session=True,
            prepare=prepare_shielded_child if self._shielded else prepare_child,
        )
        self._child = child
        alone = False
        while child.poll() is None:
            time.sleep(_POLL_S)
            if not alone and is_abandoned():
                alone = True
                self.stop(signal.SIGTERM)  # slurmstepd was killed: see `RankProcess`
            if self._stop_at is None and self._failed_long_ago():
                self.stop(signal.SIGTERM)
            if self._stop_at is not None and time.monotonic() > self._stop_at:
                signal_group(child, signal.SIGKILL)
            if self._tell_at is not None and time.monotonic() > self._tell_at:
                self._tell()
            look(None)
        stop_all([child], grace_s=0)
        if alone:
            end_job(self.task)
        code = self._status(shell_status(child.returncode))
        look(code)
        return code

    def _failed_long_ago(self) -> bool:
        """Say whether the launcher has had its time to end since a rank failed."""
        if self._patient_until is not None:
            return time.monotonic() > self._patient_until
        now = time.monotonic()
        if now >= self._failed_look:
            self._failed_look = now + look_every(_LOOK_S, self.task.nodes)
            if failed_with(self.task.folder, restart_count()) is not None:
                self._patient_until = now + _PATIENCE_S
        return False

    def _status(self, code: int) -> int:
        """Return the status of the rank that failed: torchrun itself always ends with 1."""
        return (failed_with(self.task.folder, restart_count()) or code) if code else 0

    def stop(self, signum: int, _frame: FrameType | None = None) -> None:
        """SIGTERM to the launcher, which ends its ranks; SIGKILL after a grace."""
        del signum
        if self._child and self._child.poll() is None:
            self._child.send_signal(signal.SIGINT if self._shielded else signal.SIGTERM)
            self._stop_at = self._stop_at or time.monotonic() + _GRACE_S

    def warn(self) -> None:
        """Pass Slurm's warning to the ranks, until they have it; each passes it on once."""
        if self._tell_at is None:
            self._tell_at = time.monotonic()

    def _tell(self) -> None:
        self._tell_at = time.monotonic() + _TELL_S
        if self._child is None or self._child.poll() is not None:
            return
        attempt, known = restart_count(), self._here()
        left = [
            row for row in known
            if WARNED not in marks(marks_of(self.task.folder, row.rank), attempt)
        ]  # fmt: skip
        if self.launcher.passes_on is not None:
            if left or not known:
                self._child.send_signal(signal.SIGUSR2)
            return
        for row in left:
            # Until the script has begun, the record names the process that will start it.
            above = parent_of(row.pid)
            self._send(row.pid if above in (None, self._child.pid) else above, signal.SIGUSR2)

    def noted(self, signum: int) -> None:
        """Nothing: the ranks' records are their own."""

    def heeds(self) -> bool | None:
        """Say whether a script of this node has been given the warning; None: not known yet."""
        attempt = restart_count()
        ranks = [row.rank for row in self._here()]
        said = [heeds(marks(marks_of(self.task.folder, rank), attempt)) for rank in ranks]
        if any(said):
            return True
        return None if None in said else False

    def forward(self, signum: int) -> None:
        """Pass a signal to the ranks, through a launcher that does so; others may die of it."""
        if self._child is None or self._child.poll() is not None:
            return
        if self.launcher.passes_on is not None:
            if signum in self.launcher.passes_on:
                self._child.send_signal(signum)
            return
        if slurm_tells_all(self.task):
            return  # Slurm has signalled the scripts
        for row in self._here():
            self._send(row.pid, signum)

    def _send(self, pid: int, signum: int) -> None:
        """Signal a process of a rank's record, unless it is gone, and its number another's."""
        if self._child is not None and is_below(pid, self._child.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signum)

    def _here(self) -> list[RankRecord]:
        """Return the records of this node's ranks that have not ended."""
        node, width = task_number(os.environ), self.task.tasks_per_node
        ranks = range(node * width, (node + 1) * width)
        rows = (read_attempt(self.task.folder, rank, restart_count()) for rank in ranks)
        return [row for row in rows if row is not None and row.ended is None]


def launcher_environment(task: Task) -> dict[str, str]:
    """Return the environment of a launcher that starts ranks itself; its ranks inherit it."""
    launcher = find_launcher(task.launcher)
    ours = {**launcher.environment(os.environ), TASK_VARIABLE: task.to_json()}
    return ours | (threads(task, os.environ) if launcher.limits_threads else {})
