"""Slurm through submitit: an executor that submits *our* script, for single jobs and for arrays."""

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpckit.payload.task import first_name, pickle_name

if TYPE_CHECKING:
    from submitit import SlurmExecutor


def slurm_executor(
    folder: Path, send: Callable[[], str], *, time_min: int, max_requeues: int, array: bool
) -> "SlurmExecutor":
    """Return a submitit executor that lets `send` give our script to Slurm, once for all tasks.

    `send` returns the job's id, an array's own. `time_min` is what submitit tells time-outs from
    preemptions by.
    """
    from submitit.core import core
    from submitit.slurm import slurm

    class HpckitExecutor(slurm.SlurmExecutor):
        def __init__(self) -> None:
            # Not SlurmExecutor's own, which refuses machines without srun on PATH.
            core.PicklingExecutor.__init__(self, folder, max_num_timeout=max_requeues)
            self.parameters = {"time": time_min}
            self.python = ""

        @classmethod
        def affinity(cls) -> int:
            return 0  # never picked by other people's AutoExecutor

        def _internal_process_submissions(self, delayed_submissions: list[Any]) -> list[Any]:
            # submitit's own array path builds a stock SlurmExecutor by name, losing our script.
            for number, delayed in enumerate(delayed_submissions):
                path = self.folder / first_name(number)
                delayed.set_timeout(time_min, self.max_num_timeout)
                delayed.dump(path)
                path.chmod(0o600)  # stays safe when somebody opens the folder to read the logs
            job_id = send()
            names = task_ids(job_id, len(delayed_submissions), array=array)
            name_pickles(self.folder, names)
            return [self.job_class(folder=self.folder, job_id=name, tasks=[0]) for name in names]

    return HpckitExecutor()


def task_ids(job_id: str, count: int, *, array: bool) -> list[str]:
    """Return the id of each task: the job's own, where it is no array."""
    return [f"{job_id}_{index}" for index in range(count)] if array else [job_id]


def name_pickles(folder: Path, job_ids: Sequence[str]) -> None:
    """Give the pickles the names that submitit looks for in the jobs, unless they did so."""
    for number, job_id in enumerate(job_ids):
        with contextlib.suppress(FileNotFoundError):
            (folder / first_name(number)).replace(folder / pickle_name(job_id))
