"""The tasks of a submission: what each supervisor of a job, or of an array's task, is told."""

from dataclasses import replace

from hpckit.environ import own_python
from hpckit.errors import RequestError
from hpckit.job import Job
from hpckit.job.header import signal_delay_s
from hpckit.payload.task import MAX_JSON_BYTES, Task
from hpckit.submission.model import Submission


def tasks_of(submission: Submission) -> list[Task]:
    """Return the tasks of a submission, which differ in their folders and arguments.

    Raises:
        RequestError: the arguments of one are too long for Linux.
    """
    first = _task(submission, 0)
    rest = range(1, len(submission.job.tasks))
    tasks = [first, *(_task(submission, index, like=first) for index in rest)]
    _refuse_long(tasks)
    return tasks


def _task(submission: Submission, index: int, like: Task | None = None) -> Task:
    job, place = submission.job, submission.place
    run_id = f"{place.run_id}_{index}" if job.is_array else place.run_id
    run_dir, command = str(place.dir.parent / run_id), job.task_command(index)
    number = submission.numbers[index] if submission.numbers else None
    if like:
        by_python = job.program.is_python(command[len(like.python) :])
        return replace(
            like, run_dir=run_dir, run_id=run_id, command=command, by_python=by_python,
            number=number,
        )  # fmt: skip
    site = job.site
    python = job.environment.command(own_python()[0])
    return Task(
        run_dir=run_dir,
        run_id=run_id,
        executor=job.executor,
        simulated=job.scheduler.one_machine,
        launcher=job.launcher.name,
        nodes=job.nodes,
        tasks_per_node=job.tasks_per_node,
        command=command,
        python=python,
        by_python=job.program.is_python(command[len(python) :]),
        device=job.device,
        mpi=job.strategy.mpi,
        mpirun=(*site.mpirun.split(), *site.mpirun_args),
        max_requeues=job.max_requeues,
        chain=job.chain,
        handles_stop_signal=job.handles_stop_signal,
        number=number,
        checkpoint=job.checkpoint,
        sample_interval_s=job.sample_interval_s,
        signal_delay_s=signal_delay_s(job.time_min),
        replicas=1 if job.strategy.rank_per_gpu else max(1, job.gpus_per_node),
        sources_only=_sources_only(job),
        cpus_per_task=job.cpus_per_task,
        ledgers=submission.ledgers,
        # A session's own process stays outside; what it starts enters the container.
        container=job.environment.path if _enters(submission) else None,
    )


def _enters(submission: Submission) -> bool:
    """Say whether ranks enter a container that the job script has started."""
    return submission.job.environment.entered and not submission.session


def _sources_only(job: Job) -> str | None:
    """Return the folder `workloads` of the workload's collection, unless it is hpckit's own.

    It is not the whole collection, since a project may have a virtual environment in it.
    """
    found = job.workload.found if job.workload else None
    if found is None or found.collection.origin == "built-in":
        return None
    return str(found.collection.path / "workloads")


def _refuse_long(tasks: list[Task]) -> None:
    longest = max(len(task.to_json().encode()) for task in tasks)
    if longest > MAX_JSON_BYTES:
        raise RequestError(
            f"The script's arguments are {longest} bytes long, and Linux allows {MAX_JSON_BYTES}: "
            "write them to a file and pass the file's name."
        )
