"""One job of the local executor: what it runs, its keeper, its time limit, its state on disk."""

import contextlib
import os
import signal
import socket
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from hpckit import shell
from hpckit.environ import own_python
from hpckit.launchers.srun import WAIT_S
from hpckit.payload.children import (
    REQUEUE_STATUS,
    prepare_child,
    shell_status,
    signal_group,
    wait_for,
)
from hpckit.payload.keeper import GRACE_S
from hpckit.payload.sweep import sweep
from hpckit.payload.task import JOB_ROOT
from hpckit.run_folders.run_files import JOB_LOG, open_to_write, patiently
from hpckit.schedulers.local.gpus import GpuPool, GpuRequest, GpuShare
from hpckit.schedulers.local.state import (
    LocalState,
    my_start_ticks,
    reserve_last_state,
    write_last_state,
    write_local_state,
)
from hpckit.schedulers.local.stragglers import Stragglers
from hpckit.slurm.states import JobState
from hpckit.units import format_seconds

if TYPE_CHECKING:
    from subprocess import Popen  # noqa: TID251  # the type only

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
            return is_gone(self.run_dir)

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


def is_gone(folder: Path) -> bool:
    """Say whether a folder is not there; a disk that does not answer does not say so."""
    try:
        folder.stat()
    except OSError as error:
        return isinstance(error, _GONE)
    return False
