"""`--after JOB`: what a submission waits for, and whether that can still come."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from hpckit.errors import OutsideError, PlanError, RequestError
from hpckit.frozen import frozen
from hpckit.job.checks import off_switch
from hpckit.run_folders.find import find_believed
from hpckit.run_folders.runs import Run
from hpckit.schedulers.base import find_scheduler
from hpckit.schedulers.slurm.asking import never_starts, records_of
from hpckit.slurm.dependencies import ON_ITS_END
from hpckit.slurm.states import JobState, is_finished
from hpckit.submission.resubmitted import last_try
from hpckit.submission.retry import last_retry
from hpckit.submission.states import statuses
from hpckit.submission.status import RunStatus

KINDS = ("afterok", "afterany", "afternotok", "after", "aftercorr")
Ask = Callable[[Sequence[Run]], list[RunStatus]]


def asked_once() -> Ask:
    """Return `statuses` that asks of each run once, and answers the same from then on."""
    known: dict[Path, RunStatus] = {}

    def ask(runs: Sequence[Run]) -> list[RunStatus]:
        if new := [run for run in runs if run.dir not in known]:
            known.update((row.run.dir, row) for row in statuses(new))
        return [known[run.dir] for run in runs]

    return ask


def read_after(word: str) -> tuple[str, str]:
    """Return (kind, job) of a word: `afterany:12`, or `12`, which means `afterok:12`.

    Raises:
        RequestError: there is no such kind, or it names several jobs, as sbatch may be told.
    """
    each = _each(word)
    if len(each) > 1:
        options = " ".join(f"--after {one}" for one in each)
        raise RequestError(f"--after {word!r} names {len(each)} jobs. Give it for each: {options}.")
    kind, colon, job = word.partition(":")
    if not colon and word in ("singleton", *KINDS):
        raise RequestError(f"--after {word!r} names no job. Name it: --after afterany:latest.")
    if not colon:
        kind, job = "afterok", word
    if kind not in KINDS:
        raise RequestError(f"--after {word!r}: {kind!r} is not one of {', '.join(KINDS)}.")
    return kind, job


def _each(word: str) -> list[str]:
    """Return the words of single jobs for a list as sbatch takes it, `afterok:1:2,afterany:3`.

    Empty where it is no such list: names of runs may have commas and colons.
    """
    found, kind = [], ""
    for part in word.replace(",", ":").split(":"):
        if is_slurm_id(part):
            found.append(f"{kind}{part}")
        elif part in KINDS:
            kind = f"{part}:"
        else:
            return []
    return found


def is_slurm_id(job: str) -> bool:
    """Say whether Slurm itself can be given a word as a job."""
    return job.replace("_", "").isdecimal() and job.isascii()


def dependency(
    word: str, executor: str, root: Path, ask: Ask = statuses
) -> tuple[str, tuple[str, ...]]:
    """Return Slurm's dependency (`afterok:12`) for a word, and the `kind:folder`s of its runs.

    Raises:
        RequestError: there is no such kind or run, or it runs elsewhere.
    """
    kind, job = read_after(word)
    scheduler = find_scheduler(executor)
    try:
        found = find_believed(job, root)
    except (RequestError, OutsideError):
        if scheduler.accounting and is_slurm_id(job):
            return f"{kind}:{job}", ()  # a job that hpckit did not submit
        raise
    if found[0].scheduler is not scheduler:
        raise RequestError(
            f"--after {word}: that is a {found[0].executor} run, but this one is {executor}."
        )
    if len(found[0].jobs) > 1:
        return _of_chain(kind, found[0].jobs), (f"{kind}:{found[0].dir}",)
    last = last_runs(found, kind, ask)
    ids = [last[0].job_id]
    if len(last) > 1:
        ids = list(dict.fromkeys(str(run.array_job_id) for run in found))
        if any(new.dir != run.dir for run, new in zip(found, last, strict=True)):
            ids = _not_complete(last, ask)
    if kind == "aftercorr" and len(ids) > 1:
        raise RequestError(
            f"--after {word}: the tasks of that run are in {len(ids)} arrays of Slurm's, and Slurm "
            "can match tasks of one array only. Give --after afterok, or one array's id of "
            f"{', '.join(ids)}."
        )
    return f"{kind}:{':'.join(ids)}", tuple(f"{kind}:{run.dir}" for run in last)


def last_runs(runs: Sequence[Run], kind: str, ask: Ask = statuses) -> list[Run]:
    """Return the runs that a dependency of a kind is on: of those that were tried again, the last.

    Of one job, its last `--retry`. What is to end well (`afterok`) may have failed, and been
    submitted again since: tasks of an array by `--retry`, or anything by `hpckit resubmit`.
    """
    found = list(runs)
    if len(found) == 1 and kind in ON_ITS_END:
        found = [last_retry(found[0])]
    if kind != "afterok":
        return found
    again = {run.dir: new for run in found if _can_follow(run, new := last_try(run))}
    if not again:
        return found
    # All that is asked of later is asked at once.
    asked = ask([*found, *again.values()])[: len(found)]
    failed = {row.run.dir for row in asked if row.finished and not row.good}
    return [again.get(run.dir, run) if run.dir in failed else run for run in found]


def _can_follow(run: Run, new: Run) -> bool:
    """Say whether a run can be waited for in the place of another; a chain is no single job."""
    return new.dir != run.dir and new.scheduler is run.scheduler and len(new.jobs) == 1


def _not_complete(runs: Sequence[Run], ask: Ask) -> list[str]:
    """Return the ids of those that are not COMPLETED, or of one: there is nothing to wait for."""
    left = [row.run.job_id for row in ask(runs) if not row.good]
    return left or [runs[-1].job_id]


def _of_chain(kind: str, jobs: tuple[str, ...]) -> str:
    """Return the dependency on a chain: it is COMPLETED with any of its jobs, over with all.

    Slurm calls each job FAILED or TIMEOUT that another one follows.
    """
    if kind == "afterok":
        return "?".join(f"afterok:{job}" for job in jobs)
    return f"{kind}:{':'.join(jobs[:1] if kind == 'after' else jobs)}"


def refuse_beside_chain(words: Sequence[str], found: Sequence[str], *, more: bool) -> None:
    """Refuse what Slurm cannot be told: any of some jobs, and others too (sbatch(1), --dependency).

    Args:
        words: of `--after`.
        found: the dependencies of each.
        more: whether jobs of the submission wait for one another, as with --chain.

    Raises:
        RequestError: so it is.
    """
    for word, text in zip(words, found, strict=True):
        if "?" in text and (more or len(found) > 1):
            job = read_after(word)[1]
            beside = "other --after" if len(found) > 1 else "--chain, or a limit of --parallel,"
            raise RequestError(
                f"--after {word} is a chain: to wait until one of its jobs is COMPLETED cannot be "
                f"given to Slurm with {beside} beside it. Give --after afterany:{job}, which waits "
                "for the end of all."
            )


@frozen(kw_only=True)
class _Known:
    """A job of an `--after`: its state if it is over, and whether it can never start.

    `of`: the job that was named, if this one tries it again. `array`: the array that was named.
    """

    job_id: str
    ended: JobState | None
    never_starts: bool
    of: str | None = None
    array: str | None = None

    @property
    def text(self) -> str:
        """What it is called in an error."""
        return f"job {self.job_id}" + (f", which tries job {self.of} again," if self.of else "")

    @property
    def again(self) -> str:
        """What to do first, where it has failed."""
        if self.array:
            return f"Run what failed again first (hpckit resubmit {self.array} --failed)"
        return f"Run that job again first (hpckit resubmit {self.job_id})"


def refuse_hopeless(words: tuple[str, ...], root: Path, ask: Ask = statuses) -> None:
    """Refuse to wait for what cannot come any more. Where Slurm cannot be asked, nothing is known.

    Raises:
        PlanError: a job has ended, and not as it was to, or can never start; or there is none.
    """
    for word in words:
        kind, job = read_after(word)
        known = list(_known(kind, job, root, ask))
        ended = [row for row in known if row.ended]
        bad = next((row for row in ended if row.ended is not JobState.COMPLETED), None)
        stuck = next((row.job_id for row in known if row.never_starts), None)
        if kind == "afterok" and bad:
            raise PlanError(
                f"--after {word}: {bad.text} is {bad.ended}, but the new job starts only "
                f"after a job that is COMPLETED, so it would never start. {bad.again}, or give "
                f"--after afterany:{job}. {off_switch('after')}"
            )
        if kind == "afternotok" and ended and not bad:
            raise PlanError(
                f"--after {word}: job {ended[0].job_id} is COMPLETED, but the new job starts only "
                "after a failed job, so it would never start. Leave --after out. "
                f"{off_switch('after')}"
            )
        if stuck:
            raise PlanError(
                f"--after {word}: job {stuck} can never start, because a job of its own --after "
                "did not end as required. So the new job would never start either. Cancel that "
                f"one (hpckit cancel {stuck}), and submit it again after a job that can end well. "
                f"{off_switch('after')}"
            )


def _known(kind: str, job: str, root: Path, ask: Ask) -> Iterator[_Known]:
    """Yield what is known of each job that a word means."""
    try:
        runs: list[Run] = find_believed(job, root)
    except RequestError:  # no run, or none to be believed
        if not is_slurm_id(job):
            return
        records = records_of(job)
        if records is None:
            raise PlanError(
                f"--after {job}: Slurm knows no job {job}, or does not show it to you. Slurm takes "
                "such a job for one that is over: the new job would not wait for it. `hpckit jobs` "
                f"and `squeue` show ids. {off_switch('after')}"
            ) from None
        for row in records:
            ended = row.state if is_finished(row.state) else None
            yield _Known(job_id=row.job_id, ended=ended, never_starts=never_starts(row))
        return
    for named, status in zip(runs, ask(last_runs(runs, kind, ask)), strict=True):
        yield _Known(
            job_id=status.run.job_id,
            ended=status.state if status.finished else None,
            never_starts=status.never_starts,
            of=named.job_id if named.dir != status.run.dir else None,
            array=named.whole if len(runs) > 1 else None,
        )
