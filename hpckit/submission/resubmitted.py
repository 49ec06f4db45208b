"""Which run was submitted again as which, by `hpckit resubmit`.

The record of the new run says it, and so does a note in the folder of the old one.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hpckit.errors import HpckitError, OutsideError
from hpckit.file_locks import locked
from hpckit.files import DamagedFileError, reason
from hpckit.frozen import frozen
from hpckit.run_folders.run_files import read_note, write_json
from hpckit.run_folders.run_record import ResubmitOf
from hpckit.run_folders.runs import RESUBMITTED, Run, following, read_run
from hpckit.submission.retry import retry_after
from hpckit.values import Word

# So many of the newest runs in a run's place are remembered.
_MOST = 20
# Held by the command that submits an array's failed tasks again, in the folder of its first task.
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
def one_at_a_time(run: Run) -> Iterator[None]:
    """Keep other commands from submitting failed tasks of an array again, or wait until they have.

    What they submitted is seen afterwards. A killed command holds no lock (flock(2)). In a folder
    of another user, or one that cannot be written, there is none: no note can be made there either.

    Args:
        run: any task of the array.

    Raises:
        OutsideError: another command is at it, and does not come to its end.
    """
    with ExitStack() as stack:
        held: bool | None = None
        if run.mine:
            first = run.dir.with_name(f"{run.run_id.rpartition('_')[0]}_0")
            folder = first if first.is_dir() else run.dir
            with suppress(OSError, DamagedFileError):
                lock = locked(folder / _LOCK, shared=False, patience_s=_PATIENCE_S)
                held = stack.enter_context(lock)
        if held is False:
            raise OutsideError(
                f"Another command is submitting failed tasks of array {run.whole} again, and has "
                f"not come to its end in {_PATIENCE_S:.0f} s: try again later."
            )
        yield


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
