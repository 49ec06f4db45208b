"""Which run was submitted again as which, by `hpckit resubmit`.

The record of the new run says it, and so does a note in the folder of the old one.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hpckit.errors import HpckitError, OutsideError, RequestError
from hpckit.file_locks import locked
from hpckit.files import DamagedFileError, reason
from hpckit.frozen import frozen
from hpckit.job_spec.recorded_spec import spec_from_record
from hpckit.job_spec.spec import JobSpec
from hpckit.run_folders.run_files import read_note, write_json
from hpckit.run_folders.run_record import ResubmitOf
from hpckit.run_folders.runs import RESUBMITTED, Run, following, read_run
from hpckit.submission.retry import read_note as read_retry
from hpckit.submission.retry import retry_after
from hpckit.values import Word

# So many of the newest runs in a run's place are remembered.
_MOST = 20
# Held by what submits a run again; of an array, in the folder of its first task.
_LOCK = "resubmit.lock"
# A submission takes seconds; one to a Slurm that hardly answers, a minute.
_PATIENCE_S = 120.0


@frozen(kw_only=True)
class _New:
    """One run that was submitted in the place of another."""

    run_id: Word
    job_id: Word
    dir: str


@frozen(kw_only=True)
class _Note:
    """All runs that were submitted in the place of one, in order."""

    runs: tuple[_New, ...]


def replaced_by(run: Run, *, alone: bool, failed: Sequence[int]) -> tuple[ResubmitOf, ...]:
    """Return which runs are submitted again with one, in the order of the new ones.

    Args:
        run: of an array, any task.
        alone: it is submitted as one job, though it may be a task of an array.
        failed: numbers of the tasks that are; () for all.
    """
    if run.array_job_id is None or alone:
        names = [(run.run_id, run.job_id)]
    else:
        array = run.run_id.rpartition("_")[0]
        numbers = failed or range(run.record["plan"].get("array_size") or 0)
        names = [(f"{array}_{number}", f"{run.whole}_{number}") for number in numbers]
    folder = run.dir.parent
    return tuple(ResubmitOf(of=of, job_id=job, dir=str(folder / of)) for of, job in names)


@contextmanager
def one_at_a_time(run: Run, what: str, *, patience_s: float | None = None) -> Iterator[None]:
    """Keep others from submitting a run, or tasks of its array, again, or wait until they have.

    What they submitted is seen afterwards. A killed command holds no lock (flock(2)). In a folder
    of another user, or one that cannot be written, there is none: no note can be made there either.

    Args:
        run: of an array any task.
        what: what is submitted again, in an error.
        patience_s: go on nevertheless after so long; None: fail after a long time.

    Raises:
        OutsideError: another command is at it, and does not come to its end.
    """
    most_s = _PATIENCE_S if patience_s is None else patience_s
    with ExitStack() as stack:
        held: bool | None = None
        if run.mine:
            first = run.dir.with_name(f"{run.run_id.rpartition('_')[0]}_0")
            folder = first if first.is_dir() else run.dir
            with suppress(OSError, DamagedFileError):
                lock = locked(folder / _LOCK, shared=False, patience_s=most_s)
                held = stack.enter_context(lock)
        if held is False and patience_s is None:
            raise OutsideError(
                f"Another command is submitting {what} again, and has not come to its end in "
                f"{most_s:.0f} s: try again later."
            )
        yield


def followers(run: Run) -> frozenset[str]:
    """Return which runs follow one now: those in its place, and one that `--retry` submits."""
    note = read_retry(run.dir)
    tried_again = [note.run_id] if note and note.run_id else []
    return frozenset([*(row.run_id for row in _read(run)), *tried_again])


def refuse_twin(run: Run, known: frozenset[str], asked: JobSpec) -> None:
    """Refuse to submit a run again as another command has just done: both would write its files.

    Who asks for something else, as in a loop over sizes, means another job. `known` are the
    followers of which the user has been told.

    Raises:
        RequestError: another command has, or the job itself (`--retry`).
    """
    todo = f"To submit job {run.job_id} once more, give this command again."
    for new in resubmitted_as(run):
        if new.run_id not in known and _asks(new) == asked:
            raise RequestError(
                f"Another command has just submitted job {run.job_id} again, as job {new.job_id}. "
                f"{todo}"
            )
    note = read_retry(run.dir)
    before = _asks(run)
    same = before is not None and before.args == asked.args
    if same and note and note.run_id and note.run_id not in known:
        raise RequestError(
            f"Job {run.job_id} has failed and just submits itself again (--retry), as run "
            f"{note.run_id}. {todo}"
        )


def refuse_resubmitted(run: Run, known: frozenset[str]) -> None:
    """Refuse the retry of a run that its user has submitted again since `known` followed it.

    Raises:
        RequestError: the user has.
    """
    for new in resubmitted_as(run):
        if new.run_id not in known and same_work(new.record, run.record):
            raise RequestError(f"it was submitted again meanwhile, as job {new.job_id}")


def _asks(run: Run) -> JobSpec | None:
    try:
        return spec_from_record(run.record["request"])
    except (HpckitError, ValueError, TypeError, KeyError):  # of another version
        return None


def write_notes(runs: Sequence[Run], tell: Callable[[str], None]) -> None:
    """Write down in the folders of the user's earlier runs that these were submitted again."""
    told = False
    for run in runs:
        before: ResubmitOf | None = run.record.get("resubmit")
        old = _own(before) if before else None
        if old is None:
            continue
        new = _New(run_id=run.run_id, job_id=run.job_id, dir=str(run.dir))
        known = _read(old)
        if new in known:  # by a submission that was killed after that
            continue
        note = _Note(runs=(*known, new)[-_MOST:])
        try:
            write_json(old.dir / RESUBMITTED, asdict(note))
        except OSError as error:
            if not told:
                tell(
                    f"note: {old.dir} cannot be written ({reason(error)}): `hpckit status "
                    f"{old.job_id}` will not say that it was submitted again"
                )
            told = True


def _own(before: ResubmitOf) -> Run | None:
    """Return a run that was submitted again; None: it is gone, or another user's."""
    try:
        found = read_run(Path(before["dir"]))
    except HpckitError:
        return None
    return found if found.mine and found.run_id == before["of"] else None


def _read(run: Run) -> tuple[_New, ...]:
    note = read_note(run.dir / RESUBMITTED, _Note)
    return note.runs if note else ()


def resubmitted_as(run: Run) -> Iterator[Run]:
    """Yield the runs that were submitted in the place of one and are still there, newest first."""
    for new in reversed(_read(run)):
        # Folders of runs are moved together.
        beside = [run.dir.with_name(new.run_id)] if "/" not in new.run_id else []
        places = dict.fromkeys([Path(new.dir), *beside])
        found = (following(run, "resubmit", new.run_id, place) for place in places)
        if one := next(filter(None, found), None):
            yield one


def before_and_after(run: Run) -> tuple[str | None, str | None]:
    """Return the jobs' ids of the run in whose place it was submitted, and of the last in its."""
    before: ResubmitOf | None = run.record.get("resubmit")
    after = next(resubmitted_as(run), None)
    return before["job_id"] if before else None, after.job_id if after else None


def same_work(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Say of two records whether the same program was given the same arguments."""
    return _program(one) == _program(other)


def _program(record: Mapping[str, Any]) -> list[str]:
    """Return a record's program and its arguments, without what starts it: another Python, say."""
    command, word = list(record["command"]), (record.get("program") or {}).get("word")
    return command[command.index(word) :] if word in command else command


def last_try(run: Run) -> Run:
    """Return the last run that does the work of one again, by `--retry` or the user, or itself."""
    seen = {run.run_id}
    while following := _next_try(run):
        if following.run_id in seen:  # damaged
            break
        seen.add(following.run_id)
        run = following
    return run


def _next_try(run: Run) -> Run | None:
    """Return the last run that a user submitted in the place of one, else the one of `--retry`.

    One that was given other arguments is another task.
    """
    again = (row for row in resubmitted_as(run) if same_work(row.record, run.record))
    if after := next(again, None):
        return after
    return retry_after(run) if run.record["request"].get("retry") else None
