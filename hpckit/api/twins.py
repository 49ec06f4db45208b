"""Guards against two jobs that do one work side by side, where a run is submitted again.

The run itself may not be over, and others may have submitted it again before, or just now.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from hpckit.errors import HpckitError
from hpckit.job_spec.spec import JobSpec
from hpckit.run_folders.ranks import read_ranks
from hpckit.run_folders.run_record import ResubmitOf
from hpckit.run_folders.runs import Run, read_run
from hpckit.slurm.states import JobState
from hpckit.submission.after import read_after
from hpckit.submission.resubmitted import (
    one_at_a_time,
    refuse_twin,
    replaced_by,
    resubmitted_as,
    same_work,
)
from hpckit.submission.retry import retry_after
from hpckit.submission.states import statuses
from hpckit.submission.status import RunStatus
from hpckit.submission.verdict import all_ended, most_restarts
from hpckit.text import counted, listed

# So many jobs that are not over are named.
_NAMED = 4


def claim(run: Run, what: str, known: frozenset[str], asked: JobSpec, held: ExitStack) -> None:
    """Keep other commands from submitting a run again until `held` is closed; see `refuse_twin`.

    Raises:
        RequestError: another command has just submitted the same. OutsideError: another is at it,
            and does not come to its end.
    """
    held.enter_context(one_at_a_time(run, what))
    refuse_twin(run, known, asked)


def tell_of_twins(
    run: Run,
    again: Sequence[ResubmitOf],
    after: Sequence[str] | None,
    tell: Callable[[str], None],
    *,
    alone: bool,
) -> None:
    """Say which jobs do the work of a run again already, and whether one of them is not over.

    Args:
        run: what is submitted again; of an array any task.
        again: whose place the new jobs take. Of the tasks of an array it would be too much to say.
        after: what the new job waits for, as words of `--after`; None: nobody may be asked.
        tell: is given a sentence.
        alone: whether it is one job, though it may be a task of an array.
    """
    if len(again) == 1:
        if last := next(resubmitted_as(run), None):
            tell(f"job {run.job_id} was submitted again before, as job {last.job_id}")
        if retry := _retry(run):
            tell(f"job {run.job_id} was tried again (--retry), as job {retry.job_id}")
    if after is not None:
        tell_of_unfinished([run] if alone else _tasks_of(run), after, tell)


def _tasks_of(run: Run) -> list[Run]:
    """Return all tasks of a run's array that can be read, or the run itself."""
    found: list[Run] = []
    for row in replaced_by(run, alone=False, failed=()):
        try:
            found.append(read_run(Path(row["dir"])))
        except HpckitError:  # removed, or damaged: nothing is known of it
            continue
    return found


def tell_of_unfinished(
    runs: Sequence[Run], after: Sequence[str], tell: Callable[[str], None]
) -> None:
    """Say which jobs that do the same work still run or wait: a new one would work beside them.

    Args:
        runs: what is submitted again, a job or the tasks of an array.
        after: what the new job waits for, as words of `--after`.
        tell: is given a sentence.
    """
    awaited = {read_after(word)[1] for word in after}
    ours = {row.dir: row for run in runs for row in (run, *_in_its_place(run)) if row.mine}
    left = [
        row for row in ours.values()
        if awaited.isdisjoint({*row.names, str(row.whole)}) and not _known_over(row)
    ]  # fmt: skip
    found = statuses(left) if left else []
    if going := [row for row in found if _goes_on(row)]:
        tell(_beside(going))
    for row in found:
        if row.unanswered and row.state is JobState.UNKNOWN:
            tell(f"whether job {row.run.job_id} is over is not known: {row.silence}")
            return  # the others for the same reason


def _in_its_place(run: Run) -> Iterator[Run]:
    """Yield the newest runs that do the work of one again."""
    if (last := next(resubmitted_as(run), None)) and same_work(last.record, run.record):
        yield last
    if retry := _retry(run):
        yield retry


def _retry(run: Run) -> Run | None:
    return retry_after(run) if run.record["request"].get("retry") else None


def _known_over(run: Run) -> bool:
    """Say whether a run's own files say that it is over, so that nobody has to be asked."""
    return not most_restarts(run) and all_ended(tuple(read_ranks(run.dir, [])), run.ranks)


def _goes_on(status: RunStatus) -> bool:
    unknown = status.finished or status.elsewhere or status.state is JobState.UNKNOWN
    return not unknown and status.state is not JobState.COMPLETING


def _beside(going: Sequence[RunStatus]) -> str:
    """Return the sentence on jobs that are not over, and how to end them."""
    first, ids = going[0].run, [row.run.job_id for row in going]
    if len(going) == 1:
        said, it, cancel = f"job {ids[0]} is {going[0].state}", "it", ids[0]
    else:
        counts = sorted(Counter(str(row.state) for row in going).items())
        states = ", ".join(f"{count} {state}" for state, count in counts)
        said = f"{counted(len(going), 'job')} ({listed(ids, _NAMED)}) are not over: {states}"
        it = "them"
        whole = first.whole and all(row.run.whole == first.whole for row in going)
        cancel = str(first.whole) if whole else " ".join(ids)
    return (
        f"{said}. What is submitted now works beside {it}, and in the same folders if the script "
        f"writes to fixed ones. To end what is there: hpckit cancel {cancel}"
    )
