"""Jobs that wait (`--after`) for a job with `--retry`: they wait for its last retry.

The job that submits the retry lets them wait for the new job, while it is not over itself: some
clusters cancel what waits for a job that has failed. A job that is submitted in just that moment
looks for itself: its job is in the queue before it looks, and the retry's note is written before
the queue is asked.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from hpckit.errors import CommandError, HpckitError, RequestError
from hpckit.run_folders.find import find_believed
from hpckit.run_folders.runs import Run, read_run
from hpckit.slurm.control import set_dependency
from hpckit.slurm.dependencies import ON_ITS_END, ask_moved
from hpckit.submission.after import is_slurm_id, last_runs, read_after
from hpckit.submission.retry import last_retry
from hpckit.text import listed

_NAMED = 3  # jobs that are tried again
_AGAIN_S = 2.0
_Answer = TypeVar("_Answer")


def take_along(job_id: str, to: str, tell: Callable[[str], None]) -> None:
    """Let the user's jobs that wait for the end of a job wait for another's; `tell` hears of each.

    What keeps a job from it is told, too.
    """
    try:
        waiting = _twice(lambda: ask_moved(job_id, to))
    except CommandError as error:
        tell(f"jobs that wait for job {job_id} cannot be made to wait for job {to}: {error}")
        return
    for waits, dependency in waiting.items():
        try:
            _twice(partial(set_dependency, waits, dependency))
        except CommandError as error:
            tell(f"job {waits} cannot be made to wait for job {to}, not for {job_id}: {error}")
        else:
            tell(f"job {waits} waits for job {to} now, in place of job {job_id}")


def _twice(ask: Callable[[], _Answer]) -> _Answer:
    """Ask Slurm, and once more after a moment: nobody else lets those jobs wait for the new one."""
    try:
        return ask()
    except CommandError:
        time.sleep(_AGAIN_S)
        return ask()


def catch_up(after_dirs: Sequence[str], tell: Callable[[str], None]) -> None:
    """See that a run just submitted waits for the retries that others have got meanwhile.

    `after_dirs` are `kind:folder` of the others; `tell` hears what is done.
    """
    for word in after_dirs:
        try:
            run = read_run(Path(word.partition(":")[2]))
        except HpckitError as error:
            tell(f"note: {error}")
            continue
        if (new := last_retry(run)) is not run:
            take_along(run.job_id, new.job_id, lambda line: tell(f"note: {line}"))


def notes_on(
    words: Sequence[str], dependencies: Sequence[tuple[str, Sequence[str]]], root: Path
) -> Iterator[str]:
    """Say of each `--after` which retry it means, or which retries it does not wait for.

    `dependencies` are what `hpckit.submission.after.dependency` makes of each.
    """
    for word, (_, folders) in zip(words, dependencies, strict=True):
        if folders:  # of jobs that hpckit submitted
            places = [Path(text.partition(":")[2]) for text in folders]
            yield from _note(word, _runs(read_after(word)[1], root), places)


def _note(word: str, named: Sequence[Run], places: Sequence[Path]) -> Iterator[str]:
    """Say it of one; `named` are the runs that it names, `places` those that are waited for."""
    kind, run = read_after(word)[0], named[0]
    rules, many = run.record["request"].get("retry"), len(named) > 1
    alone = "not for one that tries it again"
    again = [
        f"{old.job_id} is tried again as {read_run(place).job_id}"
        for old, place in zip(named, places, strict=True)
        if old.dir != place
    ]
    if again:
        which = "that one" if len(again) == 1 else "those"
        yield f"--after {word}: job {listed(again, _NAMED)}; this one waits for {which}"
    if rules and many:
        yield f"--after {word} is an array with --retry: this job waits for each task, {alone}"
    elif rules and not run.mine and kind in ON_ITS_END:
        yield f"--after {word}, of {run.owner}, has --retry: this job waits for that job, {alone}"


def tried_again(run: Run) -> Iterator[str]:
    """Say of a job that can never start which jobs are tried again that it waited for."""
    for word in run.record["request"].get("after") or ():
        kind, job = read_after(word)
        found = _runs(job, run.dir.parent) if kind in ON_ITS_END and is_slurm_id(job) else []
        for one, new in zip(found, last_runs(found, kind), strict=True):
            if new.dir != one.dir:
                yield (
                    f"job {one.job_id}, which it waits for, is tried again as job {new.job_id}. To "
                    f"wait for that: hpckit cancel {run.job_id}, then hpckit resubmit {run.job_id}"
                )


def _runs(job: str, root: Path) -> list[Run]:
    try:
        return find_believed(job, root)
    except RequestError:  # a job that hpckit did not submit; others are refused elsewhere
        return []
