"""This machine through submitit: the same script, run under a controller of ours.

submitit's own local executor knows one node, hides GPUs, waits for ranks after one has failed, and
loses its jobs to other processes; so a controller of ours (`controller.py`) starts instead.
"""

import json
import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpckit import shell
from hpckit.environ import own_python
from hpckit.files import sealed_file
from hpckit.job.job import Machine
from hpckit.runs import open_to_write
from hpckit.schedulers.local.controller import ControllerSpec
from hpckit.schedulers.local.state import (
    CONTROLLER,
    ask_cancel,
    begin_local_state,
    controller_name,
    read_local_state,
)

if TYPE_CHECKING:
    from subprocess import Popen  # noqa: TID251  # the type only

    from submitit import LocalExecutor


def local_executor(
    folder: Path, spec: ControllerSpec, environ: Mapping[str, str], *, cwd: Path, array: bool
) -> "LocalExecutor":
    """Return a submitit executor that runs a spec's script on this machine, from the folder `cwd`.

    That need not be this process's own.
    """
    from submitit.core import core
    from submitit.local import local

    class HpckitExecutor(local.LocalExecutor):
        def __init__(self) -> None:
            core.PicklingExecutor.__init__(self, folder, max_num_timeout=spec.max_requeues)
            self.parameters = {"timeout_min": spec.time_min}

        def _internal_process_submissions(self, delayed_submissions: list[Any]) -> list[Any]:
            job = f"local-{secrets.token_hex(3)}"
            numbers = range(len(delayed_submissions))
            job_ids = [f"{job}_{index}" for index in numbers] if array else [job]
            jobs = [self.job_class(folder=folder, job_id=name, tasks=[0]) for name in job_ids]
            for delayed, submitted in zip(delayed_submissions, jobs, strict=True):
                delayed.set_timeout(spec.time_min, self.max_num_timeout)
                path = submitted.paths.submitted_pickle
                delayed.dump(path)
                path.chmod(0o600)  # stays safe when somebody opens the folder to read the logs
            _start(folder, replace(spec, job_ids=tuple(job_ids)), environ, cwd)
            return jobs

    return HpckitExecutor()


# Held, not waited for: a controller outlives this process.
_CONTROLLERS: "list[Popen[bytes]]" = []


def _start(folder: Path, spec: ControllerSpec, environ: Mapping[str, str], cwd: Path) -> None:
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
    _CONTROLLERS.append(controller)


def end_local(run_dirs: Sequence[Path]) -> None:
    """End runs that were started, and wait until their controller is gone."""
    for run_dir in run_dirs:
        state = read_local_state(run_dir)
        if state is not None and state.ended is None:
            ask_cancel(run_dir)
    if _CONTROLLERS:
        _CONTROLLERS.pop().wait(timeout=30)


def this_machine(environ: Mapping[str, str] = os.environ) -> Machine:
    """Return the GPUs the user's mask leaves visible here, and the cores this process may use."""
    return Machine(gpus=_visible_gpus(environ), cpus=len(os.sched_getaffinity(0)))


def _visible_gpus(environ: Mapping[str, str]) -> tuple[str, ...]:
    mask = environ.get("CUDA_VISIBLE_DEVICES")
    present = _present_gpus()
    if mask is None or not present:
        return present
    # CUDA reads the mask up to the first entry that is no device; entries may be UUIDs.
    words = [word.strip() for word in mask.split(",")]
    valid = []
    for word in words:
        if word not in present and not word.startswith(("GPU-", "MIG-")):
            break
        valid.append(word)
    return tuple(valid)


def _present_gpus() -> tuple[str, ...]:
    if shell.which("nvidia-smi") is None:
        return ()
    answer = shell.run(["nvidia-smi", "-L"], timeout_s=20, check=False)
    if answer.returncode != 0:
        return ()  # a driver without a device, or none loaded: there is no GPU to use
    count = sum(line.startswith("GPU ") for line in answer.stdout.splitlines())
    return tuple(str(index) for index in range(count))
