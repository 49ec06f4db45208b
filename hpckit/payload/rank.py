"""One rank: the user's script as a child, from its start to its end.

`python -m hpckit.payload.rank` is what torchrun, mpirun and their like start for each rank.
"""

import os

if __name__ == "__main__":
    from hpckit.payload.bundle import VARIABLE, use_bundle

    use_bundle(os.environ.get(VARIABLE))  # before any import of a module that may be in it

    from hpckit.stand_ins import run_program

    run_program("hpckit.payload.rank")

import contextlib
import signal
import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import IO, TYPE_CHECKING

from hpckit import shell
from hpckit.errors import CommandError, JobError
from hpckit.job_ends.tracebacks import HANGS_AT_END
from hpckit.launchers import find_launcher
from hpckit.payload.children import (
    LOCAL_GRACE_S,
    die_with_parent,
    end_job,
    handle_passed,
    is_abandoned,
    prepare_script,
    prepare_warned_script,
    shell_status,
    signal_group,
    stop_all,
    until_ended,
)
from hpckit.payload.container import find_container
from hpckit.payload.end_line import EndLine
from hpckit.payload.ending import Ending
from hpckit.payload.environment import (
    NO_DRIVER,
    NOT_STARTED,
    choose_device,
    located,
    rank_environment,
    script_command,
    why_not,
)
from hpckit.payload.handlers import Savers
from hpckit.payload.last_line import end_with
from hpckit.payload.notice import Notice, slurm_tells_all
from hpckit.payload.recorder import Recorder
from hpckit.payload.task import JOB_ROOT, TASK_VARIABLE, Task, task_from_json
from hpckit.rank_variables import RankPlacement, restart_count
from hpckit.stats.sampler.start import start_sampler, stop_sampler, write_summary
from hpckit.stop_marks import (
    ALL_SIGNALLED,
    OVER,
    PREEMPTED,
    REQUEUED,
    TERMINATED,
    add_mark,
    failed_with,
    heeds,
    mark_undone,
    marks,
    marks_of,
    stopped_early,
)

if TYPE_CHECKING:
    from subprocess import Popen  # noqa: TID251  # the type only

    from hpckit.payload.other_nodes import OtherNodes

# How long a rank may take to end after another one failed: enough to write a traceback.
_GRACE_AFTER_FAILURE_S = 3.0
# Slurm's default KillWait, for when slurmstepd is no longer there to enforce it.
_GRACE_ALONE_S = 30.0
# How long Slurm may take to signal all processes of a step.
_HEARD_S = 1.0
_POLL_S = 0.05
# Python exits within a moment; with much memory to free, within seconds.
_ENDS_WITHIN_S = 20.0
# Called again and again while a script runs, with None, and at its end with its exit status. It may
# end this process, by an exception.
Look = Callable[[int | None], None]


def nobody(code: int | None) -> None:
    """Do nothing: the `Look` of a run that nothing observes."""
    del code


class RankProcess:
    """The user's script of one rank.

    While `run` runs it, signal handlers may call `stop`, `forward` and `warn`. `slurm_tells`: Slurm
    signals the script, too.
    """

    def __init__(self, task: Task, place: RankPlacement) -> None:
        self.task = task
        self.place = place
        self._child: Popen[bytes] | None = None
        self._sampler: Popen[bytes] | None = None
        self._stop_at: float | None = None
        self._savers = Savers()
        self._recorder = Recorder(task, place)
        self._marks = marks_of(task.folder, place.rank)
        self._job = marks_of(task.folder, 0)
        self.slurm_tells = slurm_tells_all(task)
        self._slurm_warns = task.warned and self.slurm_tells
        self._notice = Notice(
            self._marks,
            restart_count(),
            by_slurm=self._slurm_warns,
            declared=task.handles_stop_signal,
        )
        self._look: Look = nobody
        self._others: OtherNodes | None = None

    def run(self, look: Look = nobody) -> int:
        """Run the script to its end; return its exit status as a shell would give it."""
        self._look = look
        device, warning = choose_device(self.task.device)
        if warning and self.task.nodes > 1 and self.place.local_rank == 0:
            from hpckit.payload.other_nodes import OtherNodes  # noqa: PLC0415  # no GPU driver

            self._others = OtherNodes(self.task, self.place)
        with self._recorder.logs() as (stdout, stderr):
            if warning and self.place.rank == 0:
                _say(stderr, warning)
            self._recorder.begin(device)
            code = self._run_sampled(device, stdout, stderr)
            if self._child is not None:
                self._notice.ended()
            self._finish(code)
        if self._recorder.alone:
            end_job(self.task)
        try:
            look(code)  # where the job is requeued, this does not come back
        except JobError:
            self._summarise()
            raise
        self._summarise()
        return self._status(code)

    def _summarise(self) -> None:
        if self.place.rank == 0:
            write_summary(self.task.folder, self.task.ledgers)

    def _run_sampled(self, device: str, stdout: IO[bytes], stderr: IO[bytes]) -> int:
        try:
            code = self._run_child(device, stdout, stderr)
            if code:
                self._finish(code)  # at once: MPI may be about to have the whole step killed
            return code
        finally:
            stop_sampler(self._sampler)

    def _status(self, code: int) -> int:
        """Return this process's exit status. The job gets the highest one of all its tasks.

        A rank that was stopped by SIGTERM would make that 143, and hide the status of the rank that
        failed first.
        """
        if not (code and self._recorder.stopped_by):
            return code
        return failed_with(self.task.folder, restart_count()) or 1

    def forward(self, signum: int) -> None:
        """Pass a signal to the script itself, not to its own children."""
        if self._child and self._child.poll() is None and not self.slurm_tells:
            self._child.send_signal(signum)

    def warn(self) -> None:
        """Pass Slurm's warning on to the script, now or as soon as it handles the signal."""
        child = self._child
        by_term = not marks(self._job, restart_count()).isdisjoint((PREEMPTED, REQUEUED))
        ended = child is not None and child.poll() is not None
        pid = child.pid if child is not None and not ended else None
        self._notice.tell(pid, ended=ended, by_term=by_term)

    def heeds(self) -> bool | None:
        """Say whether the script was given the warning; None: that is not known yet."""
        return heeds(self.said())

    def said(self) -> set[str]:
        """Return what this attempt's script and supervisor wrote down about Slurm's warning."""
        return marks(self._marks, restart_count())

    def noted(self, signum: int) -> None:
        """Remember that the job was sent a signal to end, whatever becomes of it."""
        self._recorder.stopped(signum)

    def pass_on(self, signum: int, _frame: FrameType | None = None) -> None:
        """Handle a signal: forward it to the script, or warn the script."""
        if signum == signal.SIGUSR2 and self.task.warned:
            self.warn()
        elif find_launcher(self.task.launcher).passes_on is not None:
            self.forward(signum)  # with other launchers the node's supervisor forwards it

    def stop(self, signum: int, _frame: FrameType | None = None) -> None:
        """End the script, because of Slurm, of another rank's failure, or of the user.

        After another rank's failure the script has three seconds. Otherwise it has Slurm's
        KillWait, since it may save its state when SIGTERM announces a preemption. In a local run it
        has a second less than this process, which still has to record the end.
        """
        self._recorder.stopped(signum)
        if self._slurm_warns:
            # The handler of `hpckit.parallel` may have taken Slurm's SIGTERM for a preemption.
            add_mark(self._marks, restart_count(), OVER)
        runs = self._child is not None and self._child.poll() is None
        if self._child and runs:
            self._savers.tell(self._child.pid)
        if self._savers:
            add_mark(self._marks, restart_count(), TERMINATED)
        if self._child and runs:
            signal_group(self._child, signal.SIGTERM)
        if self._stop_at is not None:
            return
        if failed_with(self.task.folder, restart_count()) is not None:
            self._stop_at = time.monotonic() + _GRACE_AFTER_FAILURE_S
        elif self.task.one_machine:
            self._stop_at = time.monotonic() + LOCAL_GRACE_S - 1

    def _start_sampler(self) -> "Popen[bytes] | None":
        """Start this node's sampler, if this is its first rank."""
        ids = {"run_id": self.task.run_id, "restart": str(restart_count())}
        folder, interval_s = self.task.folder / "samples", self.task.sample_interval_s
        if self.place.local_rank != 0:
            return None
        if not self.task.one_machine:
            return start_sampler(folder, interval_s, ids)
        if self.place.node_rank != 0:
            return None  # simulated nodes are one machine, and one sampler sees all of it
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
        argv, prepare = script_command(self.task), prepare_script
        if self._slurm_warns:
            add_mark(self._marks, restart_count(), ALL_SIGNALLED)
        if self._warning_may_kill():
            prepare = prepare_warned_script
        with EndLine() as line:
            try:
                if self.task.container:
                    box = find_container(self.task.container, self._recorder.node, os.environ)
                    environ = box.environment(environ, os.environ)
                    prepare = box.entering(prepare)
                else:
                    argv = located(argv, environ, self.task.python[0])
                child = shell.spawn(
                    argv,
                    env=environ | line.variables(),
                    stdout=stdout,
                    stderr=stderr,
                    new_session=True,
                    # MPI's PMI hands ranks an open descriptor (PMI_FD); Python's own are closed.
                    close_fds=False,
                    prepare=prepare,
                )
            except (CommandError, JobError) as error:
                image = self.task.container
                self._recorder.own_error = f"hpckit: {why_not(argv, environ, error, image)}"
                _say(stderr, self._recorder.own_error)
                return NOT_STARTED
            self._child = child
            try:
                if self._recorder.stopped_by is not None:  # the signal came before the script
                    signal_group(child, signal.SIGTERM)
                line.started()
                # Only now: nobody should have to wait for these before the script begins.
                self._recorder.started(child.pid)
                self._sampler = self._start_sampler()
                return self._watch(child, line, stderr)
            finally:
                stop_all([child], grace_s=0)  # what the script left running ends with it

    def _warning_may_kill(self) -> bool:
        """Say whether the warning before a requeue could kill a script that does not handle it.

        hpckit sends it only to a process that handles it. But Slurm may send it to all processes of
        a step, and a container's starter may pass it on to what it started. Then the script starts
        with the signal ignored, but only where it must: a shell cannot trap a signal that was
        ignored when it began, and Lightning takes an ignored signal for one that is handled.
        """
        if not self.task.warned:
            return False
        if not self.task.by_python:
            return self._slurm_warns and not self.task.handles_stop_signal
        return self._slurm_warns or len(self.task.python) > 1

    def _watch(self, child: "Popen[bytes]", line: EndLine, stderr: IO[bytes]) -> int:
        """Wait for the script's end; return its status, which an MPI script reports in advance."""
        told, ends_by = None, None
        notes = self._recorder
        for _ in until_ended(child, _POLL_S):
            if child.returncode is None:
                self._notice.deliver(child.pid, done=line.at_its_end)
                if self.slurm_tells:
                    self._savers.look(child.pid)
                self._look(None)
                self._end_without_gpu(child, stderr)
            if told is None and (told := line.told()) is not None:
                self._finish(told)
                line.answer()
            if ends_by is None and line.at_its_end(child.pid):
                ends_by = time.monotonic() + _ENDS_WITHIN_S
            if ends_by and time.monotonic() > ends_by and not notes.hangs:
                notes.hangs = True
                with contextlib.suppress(OSError):  # a full disk costs the advice, not the rank
                    _say(stderr, f"{HANGS_AT_END} for {_ENDS_WITHIN_S:g} s")
            if not notes.alone and is_abandoned():
                # slurmstepd was killed: Slurm cannot end this script any more.
                notes.alone, self._stop_at = True, time.monotonic() + _GRACE_ALONE_S
                self.stop(signal.SIGTERM)
            if self._stop_at is not None and time.monotonic() > self._stop_at:
                signal_group(child, signal.SIGKILL)
        if child.returncode in (-signal.SIGTERM, -signal.SIGINT):
            self._hear()
        self._let_save(child.pid)
        notes.met = line.met(child.pid)
        if notes.own_error:
            return 1
        return shell_status(child.returncode) if told is None else told

    def _let_save(self, group: int) -> None:
        """Give what handles SIGTERM its time, if a shell has started it.

        The shell dies of the signal at once, and what it leaves is killed.
        """
        heard = self._recorder.stopped_by is not None
        while self._stop_at is None or time.monotonic() < self._stop_at:
            if not self._savers.save(group, heard=heard):
                return
            self._look(None)
            time.sleep(_POLL_S)

    def _end_without_gpu(self, child: "Popen[bytes]", stderr: IO[bytes]) -> None:
        """End a script that has to do without its GPU, if another node has GPUs."""
        if self._others is None or (other := self._others.with_gpu()) is None:
            return
        self._recorder.own_error = (
            f"hpckit: node {self._recorder.node or os.uname().nodename} has {NO_DRIVER}, while "
            f"{other.node or other.host} has one: the job ends"
        )
        _say(stderr, self._recorder.own_error)
        signal_group(child, signal.SIGTERM)
        self._stop_at = time.monotonic() + _GRACE_AFTER_FAILURE_S

    def _hear(self) -> None:
        """Wait for the signal that has already ended the script.

        Slurm signals the processes of a step one after another, and perhaps the script before this
        one. Without the signal, it would look as if the script had failed by itself.
        """
        until = time.monotonic() + _HEARD_S
        while self._recorder.stopped_by is None and time.monotonic() < until:
            time.sleep(_POLL_S)

    def _finish(self, code: int) -> None:
        """Record this rank's end, unless that was done before."""
        by_signal = self._child is not None and (self._child.returncode or 0) < 0
        self._recorder.finish(code, by_signal=by_signal)


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
    ending = Ending(task, rank, asks=False)
    # If not from Slurm, SIGTERM comes from the launcher alone, when the job ends.
    signal.signal(signal.SIGTERM, ending.handle if rank.slurm_tells else rank.stop)
    signal.signal(signal.SIGINT, rank.stop)
    handle_passed(rank.pass_on)

    def look(code: int | None) -> None:
        if code is None:
            ending.look()
        elif place.rank and stopped_early(rank.said(), code):
            # Its node's supervisor does not know which of its ranks stopped early.
            mark_undone(task.folder, restart_count())

    try:
        sys.exit(rank.run(look))
    except JobError as error:
        end_with(f"hpckit: {error}")
