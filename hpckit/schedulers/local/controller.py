"""The local executor's slurmctld: `python -m hpckit.schedulers.local.controller JOB <SPEC`.

There is one per submission; JOB is for those who look at the process list. It outlives the
submitting process, runs each job script (at most `parallel` at once, each under a keeper and in a
session of its own), enforces the time limit, requeues, and writes every state change to disk.
"""

if __name__ == "__main__":
    from hpckit.stand_ins import run_program

    run_program("hpckit.schedulers.local.controller")

import contextlib
import os
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from hpckit import shell
from hpckit.environ import own_python
from hpckit.errors import CommandError
from hpckit.files import parse_json, sealed_file
from hpckit.launchers.srun import WAIT_S
from hpckit.payload.children import (
    REQUEUE_STATUS,
    prepare_child,
    shell_status,
    signal_group,
    wait_for,
)
from hpckit.payload.keeper import GRACE_S
from hpckit.payload.sweep import adopt_orphans, sweep
from hpckit.payload.task import JOB_ROOT
from hpckit.run_folders.run_files import JOB_LOG, open_to_write, patiently
from hpckit.schedulers.local.gpus import GpuPool, GpuRequest, GpuShare
from hpckit.schedulers.local.state import (
    LocalState,
    cancel_asked,
    my_start_ticks,
    read_local_state,
    reserve_last_state,
    write_last_state,
    write_local_state,
)
from hpckit.schedulers.local.stragglers import Stragglers
from hpckit.slurm.states import JobState, is_finished
from hpckit.units import format_seconds
from hpckit.values import rebuild

if TYPE_CHECKING:
    from subprocess import Popen  # noqa: TID251  # the type only

_POLL_S = 0.1
# What a keeper gets to end its job, and to kill what is deaf.
_KEEPER_S = GRACE_S + 6.0
# The pause after a state that a disk did not take, and how long a last state is tried again.
_AGAIN_S, _LAST_S = 1.0, 30.0
_GONE = (FileNotFoundError, NotADirectoryError)


@dataclass(frozen=True, kw_only=True, slots=True)
class ControllerSpec:
    """What a controller has to run; `script` is the job script's text."""

    script: str
    run_dirs: tuple[str, ...]
    job_ids: tuple[str, ...]
    time_min: float
    parallel: int = 1
    max_requeues: int = 0
    signal_delay_s: float = 90
    after: tuple[str, ...] = ()
    ranks: int = 1
    wait_s: float = WAIT_S
    gpus: GpuRequest = field(default_factory=GpuRequest)


def spec_from_json(text: str) -> ControllerSpec:
    """Rebuild a spec from its JSON text."""
    return rebuild(ControllerSpec, parse_json(text))


class LocalJob:
    """One job under control: its keeper, deadline and state on disk.

    `keepers` are those of all jobs here, as `gpus` are.
    """

    def __init__(
        self,
        spec: ControllerSpec,
        run_dir: Path,
        job_id: str,
        script: int,
        keepers: "list[Popen[bytes]]",
        gpus: GpuPool,
    ) -> None:
        self.spec = spec
        self.script = script
        self.run_dir = run_dir
        self.keepers = keepers
        self.gpus = gpus
        self.share: GpuShare | None = None
        self.child: Popen[bytes] | None = None
        self.warned = False
        self.stragglers: Stragglers | None = None
        self._began_s = 0.0
        self._place: int | None = None
        self._unwritten = False
        self._again_s = self._give_up_s = 0.0
        self.state = LocalState(
            job_id=job_id,
            state=JobState.PENDING,
            host=socket.gethostname(),
            pid=os.getpid(),
            pid_started=my_start_ticks(),
            reason="Dependency" if spec.after else "",
        )
        with contextlib.suppress(OSError):  # a full disk may have room for it later
            reserve_last_state(run_dir)
        self._write()

    def start_if_free(self, environ: Mapping[str, str]) -> None:
        """Start if the machine has free GPUs, as many as the job gets; else wait for them."""
        self.share = self.gpus.take()
        if self.share is None:
            self.wait("Resources")
        else:
            self.start(environ)

    def wait(self, reason: str) -> None:
        """Say why the job does not start now."""
        if self.state.reason != reason:
            self._write(reason=reason)

    def start(self, environ: Mapping[str, str]) -> None:
        """Start the job script, under a keeper."""
        share = self.share or GpuShare()
        with patiently(lambda: open_to_write(self.run_dir / JOB_LOG, "ab")) as log:
            self.child = shell.spawn(
                [*own_python(), "-m", "hpckit.payload.keeper", str(self.script)],
                env={
                    **environ,
                    **share.variables(environ),
                    "SUBMITIT_LOCAL_JOB_ID": self.state.job_id,
                    "HPCKIT_RESTART": str(self.state.restarts),
                    JOB_ROOT: str(os.getpid()),
                },
                stdout=log,
                stderr=log,
                new_session=True,
                pass_fds=(self.script, *share.descriptors),
                prepare=prepare_child,
            )
        self.keepers.append(self.child)
        self.warned = False
        self.stragglers = Stragglers(
            self.run_dir, self.state.restarts, self.spec.ranks, self.spec.wait_s
        )
        self._began_s = time.monotonic()
        if self._place is None:
            with contextlib.suppress(OSError):
                self._place = os.open(self.run_dir, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self._write(state=JobState.RUNNING, started=time.time(), reason="", gpus=share.names)

    @property
    def elapsed_s(self) -> float:
        """How long the attempt lasts, whatever the clock was set to meanwhile."""
        return time.monotonic() - self._began_s

    @property
    def removed(self) -> bool:
        """Whether somebody has removed the run's folder: by no command could it be ended."""
        try:
            return self._place is not None and os.fstat(self._place).st_nlink == 0
        except OSError:  # NFS calls a folder stale that another machine has removed, for one
            return _is_gone(self.run_dir)

    def look(self, environ: Mapping[str, str]) -> None:
        """Bring the state up to date; start again, warn or stop as needed."""
        if self.child is None or self.state.started is None:
            return
        if self.child.poll() is not None:
            self._ended(environ)
        elif self.stragglers and (words := self.stragglers.idle()):
            self._end_idle(words)
        else:
            self._watch_time(self.elapsed_s)

    def _end_idle(self, words: str) -> None:
        """End a job whose last ranks do nothing, as srun's --wait would."""
        waited = format_seconds(self.spec.wait_s)
        why = f"{words}, and did nothing for {waited}: hpckit has ended the run"
        with contextlib.suppress(OSError), open_to_write(self.run_dir / JOB_LOG, "ab") as log:
            log.write(f"hpckit: {why}\n".encode())
        self.end(JobState.FAILED, reason=why)

    def _watch_time(self, elapsed_s: float) -> None:
        limit_s = self.spec.time_min * 60
        if elapsed_s > limit_s:
            self.end(JobState.TIMEOUT)
        elif (
            self.spec.max_requeues
            and not self.warned
            and self.child
            and elapsed_s > limit_s - self.spec.signal_delay_s
        ):
            self.warned = True
            signal_group(self.child, signal.SIGUSR2)

    def _ended(self, environ: Mapping[str, str]) -> None:
        assert self.child is not None  # noqa: S101  # look() has just seen it
        code = shell_status(self.child.returncode)
        if code == REQUEUE_STATUS and self.state.restarts < self.spec.max_requeues:
            self._clean()
            self.state = replace(self.state, restarts=self.state.restarts + 1)
            self.start(environ)
            return
        self.end(JobState.FAILED if code else JobState.COMPLETED, code)

    def tell(self) -> None:
        """Tell the job to end; its keeper gives it the time it has for that."""
        if self.child is not None and self.child.poll() is None:
            self.child.terminate()

    def end(self, state: JobState, code: int | None = None, reason: str = "") -> None:
        """Stop what still runs and write the final state."""
        if self.child is not None:
            self.tell()
            wait_for(self.child, _KEEPER_S)
            self.child.kill()  # one that was stopped by SIGSTOP; one that has ended hears nothing
            code = shell_status(self.child.wait()) if code is None else code
            self._clean()
        if self.share is not None:
            self.gpus.give_back(self.share)
            self.share = None
        if self._place is not None:
            os.close(self._place)
            self._place = None
        started = self.state.started
        ended = time.time() if started is None else started + self.elapsed_s
        self.state = replace(self.state, state=state, ended=ended, exit_code=code, reason=reason)
        self._give_up_s = time.monotonic() + _LAST_S
        self._save()

    def _clean(self) -> None:
        """End what a keeper has left that was killed: by now it is ours."""
        if self.child in self.keepers:
            self.keepers.remove(self.child)
        if left := sweep(GRACE_S, self.keepers, spare={row.pid for row in self.keepers}):
            _log(f"{self.state.job_id}: cannot be ended: {', '.join(left)}")

    @property
    def finished(self) -> bool:
        """Whether the final state is written, or never will be."""
        return self.over and not self._unwritten

    @property
    def over(self) -> bool:
        """Whether the job has ended."""
        return self.state.ended is not None

    def save(self) -> None:
        """Write the state that the disk did not take before, if there is one: the job goes on."""
        if self._unwritten and time.monotonic() >= self._again_s:
            self._save()

    def _write(self, **changes: object) -> None:
        self.state = replace(self.state, **changes)  # type: ignore[arg-type]
        self._save()

    def _save(self) -> None:
        try:
            (write_last_state if self.over else write_local_state)(self.run_dir, self.state)
        except OSError as error:
            self._again_s = time.monotonic() + _AGAIN_S
            # Its folder is gone, perhaps: the other tasks go on.
            lost = self.over and (isinstance(error, _GONE) or self._again_s > self._give_up_s)
            if lost:
                _log(f"{self.state.job_id}: its end is not recorded: {error}")
            self._unwritten = not lost
        else:
            self._unwritten = False


def _log(text: str) -> None:
    """Write to the controller's own log, which is in the run's folder: its disk may refuse it."""
    with contextlib.suppress(OSError):
        sys.stderr.write(f"{text}\n")


def control(spec: ControllerSpec, environ: Mapping[str, str]) -> None:
    """Run all jobs of a spec to their ends."""
    told: list[int] = []

    def note(signum: int, _frame: FrameType | None) -> None:
        told.append(signum)

    signal.signal(signal.SIGTERM, note)
    signal.signal(signal.SIGINT, note)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    adopt_orphans()
    script = sealed_file("job.sh", spec.script)  # what bash reads, at each start
    keepers: list[Popen[bytes]] = []
    gpus = GpuPool(spec.gpus)
    jobs = [
        LocalJob(spec, Path(run_dir), job_id, script, keepers, gpus)
        for run_dir, job_id in zip(spec.run_dirs, spec.job_ids, strict=True)
    ]
    while alive := [job for job in jobs if not job.finished]:
        if told:
            alive = [job for job in alive if not job.over]
            for job in alive:
                job.tell()
            for job in alive:
                job.end(JobState.CANCELLED)
            return
        _look_at(alive, spec, environ)
        time.sleep(_POLL_S)


def _look_at(jobs: "Sequence[LocalJob]", spec: ControllerSpec, environ: Mapping[str, str]) -> None:
    """Do for each job what is due; one that cannot be started or watched is ended."""
    for job in jobs:
        job.save()
    jobs = [job for job in jobs if not job.over]
    gate = _gate(spec.after)
    running = sum(job.child is not None for job in jobs)
    for job in jobs:  # each takes its time: all of them at once
        if cancel_asked(job.run_dir):
            job.tell()
    for job in jobs:
        try:
            if cancel_asked(job.run_dir):
                job.end(JobState.CANCELLED)
            elif job.removed:
                job.end(JobState.CANCELLED, reason="its folder was removed")
            elif job.child is not None:
                job.look(environ)
            elif gate is JobState.CANCELLED:
                job.end(JobState.CANCELLED, reason="DependencyNeverSatisfied")
            elif gate is None and running < spec.parallel:
                running += 1
                job.start_if_free(environ)
            elif gate is None:
                job.wait("JobArrayTaskLimit")
        except (OSError, CommandError) as error:
            why = f"{error.strerror}: {error.filename}" if isinstance(error, OSError) else error
            job.end(JobState.FAILED, reason=str(why))


def _is_gone(folder: Path) -> bool:
    """Say whether a folder is not there; a disk that does not answer does not say so."""
    try:
        folder.stat()
    except OSError as error:
        return isinstance(error, _GONE)
    return False


def _gate(after: Sequence[str]) -> JobState | None:
    """Return None when what a job waits for (`kind:folder`) is there, CANCELLED when it never will.

    The kinds are Slurm's: sbatch(1), --dependency. PENDING means not yet.
    """
    for word in after:
        kind, _, folder = word.partition(":")
        state = read_local_state(Path(folder))
        if state is None and _is_gone(Path(folder)):
            return JobState.CANCELLED  # removed: its end will never be known
        if kind == "after" and state is not None and state.started is not None:
            continue
        if state is None or not is_finished(state.state):
            return JobState.PENDING
        good = state.state is JobState.COMPLETED
        if (kind in ("afterok", "aftercorr") and not good) or (kind == "afternotok" and good):
            return JobState.CANCELLED
    return None


def main() -> None:
    """Read the spec and run it."""
    control(spec_from_json(sys.stdin.read()), os.environ)
