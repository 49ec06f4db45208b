"""Which runs there are, and which of them a word means."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hpckit.api import log
from hpckit.api.run import Run, handle
from hpckit.api.run_list import RunList
from hpckit.errors import DamagedRunError, HpckitError, NotFoundError, OutsideError, RequestError
from hpckit.job_spec.arguments import JOB, PATH, checked, job_word, maybe
from hpckit.paths import is_folder, is_there, typed_path
from hpckit.run_folders.find import find_believed, find_runs, newest_runs, refuse_doubtful
from hpckit.run_folders.index import any_handed_over
from hpckit.run_folders.runs import DamagedRun, runs_root
from hpckit.run_folders.runs import Run as RunFolder
from hpckit.values import Size

if TYPE_CHECKING:
    from datetime import date, timedelta


@checked(job=JOB, runs=maybe(PATH))
def find(job: Run | str | int | Path, *, runs: Path | str | None = None) -> Run:
    """Return the run that a word means: a job's id, a run's id or folder, or `latest`.

    A run of `hpckit.call` comes back as a `Call`, with `result()`. `runs` is the folder of runs,
    and `latest` then the newest in it.

    Raises:
        NotFoundError: there is none. RequestError: it is an array of several tasks.
        OutsideError, DamagedRunError: it cannot be read.
    """
    word = job_word(job)
    also = f", or all of them with hpckit.runs({word!r})"
    root = settled_folder(_folder(runs), (word,))
    return only(word, root, also, here_only=runs is not None)


def only(word: str, root: Path, also: str = "", *, here_only: bool = False) -> Run:
    """Return the one run that a word means; `also` is for the end of the error of several.

    `here_only`: `latest` is the newest below `root`.

    Raises:
        NotFoundError: there is none. RequestError: there are several.
    """
    found = find_runs(word, root, here_only=here_only)
    if len(found) > 1:
        raise RequestError(
            f"{word} is an array of {len(found)} tasks. Give one of them: {found[0].job_id}{also}"
        )
    return handle(found[0])


@checked(job=maybe(JOB), active=bool, limit=Size | None, runs=maybe(PATH))
def runs(
    job: Run | str | int | Path | None = None,
    *,
    state: str | Sequence[str] | None = None,
    since: "str | float | date | timedelta | None" = None,
    name: str | None = None,
    user: str | None = None,
    active: bool = False,
    limit: int | None = None,
    runs: Path | str | None = None,
) -> RunList:
    """Return your runs, newest first; those of others in the same folder come after yours.

    What cannot be read of them is in the list's `damaged`.

    Args:
        job: only the tasks of this array, in order.
        state: only runs that are in this state now, in Slurm's words: `FAILED`; or in one of
            several, as a list or with commas between them.
        since: only what was submitted since then: an age (`7d`, a timedelta), a day
            (`2026-11-01`, a date), a datetime, or epoch seconds. A datetime without a time zone is
            in this machine's time.
        name: only runs of this name, in which `*` and `?` stand for any letters, and any letter.
        user: only runs of this user.
        active: only runs that are not over.
        limit: so many at most, the newest.
        runs: only runs in this folder; else the folder of runs and all that the index knows. A
            `job` is found anywhere, but `latest` is the newest in this folder.

    Raises:
        RequestError: a state, age or day is not one.
    """
    from hpckit.api.choice import Choice  # noqa: PLC0415  # what names one run needs none of it

    chosen = Choice.of(state=state, since=since, name=name, user=user, active=active)
    words = () if job is None else (job_word(job),)
    root = settled_folder(_folder(runs), words)
    bad: list[DamagedRun] = []
    if words:
        found = find_runs(words[0], root, bad, here_only=runs is not None)
    else:
        most = None if chosen.selects else limit
        found = newest_runs(root, most, bad, here_only=runs is not None)
    return RunList((row.run for row in chosen.among([*map(handle, found)], limit)), bad)


def _folder(runs: Path | str | None) -> Path | None:
    return None if runs is None else Path(runs)


def runs_folder(option: Path | None) -> Path:
    """Return the folder of runs for what looks at runs; reads a site only when it must."""
    if option is not None or os.environ.get("HPCKIT_RUNS"):
        return runs_root(option, None, os.environ)
    # A third of what `hpckit jobs` would load.
    from hpckit.collections import search_path  # noqa: PLC0415
    from hpckit.sites import find_site  # noqa: PLC0415

    return runs_root(None, find_site(None, search_path()).runs, os.environ)


def believed(word: str, root: Path, *, here_only: bool = False) -> Run:
    """Return the run that a word means, or the first of an array, for what acts on what it says.

    `here_only`: `latest` is the newest below `root`.

    Raises:
        NotFoundError: there is none. RequestError: others could have written what it says.
    """
    return handle(find_believed(word, root, here_only=here_only)[0])


def settled_folder(
    option: Path | None, words: Sequence[str] = (), tell: Callable[[str], None] = log
) -> Path:
    """Return the folder of runs, after submissions that were cut short have found their jobs."""
    root = runs_folder(option)
    settle_cut_short(root, words, tell)
    return root


def folder_there(runs: Path | str | None, tell: Callable[[str], None]) -> Path:
    """Return the same of what a user typed, which must be there if there is something.

    Raises:
        NotFoundError: it is not.
    """
    asked = None if runs is None else typed_path(runs)
    if asked is not None and not is_folder(asked):
        raise NotFoundError(f"There is no folder {str(asked)!r}.")
    return settled_folder(asked, tell=tell)


def settle_cut_short(
    root: Path, words: Sequence[str] = (), tell: Callable[[str], None] = log
) -> None:
    """Ask Slurm for the jobs of submissions that were cut short; `tell` hears what it said."""
    if any_handed_over() or any(is_there(root / word / "handover.json") for word in words):
        # Seldom: what it takes is not loaded otherwise.
        from hpckit.submission.lost_jobs import find_lost_jobs  # noqa: PLC0415

        for line in find_lost_jobs(root, tuple(words)):
            tell(line)


def runs_called(
    words: Sequence[str], root: Path, *, believed: bool = False, here_only: bool = False
) -> tuple[RunList, list[HpckitError]]:
    """Return the runs of several words, each once, in their order; and why others cannot be read.

    `believed` is for what acts on what runs say: those that others can have made up are refused,
    and so is a word that means none. `here_only`: `latest` is the newest below `root`.

    Raises:
        NotFoundError: a word means none, and `believed`: nothing has been done yet.
    """
    found: list[RunFolder] = []
    errors: list[HpckitError] = []
    told = (DamagedRunError, OutsideError, *(() if believed else (NotFoundError,)))
    for word in words:
        damaged: list[DamagedRun] = []
        try:
            here = find_runs(word, root, damaged, here_only=here_only)
        except told as error:
            errors.append(error)
            continue
        errors += [row.error for row in damaged]
        for run in here if believed else ():
            refuse_doubtful(run, word)
        found += here
    return RunList(handle(run) for run in {run.dir: run for run in found}.values()), errors
