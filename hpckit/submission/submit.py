"""From a `Submission` to a job: folder, script, submitit, record. All of it or nothing."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from hpckit.environ import own_python, scrubbed_environment
from hpckit.errors import (
    OutsideError,
    RequestError,
    StoppedError,
    SubmissionError,
    UnknownOutcomeError,
)
from hpckit.interrupts import Interrupts, interrupts
from hpckit.job import Job
from hpckit.job.script import signal_delay_s, submitit_folder
from hpckit.payload.task import MAX_JSON_BYTES, Task
from hpckit.render import Rendered
from hpckit.run_files import JOB_LOG, open_to_write, write_text
from hpckit.runs import Run
from hpckit.schedulers.base import Order, Scheduler, Sent, link_name
from hpckit.schedulers.slurm.sbatch import told_if_slow
from hpckit.submission.folders import Root, held_root
from hpckit.submission.handover import SCRIPT, begin, finish, forget, new_handover, remember
from hpckit.submission.kept_code import KeptCode, drop_unneeded, keeping, link_code, with_code
from hpckit.submission.model import Submission, in_parts
from hpckit.submission.payload import Payload
from hpckit.submission.record import task_records


def submit(
    submission: Submission,
    *,
    tell: Callable[[str], None] | None = None,
    ready: Callable[[], None] | None = None,
) -> list[Run]:
    """Submit a job or an array; return one run per job, or per array task.

    After Ctrl-C, SIGTERM or SIGHUP, a job that Slurm has taken already is cancelled; `tell` is
    called to say that this takes time. `ready` is called just before the job is handed to the
    scheduler, when all is checked and written.

    Raises:
        SubmissionError: sbatch refused. OutsideError: the run's folder cannot be created or
            written, or others could replace it. StoppedError: by the user. Nothing is left behind
            in these cases, unless the message says so. UnknownOutcomeError: Slurm does not say
            whether it took the job; all that is needed to find out later is kept.
    """
    job, base = submission.job, submission.place.dir
    parts = in_parts(submission)
    rendered = [part.rendered for part in parts]
    tasks = _tasks(submission)
    _refuse_long(tasks)
    _refuse_patterns(base, job.scheduler)
    shared = "shared-runs" in submission.spec.skip_checks
    tell = tell or (lambda _text: None)
    ready = ready or (lambda: None)
    with (
        interrupts(tell) as taken,
        held_root(base.parent, shared=shared) as root,
    ):
        return _submit_in(root, taken, parts, rendered, tasks, (tell, ready))


def _submit_in(
    root: Root,
    taken: Interrupts,
    parts: list[Submission],
    rendered: list[Rendered],
    tasks: list[Task],
    calls: tuple[Callable[[str], None], Callable[[], None]],
) -> list[Run]:
    submission = parts[0]
    sent = Sent(given_up=lambda: taken.seen)
    try:
        _make_folders(root, parts, [row.text for row in rendered], [task.run_id for task in tasks])
        with _kept(root, submission, calls[0]) as kept:
            tasks = with_code(tasks, submission, kept)
            return _handed_over(root, taken, parts, rendered, tasks, kept, sent, calls)
    except BaseException as error:
        _take_back(root, submission, sent, error)
        if isinstance(error, OSError):
            raise _cannot_write(root, error) from error
        if isinstance(error, KeyboardInterrupt) and sent.begun:
            what = f"job {', '.join(sent.jobs)}" if sent.jobs else "the run"
            raise StoppedError(f"Interrupted: {what} is cancelled, nothing is left.") from error
        raise


@contextmanager
def _kept(
    root: Root, submission: Submission, tell: Callable[[str], None]
) -> Iterator[KeptCode | None]:
    """Keep the code, with a link to it in the run's folder."""
    with keeping(submission, root.path) as kept:
        if kept:
            with root.opened(submission.place.run_id) as base:
                link_code(base, kept)
            for line in kept.notes:
                tell(f"note: {line}")
        yield kept


def _handed_over(
    root: Root,
    taken: Interrupts,
    parts: list[Submission],
    rendered: list[Rendered],
    tasks: list[Task],
    kept: KeptCode | None,
    sent: Sent,
    calls: tuple[Callable[[str], None], Callable[[], None]],
) -> list[Run]:
    """Hand all parts to the scheduler, and write down what came of it."""
    submission, scheduler = parts[0], parts[0].job.scheduler
    run_id = submission.place.run_id
    tell, ready = calls
    handover = new_handover(
        run_id,
        root.path,
        task_records(submission, rendered[0], tasks, kept),
        array=submission.job.is_array,
        parts=tuple(part.place.part for part in parts if part.place.part),
        chain=submission.job.chain,
    )
    with root.opened(run_id) as base:
        if scheduler.names_jobs:
            begin(base, handover)
            remember(run_id, root.path)  # so that it is found even if this process is killed
        ready()
        with taken.held(), told_if_slow(tell):
            job_ids: list[str] = []
            for part, script in zip(parts, rendered, strict=True):
                if taken.seen:
                    raise KeyboardInterrupt
                folder = submitit_folder(base, part.place.first)
                order = _order(part, folder, script.text, tasks, sent)
                job_ids += _sent(order, sent)
            return finish(root.opened, handover, job_ids)


def _sent(order: Order, sent: Sent) -> list[str]:
    """Submit an order; in an error, say which of several arrays or jobs was refused."""
    try:
        job_ids = order.job.scheduler.submit(order, sent)
        sent.begun = sent.answered = True  # another package's scheduler may not have set it
        return job_ids
    except SubmissionError as error:
        if order.follows and order.job.chain:
            raise SubmissionError(
                f"{error} The job is one of the {order.job.chain} that follow the first; none of "
                "them is left."
            ) from error
        if order.part is None:
            raise
        last = order.part.first + order.part.count - 1
        raise SubmissionError(
            f"{error} The array is one of several, of tasks {order.part.first} to {last}; none of "
            "them is left."
        ) from error


def _take_back(root: Root, submission: Submission, sent: Sent, error: BaseException) -> None:
    """Cancel what was submitted and remove its folders; if it cannot be cancelled, keep them.

    Raises:
        UnknownOutcomeError: it is unknown whether there is a job. OutsideError, StoppedError: there
            is one, and it cannot be cancelled.
    """
    run_id = submission.place.run_id
    if isinstance(error, UnknownOutcomeError):
        raise error
    if sent.begun and not sent.answered:
        raise StoppedError(
            "Interrupted before Slurm answered: hpckit does not know whether Slurm took run "
            f"{run_id}. Ask `hpckit status {run_id}`. The folder is kept: {submission.place.dir}"
        ) from error
    if sent.begun:
        folders = [root.path / name for name in root.names]
        if trouble := submission.job.scheduler.take_back(folders, sent):
            kind = StoppedError if isinstance(error, KeyboardInterrupt) else OutsideError
            why = str(error) or "the submission was interrupted"
            raise kind(f"{trouble} Reason for cancelling: {why}.") from error
    forget(run_id)
    root.remove(before=lambda: _drop_code(root.path))


def _drop_code(runs: Path) -> None:
    """Remove the copy of the code of a submission that failed; its error is being raised."""
    with suppress(OSError):
        drop_unneeded(runs)


def _cannot_write(root: Root, error: OSError) -> OutsideError:
    return OutsideError(
        f"hpckit cannot create or write a run folder in {str(root.path)!r}: "
        f"{error.strerror or error}. Choose another place with --runs DIR or HPCKIT_RUNS."
    )


def _make_folders(
    root: Root, parts: list[Submission], scripts: list[str], run_ids: list[str]
) -> None:
    own, job = parts[0].place.run_id, parts[0].job
    for name in dict.fromkeys([own, *run_ids]):
        root.make(name)
    for name in run_ids if job.scheduler.names_jobs else ():
        # Slurm would create it with the user's umask, which may let a group write to it.
        with root.opened(name) as folder:
            open_to_write(folder / JOB_LOG).close()
    for part, script in zip(parts, scripts, strict=True):
        for name in run_ids[_tasks_of(part)] if job.is_array else ():
            with root.opened(name) as folder:
                write_text(folder / SCRIPT, script)
    with root.opened(own) as base:
        for part in parts:
            submitit_folder(base, part.place.first).mkdir(mode=0o700)
        write_text(base / SCRIPT, scripts[0])


def _tasks_of(part: Submission) -> slice:
    """Return which of all tasks belong to a part."""
    if part.place.part is None:
        return slice(None)
    return slice(part.place.part.first, part.place.part.first + part.place.part.count)


def _tasks(submission: Submission) -> list[Task]:
    """Return the tasks of a submission, which differ in their folders and arguments."""
    first = _task(submission, 0)
    rest = range(1, len(submission.job.tasks))
    return [first, *(_task(submission, index, like=first) for index in rest)]


def _task(submission: Submission, index: int, like: Task | None = None) -> Task:
    job, place = submission.job, submission.place
    run_id = f"{place.run_id}_{index}" if job.is_array else place.run_id
    run_dir, command = str(place.dir.parent / run_id), job.task_command(index)
    if like:
        by_python = job.program.is_python(command[len(like.python) :])
        return replace(like, run_dir=run_dir, run_id=run_id, command=command, by_python=by_python)
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


def _refuse_patterns(folder: Path, scheduler: Scheduler) -> None:
    """Refuse a folder whose name submitit or Slurm would change.

    See JobPaths in submitit/core/utils.py, and sbatch(1), "FILENAME PATTERN".
    """
    word = next((word for word in ("%j", "%t", "%a", "%A") if word in str(folder)), None)
    found = f"{word}, which submitit replaces by an id" if word else None
    if found := scheduler.refuse_folder(folder) or found:
        raise RequestError(
            f"The name of run folder '{folder}' contains {found}. "
            "Choose another place with --runs DIR or HPCKIT_RUNS."
        )


def _order(part: Submission, folder: Path, script: str, tasks: list[Task], sent: Sent) -> Order:
    """Return what the scheduler gets of a part.

    `--parallel` limits the tasks of all parts together, but Slurm has such a limit for one array
    only. So each array waits for the end of the one before, as the jobs of a chain do.
    """
    job, place = part.job, part.place
    mine = tasks[_tasks_of(part)]
    return Order(
        run_id=place.run_id,
        part=place.part,
        token=link_name(place.run_id, place.link) if job.chain else None,
        folder=folder,
        script=script,
        run_dirs=tuple(task.run_dir for task in mine),
        calls=tuple(Payload(task.to_json()) for task in mine),
        array=job.is_array,
        job=job,
        environ=scrubbed_environment(os.environ, job.site.pass_env),
        cwd=Path(place.cwd),
        after=place.after,
        after_dirs=part.after_dirs,
        follows=sent.jobs[-1] if sent.jobs and (job.parallel or job.chain) else None,
    )
