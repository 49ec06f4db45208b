"""This machine: a controller of ours runs the same scripts.

`controller` has a `local_job` for each job, and starts a keeper for it (`hpckit.payload.keeper`),
which starts its script with bash; `hpckit.payload.spawn` stands where srun would, with simulated
nodes. All three adopt what a job leaves (subreapers), so one of them may be killed. `gpus` shares
out this machine's GPUs, `state` is a run's state on disk, `stragglers` finds ranks that neither
work nor end.
"""

import atexit
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from hpckit import shell
from hpckit.environ import own_python
from hpckit.files import sealed_file
from hpckit.run_folders.run_files import open_to_write
from hpckit.schedulers.base import Answers, Order, Scheduler, Sent, this_machine
from hpckit.schedulers.local.state import (
    CONTROLLER,
    ask_cancel,
    begin_local_state,
    controller_name,
    controller_runs,
    read_local_state,
    states_of_runs,
)
from hpckit.text import counted

if TYPE_CHECKING:
    from subprocess import Popen  # noqa: TID251  # the type only

    from hpckit.job import Job
    from hpckit.job.place import ArrayPart
    from hpckit.run_folders.runs import Run
    from hpckit.schedulers.local.gpus import GpuRequest
    from hpckit.schedulers.local.local_job import ControllerSpec
    from hpckit.slurm.states import JobRecord


class Local(Scheduler):
    """This machine, which plays all nodes."""

    name = "local"
    job_id = re.compile(r"local-[\w-]{1,40}", re.ASCII)
    starts_at_once = True
    names_jobs = True
    by_mark = True
    most_pause_s = 1.0
    seldom_s = 1.0

    def where(self, job: "Job") -> str:
        """Say that it is here."""
        del job
        return "this machine"

    def submit(self, order: Order, sent: Sent) -> list[str]:
        """Start a controller for all tasks."""
        job_ids = start(order)
        sent.begun = sent.answered = True
        return job_ids

    def query(self, runs: Sequence["Run"]) -> Answers:
        """Read what the controllers wrote, and look for them where they wrote nothing."""
        return states_of_runs(runs)

    def cancel(self, runs: Sequence["Run"]) -> None:
        """Leave it to the mark in the run's folder, which its controller sees."""

    def job_at(
        self, folder: Path, run_id: str, since: float, part: "ArrayPart | None" = None
    ) -> str | None:
        """Return the job that a controller has of a run, or is about to write down."""
        del since, part
        for place in (folder, folder.with_name(f"{folder.name}_0")):
            if state := read_local_state(place):
                return controller_name(state.job_id)
        name = _job_name(run_id)
        return name if controller_runs(name) else None

    def take_back(self, run_dirs: Sequence[Path], sent: Sent) -> str | None:
        """End what was started, and wait until its controller is gone."""
        from hpckit.payload.children import wait_for

        del sent
        controller = _CONTROLLERS[-1] if _CONTROLLERS else None
        for run_dir in run_dirs:
            state = read_local_state(run_dir)
            if state is None or state.ended is None:  # None: it cannot be read now, perhaps
                try:
                    ask_cancel(run_dir)
                except OSError:  # a full disk, say: its controller, our child, hears of it directly
                    if controller is not None:
                        controller.terminate()
        wait_for(controller, _ENDS_WITHIN_S)
        if controller is None or controller.poll() is not None:
            return None
        return (
            f"The run was told to end, and process {controller.pid}, its controller, still runs "
            f"after {_ENDS_WITHIN_S:.0f} s. Run `kill -KILL {controller.pid}`."
        )

    def explain(self, run: "Run", record: "JobRecord") -> str | None:
        """Say why a task waits, or what its controller wrote."""
        from hpckit.slurm.reasons import explain
        from hpckit.slurm.states import JobState

        if record.state is not JobState.PENDING:
            return explain(record.reason)
        match record.reason:
            case None:
                return "It is about to start."
            case "JobArrayTaskLimit":
                return _TASK_LIMIT
            case "Resources":
                gpus = counted(run.record["plan"]["total_gpus"], "GPU")
                return (
                    f"It waits for {gpus} of this machine to come free: other jobs of yours have "
                    "them."
                )
            case reason:
                return explain(reason)


LOCAL = Local()
_TASK_LIMIT = "It waits until another task of its array has ended: --parallel says how many run."
# What a controller gets to end its keepers, which need 14 s at most.
_ENDS_WITHIN_S = 30.0
# What makes a run's id its own: `hpckit.runs.new_run_id`.
_MARK = r"(?a)[0-9a-f]{6}"


def _job_name(run_id: str) -> str:
    """Return the id of a run's job: a controller is found by it that has written nothing yet."""
    mark = run_id.rpartition("-")[2]
    return f"local-{mark if re.fullmatch(_MARK, mark) else os.urandom(3).hex()}"


def start(order: Order) -> list[str]:
    """Start a controller for an order's tasks; return their ids."""
    # Commands that only ask how a run is load none of it.
    from hpckit.job.header import signal_delay_s
    from hpckit.launchers.srun import srun_wait_s
    from hpckit.schedulers.local.local_job import ControllerSpec
    from hpckit.schedulers.pickles import hand_over, task_ids

    job = order.job
    name = _job_name(order.run_id)
    job_ids = task_ids(name, len(order.calls), array=order.array)
    spec = ControllerSpec(
        script=order.script,
        run_dirs=order.run_dirs,
        job_ids=tuple(job_ids),
        time_min=job.time_min,
        parallel=job.parallel or 1,
        max_requeues=job.max_requeues,
        signal_delay_s=signal_delay_s(job.time_min),
        after=order.after_dirs,
        ranks=job.ranks,
        wait_s=srun_wait_s(job.site.srun_args),
        gpus=_gpus(order),
    )

    def give() -> list[str]:
        _start(order.folder, spec, order.environ, order.cwd)
        return job_ids

    return hand_over(order, give)


def _gpus(order: Order) -> "GpuRequest":
    """Return the GPUs that each task asks for: none if it is to run on the CPU."""
    from hpckit.schedulers.local.gpus import GpuRequest, request_gpus

    if order.job.device != "cuda":
        return GpuRequest()
    return request_gpus(this_machine(order.environ), order.job.total_gpus, order.environ)


# Held, not waited for: a controller outlives this process.
_CONTROLLERS: "list[Popen[bytes]]" = []


def _start(folder: Path, spec: "ControllerSpec", environ: Mapping[str, str], cwd: Path) -> None:
    """Start the controller, in a session of its own: it outlives the terminal.

    It reads what to run from its own memory: nobody can put another file in the place of that.
    """
    told = sealed_file("hpckit-controller", json.dumps(asdict(spec)))
    try:
        with open_to_write(folder / "controller.log", "ab") as log:
            controller = shell.spawn(
                [*own_python(), "-m", CONTROLLER, controller_name(spec.job_ids[0])],
                env=environ,
                cwd=cwd,
                stdin=told,
                stdout=log,
                stderr=log,
                new_session=True,
            )
    finally:
        os.close(told)
    try:
        for run_dir, job_id in zip(spec.run_dirs, spec.job_ids, strict=True):
            begin_local_state(Path(run_dir), job_id, controller.pid)
    except OSError:  # what cannot be watched shall not run
        controller.terminate()
        controller.wait()
        raise
    # A notebook's process lives long: those that have ended shall not stay as zombies.
    _CONTROLLERS[:] = [row for row in _CONTROLLERS if row.poll() is None]
    if not _CONTROLLERS:
        atexit.register(_leave_controllers)
    _CONTROLLERS.append(controller)


def _leave_controllers() -> None:
    """Let Python not warn, at the end of this process, of controllers that it leaves running."""
    for row in _CONTROLLERS:
        row.returncode = row.returncode or 0  # to Popen it is a child that was waited for
