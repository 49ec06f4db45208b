"""Which runs there are, and which of them a word means."""

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from hpckit.api import log
from hpckit.api.run import Run, RunList, handle
from hpckit.errors import DamagedRunError, HpckitError, OutsideError, RequestError
from hpckit.find import any_handed_over, find_believed, find_runs, newest_runs, refuse_doubtful
from hpckit.paths import is_there
from hpckit.runs import DamagedRun, runs_root
from hpckit.runs import Run as RunFolder
from hpckit.slurm.states import JobState, parse_state
from hpckit.text import parse_past


def find(job: str | int, *, runs: Path | str | None = None) -> Run:
    """Return the run that a word means: a job's id, a run's id or folder, or `latest`.

    A run of `hpckit.call` comes back as a `Call`, with `result()`. `runs` is the folder of runs.

    Raises:
        NotFoundError: there is none. RequestError: it is an array of several tasks.
        OutsideError, DamagedRunError: it cannot be read.
    """
    return only(str(job), settled_folder(_folder(runs), (str(job),)))


def only(word: str, root: Path) -> Run:
    """Return the one run that a word means.

    Raises:
        NotFoundError: there is none. RequestError: there are several.
    """
    found = find_runs(word, root)
    if len(found) > 1:
        raise RequestError(
            f"{word} is an array of {len(found)} tasks. Give one of them: {found[0].job_id}"
        )
    return handle(found[0])


def runs(
    job: str | int | None = None,
    *,
    state: str | None = None,
    since: str | float | None = None,
    name: str | None = None,
    limit: int | None = None,
    runs: Path | str | None = None,
) -> RunList:
    """Return your runs, newest first; those of others in the same folder come after yours.

    What cannot be read of them is in the list's `damaged`.

    Args:
        job: only the tasks of this array, in order.
        state: only runs that are in this state now, in Slurm's words: `FAILED`.
        since: only what was submitted since then: an age (`7d`), a day (`2026-11-01`), or epoch
            seconds.
        name: only runs of this name.
        limit: so many at most, the newest.
        runs: the folder of runs.

    Raises:
        RequestError: a state, age or day is not one.
    """
    root = settled_folder(_folder(runs), () if job is None else (str(job),))
    bad: list[DamagedRun] = []
    found = newest_runs(root, None, bad) if job is None else find_runs(str(job), root, bad)
    oldest = _moment(since)
    found = [
        run
        for run in found
        if (name is None or run.record["name"] == name) and run.submitted_at >= oldest
    ]
    if state is not None:
        from hpckit.submission.states import statuses  # noqa: PLC0415  # to submit needs none

        wanted = _state(state)
        found = [status.run for status in statuses(found) if status.state is wanted]
    return RunList((handle(run) for run in found[:limit]), bad)


def _folder(runs: Path | str | None) -> Path | None:
    return None if runs is None else Path(runs)


def _state(word: str) -> JobState:
    state = parse_state(word)
    if state is JobState.UNKNOWN and word.upper() != "UNKNOWN":
        raise RequestError(f"{word!r} is not a state of Slurm's: give FAILED, RUNNING or the like.")
    return state


def parse_states(words: str | Sequence[str] | None) -> "tuple[JobState, ...]":
    """Return the states of one word, of several with commas between them, or of a list.

    Raises:
        RequestError: one is no state of Slurm's.
    """
    rows = words.split(",") if isinstance(words, str) else words or ()
    return tuple(_state(word.strip()) for word in rows)


def _moment(since: str | float | None) -> float:
    if since is None:
        return 0.0
    return parse_past(since, time.time()) if isinstance(since, str) else float(since)


def runs_folder(option: Path | None, site_name: str | None = None) -> Path:
    """Return the folder of runs for what looks at runs; reads a site only when it must."""
    if option is not None or os.environ.get("HPCKIT_RUNS"):
        return runs_root(option, None, os.environ)
    # A third of what `hpckit jobs` would load.
    from hpckit.collections import search_path  # noqa: PLC0415
    from hpckit.sites import find_site  # noqa: PLC0415

    return runs_root(None, find_site(site_name, search_path()).runs, os.environ)


def believed(word: str, root: Path) -> Run:
    """Return the run that a word means, or the first of an array, for what acts on what it says.

    Raises:
        NotFoundError: there is none. RequestError: others could have written what it says.
    """
    return handle(find_believed(word, root)[0])


def settled_folder(
    option: Path | None, words: Sequence[str] = (), tell: Callable[[str], None] = log
) -> Path:
    """Return the folder of runs, after submissions that were cut short have found their jobs."""
    root = runs_folder(option)
    settle_cut_short(root, words, tell)
    return root


def settle_cut_short(
    root: Path, words: Sequence[str] = (), tell: Callable[[str], None] = log
) -> None:
    """Ask Slurm for the jobs of submissions that were cut short; `tell` hears what it said."""
    if any_handed_over() or any(is_there(root / word / "handover.json") for word in words):
        # Seldom: what it takes is not loaded otherwise.
        from hpckit.submission.handover import find_lost_jobs  # noqa: PLC0415

        for line in find_lost_jobs(root, tuple(words)):
            tell(line)


def newest(root: Path, limit: int | None) -> RunList:
    """Return the newest runs; what cannot be read is in the list's `damaged`."""
    bad: list[DamagedRun] = []
    return RunList((handle(run) for run in newest_runs(root, limit, bad)), bad)


def runs_called(
    words: Sequence[str], root: Path, *, believed: bool = False
) -> tuple[RunList, list[HpckitError]]:
    """Return the runs of several words, each once, in their order; and why others cannot be read.

    `believed` is for what acts on what runs say: those that others can have made up are refused.

    Raises:
        NotFoundError: a word means none: nothing has been done yet.
    """
    found: list[RunFolder] = []
    errors: list[HpckitError] = []
    for word in words:
        damaged: list[DamagedRun] = []
        try:
            here = find_runs(word, root, damaged)
        except (DamagedRunError, OutsideError) as error:
            errors.append(error)
            continue
        errors += [row.error for row in damaged]
        for run in here if believed else ():
            refuse_doubtful(run, word)
        found += here
    return RunList(handle(run) for run in {run.dir: run for run in found}.values()), errors
