"""Removing old runs, and what killed commands left: first as a plan, then for good."""

import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from hpckit.api import Tell, log
from hpckit.api.choice import parse_states
from hpckit.api.lookup import folder_there
from hpckit.api.rebuild import usual_roots
from hpckit.errors import DamagedRunError, HpckitError, OutsideError
from hpckit.files import DamagedFileError, reason
from hpckit.frozen import frozen
from hpckit.job_spec.arguments import FUNCTION, PATH, SIZE, checked, maybe
from hpckit.paths import is_folder, is_there
from hpckit.run_folders.find import newest_runs
from hpckit.run_folders.reindex import distinct, forget_gone, known_roots
from hpckit.run_folders.runs import RECORD, DamagedRun, Run
from hpckit.submission.cleaning import KeptRun, OldRun, Wanted, choose
from hpckit.submission.folders import discard
from hpckit.submission.leftovers import Leftover, cached, left_behind, unneeded_code
from hpckit.submission.needed_code import drop_unneeded
from hpckit.units import parse_bytes, parse_past

if TYPE_CHECKING:
    from datetime import date, timedelta

# A plan that somebody has thought about is made again before anything is removed.
_FRESH_S = 5.0


@frozen(kw_only=True)
class Cleaning:
    """What `remove()` would remove, and what stays.

    Attributes:
        runs: runs that go, oldest first, each with its `status`, `size` in bytes, and when anything
            in it `changed` last.
        kept: runs that were asked for and stay, each with `why`.
        leftovers: files and folders of killed commands, and old entries of the caches.
        damaged: folders that were met and cannot be read; they stay.
    """

    runs: tuple[OldRun, ...]
    kept: tuple[KeptRun, ...]
    leftovers: tuple[Leftover, ...]
    damaged: tuple[DamagedRun, ...]
    wanted: Wanted
    root: Path
    here_only: bool
    made_at: float

    @property
    def size(self) -> int:
        """Bytes that all of it has on the disk."""
        return _sum(self.runs, self.leftovers)

    def remove(self) -> "Cleaned":
        """Remove what still may go: a run that is needed by now stays."""
        now = self if time.monotonic() - self.made_at < _FRESH_S else _plan(self)
        still = {row.run.dir for row in now.runs}
        gone: list[OldRun] = []
        errors: list[HpckitError] = []
        for row in self.runs:
            if row.run.dir in still:
                gone += [row] if _removed(row.run.dir, errors) else []
        for folder in dict.fromkeys(_base(row.run) for row in gone if row.run.whole):
            if not _has_tasks(folder) and is_folder(folder):
                _removed(folder, errors)
        left = [row for row in self.leftovers if not row.of_code and _removed(row.path, errors)]
        copies = [row for row in self.leftovers if row.of_code]  # after the runs
        left += [row for row in copies if _dropped(row.path.parent, errors)]
        lines = 0
        try:
            lines = forget_gone({str(row.run.dir) for row in gone})
        except OutsideError as error:
            errors.append(error)
        return Cleaned(
            runs=tuple(gone), leftovers=tuple(left), index_lines=lines, errors=tuple(errors)
        )


@frozen(kw_only=True)
class Cleaned:
    """What was removed, how many lines of the index with it, and what could not be."""

    runs: tuple[OldRun, ...]
    leftovers: tuple[Leftover, ...]
    index_lines: int
    errors: tuple[HpckitError, ...]

    @property
    def size(self) -> int:
        """Bytes that all of it had on the disk."""
        return _sum(self.runs, self.leftovers)


def _sum(runs: Iterable[OldRun], left: Iterable[Leftover]) -> int:
    return sum(row.size for row in runs) + sum(row.size for row in left)


@checked(larger=maybe(SIZE), runs=maybe(PATH), tell=FUNCTION)
def clean(
    *,
    older: "str | float | date | timedelta | None" = None,
    state: str | Sequence[str] | None = None,
    larger: str | int | None = None,
    runs: Path | str | None = None,
    tell: Tell = log,
) -> Cleaning:
    """Return which of your runs would be removed; `remove()` of the answer removes them.

    A run stays as long as it is not over, as nobody knows what became of it, or as a run that is
    not over needs it. Without `older`, `state` and `larger` no run goes, only what killed commands
    left, lines of the index whose runs are gone, and old entries of the caches.

    Args:
        older: nothing in the run has changed since: an age (`30d`, a timedelta), a day, a datetime
            (without a time zone: in this machine's time), or epoch seconds.
        state: only runs in this state, or in one of several: `FAILED`. With UNKNOWN, runs go that
            Slurm has forgotten.
        larger: only runs of more than so much on the disk: `10G`, or bytes.
        runs: only runs in this folder, and nothing of the caches; else the folder of runs and all
            that the index knows.
        tell: hears what a user should know besides.

    Raises:
        RequestError: an age, state or size is not one. NotFoundError: there is no folder `runs`.
    """
    wanted = Wanted(
        before=None if older is None else parse_past(older, time.time(), "older"),
        states=parse_states(state),
        larger=None if larger is None else parse_bytes(larger),
    )
    root = folder_there(runs, tell)
    return _plan(
        Cleaning(
            runs=(),
            kept=(),
            leftovers=(),
            damaged=(),
            wanted=wanted,
            root=root,
            here_only=runs is not None,
            made_at=0.0,
        ),
        tell,
    )


def _plan(asked: Cleaning, tell: Tell = log) -> Cleaning:
    bad: list[DamagedRun] = []
    every = _once(newest_runs(asked.root, None, bad))
    place = os.path.realpath(asked.root)
    here = [run for run in every if os.path.realpath(run.dir.parent) == place]
    old, kept = choose(every, here if asked.here_only else every, asked.wanted)
    now = time.time()
    more = [] if asked.here_only else [*usual_roots(tell), *known_roots()]
    roots = distinct([asked.root, *more])
    left: list[Leftover] = []
    for root in roots:
        found, lost = left_behind(root, now)
        left += found
        bad += map(_lost, lost)
    going = [*(row.run.dir for row in old), *(row.path for row in left)]
    left += [row for root in roots for row in unneeded_code(root, going)]
    left += [] if asked.here_only else cached(now)
    return replace(
        asked,
        runs=tuple(old),
        kept=tuple(kept),
        leftovers=tuple(left),
        damaged=tuple(bad),
        made_at=time.monotonic(),
    )


def _lost(folder: Path) -> DamagedRun:
    text = (
        f"{folder} has what a job wrote, but no {RECORD}: it is not removed. "
        "If you need nothing in it, delete the folder."
    )
    return DamagedRun(dir=folder, error=DamagedRunError(text))


def _once(runs: Iterable[Run]) -> list[Run]:
    """Return runs, each once whatever links lead to it."""
    return list({os.path.realpath(run.dir): run for run in runs}.values())


def _removed(path: Path, errors: list[HpckitError]) -> bool:
    try:
        if path.is_dir() and not path.is_symlink():
            discard(path)
        else:
            path.unlink(missing_ok=True)
    except (OSError, DamagedFileError) as error:
        errors.append(OutsideError(f"{path} cannot be removed: {reason(error)}."))
        return False
    return True


def _dropped(root: Path, errors: list[HpckitError]) -> bool:
    """Remove copies of code that by now no run needs."""
    try:
        if drop_unneeded(root) is not None:
            return True
        why = "a submission or another hpckit clean uses them at this moment. Try again"
    except OSError as error:
        why = reason(error)
    errors.append(OutsideError(f"Copies of code in {root} cannot be removed: {why}."))
    return False


def _base(run: Run) -> Path:
    return run.dir.with_name(run.run_id.rpartition("_")[0])


def _has_tasks(base: Path) -> bool:
    """Say whether an array still has a task's folder."""
    try:
        with os.scandir(base.parent) as entries:
            return any(
                entry.name.startswith(f"{base.name}_") and is_there(Path(entry.path) / RECORD)
                for entry in entries
            )
    except OSError:
        return True
