"""One rank: its environment, its logs, its record, and the user's script as its child.

`python -m hpckit.payload.rank` is what torchrun, mpirun and their like start for each rank.
"""

import contextlib
import os
import signal
import socket
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import IO, TYPE_CHECKING

from hpckit import shell
from hpckit.errors import CommandError, JobError
from hpckit.launchers import find_launcher
from hpckit.logs import JOB_LOG
from hpckit.payload.children import (
    LOCAL_GRACE_S,
    die_with_parent,
    end_job,
    handle_passed,
    prepare_script,
    prepare_warned_script,
    shell_status,
    signal_group,
    stop_all,
    until_ended,
    wait_for,
)
from hpckit.payload.end_line import EndLine
from hpckit.payload.environment import (
    choose_device,
    rank_environment,
    restart_count,
    script_command,
)
from hpckit.payload.starting import NOT_STARTED, located, why_not
from hpckit.payload.task import JOB_ROOT, TASK_VARIABLE, Task, task_from_json
from hpckit.rank_variables import RankPlacement
from hpckit.ranks import RankRecord, first_failure, read_ranks, write_rank
from hpckit.runs import FOLDER_MODE, open_to_write
from hpckit.stats.sampler.start import start_sampler, stop_sampler, write_summary
from hpckit.tracebacks import (
    HANGS_AT_END,
    OUT_OF_MEMORY,
    last_error,
    last_words,
    says_why,
    signal_error,
    silent_error,
)

if TYPE_CHECKING:
    from subprocess import Popen  # noqa: TID251  # the type only

# What a rank gets to end after another one failed. Long enough for a traceback to be written.
_GRACE_AFTER_FAILURE_S = 3.0
# Slurm's own KillWait, where slurmstepd is no longer there to keep it.
_GRACE_ALONE_S = 30.0
# A script that wrote an error, and nothing for so long until it was ended, did not work any more.
# What it writes because of the signal is younger, also by the clock of a file server.
_QUIET_S = 20.0
# How long Slurm may take from one process of a step to the next.
_HEARD_S = 1.0
_POLL_S = 0.05
# Python's own end takes a moment; with much memory to give back, some seconds.
_ENDS_WITHIN_S = 20.0


class RankProcess:
    """The user's script of one rank, from start to record.

    `start`, then `wait`; `stop` and `forward` may come from signal handlers in between.
    """

    def __init__(self, task: Task, place: RankPlacement) -> None:
        self.task = task
        self.place = place
        self._child: Popen[bytes] | None = None
        self._stop_at: float | None = None
        self._stopped_by: int | None = None
        self._failed_before: str | None = None
        self._alone = False
        self._record: RankRecord | None = None
        self._starts = {"out": 0, "err": 0}
        self._no_start: str | None = None
        self._met: bool | None = None
        self._hangs = False
        self._oom_kills = oom_kills()

    def run(self) -> int:
        """Run the script to its end; return its exit status as a shell would give it."""
        device, warning = choose_device(self.task.device)
        try:
            with self._open_log("out") as stdout, self._open_log("err") as stderr:
                self._starts = {"out": stdout.tell(), "err": stderr.tell()}
                if warning and self.place.rank == 0:
                    _say(stderr, warning)
                self._record = self._begin(device)
                code = self._run_sampled(device, stdout, stderr)
            self._finish(code)
        except OSError as error:
            raise JobError(
                f"rank {self.place.rank} on {socket.gethostname()} cannot write to "
                f"{self.task.folder}: {error.strerror}. The rank's end is not recorded."
            ) from error
        if self._alone:
            end_job(self.task)
        if self.place.rank == 0 and self.task.sample_interval_s > 0:
            write_summary(self.task.folder)
        return self._status(code)

    def _open_log(self, end: str) -> IO[bytes]:
        path = self._log(end)
        path.parent.mkdir(mode=FOLDER_MODE, exist_ok=True)
        return open_to_write(path, "ab")

    def _log(self, end: str) -> Path:
        return self.task.folder / "logs" / f"{self.place.rank}.{end}"

    def _begin(self, device: str) -> RankRecord:
        record = RankRecord(
            rank=self.place.rank,
            restart=restart_count(),
            host=socket.gethostname(),
            device=device,
            pid=os.getpid(),
            started=time.time(),
            log_start=_size(self.task.folder / JOB_LOG),
        )
        write_rank(self.task.folder, record)
        return record

    def _run_sampled(self, device: str, stdout: IO[bytes], stderr: IO[bytes]) -> int:
        sampler = self._start_sampler()
        try:
            code = self._run_child(device, stdout, stderr)
            if code:
                self._finish(code)  # at once: MPI may be about to have the whole step killed
            return code
        finally:
            stop_sampler(sampler)

    def _status(self, code: int) -> int:
        """Return what this process ends with: of all tasks Slurm takes the highest for the job's.

        A rank stopped by SIGTERM would give 143, whatever the first one to fail ended with.
        """
        if not (code and self._stopped_by):
            return code
        failed = first_failure(self._others())
        return failed.exit_code or 1 if failed and not failed.consequence else 1

    def _others(self) -> list[RankRecord]:
        return [row for row in read_ranks(self.task.folder) if row.rank != self.place.rank]

    def forward(self, signum: int) -> None:
        """Pass a signal to the script itself, not to its own children."""
        if self._child and self._child.poll() is None:
            self._child.send_signal(signum)

    def pass_on(self, signum: int, _frame: FrameType | None = None) -> None:
        """Forward, as a signal handler."""
        self.forward(signum)

    def settle(self, seconds: float) -> None:
        """Wait for the script to end by itself after a stop signal."""
        wait_for(self._child, seconds)

    def stop(self, signum: int, _frame: FrameType | None = None) -> None:
        """End the script: Slurm, a colleague rank's failure or the user wants it so.

        After another rank's failure the script gets three seconds; else it has until Slurm's own
        KillWait, since a script may use SIGTERM to save its state before a preemption. Locally it
        has a second less than this process, which has its end to write down.
        """
        if self._stopped_by is None:
            logs = self._log("err"), self._log("out")
            self._failed_before = silent_error(*logs, self._starts["err"], _QUIET_S)
        self._stopped_by = signum
        if self._child and self._child.poll() is None:
            signal_group(self._child, signal.SIGTERM)
        if self._stop_at is not None:
            return
        if first_failure(read_ranks(self.task.folder)):
            self._stop_at = time.monotonic() + _GRACE_AFTER_FAILURE_S
        elif self.task.executor == "local":
            self._stop_at = time.monotonic() + LOCAL_GRACE_S - 1

    def _start_sampler(self) -> "Popen[bytes] | None":
        """Start this node's sampler, on its first rank; before the script, so that it sees all."""
        ids = {"run_id": self.task.run_id, "restart": str(restart_count())}
        folder, interval_s = self.task.folder / "samples", self.task.sample_interval_s
        if self.place.local_rank != 0:
            return None
        if self.task.executor != "local":
            return start_sampler(folder, interval_s, ids)
        if self.place.node_rank != 0:
            return None  # simulated nodes are one machine: one sampler sees all of it
        environ = {**os.environ, "CUDA_VISIBLE_DEVICES": os.environ.get("HPCKIT_NODE_GPUS", "")}
        return start_sampler(
            folder,
            interval_s,
            ids,
            root_pid=int(os.environ.get(JOB_ROOT, 0)) or None,
            environ=environ if environ["CUDA_VISIBLE_DEVICES"] else None,
        )

    def _run_child(self, device: str, stdout: IO[bytes], stderr: IO[bytes]) -> int:
        environ = rank_environment(self.task, self.place, device)
        argv = located(script_command(self.task), environ, self.task.python[0])
        with EndLine() as line:
            try:
                child = shell.spawn(
                    argv,
                    env=environ | line.variables(),
                    stdout=stdout,
                    stderr=stderr,
                    new_session=True,
                    # MPI's PMI hands ranks an open descriptor (PMI_FD); Python's own are closed.
                    close_fds=False,
                    prepare=prepare_warned_script if self._is_surprised() else prepare_script,
                )
            except CommandError as error:
                self._no_start = f"hpckit: {why_not(argv, environ, error)}"
                _say(stderr, self._no_start)
                return NOT_STARTED
            self._child = child
            try:
                line.started()
                if self._record:
                    self._record = replace(self._record, pid=child.pid)
                    write_rank(self.task.folder, self._record)
                return self._watch(child, line, stderr)
            finally:
                stop_all([child], grace_s=0)  # what the script left running ends with it

    def _is_surprised(self) -> bool:
        """Say whether the warning before a requeue could kill a script that never heard of it.

        A shell cannot trap a signal that was ignored when it began.
        """
        shell_traps = self.task.handles_stop_signal and not self.task.by_python
        return self.task.max_requeues > 0 and not shell_traps

    def _watch(self, child: "Popen[bytes]", line: EndLine, stderr: IO[bytes]) -> int:
        """Wait for the script's end; return its status, which an MPI script tells beforehand."""
        parent, told, ends_by = os.getppid(), None, None
        for _ in until_ended(child, _POLL_S):
            if told is None and (told := line.told()) is not None:
                self._finish(told)
                line.answer()
            if ends_by is None and line.at_its_end(child.pid):
                ends_by = time.monotonic() + _ENDS_WITHIN_S
            if ends_by and time.monotonic() > ends_by and not self._hangs:
                self._hangs = True
                with contextlib.suppress(OSError):  # a full disk costs the advice, not the rank
                    _say(stderr, f"{HANGS_AT_END} for {_ENDS_WITHIN_S:g} s")
            if not self._alone and os.getppid() != parent:
                # slurmstepd was killed: Slurm cannot end this script any more.
                self._alone, self._stop_at = True, time.monotonic() + _GRACE_ALONE_S
                self.stop(signal.SIGTERM)
            if self._stop_at is not None and time.monotonic() > self._stop_at:
                signal_group(child, signal.SIGKILL)
        self._met = line.met(child.pid)
        if child.returncode in (-signal.SIGTERM, -signal.SIGINT):
            self._hear()
        return shell_status(child.returncode) if told is None else told

    def _hear(self) -> None:
        """Wait for the signal that has ended the script already.

        Slurm signals the processes of a step one after another, the script perhaps before this one:
        it would look as if the script had failed by itself.
        """
        until = time.monotonic() + _HEARD_S
        while self._stopped_by is None and time.monotonic() < until:
            time.sleep(_POLL_S)

    def _finish(self, code: int) -> None:
        """Write this rank's end down, unless that has been done."""
        if self._record is None or self._record.ended is not None:
            return
        error = last_error(self._log("err"), self._starts["err"]) if code else None
        words = None if error and says_why(error) else self._last_words(code)
        if code > 128:
            by_signal = self._child is not None and (self._child.returncode or 0) < 0
            error = signal_error(code, error, by_signal=by_signal)
        error = self._no_start or error
        if code and (oom_kills() or 0) > (self._oom_kills or 0):
            error = f"{error}\n{OUT_OF_MEMORY}" if error else OUT_OF_MEMORY
        if self._stopped_by and code:
            error = f"ended by {signal.Signals(self._stopped_by).name}"
            if self._failed_before:
                error = f"{error}; before that it wrote:\n{self._failed_before}"
            elif self._hangs:
                error = f"{error}\n{HANGS_AT_END}"
        if self._alone:
            error = "its slurmstepd was killed, so nothing else could end this rank"
        self._record = replace(
            self._record,
            ended=time.time(),
            exit_code=code,
            met=self._met,
            error=error,
            last_words=words,
            consequence=self._stopped_by is not None and not self._alone,
        )
        write_rank(self.task.folder, self._record)

    def _last_words(self, code: int) -> str | None:
        """Return the last lines of a rank that failed without saying why."""
        if not code or self._stopped_by or self._no_start:
            return None
        return last_words(*((self._log(end), self._starts[end]) for end in ("err", "out")))


def oom_kills() -> int | None:
    """Return how many processes of this job the kernel has killed on this node; None: not known."""
    from hpckit.stats.sampler.node import find_cgroup  # noqa: PLC0415  # not before a rank's start

    cgroup = find_cgroup()
    return cgroup.read().oom_kills if cgroup else None


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # a group's own template may write its log elsewhere
        return 0


def _say(stream: IO[bytes], line: str) -> None:
    stream.write(f"{line}\n".encode())
    stream.flush()


def main() -> None:
    """Run one rank that a launcher has started."""
    # torchrun and mpirun start ranks in sessions of their own, and do not end them when killed.
    die_with_parent(signal.SIGKILL)
    task = task_from_json(os.environ[TASK_VARIABLE])
    launcher = find_launcher(task.launcher)
    place = launcher.variables(task).placement(os.environ, task.tasks_per_node)
    rank = RankProcess(task, place)
    signal.signal(signal.SIGTERM, rank.stop)
    signal.signal(signal.SIGINT, rank.stop)
    # Else the node's supervisor signals the scripts itself: once is enough.
    handle_passed(_ignore if launcher.passes_on is None else rank.pass_on)
    try:
        sys.exit(rank.run())
    except JobError as error:
        sys.exit(f"hpckit: {error}")


def _ignore(_signum: int, _frame: FrameType | None) -> None:
    """Outlive a signal; SIG_IGN would be inherited by the script."""


if __name__ == "__main__":
    main()
