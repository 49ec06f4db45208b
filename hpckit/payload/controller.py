"""The local executor's slurmctld: `python -m hpckit.payload.controller <SPEC`, one per submission.

It outlives the submitting process, runs each job script (at most `parallel` at once, each in a
session of its own), enforces the time limit, requeues, and writes every state change to disk.
"""

import os
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from hpckit import shell
from hpckit.files import parse_json, sealed_file
from hpckit.localjob import (
    LocalState,
    cancel_asked,
    my_start_ticks,
    read_local_state,
    write_local_state,
)
from hpckit.payload.children import prepare_child, shell_status, signal_group, stop_all
from hpckit.runs import open_to_write
from hpckit.slurm.states import JobState, is_finished
from hpckit.values import rebuild

if TYPE_CHECKING:
    from subprocess import Popen  # noqa: TID251  # the type only

_POLL_S = 0.1
_GRACE_S = 8.0
# submitit's local job environment exits so to ask for another start (submitit/local/local.py).
REQUEUE_STATUS = 144


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


def spec_from_json(text: str) -> ControllerSpec:
    """Rebuild a spec from its JSON text."""
    return rebuild(ControllerSpec, parse_json(text))


class Job:
    """One job under control: its process, deadline and state on disk."""

    def __init__(self, spec: ControllerSpec, run_dir: Path, job_id: str, script: int) -> None:
        self.spec = spec
        self.script = script
        self.run_dir = run_dir
        self.child: Popen[bytes] | None = None
        self.warned = False
        self.state = LocalState(
            job_id=job_id,
            state=JobState.PENDING,
            host=socket.gethostname(),
            pid=os.getpid(),
            pid_started=my_start_ticks(),
            reason="Dependency" if spec.after else "Resources",
        )
        self._write()

    def start(self, environ: Mapping[str, str]) -> None:
        """Start the job script."""
        log = open_to_write(self.run_dir / "job.out", "ab")
        with log:
            self.child = shell.spawn(
                ["/bin/bash", f"/dev/fd/{self.script}"],
                env={
                    **environ,
                    "SUBMITIT_LOCAL_JOB_ID": self.state.job_id,
                    "HPCKIT_RESTART": str(self.state.restarts),
                },
                stdout=log,
                stderr=log,
                new_session=True,
                pass_fds=(self.script,),
                prepare=prepare_child,
            )
        self.warned = False
        self._write(state=JobState.RUNNING, started=time.time(), reason="")

    def look(self, environ: Mapping[str, str]) -> None:
        """Bring the state up to date; start again, warn or stop as needed."""
        if self.child is None or self.state.started is None:
            return
        if self.child.poll() is not None:
            self._ended(environ)
        else:
            self._watch_time(time.time() - self.state.started)

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
            self.state = replace(self.state, restarts=self.state.restarts + 1)
            self.start(environ)
            return
        self.end(JobState.FAILED if code else JobState.COMPLETED, code)

    def end(self, state: JobState, code: int | None = None, reason: str = "") -> None:
        """Stop what still runs and write the final state."""
        if self.child is not None and self.child.poll() is None:
            stop_all([self.child], _GRACE_S)
            code = shell_status(self.child.returncode)
        elif self.child is not None:
            stop_all([self.child], 0)
        self._write(state=state, ended=time.time(), exit_code=code, reason=reason)

    @property
    def finished(self) -> bool:
        """Whether the final state is written."""
        return self.state.ended is not None

    def _write(self, **changes: object) -> None:
        self.state = replace(self.state, **changes)  # type: ignore[arg-type]
        write_local_state(self.run_dir, self.state)


def control(spec: ControllerSpec, environ: Mapping[str, str]) -> None:
    """Run all jobs of a spec to their ends."""
    script = sealed_file("job.sh", spec.script)  # what bash reads, at each start
    jobs = [
        Job(spec, Path(run_dir), job_id, script)
        for run_dir, job_id in zip(spec.run_dirs, spec.job_ids, strict=True)
    ]

    def end_all(_signum: int, _frame: FrameType | None) -> None:
        for job in jobs:
            if not job.finished:
                job.end(JobState.CANCELLED)
        sys.exit(0)

    signal.signal(signal.SIGTERM, end_all)
    signal.signal(signal.SIGINT, end_all)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    while not all(job.finished for job in jobs):
        gate = _gate(spec.after)
        running = sum(job.child is not None and not job.finished for job in jobs)
        for job in jobs:
            if job.finished:
                continue
            if cancel_asked(job.run_dir):
                job.end(JobState.CANCELLED)
                continue
            if gate is JobState.CANCELLED and job.child is None:
                job.end(JobState.CANCELLED, reason="DependencyNeverSatisfied")
                continue
            if job.child is None and running < spec.parallel and gate is None:
                job.start(environ)
                running += 1
            job.look(environ)
        time.sleep(_POLL_S)


def _gate(after: Sequence[str]) -> JobState | None:
    """Return None when what a job waits for (`kind:folder`) is there, CANCELLED when it never will.

    The kinds are Slurm's: sbatch(1), --dependency. PENDING means not yet.
    """
    for word in after:
        kind, _, folder = word.partition(":")
        state = read_local_state(Path(folder))
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


if __name__ == "__main__":
    main()
