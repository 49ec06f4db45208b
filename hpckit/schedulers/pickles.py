"""submitit's part of a submission: the pickles that jobs load, named by their jobs' ids."""

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hpckit.payload.task import first_name, pickle_name
from hpckit.schedulers.base import Order


def load() -> None:
    """Import of submitit what is used here: half a command's start."""
    # As a whole, for which threads wait: where several import parts of it in turn, Python breaks
    # the deadlock of their locks, and one of them gets a module that is half made.
    import submitit

    del submitit


def hand_over(order: Order, send: Callable[[], list[str]]) -> list[str]:
    """Write an order's callables for submitit, then `send` its script; return the tasks' ids.

    `send` gives the script to the scheduler, once for all tasks, and returns their ids.
    """
    load()
    from submitit.core import core
    from submitit.slurm import slurm

    job = order.job

    class HpckitExecutor(slurm.SlurmExecutor):
        job_class = core.Job  # type: ignore[assignment]  # only its id is asked for

        def __init__(self) -> None:
            # Not SlurmExecutor's own, which refuses machines without srun on PATH. The time is what
            # submitit tells time-outs from preemptions by.
            core.PicklingExecutor.__init__(self, order.folder, max_num_timeout=job.max_requeues)
            self.parameters = {"time": job.time_min}
            self.python = ""

        @classmethod
        def affinity(cls) -> int:
            return 0  # never picked by other people's AutoExecutor

        def _internal_process_submissions(self, delayed_submissions: list[Any]) -> list[Any]:
            # submitit's own array path builds a stock SlurmExecutor by name, losing our script; its
            # own local executor knows one node, hides GPUs, waits for ranks after one has failed,
            # and loses its jobs to other processes.
            for number, delayed in enumerate(delayed_submissions):
                path = self.folder / first_name(number)
                delayed.set_timeout(job.time_min, self.max_num_timeout)
                delayed.dump(path)
                path.chmod(0o600)  # stays safe when somebody opens the folder to read the logs
            names = send()
            name_pickles(self.folder, names)
            return [self.job_class(folder=self.folder, job_id=name, tasks=[0]) for name in names]

    return [str(row.job_id) for row in HpckitExecutor().submit_array(list(order.calls))]


def task_ids(job_id: str, count: int, *, array: bool) -> list[str]:
    """Return the id of each task: the job's own, where it is no array."""
    return [f"{job_id}_{index}" for index in range(count)] if array else [job_id]


def name_pickles(folder: Path, job_ids: Sequence[str]) -> None:
    """Give the pickles the names that submitit looks for in the jobs, unless they did so."""
    for number, job_id in enumerate(job_ids):
        with contextlib.suppress(FileNotFoundError):
            (folder / first_name(number)).replace(folder / pickle_name(job_id))
