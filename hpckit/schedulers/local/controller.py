"""The local executor's slurmctld: `python -m hpckit.schedulers.local.controller JOB <SPEC`.

There is one per submission; JOB is for those who look at the process list. It outlives the
submitting process, runs each job script (at most `parallel` at once, each under a keeper and in a
session of its own), enforces the time limit, requeues, and writes every state change to disk.
"""

if __name__ == "__main__":
    from hpckit.stand_ins import run_program

    run_program("hpckit.schedulers.local.controller")

import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from hpckit.errors import CommandError
from hpckit.files import parse_json, sealed_file
from hpckit.payload.sweep import adopt_orphans
from hpckit.schedulers.local.gpus import GpuPool
from hpckit.schedulers.local.local_job import ControllerSpec, LocalJob, is_gone
from hpckit.schedulers.local.state import cancel_asked, read_local_state
from hpckit.slurm.states import JobState, is_finished
from hpckit.values import rebuild

if TYPE_CHECKING:
    from subprocess import Popen  # noqa: TID251  # the type only

_POLL_S = 0.1


def spec_from_json(text: str) -> ControllerSpec:
    """Rebuild a spec from its JSON text."""
    return rebuild(ControllerSpec, parse_json(text))


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


def _gate(after: Sequence[str]) -> JobState | None:
    """Return None when what a job waits for (`kind:folder`) is there, CANCELLED when it never will.

    The kinds are Slurm's: sbatch(1), --dependency. PENDING means not yet.
    """
    for word in after:
        kind, _, folder = word.partition(":")
        state = read_local_state(Path(folder))
        if state is None and is_gone(Path(folder)):
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
