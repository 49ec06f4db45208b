"""Which old runs may go: those that were asked for, and that no unfinished run needs."""

import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from hpckit.errors import RequestError
from hpckit.frozen import frozen
from hpckit.owners import strangers
from hpckit.run_folders.runs import Run
from hpckit.slurm.states import JobState
from hpckit.submission.after import read_after
from hpckit.submission.states import statuses
from hpckit.submission.status import RunStatus

# The end of a run's id, which no other run has: `new_run_id`.
_MARK = re.compile(r"\d{8}-\d{6}-[0-9a-f]{6}(?![0-9a-f])")


@frozen(kw_only=True)
class Wanted:
    """Which runs are to go; None, or no state, asks for nothing.

    Attributes:
        before: epoch seconds; nothing in the folder has changed since.
        states: Slurm's words for what became of it.
        larger: bytes on the disk.
    """

    before: float | None = None
    states: tuple[JobState, ...] = ()
    larger: int | None = None

    @property
    def nothing(self) -> bool:
        """Whether no run was asked for."""
        return self.before is None and not self.states and self.larger is None


@frozen(kw_only=True)
class OldRun:
    """A run that may go: the bytes it has on the disk, and when anything in it changed last."""

    status: RunStatus
    size: int
    changed: float

    @property
    def run(self) -> Run:
        """The run."""
        return self.status.run


@frozen(kw_only=True)
class KeptRun:
    """A run that was asked for and stays, and why."""

    run: Run
    why: str


def choose(
    runs: Sequence[Run], candidates: Iterable[Run], wanted: Wanted
) -> tuple[list[OldRun], list[KeptRun]]:
    """Return which of `candidates` may go, oldest first, and which stay although asked for.

    `runs` are all that are known: an unfinished one among them keeps what it needs. Each scheduler
    is asked once.
    """
    if wanted.nothing:
        return [], []
    found = {status.run.dir: status for status in statuses(runs)}
    needs = _Needs([row for row in found.values() if not row.finished], runs)
    old: list[OldRun] = []
    kept: list[KeptRun] = []
    for run in candidates:
        row = _matching(found[run.dir], wanted)
        if row is None:
            continue
        if why := _stays(row.status, wanted) or needs.why(run):
            kept.append(KeptRun(run=run, why=why))
        else:
            old.append(row)
    return sorted(old, key=lambda row: row.changed), kept


def _matching(status: RunStatus, wanted: Wanted) -> OldRun | None:
    """Return a run with its size and age, if it is one of those that were asked for."""
    run = status.run
    if wanted.states and status.state not in wanted.states:
        return None
    if wanted.before is not None and run.submitted_at >= wanted.before:
        return None
    size, changed = measured(run.dir)
    changed = max(changed, run.submitted_at)
    if wanted.before is not None and changed >= wanted.before:
        return None
    if wanted.larger is not None and size <= wanted.larger:
        return None
    return OldRun(status=status, size=size, changed=changed)


def measured(folder: Path) -> tuple[int, float]:
    """Return a folder's bytes on the disk, and when something in it changed last."""
    size, changed = 0, 0.0
    for path, folders, files in os.walk(folder):
        for name in (".", *folders, *files):
            try:
                status = os.lstat(f"{path}/{name}")
            except OSError:  # removed since
                continue
            size += 0 if name in folders else status.st_blocks * 512
            changed = max(changed, status.st_mtime)
    return size, changed


def _stays(status: RunStatus, wanted: Wanted) -> str:
    """Say why a run must stay whatever else there is."""
    run = status.run
    if not run.mine:
        return run.doubt or f"it belongs to {run.owner}"
    if run.dir.is_symlink():
        return "its folder is a link: name the folder that it leads to with --runs"
    if who := unsafe(run.dir.parent):
        return who
    if status.finished:
        return ""
    why = (status.reason_text or "nothing tells").rstrip(".")
    if status.unanswered or status.elsewhere:
        return f"its state cannot be known now: {why}"
    if status.state is not JobState.UNKNOWN:
        return f"it is {status.state}"
    # Slurm has forgotten it: what ranks have not written will never be known.
    return "" if JobState.UNKNOWN in wanted.states else f"its state is not known: {why}"


def unsafe(root: Path) -> str:
    """Say who could put another folder in the place of one that is removed; "" if nobody could."""
    try:
        return strangers(root)
    except OSError as error:
        return f"{root} cannot be looked at: {error.strerror}"


class _Needs:
    """What unfinished runs need of others: by name, by `--after`, as an array or a study."""

    def __init__(self, active: Sequence[RunStatus], runs: Sequence[Run]) -> None:
        self._arrays = {row.run.whole: row for row in active if row.run.whole}
        self._marks: dict[str, RunStatus] = {}
        self._awaited: dict[str, RunStatus] = {}
        self._studies: dict[str, RunStatus] = {}
        for row in active:
            # Whatever links runs names them: a run that goes on from another's checkpoints, too.
            marks = _MARK.findall(json.dumps(dict(row.run.record)))
            self._marks |= {mark: row for mark in marks if mark not in row.run.run_id}
            self._awaited |= dict.fromkeys(_awaited(row.run, runs), row)
            if study := row.run.record.get("study"):
                self._studies[study["id"]] = row

    def why(self, run: Run) -> str:
        """Say which unfinished run needs a run, and how; "" if none does."""
        if row := self._arrays.get(run.whole or ""):
            return f"its array has task {row.run.job_id}, which is {row.state}"
        if word := next((word for word in _words(run) if word in self._awaited), None):
            row = self._awaited[word]
            return f"job {row.run.job_id}, which is {row.state}, was submitted to start after it"
        study = run.record.get("study")
        if row := self._studies.get(study["id"] if study else ""):
            return f"its study has job {row.run.job_id}, which is {row.state}"
        mark = _MARK.search(run.run_id)
        if row := self._marks.get(mark[0] if mark else run.run_id):
            return f"run.json of job {row.run.job_id}, which is {row.state}, names it"
        return ""


def _words(run: Run) -> Iterator[str]:
    """Yield all that may mean a run, or its array."""
    yield from (*run.names, *run.jobs)
    if run.array_job_id and run.whole:
        yield from (run.array_job_id, run.whole, run.run_id.rpartition("_")[0])


def _awaited(run: Run, runs: Sequence[Run]) -> Iterator[str]:
    """Yield the ids that a run's `--after` names."""
    for word in run.record["request"].get("after") or ():
        try:
            _, job = read_after(str(word))
        except RequestError:
            continue
        yield job
        if job == "latest":
            before = [row for row in runs if row.mine and row.submitted_at < run.submitted_at]
            newest = max(before, key=lambda row: row.submitted_at, default=None)
            yield from _words(newest) if newest else ()
