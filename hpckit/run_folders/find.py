"""Finding runs by job id, run id, folder or `latest`.

First in the index, then below the folder of runs. What others may have written is not believed by
a command that acts on it.
"""

import os
import re
import shlex
from collections.abc import Callable
from pathlib import Path

from hpckit.errors import NotFoundError, OutsideError, RequestError
from hpckit.paths import is_folder, is_there, typed_path
from hpckit.run_folders.index import REPAIR, IndexEntry, array_of, index_trouble, read_index
from hpckit.run_folders.run_record import JOB_ID
from hpckit.run_folders.runs import (
    RECORD,
    UNREAD,
    DamagedRun,
    Run,
    list_runs,
    read_or_tell,
    read_run,
)

# Where the scripts of doctor's jobs are, in any installation of hpckit.
_TRIALS = ("doctor", "jobs")
# As `new_run_id` calls folders; each task of an array has its number behind.
_TASK_FOLDER = r"(?a)-\d{8}-\d{6}-[0-9a-f]{6}_\d+\Z"


def find_runs(
    word: str,
    root: Path,
    damaged: list[DamagedRun] | None = None,
    *,
    here_only: bool = False,
) -> list[Run]:
    """Return the run called `word`, or every task of the array called so.

    `word` is a job id, a run id, a run's folder, or `latest`: the user's own newest job or array,
    but none of doctor's trials; with `here_only` the newest below `root`. Any other word is
    found anywhere. `damaged` is told of tasks of the array that cannot be read.

    Raises:
        NotFoundError: there is none. OutsideError, DamagedRunError: it cannot be read.
    """
    if "/" in word and is_folder(typed_path(word)):
        return [read_run(typed_path(word))]
    if word == "latest":
        return _tasks_beside(_latest(root, here_only=here_only), root, damaged)
    matches, broken = _called(word, root)
    if matches:
        # In a group's folder somebody else's record may claim the id.
        matches = [run for run in matches if run.mine] or matches
        newest = max(run.submitted_at for run in matches)
        # Slurm reuses ids after a while: tasks of one array were submitted together.
        found = [run for run in matches if run.submitted_at == newest]
        bases = {array_of(run.run_id) for run in found if word not in run.names}
        if damaged is not None:
            damaged += [row for row in broken if array_of(row.dir.name) in bases]
        return sorted(found, key=lambda run: run.task)
    if broken:
        raise broken[0].error
    damage = read_index()[2]
    raise NotFoundError(
        no_such_run(word, root)
        + (f" But {damage}: {REPAIR} finds your runs again." if damage else "")
    )


def no_such_run(word: str, root: Path) -> str:
    """Say that nothing is called so, and what to do next."""
    import difflib  # noqa: PLC0415  # only errors need it

    meant = difflib.get_close_matches(word, ["latest"])
    slurms = re.fullmatch(JOB_ID, word) and word[0].isdigit()
    return (
        f"There is no run {word!r} in {root} or in your index. "
        + ("Did you mean `latest`? " if meant else "")
        + _more_than_an_id(word)
        + "See `hpckit jobs`, or give its folder with --runs DIR."
        + (f" Of a job that hpckit did not submit: hpckit stats {word}" if slurms else "")
    )


def _more_than_an_id(word: str) -> str:
    """Say what to give in place of a word that Slurm's own programs print or take."""
    if found := re.fullmatch(r"(?a)(\d{1,20}(?:[_+]\d{1,10})?);[\w.-]+", word):
        return f"Leave out the cluster: give {found[1]}. "
    if found := re.fullmatch(r"(?a)(\d{1,20})_(?:\[.*\]|\d+[,:%-][\d,:%-]*)", word):
        return f"Give an array's tasks one by one, or all of them as {found[1]}. "
    return ""


def find_believed(word: str, root: Path, *, here_only: bool = False) -> list[Run]:
    """Return the runs called `word` for a command that acts on what they say.

    A colleague's run may be called by its own name or folder; a job's id means runs of one's own.
    `here_only` is as in `find_runs`.

    Raises:
        NotFoundError: there is none. OutsideError, DamagedRunError: it cannot be read.
        RequestError: anybody could have written what it says.
    """
    found = find_runs(word, root, here_only=here_only)
    for run in found:
        refuse_doubtful(run, word)
    return found


def refuse_doubtful(run: Run, word: str) -> None:
    """Refuse to believe a run that others can have made up.

    Raises:
        RequestError: others may write to it, or it is somebody else's and claims a job's id.
        NotFoundError, OutsideError: its folder is gone, or cannot be looked at.
    """
    run.need_folder()
    if (doubt := run.doubt) == UNREAD:
        raise OutsideError(f"Run {str(run.dir)!r} can no longer be read: try again.")
    if doubt:
        mend = "chmod go-w the folder and its run.json"
        if (folder := Path(os.path.realpath(run.dir))).name != run.run_id:
            mend = shlex.join(["mv", str(folder), f"{folder.parent}/{run.run_id}"])
        raise RequestError(
            f"Run {run.run_id} in {run.dir} is not trusted: {doubt}. Another user may have "
            f"written it. If it is yours: {mend}"
        )
    if not run.mine and re.fullmatch(JOB_ID, word):
        raise RequestError(
            f"No run of yours is job {word}; run {run.run_id} of {run.owner} says it is. "
            f"If you mean that one, name it: {run.run_id}"
        )


def _called(word: str, root: Path) -> tuple[list[Run], list[DamagedRun]]:
    """Return the runs called `word`, by the index, else below `root`; and those that may be."""
    broken: list[DamagedRun] = []
    matches = [run for run in _from_index(word, broken) if run.mine]
    if matches:
        return matches, broken
    if not re.fullmatch(JOB_ID, word) and "/" not in word and is_there(root / word / RECORD):
        return [read_run(root / word)], broken
    here: list[DamagedRun] = []
    matches = [run for run in list_runs(root, here) if _names(run, word)]
    names = {word, *(array_of(run.run_id) for run in matches)} - {""}
    return matches, broken + [row for row in here if names & {row.dir.name, array_of(row.dir.name)}]


def _names(run: Run, word: str) -> bool:
    base = array_of(run.run_id) if run.array_job_id else None
    if re.fullmatch(JOB_ID, word):  # no run of hpckit's is called so: somebody else's might be
        return word in (*run.names, run.array_job_id, run.whole) and word != run.run_id
    return word in (*run.names, run.array_job_id, base)


def _indexed(word: str | None = None) -> list[IndexEntry]:
    return read_index(word)[0]


def _from_index(word: str, broken: list[DamagedRun]) -> list[Run]:
    entries = [row for row in _indexed(word) if word in row.names]
    found = [run for row in entries if (run := _still_there(row, broken)) and _names(run, word)]
    return list({run.dir: run for run in found}.values())


def _still_there(entry: IndexEntry, broken: list[DamagedRun] | None = None) -> Run | None:
    return read_or_tell(Path(entry.dir), broken)


def _tasks_beside(run: Run, root: Path, damaged: list[DamagedRun] | None) -> list[Run]:
    """Return all tasks of a run's array, or the run alone."""
    if run.array_job_id is None:
        return [run]
    return find_runs(array_of(run.run_id), root, damaged)


def _is_trial(run: Run) -> bool:
    """Say whether a run is a job that `hpckit doctor` submitted, whose remains nobody asked for."""
    request = run.record["request"]
    script = Path(str(request.get("program") or request.get("script") or ""))
    return script.parts[-3:-1] == _TRIALS and str(run.record["name"]).startswith("doctor-")


def _latest(root: Path, *, here_only: bool) -> Run:
    newer: list[DamagedRun] = []
    here = next((run for run in list_runs(root, newer) if _counts(run)), None)
    candidates = [run for run in (here, None if here_only else _newest_indexed(newer)) if run]
    # Where a disk does not answer, a newer one may be there: who says `cancel latest` means that.
    if silent := [row.error for row in newer if isinstance(row.error, OutsideError)]:
        raise silent[0]
    if not candidates:
        raise NotFoundError(f"There is no run yet in {root}. Start one: hpckit submit ddp")
    return max(candidates, key=lambda run: run.submitted_at)


def _newest_indexed(newer: list[DamagedRun]) -> Run | None:
    rows = (_still_there(entry, newer) for entry in _indexed())
    return next((run for run in rows if run and _counts(run)), None)


def _counts(run: Run) -> bool:
    """Say whether a run may be the user's latest."""
    return run.mine and not _is_trial(run)


def newest_runs(
    root: Path,
    limit: int | None,
    damaged: list[DamagedRun] | None = None,
    *,
    arrays_as_one: bool = False,
    here_only: bool = False,
) -> list[Run]:
    """Return the user's newest runs, below `root` and in the index; all of them without a limit.

    Where there is room left, those of colleagues below `root` are among them. `damaged` is told of
    those on the way that cannot be read. A run to which links lead by several names is there once,
    by its name in the index. `arrays_as_one` counts all tasks of an array as one run.
    With `here_only` the index is left out.
    """
    if damaged is not None and not here_only and (trouble := index_trouble()):
        damaged.append(trouble)
    key = array_key if arrays_as_one else str
    here, index = _Fewest(limit, key), _Fewest(limit, key)
    candidates = [here.taken(run) for run in list_runs(root, damaged, here.wants)]
    for row in () if here_only else _indexed():
        if index.wants(Path(row.dir)) and (run := _still_there(row, damaged)):
            candidates.append(index.taken(run))
    real: dict[Path, str] = {}
    runs = {_identity(run.dir, real): run for run in candidates}.values()
    # Anybody's record may say that it is of tomorrow.
    first = sorted(runs, key=lambda run: (run.mine, run.submitted_at), reverse=True)
    most = _Fewest(limit, key)
    kept = [most.taken(run) for run in first if most.wants(run.dir)]
    return sorted(kept, key=lambda run: run.submitted_at, reverse=True)


def _identity(folder: Path, real: dict[Path, str]) -> str:
    """Return a run's folder as it is without links; `real` keeps what is known of those above."""
    if folder.parent not in real:
        real[folder.parent] = os.path.realpath(folder.parent)
    return f"{real[folder.parent]}/{folder.name}"


def array_key(folder: Path | str) -> str:
    """Return what a run's folder shares with those of the other tasks of its array."""
    path = str(folder)
    return path.rpartition("_")[0] if re.search(_TASK_FOLDER, path) else path


class _Fewest:
    """Which folders may still be read: so many runs, by what `key` makes of their folders."""

    def __init__(self, limit: int | None, key: Callable[[Path | str], str]) -> None:
        self._limit, self._key = limit, key
        self._seen: set[str] = set()

    def wants(self, folder: Path) -> bool:
        room = self._limit is None or len(self._seen) < self._limit
        return room or self._key(folder) in self._seen

    def taken(self, run: Run) -> Run:
        self._seen.add(self._key(run.dir))
        return run
