"""From a `Submission` to a job: folder, script, submitit, record. All of it or nothing."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from hpckit.environ import scrubbed_environment
from hpckit.errors import (
    OutsideError,
    RequestError,
    StoppedError,
    SubmissionError,
    UnknownOutcomeError,
)
from hpckit.frozen import frozen
from hpckit.interrupts import Interrupts, interrupts
from hpckit.job.place import submitit_folder
from hpckit.payload.task import Task
from hpckit.render import Rendered
from hpckit.run_folders.run_files import JOB_LOG, open_to_write, write_text
from hpckit.run_folders.runs import Run
from hpckit.schedulers.base import Order, Scheduler, Sent, link_name
from hpckit.schedulers.slurm.sbatch import told_if_slow
from hpckit.submission.folders import Root, held_root
from hpckit.submission.handover import SCRIPT, begin, finish, forget, new_handover, remember
from hpckit.submission.kept_code import KeptCode, keeping, link_code, with_code
from hpckit.submission.model import Submission, in_parts
from hpckit.submission.payload import Payload
from hpckit.submission.record import task_records
from hpckit.submission.tasks import tasks_of


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
    base = submission.place.dir
    parts = in_parts(submission)
    batch = _Batch(
        parts=parts,
        rendered=[part.rendered for part in parts],
        tasks=tasks_of(submission),
        tell=tell or (lambda _text: None),
        ready=ready or (lambda: None),
    )
    _refuse_patterns(base, submission.job.scheduler)
    _tell_of_numbers(batch)
    shared = "shared-runs" in submission.spec.skip_checks
    with (
        interrupts(batch.tell) as taken,
        held_root(base.parent, shared=shared) as root,
    ):
        return _submit_in(root, taken, batch)


@frozen(kw_only=True)
class _Batch:
    """What is handed to the scheduler together: one job or array, or an array in several parts.

    Attributes:
        parts, rendered: what each is submitted as, and its script.
        tasks: those of all parts.
        tell, ready: as `submit` has them.
    """

    parts: list[Submission]
    rendered: list[Rendered]
    tasks: list[Task]
    tell: Callable[[str], None]
    ready: Callable[[], None]

    @property
    def submission(self) -> Submission:
        """The first part, which has what all parts share."""
        return self.parts[0]


def _tell_of_numbers(batch: _Batch) -> None:
    """Say that a program asks Slurm for a number that its tasks do not have in several arrays."""
    job = batch.submission.job
    if job.is_array and len(batch.parts) > 1:
        from hpckit.submission.task_numbers import counted_in_parts  # noqa: PLC0415  # seldom

        for line in counted_in_parts(job.program.file, len(batch.parts)):
            batch.tell(f"note: {line}")


def _submit_in(root: Root, taken: Interrupts, batch: _Batch) -> list[Run]:
    submission = batch.submission
    sent = Sent(given_up=lambda: taken.seen)
    try:
        _make_folders(root, batch)
        with _kept(root, submission, batch.tell) as kept:
            tasks = with_code(batch.tasks, submission, kept)
            return _handed_over(root, taken, replace(batch, tasks=tasks), kept, sent)
    except BaseException as error:
        left = _take_back(root, submission, sent, error)
        if isinstance(error, OSError):
            raise OutsideError(f"{_cannot_write(root, error)}{_stays(left)}") from error
        if left and isinstance(error, OutsideError):
            error.args = (f"{error}{_stays(left)}",)
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
    root: Root, taken: Interrupts, batch: _Batch, kept: KeptCode | None, sent: Sent
) -> list[Run]:
    """Hand all parts to the scheduler, and write down what came of it."""
    submission, tasks = batch.submission, batch.tasks
    run_id = submission.place.run_id
    handover = new_handover(
        run_id,
        root.path,
        task_records(submission, batch.rendered[0], tasks, kept),
        array=submission.job.is_array,
        parts=tuple(part.place.part for part in batch.parts if part.place.part),
        chain=submission.job.chain,
    )
    with root.opened(run_id) as base:
        if submission.job.scheduler.names_jobs:
            begin(base, handover)
            remember(run_id, root.path)  # so that it is found even if this process is killed
        batch.ready()
        with taken.held(), told_if_slow(batch.tell):
            job_ids: list[str] = []
            for part, script in zip(batch.parts, batch.rendered, strict=True):
                if taken.seen:
                    raise KeyboardInterrupt
                folder = submitit_folder(base, part.place.first)
                order = _order(part, folder, script.text, tasks, sent)
                job_ids += _sent(order, sent)
            return finish(root.opened, handover, job_ids, batch.tell)


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


def _take_back(root: Root, submission: Submission, sent: Sent, error: BaseException) -> list[str]:
    """Cancel what was submitted and remove its folders; if it cannot be cancelled, keep them.

    Return the folders that cannot be removed.

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
            raise kind(f"{trouble} Reason for cancelling: {why.rstrip('.')}.") from error
    forget(run_id)
    return root.remove(before=lambda: _drop_code(root.path))


def _drop_code(runs: Path) -> None:
    """Remove the copy of the code of a submission that failed; its error is being raised."""
    from hpckit.submission.needed_code import drop_unneeded  # noqa: PLC0415  # few fail

    with suppress(OSError):
        drop_unneeded(runs)


def _cannot_write(root: Root, error: OSError) -> str:
    return (
        f"hpckit cannot create or write a run folder in {str(root.path)!r}: "
        f"{error.strerror or error}. Choose another place with --runs DIR or HPCKIT_RUNS."
    )


def _stays(left: Sequence[str]) -> str:
    return f" Left there, and of no job: {', '.join(left)} (hpckit clean)." if left else ""


def _make_folders(root: Root, batch: _Batch) -> None:
    own, job = batch.submission.place.run_id, batch.submission.job
    run_ids = [task.run_id for task in batch.tasks]
    root.let_git_ignore()
    for name in dict.fromkeys([own, *run_ids]):
        root.make(name)
    scripts: dict[str, str] = {}
    for part, script in zip(batch.parts, batch.rendered, strict=True):
        for name in run_ids[_share(part)]:
            scripts.setdefault(name, script.text)  # a chain's jobs share a run
    for name, text in scripts.items():
        with root.opened(name) as folder:
            if job.scheduler.names_jobs:
                # Slurm would create it with the user's umask, which may let a group write to it.
                open_to_write(folder / JOB_LOG).close()
            if job.is_array:
                write_text(folder / SCRIPT, text)
    with root.opened(own) as base:
        for part in batch.parts:
            submitit_folder(base, part.place.first).mkdir(mode=0o700)
        write_text(base / SCRIPT, batch.rendered[0].text)


def _share(part: Submission) -> slice:
    """Return which of all tasks belong to a part."""
    if part.place.part is None:
        return slice(None)
    return slice(part.place.part.first, part.place.part.first + part.place.part.count)


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
    mine = tasks[_share(part)]
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
        # Of all, not of the last alone: that may be cancelled while it waits for those before it.
        follows=tuple(sent.jobs) if job.parallel or job.chain else (),
    )
