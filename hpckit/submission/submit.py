"""From a plan to a submitted job: folder, script, submitit, record. All of it or nothing."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hpckit.environ import own_python, scrubbed_environment
from hpckit.errors import (
    CommandError,
    OutsideError,
    RequestError,
    StoppedError,
    UnknownOutcomeError,
)
from hpckit.job.job import Job
from hpckit.job.script import signal_delay_s, submitit_folder
from hpckit.launchers.srun import srun_wait_s
from hpckit.logs import JOB_LOG
from hpckit.payload.task import MAX_JSON_BYTES, Task
from hpckit.render import Rendered
from hpckit.runs import Run, open_to_write, write_text
from hpckit.schedulers.local.controller import ControllerSpec
from hpckit.schedulers.local.executor import end_local, local_executor, this_machine
from hpckit.schedulers.slurm.ending import cancel_in_slurm, is_unheeded, unheeded
from hpckit.schedulers.slurm.executor import slurm_executor
from hpckit.schedulers.slurm.sbatch import Sent, send, told_if_slow
from hpckit.submission.folders import Root, held_root
from hpckit.submission.handover import SCRIPT, begin, finish, forget, new_handover, remember
from hpckit.submission.in_job import Payload
from hpckit.submission.interrupts import Interrupts, interrupts
from hpckit.submission.model import Submission
from hpckit.submission.record import task_records


def submit(
    submission: Submission,
    *,
    tell: Callable[[str], None] | None = None,
    ready: Callable[[], None] | None = None,
) -> list[Run]:
    """Submit a plan; return one run per job, or per array task.

    Ctrl-C, SIGTERM and SIGHUP take back what Slurm may have taken already; `tell` gets the word
    that this is waited for. `ready` is called before the job is handed over, once all is checked
    and written.

    Raises:
        SubmissionError: sbatch refused. OutsideError: the run's folder cannot be made or written,
        or others could put their own in its place. StoppedError: by the user. Nothing is left
        behind in any of these cases, unless the message says so. UnknownOutcomeError: Slurm does
        not say whether it took the job; all that is needed to go on is kept.
    """
    job, base = submission.job, submission.place.dir
    rendered = submission.rendered
    tasks = [_task(submission, index) for index in range(len(job.tasks))]
    _refuse_long(tasks)
    _refuse_patterns(base, job.executor)
    shared = "shared-runs" in submission.spec.skip_checks
    tell = tell or (lambda _text: None)
    ready = ready or (lambda: None)
    with (
        interrupts(tell) as taken,
        held_root(base.parent, shared=shared) as root,
    ):
        return _submit_in(root, taken, submission, rendered, tasks, (tell, ready))


def _submit_in(
    root: Root,
    taken: Interrupts,
    submission: Submission,
    rendered: Rendered,
    tasks: list[Task],
    calls: tuple[Callable[[str], None], Callable[[], None]],
) -> list[Run]:
    job, run_id = submission.job, submission.place.run_id
    tell, ready = calls
    sent = Sent()
    try:
        _make_folders(root, submission, rendered.text, [task.run_id for task in tasks])
        records = task_records(submission, rendered, tasks)
        handover = new_handover(run_id, root.path, records, array=job.is_array)
        with root.opened(run_id) as base:
            if job.executor == "slurm":
                begin(base, handover)
                remember(run_id, root.path)  # also what is killed can be found
            ready()
            with taken.held(), told_if_slow(tell):
                folder = submitit_folder(base)
                job_ids = _hand_over(submission, folder, rendered.text, tasks, sent)
                return finish(root.opened, handover, job_ids)
    except BaseException as error:
        _take_back(root, submission, sent, error)
        if isinstance(error, OSError):
            raise _cannot_write(root, error) from error
        if isinstance(error, KeyboardInterrupt) and sent.begun:
            what = f"job {sent.job}" if sent.job else "the run"
            raise StoppedError(f"Interrupted: {what} is cancelled, nothing is left.") from error
        raise


def _take_back(root: Root, submission: Submission, sent: Sent, error: BaseException) -> None:
    """End what was handed over and remove its folders; keep them where that cannot be done.

    Raises:
        UnknownOutcomeError: nobody knows whether there is a job. OutsideError, StoppedError: there
            is one, and it cannot be cancelled.
    """
    run_id = submission.place.run_id
    if isinstance(error, UnknownOutcomeError):
        raise error
    if sent.begun and submission.job.executor == "local":
        end_local([root.path / name for name in root.names])
    elif sent.begun and not sent.answered:
        raise StoppedError(
            "Interrupted before Slurm answered: hpckit does not know whether Slurm took run "
            f"{run_id}. Ask `hpckit status {run_id}`. The folder is kept: {submission.place.dir}"
        ) from error
    elif sent.job:
        _cancel(sent.job, error)
    forget(run_id)
    root.remove()


def _cancel(job_id: str, error: BaseException) -> None:
    try:
        state = cancel_in_slurm(job_id)
        if not is_unheeded(state):
            return
        trouble = unheeded(job_id, state)
    except CommandError as silent:
        trouble = f"{silent} Run `scancel {job_id}`."
    except KeyboardInterrupt:
        trouble = f"Interrupted again: Slurm has job {job_id}, and hpckit does not know whether "
        trouble += f"it is cancelled. Run `scancel {job_id}`."
    kind = StoppedError if isinstance(error, KeyboardInterrupt) else OutsideError
    why = str(error) or "the submission was interrupted"
    raise kind(f"{trouble} Reason for cancelling: {why}.") from error


def _cannot_write(root: Root, error: OSError) -> OutsideError:
    return OutsideError(
        f"hpckit cannot create or write a run folder in {str(root.path)!r}: "
        f"{error.strerror or error}. Choose another place with --runs DIR or HPCKIT_RUNS."
    )


def _make_folders(root: Root, submission: Submission, script: str, run_ids: list[str]) -> None:
    own = submission.place.run_id
    for name in dict.fromkeys([own, *run_ids]):
        root.make(name)
    for name in run_ids if submission.job.executor == "slurm" else ():
        # Slurm would make it with the user's umask, which may let a group write.
        with root.opened(name) as folder:
            open_to_write(folder / JOB_LOG).close()
    for name in run_ids if submission.job.is_array else ():
        with root.opened(name) as folder:
            write_text(folder / SCRIPT, script)
    with root.opened(own) as base:
        submitit_folder(base).mkdir(mode=0o700)
        write_text(base / SCRIPT, script)


def _task(submission: Submission, index: int) -> Task:
    job, place = submission.job, submission.place
    run_id = f"{place.run_id}_{index}" if job.is_array else place.run_id
    site = job.site
    python = job.environment.command(own_python()[0])
    command = (*job.command, *job.tasks[index])
    return Task(
        run_dir=str(place.dir.parent / run_id),
        run_id=run_id,
        executor=job.executor,
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
        handles_stop_signal=job.handles_stop_signal,
        sample_interval_s=job.sample_interval_s,
        signal_delay_s=signal_delay_s(job.time_min),
        replicas=1 if job.strategy.rank_per_gpu else max(1, job.gpus_per_node),
        sources_only=_sources_only(job),
        cpus_per_task=job.cpus_per_task,
    )


def _sources_only(job: Job) -> str | None:
    """Return the workloads of the workload's collection, unless it is hpckit's own.

    Not all of the collection: a project may have a virtual environment in it.
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


def _refuse_patterns(folder: Path, executor: str) -> None:
    """Refuse a place whose name submitit or Slurm would rewrite.

    See JobPaths in submitit/core/utils.py, and sbatch(1), "FILENAME PATTERN".
    """
    why = "which submitit replaces by an id"
    found = next((word for word in ("%j", "%t", "%a", "%A") if word in str(folder)), None)
    if executor == "slurm" and "\\" in str(folder):
        found, why = "a backslash", "which Slurm removes from the names of logs"
    if found:
        raise RequestError(
            f"The name of run folder '{folder}' contains {found}, {why}. "
            "Choose another place with --runs DIR or HPCKIT_RUNS."
        )


def _hand_over(
    submission: Submission, folder: Path, script: str, tasks: list[Task], sent: Sent
) -> list[str]:
    """Give the script and the callables to submitit; return the job ids, one per task."""
    job = submission.job
    environ = scrubbed_environment(os.environ, job.site.pass_env)
    executor: Any
    if job.executor == "slurm":
        executor = slurm_executor(
            folder,
            lambda: send(submission.place.run_id, script, job.site.sbatch_args, environ, sent),
            time_min=job.time_min,
            max_requeues=job.max_requeues,
            array=job.is_array,
        )
    else:
        executor = local_executor(
            folder,
            _controller_spec(submission, script, tasks),
            _local_environ(job, environ),
            cwd=Path(submission.place.cwd),
            array=job.is_array,
        )
    jobs = executor.submit_array([Payload(task.to_json()) for task in tasks])
    sent.begun = sent.answered = True
    return [str(job.job_id) for job in jobs]


def _controller_spec(submission: Submission, script: str, tasks: list[Task]) -> ControllerSpec:
    job = submission.job
    return ControllerSpec(
        script=script,
        run_dirs=tuple(task.run_dir for task in tasks),
        job_ids=(),
        time_min=job.time_min,
        parallel=job.parallel or 1,
        max_requeues=job.max_requeues,
        signal_delay_s=signal_delay_s(job.time_min),
        after=submission.after_dirs,
        ranks=job.ranks,
        wait_s=srun_wait_s(job.site.srun_args),
    )


def _local_environ(job: Job, environ: dict[str, str]) -> dict[str, str]:
    gpus = this_machine(environ).gpus if job.device == "cuda" else ()
    return {**environ, "HPCKIT_NODE_GPUS": ",".join(gpus[: job.total_gpus])}
