"""What is about to be submitted, and its script. What submits it a dry run need not import."""

from dataclasses import replace
from functools import cached_property

from hpckit.collections import Collection, Found, Unusable
from hpckit.errors import ConfigError, OutsideError
from hpckit.frozen import frozen
from hpckit.job import Job
from hpckit.job.checks import off_switch
from hpckit.job.place import ArrayPart, RunPlace
from hpckit.job.script import make_script
from hpckit.job_spec.sbatch_words import is_hold
from hpckit.job_spec.spec import JobSpec
from hpckit.launchers import launched_by
from hpckit.render import Rendered
from hpckit.run_folders.run_record import LeftOut, ResubmitOf, RetryOf, SessionPart, StudyPart
from hpckit.schedulers.base import SCHEDULERS
from hpckit.slurm.client import patience, why_silent
from hpckit.submission.code_plan import CodePlan

# So many tasks every scheduler takes in one array: it is not asked.
_ALWAYS_TAKEN = 100


@frozen(kw_only=True, slots=False)
class Submission:
    """What is about to be submitted, and what its record will say.

    `again`: of each task, or of the one job, which run is submitted again; () for other requests.
    `numbers`: of each, the number that it had in the array that was asked for first; () for others.
    """

    spec: JobSpec
    job: Job
    place: RunPlace
    collections: tuple[Collection, ...]
    unusable: tuple[Unusable, ...] = ()
    site: Found | None = None
    after_dirs: tuple[str, ...] = ()
    study: StudyPart | None = None
    retry: RetryOf | None = None
    again: tuple[ResubmitOf, ...] = ()
    numbers: tuple[int, ...] = ()
    left_out: LeftOut | None = None
    session: SessionPart | None = None
    code: CodePlan = CodePlan()

    @property
    def launched_by(self) -> str | None:
        """The launcher's name; None where another stands in for it on one machine."""
        return launched_by(self.job.launcher.name, one_machine=self.job.scheduler.one_machine)

    @cached_property
    def ledgers(self) -> tuple[str, ...]:
        """The folders that get a line of each attempt: of the site and of collections in use.

        Raises:
            UnsetVariableError: one has a variable that is not set.
        """
        if not self.job.scheduler.accounting:
            return ()
        workload = self.job.workload
        used = [self.site, workload.found if workload else None, *self.rendered.templates]
        return self.job.site.ledgers(found.collection for found in used if found)

    @cached_property
    def rendered(self) -> Rendered:
        """The job script, rendered once: what is shown, checked and submitted is the same.

        Raises:
            TemplateError: the template is missing or wrong. ConfigError: part of it would come from
                a collection that cannot be used now.
        """
        rendered = make_script(self.job, self.place, self.collections)
        names = frozenset(f"templates/{found.name}" for found in rendered.templates)
        refuse_unusable(self.unusable, names, self.spec)
        return rendered


def in_parts(submission: Submission) -> list[Submission]:
    """Return a submission for each job or array that is submitted; mostly itself."""
    if chain := submission.job.chain:
        places = [replace(submission.place, link=link) for link in range(chain + 1)]
        return _one_by_one(submission, places)
    count, most = len(submission.job.tasks), None
    if count > _ALWAYS_TAKEN:
        most = submission.job.scheduler.most_tasks()
    if most is None or count <= most:
        return [submission]
    size = 10 ** (len(str(most)) - 1)
    parts = [
        ArrayPart(first=first, count=min(size, count - first), size=size)
        for first in range(0, count, size)
    ]
    places = [replace(submission.place, part=part) for part in parts]
    if submission.job.parallel:  # so each array waits for the end of those before it
        return _one_by_one(submission, places)
    return [replace(submission, place=place) for place in places]


def _one_by_one(submission: Submission, places: list[RunPlace]) -> list[Submission]:
    """Return submissions that wait for one another: whoever releases the first, releases all."""
    job = submission.job
    released = replace(job, sbatch=tuple(text for text in job.sbatch if not is_hold(text)))
    first, *rest = places
    return [
        replace(submission, place=first),
        *(replace(submission, place=place, job=released) for place in rest),
    ]


def preflight(submission: Submission, *, code: bool = True) -> str:
    """Return one line in which the scheduler says whether and when a job would start.

    `code`: look at the code, too, as a submission does.

    Raises:
        SubmissionError: it would be refused. RequestError: the scheduler cannot say, or the code is
            too large. OutsideError: no Slurm answers, or the code cannot be read.
    """
    job = submission.job
    scheduler = job.scheduler
    if scheduler.one_machine and submission.spec.executor not in SCHEDULERS:
        where = scheduler.where(job)
        raise OutsideError(f"--check asks Slurm, but this run is for {where}: {why_silent()}.")
    if code:
        from hpckit.submission.kept_code import check_code  # noqa: PLC0415  # a dry run needs none

        check_code(submission)
    with patience():
        return scheduler.preflight(job, in_parts(submission)[0].rendered.text)


def refuse_unusable(unusable: tuple[Unusable, ...], names: frozenset[str], spec: JobSpec) -> None:
    """Refuse a request in which a file may be another than the one that was pinned.

    Raises:
        ConfigError: one of `names` would come from a collection that cannot be used.
    """
    for row in unusable:
        if row.has(names) and "collections" not in spec.skip_checks:
            what = ", ".join(sorted(names & (row.provides or frozenset()))) or "what is submitted"
            raise ConfigError(
                f"Collection {row.name!r}, from which {what} may come, cannot be used: {row.why} "
                f"{off_switch('collections')}"
            )
