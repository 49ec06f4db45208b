"""A live view of the user's jobs: what any screen asks for, again and again, and shows.

    watch = Watch(root)
    watch.refresh()          # one question to Slurm's queue, whatever the number of jobs
    lines(watch.jobs, View())

Jobs that are over are asked for no more. Files are read from where the last look ended.
"""

import re
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path

from hpckit.api.cancel import cancel
from hpckit.api.free import Free, free
from hpckit.api.run import Run, handle
from hpckit.api.run_status import status_of
from hpckit.errors import DamagedRunError, HpckitError, OutsideError, RequestError
from hpckit.files import DamagedFileError
from hpckit.frozen import frozen
from hpckit.live.model import JobNow, Line, Order, View, lines, next_order, toggled
from hpckit.live.texts import (
    HEADS,
    Cell,
    about,
    cells,
    clock,
    frame,
    free_lines,
    short_name,
    top_line,
    widths,
)
from hpckit.paths import is_folder
from hpckit.run_folders.find import newest_runs
from hpckit.run_folders.index import index_path
from hpckit.run_folders.logs import decoder, log_files, part_of
from hpckit.run_folders.metrics import METRICS, Progress
from hpckit.run_folders.runs import DamagedRun
from hpckit.shell import stop_all
from hpckit.slurm.states import JobState
from hpckit.stats.samples.tail import Busy
from hpckit.submission.status import RunStatus
from hpckit.text import cut

__all__ = [
    "HEADS", "Cell", "JobNow", "Line", "LogTail", "Order", "View", "Watch", "about", "cells",
    "clock", "cut", "frame", "free_lines", "lines", "next_order", "short_name", "toggled",
    "top_line", "widths",
]  # fmt: skip

# Of jobs that are over so many of the newest are kept in sight, and so many are looked at.
NEWEST, _MOST_RUNS = 100, 2000
# Files of so many running jobs are read in a round.
_MOST_READ = 100
# The cluster changes slowly, and telling of it costs its controller more than a queue does.
_FREE_EVERY_S = 60.0
_LOG_BYTES = 1 << 20
# One in so many rounds asks of jobs that nobody knows.
_LOST_EVERY = 12


@frozen(kw_only=True)
class _Files:
    """What is known of a run's `metrics.jsonl`: its size and time, and what it said then."""

    stamp: tuple[int, int]
    progress: Progress | None


class Watch:
    """The user's jobs as they were at the last `refresh`.

    Attributes:
        jobs: those that are not over, and the newest that are.
        asked: when Slurm was asked last, in epoch seconds; None: not yet.
        silent_since, silence: since when Slurm does not answer, and why; None and "": it does.
        free: what is free on the cluster; None: not known, `free_trouble` says why.
        trouble: what else is wrong, such as a folder that cannot be read; "".
    """

    def __init__(self, root: Path, *, in_one: bool = False, here_only: bool = False) -> None:
        """Make one for the runs of a folder, and those that the index knows unless `here_only`.

        `in_one` looks for all of them the first time.
        """
        self.jobs: tuple[JobNow, ...] = ()
        self.asked: float | None = None
        self.silent_since: float | None = None
        self.silence = ""
        self.free: Free | None = None
        self.free_trouble = ""
        self.trouble = ""
        self._root = root
        self._runs: dict[Path, Run] = {}
        self._status: dict[Path, RunStatus] = {}
        self._busy: dict[Path, Busy] = {}
        self._files: dict[Path, _Files] = {}
        self._in_one = in_one
        self._here_only = here_only
        self._whole = False
        self._stamp: tuple[int, int] | None = None
        self._rounds = 0
        self._free_at = 0.0

    def refresh(self, visible: Collection[str] | None = None) -> None:
        """Ask for all jobs: Slurm's queue once. It raises nothing: what is wrong is said.

        The first time only the newest are looked for, so that there is soon something to see; not
        so where it is to be done in one.

        Args:
            visible: keys of jobs whose files are read, None for all that run.
        """
        self._find_runs()
        self._rounds += 1
        # Of those that Slurm does not know any more, accounting is asked seldom.
        seldom = self._rounds % _LOST_EVERY != 0
        runs = [run for path, run in self._runs.items() if not (seldom and self._is_lost(path))]
        try:
            asked = status_of(runs)
        except HpckitError as error:
            self._say_silent(str(error))
            return
        self.asked = time.time()
        self._status |= {row.run.dir: row for row in asked}
        found = [row for path, row in self._status.items() if path in self._runs]
        silent = next((row for row in found if row.unanswered and not row.finished), None)
        if silent is not None:
            self._say_silent(str(silent.silence))
        else:
            self.silent_since, self.silence = None, ""
        self._forget(found)
        self.look(visible)

    def look(self, visible: Collection[str] | None = None) -> None:
        """Read what running jobs wrote since the last time, and ask nobody."""
        rows = []
        left = _MOST_READ
        for path, status in self._status.items():
            wanted = visible is None or str(path) in visible
            reads = wanted and status.state is JobState.RUNNING and left > 0
            left -= reads
            if reads:
                self._busy.setdefault(path, Busy(path))
            rows.append(self._job(self._runs[path], status, reads=reads))
        self.jobs = tuple(rows)

    def refresh_free(self) -> None:
        """Ask what is free, at most once a minute."""
        moment = time.monotonic()
        if self._free_at and moment - self._free_at < _FREE_EVERY_S:
            return
        self._free_at = moment
        try:
            self.free, self.free_trouble = free(), ""
        except HpckitError as error:
            self.free, self.free_trouble = None, str(error)

    def said(self) -> str:
        """Return what is known of Slurm, for the line at the top."""
        if self.asked is None and self.silent_since is None:
            return "asking Slurm"
        if self.silent_since is not None:
            since = time.strftime("%H:%M:%S", time.localtime(self.silent_since))
            return f"Slurm does not answer since {since}: {self.silence}"
        moment = time.strftime("%H:%M:%S", time.localtime(self.asked))
        return f"{moment}{f'; {self.trouble}' if self.trouble else ''}"

    def side(self) -> list[str]:
        """Return what is free, a line for each partition and type of GPU."""
        if self.free is None:
            return [self.free_trouble or "asking Slurm"]
        return free_lines(self.free.parts)

    def _find_runs(self) -> None:
        """Look for runs that are new; from the second time on among all."""
        all_of_them = not self._whole and (self._in_one or self.asked is not None)
        stamp = _stamp(self._root), _stamp(index_path())
        if stamp == self._stamp and not all_of_them:
            return
        most = _MOST_RUNS if all_of_them else NEWEST
        damaged: list[DamagedRun] = []
        try:
            folders = newest_runs(
                self._root, most, damaged, arrays_as_one=True, here_only=self._here_only
            )
        except HpckitError as error:
            self.trouble = str(error)
            return
        # Of damaged ones `jobs` tells; those on a disk that does not answer may be there again.
        silent = [str(row.error) for row in damaged if isinstance(row.error, OutsideError)]
        self.trouble = silent[0] if silent else ""
        self._whole = self._whole or all_of_them
        self._stamp = None if silent else stamp
        there = {folder.dir for folder in folders}
        for folder in folders:
            if folder.mine and folder.dir not in self._runs:
                self._runs[folder.dir] = handle(folder)
        # One that was removed since is nobody's job any more.
        gone = [path for path in self._runs if path not in there and not is_folder(path)]
        for path in [] if silent else gone:
            self._drop(path)

    def _forget(self, found: Sequence[RunStatus]) -> None:
        """Keep those that are not over, and the newest that are: arrays in one piece."""
        over = sorted((row for row in found if row.finished), key=lambda row: row.run.submitted_at)
        kept = {row.run.dir for row in over[-NEWEST:]}
        arrays = {row.run.whole for row in found if not row.finished or row.run.dir in kept}
        for row in over:
            if row.run.dir not in kept and (row.run.whole is None or row.run.whole not in arrays):
                self._drop(row.run.dir)

    def _is_lost(self, path: Path) -> bool:
        """Say whether neither the queue nor accounting knew a run's job when asked last."""
        status = self._status.get(path)
        if status is None or status.state is not JobState.UNKNOWN:
            return False
        return status.left_queue or status.elsewhere

    def _drop(self, path: Path) -> None:
        for known in (self._runs, self._status, self._busy, self._files):
            known.pop(path, None)

    def _say_silent(self, why: str) -> None:
        self.silent_since = self.silent_since or time.time()
        self.silence = why.rstrip(".")

    def _job(self, run: Run, status: RunStatus, *, reads: bool) -> JobNow:
        folder = status.run
        busy = self._busy[folder.dir].look() if reads else ()
        return JobNow(
            key=str(folder.dir),
            job_id=folder.job_id,
            name=run.name,
            state=status.state,
            array=f"{folder.dir.parent}/{folder.whole}" if folder.whole else None,
            whole=folder.whole,
            task=folder.task,
            reason=status.reason,
            why=status.reason_text,
            elapsed_s=status.elapsed_s,
            expected_start=status.expected_start,
            submitted_at=folder.submitted_at,
            hosts=status.nodes,
            gpus=folder.gpus,
            restarts=status.restarts,
            exit_code=status.exit_code,
            progress=self._progress(folder.dir, reads=reads),
            busy=busy,
            folder=str(folder.dir),
            handle=run,
        )

    def _progress(self, path: Path, *, reads: bool) -> Progress | None:
        """Return how far a run is; its file is read only where it has changed."""
        known = self._files.get(path)
        if not reads:
            return known.progress if known else None
        try:
            found = (path / METRICS).stat()
        except OSError:
            return None
        stamp = (found.st_size, found.st_mtime_ns)
        if known is None or known.stamp != stamp:
            try:
                progress = self._runs[path].progress()
            except HpckitError:  # damaged, or gone since
                progress = None
            known = self._files[path] = _Files(stamp=stamp, progress=progress)
        return known.progress


def _stamp(path: Path) -> int:
    """Return when a file or folder was changed last, in ns; 0: it is not there."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def stop_asking() -> None:
    """End the programs of Slurm's that were asked in any thread, and have not answered."""
    stop_all()


def end(jobs: Iterable[JobNow]) -> str:
    """Cancel jobs that are not over; say what was asked for.

    Raises:
        HpckitError: Slurm does not answer or refuses.
    """
    rows = [job for job in jobs if not job.over]
    if not rows:
        raise RequestError("These jobs are over.")
    cancel([job.handle for job in rows])
    return f"asked Slurm to end {rows[0].job_id}" + (
        f" and {len(rows) - 1} more" if len(rows) > 1 else ""
    )


def again(job: JobNow) -> str:
    """Submit a job again; return what it is called now.

    Raises:
        HpckitError: the request is wrong, or Slurm refuses.
    """
    new: Run = job.handle.resubmit()
    return f"submitted {job.job_id} again as {new.job_id}"


def errors_of(job: JobNow) -> str:
    """Return why a job failed, with the first traceback; in words if none did.

    Raises:
        HpckitError: what it wrote cannot be read.
    """
    text: str = job.handle.errors()
    return text or f"{job.job_id} is {job.state}: no rank has failed so far."


def stats_of(job: JobNow) -> str:
    """Return what `hpckit stats` prints of a job.

    Raises:
        HpckitError: Slurm does not answer.
    """
    page: str = job.handle.stats().page()
    return page


class LogTail:
    """What a job's rank 0 wrote, or its script: the last MB, then what is new.

    `stopped` ends it.
    """

    def __init__(self, job: JobNow) -> None:
        self.stopped = threading.Event()
        self._run: Run = job.handle
        self._at: dict[Path, int] = {}
        self._decoders: defaultdict[Path, Callable[[bytes], str]] = defaultdict(decoder)

    def new(self) -> Iterator[str]:
        """Yield what was written since the last time; of more than a MB the last, from a line on.

        A progress bar's carriage returns are ends of lines here: it may write no others for hours.

        Raises:
            DamagedRunError: a log is no regular file.
        """
        for path in log_files(self._run._folder):
            try:
                size = path.stat().st_size
                before = self._at.get(path, 0)
                start = 0 if size < before else before  # it was written anew
                if size == start:
                    continue
                # What is written from now on is for the next time.
                content = part_of(path, max(start, size - _LOG_BYTES), size)
            except OSError:
                continue
            except DamagedFileError as error:
                raise DamagedRunError(f"{path} cannot be read: {error}.") from error
            self._at[path] = size
            if size - start > _LOG_BYTES:
                content = re.sub(rb"\A[^\r\n]*[\r\n]", b"", content)
            yield self._decoders[path](content)
